"""`windvane verify`: every change of a store is found, or harmless; and it runs beside a server."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from serving import ARMS, Nursery, local, served, windvane
from stores import (
    FIELDS,
    STREAMS,
    Facts,
    build,
    copy_store,
    edit,
    find_owners,
    flip,
    query,
    reseal,
    serve_copy,
    verify,
)
from windvane import Features
from windvane.service.recovery import rebuilt
from windvane.service.store import Store
from windvane.service.store.database import PAGE_BYTES
from windvane.service.store.events import STREAM_SPAN
from windvane.service.streams import Stream

PAGE_OFFSETS = (0, 1, 3, 5, 7, 9)  # of a page: its kind, free blocks, cells, start of the content, fragments, pointers
HEADER_OFFSETS = (0, 16, 17, 18, 19, 20, 21, 24, 28, 31, 32, 36, 40, 44, 47, 52, 55, 56, 59, 60, 64, 68, 72, 92, 96)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    return path, build(path)


# --- changes by SQL --------------------------------------------------------------------------------------------------

CHANGES = {
    "a prediction": """UPDATE events SET outcome = CAST(replace(outcome, '"prediction":0.', '"prediction":0.9')
                       AS BLOB) WHERE id = 1099511627778""",
    "a default": """UPDATE events SET outcome = CAST(replace(outcome, '"learned":[0.25', '"learned":[0.75') AS BLOB)""",
    "a key": "UPDATE events SET key = 'another' WHERE key = 'key shop 3'",
    "a time": "UPDATE events SET time = time + 0.5 WHERE kind = 2",
    "an id": """UPDATE events SET outcome = CAST(replace(outcome, decision, 'ffffffffffffffff') AS BLOB)
                WHERE key = 'key shop 3'""",
    "a decision": "UPDATE events SET decision = 'ffffffffffffffff' WHERE key = 'key shop 3'",
    "a value": """UPDATE events SET outcome = CAST(replace(outcome, '"value":0.5', '"value":0.25') AS BLOB)""",
    "a context": """UPDATE events SET request = CAST(replace(request, '"age": 3', '"age": 4') AS BLOB)""",
    "an erased salt": "UPDATE events SET salt = NULL WHERE kind = 1",
    "a kind": "UPDATE events SET kind = 6 WHERE kind = 2",
    "a lost event": "DELETE FROM events WHERE id % 1024 = 5",
    "a lost end": "DELETE FROM events WHERE id > 3 * 1099511627776 + 10",
    "a configuration": """UPDATE streams SET config = replace(config, '"seed": 0', '"seed": 1') WHERE id = 1""",
    "a name": "UPDATE streams SET name = 'stop' WHERE name = 'shop'",
    "a date": "UPDATE streams SET created = created - 1",
    "rights": "UPDATE tokens SET full = 1 - full",
    "a hash": "UPDATE tokens SET hash = 'x' WHERE name = 'reader'",
    "a setting": "UPDATE meta SET value = 'no' WHERE name = 'guarded'",
    "a snapshot's number": "UPDATE snapshots SET number = number - 1",
    "a snapshot's agent": "UPDATE snapshots SET agent = x'00' WHERE stream = 2",
    "a snapshot's extra": """UPDATE snapshots SET extra = CAST(replace(extra, 'a shop', 'a chop') AS BLOB)""",
    "an index": "DROP INDEX events_by_key",
    "a definition": "ALTER TABLE tokens RENAME COLUMN full TO part",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_sql_is_found(original: tuple[Path, Facts], tmp_path: Path, change: str) -> None:
    path, facts = original
    copy = copy_store(path, tmp_path / "b.db")
    assert verify(copy)["sound"]
    before = query(copy, "SELECT count(*) FROM sqlite_master"), copy.read_bytes()
    edit(copy, CHANGES[change])
    assert (query(copy, "SELECT count(*) FROM sqlite_master"), copy.read_bytes()) != before  # it did change something
    found = windvane("verify", "--json", "--store", copy)
    assert found.returncode == 1, change
    assert not json.loads(found.stdout)["sound"]
    if change not in ("a lost event", "a lost end", "a key", "a decision", "a name"):  # whose indexes were changed, too
        serve_copy(copy, facts)


def test_one_bit_of_any_column_of_any_event_is_found(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """The 40 of the report, and more: a bit in each of many bodies, and of every other column."""
    path, _ = original
    copy = copy_store(path, tmp_path / "b.db")
    rng = random.Random(4)
    columns = ("outcome", "request", "salt", "request_digest", "chain", "key", "decision")
    rows = query(copy, f"SELECT id, {', '.join(columns)} FROM events ORDER BY id")
    tried = 0
    for rowid, *values in rows:
        for column, value in zip(columns, values, strict=True):
            if value is None or (column != "outcome" and rng.random() < 0.8):
                continue
            raw = bytearray(value if isinstance(value, bytes) else value.encode())
            raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(7)
            changed = bytes(raw) if isinstance(value, bytes) else raw.decode()
            edit(copy, f"UPDATE events SET {column} = ? WHERE id = ?", changed, rowid)
            verdict = verify(copy)
            stream = verdict["streams"][rowid // STREAM_SPAN - 1]
            assert f"event {rowid % STREAM_SPAN}: does not match its checksum" in stream["problem"], (rowid, column)
            assert [one["problem"] for one in verdict["streams"] if one is not stream] == [None, None]
            edit(copy, f"UPDATE events SET {column} = ? WHERE id = ?", value, rowid)
            tried += 1
    assert verify(copy)["sound"]
    assert tried > 50


@pytest.mark.parametrize(
    ("name", "field", "text"),
    [
        ("prediction", "prediction", "recorded outcomes differ from a replay"),
        ("bonus", "bonus", "recorded outcomes differ from a replay"),
        ("rival_score", "rival_score", "recorded outcomes differ from a replay"),
        ("decision", "decision", "recorded outcomes differ from a replay"),
        ("propensity", "propensity", "recorded outcomes differ from a replay"),
        ("preferred", "preferred", "in 1 rounds other arms would be chosen now"),
    ],
)
def test_outcomes_are_compared_even_if_checksums_match(
    original: tuple[Path, Facts], tmp_path: Path, name: str, field: str, text: str
) -> None:
    """A log that is consistent with itself, and not with the model."""
    copy = copy_store(original[0], tmp_path / "b.db")
    rowid, outcome = query(copy, f"SELECT id, outcome FROM events WHERE kind = 1 AND id > {3 * STREAM_SPAN} LIMIT 1")[0]
    document = json.loads(outcome)
    value = document[field]
    document[field] = value * 1.001 if isinstance(value, float) else "blue" if value != "blue" else "red"
    edit(copy, "UPDATE events SET outcome = ? WHERE id = ?", json.dumps(document).encode(), rowid)
    edit(copy, "DELETE FROM snapshots")
    reseal(copy)
    verdict = verify(copy)
    assert text in verdict["streams"][2]["problem"]
    assert [one["problem"] for one in verdict["streams"][:2]] == [None, None]


def test_a_changed_default_is_found_even_if_checksums_match(original: tuple[Path, Facts], tmp_path: Path) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    edit(copy, CHANGES["a default"])
    edit(copy, "DELETE FROM snapshots")
    reseal(copy)
    assert "as 'learned', [0.75] was recorded, and the replay gives [0.25]" in verify(copy)["streams"][0]["problem"]


def test_rounding_is_a_note(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """As of another processor: the last digits differ."""
    copy = copy_store(original[0], tmp_path / "b.db")
    round_outcomes(copy)
    edit(copy, "DELETE FROM snapshots")
    reseal(copy)
    verdict = verify(copy)
    assert verdict["sound"]
    assert all("differ from a replay by rounding" in one["note"] for one in verdict["streams"])
    found = windvane("verify", "--store", copy)
    assert found.returncode == 0
    assert "note: 8 outcomes differ" in found.stdout


def round_outcomes(path: Path) -> None:
    """Change the last digits of the predictions, as another processor would have computed them."""
    for rowid, outcome in query(path, "SELECT id, outcome FROM events WHERE kind = 1"):
        document = json.loads(outcome)
        document["prediction"] *= 1.0 + 1e-13
        edit(path, "UPDATE events SET outcome = ? WHERE id = ?", json.dumps(document).encode(), rowid)


def replace_snapshot(path: Path, change: Callable[[Stream], None]) -> None:
    """Store a snapshot of the first stream that was changed, with checksums that match."""
    edit(path, "DELETE FROM snapshots")
    reseal(path)
    store = Store(path)
    row = store.read_streams()[0]
    stream = rebuilt(row, store)
    change(stream)
    store.append([], [(row.id, stream.snapshot())])
    store.close()


def change_theta(stream: Stream) -> None:
    """Change the parameter by rounding alone."""
    before = stream.agent.theta.copy()
    stream.agent.policy.bank.theta[:] *= 1.0 + 1e-13
    assert not np.array_equal(stream.agent.theta, before)


def change_closed(stream: Stream) -> None:
    closed = stream.agent.open_decisions.closed
    closed.popitem()


def change_reward(stream: Stream) -> None:
    closed = stream.agent.open_decisions.closed
    name = next(name for name, value in closed.items() if value is not None)
    closed[name] += 1e-12


STATE_CHANGES: dict[str, tuple[str, Callable[[Stream], None]]] = {
    "a count": ("counts", lambda stream: setattr(stream.agent, "rewards", stream.agent.rewards + 1)),
    "a closed decision": ("closed", change_closed),
    "a closed reward": ("closed", change_reward),
    "the title": ("title", lambda stream: setattr(stream, "title", "another")),
    "archived": ("archived", lambda stream: setattr(stream, "archived", 1.0)),
    "arms": ("statistics", lambda stream: stream.statistics.arms.update(red=99)),
    "a bucket": ("statistics", lambda stream: stream.statistics.buckets[0].update(rewards=99)),
    "a recent reward": ("statistics", lambda stream: stream.statistics.recent[0].update(reward=0.125)),
}


@pytest.mark.parametrize("rounding", ["none", "outcomes", "parameters"])
@pytest.mark.parametrize("change", STATE_CHANGES)
def test_rounding_does_not_excuse_other_differences_of_a_state(
    original: tuple[Path, Facts], tmp_path: Path, change: str, rounding: str
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    what, apply = STATE_CHANGES[change]
    if rounding == "outcomes":
        round_outcomes(copy)

    def change_state(stream: Stream) -> None:
        apply(stream)
        if rounding == "parameters":
            change_theta(stream)

    replace_snapshot(copy, change_state)
    assert verify(copy)["streams"][0]["problem"] == f"the state differs from a replay of the log ({what})"


@pytest.mark.parametrize("rounding", ["outcomes", "parameters"])
def test_a_state_that_differs_by_rounding_is_a_note(
    original: tuple[Path, Facts], tmp_path: Path, rounding: str
) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    if rounding == "outcomes":
        round_outcomes(copy)

    def change_state(stream: Stream) -> None:
        if rounding == "parameters":
            change_theta(stream)
        else:
            stream.statistics.buckets[-1]["total"] *= 1.0 + 1e-14

    replace_snapshot(copy, change_state)
    verdict = verify(copy)
    assert verdict["sound"], verdict
    assert "the state differs from a replay of the log" in verdict["streams"][0]["note"]


def test_a_state_that_differs_in_its_bytes_alone_is_a_problem(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """No outcome differs by rounding, so this is the same processor."""
    copy = copy_store(original[0], tmp_path / "b.db")
    replace_snapshot(copy, lambda stream: stream.statistics.buckets[-1].update(total=1.75 + 1e-14))
    problem = verify(copy)["streams"][0]["problem"]
    assert problem.startswith("the state differs from a replay of the log")


def test_a_key_that_was_used_twice_is_found(original: tuple[Path, Facts], tmp_path: Path) -> None:
    copy = copy_store(original[0], tmp_path / "b.db")
    edit(copy, "UPDATE events SET key = 'key shop 3' WHERE key = 'key shop 4'")
    edit(copy, "DELETE FROM snapshots")
    reseal(copy)
    assert verify(copy)["streams"][0]["problem"] == "1 keys were used by more than one request ('key shop 3')"


def test_states_are_compared_by_the_names_of_features(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """A snapshot whose features are in another order than its parameters, with checksums that match."""
    copy = copy_store(original[0], tmp_path / "b.db")
    store = Store(copy)
    row = next(row for row in store.read_streams() if row.name == "fields")
    stream = rebuilt(row, store)
    declared = {**FIELDS, "by_arm": {"device": ["desk", "phone"]}, "shared": {"age": (0, 100)}}
    names = sorted(stream.agent.feature_names)
    stream.agent.features = Features(**declared, arms=["a", "b"])  # the same names, in another order
    assert sorted(stream.agent.feature_names) == names
    store.append([], [(row.id, stream.snapshot())])
    store.close()
    problem = verify(copy)["streams"][1]["problem"]
    assert problem is not None
    assert problem.startswith("the state differs from a replay of the log (the parameter of ")


# --- changes by the byte ---------------------------------------------------------------------------------------------


def sweep(original: tuple[Path, Facts], copy: Path, offsets: list[int], rng: random.Random) -> tuple[int, int]:
    """Flip a bit at each of ``offsets``: it is found, or harmless. Returns how many were which."""
    path, facts = original
    content = path.read_bytes()
    found = harmless = 0
    for at in offsets:
        copy_store(path, copy, flip(content, at, 1 << rng.randrange(8)))
        is_sound = verify(copy)["sound"]
        served_copy = serve_copy(copy, facts)  # nothing is different without a word
        assert served_copy.is_intact or not is_sound, f"byte {at} (page {at // PAGE_BYTES + 1}): {served_copy}"
        found, harmless = found + (not is_sound), harmless + is_sound
    return found, harmless


def choose_offsets(content: bytes, each: int, rng: random.Random) -> list[int]:
    """Offsets of all classes: fields of the header, of every page its own header, and what stands in it."""
    offsets = list(HEADER_OFFSETS)
    for start in range(0, len(content), PAGE_BYTES):
        used = [at for at in range(start, start + PAGE_BYTES) if content[at]]
        offsets += [start + rng.choice(PAGE_OFFSETS), *(rng.choice(used) for _ in range(each if used else 0))]
    return offsets


def test_a_flipped_bit_anywhere_is_found_or_harmless(original: tuple[Path, Facts], tmp_path: Path) -> None:
    rng = random.Random(11)
    found, harmless = sweep(original, tmp_path / "b.db", choose_offsets(original[0].read_bytes(), 2, rng), rng)
    assert found > 40
    assert harmless > 5


@pytest.mark.slow
def test_every_byte_in_turn(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """One in fifty of all bytes, and all that are in the header of the file or of a page."""
    rng, size = random.Random(12), original[0].stat().st_size
    offsets = [at for at in range(size) if at < 110 or at % PAGE_BYTES < 16 or rng.random() < 0.02]
    found, harmless = sweep(original, tmp_path / "b.db", offsets, rng)
    assert found + harmless == len(offsets)
    assert found > len(offsets) / 4
    assert harmless > 0


def test_a_zeroed_page_is_found(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """A page of events costs the streams that have an event on it, the root of a table of rows all, others none."""
    path, facts = original
    content = path.read_bytes()
    owners = find_owners(path)
    roots = dict(query(path, "SELECT rootpage, name FROM sqlite_master"))
    costs = {}
    for start in range(0, len(content), PAGE_BYTES):
        page = start // PAGE_BYTES + 1
        zeroed = content[:start] + bytes(PAGE_BYTES) + content[start + PAGE_BYTES :]
        copy = copy_store(path, tmp_path / "b.db", zeroed)
        assert not verify(copy)["sound"], start
        costs[page] = serve_copy(copy, facts)
        broken = set(costs[page].broken)
        if roots.get(page) in ("streams", "events"):
            assert broken == set(STREAMS), page
        else:
            assert broken == owners.get(page, set()), page
            assert costs[page].is_intact == (page not in owners and roots.get(page) != "tokens"), page
    assert costs[1].is_intact, "the first page is that of every store"
    assert len(owners) >= 3
    assert any(0 < len(names) < len(STREAMS) for names in owners.values())  # a page of events costs some, not all


# --- the write-ahead log ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


def test_a_damaged_write_ahead_log_is_a_prefix_and_verify_says_so(tmp_path: Path, nursery: Nursery) -> None:
    """SQLite drops the commits after the damage; the marks show what was acknowledged."""
    server = nursery.served(tmp_path / "a.db")
    with server.client() as client:
        for name in ("shop", "other"):
            assert client.post("/v1/streams", json={"name": name, "dim": 2}).status_code == 201
        for _ in range(12):
            for name in ("shop", "other"):
                assert client.post(f"/v1/streams/{name}/decide", json=ARMS).status_code == 200
    server.kill()
    wal = (tmp_path / "a.db-wal").read_bytes()
    rng, missing = random.Random(5), set()
    for _ in range(25):
        copy = copy_store(tmp_path / "a.db", tmp_path / "b.db")
        at = rng.randrange(32, len(wal))
        (tmp_path / "b.db-wal").write_bytes(flip(wal, at, 1 << rng.randrange(8)))
        verdict = verify(copy)
        events = {one["stream"]: one["events"] for one in verdict["streams"]}
        lost = {name: range(events[name] + 1, 13) for name in events if events[name] < 12}
        for one in verdict["streams"]:
            if one["stream"] in lost:
                first = lost[one["stream"]][0]
                assert f"events {first} to 12 were acknowledged and are not in the log" in one["problem"]
            else:
                assert one["problem"] is None
        assert verdict["sound"] == (sum(events.values()) == 24), verdict
        missing.add(24 - sum(events.values()))
        if len(events) < 2:
            assert "is missing; it had" in " ".join(verdict["store"])
    assert len(missing) > 5
    copy = copy_store(tmp_path / "a.db", tmp_path / "b.db")
    (tmp_path / "b.db-wal").write_bytes(flip(wal, len(wal) * 3 // 4, 1))
    with local(copy) as service:
        logs = {name: service.log(name) for name in ("shop", "other")}
        for log in logs.values():
            assert log[-1]["kind"] == "lost"
            assert log[-1]["acknowledged"] == 12
            assert [one["number"] for one in log] == list(range(1, len(log) + 1))
            assert 1 < len(log) <= 12
        assert service.decide("shop")["arm"]
    verdict = verify(copy)
    assert verdict["sound"]  # it is said in the log, and by verify
    assert all("to 12 were acknowledged and then lost" in one["note"] for one in verdict["streams"])
    with local(copy) as service:
        assert [one["kind"] for one in service.log("shop")].count("lost") == 1  # it is said once


def test_marks_that_are_damaged_or_of_another_store_are_ignored(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create()
        for _ in range(5):
            service.decide()
    mark = tmp_path / "a.db.mark"
    content = mark.read_bytes()
    edit(tmp_path / "a.db", "DELETE FROM snapshots")
    edit(tmp_path / "a.db", "DELETE FROM events WHERE id % 1024 > 3")
    assert "events 4 to 5 were acknowledged" in verify(tmp_path / "a.db")["streams"][0]["problem"]
    slot = 16
    for at in (slot + 7, slot + 9):
        mark.write_bytes(flip(content, at, 1))
        assert verify(tmp_path / "a.db")["sound"], at
    mark.unlink()
    assert verify(tmp_path / "a.db")["sound"]
    mark.mkdir()
    with local(tmp_path / "a.db") as service:  # not fatal
        service.decide()
    mark.rmdir()
    mark.write_bytes(content[:20] + b"another store!" + content[34:])
    with local(tmp_path / "a.db") as service:
        service.decide()
        assert service.store.read_acknowledged() == {1: 5}


# --- beside a server -------------------------------------------------------------------------------------------------


def test_verify_beside_a_server_under_load(tmp_path: Path) -> None:
    server = served(tmp_path / "a.db")
    stop, failures = threading.Event(), list[str]()

    def work(number: int) -> None:
        with server.client() as client:
            while not stop.is_set():
                answer = client.post(f"/v1/streams/s{number}/decide", json=ARMS)
                reward = {"decision": answer.json()["decision"], "value": 1.0}
                if client.post(f"/v1/streams/s{number}/reward", json=reward).status_code != 200:
                    failures.append(answer.text)

    with server.client() as client:
        for i in range(3):
            assert client.post("/v1/streams", json={"name": f"s{i}", "dim": 2, "wait": 5}).status_code == 201
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    seen = []
    for _ in range(6):
        found = windvane("verify", "--json", "--store", tmp_path / "a.db")
        assert found.returncode == 0, found
        seen.append(sum(one["events"] for one in json.loads(found.stdout)["streams"]))
    stop.set()
    for thread in threads:
        thread.join()
    server.stop()
    assert not failures
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    assert verify(tmp_path / "a.db")["sound"]
