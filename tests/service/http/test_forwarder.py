"""How a node sends requests to other nodes: what it counts, for whom it waits, and which connections it keeps.

The other nodes are sockets that answer what a test tells them to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from support.nodes import find_port
from windvane.service.cluster.placement import ElsewhereError
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.http.cluster_metrics import OUTCOMES, ClusterNumbers, collect_cluster
from windvane.service.http.exchange import AbortedTransferError
from windvane.service.http.forwarding import Forwarder, RefusedError
from windvane.service.problems import Problem

END_SECONDS = 20.0  # far more than any of the tests needs, and far less than a node waits for an answer
ANSWERS = {
    "answered": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "unavailable": b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\n{}",
    "moved": b"HTTP/1.1 503 Service Unavailable\r\nx-windvane-moved: 1\r\ncontent-length: 2\r\n\r\n{}",
    "no-answer": None,  # nobody listens
}
FIRST_PART = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"  # the rest never comes
NOBODY = ShardMap()


class Other:
    """Another node: every request gets ``answer``, and the connection stays open."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer, self.port, self.requests = answer, find_port(), 0
        self.writers: list[asyncio.StreamWriter] = []
        self.is_gone = asyncio.Event()  # a connection was closed by the other side
        self.node = Node("instance", "b", f"http://127.0.0.1:{self.port}", "0", 1)
        self.map = ShardMap.build([self.node], {})
        self.owner = ElsewhereError(self.node, 0)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        if self.answer is None:
            yield
            return
        tasks: list[asyncio.Task[None]] = []
        server = await asyncio.start_server(
            lambda *ends: tasks.append(asyncio.create_task(self._serve(*ends))), "127.0.0.1", self.port
        )
        async with server:
            yield
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.answer is not None
        self.writers.append(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await reader.readuntil(b"\r\n\r\n"):
                    self.requests += 1
                    writer.write(self.answer)
                    await writer.drain()
        finally:
            self.is_gone.set()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def build_request(method: str = "GET") -> Request:
    scope = {"type": "http", "method": method, "raw_path": b"/v1/streams/shop", "query_string": b"", "headers": []}
    return Request(scope)


def run(other_answer: bytes | None, work: Callable[[Forwarder, Other], Awaitable[Any]]) -> Forwarder:
    """Run ``work`` with a forwarder that knows another node."""
    forwarder = Forwarder(lambda: "secret")

    async def main() -> None:
        other = Other(other_answer)
        async with asyncio.timeout(END_SECONDS), other.run():
            forwarder.note_map(other.map)
            try:
                await work(forwarder, other)
            finally:
                await forwarder.close()

    asyncio.run(main())
    return forwarder


async def forward(forwarder: Forwarder, other: Other, method: str = "GET") -> Response | Problem:
    try:
        return await forwarder.forward(build_request(method), other.owner)
    except Problem as problem:
        return problem


class Numbers:
    """The metrics of a node with these outcomes, for a registry."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._numbers = ClusterNumbers(
            "a", frozenset(), False, 0, 0, {}, 0.0, None, 0, dict(forwarder.outcomes), {}, {}
        )

    def collect(self) -> list[Metric]:
        return list(collect_cluster(self._numbers))


@pytest.mark.parametrize("outcome", ANSWERS)
def test_every_outcome_is_exported(outcome: str) -> None:
    forwarder = run(ANSWERS[outcome], forward)
    assert dict(forwarder.outcomes) == {("b", outcome): 1}
    registry = CollectorRegistry()
    registry.register(Numbers(forwarder))  # type: ignore[arg-type]
    lines = [line for line in generate_latest(registry).decode().splitlines() if "forwarded_requests_total{" in line]
    assert len(lines) == len(OUTCOMES)
    assert f'windvane_forwarded_requests_total{{node="b",outcome="{outcome}"}} 1.0' in lines


# --- nodes that are gone ---------------------------------------------------------------------------------------------


async def begin_stream(forwarder: Forwarder, other: Other) -> AsyncGenerator[Any]:
    """Return the parts of an answer that does not end, after its first part."""
    response = await forward(forwarder, other)
    assert isinstance(response, StreamingResponse)
    parts = response.body_iterator
    assert isinstance(parts, AsyncGenerator)
    assert await anext(parts) == b"first"
    return parts


def test_an_owner_that_is_evicted_between_two_parts_is_not_waited_for() -> None:
    """While a slow client takes a part, nothing waits for the owner."""

    async def work(forwarder: Forwarder, other: Other) -> None:
        parts = await begin_stream(forwarder, other)
        forwarder.note_map(NOBODY)
        with pytest.raises(AbortedTransferError):
            await anext(parts)

    run(FIRST_PART, work)


def test_an_owner_that_is_evicted_during_a_wait_is_not_waited_for() -> None:
    async def work(forwarder: Forwarder, other: Other) -> None:
        parts = await begin_stream(forwarder, other)
        asyncio.get_running_loop().call_later(0.05, forwarder.note_map, NOBODY)
        with pytest.raises(AbortedTransferError):
            await anext(parts)

    run(FIRST_PART, work)


def test_nothing_is_sent_to_a_node_that_was_evicted() -> None:
    """The request is not lost: it may be sent to the next owner, because nothing of it was executed."""

    async def work(forwarder: Forwarder, other: Other) -> None:
        forwarder.note_map(NOBODY)
        problem = await forward(forwarder, other, "POST")
        assert isinstance(problem, RefusedError)
        assert problem.cause == "moving"
        assert other.requests == 0
        forwarder.note_map(other.map)  # it has renewed its lease before it was evicted
        assert isinstance(await forward(forwarder, other, "POST"), Response)

    run(ANSWERS["answered"], work)


def test_a_node_that_no_map_has_shown_yet_is_waited_for() -> None:
    """A request may know a newer map than the forwarder."""

    async def work(forwarder: Forwarder, other: Other) -> None:
        newer = ElsewhereError(other.node._replace(instance="newer"), 0)
        waiting = asyncio.ensure_future(forwarder.forward(build_request(), newer))
        await asyncio.sleep(0)
        forwarder.note_map(other.map)
        assert (await waiting).status_code == 200

    run(ANSWERS["answered"], work)


def test_a_node_that_has_left_by_itself_may_still_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(forwarder: Forwarder, other: Other) -> None:
        monkeypatch.setattr(forwarder, "_has_left", lambda instance: instance == other.node.instance)
        forwarder.note_map(NOBODY)
        assert isinstance(await forward(forwarder, other), Response)

    run(ANSWERS["answered"], work)


def test_connections_to_addresses_without_a_node_are_closed() -> None:
    """A container gets a new address at every start: the old ones must not add up."""

    async def work(forwarder: Forwarder, other: Other) -> None:
        assert isinstance(await forward(forwarder, other), Response)
        forwarder.note_map(other.map)
        assert list(forwarder._transports) == [other.node.url]
        assert not other.is_gone.is_set()
        forwarder.note_map(NOBODY)
        assert forwarder._transports == {}
        await other.is_gone.wait()

    run(ANSWERS["answered"], work)


def test_an_answer_that_is_being_read_survives_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node has left by itself, and completes what it has begun."""

    async def work(forwarder: Forwarder, other: Other) -> None:
        monkeypatch.setattr(forwarder, "_has_left", lambda _: True)
        parts = await begin_stream(forwarder, other)
        forwarder.note_map(NOBODY)
        await asyncio.sleep(0.05)
        other.writers[0].write(b"4\r\nlast\r\n0\r\n\r\n")
        assert [part async for part in parts] == [b"last"]
        await other.is_gone.wait()

    run(FIRST_PART, work)
