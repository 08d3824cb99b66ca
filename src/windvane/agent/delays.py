"""Learning before the timeout, with a correction for the rewards that are still to come.

A decision without a reward at age a is a partial miss: the reward may still come. Every decision is checked ("looked
at") at the ages tau_1 <= ... <= tau_8; tau_8 is its timeout. At a look at age a,

    a reward has come:       it is learned with weight 1, and the decision is done
    none has come:           ``default_reward`` is learned with weight n = (F - F_0) (1 - p) / (1 - p F)

=======  ===========================================================================================================
symbol   meaning
=======  ===========================================================================================================
p        the probability that a reward comes before the timeout
F        the share of those rewards that come by age a; 1 at the timeout
F_0      F at the look before; 0 at the first
=======  ===========================================================================================================

Between two looks a reward comes with probability h = p (F - F_0) / (1 - p F_0), so n is the weight for which
h (1 - p) = (1 - h) p n: at the true mean reward the expected score is zero at every look, not only over all of them.
A miss has weight 1 at most in all. With a single look, at the timeout, this is learning at the timeout.

F and p are estimated from decisions whose timeout has passed, of which everything is known: a histogram of delays for
each arm, shrunk towards the common one, and the share of decisions that got a reward. Looks are at the ages where the
common F reaches 1/8, 2/8, ... Until enough rewards are known, there is only the look at the timeout.

Guarantee: none. Where F is wrong (delays that jump), young decisions are weighted wrongly until the estimate has
followed. The constants were chosen in simulations; docs/howto/late-rewards.md has the results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from windvane.agent.pending import Pending
from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.records import Name

LOOKS = 8
CELLS = 25
"""Of a histogram: cell i holds delays between T 2^(-(i + 1)/2) and T 2^(-i/2), T the timeout. The last cell, i = 24,
holds all delays up to T / 4096."""
KEPT_DELAYS = 300.0  # rewards after which a delay counts 1/e
KEPT_ARM, KEPT_ALL = 2000.0, 5000.0  # decisions after which an outcome counts 1/e, in the rate of an arm and of all
PRIOR_DELAYS = 20.0  # rewards that the common histogram is worth beside that of an arm
PRIOR_OUTCOMES = 100.0  # decisions that the common rate is worth beside that of an arm
FEWEST_DELAYS = 20.0  # in the common histogram before there are early looks: a share is then known to about 0.1
MOST_LOOKS = 1000  # in one decision, after a pause: the others wait for the next decisions
MOST_ARMS = 500  # with a histogram of their own, the first that were seen; others use the common one

_EDGES = 2.0 ** (-0.5 * np.arange(CELLS))  # as shares of the timeout, decreasing
_NOTHING = np.zeros(CELLS)


class DelayModel:
    """Delay and probability of rewards, estimated from finished decisions. Ages are shares of the timeout.

    ``table`` has a row for all arms together, then one for each arm of ``rows``: the number of decisions, the number of
    rewards, and a histogram of delays. All of them fade.
    """

    def __init__(self, arms: Iterable[Name] = (), table: Array | None = None) -> None:
        self.rows = {arm: row for row, arm in enumerate(arms, 1)}
        self.table = np.zeros((1, 2 + CELLS)) if table is None else table
        is_possible = self.table.dtype == float and np.isfinite(self.table).all() and (self.table >= 0.0).all()
        if self.table.shape != (len(self.rows) + 1, 2 + CELLS) or not is_possible:
            raise ArgumentError("early", table, "a table of the right size, finite and not negative")
        self.ages: list[float] = []  # of the early looks, increasing
        self._set_ages()

    def add(self, arm: Name, delay: float | None) -> None:
        """Add a decision for ``arm`` whose timeout has passed: the ``delay`` of its reward, None if none came."""
        if arm not in self.rows and len(self.rows) < MOST_ARMS:
            self.rows[arm] = len(self.table)
            self.table = np.vstack((self.table, np.zeros(2 + CELLS)))
        for row, kept in ((0, KEPT_ALL), (self.rows.get(arm), KEPT_ARM)):
            if row is not None:
                counts, delays = self.table[row, :2], self.table[row, 2:]
                counts *= 1.0 - 1.0 / kept
                counts[0] += 1.0
                counts[1] += delay is not None
                if delay is not None:
                    delays *= 1.0 - 1.0 / KEPT_DELAYS
                    delays[_cell(delay)] += 1.0
        if delay is not None:
            self._set_ages()

    def _set_ages(self) -> None:
        """The smallest edges of cells by which 1/8, 2/8, ... of all rewards have come."""
        delays = self.table[0, 2:]
        if delays.sum() >= FEWEST_DELAYS:
            by_edge = np.cumsum(delays[::-1]) / delays.sum()  # by increasing age
            places = np.searchsorted(by_edge, np.arange(1, LOOKS) / LOOKS * (1.0 - 1e-12))
            self.ages = _EDGES[::-1][np.minimum(places, CELLS - 1)].tolist()

    def arrived(self, arm: Name, age: float) -> float:
        """F: the share of the rewards of ``arm`` that come by ``age``."""
        cell = _cell(age)
        low = _EDGES[cell + 1] if cell + 1 < CELLS else 0.0
        inside = min((age - low) / (_EDGES[cell] - low), 1.0)  # delays are taken to be uniform within a cell
        common, own = self.table[0, 2:], self.table[self.rows[arm], 2:] if arm in self.rows else _NOTHING
        all_come, own_come = (delays[cell + 1 :].sum() + inside * delays[cell] for delays in (common, own))
        share = (own_come + PRIOR_DELAYS * (all_come / common.sum())) / (own.sum() + PRIOR_DELAYS)
        return min(float(share), 1.0)  # rounding may exceed 1

    def rate(self, arm: Name) -> float:
        """p: the probability that a decision for ``arm`` gets a reward."""
        decisions, rewards = self.table[self.rows[arm], :2] if arm in self.rows else (0.0, 0.0)
        common = self.table[0, 1] / (self.table[0, 0] + 1.0)  # below 1, so that p < 1: a miss stays possible
        return float((rewards + PRIOR_OUTCOMES * common) / (decisions + PRIOR_OUTCOMES))

    def miss_weight(self, arm: Name, arrived: float, before: float) -> float:
        """n: the weight of a miss at a look where the share ``arrived`` has come, ``before`` at the look before."""
        p = self.rate(arm)
        return (arrived - before) * (1.0 - p) / (1.0 - p * arrived)


def _cell(share: float) -> int:
    """The cell of a delay: the last whose upper edge is not below it."""
    return int(np.clip(np.searchsorted(-_EDGES, -share, side="right") - 1, 0, CELLS - 1))


class EarlyLearning:
    """A delay model for decisions with this ``timeout`` and ``default`` reward, and the open decisions by the number of
    looks they had, each queue the oldest first."""

    def __init__(self, pending: Iterable[Pending], timeout: float, default: float) -> None:
        self.timeout, self.default, self.model = timeout, default, DelayModel()
        self._queues: list[deque[Pending]] = [deque() for _ in range(LOOKS - 1)]
        for decision in pending:
            self.add(decision)

    def add(self, pending: Pending) -> None:
        """Queue an open decision for its next early look."""
        if pending.looks < len(self._queues):
            queue = self._queues[pending.looks]
            while queue and not queue[0].is_open:  # they would pile up while there are no early looks
                queue.popleft()
            queue.append(pending)

    def record(self, pending: Pending) -> None:
        """Add a decision whose timeout has passed to the model."""
        if pending.is_miss:
            self.model.add(pending.decision.arm, None)
        elif pending.delay is not None:
            self.model.add(pending.decision.arm, min(pending.delay / self.timeout, 1.0))

    def look(self, age_of: Callable[[Pending], float]) -> Iterator[tuple[Pending, float, float]]:
        """Look at the decisions that are due, the oldest first, one look each; ``age_of``: in the unit of the timeout.

        Yields each decision with the outcome to learn and its weight; the caller must learn it before the next one.
        """
        for pending, age in islice(self._due(age_of), MOST_LOOKS):
            outcome, arm = self.default if pending.reward is None else pending.reward, pending.decision.arm
            if pending.is_learned or pending.is_partial:  # more parts may come
                continue
            if not pending.is_miss:
                yield pending, outcome, 1.0
                pending.is_learned = True
            elif (arrived := self.model.arrived(arm, min(age, 1.0))) > pending.credited:
                yield pending, outcome, self.model.miss_weight(arm, arrived, pending.credited)
                pending.credited = arrived

    def _due(self, age_of: Callable[[Pending], float]) -> Iterator[tuple[Pending, float]]:
        """Yield open decisions that are due for a look, and their age as a share of the timeout."""
        for looks in reversed(range(len(self.model.ages))):
            queue, due_age = self._queues[looks], self.model.ages[looks]
            while queue and (not queue[0].is_open or age_of(queue[0]) / self.timeout > due_age):
                pending = queue.popleft()
                if pending.is_open:
                    pending.looks = looks + 1
                    self.add(pending)
                    yield pending, age_of(pending) / self.timeout
