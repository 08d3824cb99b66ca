"""All connections of a node are in use: requests that need one are refused, and nothing is rebuilt for that."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.refusals import rejects
from support.server import ARMS, Local, read_problem, until
from windvane.service.http import access
from windvane.service.problems import Problem
from windvane.service.store import NoConnectionError
from windvane.service.store.postgres import pool as pooling

SHOP = "/v1/streams/shop"
RAW = json.dumps(ARMS).encode()


@pytest.fixture
def service(node: Local) -> Iterator[Local]:
    """A service on PostgreSQL with a stream. In the end, it must never have been rebuilt."""
    yield node
    assert node.engine.recoveries == 1


@contextlib.contextmanager
def exhausted(service: Local, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take all connections of the pool, for which callers no longer wait."""
    pool = service.store.pool
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
        for _ in range(pool.size):
            stack.enter_context(pool.borrow())
        patch.setattr(pooling, "WAIT_SECONDS", 0.02)
        patch.setattr(access, "RELOAD", 1e9)  # tokens are not read meanwhile
        yield


def test_requests_are_refused_with_the_reason(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.get(f"{SHOP}/decisions/none").status_code == 404
    with exhausted(service, monkeypatch):
        answers = [
            service.get(f"{SHOP}/decisions/none"),
            service.post("/v1/streams", {"name": "new", "dim": 2}),
            service.get(f"{SHOP}/events"),
        ]
        assert service.post(f"{SHOP}/decisions", ARMS).status_code == 201  # commits have their own connection
    for answer in answers:
        problem = read_problem(answer, 503)
        assert "all connections of this node" in problem["detail"]
        assert answer.headers["retry-after"] == "1"
    assert service.get(f"{SHOP}/decisions/none").status_code == 404
    assert service.post("/v1/streams", {"name": "new", "dim": 2}).status_code == 201


def test_a_stream_is_loaded_as_soon_as_there_is_a_connection(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    service.create("other")
    with exhausted(service, monkeypatch):
        service.call(lambda: service.engine.placement._drop([service.engine.placement.shard_of("shop")]))  # type: ignore[union-attr]
        service.call(service.engine.placement.sync)  # type: ignore[union-attr]
        assert service.post("/v1/streams/other/decisions", ARMS).status_code == 201
    until(lambda: service.post(f"{SHOP}/decisions", ARMS).status_code == 201)


def test_a_stream_is_deleted_as_soon_as_there_is_a_connection(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()
    remove = service.store.begin_removal

    def note(*arguments: object, **options: object) -> None:
        try:
            remove(*arguments, **options)
        except NoConnectionError:
            refused.set()
            raise

    monkeypatch.setattr(service.store, "begin_removal", note)
    with ThreadPoolExecutor(1) as thread:
        with exhausted(service, monkeypatch):
            deletion = thread.submit(service.request, "DELETE", SHOP)
            assert refused.wait(20)
            assert not deletion.done()
        assert deletion.result(20).status_code == 204
    assert service.store.find_stream("shop") is None


def test_only_the_stream_is_rebuilt_whose_operation_got_no_connection(service: Local) -> None:
    """Its memory may be ahead of its log."""
    engine = service.engine
    stream = engine.streams["shop"]

    def operate() -> None:
        stream.decide(RAW, None, time.time())
        raise NoConnectionError("all connections are in use")

    with rejects(error=Problem, code="unavailable"):
        service.run(engine.operations.carry_out(stream, operate))  # type: ignore[arg-type]
    until(lambda: engine.streams.get("shop") not in (None, stream))
    assert service.info()["events"] == 0
    assert service.post(f"{SHOP}/decisions", ARMS).status_code == 201
