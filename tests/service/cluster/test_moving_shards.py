"""Shards that move while they are used: nodes that join and leave, and long work on streams that are given away."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.cluster_drill import ClusterLoad
from support.nodes import SHARDS, Node, ServiceCluster, name_streams
from support.server import ARMS, until
from windvane import Client
from windvane.cluster_map import shard_of

NAMES = ("a", "b", "c")


class ClientLoad:
    """Threads that use ``windvane.Client`` as an application does: no call may fail."""

    def __init__(self, urls: list[str], streams: list[str]) -> None:
        self.streams, self.is_ending = streams, False
        self.decided: dict[str, set[str]] = {stream: set() for stream in streams}
        self.rewarded: dict[str, set[str]] = {stream: set() for stream in streams}
        self.longest, self.errors = 0.0, list[str]()
        self._threads = [threading.Thread(target=self._work, args=(url, i)) for i, url in enumerate(urls)]
        for thread in self._threads:
            thread.start()

    def _work(self, url: str, seed: int) -> None:
        rng = random.Random(seed)
        with Client(url) as client:
            try:
                while not self.is_ending:
                    began = time.monotonic()
                    self._use(client, rng.choice(self.streams), rng)
                    self.longest = max(self.longest, time.monotonic() - began)
            except Exception as error:
                self.errors.append(f"{url}: {error!r}")

    def _use(self, client: Client, stream: str, rng: random.Random) -> None:
        if rng.random() < 0.2:
            decisions = client.decide_many(stream, [ARMS["arms"]] * 5)
            self.decided[stream] |= {decision.id for decision in decisions}
            client.info(stream)
            return
        decision = client.decide(stream, ARMS["arms"])
        self.decided[stream].add(decision.id)
        assert client.reward(stream, decision, 1.0) in ("recorded", "unchanged")
        self.rewarded[stream].add(decision.id)

    @property
    def count(self) -> int:
        return sum(map(len, self.decided.values()))

    def wait(self, count: int) -> None:
        goal = self.count + count
        until(lambda: self.count >= goal or self.errors, 60.0)

    def end(self, nodes: ServiceCluster) -> None:
        """Every decision and reward is in the log once, and nothing else is."""
        self.is_ending = True
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors
        for stream in self.streams:
            events = [(event["kind"], event["decision"]) for event in nodes.read_log(stream)]
            expected = [("decided", id_) for id_ in self.decided[stream]]
            expected += [("rewarded", id_) for id_ in self.rewarded[stream]]
            assert sorted(events) == sorted(expected)


@pytest.fixture
def three(nodes: ServiceCluster) -> ServiceCluster:
    nodes.start(*NAMES)
    return nodes


# --- nodes that come and go ------------------------------------------------------------------------------------------


def test_a_rolling_restart(three: ServiceCluster) -> None:
    """No call of a client fails, whichever node it was given."""
    streams = three.create_streams(name_streams(range(0, SHARDS, 8)))
    load = ClientLoad([f"http://{node.address}" for node in three.nodes.values()], streams)
    for name in NAMES:
        load.wait(30)
        three.nodes[name].stop()
        load.wait(30)  # the other two serve everything
        three.restart(name)
        three.wait_until_balanced()
    load.end(three)
    three.verify()
    logs = "".join(node.log.read_text() for node in three.nodes.values())
    assert "evicted" not in logs  # shards were handed over: no node had to wait for a lease to expire
    print(f"{load.count} decisions, the longest call took {load.longest:.1f} s")


def test_a_node_joins_under_load(nodes: ServiceCluster) -> None:
    nodes.start("a")
    names = nodes.create_streams(name_streams(range(0, SHARDS, 6)), reward_timeout=30, default_reward=0.0)
    load = ClusterLoad(nodes, names)
    load.begin(1, workers=3)
    load.wait(50)
    nodes.start("b", "c")
    load.wait_for_all()
    counts = [list(nodes.read_owners().values()).count(name) for name in NAMES]
    assert sorted(counts) == [21, 21, 22]
    load.end()
    load.check()
    nodes.verify()
    print(f"{load.acknowledged} acknowledged, the longest wait was {load.longest_wait():.1f} s")


def test_a_node_stops_under_load(three: ServiceCluster) -> None:
    """Its shards are released when it stops: nobody waits for its lease."""
    names = three.create_streams(name_streams(range(0, SHARDS, 6)), reward_timeout=30, default_reward=0.0)
    load = ClusterLoad(three, names)
    load.begin(2, workers=3)
    load.wait(50)
    for name in ("a", "b"):
        began = time.monotonic()
        three.nodes.pop(name).stop()
        load.wait_for_all()
        print(f"{name} stopped: the longest wait was {load.longest_wait(began):.1f} s")
    load.end()
    load.check()
    three.verify()


# --- long work -------------------------------------------------------------------------------------------------------


def move(nodes: ServiceCluster, stream: str) -> None:
    """Let another node own a stream, as after a failover: its owner notices it later."""
    shard = shard_of(stream, SHARDS)
    nodes.execute(
        """UPDATE shards SET epoch = nextval('epochs'), node = (
            SELECT instance FROM nodes WHERE instance <> shards.node ORDER BY instance LIMIT 1) WHERE shard = %s""",
        shard,
    )


@contextlib.contextmanager
def run(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Do some work in a thread, and yield a function that returns its result."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        yield lambda: running.result(60)


def fill(nodes: ServiceCluster, stream: str, count: int) -> None:
    """Make many decisions, with rewards."""
    path, node = f"/v1/streams/{stream}", nodes.wait_for_owner(stream)
    for _ in range(count // 500):
        results = node.call("POST", f"{path}/decisions/batch", {"decisions": [ARMS] * 500}, seconds=30.0)[1]["results"]
        rewards = [{"decision": result["decision"]["id"], "value": 1.0} for result in results]
        assert node.call("POST", f"{path}/rewards/batch", {"rewards": rewards}, seconds=30.0)[0] == 200


def ask_until_done(node: Node, method: str, path: str, body: Any, key: str) -> Any:
    """Repeat a request with the same key until it is answered."""

    def attempt() -> Any:
        status, answer = node.call(method, path, body, key, seconds=60.0)
        assert status in (200, 503, 504), answer
        return answer if status == 200 else None

    return until(attempt, 60.0)


def test_a_stream_is_lost_during_a_refit(nodes: ServiceCluster) -> None:
    """The refit is given up; repeated with its key, it happens once."""
    nodes.start("a", "b")
    (stream,) = nodes.create_streams(["shop"])
    fill(nodes, stream, 1000)
    path, body, node = f"/v1/streams/{stream}/refit", {"half_life": "1h"}, nodes.nodes["a"]
    with run(lambda: ask_until_done(node, "POST", path, body, "refit-1")) as read:
        for _ in range(5):
            move(nodes, stream)
            nodes.decide(stream)
        report = read()
    kinds = [event["kind"] for event in nodes.read_log(stream)]
    assert kinds.count("refitted") == 1
    assert kinds[report["event"] - 1] == "refitted"
    assert ask_until_done(nodes.nodes["b"], "POST", path, body, "refit-1") == report
    nodes.verify()


def test_a_stream_is_lost_during_bulk_history(nodes: ServiceCluster) -> None:
    nodes.start("a", "b")
    (stream,) = nodes.create_streams(["shop"])
    nodes.decide(stream)
    path, rng = f"/v1/streams/{stream}/history", random.Random(0)
    rows = 5000
    body = {"rewards": [rng.random() for _ in range(rows)], "vectors": [[0.5, rng.random() / 2]] * rows}
    with run(lambda: ask_until_done(nodes.nodes["a"], "POST", path, body, "history-1")) as read:
        for _ in range(5):
            move(nodes, stream)
            nodes.decide(stream)
        assert read() == {"rows": rows}
    assert [event["kind"] for event in nodes.read_log(stream)].count("history") == 1
    assert ask_until_done(nodes.nodes["b"], "POST", path, body, "history-1") == {"rows": rows}
    nodes.verify()


def test_an_archived_stream_moves(nodes: ServiceCluster) -> None:
    nodes.start("a", "b")
    (stream,) = nodes.create_streams(["shop"])
    nodes.decide(stream)
    archived = nodes.ask("POST", f"/v1/streams/{stream}/archive")
    owner = nodes.wait_for_owner(stream)
    move(nodes, stream)
    until(lambda: nodes.find_owner(stream) not in (None, owner))
    assert nodes.ask("GET", f"/v1/streams/{stream}") == archived
    assert nodes.ask("POST", f"/v1/streams/{stream}/decisions", ARMS, expected=409)["title"] == "The stream is archived"


# --- the list, and new streams ---------------------------------------------------------------------------------------


def list_names(node: Node, limit: int = 3) -> tuple[set[str], set[str]] | None:
    """Return the streams that a node lists, and those that it calls unavailable; None if it does not answer."""
    streams, unavailable, after = set[str](), set[str](), ""
    while after is not None:
        status, page = node.call("GET", f"/v1/streams?limit={limit}&after={after}")
        if status == 503:
            return None
        assert status == 200, page
        names = [stream["name"] for stream in page["streams"]]
        assert names == sorted(names)
        assert len(names) <= limit
        streams |= set(names)
        unavailable |= {entry["name"] for entry in page["unavailable"]}
        after = page["next"]
    return streams, unavailable


def test_the_list_has_every_stream_while_shards_move(three: ServiceCluster) -> None:
    """Each stream is served or unavailable; none is missing because it was just moving."""
    names = set(three.create_streams(name_streams(range(0, SHARDS, 5))))
    rng = random.Random(5)
    for _ in range(10):
        for name in rng.sample(sorted(names), 4):
            move(three, name)
        listed = list_names(rng.choice(list(three.nodes.values())))
        assert listed is None or listed[0] | listed[1] == names
    until(lambda: list_names(three.nodes["a"], limit=100) == (names, set()), 30.0)
    three.nodes["b"].kill()
    streams, unavailable = until(lambda: list_names(three.nodes["a"]))
    assert streams | unavailable == names
    until(lambda: list_names(three.nodes["a"]) == (names, set()), 30.0)


def test_the_same_stream_is_created_everywhere_at_once(three: ServiceCluster) -> None:
    nodes = list(three.nodes.values())
    for i in range(5):
        with ThreadPoolExecutor(9) as pool:
            body = {"name": f"new{i}", "dim": 2}
            work = [pool.submit(node.call, "POST", "/v1/streams", body) for node in nodes * 3]
            statuses = sorted(running.result()[0] for running in work)
        assert statuses == [201, *[409] * 8]
        with ThreadPoolExecutor(9) as pool:
            work = [pool.submit(node.call, "PUT", f"/v1/streams/put{i}", {"dim": 2}) for node in nodes * 3]
            statuses = sorted(running.result()[0] for running in work)
        assert statuses == [*[200] * 8, 201]
