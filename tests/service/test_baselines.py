"""Logs that are not whole: replays begin at the baseline, and everything that reads a log reads what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.backends import locate
from support.server import Local, pack_stream, parse_json, read_problem, run_local
from support.stores import FIELDS, add_stream, codes, compact, decide, edit, open_directly, query, verify
from windvane.agent import AgentCore, archive
from windvane.agent.refit import LogLearner, renew_settings
from windvane.service.baselines import build_baseline, find_start
from windvane.service.recovery import rebuild_stream
from windvane.service.store import SnapshotError, SqliteStore, Store, StreamRow
from windvane.service.store.events import STREAM_SPAN
from windvane.service.stream_state import ReplayError

FEATURES: dict[str, Any] = {"by_arm": {"plan": ["free", "pro"]}, "arms": ["red", "blue"]}
PATH = "/v1/streams/shop"


def play(service: Local, rounds: int, seed: int = 0) -> list[str]:
    """Decide, and reward most decisions; return their ids."""
    rng, ids = np.random.default_rng(seed), list[str]()
    for _ in range(rounds):
        decision = service.decide(body={"context": {"plan": ["free", "pro"][rng.integers(2)]}})
        ids.append(decision["id"])
        if rng.random() < 0.8:
            service.reward(ids[-1], float(rng.random() < {"red": 0.2, "blue": 0.7}.get(decision["arm"], 0.5)))
    return ids


def erase(service: Local, removed: int, requests: tuple[int, ...] = ()) -> None:
    service.call(lambda: compact(service.store, service.engine.streams["shop"], removed, requests))


def post(service: Local, path: str, body: Any = None) -> dict[str, Any]:
    answer = service.post(f"{PATH}/{path}", body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def find_requests(service: Local) -> tuple[int, ...]:
    """Return the numbers of all events that have a request."""
    return tuple(event["number"] for event in service.events() if "request" in event)


# --- recovery and verification ---------------------------------------------------------------------------------------


def test_a_baseline_of_version_7_of_agents_is_used_and_a_snapshot_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are read, but a replay gives another state than a snapshot of the older version, and nothing could replace
    the baseline."""
    path = locate(tmp_path / "a.db")
    with closing(open_directly(path)) as store, monkeypatch.context() as patch:
        patch.setattr(archive, "VERSION", 7)
        stream = add_stream(store, "shop", reward_timeout=20.0, default_reward=0.0)
        decide(stream, store, 20, now=10.0)
        compact(store, stream, 5)
        decide(stream, store, 20, now=20.0)
        store.append([], [(stream.id, stream.snapshot())])
        assert stream.snapshot().agent.startswith(b"windvane agent 7 ")
    with closing(open_directly(path)) as store:
        again = rebuild_stream(stream.row, store)
        assert (again.number, again.restored) == (stream.number, 40)
        assert again.core.theta.tolist() == stream.core.theta.tolist()
        assert "a replay gives version 8" in caplog.text
    report = verify(path)
    assert report.is_sound
    assert {note.code for note in report.streams[0].notes} == {"removed", "other_version"}


@pytest.mark.parametrize(("removed", "erased"), [(30, (41, 44)), (0, (1, 2, 5)), (50, ()), (10_000, ())])
def test_a_stream_continues_from_its_baseline(tmp_path: Path, removed: int, erased: tuple[int, ...]) -> None:
    """Bit for bit as if nothing had been erased, after any number of erasures, events and restarts."""
    states = []
    for is_erased in (False, True):
        path = locate(tmp_path / f"{is_erased}.db")
        with closing(open_directly(path)) as store:
            stream = add_stream(store, "shop", reward_timeout=20.0, default_reward=0.0)
            for number in range(3):
                decide(stream, store, 20, now=10.0 * number)
                store.append(stream.decide(json.dumps(FIELDS_BODY).encode(), None, 10.0 * number + 9).events)
                if is_erased:
                    last = stream.number
                    requests = [event.number for event in store.read_events(1) if event.request is not None]
                    compact(store, stream, min(removed, last), tuple(n for n in erased if n in requests))
            decide(stream, store, 5, now=90.0)
            if is_erased:
                assert pack_stream(rebuild_stream(stream.row, store)) == pack_stream(stream)
        if is_erased:
            report = verify(path)
            assert report.is_sound, report
            assert report.streams[0].events == stream.number
            notes = {note.code for note in report.streams[0].notes}
            assert notes == ({"removed"} if removed else set()) | ({"erased"} if erased else set())
        states.append(stream.core.theta.tolist())
    assert states[0] == states[1]


