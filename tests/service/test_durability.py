"""Nothing acknowledged is lost and nothing is done twice: servers killed under load, torn files, refused writes."""

from __future__ import annotations

import json
import math
import random
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.drill import FEATURES, Caller, Ledger, Load
from support.server import ARMS, ForkServer, Local, pack_stream, read_problem, run_command, run_local, serve, until
from support.stores import flip
from windvane.records import to_plain
from windvane.service import engine as engines
from windvane.service import turns
from windvane.service.recovery import create_stream, rebuild_stream
from windvane.service.store import SqliteStore
from windvane.service.streams import Stream
from windvane.service.turns import PAUSE

KILLS = 55
KINDS = {"decided", "rewarded", "closed", "configured", "late"}
STREAMS: dict[str, dict[str, Any]] = {
    "vectors": {"dim": 2, "reward_timeout": "300ms", "epsilon": 0.1},
    "fields": {"features": FEATURES, "reward_timeout": 25, "default_reward": 0.0},
}
SHOP = "/v1/streams/shop"


def follow(path: Path, ledgers: dict[str, Ledger]) -> None:
    """While no server runs: replay what is new, and compare with what a server would start from, bit for bit."""
    with closing(SqliteStore(path)) as store:
        for row in store.read_streams():
            shadow = ledgers[row.name].shadow = ledgers[row.name].shadow or create_stream(row, store)
            for event in store.read_events(row.id, after=shadow.number):
                shadow.apply(event)
            assert pack_stream(rebuild_stream(row, store)) == pack_stream(shadow)


def is_sound(path: Path) -> bool:
    result = run_command("verify", "--json", "--store", path)
    return result.returncode == 0 and bool(json.loads(result.stdout)["sound"])


