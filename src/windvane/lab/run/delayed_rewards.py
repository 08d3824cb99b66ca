"""Rewards under way: who decided what when, and when its reward arrives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array


class Parcel(NamedTuple):
    """Rewards of one round's decisions in the lanes ``who``."""

    decided: int
    who: npt.NDArray[np.int64]
    x: Array
    reward: Array
    mean: Array

    def of(self, chosen: npt.NDArray[np.bool_]) -> Parcel:
        return Parcel(self.decided, self.who[chosen], self.x[chosen], self.reward[chosen], self.mean[chosen])


class Letter:
    """Rewards that arrive together, at most one per lane: ``mask`` says in which lanes."""

    def __init__(self, t: int, lanes: int, dim: int) -> None:
        self.x, self.reward, self.mean = np.zeros((lanes, dim)), np.zeros(lanes), np.zeros(lanes)
        self.decided = np.full(lanes, float(t))
        self.mask = np.zeros(lanes, dtype=bool)

    def put(self, parcel: Parcel) -> None:
        who = parcel.who
        self.x[who], self.reward[who], self.mean[who] = parcel.x, parcel.reward, parcel.mean
        self.decided[who] = parcel.decided
        self.mask[who] = True


class Post:
    """A reward with delay n is delivered at the end of round t + n; one that would come after the horizon, never."""

    def __init__(self, horizon: int, lanes: int, dim: int) -> None:
        self._horizon, self._lanes, self._dim = horizon, lanes, dim
        self._due: dict[int, list[Parcel]] = {}

    def send(self, t: int, x: Array, reward: Array, mean: Array, delay: npt.NDArray[np.int64]) -> None:
        parcel = Parcel(t, np.arange(self._lanes), x, reward, mean)
        for late in np.unique(delay):
            if t + late <= self._horizon:
                self._due.setdefault(t + int(late), []).append(parcel.of(delay == late))

    def arriving(self, t: int) -> Iterator[Letter]:
        """What arrives at the end of round t, in as few letters as may be; in a lane, in the order of the decisions."""
        waiting = self._due.pop(t, [])
        while waiting:
            letter, later = Letter(t, self._lanes, self._dim), []
            for parcel in waiting:
                taken = letter.mask[parcel.who]
                letter.put(parcel.of(~taken))
                if taken.any():
                    later.append(parcel.of(taken))
            yield letter
            waiting = later
