"""Spread lanes over threads. Kernels release the interpreter lock, so threads run in parallel.

Lanes share no data, so the split cannot change a result. ``WINDVANE_THREADS`` or :func:`set_threads` sets the number of
threads. In a pool of worker processes, use one thread per process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy.typing as npt

from windvane.arguments import check_whole
from windvane.errors import ArgumentError

# Passing a chunk to another thread takes tens of microseconds, so fewer multiply-adds than this are not split.
WORTH_SPLITTING = 200_000
MOST_THREADS = 256
CHUNKS_PER_THREAD = 3  # lanes differ in cost (some project, others do not), so each thread takes several small chunks

_pool: ThreadPoolExecutor | None = None
_pool_process = 0


def available_cores() -> int:
    """Return the number of cores that this process can use."""
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
    """Set the number of threads that lanes are spread over, in this process.

    Parameters
    ----------
    count
        Number of threads, from 1 to 256.

    Examples
    --------
    >>> import windvane
    >>> before = windvane.get_threads()
    >>> windvane.set_threads(1)
    >>> windvane.get_threads()
    1
    >>> windvane.set_threads(before)
    """
    global _threads, _pool
    count = check_whole("count", count, 1, MOST_THREADS)
    if _pool is not None:
        _pool.shutdown(wait=True)
    _threads, _pool = count, None


def get_threads() -> int:
    """Return the number of threads that lanes are spread over."""
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
    """Run ``kernel(*shared, *rows, *workspace)`` over all lanes, in several threads if the work is large enough.

    Parameters
    ----------
    kernel
        A compiled function that processes the lanes of its row arguments.
    cost
        Estimated number of multiply-adds.
    shared
        Arguments that are the same for every lane.
    rows
        Arrays with one row per lane.
    workspace
        Function that returns the scratch arrays of a thread from its number.
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
        for first, last in chunks:  # the interpreter lock ensures that each chunk goes to exactly one thread
            kernel(*shared, *(array[first:last] for array in rows), *scratch[number])

    others: list[Future[None]] = []
    try:
        for number in range(1, len(scratch)):
            others.append(_workers().submit(drain, number))
        drain(0)
    finally:
        wait(others)  # no thread must write to the arrays after this function returns
    for other in others:
        other.result()
