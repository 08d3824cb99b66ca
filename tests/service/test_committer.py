"""The committer: order, failures, and what is added while it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from itertools import chain
from typing import Any, cast
from unittest.mock import Mock

import pytest

from windvane.service.committer import Committer


class Disk:
    """A store that records its commits. ``go``: a commit waits for it. ``error``: what a commit raises."""

    def __init__(self) -> None:
        self.commits: list[list[Any]] = []
        self.go, self.error = threading.Event(), cast("OSError | None", None)
        self.go.set()

    def append(self, events: list[Any], snapshots: list[Any], erasures: list[Any], epochs: dict[int, int]) -> None:
        assert self.go.wait(30)
        if self.error is not None:
            raise self.error
        self.commits.append([*events, *snapshots, *erasures])


class Named(str):
    """An event, of which a committer only wants to know the size."""

    size = 10


def make(names: str) -> Any:
    return list(map(Named, names))


def run(scene: Callable[[Committer, Disk, Mock, Mock], Coroutine[Any, Any, None]]) -> Disk:
    disk, on_commit, on_failure = Disk(), Mock(), Mock()

    async def play() -> None:
        committer = Committer(disk, on_commit, on_failure)  # type: ignore[arg-type]
        await asyncio.wait_for(scene(committer, disk, on_commit, on_failure), 30)

    asyncio.run(play())
    return disk


def test_what_is_added_during_a_commit_is_stored_by_the_next() -> None:
    async def scene(committer: Committer, disk: Disk, on_commit: Mock, _: Mock) -> None:
        disk.go.clear()
        first = committer.add(make("ab"))
        await asyncio.sleep(0)
        later = [committer.add(make(name)) for name in "cde"]
        assert (committer.waiting, committer.waiting_bytes) == (5, 50)
        assert committer.oldest_wait > 0.0
        assert not first.done()
        disk.go.set()
        await asyncio.gather(first, *later)
        assert (committer.waiting, committer.oldest_wait) == (0, 0.0)
        assert all(call.args[1] > 0.0 for call in on_commit.call_args_list)
        assert [call.args[0] for call in on_commit.call_args_list] == [["a", "b"], ["c", "d", "e"]]
        await committer.close()

    assert run(scene).commits == [["a", "b"], ["c", "d", "e"]]


def test_waiting_alone_is_no_commit() -> None:
    async def scene(committer: Committer, disk: Disk, on_commit: Mock, _: Mock) -> None:
        await committer.add()
        on_commit.assert_not_called()
        disk.go.clear()
        first = committer.add(make("a"))
        await asyncio.sleep(0)
        wait = committer.add()
        disk.go.set()
        await wait
        assert first.done()
        assert on_commit.call_count == 1
        await committer.close()

    assert run(scene).commits == [["a"]]


def test_an_erasure_alone_is_a_commit() -> None:
    """It is stored after the events before it, and a promise for it is not kept earlier."""

    async def scene(committer: Committer, disk: Disk, on_commit: Mock, _: Mock) -> None:
        disk.go.clear()
        committer.add(make("a"))
        await asyncio.sleep(0)
        erased = committer.add(erasures=make("x"))
        assert committer.waiting == 1
        disk.go.set()
        await erased
        assert on_commit.call_count == 2
        await committer.close()

    assert run(scene).commits == [["a"], ["x"]]


def test_after_a_failure_nothing_is_stored() -> None:
    """Neither what gathered during the failed commit, nor what is added later: memory is ahead of the disk."""

    async def scene(committer: Committer, disk: Disk, on_commit: Mock, on_failure: Mock) -> None:
        disk.go.clear()
        disk.error = OSError("the disk is full")
        promises = [committer.add(make("a"))]
        await asyncio.sleep(0)
        promises.append(committer.add(make("b")))
        disk.go.set()
        for promise in promises:
            with pytest.raises(OSError, match="full"):
                await promise
        disk.error = None
        with pytest.raises(OSError, match="full"):
            await committer.add(make("c"))
        on_commit.assert_not_called()
        on_failure.assert_called_once()
        await committer.close()

    assert run(scene).commits == []


def test_what_is_added_while_it_closes() -> None:
    """It is stored if the committer has not ended yet, and refused otherwise; nobody waits for ever."""

    async def scene(committer: Committer, disk: Disk, on_commit: Mock, _: Mock) -> None:
        disk.go.clear()

        async def add_two() -> None:
            await committer.add(make("a"))
            await committer.add(make("b"))

        task = asyncio.create_task(add_two())
        await asyncio.sleep(0)
        closing = asyncio.create_task(committer.close())
        await asyncio.sleep(0)
        disk.go.set()
        await asyncio.gather(task, closing)
        with pytest.raises(RuntimeError, match="closed"):
            await committer.add(make("c"))

    assert run(scene).commits == [["a"], ["b"]]


def test_a_waiter_that_is_cancelled() -> None:
    """The events are stored all the same, and later ones too."""

    async def scene(committer: Committer, disk: Disk, on_commit: Mock, _: Mock) -> None:
        waiter = asyncio.ensure_future(committer.add(make("a")))
        await asyncio.sleep(0)
        waiter.cancel()
        await committer.add(make("b"))
        await committer.close()

    assert list(chain.from_iterable(run(scene).commits)) == ["a", "b"]


def test_a_commit_that_is_given_up() -> None:
    """Those who wait are told at once; what gathered meanwhile is not stored, even if the commit succeeds after all."""

    async def scene(committer: Committer, disk: Disk, on_commit: Mock, on_failure: Mock) -> None:
        disk.go.clear()
        promises = [committer.add(make("a"))]
        await asyncio.sleep(0)
        promises.append(committer.add(make("b")))
        assert committer.oldest_wait > 0.0
        committer.give_up(TimeoutError("no answer"))
        promises.append(committer.add(make("c")))
        for promise in promises:
            with pytest.raises(TimeoutError):
                await promise
        assert committer.waiting == 1  # the one under way: the metrics show for how long
        assert committer.oldest_wait > 0.0
        closing = asyncio.create_task(committer.close())
        await asyncio.sleep(0.05)
        assert not closing.done()  # whoever rebuilds memory has to know what became of the commit
        disk.go.set()
        await closing
        assert (committer.waiting, committer.waiting_bytes, committer.oldest_wait) == (0, 0, 0.0)
        on_failure.assert_not_called()

    assert run(scene).commits == [["a"]]


def test_a_commit_that_is_given_up_before_it_began() -> None:
    async def scene(committer: Committer, disk: Disk, on_commit: Mock, on_failure: Mock) -> None:
        promise = committer.add(make("a"))
        committer.give_up(TimeoutError("no answer"))
        with pytest.raises(TimeoutError):
            await promise
        await committer.close()

    assert run(scene).commits == []