FIELDS_BODY = {"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7]}}


@pytest.fixture
def compacted(tmp_path: Path) -> tuple[Path, StreamRow]:
    """A store whose stream has events 11 to 80: requests of 21 and 23 are erased, and the baseline is at event 60."""
    path = tmp_path / "a.db"
    with closing(SqliteStore(path)) as store:
        stream = add_stream(store, "shop")
        decide(stream, store, 30)
        compact(store, stream, 10, (21, 23))
        decide(stream, store, 10)
    assert verify(path).is_sound
    return path, stream.row


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UPDATE events SET outcome = x'7b7d' WHERE id % 1000000 = {}", "replay"),
        ("UPDATE events SET request = x'7b7d' WHERE id % 1000000 = {}", "replay"),
        ("UPDATE events SET request_digest = x'00' WHERE id % 1000000 = {}", "replay"),
        ("DELETE FROM events WHERE id % 1000000 = {}", "replay"),
    ],
)
@pytest.mark.parametrize("number", [11, 21, 35, 61, 79])
def test_changes_to_the_events_that_are_left(
    compacted: tuple[Path, StreamRow], sql: str, code: str, number: int
) -> None:
    path, row = compacted
    offset = STREAM_SPAN % 1_000_000
    edit(path, sql.format((number + offset) % 1_000_000))
    assert codes(verify(path)) == {"shop": (code,)}
    with closing(SqliteStore(path)) as store:
        if number > 60:
            with pytest.raises(ReplayError):
                rebuild_stream(row, store)
        else:  # the state does not depend on it
            assert rebuild_stream(row, store).number == 80


@pytest.mark.sqlite
def test_a_request_that_is_erased_after_the_baseline(compacted: tuple[Path, StreamRow]) -> None:
    """As somebody else might do: the checksum still matches."""
    path, _ = compacted
    edit(path, "UPDATE events SET request = NULL, salt = NULL WHERE id = ?", STREAM_SPAN + 61)
    assert codes(verify(path)) == {"shop": ("replay",)}


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE baselines SET removed = 9",
        "UPDATE baselines SET removed_chain = x'00'",
        "UPDATE baselines SET agent = agent || x'00'",
        "UPDATE baselines SET number = 59",
        "UPDATE baselines SET first_time = 0.5",
        "UPDATE baselines SET digest = x'00'",
        "DELETE FROM baselines",
    ],
)
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_changes_to_the_baseline(compacted: tuple[Path, StreamRow], sql: str, has_snapshot: bool) -> None:
    path, row = compacted
    with closing(SqliteStore(path)) as store:
        stream = rebuild_stream(row, store)
        if has_snapshot:
            store.append([], [(row.id, stream.snapshot())])
    edit(path, sql)
    assert codes(verify(path)) == {"shop": ("replay" if "DELETE" in sql else "baseline",)}
    with closing(SqliteStore(path)) as store:
        if has_snapshot:  # which is all that a server needs
            assert pack_stream(rebuild_stream(row, store)) == pack_stream(stream)
        else:
            with pytest.raises(ReplayError):
                rebuild_stream(row, store)


@pytest.mark.sqlite
def test_the_last_events_are_missing(compacted: tuple[Path, StreamRow]) -> None:
    """The log ends before its baseline."""
    path, row = compacted
    edit(path, "DELETE FROM events WHERE id > ?", STREAM_SPAN + 40)
    assert codes(verify(path)) == {"shop": ("missing_events", "baseline")}
    with closing(SqliteStore(path)) as store, pytest.raises(ReplayError):
        rebuild_stream(row, store)


