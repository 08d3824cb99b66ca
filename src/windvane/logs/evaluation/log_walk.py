"""Run a policy through a log: it decides every row, and learns each logged reward when it has arrived.

The clock of the policy runs on rows: row i (from 0) is round i + 1. Before it decides a row, it learns every reward
that had arrived by the time of the row, in the order of arrival, each with the round of its decision. A reward that
arrived at the time of its decision is learned right after it. So a decision never depends on its own reward or on
later ones. Rows that the log marks as not to be learned from are decided, and evaluated, but not learned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.errors import ArgumentError
from windvane.kernels.scoring import choice_probabilities
from windvane.logs.log import BATCH, Log, LogBatch

if TYPE_CHECKING:
    from windvane.policies.base import Policy

LARGEST_BATCH = 2**22  # features of the arms of a batch and all lanes: 32 MiB
Read = Callable[[Any], Array | None]
"""Reads an array [lanes, K] from the :class:`windvane.policies.info.DecisionInfo` of a decision."""


def read_order(decision: Any) -> Array | None:
    """Return what the decision maximised, [lanes, K]; None if the policy does not record it."""
    order: Array | None = getattr(decision, "order", None)  # a custom policy may record nothing
    return getattr(decision, "scores", None) if order is None else order


def read_means(decision: Any) -> Array | None:
    """Return the predicted mean rewards, [lanes, K]."""
    means: Array | None = decision.means
    return means


class LogWalk:
    """Run a policy through a log, batch by batch.

    Parameters
    ----------
    policy, lanes
        The policy, and the number of its lanes. All see the same rows.
    learns_all : int
        The number of lanes, from the first, that learn every reward. The other lanes learn only from rows whose logged
        arm they chose and that pass their coin toss.
    read
        What to record of a decision.

    Examples
    --------
    >>> from windvane import UniformRandom
    >>> from windvane.logs import from_arrays
    >>> log = from_arrays(np.eye(2)[None].repeat(3, axis=0), [0, 1, 0], [1.0, 0.0, 1.0], propensity=[0.5] * 3)
    >>> walk = LogWalk(UniformRandom(dim=2), 1, 1, read_order)
    >>> [walk.add(batch, np.ones((3, 1), dtype=bool))[1].tolist() for batch in log.batches()]
    [[[True], [True], [True]]]
    """

    def __init__(self, policy: Policy, lanes: int, learns_all: int, read: Read) -> None:
        self.policy, self.read, self.lanes = policy, read, lanes
        self._always = np.arange(self.lanes) < learns_all
        self._waiting: list[tuple[float, int, Array, float, float, Mask]] = []  # a heap by arrival, then by row
        self._row = 0

    def add(self, batch: LogBatch, passes: Mask) -> tuple[Index, Mask, Array | None]:
        """Decide and learn the next rows. Return the choices, the rows that count, and what was read.

        ``passes[n, lanes]``: which rows pass the coin toss of a lane. A row counts for a lane, [n, lanes], if the lane
        learns all rewards, or if it chose the logged arm and the row passes.
        """
        n, K = batch.valid.shape
        arms = np.repeat(batch.arms[:, None], self.lanes, axis=1)
        valid = None if batch.valid.all() else np.repeat(batch.valid[:, None], self.lanes, axis=1)
        x = np.repeat(batch.x[:, None], self.lanes, axis=1)
        is_learned = (np.isfinite(batch.reward) & np.isfinite(batch.reward_time) & batch.is_learned).tolist()
        times, arrivals, played = batch.time.tolist(), batch.reward_time.tolist(), batch.played.tolist()
        rewards, weights = batch.reward.tolist(), batch.weight.tolist()
        choices, counted = np.empty((n, self.lanes), dtype=np.int64), np.empty((n, self.lanes), dtype=bool)
        records: list[Array | None] = []
        policy, waiting, always, read = self.policy, self._waiting, self._always, self.read
        for i in range(n):
            now = times[i]
            while waiting and waiting[0][0] <= now:
                self._learn(heapq.heappop(waiting))
            choice = choices[i] = ask(policy, arms[i], None if valid is None else valid[i])
            records.append(read(getattr(policy, "decision", None)))
            mask = (choice == played[i]) & passes[i] | always
            counted[i] = mask
            self._row += 1
            if is_learned[i] and mask.any():
                reward = (arrivals[i], self._row, x[i], rewards[i], weights[i], mask)
                if arrivals[i] <= now:
                    self._learn(reward)
                else:
                    heapq.heappush(waiting, reward)
        check_choices(choices, batch.valid)
        return choices, counted, self._stack(records, (n, self.lanes, K))

    def _learn(self, reward: tuple[float, int, Array, float, float, Mask]) -> None:
        """Learn a reward, with the round of its decision, which is the number of its row."""
        _, row, x, value, weight, mask = reward
        self.policy.update(x, value, round=float(row), weight=weight, mask=mask)

    @staticmethod
    def _stack(records: list[Array | None], shape: tuple[int, int, int]) -> Array | None:
        known = [record for record in records if record is not None and np.shape(record) == shape[1:]]
        return np.array(known) if len(known) == shape[0] else None


def ask(policy: Policy, arms: Array, valid: Mask | None) -> Index:
    """Return the choices of a policy, one for each lane. A custom policy may return anything: raise if it does."""
    choice = np.asarray(policy.select(arms, valid))
    if choice.shape != arms.shape[:1] or choice.dtype.kind not in "iu":
        raise ArgumentError("select(arms)", choice, f"an array of {arms.shape[0]} whole numbers, one for each lane")
    return choice


def check_choices(choices: Index, valid: Mask) -> None:
    """Raise unless all choices, [n, lanes], are arms on offer: a custom policy may return anything."""
    is_known = (choices >= 0) & (choices < valid.shape[1])
    is_offered = is_known & np.take_along_axis(valid, np.where(is_known, choices, 0), axis=1)
    if not is_offered.all():
        choice = int(choices[~is_offered][0])
        raise ArgumentError("select(arms)", choice, f"an arm in 0..{valid.shape[1] - 1} that is on offer")


def read_batches(log: Log, lanes: int, most_arms: int) -> Iterator[LogBatch]:
    """Yield the rows in batches that are small enough to be repeated for every lane."""
    size = LARGEST_BATCH // max(lanes * most_arms * log.schema.dim, 1)
    yield from log.batches(max(1, min(size, BATCH)))


def find_preferred(order: Array | None, choices: Index, valid: Mask) -> Mask:
    """Return the arms with the best score: a decision between them is random only to break a tie, [n, lanes, K].

    Parameters
    ----------
    order
        What each decision maximised, [n, lanes, K]. None if that is unknown: then the chosen arm alone.
    choices, valid
        The arms that were chosen, [n, lanes], and those on offer, [n, K].

    Returns
    -------
    array
        The policy plays each of these arms with the same probability, given its data and its own random draws. So the
        arm that a randomised policy drew has probability 1. Its probabilities are never estimated.
    """
    n, lanes = choices.shape
    K = valid.shape[1]
    chosen: Mask = np.arange(K) == choices[:, :, None]
    if order is None:
        return chosen
    shares = np.empty((n * lanes, K))
    choice_probabilities(np.ascontiguousarray(order.reshape(n * lanes, K)), np.repeat(valid, lanes, axis=0), shares)
    preferred = shares.reshape(n, lanes, K) > 0.0
    is_consistent = (preferred & chosen).any(axis=2, keepdims=True)  # else the scores are not what was maximised
    return np.asarray(np.where(is_consistent, preferred, chosen))
