"""The context of one decision is erased: from the log, from the state and from the files; all else goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.erased_shop import FEATURES, SHOP, erase, has_mark, list_kinds, offer, offer_vectors
from support.server import Local, read_problem, run_local, until
from support.stores import verify
from windvane.service import refit as refits
from windvane.service import snapshots, stream_erasure
from windvane.service.problems import Problem
from windvane.service.stream_state import StreamState


def notes(path: Path) -> list[str]:
    """The codes of the notes about the shop; the store must be sound."""
    report = verify(path)
    assert report.is_sound, report
    return [note.code for note in report.streams[0].notes]


def test_decisions_of_every_status(tmp_path: Path, clock: list[float]) -> None:
    """A decision that is open is dropped; what others were is not changed, and nothing else of the stream."""
    with run_local(tmp_path / "a.db") as service:
        service.create(features=FEATURES, reward_timeout="1h", default_reward=0.0, epsilon=0.3)
        expired, rewarded = (service.decide(body=offer(i), key=f"k{i}")["id"] for i in range(2))
        service.reward(rewarded, 1.0)
        clock[0] += 3601.0
        pending, held, other = (service.decide(body=offer(i), key=f"k{i}")["id"] for i in range(2, 5))
        service.reward(held, 1.0)
        before, theta = service.info()["counts"], service.info()["theta"]
        statuses = {}
        for decision in (expired, rewarded, pending, held):
            answer = erase(service, decision)
            assert answer.status_code == 200, answer.text
            statuses[decision] = answer.json()["status"]
            assert erase(service, decision).json() == answer.json()  # again: the same
            assert service.get(f"{SHOP}/decisions/{decision}").json()["status"] == answer.json()["status"]
        assert list(statuses.values()) == ["expired", "rewarded", "dropped", "dropped"]
        assert list_kinds(service).count("erased") == 4
        counts = service.info()["counts"]
        assert counts == {**before, "pending": 1, "held": 0, "dropped": 2}
        assert service.info()["theta"] == theta
        rows = {row["decision"]: row for row in service.events() if row["kind"] == "decided"}
        assert [name for name, row in rows.items() if "request" in row] == [other]
        assert service.reward(pending, 1.0).json()["status"] == "expired"  # as of every dropped decision
        assert list_kinds(service)[-1] == "late"
        problem = read_problem(service.post(f"{SHOP}/decisions", offer(2), headers={"idempotency-key": "k2"}), 409)
        assert (problem["code"], "erased" in problem["detail"]) == ("key-reused", True)
        state = service.state()
    assert notes(tmp_path / "a.db") == ["erased"]
    with run_local(tmp_path / "a.db") as service:  # the clock has not moved
        assert service.state() == state
        service.decide(body=offer(9))
    assert notes(tmp_path / "a.db") == ["erased"]


@pytest.mark.sqlite
@pytest.mark.parametrize("is_rewarded", [False, True])
def test_no_byte_is_left_in_the_files(tmp_path: Path, is_rewarded: bool) -> None:
    """Neither the text of the request nor the numbers of the vector: not in events, snapshots or the log of SQLite."""
    path = tmp_path / "a.db"
    service = Local(path)
    service.create(policy="D-LinUCB", gamma=0.9, link="identity")
    for i in range(60):
        decision = service.decide(body=offer_vectors(i))["id"]
        if is_rewarded or i % 3 == 0:
            service.reward(decision, i % 2)
        if i == 30:
            erased = decision
    service.stop()
    service = Local(path)  # the snapshot of the stop has the vectors of pending decisions
    assert has_mark(path, 30)
    assert erase(service, erased).status_code == 200
    assert not has_mark(path, 30)
    assert has_mark(path, 31)
    service.decide(body=offer_vectors(60))
    service.crash()
    assert not has_mark(path, 30)
    assert notes(path) == ["erased"]
    with run_local(path) as service:
        assert not has_mark(path, 30)
        assert has_mark(path, 31)
    assert not has_mark(path, 30)


@pytest.mark.sqlite
def test_a_reader_holds_the_last_copy_back_for_a_while(tmp_path: Path) -> None:
    """The write-ahead log cannot be emptied while somebody reads; it is as soon as nobody does."""
    path = tmp_path / "a.db"
    with run_local(path) as service:
        service.create()
        decision = service.decide(body=offer_vectors(1))["id"]
        with service.store.read_transaction():
            assert len(list(service.store.read_events(1))) == 1
            assert erase(service, decision).status_code == 200
            assert has_mark(path, 1)
        until(lambda: not has_mark(path, 1))


def test_a_snapshot_from_before_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was copied before the erasure, and is packed after it: it would bring the vector back."""
    copied, go, copy = threading.Event(), threading.Event(), StreamState.copy

    def copy_slowly(stream: Any) -> Any:
        finish, is_first = copy(stream), not copied.is_set()

        def wait() -> Any:
            assert not is_first or go.wait(30)
            return finish()

        copied.set()
        return wait

    path = tmp_path / "a.db"
    with run_local(path) as service:
        service.create()
        decision = service.decide(body=offer_vectors(1))["id"]
        with monkeypatch.context() as patch:
            patch.setattr(snapshots, "SNAPSHOT_EVENTS", 1)
            patch.setattr(StreamState, "copy", copy_slowly)
            service.decide(body=offer_vectors(2))
            assert copied.wait(30)
            patch.setattr(snapshots, "SNAPSHOT_EVENTS", 2000)
            assert erase(service, decision).json()["status"] == "dropped"
            go.set()
        service.run(asyncio.sleep(0.2))
        assert service.store.read_snapshot(service.load().id) is None
        assert service.store.read_baseline(service.load().id).snapshot.number == 3
    assert notes(path) == ["erased"]


