"""A node that is stopped hands its streams over: plain HTTP clients, which repeat nothing, see a short delay."""

from __future__ import annotations

import http.client
import signal
import threading
import time

import pytest

from support.nodes import SHARDS, ServiceCluster, name_streams
from support.plain_callers import PlainLoad
from support.server import ARMS, is_running, until

NAMES = ("a", "b", "c")


@pytest.mark.parametrize("drain", [0.0, 1.0])
def test_no_plain_request_fails_in_a_rolling_restart(nodes: ServiceCluster, drain: float) -> None:
    """Neither 503 nor 504, nor a connection that is closed without an answer; and everything is executed once."""
    nodes.settings = {"drain": drain}
    nodes.start(*NAMES)
    streams = nodes.create_streams(name_streams(range(0, SHARDS, 8)))
    load = PlainLoad(nodes, streams, threads=2)
    for name in NAMES:
        count = sum(map(len, load.calls.values()))
        until(lambda count=count: sum(map(len, load.calls.values())) > count + 50)  # type: ignore[misc]
        nodes.nodes[name].stop()
        nodes.restart(name)
        nodes.wait_until_balanced()
    load.end()
    assert not load.failures
    assert load.check() == 0
    longest = max(call.seconds for calls in load.calls.values() for call in calls)
    print(f"{sum(load.acknowledged.values())} decisions, the longest call took {longest:.2f} s")
    logs = [node.log.read_text() for node in nodes.nodes.values()]
    assert all("released shards" in log and "took shards" in log for log in logs)


def test_a_node_that_is_alone_answers_until_it_is_gone(nodes: ServiceCluster) -> None:
    node = nodes.start("a", drain=2.0)
    (stream,) = nodes.create_streams(["shop"])
    node.send_signal(signal.SIGTERM)
    until(lambda: node.find_cause() == "stopping")
    time.sleep(0.3)  # a node among several has left the cluster by then
    status, headers, _ = node.exchange("POST", f"/v1/streams/{stream}/decisions", ARMS)
    assert (status, headers["connection"]) == (201, "close")
    until(lambda: not is_running(node.pid))
    assert len(nodes.read_log(stream)) == 1


def test_a_second_signal_ends_a_handover(nodes: ServiceCluster) -> None:
    """Its shards are released anyway, in the end."""
    nodes.start("a", "b", drain=3600.0)
    node = nodes.nodes.pop("a")
    node.send_signal(signal.SIGTERM)
    until(lambda: node.find_cause() == "stopping")
    node.stop()
    nodes.wait_until_balanced("b")


def test_connections_are_closed_by_answers_while_a_node_drains(nodes: ServiceCluster) -> None:
    """So that no client sends a request over a connection at the moment when the node closes it."""
    nodes.start("a", "b", drain=3.0)
    node = nodes.nodes["a"]
    connection = http.client.HTTPConnection(node.address, timeout=10.0)
    connection.request("GET", "/v1/streams")
    answer = connection.getresponse()
    answer.read()
    assert answer.getheader("connection") is None
    node.send_signal(signal.SIGTERM)
    until(lambda: node.find_cause() == "stopping")
    for method, path in (("GET", "/v1/streams"), ("GET", "/readyz"), ("HEAD", "/v1/streams"), ("GET", "/v1/nothing")):
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        assert answer.getheader("connection") == "close"


def test_a_node_that_starts_lets_requests_wait(nodes: ServiceCluster) -> None:
    """A proxy sends requests as soon as it can connect, and could not repeat those that were refused."""
    nodes.start("a")
    (stream,) = nodes.create_streams(["shop"])
    nodes.start("b", wait=False)
    statuses, begun = list[int](), time.monotonic()

    def ask() -> None:
        while time.monotonic() < begun + 60.0 and not statuses:
            try:
                statuses.append(nodes.nodes["b"].call("POST", f"/v1/streams/{stream}/decisions", ARMS, seconds=30.0)[0])
            except OSError:
                time.sleep(0.001)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {201}


def test_a_node_that_cannot_start_does_not_keep_requests_waiting(nodes: ServiceCluster) -> None:
    nodes.start("a")
    nodes.server.stop("immediate")
    node = nodes.start("b", wait=False)

    def find_cause() -> str | None:
        try:
            return str(node.call("GET", "/v1/streams")[1]["cause"])
        except OSError:
            return None

    assert until(find_cause, 30.0) == "database"
