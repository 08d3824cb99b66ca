"""Rewards that arrive some rounds after their decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index, Mask


class Rewards(NamedTuple):
    """Rewards of decisions in the lanes ``lanes``, all made in the round ``decided``."""

    decided: int
    lanes: Index
    x: Array
    reward: Array
    mean: Array

    def select(self, mask: Mask) -> Rewards:
        """Return the rewards of some of the lanes."""
        return Rewards(self.decided, self.lanes[mask], self.x[mask], self.reward[mask], self.mean[mask])


class Batch:
    """Rewards that arrive together, at most one per lane; ``mask`` says in which lanes."""

    def __init__(self, t: int, lanes: int, dim: int) -> None:
        self.x, self.reward, self.mean = np.zeros((lanes, dim)), np.zeros(lanes), np.zeros(lanes)
        self.decided, self.mask = np.full(lanes, float(t)), np.zeros(lanes, dtype=bool)

    def add(self, rewards: Rewards) -> None:
        """Add rewards in lanes that have none yet."""
        lanes = rewards.lanes
        self.x[lanes], self.reward[lanes], self.mean[lanes] = rewards.x, rewards.reward, rewards.mean
        self.decided[lanes], self.mask[lanes] = rewards.decided, True


class DelayedRewards:
    """A reward with delay n arrives at the end of round t + n, and never if that is after the horizon."""

    def __init__(self, horizon: int, lanes: int, dim: int) -> None:
        self._horizon, self._lanes, self._dim = horizon, lanes, dim
        self._due: dict[int, list[Rewards]] = {}

    def add(self, t: int, x: Array, reward: Array, mean: Array, delays: Index) -> None:
        """Add the rewards of round ``t``, one per lane."""
        rewards = Rewards(t, np.arange(self._lanes), x, reward, mean)
        for delay in np.unique(delays):
            if t + delay <= self._horizon:
                self._due.setdefault(t + int(delay), []).append(rewards.select(delays == delay))

    def collect(self, t: int) -> Iterator[Batch]:
        """Yield what arrives at the end of round ``t`` in as few batches as possible, in the order of decisions."""
        waiting = self._due.pop(t, [])
        while waiting:
            batch, later = Batch(t, self._lanes, self._dim), []
            for rewards in waiting:
                is_taken = batch.mask[rewards.lanes]
                batch.add(rewards.select(~is_taken))
                if is_taken.any():
                    later.append(rewards.select(is_taken))
            yield batch
            waiting = later
