"""Events that are older than the retention are removed; what was learned from them stays, and replays begin later."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.erased_shop import DAY, FEATURES, SHOP, compact, has_mark, list_kinds, mark, offer, offer_vectors
from support.server import Local, read_problem, run_local, until
from support.stores import verify
from windvane.agent import AgentCore
from windvane.agent.refit import LogLearner, renew_settings
from windvane.service import stream_erasure
from windvane.service.compaction import CHECK_SECONDS, LONGEST_DELAY, allow_delay
from windvane.service.store import Event
from windvane.service.stream_erasure import read_slice
from windvane.service.stream_state import Removed


def check(path: Path) -> list[str]:
    """The codes of the notes about the shop; the store must be sound."""
    report = verify(path)
    assert report.is_sound, report
    return [note.code for note in report.streams[0].notes]


def trade(service: Local, clock: list[float], days: int, first: int = 0) -> list[str]:
    """Make four decisions a day, with keys; some get their reward, a day later or in parts."""
    decisions: list[str] = []
    for i in range(first, first + 4 * days):
        clock[0] += DAY / 4
        decisions.append(service.decide(body=offer(i), key=f"k{i}")["id"])
        if i % 4 == 0:
            service.reward(decisions[-1], 1.0)
        if i % 4 == 1 and len(decisions) > 5:
            service.reward(decisions[-5], 0.5)
    return decisions


def test_a_month_of_trade(tmp_path: Path, clock: list[float]) -> None:
    """Compacted, stopped and killed again and again: the model is that of a stream which keeps everything."""
    settings: dict[str, Any] = {"features": FEATURES, "reward_timeout": "2d", "default_reward": 0.0, "epsilon": 0.2}
    start, models = clock[0], {}
    for name, retention in (("whole.db", None), ("a.db", "4d")):
        clock[0], path = start, tmp_path / name
        for part in range(4):
            service = Local(path)
            if part == 0:
                service.create(retention=retention, **settings)
            trade(service, clock, 7, first=28 * part)
            if retention is not None:
                assert compact(service) > 15
                assert compact(service) == 0
                assert service.replay() == service.state()
            info = service.info()
            models[name] = {field: info[field] for field in ("counts", "theta", "memory", "calibration", "mean_reward")}
            if part % 2:
                service.stop()
            else:
                service.crash()
            assert check(path) == ([] if retention is None else ["removed"])
    assert models["a.db"] == models["whole.db"]
    with run_local(tmp_path / "a.db") as service:
        info, events = service.info(), service.events()
        assert events[0]["number"] == info["removed"]["number"] + 1
        assert info["events"] == events[-1]["number"]
        assert info["removed"]["first"] == "2023-11-15T04:13:20.000000Z"  # of the first decision
        last = [event for event in events if event["kind"] == "compacted"][-1]
        assert (last["removed"], last["last_time"]) == (info["removed"]["number"], info["removed"]["last"])
        assert last["first_time"] == info["removed"]["first"]


def test_what_callers_notice(tmp_path: Path, clock: list[float]) -> None:
    """A removed decision is unknown, and its key is new; the others are as before."""
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES, reward_timeout="2d", default_reward=0.0, retention="5d")
        decisions = trade(service, clock, 12)
        assert service.reward(decisions[0], 1.0).json()["status"] == "unchanged"
        assert sum(service.get(f"{SHOP}/charts").json()["arms"].values()) == 48
        assert compact(service) > 20
        for path in ("", "/explanation"):
            read_problem(service.get(f"{SHOP}/decisions/{decisions[0]}{path}"), 404)
        assert read_problem(service.reward(decisions[0], 1.0), 404)["code"] == "unknown-decision"
        assert read_problem(service.add_reward(decisions[0], 0.1), 404)["code"] == "unknown-decision"
        assert read_problem(service.request("DELETE", f"{SHOP}/decisions/{decisions[0]}/context"), 404)
        batch = {"rewards": [{"decision": decisions[0], "value": 1.0}, {"decision": decisions[-1], "value": 1.0}]}
        results = service.post(f"{SHOP}/rewards/batch", batch).json()["results"]
        assert [result["status"] for result in results] == [404, 200]
        assert service.decide(body=offer(0), key="k0")["id"] not in decisions
        assert service.decide(body=offer(47), key="k47")["id"] == decisions[47]
        pending = service.get(f"{SHOP}/pending?limit=1000").json()["decisions"]
        assert all(service.get(f"{SHOP}/decisions/{row['id']}").status_code == 200 for row in pending)
        assert sum(service.get(f"{SHOP}/charts").json()["arms"].values()) == 49  # until the next start
    with run_local(tmp_path / "a.db") as service:
        left = [event for event in service.events() if event["kind"] == "decided"]
        assert sum(service.get(f"{SHOP}/charts").json()["arms"].values()) == len(left) < 49


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("timeout", ["1h", None, 1000])
def test_decisions_that_are_still_open(tmp_path: Path, clock: list[float], timeout: Any, is_archived: bool) -> None:
    """Those whose timeout has passed are closed first, and count as defaults. Others wait as long as the retention."""
    with run_local(tmp_path / "a.db") as service:
        default = {} if timeout is None else {"default_reward": 0.25}
        service.create(reward_timeout=timeout, retention="3d", **default)
        old = [service.decide(body=offer_vectors(i))["id"] for i in range(4)]
        service.reward(old[0], 1.0)
        clock[0] += 2 * DAY
        young = service.decide(body=offer_vectors(9))["id"]
        if is_archived:
            service.archive()
        clock[0] += 2 * DAY
        assert compact(service) >= 5
        counts = service.info()["counts"]
        if timeout == "1h":
            assert (counts["settled"], counts["defaulted"], counts["dropped"]) == (5 - is_archived, 4 - is_archived, 0)
        else:
            assert counts["dropped"] == (4 if timeout == 1000 else 3)  # one was learned on arrival, or held
            dropped = next(event for event in service.events() if event["kind"] == "compacted")["dropped"]
            assert dropped == (old if timeout == 1000 else old[1:])
        if is_archived:
            service.post(f"{SHOP}/unarchive")
        status = service.get(f"{SHOP}/decisions/{young}").json()["status"]
        if timeout != "1h":
            assert status == "pending"
            assert service.reward(young, 1.0).json()["status"] == "recorded"
    assert check(tmp_path / "a.db") == ["removed"]


def test_without_a_retention_nothing_is_removed(service: Local, clock: list[float]) -> None:
    service.create()
    service.decide()
    clock[0] += 1000 * DAY
    assert read_problem(service.post(f"{SHOP}/compact"), 409)["code"] == "no-retention"
    service.configure(retention="2d")
    assert compact(service) == 1  # the change of the setting is new
    service.configure(retention=None)
    read_problem(service.post(f"{SHOP}/compact"), 409)


# --- the schedule -----------------------------------------------------------------------------------------------------


def test_the_schedule(service: Local, clock: list[float]) -> None:
    """A stream is looked at once a minute at most, and compacted when its oldest event is too old by the delay."""
    service.create(retention="10d")
    stream, compactions = service.load(), service.engine.compactions

    def tick() -> None:
        service.call(lambda: compactions.begin(stream))
        until(lambda: stream.compact_at != float("inf"))  # it was looked at in the background

    start = clock[0]
    tick()
    assert stream.compact_at == start + CHECK_SECONDS  # there is no event yet
    clock[0] += 30.0
    service.decide()
    oldest = clock[0]
    tick()
    assert stream.compact_at == start + CHECK_SECONDS
    clock[0] += 30.0
    tick()
    assert stream.compact_at == clock[0] + LONGEST_DELAY  # it is not looked at more rarely
    clock[0] = oldest + 10 * DAY + LONGEST_DELAY - 1.0
    service.decide()
    tick()
    assert "compacted" not in list_kinds(service)
    clock[0] = oldest + 10 * DAY + LONGEST_DELAY + CHECK_SECONDS
    tick()
    assert list_kinds(service)[-1] == "compacted"
    service.configure(retention="20d")
    assert stream.compact_at == 0.0  # at once


def test_delays() -> None:
    assert [allow_delay(seconds) for seconds in (1.0, 1200.0, 7200.0, 90 * DAY)] == [60.0, 60.0, 360.0, 3600.0]


def test_the_engine_compacts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    """In the background, every stream that has a retention, also archived ones."""
    monkeypatch.setattr("windvane.service.engine.TICK", 0.01)
    with run_local(tmp_path / "a.db") as service:
        for name in ("shop", "other", "forever"):
            service.create(name, **({} if name == "forever" else {"retention": "1d"}))
            service.decide(name)
        service.archive("other")
        clock[0] += 2 * DAY
        for name in ("shop", "other"):
            service.load(name).compact_at = 0.0
            until(lambda name=name: service.info(name)["removed"] is not None)
        assert service.info("forever")["removed"] is None


# --- slices -----------------------------------------------------------------------------------------------------------


def test_many_events_are_removed_in_slices(tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests come in between. A compaction that is broken off goes on where it was."""
    monkeypatch.setattr(stream_erasure, "SLICE_EVENTS", 7)
    path = tmp_path / "a.db"
    service = Local(path)
    service.create(features=FEATURES, reward_timeout="2d", default_reward=0.0, retention="5d")
    service.create("other")
    trade(service, clock, 15)
    answers: list[Any] = []
    before, number = service.load().number, 0
    remove, calls = stream_erasure._remove_events, list[int]()

    async def remove_some(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("the process is killed here")
        answers.append(await service._client.post("/v1/streams/other/decisions", json=offer_vectors(1)))
        return await remove(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(stream_erasure, "_remove_events", remove_some)
        assert service.post(f"{SHOP}/compact").status_code == 500
    assert [answer.status_code for answer in answers] == [201] * 3
    service.crash()
    assert check(path) == ["removed"]
    with run_local(path) as service:
        number = service.info()["removed"]["number"]
        assert number == 21
        assert compact(service) > 40
        assert list_kinds(service)[-5:] == ["compacted"] * 5
        assert service.load().number - before == list_kinds(service).count("compacted")
    assert check(path) == ["removed"]


def test_slices_are_limited_by_bytes(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may have megabytes; one event at least is removed."""
    monkeypatch.setattr(stream_erasure, "SLICE_BYTES", 100)
    times = [(1.0, 40), (2.0, 40), (3.0, 40), (4.0, 1000), (5.0, 10), (60.0, 10)]
    store: Any = Log(times)
    before, numbers = None, []
    while (part := read_slice(store, 1, before, until=50.0, now=100.0)) is not None:
        before = part.removed
        numbers.append(before.number)
    assert numbers == [2, 3, 4, 5]
    assert before == Removed(5, 1.0, 5.0)


class Log:
    """A log of decisions with these times and sizes."""

    def __init__(self, events: list[tuple[float, int]]) -> None:
        self._events = [
            Event(1, i, time, 1, f"d{i}", None, b"{}", bytes(size - 2)) for i, (time, size) in enumerate(events, 1)
        ]

    def read_events(self, _: int, after: int, limit: int) -> list[Event]:
        return self._events[after : after + limit]


@pytest.mark.parametrize(
    ("times", "last"),
    [
        ([1, 2, 3, 60], 3),
        ([60, 1, 2], None),  # the first is young: those after it are younger, whatever their times say
        ([1, 2000, 2, 60], 3),  # the clock was wrong; it is older than one that is too old
        ([1, 2000, 60], 1),  # it may be young
        ([2000, 2001], None),
        ([1, 60, 2], 1),
        ([], None),
    ],
)
def test_times_that_do_not_rise(times: list[float], last: int | None) -> None:
    store: Any = Log([(float(time), 10) for time in times])
    part = read_slice(store, 1, None, until=50.0, now=100.0)
    assert (None if part is None else part.removed.number) == last
    if part is not None:
        assert part.decisions == [f"d{i}" for i in range(1, part.removed.number + 1)]


# --- refits -----------------------------------------------------------------------------------------------------------


def test_refits_before_and_after(tmp_path: Path, clock: list[float]) -> None:
    """A refit learns what is left of the log, with the arms that were declared then, and so does its replay."""
    path = tmp_path / "a.db"
    with run_local(path) as service:
        service.create(features=FEATURES, epsilon=0.2, retention="6d", reward_timeout="2d", default_reward=0.0)
        trade(service, clock, 4)
        more = {**FEATURES, "arms": [*FEATURES["arms"], "autumn"]}
        service.configure(features=more)
        assert service.post(f"{SHOP}/refit", {"half_life": "30d"}).status_code == 200
        trade(service, clock, 8, first=16)
        assert compact(service) > 20
        assert read_problem(service.post(f"{SHOP}/refit/undo"), 409)["code"] == "no-refit"
        core, log = service.load().core, service.events()
        learner = LogLearner(AgentCore(**renew_settings(core, {"half_life": "20d"})), more["arms"])
        learner.core.closes_due = False
        for row in log:
            learner.learn(row, row["number"])
        report = service.post(f"{SHOP}/refit", {"half_life": "20d"}).json()
        assert report["comparison"]["decisions"] == sum(row["kind"] == "decided" for row in log)
        assert report["comparison"]["skipped"] > log[0]["number"] - 1
        assert service.load().core.pack()() == learner.finish().pack()()
        trade(service, clock, 3, first=48)
        assert service.replay() == service.state()
        assert service.post(f"{SHOP}/refit/undo").json()["settings"]["half_life"] == "30d"
        state = service.state()
    assert check(path) == ["removed"]
    with run_local(path) as service:
        assert service.state() == state
        clock[0] += 3 * DAY
        compact(service)
        assert service.post(f"{SHOP}/refit?dry_run=true", {"S": 2.0}).status_code == 200
    assert check(path) == ["removed"]


def test_a_timeout_must_be_shorter_than_the_retention(service: Local) -> None:
    service.create(reward_timeout="2d", retention="5d")
    for path, body in (("", {"reward_timeout": "5d"}), ("/refit", {"reward_timeout": "6d"})):
        answer = service.request("PATCH" if path == "" else "POST", SHOP + path, json=body)
        assert [error["pointer"] for error in read_problem(answer, 422)["errors"]] == ["#/reward_timeout"]
    assert service.post(f"{SHOP}/refit", {"reward_timeout": "3d"}).status_code == 200


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.sqlite
def test_no_byte_of_what_was_removed_is_left(tmp_path: Path, clock: list[float]) -> None:
    """Of decisions and of bulk history, in the file, in the log of SQLite and in snapshots."""
    path = tmp_path / "a.db"
    service = Local(path)
    service.create(retention="5d", reward_timeout="1d", policy="D-LinUCB", gamma=0.9, link="identity")
    rows = {
        "rewards": [0.5] * 30,
        "vectors": [[0.1, mark(900 + i)] for i in range(30)],
    }
    assert service.post(f"{SHOP}/history", rows).status_code == 200
    for i in range(40):
        clock[0] += DAY / 4
        decision = service.decide(body=offer_vectors(i), key=f"k{i}")["id"]
        if i % 2:
            service.reward(decision, 0.5)
    service.stop()
    assert all(has_mark(path, i) for i in (0, 3, 17, 900, 915, 39))
    service = Local(path)
    assert compact(service) > 15
    assert not any(has_mark(path, i) for i in (*range(18), *range(900, 930)))
    assert has_mark(path, 39)
    service.crash()
    assert not any(has_mark(path, i) for i in (*range(18), *range(900, 930)))
    assert check(path) == ["removed"]
    with run_local(path):
        pass
    assert not any(has_mark(path, i) for i in (*range(18), *range(900, 930)))


# --- kill -9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.sqlite
def test_killed_at_any_moment(tmp_path: Path, fork_server: Any) -> None:
    """While it is compacted, contexts are erased, and decisions are made: the store is sound, and nothing is lost."""
    path, kept = tmp_path / "a.db", list[str]()
    for attempt in range(4):
        server = fork_server.serve(path)
        with server.client() as client:
            if attempt == 0:
                body = {"name": "shop", "dim": 2, "retention": "30ms", "reward_timeout": "10ms", "default_reward": 0.0}
                assert client.post("/v1/streams", json=body).status_code == 201
            threads = [
                threading.Thread(target=_work, args=(server, kept, kind), daemon=True)
                for kind in ("decide", "compact", "erase")
            ]
            for thread in threads:
                thread.start()
            before = len(kept)
            until(lambda: len(kept) > before + 20 + 15 * attempt, 60.0)
            server.kill()
            for thread in threads:
                thread.join(30)
        report = verify(path)
        assert report.is_sound, report
    with run_local(path) as service:
        events = service.events()
        assert service.info()["counts"]["decisions"] >= len(kept)
        numbers = [event["number"] for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _work(server: Any, kept: list[str], kind: str) -> None:
    """Send requests of one kind until the server is gone."""
    try:
        with server.client() as client:
            while True:
                if kind == "decide":
                    kept.append(json.loads(client.post(f"{SHOP}/decisions", json=offer_vectors(1)).text)["id"])
                elif kind == "compact":
                    assert client.post(f"{SHOP}/compact").status_code == 200
                elif kept:
                    answer = client.delete(f"{SHOP}/decisions/{kept[-1]}/context")
                    assert answer.status_code in (200, 404), answer.text
    except (httpx2.TransportError, json.JSONDecodeError):
        return
