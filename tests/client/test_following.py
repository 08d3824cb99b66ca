"""Requests about a stream go directly to the node that owns it, and to given addresses if the map is of no use."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.client_nodes import (
    DECISION,
    RECEIPT,
    SHARDS,
    UNAVAILABLE,
    FakeCluster,
    Node,
    make_problem,
    name_stream,
    reserve_address,
    run_nodes,
)
from support.clients import ARMS, Connect, refused
from support.network import ScriptedServer, make_answer
from windvane import ClusterInfo, ClusterNode
from windvane.client.routing import OWNER, Route
from windvane.records import to_plain
from windvane.service.http import forwarding

MINUTE = 60.0
FIRST, SECOND, THIRD = name_stream(0), name_stream(1), name_stream(2)  # of the nodes 0, 1, 2


def pass_seconds(pauses: list[float], seconds: float) -> None:
    """Move the clock of the client."""
    pauses.append(seconds)


@contextmanager
def following(connect: Connect, nodes: int, **options: Any) -> Iterator[tuple[Any, FakeCluster]]:
    """Yield a client that knows the first node, and has the map; the second node owns ``SECOND``."""
    with run_nodes(nodes) as cluster, connect(cluster.nodes[0].address, **options) as client:
        client.reward(SECOND, "d1", 1.0)
        client.reward(SECOND, "d1", 1.0)
        assert [(node.calls, node.maps) for node in cluster.nodes[:2]] == [(1, 1), (1, 0)]
        yield client, cluster


def count_calls(cluster: FakeCluster, call: Callable[[], object]) -> list[int]:
    """Return how many requests each node gets, other than for the map."""
    before = [node.calls for node in cluster.nodes]
    call()
    return [node.calls - count for node, count in zip(cluster.nodes, before, strict=True)]


def test_the_header_is_that_of_the_service() -> None:
    assert OWNER.decode() == forwarding.OWNER.lower()


# --- following -------------------------------------------------------------------------------------------------------


def test_requests_go_to_the_owner(connect: Connect, pauses: list[float]) -> None:
    with following(connect, 3, token="secret") as (client, cluster):
        assert count_calls(cluster, lambda: client.decide(FIRST, ARMS)) == [1, 0, 0]
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 1, 0]
        assert count_calls(cluster, lambda: client.decide(THIRD, ARMS)) == [0, 0, 1]
        assert all(request.token == "Bearer secret" for node in cluster.nodes for request in node.requests)
        assert (cluster.maps, pauses) == (1, [])


ANSWERED: list[Callable[[Any], object]] = [
    lambda client: client.decide(SECOND, ARMS),
    lambda client: client.reward(SECOND, "d1", 1.0),
    lambda client: client.pending(SECOND),
    lambda client: list(client.events(SECOND)),
]
REFUSED: list[Callable[[Any], object]] = [  # by the nodes of these tests, which know no other answers
    lambda client: client.create(SECOND, dim=2),
    lambda client: client.ensure(SECOND, dim=2),
    lambda client: client.info(SECOND),
    lambda client: client.configure(SECOND, title="x"),
    lambda client: client.refit(SECOND),
    lambda client: client.undo_refit(SECOND),
    lambda client: client.archive(SECOND),
    lambda client: client.unarchive(SECOND),
    lambda client: client.compact(SECOND),
    lambda client: client.delete_stream(SECOND),
    lambda client: client.erase_context(SECOND, "d1"),
    lambda client: client.predict(SECOND, ARMS),
    lambda client: client.rank(SECOND, ARMS),
    lambda client: client.add_reward(SECOND, "d1", 1.0),
    lambda client: client.decide_many(SECOND, [ARMS]),
    lambda client: client.reward_many(SECOND, [("d1", 1.0)]),
    lambda client: client.history(SECOND, [1.0], [[0.1, 0.2]]),
    lambda client: client.decision(SECOND, "d1"),
    lambda client: client.explain(SECOND, "d1"),
]


def test_every_call_about_a_stream(connect: Connect, pauses: list[float]) -> None:
    with following(connect, 2) as (client, cluster):
        for call in ANSWERED:
            assert count_calls(cluster, lambda: call(client)) == [0, 1]
        for call in REFUSED:
            calls = count_calls(cluster, lambda: refused(lambda: call(client), 409, "stream-exists"))
            assert calls == [0, 1]
        for name in (3, None, "\ud800", ""):  # no names: whoever gets them says so
            assert count_calls(cluster, lambda: refused(lambda: client.create(name), 409, "stream-exists")) == [1, 0]
        assert cluster.maps == 1


def test_what_is_about_no_stream_goes_to_given_addresses(connect: Connect, pauses: list[float]) -> None:
    with following(connect, 2) as (client, cluster):
        assert client.ready()
        refused(client.streams, 409, "stream-exists")
        assert cluster.nodes[1].calls == 1
        info = client.cluster()
    assert isinstance(info, ClusterInfo)
    assert (info.node, info.shards, info.unowned) == ("n0", SHARDS, [])
    assert info.nodes[1] == ClusterNode(name="n1", url=cluster.nodes[1].url, version="1", shards=[1, 3])


@pytest.mark.parametrize("shards", [0, 4])
def test_a_single_server_gets_no_other_requests(shards: int, connect: Connect, pauses: list[float]) -> None:
    with run_nodes(1) as cluster, connect(cluster.nodes[0].address) as client:
        cluster.shards = shards
        for name in (FIRST, SECOND, THIRD):
            client.decide(name, ARMS)
            assert list(client.events(name))
        assert (cluster.nodes[0].calls, cluster.maps) == (6, 0)
        assert client.cluster().shards == shards


def test_the_log_of_a_stream_wants_the_map_too(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect(cluster.nodes[0].address) as client:
        assert len(list(client.events(SECOND))) == 2
        assert count_calls(cluster, lambda: list(client.events(SECOND))) == [0, 1]


def test_following_can_be_switched_off(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect(cluster.nodes[0].address, follow=False) as client:
        for _ in range(3):
            client.decide(SECOND, ARMS)
            pass_seconds(pauses, MINUTE)
        assert (cluster.nodes[0].calls, cluster.nodes[1].calls, cluster.maps) == (3, 0, 0)
        assert len(client.cluster().nodes) == 2


# --- a map that is old -----------------------------------------------------------------------------------------------


def test_a_stream_that_moved(connect: Connect, pauses: list[float]) -> None:
    """The answer counts; the next call fetches the map, but not within a second of the last."""
    with following(connect, 3) as (client, cluster):
        cluster.owners[1] = cluster.nodes[2]
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 1, 0]  # which forwards it
        for _ in range(3):
            assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 0, 0]
        assert cluster.maps == 1
        pass_seconds(pauses, 1.0)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 0, 1]
        assert cluster.maps == 2
    assert set(cluster.executed.values()) == {1}


def test_a_stream_whose_shard_nobody_owned(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect(cluster.nodes[0].address) as client:
        owner = cluster.owners.pop(1)
        client.reward(name_stream(3), "d1", 1.0)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 0]
        cluster.owners[1] = owner
        pass_seconds(pauses, 1.0)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 0]
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 1]
        assert cluster.maps == 2


def test_an_answer_to_a_request_from_before_the_map(connect: Connect, pauses: list[float]) -> None:
    """It says nothing about the map, which was fetched later."""
    with following(connect, 2) as (client, _):
        router = client._router
        current, router.map = router.map, None
        late = Route(router, SECOND)
        router.map = current
        late.read_owner([(OWNER, b"http://elsewhere")], lambda: 0.0)
        assert (router.map, router.wants_map) == (current, False)


# --- an owner that fails ---------------------------------------------------------------------------------------------


def test_an_owner_that_is_gone(connect: Connect, pauses: list[float]) -> None:
    """At once a given address is asked, and the map when a node forwards again."""
    with following(connect, 3) as (client, cluster):
        cluster.nodes[1].stop()
        cluster.owners[1] = cluster.nodes[2]
        assert client.decide(SECOND, ARMS) == DECISION
        assert (pauses, cluster.nodes[0].calls, cluster.maps) == ([], 2, 1)
        pass_seconds(pauses, 1.0)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 0, 1]
        assert cluster.maps == 2


def test_an_owner_that_is_gone_before_its_shards_are_taken(connect: Connect, pauses: list[float]) -> None:
    with following(connect, 3) as (client, cluster):
        cluster.nodes[1].stop()
        error = refused(lambda: client.decide(SECOND, ARMS), 503, "unavailable")
        assert error.message.endswith("gave up after 20 attempts")  # at the first node, after one without a pause
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, *[2.0] * 13])
        assert cluster.executed == {}


def test_no_deadline_and_an_owner_that_is_gone(connect: Connect, pauses: list[float]) -> None:
    """The request was never sent, so a given address is asked all the same."""
    with following(connect, 3, deadline=0) as (client, cluster):
        cluster.nodes[1].stop()
        cluster.owners[1] = cluster.nodes[2]
        assert client.decide(SECOND, ARMS) == DECISION


def fail_once(node: Node, answer: bytes | None) -> None:
    def fail(_: socket.socket) -> bytes | None:
        node.handle_directly = None
        return answer

    node.handle_directly = fail


@pytest.mark.parametrize("answer", [UNAVAILABLE, None, b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{"])
def test_an_owner_that_does_not_answer(answer: bytes | None, connect: Connect, pauses: list[float]) -> None:
    """The same request, with its key, goes to a given address, after the usual pause."""
    with following(connect, 2, timeout=0.5 if answer and b"400" in answer else 10.0) as (client, cluster):
        fail_once(cluster.nodes[1], answer)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 1]
        assert pauses == pytest.approx([0.1])
        first, second = cluster.nodes[1].requests[-1], cluster.nodes[0].requests[-1]
        assert first == second
        assert first.key is not None
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 0]  # the map is not a second old
        pass_seconds(pauses, 1.0)
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 1]
        assert cluster.maps == 2


@pytest.mark.parametrize("code", ["rate-limited", "overloaded"])
def test_an_owner_that_asks_to_slow_down(code: str, connect: Connect, pauses: list[float]) -> None:
    status = {"rate-limited": "429 Too Many Requests", "overloaded": "503 Service Unavailable"}[code]
    with following(connect, 2) as (client, cluster):
        fail_once(cluster.nodes[1], make_problem(code, status))
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 2]
        assert pauses == pytest.approx([0.1])


def test_errors_of_the_owner_are_raised(connect: Connect, pauses: list[float]) -> None:
    with following(connect, 2) as (client, cluster):
        for status, code in (("404 Not Found", "unknown-stream"), ("403 Forbidden", "read-only-token")):
            fail_once(cluster.nodes[1], make_problem(code, status))
            calls = count_calls(cluster, lambda: refused(lambda: client.info(SECOND), int(status[:3]), code))
            assert (calls, pauses) == ([0, 1], [])
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [0, 1]


def test_an_owner_among_the_given_addresses(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(3) as cluster, connect([node.address for node in cluster.nodes[:2]]) as client:
        client.decide(SECOND, ARMS)
        client.decide(SECOND, ARMS)
        cluster.nodes[1].stop()
        cluster.owners = dict.fromkeys(range(SHARDS), cluster.nodes[0])
        assert count_calls(cluster, lambda: client.decide(SECOND, ARMS)) == [1, 0, 0]
        pass_seconds(pauses, 1.0)
        cluster.nodes[0].stop()
        refused(lambda: client.decide(SECOND, ARMS), None, "unreachable")
        assert cluster.maps == 1


# --- nodes that this client cannot use -------------------------------------------------------------------------------


def check_suspended(client: Any, cluster: FakeCluster, pauses: list[float]) -> None:
    """Everything goes to the first node; the map is fetched again after a minute."""
    pauses.clear()
    fetched = cluster.maps
    for _ in range(3):
        assert client.decide(SECOND, ARMS) == DECISION
        pass_seconds(pauses, 19.0)
    assert cluster.maps == fetched
    pass_seconds(pauses, 3.0)  # a minute since the failure
    assert client.decide(SECOND, ARMS) == DECISION  # whose answer has the header
    assert client.decide(SECOND, ARMS) == DECISION
    assert cluster.maps == fetched + 1


def test_nodes_that_were_never_there(connect: Connect, pauses: list[float]) -> None:
    """As for clients behind a load balancer, to whom the nodes' addresses mean nothing."""
    with (
        reserve_address() as nobody,
        run_nodes(2) as cluster,
        connect(cluster.nodes[0].address, deadline=0) as client,
    ):
        cluster.nodes[1].url = nobody
        client.decide(SECOND, ARMS)
        assert client.decide(SECOND, ARMS) == DECISION
        assert (cluster.maps, pauses) == (1, [])
        check_suspended(client, cluster, pauses)


