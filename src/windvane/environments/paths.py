"""Paths of theta*: the parameter of any round, the length B_T of the path and its number of switches.

B_T = sum over t < T of ||theta*_{t+1} - theta*_t||. A path stores one block of rounds at a time, so that its memory
does not depend on the horizon T.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np

from windvane.arguments import Array, Index, check_whole
from windvane.documentation import documented
from windvane.environments.fields import Frame
from windvane.errors import ArgumentError

# A block has at most this many rounds, and at most this many numbers (1 MiB): long enough to spread the cost of
# computing a block over many rounds, small enough for the cache of a core.
LONGEST_BLOCK = 1024
LARGEST_BLOCK = 2**17


@documented
class Path:
    """theta*_t of every lane.

    A subclass implements ``_points``: the parameters of rounds [first, stop), as [rounds, width, dim].

    Parameters
    ----------
    frame, width
        What the drift is bound to; the number of lanes, or 1 if the path is the same in every lane.

    >>> from windvane.environments import Arc
    >>> path = Arc().path(horizon=8, dim=2, S=1.0, lane_ids=3)
    >>> path.at(8).shape, path.switches.tolist()
    ((3, 2), [7, 7, 7])
    """

    def __init__(self, frame: Frame, width: int) -> None:
        self.lane_ids, self.lanes = frame.lane_ids, len(frame.lane_ids)
        self.dim, self.horizon, self._frame, self._width = frame.dim, frame.horizon, frame, width
        self._length = max(1, min(LONGEST_BLOCK, LARGEST_BLOCK // (width * frame.dim)))
        self._first, self._block = 1, np.empty((0, width, frame.dim))
        self._totals: tuple[Array, Index] | None = None

    def _points(self, first: int, stop: int) -> Array:
        raise NotImplementedError

    def at(self, t: int) -> Array:
        """Return theta*_t, [lanes, dim], for 1 <= t <= horizon in any order; increasing order is the fastest."""
        place = check_whole("t", t, 1, self.horizon) - self._first
        if not 0 <= place < len(self._block):
            place = (t - 1) % self._length
            self._block = self._points(t - place, min(t - place + self._length, self.horizon + 1))
            self._first = t - place
        theta = np.empty((self.lanes, self.dim))
        theta[:] = self._block[place]
        return theta

    @property
    def variation(self) -> Array:
        """B_T, [lanes]."""
        return np.broadcast_to(self.follow()[0], self.lanes).copy()

    @property
    def switches(self) -> Index:
        """The number of t < T with theta*_{t+1} != theta*_t, [lanes]."""
        return np.broadcast_to(self.follow()[1], self.lanes).copy()

    def follow(self) -> tuple[Array, Index]:
        """Return B_T and the number of switches, [width]; the first call follows the whole path."""
        if self._totals is not None:
            return self._totals
        from windvane.kernels.drawing import add_moves

        walker = copy.copy(self)  # so that this path keeps its block and its place in a random walk
        last = walker._points(1, 2)[0].copy()
        total, lost = np.zeros((2, self._width))
        switches = np.zeros(self._width, dtype=np.int64)
        for first in range(1, self.horizon + 1, self._length):
            add_moves(walker._points(first, min(first + self._length, self.horizon + 1)), last, total, lost, switches)
        self._totals = total, switches
        return self._totals


class Curve(Path):
    """A path that is the same in every lane: ``curve(frame, rounds[n])`` returns the parameters, [n, dim]."""

    def __init__(self, frame: Frame, curve: Callable[[Frame, Index], Array]) -> None:
        super().__init__(frame, width=1)
        self._curve = curve

    def _points(self, first: int, stop: int) -> Array:
        return np.ascontiguousarray(self._curve(self._frame, np.arange(first, stop))[:, None, :])


class SwitchingPath(Path):
    """``count`` switches per lane, at distinct rounds uniform in 2..T, between parameters uniform on the sphere."""

    def __init__(self, frame: Frame, count: int) -> None:
        from windvane.kernels import random
        from windvane.kernels.drawing import draw_switches

        if count > frame.horizon - 1:
            raise ArgumentError("count", count, f"at most horizon - 1 = {frame.horizon - 1}")
        most = (random.LARGEST_BLOCK + 1) // frame.dim - 1  # the counter of the generator has no room for more numbers
        if count > most:
            raise ArgumentError("count", count, f"at most {most} with dim={frame.dim}")
        super().__init__(frame, width=len(frame.lane_ids))
        coins = np.empty((self.lanes, count))
        self._thetas = np.empty((self.lanes, count + 1, self.dim))
        draw_switches(frame.radius, np.uint64(frame.seed), frame.lane_ids, coins, self._thetas)
        self._times = np.array([_choose_distinct(lane, self.horizon - 1) for lane in coins], dtype=np.int64) + 2

    def _points(self, first: int, stop: int) -> Array:
        rounds = np.arange(first, stop)
        points = np.empty((len(rounds), self.lanes, self.dim))
        for lane, (times, thetas) in enumerate(zip(self._times, self._thetas, strict=True)):
            points[:, lane] = thetas[np.searchsorted(times, rounds, side="right")]
        return points


def _choose_distinct(coins: Array, n: int) -> list[int]:
    """Return len(coins) distinct numbers, a uniform choice out of 0..n-1, in order (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last, coin in enumerate(coins, start=n - len(coins)):
        pick = math.floor(coin * (last + 1))
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


class WalkingPath(Path):
    """A random walk from ``start``. It continues from its last round, and starts again to go back."""

    def __init__(self, frame: Frame, step: float, start: Array) -> None:
        super().__init__(frame, width=len(frame.lane_ids))
        self._step, self._start = step, np.tile(start, (self.lanes, 1))
        self._next, self._state = 1, self._start

    def _points(self, first: int, stop: int) -> Array:
        if first < self._next:
            self._next, self._state = 1, self._start
        while self._next < first:
            self._walk(min(first, self._next + self._length))
        return self._walk(stop)

    def _walk(self, stop: int) -> Array:
        """Return the points of rounds [next, stop)."""
        from windvane.kernels.drawing import walk

        points = np.empty((stop - self._next, self.lanes, self.dim))
        state = self._state.copy()  # a copy of this path may still use the old one
        frame = self._frame
        walk(self._next, self._step, frame.radius, np.uint64(frame.seed), frame.lane_ids, state, points)
        self._next, self._state = stop, state
        return points