def test_fifty_kills(tmp_path: Path, fork_server: ForkServer) -> None:
    """One store, killed again and again under load. The first, one in the middle and the last are the command itself;
    the others are the same server, forked, so that they start at once."""
    path, rng = tmp_path / "a.db", random.Random(55)
    ledgers = {name: Ledger(name) for name in STREAMS}
    load, asked_again, found_again, compared = Load(ledgers), 0, 0, 0
    for kill in range(KILLS):
        server = serve(path) if kill in (0, KILLS // 2, KILLS - 1) else fork_server.serve(path)
        call = Caller(server)
        for name, settings in STREAMS.items() if kill == 0 else ():
            assert call("POST", "/v1/streams", {"name": name, **settings})[0] == 201
        for ledger in ledgers.values():
            ledger.read_on(call)
            info = call("GET", ledger.path)[1]
            if ledger.shadow is not None and info["events"] == ledger.shadow.number:  # no timeout has passed since
                assert info == to_plain(ledger.shadow.info())
                compared += 1
            asked, found = load.retry(call, ledger)
            asked_again, found_again = asked_again + asked, found_again + found
            ledger.read_on(call)
            if kill % 5 == 4:
                ledger.check()
        load.start(server, kill)
        load.wait(rng.randrange(80))
        time.sleep(rng.uniform(0.0, 0.02))
        server.kill()
        load.join()
        call.close()
        follow(path, ledgers)
    assert {event["kind"] for ledger in ledgers.values() for event in ledger.log} == KINDS
    print(f"{KILLS} kills, {load.acknowledged} acknowledged, {asked_again} asked again, {found_again} were in the log")
    assert load.acknowledged > 20 * KILLS
    assert asked_again > KILLS
    assert found_again > 0
    assert compared > KILLS // 2, "too few servers were asked for their state"
    assert is_sound(path)
    with closing(SqliteStore(path)) as store:
        for row in store.read_streams():
            ledger, log = ledgers[row.name], [event.to_plain() for event in store.read_events(row.id)]
            assert log[: len(ledger.log)] == ledger.log  # it was only ever added to
            ledger.log = log
            ledger.check()


def test_the_drill_would_notice(service: Local) -> None:
    """A lost event, one that is there twice, a reward that was learned twice."""
    ledger = Ledger("shop")
    service.create()
    for i in range(3):
        ledger.decisions[f"k{i}"] = service.decide(key=f"k{i}")
    decision = ledger.decisions["k0"]["id"]
    ledger.values[decision], ledger.receipts[decision] = 1.0, service.reward(decision, 1.0).json()["status"]
    log = ledger.log = service.events()
    ledger.check()
    for broken in (log[1:], log[:-1], [*log, log[0]], [*log, log[-1]]):
        ledger.log = broken
        with pytest.raises((AssertionError, KeyError, ValueError)):
            ledger.check()


def test_kills_while_it_starts(tmp_path: Path, fork_server: ForkServer) -> None:
    """A new store, or one with a log to replay, that is killed while it is opened, can be opened again."""
    rng = random.Random(1)
    for life in range(30):
        path = tmp_path / f"{life % 10}.db"
        server = fork_server.begin(path)
        time.sleep(rng.uniform(0.0, 0.04))
        server.kill()
        if life % 3 == 2:
            with run_local(path) as service:
                if not service.engine.streams:
                    service.create()
                service.decide()


def test_a_torn_log_is_a_prefix(tmp_path: Path, fork_server: ForkServer) -> None:
    """The write-ahead log cut off, zeroed or garbled anywhere: what is left opens, and is a beginning of what was."""
    server = fork_server.serve(tmp_path / "a.db")
    call = Caller(server)
    call("POST", "/v1/streams", {"name": "shop", "dim": 2})
    for i in range(60):
        _, answer = call("POST", f"{SHOP}/decisions", ARMS)
        if i % 2:
            call("PUT", f"{SHOP}/decisions/{answer['id']}/reward", {"value": 1.0})
    server.kill()
    call.close()
    main, wal = (tmp_path / "a.db").read_bytes(), (tmp_path / "a.db-wal").read_bytes()
    with closing(SqliteStore(tmp_path / "a.db")) as store:
        full = list(store.read_events(1))
    assert len(full) == 90
    rng, lengths = random.Random(3), set()
    damages: list[Callable[[bytes, int], bytes]] = [
        lambda content, at: content[:at],
        lambda content, at: content[:at] + bytes(len(content) - at),
        lambda content, at: content[:at] + rng.randbytes(len(content) - at),
        lambda content, at: flip(content, at, 1),
    ]
    for i in range(40):
        (tmp_path / "b.db").write_bytes(main)
        (tmp_path / "b.db-wal").write_bytes(damages[i % 4](wal, rng.randrange(len(wal))))
        (tmp_path / "b.db-shm").unlink(missing_ok=True)
        with closing(SqliteStore(tmp_path / "b.db")) as torn:
            kept = list(torn.read_events(1))
            assert kept == full[: len(kept)]
            lengths.add(len(kept))
            for row in torn.read_streams():
                assert pack_stream(rebuild_stream(row, torn)) == pack_stream(rebuild_stream(row, torn, from_start=True))
    assert len(lengths) > 15
    assert max(lengths) > 70


# --- refused writes ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="files of another process cannot be limited here")
def test_a_full_disk(tmp_path: Path, fork_server: ForkServer) -> None:
    """503 until the system writes again; what was acknowledged is there, and only that."""
    server = fork_server.serve(tmp_path / "a.db")
    call, acknowledged = Caller(server), dict[str, str]()
    call("POST", "/v1/streams", {"name": "shop", "dim": 2})
    size = (tmp_path / "a.db-wal").stat().st_size
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
    for i in range(1000):
        status, answer = call("POST", f"{SHOP}/decisions", ARMS, f"k{i}")
        if status != 201:
            break
        acknowledged[f"k{i}"] = answer["id"]
    assert (status, answer["type"]) == (503, "urn:windvane:problem:unavailable")
    assert 3 < len(acknowledged) < 200
    assert [call("GET", path)[0] for path in ("/readyz", "/healthz")] == [503, 200]
    assert call("POST", f"{SHOP}/decisions", ARMS, "k0")[0] == 503
    assert call("POST", "/v1/streams", {"name": "other", "dim": 2})[0] == 503
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: call("GET", "/readyz")[0] == 200)
    for key, decision in acknowledged.items():
        assert call("POST", f"{SHOP}/decisions", ARMS, key)[1]["id"] == decision
    assert call("POST", f"{SHOP}/decisions", ARMS, f"k{i}")[0] == 201  # the one that was refused
    assert call("GET", SHOP)[1]["counts"]["decisions"] == len(acknowledged) + 1
    server.kill()
    call.close()
    assert is_sound(tmp_path / "a.db")


