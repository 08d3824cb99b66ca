"""Verification: every change of a store is found, whether the checksums match or not, and rounding is no fault."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from support.server import Local, run_command
from support.stores import (
    FIELDS,
    STREAMS,
    Facts,
    add_stream,
    codes,
    copy_store,
    decide,
    edit,
    flip,
    open_beside,
    query,
    recover_all,
    reseal,
    serve_copy,
    verify,
)
from windvane import Features
from windvane.agent.core import AgentCore
from windvane.service.recovery import rebuild_stream
from windvane.service.store import SqliteStore
from windvane.service.store.events import STREAM_SPAN
from windvane.service.store.sqlite.database import PAGE_BYTES
from windvane.service.streams import Stream
from windvane.service.verification import verify_store

PAGE_OFFSETS = (0, 1, 3, 5, 7, 9)  # of a page: its kind, free blocks, cells, start of the content, fragments, pointers
HEADER_OFFSETS = (0, 16, 17, 18, 19, 20, 21, 24, 28, 31, 32, 36, 40, 44, 47, 52, 55, 56, 59, 60, 64, 68, 72, 92, 96)


def note_codes(path: Path) -> list[set[str]]:
    return [{note.code for note in stream.notes} for stream in verify(path).streams]


# --- changes by SQL --------------------------------------------------------------------------------------------------

REPLACE = "UPDATE events SET {0} = CAST(replace({0}, '{1}', '{2}') AS BLOB)"
CHANGES = {
    "a prediction": REPLACE.format("outcome", '"prediction":0.', '"prediction":0.9') + " WHERE key = 'key shop 3'",
    "a default": REPLACE.format("outcome", '"learned":[0.25', '"learned":[0.75'),
    "a key": "UPDATE events SET key = 'another' WHERE key = 'key shop 3'",
    "a time": "UPDATE events SET time = time + 0.5 WHERE kind = 2",
    "a decision": "UPDATE events SET decision = 'ffffffffffffffff' WHERE key = 'key shop 3'",
    "a value": REPLACE.format("outcome", '"value":0.25', '"value":0.5'),
    "a context": REPLACE.format("request", '"age": 3', '"age": 4'),
    "an erased salt": "UPDATE events SET salt = NULL WHERE kind = 1",
    "a kind": "UPDATE events SET kind = 7 WHERE kind = 2",
    "a lost event": "DELETE FROM events WHERE id % 1024 = 5",
    "a lost end": f"DELETE FROM events WHERE id > {3 * STREAM_SPAN + 10}",
    "a configuration": """UPDATE streams SET config = replace(config, '"seed": 0', '"seed": 1') WHERE id = 1""",
    "a name": "UPDATE streams SET name = 'stop' WHERE name = 'shop'",
    "a date": "UPDATE streams SET created = created - 1",
    "rights": "UPDATE tokens SET full = 1 - full",
    "a hash": "UPDATE tokens SET hash = 'x' WHERE name = 'reader'",
    "a setting": "UPDATE meta SET value = 'no' WHERE name = 'guarded'",
    "a snapshot's number": "UPDATE snapshots SET number = number - 1",
    "a snapshot's chain": "UPDATE snapshots SET chain = x'00' WHERE stream = 1",
    "a snapshot's agent": "UPDATE snapshots SET agent = x'00' WHERE stream = 2",
    "a snapshot's extra": "UPDATE snapshots SET extra = CAST(replace(extra, 'a shop', 'a chop') AS BLOB)",
    "an index": "DROP INDEX events_by_key",
    "a definition": "ALTER TABLE tokens RENAME COLUMN full TO part",
}
WITH_INDEXES = ("a lost event", "a lost end", "a key", "a decision", "a name")  # SQLite changes these consistently


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_sql_is_found(copy: Path, facts: Facts, change: str) -> None:
    before = copy.read_bytes()
    edit(copy, CHANGES[change])
    assert copy.read_bytes() != before  # it did change something
    assert not verify(copy).is_sound
    if change not in WITH_INDEXES:
        serve_copy(copy, facts)


def test_one_bit_of_any_column_of_any_event_is_found(copy: Path) -> None:
    rng, tried = random.Random(4), 0
    columns = ("outcome", "request", "salt", "request_digest", "chain", "key", "decision")
    for rowid, *values in query(copy, f"SELECT id, {', '.join(columns)} FROM events ORDER BY id"):
        for column, value in zip(columns, values, strict=True):
            if value is None or rng.random() < 0.75:
                continue
            raw = value if isinstance(value, bytes) else value.encode()
            changed = flip(raw, rng.randrange(len(raw)), 1 << rng.randrange(7))
            update = f"UPDATE events SET {column} = ? WHERE id = ?"
            edit(copy, update, changed if isinstance(value, bytes) else changed.decode(), rowid)
            assert codes(verify(copy)) == {list(STREAMS)[rowid // STREAM_SPAN - 1]: ("replay",)}, (rowid, column)
            edit(copy, update, value, rowid)
            tried += 1
    assert verify(copy).is_sound
    assert tried > 40


OUTCOMES = {
    **dict.fromkeys(("prediction", "bonus", "rival_score", "propensity", "id", "rival"), "outcomes"),
    "preferred": "arms",
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcomes_are_compared_with_the_model_even_if_checksums_match(copy: Path, name: str) -> None:
    where = f"kind = 1 AND id > {3 * STREAM_SPAN} LIMIT 1"  # the first decision of the third stream
    ((rowid, outcome),) = query(copy, f"SELECT id, outcome FROM events WHERE {where}")
    document = json.loads(outcome)
    value = document[name]
    document[name] = value * 1.001 if isinstance(value, float) else "blue" if value != "blue" else "red"
    edit(copy, "UPDATE events SET outcome = ? WHERE id = ?", json.dumps(document).encode(), rowid)
    reseal(copy)
    assert codes(verify(copy)) == {"other": (OUTCOMES[name],)}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (CHANGES["a default"], "outcomes"),
        ("UPDATE events SET key = 'key shop 3' WHERE key = 'key shop 4'", "repeated_keys"),
        (REPLACE.format("outcome", '"index":', '"index":7') + " WHERE key = 'key shop 3'", "replay"),
        ("UPDATE events SET kind = 10 WHERE key = 'key shop 3'", "replay"),
        ("UPDATE events SET outcome = x'7b' WHERE key = 'key shop 3'", "replay"),  # no JSON
        ("UPDATE streams SET config = '{}' WHERE name = 'shop'", "replay"),
    ],
)
def test_a_log_is_replayed_even_if_checksums_match(copy: Path, change: str, code: str) -> None:
    edit(copy, change)
    reseal(copy)
    assert codes(verify(copy)) == {"shop": (code,)}


# --- states and rounding ---------------------------------------------------------------------------------------------


def round_outcomes(path: Path) -> None:
    """Change the last digits of the predictions, as another processor would have computed them."""
    for rowid, outcome in query(path, "SELECT id, outcome FROM events WHERE kind = 1"):
        document = json.loads(outcome)
        document["prediction"] *= 1.0 + 1e-13
        edit(path, "UPDATE events SET outcome = ? WHERE id = ?", json.dumps(document).encode(), rowid)


def replace_snapshot(path: Path, change: Callable[[Stream], None], name: str = "shop") -> None:
    """Store a snapshot of a stream that was changed, with checksums that match."""
    reseal(path)
    with closing(SqliteStore(path)) as store:
        row = next(row for row in store.read_streams() if row.name == name)
        stream = rebuild_stream(row, store)
        change(stream)
        store.append([], [(row.id, stream.snapshot())])


def round_parameters(stream: Stream) -> None:
    before = stream.core.theta.copy()
    stream.core.policy.bank.theta[:] *= 1.0 + 1e-13  # type: ignore[attr-defined]
    assert not np.array_equal(stream.core.theta, before)


def round_total(stream: Stream) -> None:
    stream.core.tally.reward_total += 1e-14


def change_closed(stream: Stream) -> None:
    closed = stream.core.decisions.closed
    name = next(name for name, outcome in closed.items() if outcome.reward is not None)
    closed[name] = closed[name]._replace(reward=closed[name].reward + 1e-12)  # type: ignore[operator]


STATE_CHANGES: dict[str, Callable[[Stream], None]] = {
    "a count": lambda stream: setattr(stream.core.tally, "rewards", stream.core.tally.rewards + 1),
    "a closed decision": lambda stream: stream.core.decisions.closed.popitem() and None,
    "a closed reward": change_closed,
    "the title": lambda stream: setattr(stream, "title", "another"),
    "archived": lambda stream: setattr(stream, "archived", 1.0),
}


@pytest.mark.parametrize("rounding", ["none", "outcomes", "parameters"])
@pytest.mark.parametrize("change", STATE_CHANGES)
def test_rounding_does_not_excuse_other_differences_of_a_state(copy: Path, change: str, rounding: str) -> None:
    if rounding == "outcomes":
        round_outcomes(copy)

    def change_state(stream: Stream) -> None:
        STATE_CHANGES[change](stream)
        if rounding == "parameters":
            round_parameters(stream)

    replace_snapshot(copy, change_state)
    assert codes(verify(copy)) == {"shop": ("state",)}


def test_outcomes_that_differ_by_rounding_are_a_note(copy: Path) -> None:
    round_outcomes(copy)
    reseal(copy)
    assert verify(copy).is_sound
    assert note_codes(copy) == [{"rounding"}] * 3
    result = run_command("verify", "--store", copy)
    assert result.returncode == 0
    assert result.stdout.count("note: 8 outcomes differ") == 3


def test_a_state_that_differs_by_rounding_is_a_note(copy: Path) -> None:
    """If only its bytes differ and no outcome does, this is the same processor, and it is a problem."""
    replace_snapshot(copy, round_parameters)
    assert verify(copy).is_sound
    assert note_codes(copy)[0] == {"rounding"}
    replace_snapshot(copy, round_total)
    assert codes(verify(copy)) == {"shop": ("state",)}
    round_outcomes(copy)
    replace_snapshot(copy, round_total)
    assert verify(copy).is_sound
    assert note_codes(copy)[0] == {"rounding"}


def test_states_are_compared_by_the_names_of_features(copy: Path) -> None:
    """A snapshot whose features are in another order than its parameters, with checksums that match."""

    def reorder(stream: Stream) -> None:
        names = stream.core.feature_names
        features = Features(**{**FIELDS, "by_arm": {"device": ["desk", "phone"]}})  # type: ignore[arg-type]
        stream.core.encoder.features, stream.core.settings["features"] = features, features.declaration()
        assert stream.core.feature_names != names
        assert sorted(stream.core.feature_names) == sorted(names)

    replace_snapshot(copy, reorder, "fields")
    assert codes(verify(copy)) == {"fields": ("state",)}


def test_a_snapshot_that_cannot_be_used(
    original: tuple[Path, Facts], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another log, or ahead of the log: a problem. Of another version: a note. The log is replayed."""
    with closing(SqliteStore(copy)) as store:
        snapshot = store.read_snapshot(1)
        assert snapshot is not None
        store.append([], [(1, snapshot._replace(chain=b"x" * 32))])
    assert codes(verify(copy)) == {"shop": ("snapshot",)}
    assert serve_copy(copy, original[1]).is_intact
    edit(copy, "DELETE FROM events WHERE id > 3 * ? + 4", STREAM_SPAN)
    assert codes(verify(copy))["other"] == ("missing_events", "replay")
    with closing(SqliteStore(copy)) as store:
        assert set(recover_all(store)[1]) == {"other"}

    monkeypatch.setattr(AgentCore, "from_bytes", Mock(side_effect=ValueError("is of another version")))
    again = copy_store(original[0], copy)
    assert verify(again).is_sound
    assert note_codes(again) == [{"other_version"}] * 3
    with closing(SqliteStore(again)) as store:
        assert set(recover_all(store)[0]) == set(STREAMS)