@pytest.mark.sqlite
def test_events_that_should_be_gone(compacted: tuple[Path, StreamRow]) -> None:
    path, _ = compacted
    edit(path, f"INSERT INTO events SELECT {STREAM_SPAN + 10}, {rest(path)} FROM events WHERE id = {STREAM_SPAN + 11}")
    assert codes(verify(path)) == {"shop": ("repeated_keys", "replay")}


def rest(path: Path) -> str:
    """Return the columns of events but for the id."""
    return ", ".join(row[1] for row in query(path, "PRAGMA table_info(events)")[1:])


# --- what is built ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_directly(locate(tmp_path / "a.db"))) as opened:
        yield opened


def test_a_baseline_moves_on(store: Store) -> None:
    """The times of what was removed add up, and a lower number removes nothing."""
    stream = add_stream(store, "shop")
    decide(stream, store, 30)
    events = list(store.read_events(1))
    first = compact(store, stream, 10)
    assert (first.removed, first.removed_chain) == (10, events[9].chain)
    assert (first.first_time, first.last_time) == (events[0].time, events[9].time)
    assert (first.snapshot.number, first.snapshot.chain) == (60, events[-1].chain)
    second = compact(store, stream, 5)
    assert second == first
    third = compact(store, stream, 60)
    assert (third.removed, third.removed_chain) == (60, events[-1].chain)
    assert (third.first_time, third.last_time) == (events[0].time, events[-1].time)
    assert list(store.read_events(1)) == []
    with pytest.raises(SnapshotError):
        build_baseline(stream.row, store, stream.snapshot(), 61)


def test_the_arms_at_the_start_of_the_log(store: Store) -> None:
    """Those of the time, whatever was removed, and whichever refit is undone later."""
    stream = add_stream(store, "shop", features=FIELDS)
    for arms in (["a", "b", "c"], ["a", "b", "c", "d"]):
        store.append(stream.configure({"features": {**FIELDS, "arms": arms}}, 10.0).events)
    learned = LogLearner(AgentCore(**renew_settings(stream.core, {})), ["a"])
    wider = {"features": {**FIELDS, "arms": list("abcde")}}
    store.append(stream.refit(wider, learned, None, 11.0, dry_run=False).events)
    expected = [[list("ab")], [list("abc")], [list("abcd")], [list("abcd"), list("abcde")]]
    for number, arms in enumerate(expected):
        assert find_start(stream.row, build_baseline(stream.row, store, stream.snapshot(), number)).arms == arms
    compact(store, stream, 2)
    assert find_start(stream.row, build_baseline(stream.row, store, stream.snapshot(), 3)).arms == expected[3]


# --- refits ----------------------------------------------------------------------------------------------------------


def test_a_refit_learns_what_is_left(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES, epsilon=0.3)
        play(service, 40)
        log = service.events()
        requests = [event["number"] for event in log if event["kind"] == "decided" and event["number"] > 20]
        erase(service, 20, tuple(requests[:5]))
        left = service.events()
        assert [event["number"] for event in left] == list(range(21, len(log) + 1))
        core = service.engine.streams["shop"].core
        learner = LogLearner(AgentCore(**renew_settings(core, {"half_life": 50})), FEATURES["arms"])
        for row in left:
            learner.learn(row, row["number"])
        gone = {row["decision"] for row in log if row["number"] <= 20 or row["number"] in requests[:5]}
        skipped = 20 + sum(row["decision"] in gone for row in left)
        report = post(service, "refit", {"half_life": 50})
        assert report["comparison"]["skipped"] == skipped
        assert service.engine.streams["shop"].core.pack()() == learner.finish().pack()()
        assert service.state() == service.replay()
        play(service, 10, seed=1)
        assert post(service, "refit/undo")["settings"]["half_life"] is None
        assert service.state() == service.replay()
    assert verify(tmp_path / "a.db").is_sound


