"""Whether rewards are sorted: the order of the rows is then not that of the decisions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windvane.arguments import Array

FEWEST_OF_A_KIND = 50  # rewards: with fewer, so few changes can be chance
SORTED = 0.05  # of the changes between kinds of rewards in random order: only a change from 2 % to 98 % has as few


class RewardOrder(NamedTuple):
    """How often the lowest reward and others follow each other, and how often they would in random order."""

    changes: int
    expected: float

    @property
    def is_sorted(self) -> bool:
        """Whether the rewards are sorted, or nearly so."""
        return self.changes < SORTED * self.expected

    def __str__(self) -> str:
        noun = "change" if self.changes == 1 else "changes"
        return (
            f"{self.changes:,} {noun} between the lowest reward and others from row to row, and about "
            f"{self.expected:,.0f} in random order"
        )


def measure_order(reward: Array) -> RewardOrder | None:
    """Count the changes between the lowest reward and others; None if one of the two kinds is too rare.

    Parameters
    ----------
    reward
        Known rewards, in the order of the rows.

    Examples
    --------
    >>> order = measure_order(np.repeat([1.0, 0.0], 100))
    >>> order.changes, order.expected, order.is_sorted
    (1, 100.0, True)
    """
    is_high = reward > reward.min(initial=np.inf)
    high = int(is_high.sum())
    low = len(is_high) - high
    if min(high, low) < FEWEST_OF_A_KIND:
        return None
    changes = int((np.diff(is_high.astype(int)) != 0).sum())
    return RewardOrder(changes, 2.0 * high * low / len(is_high))
