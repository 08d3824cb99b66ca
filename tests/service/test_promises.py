"""Promises: how many may wait, and what cancelling one of them does."""

from __future__ import annotations

import asyncio

import pytest

from windvane.service.promises import Promise


async def wait(promise: Promise) -> str:
    await promise
    return "kept"


def test_all_that_wait_continue_and_later_ones_do_not_wait() -> None:
    async def scene() -> list[str]:
        promise = Promise()
        waiting = [asyncio.create_task(wait(promise)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not promise.done()
        promise.keep()
        assert promise.done()
        return [*await asyncio.gather(*waiting), await wait(promise)]

    assert asyncio.run(scene()) == ["kept"] * 4


def test_cancelling_one_that_waits_does_not_affect_the_others() -> None:
    async def scene() -> str:
        promise = Promise()
        cancelled, other = asyncio.create_task(wait(promise)), asyncio.create_task(wait(promise))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not promise.done()
        promise.keep()
        return await other

    assert asyncio.run(scene()) == "kept"


def test_a_broken_promise_raises_its_first_error() -> None:
    async def scene() -> None:
        promise = Promise()
        waiting = asyncio.create_task(wait(promise))
        await asyncio.sleep(0)
        promise.break_(OSError("full"))
        promise.break_(OSError("another"))
        for awaitable in (waiting, wait(promise)):
            with pytest.raises(OSError, match="full"):
                await awaitable

    asyncio.run(scene())
