"""Both clients behind one blocking interface, and how tests state that a call fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from windvane.client import AsyncClient, BatchError, ClientError

ARMS = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}
Connect = Callable[..., Any]


class Awaited:
    """An AsyncClient whose calls are awaited in an event loop of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client, self._runner = AsyncClient(*arguments, **options), asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return (lambda *a, **k: self._runner.run(method(*a, **k))) if callable(method) else method

    def events(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        events: Any = self._client.events(*arguments, **options)

        async def step() -> Any:
            return await anext(events, None)

        def iterate() -> Iterator[Any]:
            while (event := self._runner.run(step())) is not None:
                yield event

        return iterate()

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._runner.close()


def refused(call: Callable[[], object], status: int | None, code: str) -> ClientError:
    with pytest.raises(ClientError) as caught:
        call()
    error = caught.value
    assert (error.status, error.code) == (status, code), error
    assert str(error) == error.message
    assert "\n" not in str(error)
    return error


def failed_batch(call: Callable[[], object]) -> BatchError:
    with pytest.raises(BatchError) as caught:
        call()
    error = caught.value
    assert error.errors == {i: result for i, result in enumerate(error.results) if isinstance(result, ClientError)}
    assert "\n" not in str(error)
    return error