def test_what_cannot_be_erased(service: Local) -> None:
    assert read_problem(erase(service, "x"), 404)["code"] == "unknown-stream"
    service.create()
    assert read_problem(erase(service, "x"), 404)["code"] == "unknown-decision"
    decision = service.decide(body=offer_vectors(1))["id"]
    service.archive()
    assert erase(service, decision).json() == {"decision": decision, "event": 1, "status": "dropped"}
    assert list_kinds(service) == ["decided", "archived", "erased"]


def test_erasures_at_once_with_decisions(service: Local) -> None:
    """Each context is erased once; decisions go on in between."""
    service.create(features=FEATURES, reward_timeout=50)
    decisions = [service.decide(body=offer(i))["id"] for i in range(6)]
    requests: list[tuple[str, str, Any]] = []
    for i, decision in enumerate(decisions):
        requests += [("DELETE", f"{SHOP}/decisions/{decision}/context", {})] * 3
        requests += [("POST", f"{SHOP}/decisions", offer(100 + i))] * 2
        requests.append(("PUT", f"{SHOP}/decisions/{decision}/reward", {"value": 1.0}))
    answers = service.request_together(*requests)
    assert {answer.status_code for answer in answers} == {200, 201}
    kinds = list_kinds(service)
    assert kinds.count("erased") == 6
    assert kinds.count("decided") == 18
    rows = [row for row in service.events() if row["kind"] == "decided"]
    assert [row["decision"] for row in rows if "request" not in row] == decisions


# --- refits -----------------------------------------------------------------------------------------------------------


def play(service: Local, rounds: int, first: int = 0) -> list[str]:
    decisions = []
    for i in range(first, first + rounds):
        decisions.append(service.decide(body=offer(i))["id"])
        if i % 4:
            service.reward(decisions[-1], float(i % 3 == 0))
    return decisions


def test_a_refit_after_an_erasure_knows_nothing_of_it(tmp_path: Path) -> None:
    """It learns the rest of the log, and so does its replay. One from before cannot be undone any more."""
    path = tmp_path / "a.db"
    with run_local(path) as service:
        service.create(features=FEATURES, epsilon=0.2)
        decisions = play(service, 20)
        assert service.post(f"{SHOP}/refit", {"half_life": 30}).status_code == 200
        for decision in decisions[5:8]:
            assert erase(service, decision).status_code == 200
        problem = read_problem(service.post(f"{SHOP}/refit/undo"), 409)
        assert problem["code"] == "no-refit"
        report = service.post(f"{SHOP}/refit", {"half_life": 60}).json()
        assert report["comparison"]["decisions"] == 17
        assert report["comparison"]["skipped"] == 3 + 3  # decisions and their rewards
        play(service, 5, first=20)
        assert service.replay() == service.state()
        assert service.post(f"{SHOP}/refit/undo").json()["settings"]["half_life"] == 30
        state = service.state()
    assert notes(path) == ["erased"]
    with run_local(path) as service:
        assert service.state() == state