# --- changes by the byte ---------------------------------------------------------------------------------------------


def sweep(original: tuple[Path, Facts], copy: Path, offsets: list[int], rng: random.Random) -> tuple[int, int]:
    """Flip a bit at each of ``offsets``: it is found, or harmless. Returns how many were which."""
    path, facts = original
    content, counts = path.read_bytes(), [0, 0]
    for at in offsets:
        copy_store(path, copy, flip(content, at, 1 << rng.randrange(8)))
        is_sound = verify(copy).is_sound
        served = serve_copy(copy, facts)  # nothing is different without a word
        assert served.is_intact or not is_sound, f"byte {at} (page {at // PAGE_BYTES + 1}): {served}"
        counts[is_sound] += 1
    return counts[0], counts[1]


def test_a_flipped_bit_anywhere_is_found_or_harmless(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """Bytes of all classes: fields of the header, of every page its own header, and what stands in it."""
    rng, content, offsets = random.Random(11), original[0].read_bytes(), list(HEADER_OFFSETS)
    for start in range(0, len(content), PAGE_BYTES):
        used = [at for at in range(start, start + PAGE_BYTES) if content[at]]
        offsets += [start + rng.choice(PAGE_OFFSETS), rng.choice(used)]
    found, harmless = sweep(original, tmp_path / "b.db", offsets, rng)
    assert found > 30
    assert harmless > 5


@pytest.mark.slow
def test_every_byte_in_turn(original: tuple[Path, Facts], tmp_path: Path) -> None:
    """One in fifty of all bytes, and all that are in the header of the file or of a page."""
    rng, size = random.Random(12), original[0].stat().st_size
    offsets = [at for at in range(size) if at < 110 or at % PAGE_BYTES < 16 or rng.random() < 0.02]
    found, harmless = sweep(original, tmp_path / "b.db", offsets, rng)
    assert found > len(offsets) / 4
    assert harmless > 0


def test_a_damaged_write_ahead_log_is_a_prefix_and_verify_says_so(tmp_path: Path) -> None:
    """SQLite drops the commits after the damage; the marks show what was acknowledged."""
    path, log = tmp_path / "a.db", tmp_path / "b.db-wal"
    with closing(SqliteStore(path)) as store:
        streams = [add_stream(store, name) for name in ("shop", "other")]
        for _ in range(6):
            for stream in streams:
                decide(stream, store)
        copy_store(path, tmp_path / "c.db")  # as a kill would leave it
    rng, lost = random.Random(5), set()
    wal = (tmp_path / "c.db-wal").read_bytes()
    for _ in range(25):
        copy = copy_store(tmp_path / "c.db", tmp_path / "b.db")
        log.write_bytes(flip(wal, rng.randrange(32, len(wal)), 1 << rng.randrange(8)))
        report = verify(copy)
        events = {stream.stream: stream.events for stream in report.streams}
        expected = {name: ("missing_events",) for name, number in events.items() if number < 12}
        found = codes(report)
        assert found.pop("file", ("missing_stream",) * (2 - len(events))) == ("missing_stream",) * (2 - len(events))
        assert found == expected
        lost.add(24 - sum(events.values()))
    assert len(lost) > 5
    copy = copy_store(tmp_path / "c.db", tmp_path / "b.db")
    log.write_bytes(flip(wal, len(wal) * 3 // 4, 1))
    for _ in range(2):  # it is recorded once
        service = Local(copy)
        try:
            last = [service.events(name)[-1] for name in ("shop", "other")]
        finally:
            service.stop()
        assert [(event["kind"], event["acknowledged"]) for event in last] == [("lost", 12)] * 2
    assert verify(copy).is_sound
    assert note_codes(copy) == [{"lost"}] * 2


# --- beside a server, and as a command -------------------------------------------------------------------------------


def test_verify_beside_a_server_that_writes(tmp_path: Path) -> None:
    store, is_over = SqliteStore(tmp_path / "a.db"), threading.Event()
    streams = [add_stream(store, name) for name in ("shop", "other")]

    def write() -> None:
        while not is_over.is_set():
            for stream in streams:
                decide(stream, store)
        store.drop_connection()

    writer = threading.Thread(target=write)
    writer.start()
    numbers: list[int] = []
    with open_beside(tmp_path / "a.db") as beside:
        while len(numbers) < 4 or numbers[-1] == numbers[0]:
            report = verify_store(beside)
            assert report.is_sound, report
            numbers.append(sum(stream.events for stream in report.streams))
    is_over.set()
    writer.join()
    store.close()
    assert numbers == sorted(numbers)


def test_the_command(copy: Path) -> None:
    before = copy.read_bytes()
    result = run_command("verify", "--json", "--store", copy)
    assert result.returncode == 0
    assert json.loads(result.stdout) == verify(copy).to_plain()
    assert copy.read_bytes() == before
    edit(copy, CHANGES["a prediction"])
    result = run_command("verify", "--json", "--store", copy)
    assert result.returncode == 1
    assert [problem["code"] for problem in json.loads(result.stdout)["streams"][0]["problems"]] == ["replay"]
    copy.write_bytes(b"no store" * 1000)
    assert run_command("verify", "--store", copy).returncode == 2
