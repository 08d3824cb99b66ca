"""Work on a store that no server has open, with the rules of the service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from windvane.service.engine import Engine
from windvane.service.store import StoreError, open_store

T = TypeVar("T")

POLL_SECONDS = 0.01  # between looks whether the streams are rebuilt
TEMPORARY = ("starting", "recovering", "compiling")  # codes of readiness that pass by themselves


def run_offline(path: str | Path, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Open the store at ``path``, which must exist, let ``work`` use its streams, and close it.

    Raises :class:`StoreError` if the store cannot be used, for example because a server has it open.
    """
    with contextlib.closing(open_store(path, create=False)) as store:
        if store.is_remote:
            raise StoreError(store.name, "in_use", "is changed through a running node; give its address as --url")

        async def run() -> T:
            engine = Engine(store)
            await engine.start()
            try:
                await _wait_until_ready(engine)
                return await work(engine)
            finally:
                await engine.stop()

        return asyncio.run(run())


async def _wait_until_ready(engine: Engine) -> None:
    while (failure := engine.failure) is not None:
        if failure.code not in TEMPORARY:
            raise StoreError(engine.store.name, "unreadable", f"cannot be used ({failure.text})")
        await asyncio.sleep(POLL_SECONDS)
