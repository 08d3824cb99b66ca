"""Nothing acknowledged is lost and nothing is done twice: servers killed under load, torn files, full disks."""

from __future__ import annotations

import http.client
import json
import random
import resource
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import ARMS, Local, Nursery, Server, local, served, until, whole, windvane
from windvane.service import engine as engines
from windvane.service import snapshots
from windvane.service.engine import Engine
from windvane.service.recovery import rebuilt
from windvane.service.store import Store
from windvane.service.store.events import LATE, Event
from windvane.service.stream_answers import diagnose_stream
from windvane.service.streams import Stream

KILLS = 55
WORKERS = 4
FEATURES = {
    "shared": {"age": {"low": 0, "high": 100}},
    "by_arm": {"device": {"values": ["phone", "desk"]}},
    "arms": ["a", "b", "c"],
}
STREAMS: dict[str, dict[str, Any]] = {
    "vectors": {"dim": 2, "wait": "300ms", "randomize": 0.1},
    "fields": {"features": FEATURES, "wait": 25, "missing": 0.0},
}


# --- the kill drill ------------------------------------------------------------------------------------------------


class Caller:
    """One connection, which ends with the server."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=30)

    def __call__(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def events(self, name: str, after: int) -> list[Any]:
        self._connection.request("GET", f"/v1/streams/{name}/events?after={after}")
        return [json.loads(line) for line in self._connection.getresponse().read().splitlines()]

    def close(self) -> None:
        self._connection.close()


class Ledger:
    """What was asked of a stream, and what was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: dict[str, Any] = {}  # by key: the body
        self.decided: dict[str, dict[str, Any]] = {}  # by key: the answer
        self.open: list[str] = []  # decisions without a reward
        self.told: dict[str, float] = {}  # by decision: the reward that was sent
        self.rewarded: dict[str, int] = {}  # by decision: the status
        self.log: list[dict[str, Any]] = []
        self.shadow: Stream | None = None  # the stream as its events, one after the other, make it

    def body(self, rng: random.Random) -> Any:
        if self.name == "fields":
            return {"context": {"age": rng.randint(0, 100), "device": rng.choice(["phone", "desk"])}}
        return {"arms": {arm: [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)] for arm in ("x", "y", "z")}}

    def decides(self, key: str, status: int, answer: Any) -> None:
        assert status == 200, (status, answer)
        known = self.decided.setdefault(key, answer)
        assert known == answer, f"{key}: {known} and then {answer}"

    def rewards(self, decision: str, status: int, answer: Any) -> None:
        assert status in (200, 410), (status, answer)
        assert self.rewarded.setdefault(decision, status) == status