class FailingDisk:
    """A disk with space for ``left`` more events (any number if negative)."""

    def __init__(self, service: Local, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self._append, self.left = service.store.append, left
        monkeypatch.setattr(service.store, "append", self)

    def __call__(self, events: Any, *rest: Any, **more: Any) -> None:
        if self.left == 0 or 0 < self.left < len(events):
            raise sqlite3.OperationalError("database or disk is full")
        self._append(events, *rest, **more)
        self.left -= len(events)


@pytest.fixture
def shop(service: Local, monkeypatch: pytest.MonkeyPatch) -> Local:
    monkeypatch.setattr(engines, "RETRY", 0.02)
    service.create()
    return service


def test_a_failed_commit_is_503_and_then_forgotten(shop: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shop.decide()
    before, disk = shop.state(), FailingDisk(shop, monkeypatch, left=0)
    monkeypatch.setattr(shop.store, "check_writable", lambda: shop.store.append([]))
    answer = shop.post(f"{SHOP}/decisions", ARMS, headers={"idempotency-key": "k"})
    assert read_problem(answer, 503)["code"] == "unavailable"
    assert answer.headers["retry-after"] == "1"
    for answer in (
        shop.post(f"{SHOP}/decisions", ARMS),
        shop.post(f"{SHOP}/decisions/batch", {"decisions": [ARMS]}),
        shop.reward(first["id"], 1.0),
        shop.post(f"{SHOP}/archive"),
        shop.post("/v1/streams", {"name": "new", "dim": 2}),
        shop.get(SHOP),
    ):
        assert read_problem(answer, 503)["code"] == "unavailable"
    assert "windvane_ready 0.0" in shop.get("/metrics").text
    disk.left = -1
    shop.wait_until_ready()
    assert shop.state() == before
    again = shop.decide(key="k")
    assert [event["decision"] for event in shop.events()] == [first["id"], again["id"]]


@pytest.mark.parametrize("left", [0, PAUSE, 100, 199])
def test_a_commit_that_fails_in_the_middle_of_a_batch(shop: Local, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    """Some items are on disk, some are not, and the answer is 503: keys tell which, and nothing is done twice."""
    for limit in ("PAUSE_SECONDS", "SLOW_SECONDS"):  # a slice has PAUSE items, however slow the machine is
        monkeypatch.setattr(turns, limit, math.inf)
    with monkeypatch.context() as patch:
        FailingDisk(shop, patch, left)
        items = [{**ARMS, "key": f"{i}"} for i in range(200)]
        assert shop.post(f"{SHOP}/decisions/batch", {"decisions": items}).status_code == 503
    shop.wait_until_ready()
    kept = {event["key"]: event["decision"] for event in shop.events()}
    assert min(left, PAUSE) <= len(kept) <= left
    assert list(kept) == [f"{i}" for i in range(len(kept))]
    results = shop.post(f"{SHOP}/decisions/batch", {"decisions": items}).json()["results"]
    assert [result["status"] for result in results] == [201] * 200
    decisions = [result["decision"]["id"] for result in results]
    assert decisions[: len(kept)] == list(kept.values())
    assert len(set(decisions)) == 200


def test_a_batch_across_a_failure_and_the_recovery(shop: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is broken off: the stream that it began with leaves nothing in the log."""
    disk, decide, calls = FailingDisk(shop, monkeypatch, left=0), Stream.decide, list[int]()
    before = shop.engine.streams["shop"]

    def decide_slowly(stream: Stream, *arguments: Any) -> Any:
        calls.append(1)
        disk.left = 0 if shop.engine.streams.get("shop") is before else -1
        time.sleep(0.002)
        return decide(stream, *arguments)

    monkeypatch.setattr(shop.store, "check_writable", lambda: None)
    monkeypatch.setattr(Stream, "decide", decide_slowly)
    assert shop.post(f"{SHOP}/decisions/batch", {"decisions": [ARMS] * 1000}).status_code == 503
    assert len(calls) < 1000
    shop.wait_until_ready()
    assert shop.events() == []


def test_rewards_over_a_failed_commit(shop: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward that was not acknowledged was not learned, and can be sent again."""
    rewards = [{"decision": shop.decide()["id"], "value": 1.0} for _ in range(5)]
    with monkeypatch.context() as patch:
        FailingDisk(shop, patch, left=0)
        assert shop.post(f"{SHOP}/rewards/batch", {"rewards": rewards}).status_code == 503
    shop.wait_until_ready()
    assert shop.info()["counts"]["rewards"] == 0
    results = shop.post(f"{SHOP}/rewards/batch", {"rewards": rewards}).json()["results"]
    assert [result["receipt"]["status"] for result in results] == ["recorded"] * 5


def test_the_same_request_at_once(shop: Local) -> None:
    """Neither is on disk yet when the other comes."""
    item = {**ARMS, "key": "k"}
    batch = ("POST", f"{SHOP}/decisions/batch", {"decisions": [item, item]})
    answers = shop.request_together(*[batch] * 20)
    (decision,) = {result["decision"]["id"] for answer in answers for result in answer.json()["results"]}
    reward = ("PUT", f"{SHOP}/decisions/{decision}/reward", {"value": 1.0})
    answers = shop.request_together(*[reward] * 20)
    assert sorted(answer.json()["status"] for answer in answers) == ["recorded", *["unchanged"] * 19]
    assert [event["kind"] for event in shop.events()] == ["decided", "rewarded"]