def test_a_refit_whose_log_was_erased_is_not_undone(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES)
        play(service, 10)
        post(service, "refit", {"half_life": 50})
        play(service, 5)
        erase(service, 0, find_requests(service)[:1])
        assert read_problem(service.post(f"{PATH}/refit/undo"), 409)["code"] == "no-refit"
        play(service, 5)
        post(service, "refit", {"half_life": 20})
        assert post(service, "refit/undo")["settings"]["half_life"] == 50
        assert read_problem(service.post(f"{PATH}/refit/undo"), 409)["code"] == "no-refit"
        post(service, "refit", {"half_life": 30})
    report = verify(tmp_path / "a.db")
    assert report.is_sound, report


@pytest.mark.sqlite
def test_a_refit_with_a_changed_baseline(service: Local) -> None:
    service.create(features=FEATURES)
    play(service, 5)
    erase(service, 3)
    edit(service.store.path, "UPDATE baselines SET extra = x'7b7d'")
    problem = read_problem(service.post(f"{PATH}/refit", {"half_life": 5}), 500)
    assert problem["code"] == "unreadable"
    edit(service.store.path, "DELETE FROM baselines")
    service.call(lambda: compact(service.store, service.engine.streams["shop"], 0))


# --- what else reads the log -----------------------------------------------------------------------------------------


def test_exports_begin_with_what_is_left(service: Local) -> None:
    service.create(features=FEATURES)
    play(service, 20)
    log = service.events()
    erased = next(event["number"] for event in log if event["number"] > 15 and "request" in event)
    erase(service, 12, (erased,))
    expected = [{name: value for name, value in row.items() if name != "request" or row["number"] != erased}
                for row in log[12:]]  # fmt: skip
    assert service.events() == expected
    for after, limit in ((0, 5), (5, 5), (12, 5), (20, 3)):
        answer = service.get(f"{PATH}/events?after={after}&limit={limit}")
        lines = [parse_json(line) for line in answer.text.splitlines()]
        first = max(after, 12)
        assert lines == [row for row in expected if first < row["number"] <= first + limit]
    assert service.get(f"{PATH}/events?format=parquet").status_code == 200
    erase(service, len(log))
    assert service.events() == []


def test_charts_begin_with_what_is_left(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES)
        ids = play(service, 20)
        erase(service, next(event["number"] for event in service.events() if event["decision"] == ids[12]))
    with run_local(tmp_path / "a.db") as service:
        charts = service.get(f"{PATH}/charts").json()
        assert sum(bucket["decisions"] for bucket in charts["buckets"]) == 7
        erase(service, service.info()["events"])
    with run_local(tmp_path / "a.db") as service:
        assert service.get(f"{PATH}/charts").json()["buckets"] == []
        play(service, 3)
        assert sum(bucket["decisions"] for bucket in service.get(f"{PATH}/charts").json()["buckets"]) == 3


def test_decisions_that_are_gone(service: Local) -> None:
    service.create(features=FEATURES)
    ids = [service.decide(body={"context": {"plan": "pro"}}, key=f"k{i}")["id"] for i in range(3)]
    for decision in ids:
        service.reward(decision, 1.0)
    erase(service, 1, (2,))
    assert read_problem(service.get(f"{PATH}/decisions/{ids[0]}"), 404)["code"] == "unknown-decision"
    assert service.get(f"{PATH}/decisions/{ids[1]}").json()["reward"] == 1.0
    again = service.decide(body={"context": {"plan": "pro"}}, key="k0")
    assert again["id"] not in ids  # its key is gone with it
    answer = service.post(f"{PATH}/decisions", {"context": {"plan": "pro"}}, headers={"idempotency-key": "k1"})
    assert read_problem(answer, 409)["code"] == "key-reused"  # an erased request cannot be compared
    assert service.decide(body={"context": {"plan": "pro"}}, key="k2")["id"] == ids[2]
