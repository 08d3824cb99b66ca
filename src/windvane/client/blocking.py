"""Client: the methods of :class:`AsyncClient` for blocking code.

Over blocking sockets their coroutines never wait for an event loop, so their first step runs them to the end.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from windvane.client.client import AsyncClient
from windvane.client.connection import Connection
from windvane.client.transport import BlockingNetwork

P = ParamSpec("P")
T = TypeVar("T")


def _run(work: Awaitable[T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        next(work.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the coroutine waits for an event loop")


def _block(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return a method of AsyncClient as one of Client."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> T:
        return _run(method(self, *arguments, **more))

    return call


def _iterate(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """Return a method of AsyncClient that returns an iterator as one of Client."""

    def run_all(items: Any) -> Iterator[T]:
        try:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield _run(anext(items))
        finally:
            _run(items.aclose())

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **more: P.kwargs) -> Iterator[T]:
        return run_all(method(self, *arguments, **more))

    signature = inspect.signature(method)
    returned = signature.return_annotation.removeprefix("Async")
    call.__annotations__ = {**method.__annotations__, "return": returned}
    call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return call


class Client(Connection):
    """A client of the decision service. Safe to use from several threads, and after a fork.

    A request that gets no answer, or status 429, 502, 503 or 504, is retried until the ``deadline``, after growing
    random delays or the delay that the service asks for: callers do not notice an ordinary restart of the service.
    Nothing counts twice: decisions, parts of rewards and history carry an idempotency key, and all other requests are
    idempotent. Permanent errors are raised at once.

    With several addresses, of some nodes of a cluster, a request that one of them does not answer is sent to the next.
    Any node answers any request. When one says that another node owns the stream, the client fetches the map of the
    cluster and sends later requests about a stream directly to the node that owns it. If that fails, it goes back to
    the given addresses.

    Proxies are taken from the environment (``HTTPS_PROXY``, ``NO_PROXY``), but never for an address of this machine.

    Parameters
    ----------
    url
        Address of the service, or several: a sequence, or a string with commas. Default: ``$WINDVANE_URL``, else
        http://127.0.0.1:8000.
    token
        Access token. Default: ``$WINDVANE_TOKEN``, else none.
    timeout
        Seconds to wait for the server at each step of a request.
    deadline
        Seconds after the start of a call within which its request is retried; 0 means no retries. The last attempt may
        end later, within its ``timeout``. Default: 30.
    follow
        Whether to send requests directly to the nodes that own the streams. The token then goes to all nodes that the
        service names, but to none over http if a given address is https.
    send_trace
        Whether to send the current trace context of OpenTelemetry (``traceparent``), so that the spans of the service
        belong to the trace of the caller. Needs ``windvane[opentelemetry]``.

    Attributes
    ----------
    url : str
        The given addresses, separated by commas.

    Examples
    --------
    >>> client = Client()                                                                          # doctest: +SKIP
    >>> decision = client.decide("homepage", {"red": [0.6, 0.1], "blue": [0.2, 0.7]})              # doctest: +SKIP
    >>> client.reward("homepage", decision, 1.0)                                                   # doctest: +SKIP
    'recorded'
    """

    _network_class = BlockingNetwork

    def _get_runtime(self) -> tuple[int, None]:
        return os.getpid(), None

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads. A later call opens one again."""
        _run(self._close())

    def __del__(self) -> None:
        self.close()

    unarchive, compact = _block(AsyncClient.unarchive), _block(AsyncClient.compact)
    delete_stream, erase_context = _block(AsyncClient.delete_stream), _block(AsyncClient.erase_context)
    ready, create, streams = _block(AsyncClient.ready), _block(AsyncClient.create), _block(AsyncClient.streams)
    ensure, unrecovered = _block(AsyncClient.ensure), _block(AsyncClient.unrecovered)
    cluster = _block(AsyncClient.cluster)
    info, configure, archive = _block(AsyncClient.info), _block(AsyncClient.configure), _block(AsyncClient.archive)
    decide, decide_many = _block(AsyncClient.decide), _block(AsyncClient.decide_many)
    refit, undo_refit = _block(AsyncClient.refit), _block(AsyncClient.undo_refit)
    predict, rank = _block(AsyncClient.predict), _block(AsyncClient.rank)
    reward, reward_many = _block(AsyncClient.reward), _block(AsyncClient.reward_many)
    add_reward, history = _block(AsyncClient.add_reward), _block(AsyncClient.history)
    decision, explain, pending = _block(AsyncClient.decision), _block(AsyncClient.explain), _block(AsyncClient.pending)
    events = _iterate(AsyncClient.events)