class Pause:
    """Lets the calls of a function wait for :meth:`end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> None:
        self._entered, self._go, self._work = threading.Event(), threading.Event(), getattr(place, name)
        monkeypatch.setattr(place, name, lambda *arguments: self._wait(arguments))

    def _wait(self, arguments: tuple[Any, ...]) -> Any:
        self._entered.set()
        assert self._go.wait(30)
        return self._work(*arguments)

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Do ``work`` in a thread; it has come to the function when this returns."""
        future = ThreadPoolExecutor(1).submit(work)
        assert self._entered.wait(30)
        return future

    def end(self) -> None:
        self._go.set()


def test_a_refit_that_runs_has_learned_what_would_be_erased(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create(features=FEATURES)
    decisions, pause = play(service, 10), Pause(monkeypatch, refits.LogReader, "read")
    refitted = pause.begin(lambda: service.post(f"{SHOP}/refit", {"half_life": 30}))
    assert read_problem(erase(service, decisions[0]), 409)["code"] == "refit-running"
    pause.end()
    assert refitted.result().status_code == 200
    assert erase(service, decisions[0]).status_code == 200


def test_a_refit_waits_for_an_erasure(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create(features=FEATURES)
    decisions, pause = play(service, 10), Pause(monkeypatch, stream_erasure, "build_baseline")
    erased = pause.begin(lambda: erase(service, decisions[1]))
    refitted = ThreadPoolExecutor(1).submit(lambda: service.post(f"{SHOP}/refit", {"half_life": 40}))
    until(lambda: service.load().is_refitting)
    service.run(asyncio.sleep(0.1))
    assert not refitted.done()
    pause.end()
    assert erased.result().status_code == 200
    assert refitted.result().json()["comparison"]["decisions"] == 9
    assert service.replay() == service.state()


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.sqlite
def test_a_disk_that_fails(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is erased, the decision is pending as before, and the request can be repeated."""
    monkeypatch.setattr("windvane.service.engine.RETRY", 0.02)
    service.create()
    decision, path = service.decide(body=offer_vectors(1))["id"], service.store.path
    before = service.state()
    with monkeypatch.context() as patch:
        append = service.store.append

        def fail(events: Any, snapshots: Any = (), erasures: Any = (), *rest: Any) -> None:
            if erasures:
                raise OSError(28, "No space left on device")
            append(events, snapshots, erasures, *rest)

        patch.setattr(service.store, "append", fail)
        assert read_problem(erase(service, decision), 503)["code"] == "unavailable"
    service.wait_until_ready()
    assert service.state() == before
    assert has_mark(path, 1)
    assert erase(service, decision).json()["status"] == "dropped"
    assert not has_mark(path, 1)


def test_an_operation_that_fails_leaves_the_stream_as_it_was(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create()
    decision = service.decide(body=offer_vectors(1))["id"]
    before = service.state()
    with monkeypatch.context() as patch:
        patch.setattr(StreamState, "snapshot", lambda _: 1 / 0)
        assert read_problem(erase(service, decision), 500)["code"] == "internal"
    until(lambda: service.get(SHOP).status_code == 200)
    assert service.state() == before
    assert erase(service, decision).status_code == 200


@pytest.mark.sqlite
def test_a_baseline_that_was_changed(tmp_path: Path) -> None:
    """What is left can be read, and nothing more is erased on top of it."""
    with run_local(tmp_path / "a.db") as service:
        service.create()
        first, second = (service.decide(body=offer_vectors(i))["id"] for i in (1, 2))
        assert erase(service, first).status_code == 200
        digest = service.store.connection.execute("SELECT digest FROM baselines").fetchone()[0]
        service.store.connection.execute("UPDATE baselines SET digest = x'00'")
        service.store.connection.commit()
        assert read_problem(erase(service, second), 500)["code"] == "unreadable"
        assert service.get(f"{SHOP}/decisions/{second}").json()["status"] == "pending"
        service.store.connection.execute("UPDATE baselines SET digest = ?", (digest,))
        service.store.connection.commit()
        assert erase(service, second).status_code == 200


def test_a_replay_that_meets_what_it_should_not(service: Local) -> None:
    """Events that erase come before every baseline; an older state cannot be replayed over a compaction."""
    service.create(retention="1ms")
    service.decide(body=offer_vectors(1))
    assert service.post(f"{SHOP}/compact").json()["removed"] == 1
    stream = service.load()
    (event,) = service.store.read_events(stream.id)
    old = StreamState(stream.row, service.store)
    old.number, old.chain = event.number - 1, service.store.read_chain(stream.id, event.number - 1) or b""
    with pytest.raises(Exception, match="removed events") as caught:
        old.apply(event)
    assert not isinstance(caught.value, Problem)