@pytest.mark.parametrize(
    "answer",
    [
        make_answer("<html>"),
        make_answer({"hello": "world"}),
        make_answer("<html>", "404 Not Found"),
        make_answer("<html>", "302 Found", "Location: /login"),
        make_answer("<html>", "502 Bad Gateway"),
        make_problem("no-token", "401 Unauthorized"),
        make_problem("wrong-host", "403 Forbidden"),
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
)
def test_another_service_at_the_address_of_a_node(answer: bytes, connect: Connect, pauses: list[float]) -> None:
    with (
        ScriptedServer(answer) as other,
        run_nodes(2) as cluster,
        connect(cluster.nodes[0].address, timeout=0.5 if answer.startswith(b"SSH") else 10.0) as client,
    ):
        cluster.nodes[1].url = other.address
        client.decide(SECOND, ARMS)
        assert client.decide(SECOND, ARMS) == DECISION
        assert (cluster.maps, len(other.requests)) == (1, 1)
        check_suspended(client, cluster, pauses)


def test_the_token_is_not_sent_from_https_to_http(connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect([cluster.nodes[0].address, "https://127.0.0.1:1"], "secret") as client:
        for _ in range(3):
            assert client.decide(SECOND, ARMS) == DECISION
            pass_seconds(pauses, 1.0)
        assert (cluster.nodes[0].calls, cluster.nodes[1].calls) == (3, 0)
        assert cluster.maps == 1  # it is not old: it names a node that is not asked
        cluster.owners[1] = cluster.nodes[0]
        assert client.decide(SECOND, ARMS) == DECISION


@pytest.mark.parametrize(
    "url", ["", "nowhere", "ftp://x", "http://me:word@x", "http://x/?a=b", "http://x:99999", "http://x y"]
)
def test_a_map_with_an_address_of_no_use(url: str, connect: Connect, pauses: list[float]) -> None:
    with run_nodes(2) as cluster, connect(cluster.nodes[0].address) as client:
        cluster.nodes[1].url = url
        for _ in range(3):
            assert client.decide(SECOND, ARMS) == DECISION
            pass_seconds(pauses, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        make_problem("not-found", "404 Not Found"),
        make_answer({"shards": "many"}),
        make_answer("<html>"),
        make_answer({"node": None, "shards": 0, "nodes": [], "unowned": []}),
        b"",
    ],
)
def test_a_map_that_cannot_be_had(answer: bytes, connect: Connect, pauses: list[float]) -> None:
    """It is asked for once in a minute, and calls do not notice."""
    forwarded = make_answer(to_plain(RECEIPT), "200 OK", "x-windvane-owner: http://127.0.0.1:1")
    with ScriptedServer(forwarded, answer, forwarded) as server, connect(server.address, deadline=0) as client:
        for _ in range(4):
            assert client.reward(SECOND, "d1", 1.0) == "recorded"
            pass_seconds(pauses, 10.0)
        assert sum(b"/v1/cluster" in request for request in server.requests) == 1


def test_a_map_that_is_not_there_yet(connect: Connect, pauses: list[float]) -> None:
    forwarded = make_answer(to_plain(RECEIPT), "200 OK", "x-windvane-owner: http://127.0.0.1:1")
    script = (forwarded, UNAVAILABLE, forwarded, forwarded, UNAVAILABLE, forwarded)
    with ScriptedServer(*script) as server, connect(server.address, deadline=0) as client:
        for _ in range(3):
            assert client.reward(SECOND, "d1", 1.0) == "recorded"
        pass_seconds(pauses, 1.0)
        assert client.reward(SECOND, "d1", 1.0) == "recorded"
        assert [b"/v1/cluster" in request for request in server.requests] == [False, True, False, False, True, False]