class Load:
    """Callers that do all there is to do until the server is gone."""

    def __init__(self, ledgers: dict[str, Ledger]) -> None:
        self.ledgers, self.wrong, self.keys = ledgers, [], 0
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, server: Server, seed: int) -> None:
        self._threads = [
            threading.Thread(target=self._work, args=(Caller(server), random.Random(f"{seed} {worker}")))
            for worker in range(WORKERS)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        assert not self.wrong, self.wrong[0]

    def _work(self, call: Caller, rng: random.Random) -> None:
        try:
            while True:
                rng.choices(
                    (self._decide, self._decide_batch, self._reward, self._reward_batch, self._repeat, self._configure),
                    (6, 3, 8, 3, 2, 1),
                )[0](call, rng, rng.choice(list(self.ledgers.values())))
        except (OSError, http.client.HTTPException):
            pass  # killed
        except Exception as error:
            self.wrong.append(repr(error))
        finally:
            call.close()

    def _new_key(self, ledger: Ledger, body: Any) -> str:
        with self._guard:
            self.keys += 1
            key = f"k{self.keys}"
        ledger.asked[key] = body
        return key

    def _taken(self, ledger: Ledger, rng: random.Random, most: int) -> list[str]:
        with self._guard:
            count = min(most, len(ledger.open))
            return [ledger.open.pop(rng.randrange(len(ledger.open))) for _ in range(count)]

    def _decide(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        key = self._new_key(ledger, ledger.body(rng))
        status, answer = call("POST", f"/v1/streams/{ledger.name}/decide", ledger.asked[key], key)
        ledger.decides(key, status, answer)
        ledger.open.append(answer["decision"])

    def _decide_batch(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        keys = [self._new_key(ledger, ledger.body(rng)) for _ in range(rng.randint(1, 20))]
        items = [{**ledger.asked[key], "key": key} for key in keys]
        for key in keys:
            ledger.asked[key] = items  # to be repeated as it was asked
        status, answer = call("POST", f"/v1/streams/{ledger.name}/decide/batch", {"items": items})
        assert status == 200, (status, answer)
        for key, one in zip(keys, answer["results"], strict=True):
            ledger.decides(key, one["status"], one["answer"])
            ledger.open.append(one["answer"]["decision"])

    def _reward(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        for decision in self._taken(ledger, rng, 1):
            ledger.told[decision] = float(rng.randint(0, 1))
            body = {"decision": decision, "value": ledger.told[decision]}
            ledger.rewards(decision, *call("POST", f"/v1/streams/{ledger.name}/reward", body, f"r{decision}"))

    def _reward_batch(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        decisions = self._taken(ledger, rng, 10)
        if decisions:
            ledger.told |= {decision: float(rng.randint(0, 1)) for decision in decisions}
            items = [{"decision": d, "value": ledger.told[d], "key": f"r{d}"} for d in decisions]
            status, answer = call("POST", f"/v1/streams/{ledger.name}/reward/batch", {"items": items})
            assert status == 200, (status, answer)
            for decision, one in zip(decisions, answer["results"], strict=True):
                ledger.rewards(decision, one["status"], one["answer"])

    def _repeat(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        """Old news: a decision that was acknowledged, a reward that was taken."""
        if keys := list(ledger.decided):
            self._again(call, ledger, rng.choice(keys))
        if known := list(ledger.rewarded):
            decision = rng.choice(known)
            body = {"decision": decision, "value": ledger.told[decision]}
            status, answer = call("POST", f"/v1/streams/{ledger.name}/reward", body)
            assert status == ledger.rewarded[decision], (status, answer)
            assert status == 410 or answer["learnt"] is False

    def _again(self, call: Caller, ledger: Ledger, key: str) -> None:
        """The whole request that had this key."""
        asked = ledger.asked[key]
        if isinstance(asked, list):
            status, answer = call("POST", f"/v1/streams/{ledger.name}/decide/batch", {"items": asked})
            assert status == 200, (status, answer)
            for item, one in zip(asked, answer["results"], strict=True):
                ledger.decides(item["key"], one["status"], one["answer"])
        else:
            ledger.decides(key, *call("POST", f"/v1/streams/{ledger.name}/decide", asked, key))

    def _configure(self, call: Caller, rng: random.Random, ledger: Ledger) -> None:
        wait: Any = rng.choice(["200ms", "400ms"]) if ledger.name == "vectors" else rng.randint(15, 40)
        changes = {"wait": wait, "randomize": rng.choice([0.0, 0.2]), "title": f"v{rng.random()}"}
        assert call("PATCH", f"/v1/streams/{ledger.name}", changes)[0] == 200

    def retry(self, call: Caller, ledger: Ledger) -> tuple[int, int]:
        """What was asked and not answered, asked again; how much that was, and how much of it was in the log."""
        logged = {event["key"]: event for event in ledger.log if event["key"] is not None}
        doubtful = [key for key in ledger.asked if key not in ledger.decided]
        for key in doubtful:
            if key not in ledger.decided:
                self._again(call, ledger, key)
            ledger.open.append(ledger.decided[key]["decision"])
            if key in logged:
                assert ledger.decided[key]["decision"] == logged[key]["decision"], key
        unsure = [decision for decision in ledger.told if decision not in ledger.rewarded]
        items = [{"decision": d, "value": ledger.told[d], "key": f"r{d}"} for d in unsure]
        _, answer = call("POST", f"/v1/streams/{ledger.name}/reward/batch", {"items": items}) if items else (200, {})
        for decision, one in zip(unsure, answer.get("results", ()), strict=True):
            ledger.rewards(decision, one["status"], one["answer"])
            if f"r{decision}" in logged:
                kind = logged[f"r{decision}"]["kind"]
                assert one["status"] == {"rewarded": 200, "late": 410}[kind]
                assert kind == "late" or one["answer"] == {"decision": decision, "learnt": True}
        known = [key for key in doubtful + [f"r{decision}" for decision in unsure] if key in logged]
        return len(doubtful) + len(unsure), len(known)


def read_on(call: Caller, ledger: Ledger) -> None:
    """Fetch what is new in the log; its numbers have no gap."""
    ledger.log += call.events(ledger.name, after=len(ledger.log))
    assert [event["number"] for event in ledger.log] == list(range(1, len(ledger.log) + 1))


def check(ledger: Ledger) -> None:
    """All that was acknowledged is in the log, and once."""
    events_by_key: dict[str, list[dict[str, Any]]] = {}
    events_by_decision: dict[str, dict[str, list[Any]]] = {}
    for event in ledger.log:
        if event["key"] is not None:
            events_by_key.setdefault(event["key"], []).append(event)
        if event["decision"] is not None:
            kinds = events_by_decision.setdefault(event["decision"], {"decided": [], "rewarded": [], "late": []})
            kinds[event["kind"]].append(event.get("value"))
    assert all(len(events) == 1 for events in events_by_key.values())
    assert all(len(kind) <= 1 for kinds in events_by_decision.values() for kind in kinds.values())
    assert all(kinds["decided"] for kinds in events_by_decision.values())
    for key, answer in ledger.decided.items():
        (event,) = events_by_key[key]
        assert {name: event[name] for name in answer} == answer
    for decision, status in ledger.rewarded.items():
        kinds = events_by_decision[decision]
        found = (kinds["rewarded"], kinds["late"])
        assert found == (([ledger.told[decision]], []) if status == 200 else ([], [ledger.told[decision]]))
        assert events_by_key[f"r{decision}"][0]["decision"] == decision  # the key of a late reward is kept, too


def follow(path: Path, ledgers: dict[str, Ledger]) -> None:
    """While nobody has the store: replay what is new, and compare with what a server would start from, bit for bit."""
    store = Store(path)
    try:
        for row in store.read_streams():
            ledger = ledgers[row.name]
            if ledger.shadow is None:
                ledger.shadow = Stream(row, store)
            for event in store.read_events(row.id, after=ledger.shadow.number):
                ledger.shadow.apply(event)
            assert whole(rebuilt(row, store)) == whole(ledger.shadow)
    finally:
        store.close()


def test_fifty_kills(tmp_path: Path, nursery: Nursery) -> None:
    """One store, killed again and again under load. The first, one in the middle and the last are the command itself;
    the others are the same server, forked, so that they start at once."""
    path, rng = tmp_path / "a.db", random.Random(55)
    ledgers = {name: Ledger(name) for name in STREAMS}
    load = Load(ledgers)
    asked_again = found_again = compared = 0
    for kill in range(KILLS):
        server = served(path) if kill in (0, KILLS // 2, KILLS - 1) else nursery.served(path)
        call = Caller(server)
        for name, settings in STREAMS.items() if kill == 0 else ():
            assert call("POST", "/v1/streams", {"name": name, **settings})[0] == 201
        for ledger in ledgers.values():
            read_on(call, ledger)
            if ledger.shadow is not None and call("GET", f"/v1/streams/{ledger.name}")[1]["events"] == len(ledger.log):
                live = call("GET", f"/v1/streams/{ledger.name}")[1]
                if live["events"] == ledger.shadow.number:  # no wait has ended since
                    assert live == json.loads(json.dumps(diagnose_stream(ledger.shadow)))
                    compared += 1
            asked, found = load.retry(call, ledger)
            asked_again, found_again = asked_again + asked, found_again + found
            read_on(call, ledger)
            check(ledger)
        load.start(server, kill)
        time.sleep(rng.uniform(0.0, 0.2))
        server.kill()
        load.join()
        call.close()
        follow(path, ledgers)
    kinds = {event["kind"] for ledger in ledgers.values() for event in ledger.log}
    assert kinds == {"decided", "rewarded", "expired", "configured", "late"}
    acknowledged = sum(len(ledger.decided) + len(ledger.rewarded) for ledger in ledgers.values())
    print(f"{KILLS} kills, {acknowledged} acknowledged, {asked_again} asked again, {found_again} of them in the log")
    assert acknowledged > 20 * KILLS
    assert asked_again > KILLS
    assert found_again > 0
    assert compared > KILLS // 2, "too few servers were asked for their state"
    verdict = json.loads(windvane("verify", "--json", "--store", path).stdout)
    assert verdict["sound"]
    assert [one["events"] for one in verdict["streams"]] == [x.shadow.number for x in ledgers.values() if x.shadow]
    store = Store(path)
    for row in store.read_streams():  # the log was only ever added to
        told = [json.loads(json.dumps(event.to_plain())) for event in store.read_events(row.id)]
        assert told[: len(ledgers[row.name].log)] == ledgers[row.name].log
    store.close()


def test_kills_while_it_starts(tmp_path: Path, nursery: Nursery) -> None:
    """A new store, a store with a log to replay: killed while being opened, both are opened by the next."""
    rng = random.Random(1)
    for life in range(30):
        path = tmp_path / f"{life % 10}.db"
        server = nursery.born(path)
        time.sleep(rng.uniform(0.0, 0.04))
        server.kill()
        if life % 3 == 2:
            with local(path) as service:
                if not service.engine.streams:
                    service.create()
                service.decide()


# --- torn files ----------------------------------------------------------------------------------------------------


def test_a_torn_log_is_a_prefix(tmp_path: Path, nursery: Nursery) -> None:
    """The write-ahead log cut off, zeroed or garbled anywhere: what is left opens, and is a beginning of what was."""
    server = nursery.served(tmp_path / "a.db")
    call = Caller(server)
    call("POST", "/v1/streams", {"name": "shop", "dim": 2})
    for i in range(60):
        _, answer = call("POST", "/v1/streams/shop/decide", ARMS)
        if i % 2:
            call("POST", "/v1/streams/shop/reward", {"decision": answer["decision"], "value": 1.0})
    server.kill()
    call.close()
    main, wal = (tmp_path / "a.db").read_bytes(), (tmp_path / "a.db-wal").read_bytes()
    store = Store(tmp_path / "a.db")
    full = list(store.read_events(1))
    store.close()
    assert len(full) == 90
    rng = random.Random(3)
    damages: list[Callable[[bytes, int], bytes]] = [
        lambda content, at: content[:at],
        lambda content, at: content[:at] + bytes(len(content) - at),
        lambda content, at: content[:at] + rng.randbytes(len(content) - at),
        lambda content, at: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
    ]
    lengths = set()
    for i in range(40):
        at = rng.randrange(len(wal))
        (tmp_path / "b.db").write_bytes(main)
        (tmp_path / "b.db-wal").write_bytes(damages[i % 4](wal, at))
        (tmp_path / "b.db-shm").unlink(missing_ok=True)
        torn = Store(tmp_path / "b.db")
        rows = torn.streams()
        kept = list(torn.events(1))
        assert kept == full[: len(kept)]
        lengths.add(len(kept))
        for row in rows:
            assert whole(rebuilt(row, torn)) == whole(rebuilt(row, torn, from_start=True))
        torn.close()
    assert len(lengths) > 15
    assert max(lengths) > 70


# --- full disks ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="files of another process cannot be limited here")
def test_a_full_disk(tmp_path: Path, nursery: Nursery) -> None:
    """The system refuses to write more: 503, until it does again; what was acknowledged is there, and only that."""
    server = nursery.served(tmp_path / "a.db")
    call = Caller(server)
    call("POST", "/v1/streams", {"name": "shop", "dim": 2})
    acknowledged = {}
    size = (tmp_path / "a.db-wal").stat().st_size
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
    for i in range(1000):
        status, answer = call("POST", "/v1/streams/shop/decide", ARMS, f"k{i}")
        if status != 200:
            break
        acknowledged[f"k{i}"] = answer["decision"]
    assert status == 503
    assert answer["error"]["code"] == "unavailable"
    assert 3 < len(acknowledged) < 200
    assert call("GET", "/readyz")[0] == 503
    assert call("GET", "/healthz")[0] == 200
    assert call("POST", "/v1/streams/shop/decide", ARMS, "k0")[0] == 503
    assert call("POST", "/v1/streams", {"name": "other", "dim": 2})[0] == 503
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: call("GET", "/readyz")[0] == 200)
    for key, decision in acknowledged.items():
        assert call("POST", "/v1/streams/shop/decide", ARMS, key)[1]["decision"] == decision
    assert call("POST", "/v1/streams/shop/decide", ARMS, f"k{i}")[0] == 200  # the one that was refused
    assert call("GET", "/v1/streams/shop")[1]["decisions"] == len(acknowledged) + 1
    server.kill()
    call.close()
    assert json.loads(windvane("verify", "--json", "--store", tmp_path / "a.db").stdout)["sound"]


class Failing:
    """A store's ``append`` that fails when told to."""

    def __init__(self, service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
        self._append, self.left, self.calls = service.store.append, -1, 0
        monkeypatch.setattr(service.store, "append", self)

    def __call__(self, events: Any, snapshots: Any = ()) -> None:
        self.calls += 1
        if self.left == 0:
            raise sqlite3.OperationalError("database or disk is full")
        self.left -= 1
        self._append(events, snapshots)


def test_a_failed_commit_is_503_and_then_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "RETRY", 0.02)
    with local(tmp_path / "a.db") as service:
        service.create()
        first = service.decide()
        before = service.state()
        failing = Failing(service, monkeypatch)
        monkeypatch.setattr(service.store, "check_writable", lambda: service.store.append([]))
        failing.left = 0
        answer = service.post("/v1/streams/shop/decide", ARMS, headers={"idempotency-key": "k"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        for path, body in (
            ("/v1/streams/shop/decide", ARMS),
            ("/v1/streams/shop/decide/batch", {"items": [ARMS]}),
            ("/v1/streams/shop/reward", {"decision": first["decision"], "value": 1}),
            ("/v1/streams/shop/archive", None),
            ("/v1/streams", {"name": "new", "dim": 2}),
        ):
            assert service.post(path, body).status_code == 503
        assert service.get("/v1/streams/shop").status_code == 503
        assert "windvane_ready 0.0" in service.get("/metrics").text
        failing.left = -1
        until(lambda: service.get("/readyz").status_code == 200)
        assert service.state() == before
        again = service.decide(headers={"idempotency-key": "k"})
        assert [event["decision"] for event in service.log()] == [first["decision"], again["decision"]]


def test_a_commit_that_fails_in_the_middle_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some items are on disk, some are not, and the answer is 503: keys tell which, and nothing is done twice."""
    with local(tmp_path / "a.db") as service:
        service.create()
        for left in (0, 1, 2, 5):
            failing = Failing(service, monkeypatch)
            failing.left = left
            items = [{**ARMS, "key": f"{left}-{i}"} for i in range(200)]
            before = len(service.log())
            answer = service.post("/v1/streams/shop/decide/batch", {"items": items})
            assert answer.status_code == 503, left
            monkeypatch.undo()
            until(lambda: service.get("/readyz").status_code == 200)
            kept = {event["key"]: event["decision"] for event in service.log()[before:]}
            assert len(kept) < 200
            assert (len(kept) > 0) == (left > 0)
            assert list(kept) == [f"{left}-{i}" for i in range(len(kept))]
            results = service.post("/v1/streams/shop/decide/batch", {"items": items}).json()["results"]
            assert [one["status"] for one in results] == [200] * 200
            decisions = [one["answer"]["decision"] for one in results]
            assert decisions[: len(kept)] == list(kept.values())
            assert len(set(decisions)) == 200
            assert service.state() == service.replayed()


def test_a_batch_across_a_failure_and_the_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is broken off; neither is it acknowledged by the committer that comes after, nor does the stream it had begun
    with leave anything in the log."""
    with local(tmp_path / "a.db") as service:
        service.create()
        failing = Failing(service, monkeypatch)
        failing.left = 0
        back: list[int] = []
        load, decide = service.engine._load, Stream.decide

        def loading() -> None:
            failing.left = -1
            load()
            back.append(decided[0])

        def deciding(*arguments: Any) -> Any:
            decided[0] += 1
            time.sleep(0.002)
            return decide(*arguments)

        decided = [0]
        monkeypatch.setattr(service.engine, "_load", loading)
        monkeypatch.setattr(service.store, "check_writable", lambda: None)
        monkeypatch.setattr(Stream, "decide", deciding)
        answer = service.post("/v1/streams/shop/decide/batch", {"items": [ARMS] * 400})
        assert answer.status_code == 503
        assert decided[0] < 400
        until(lambda: back)
        until(lambda: service.get("/readyz").status_code == 200)
        assert service.log() == []
        service.decide()
        assert service.state() == service.replayed()


def test_rewards_over_a_failed_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that was not acknowledged was not learnt, and can be sent again."""
    with local(tmp_path / "a.db") as service:
        service.create()
        decisions = [service.decide()["decision"] for _ in range(5)]
        failing = Failing(service, monkeypatch)
        failing.left = 0
        items = [{"decision": decision, "value": 1.0} for decision in decisions]
        assert service.post("/v1/streams/shop/reward/batch", {"items": items}).status_code == 503
        monkeypatch.undo()
        until(lambda: service.get("/readyz").status_code == 200)
        assert service.get("/v1/streams/shop").json()["rewards"] == 0
        results = service.post("/v1/streams/shop/reward/batch", {"items": items}).json()["results"]
        assert [one["answer"]["learnt"] for one in results] == [True] * 5


# --- twice ---------------------------------------------------------------------------------------------------------


def test_the_same_key_at_once(tmp_path: Path) -> None:
    """Neither is on disk yet when the other comes."""
    with local(tmp_path / "a.db") as service:
        service.create()
        item = {**ARMS, "key": "k"}
        answers = service.together(*[("/v1/streams/shop/decide/batch", {"items": [item, item]})] * 20)
        decisions = {one["answer"]["decision"] for answer in answers for one in answer.json()["results"]}
        assert len(decisions) == 1
        (decision,) = decisions
        assert [event["key"] for event in service.log()] == ["k"]
        reward = {"decision": decision, "value": 1.0, "key": "r"}
        answers = service.together(*[("/v1/streams/shop/reward/batch", {"items": [reward, reward]})] * 20)
        assert all(one["status"] == 200 for answer in answers for one in answer.json()["results"])
        other = {"decision": decision, "value": 1.0, "key": "r2"}
        answers = service.together(*[("/v1/streams/shop/reward/batch", {"items": [other]})] * 3)
        assert [event["kind"] for event in service.log()] == ["decided", "rewarded"]
        assert service.get("/v1/streams/shop").json()["rewards"] == 1


def test_keys_and_rewards_are_known_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After memory has forgotten them, and after a restart, the log still knows."""
    from windvane.agent import waiting as agents
    from windvane.service import streams

    monkeypatch.setattr(streams, "REMEMBERED", 3)
    monkeypatch.setattr(agents, "REMEMBERED", 3)
    path = tmp_path / "a.db"
    with local(path) as service:
        service.create(wait=20)
        made = [service.decide(headers={"idempotency-key": f"k{i}"}) for i in range(10)]
        for one in made[:9]:
            answer = service.reward(one["decision"], 1.0, headers={"idempotency-key": f"r{one['decision']}"})
            assert answer.json()["learnt"]
        for _ in range(30):
            service.decide()  # the tenth expires
        count = len(service.log())
    for _ in range(2):
        with local(path) as service:
            assert [service.decide(headers={"idempotency-key": f"k{i}"}) for i in range(10)] == made
            for one in made[:9]:
                keyed = service.reward(one["decision"], 1.0, headers={"idempotency-key": f"r{one['decision']}"})
                assert (keyed.status_code, keyed.json()["learnt"]) == (200, True)
                plain = service.reward(one["decision"], 1.0)
                assert (plain.status_code, plain.json()["learnt"]) == (200, False)
                assert service.reward(one["decision"], 0.0).status_code == 409
            for _ in range(5):
                assert service.reward(made[9]["decision"], 1.0).status_code == 410
            assert [event["kind"] for event in service.log()[count:] if event["kind"] != "expired"] == ["late"]


def test_a_late_reward_is_recorded_once(tmp_path: Path) -> None:
    with local(tmp_path / "a.db") as service:
        service.create(wait=1)
        decision = service.decide()["decision"]
        for _ in range(3):
            service.decide()
        item = {"decision": decision, "value": 1.0}
        answers = service.together(*[("/v1/streams/shop/reward/batch", {"items": [item, item]})] * 5)
        assert {one["status"] for answer in answers for one in answer.json()["results"]} == {410}
        assert [event["kind"] for event in service.log()].count("late") == 1


# --- what a snapshot must hold -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 2, "wait": 5, "missing": 0.0, "randomize": 0.3},
        {"dim": 2, "half_life": "1h", "wait": "1h"},
        {"features": FEATURES},
        {"dim": 2, "policy": "UniformRandom"},
        {"dim": 2, "prior": [0.5, -0.5], "intercept": False, "scaling": {"center": [0.1, 0], "spread": [1, 2]}},
        {"dim": 2, "max_pending": 4, "clip": True},
    ],
    ids=["waits", "clock", "fields", "random", "prior", "crowded"],
)
def test_a_life_with_a_snapshot_anywhere_is_the_same_life(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crashed after every few events, and taken up again from the snapshot, the log and the state are those of a
    stream that never stopped: the choices depend on every bit of the state."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVENTS", 3)
    monkeypatch.setattr(snapshots, "SNAPSHOT_SHARE", 1e9)
    monkeypatch.setattr(engines, "TICK", 1e6)
    ids = iter(f"{i:016x}" for i in range(1000))
    monkeypatch.setattr("secrets.token_hex", lambda _: next(ids))
    clock = [1000.0]
    monkeypatch.setattr("windvane.service.app.time.time", lambda: clock[0])
    states = []
    for lives in (1, 8):
        ids = iter(f"{i:016x}" for i in range(1000))
        clock[0] = 1000.0
        rng = random.Random(2)
        path = tmp_path / f"{lives}.db"
        service = Local(path)
        service.create("shop", **settings)
        service.crash()
        for _ in range(lives):
            service = Local(path)
            for i in range(24 // lives):
                clock[0] += rng.uniform(0.0, 900.0)
                if "features" in settings:
                    body: Any = {"context": {"age": rng.randint(0, 100), "device": rng.choice(["phone", "desk"])}}
                else:
                    body = {"arms": {arm: [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)] for arm in "xyz"}}
                decision = service.decide(body=body)["decision"]
                if rng.random() < 0.7 or i % 3 == 2:  # a life ends with a reward, which closes what a start would
                    service.reward(decision, float(rng.random() < 0.5))
            states.append((service.state(), service.log()))
            service.crash()
        states = states[:1] + states[-1:]
    assert states[0][1] == states[1][1]
    assert states[0][0] == states[1][0]


# --- recovery time -------------------------------------------------------------------------------------------------


def make_long(path: Path, count: int, waiting: int = 0) -> None:
    """A store with ``count`` events, made by the code that the service runs, and the last snapshot that it would make
    before them. ``waiting``: so many of the first decisions never get a reward, and wait for ever; else for a while."""
    store = Store(path)
    agent = {"dim": 5} if waiting else {"dim": 5, "wait": 1000}
    row = store.add_stream("long", 0.0, json.dumps({"title": None, "agent": agent}))
    assert row is not None
    stream, rng = Stream(row, store), random.Random(1)
    now = 1_700_000_000.0
    arms = [
        json.dumps(
            {"arms": {f"arm{k}": [round(rng.uniform(-0.4, 0.4), 3) for _ in range(5)] for k in range(5)}}
        ).encode()
        for _ in range(200)
    ]
    events: list[Event] = []
    while stream.number < count:
        now += 0.01
        made = stream.decide(arms[stream.number % 200], None, now)
        events += made.events
        if stream.agent.decisions > waiting and (waiting or stream.number % 3):
            events += stream.reward(made.events[-1].decision or "", float(rng.random() < 0.3), None, now).events
        if len(events) >= snapshots.SNAPSHOT_EVENTS:
            last = 2500 < count - stream.number <= 2500 + snapshots.SNAPSHOT_EVENTS + 2
            store.append(events, [(row.id, stream.snapshot())] if last else [])
            events.clear()
    store.append(events)
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [0, 99_000])
def test_a_million_events_are_recovered_in_two_seconds(tmp_path: Path, nursery: Nursery, waiting: int) -> None:
    make_long(tmp_path / "a.db", 1_000_000, waiting)
    store = Store(tmp_path / "a.db")
    assert store.last_number(1) >= 1_000_000
    assert store.last_number(1) - store.read_snapshot_number(1) > snapshots.SNAPSHOT_EVENTS  # as bad as it gets
    began = time.perf_counter()
    engine = Engine(store)
    spent = time.perf_counter() - began
    pending = engine.streams["long"].agent.waiting
    print(f"recovered {store.last_number(1):,} events, {pending:,} decisions pending, in {spent:.2f} s")
    assert pending >= waiting
    assert engine.streams["long"].number == store.last_number(1)
    store.close()
    assert spent <= 2.0


def test_recovery_does_not_grow_with_the_log(tmp_path: Path, nursery: Nursery) -> None:
    """A log of 300,000 events, nearly all of them before the snapshot: a server answers at once."""
    make_long(tmp_path / "a.db", 6_000)
    store = Store(tmp_path / "a.db")
    (row,) = store.read_streams()
    stream = rebuilt(row, store)
    first = next(iter(store.read_events(1))).decision
    late = [stream._event(LATE, 1e9, first, None, b'{"value":1.0}') for _ in range(300_000)]
    store.append(late, [(1, stream.snapshot())])
    store.close()
    began = time.perf_counter()
    server = nursery.served(tmp_path / "a.db")
    spent = time.perf_counter() - began
    with server.client() as client:
        told = client.get("/v1/streams/long").json()
    server.kill()
    assert told["events"] > 300_000
    assert spent <= 2.0


def test_the_drill_would_notice(tmp_path: Path) -> None:
    """The checks of the drill themselves: a lost event, one that is there twice, a reward learnt twice."""
    ledger = Ledger("shop")
    with local(tmp_path / "a.db") as service:
        service.create()
        for i in range(3):
            ledger.decided[f"k{i}"] = service.decide(headers={"idempotency-key": f"k{i}"})
        decision = ledger.decided["k0"]["decision"]
        ledger.told[decision], ledger.rewarded[decision] = 1.0, 200
        service.reward(decision, 1.0, headers={"idempotency-key": f"r{decision}"})
        ledger.log = service.log()
    check(ledger)
    whole_log = ledger.log
    for broken in (whole_log[1:], whole_log[:-1], [*whole_log, whole_log[0]], [*whole_log, whole_log[-1]]):
        ledger.log = broken
        with pytest.raises((AssertionError, KeyError, ValueError)):
            check(ledger)
