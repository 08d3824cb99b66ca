"""Lanes over cores: kernels release the interpreter lock, so plain threads split a range of lanes between them.

Lanes never share data, so the split cannot change a result. ``WINDVANE_THREADS`` or :func:`set_threads` sets how many
threads; a pool of worker processes should use one each.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy.typing as npt

from windvane.arguments import check_whole
from windvane.errors import ArgumentError

# Handing a chunk to another thread costs tens of microseconds: not worth it for less work than this many
# multiply-adds.
WORTH_SPLITTING = 200_000
MOST_THREADS = 256
CHUNKS_PER_THREAD = 3  # lanes differ in cost (some project, some do not), so each thread takes several smaller chunks

_pool: ThreadPoolExecutor | None = None
_pool_process = 0


def available_cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


def _threads_from_environment() -> int:
    text = os.environ.get("WINDVANE_THREADS", "")
    if not text:
        return available_cores()
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_THREADS):
        raise ArgumentError("WINDVANE_THREADS", text, f"a whole number, at least 1 and at most {MOST_THREADS}")
    return int(text)


_threads = _threads_from_environment()


def set_threads(count: int) -> None:
    """Use ``count`` threads (at least 1) for lanes from now on, in this process."""
    global _threads, _pool
    count = check_whole("count", count, 1, MOST_THREADS)
    if _pool is not None:
        _pool.shutdown(wait=True)
    _threads, _pool = count, None


def get_threads() -> int:
    """How many threads lanes are split over."""
    return _threads


def _workers() -> ThreadPoolExecutor:
    global _pool, _pool_process
    if _pool is None or _pool_process != os.getpid():  # threads do not survive a fork
        _pool = ThreadPoolExecutor(max_workers=_threads - 1, thread_name_prefix="windvane")
        _pool_process = os.getpid()
    return _pool


def over_lanes(
    kernel: Callable[..., None],
    cost: float,
    shared: tuple[Any, ...],
    rows: tuple[npt.NDArray[Any], ...],
    workspace: Callable[[int], tuple[npt.NDArray[Any], ...]],
) -> None:
    """Run ``kernel(*shared, *rows, *workspace)`` over all lanes, in several threads if it is worth it.

    Parameters
    ----------
    kernel
        A compiled function that works on the lanes of its row arguments.
    cost
        Estimated number of multiply-adds.
    shared
        Arguments that are the same for every lane.
    rows
        Arrays whose first axis is the lanes.
    workspace
        Returns the scratch arrays of a thread, given its number.
    """
    lanes = len(rows[0])
    if _threads == 1 or lanes == 1 or cost < WORTH_SPLITTING:
        kernel(*shared, *rows, *workspace(0))
        return
    pieces = min(lanes, _threads * CHUNKS_PER_THREAD)
    cuts = [lanes * i // pieces for i in range(pieces + 1)]
    chunks = iter(list(pairwise(cuts)))
    scratch = [workspace(number) for number in range(min(_threads, pieces))]

    def drain(number: int) -> None:
        for first, last in chunks:  # under the interpreter lock, each chunk goes to exactly one thread
            kernel(*shared, *(array[first:last] for array in rows), *scratch[number])

    others = [_workers().submit(drain, number) for number in range(1, len(scratch))]
    try:
        drain(0)
    finally:
        wait(others)  # no thread may still write to the arrays when this returns
    for other in others:
        other.result()
