"""Where theta* goes: a path gives theta*_t for any round t, its length B_T and its number of switches.

B_T = sum over t < T of ||theta*_{t+1} - theta*_t||. A path keeps one block of rounds at a time, so that its memory does
not depend on the horizon T.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole

LONGEST_BLOCK = 1024  # rounds
LARGEST_BLOCK = 2**17  # numbers

Rounds = npt.NDArray[np.int64]


class Frame(NamedTuple):
    """What a drift is bound to, checked."""

    horizon: int
    dim: int
    S: float
    lane_ids: Rounds
    seed: int


class Path:
    """theta*_t of every lane. A subclass gives ``_points``, rounds [first, stop), as [rounds, width, dim].

    ``width`` is the number of lanes, or 1 where the path is the same in every lane.
    """

    def __init__(self, frame: Frame, width: int) -> None:
        self.lanes, self.dim, self.horizon = len(frame.lane_ids), frame.dim, frame.horizon
        self._frame, self._width = frame, width
        self._length = max(1, min(LONGEST_BLOCK, LARGEST_BLOCK // (width * frame.dim)))
        self._first = 1
        self._block = np.empty((0, width, frame.dim))
        self._measured: tuple[Array, Rounds] | None = None

    def _points(self, first: int, stop: int) -> Array:
        raise NotImplementedError

    def at(self, t: int) -> Array:
        """theta*_t, [lanes, dim], for 1 <= t <= horizon in any order; going forward is cheap."""
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
        return np.broadcast_to(self.measure()[0], self.lanes).copy()

    @property
    def switches(self) -> Rounds:
        """How many t < T have theta*_{t+1} != theta*_t, [lanes]."""
        return np.broadcast_to(self.measure()[1], self.lanes).copy()

    def measure(self) -> tuple[Array, Rounds]:
        """B_T and the number of switches, [width]; found by walking the path once."""
        if self._measured is None:
            self._measured = self._walked()
        return self._measured

    def _walked(self) -> tuple[Array, Rounds]:
        from windvane.kernels import drawing

        walker = copy.copy(self)  # leaves the block in use, and the place of a random walk, alone
        last = walker._points(1, 2)[0].copy()
        total, lost = np.zeros(self._width), np.zeros(self._width)
        switches = np.zeros(self._width, dtype=np.int64)
        for first in range(1, self.horizon + 1, self._length):
            points = walker._points(first, min(first + self._length, self.horizon + 1))
            drawing.add_moves(points, last, total, lost, switches)
        return total, switches


class Curve(Path):
    """A path that is the same in every lane: ``curve(frame, rounds[n])`` gives [n, dim]."""

    def __init__(self, frame: Frame, curve: Callable[[Frame, Rounds], Array]) -> None:
        super().__init__(frame, width=1)
        self._curve = curve

    def _points(self, first: int, stop: int) -> Array:
        points = self._curve(self._frame, np.arange(first, stop))
        return np.ascontiguousarray(points[:, None, :])


class SwitchingPath(Path):
    """``count`` switches a lane, at distinct times uniform in 2..T, between parameters uniform on the sphere."""

    def __init__(self, frame: Frame, count: int) -> None:
        from windvane.kernels import drawing

        super().__init__(frame, width=len(frame.lane_ids))
        coins = np.empty((self.lanes, count))
        self._thetas = np.empty((self.lanes, count + 1, self.dim))
        drawing.draw_switches(frame.S, np.uint64(frame.seed), frame.lane_ids, coins, self._thetas)
        self._times = np.array([_distinct(lane, self.horizon - 1) for lane in coins], dtype=np.int64) + 2

    def _points(self, first: int, stop: int) -> Array:
        rounds = np.arange(first, stop)
        points = np.empty((len(rounds), self.lanes, self.dim))
        for lane, (times, thetas) in enumerate(zip(self._times, self._thetas, strict=True)):
            points[:, lane] = thetas[np.searchsorted(times, rounds, side="right")]
        return points


def _distinct(coins: Array, n: int) -> list[int]:
    """A uniform choice of len(coins) distinct numbers out of 0..n-1, in order (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last, coin in enumerate(coins, start=n - len(coins)):
        pick = math.floor(coin * (last + 1))
        chosen.add(last if pick in chosen else pick)
    return sorted(chosen)


class WalkingPath(Path):
    """A random walk; it goes forward from where it is, and starts again from round 1 to go back."""

    def __init__(self, frame: Frame, step: float, start: Array) -> None:
        super().__init__(frame, width=len(frame.lane_ids))
        self._step, self._start = step, start
        self._go_back()

    def _go_back(self) -> None:
        self._next, self._state = 1, np.tile(self._start, (self.lanes, 1))

    def _points(self, first: int, stop: int) -> Array:
        if first < self._next:
            self._go_back()
        while self._next < first:
            self._walk(min(first, self._next + self._length))
        return self._walk(stop)

    def _walk(self, stop: int) -> Array:
        """The points of rounds [next, stop)."""
        from windvane.kernels import drawing

        points = np.empty((stop - self._next, self.lanes, self.dim))
        state = self._state.copy()  # a copy of this path may still hold the old one
        _, _, S, lane_ids, seed = self._frame
        drawing.walk(self._next, self._step, S, np.uint64(seed), lane_ids, state, points)
        self._next, self._state = stop, state
        return points
