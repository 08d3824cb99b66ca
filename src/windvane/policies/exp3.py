"""EXP3: which of N ways of acting earns most, when only the reward of the chosen one is seen. Many lanes at a time.

Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem" (SIAM J. Comput. 2002). With
weights s_j that begin at 1, turn i draws j with probability

    p_j = (1 - alpha) s_j / sum(s) + alpha / N

and, once the gain of that turn (in [0, 1]) is known, changes the weight of the drawn j alone:

    s_j <- s_j exp(alpha gain / (N p_j)).

=======  ====================  =================================================
symbol   here                  meaning
=======  ====================  =================================================
N        ``arms``              how many ways of acting
alpha    ``rate``              share of draws that are uniform
log s_j  ``log_weights``       kept as logarithms, which do not overflow
p_j      ``probabilities()``   the law of the coming draw
=======  ====================  =================================================

Guarantee: against any sequence of gains fixed beforehand, whose best j gains at most g in all, the expected loss
against that j is at most 2 sqrt(e - 1) sqrt(g N log N) at alpha = min(1, sqrt(N log N / ((e - 1) g))),
:func:`windvane.theory.exp3_rate` with g = the number of turns. It is a bound in expectation, and against the best
*fixed* j.

This is not a policy: it knows no arms. :mod:`windvane.policies.bob` puts it above policies. Cost per turn: O(N).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import Array, Index, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.kernels.drawing import draw_uniforms
from windvane.kernels.random import MASTER
from windvane.state import Stateful


def compute_probabilities(log_weights: Array, rate: float) -> Array:
    """Return p_j of every lane, from ``log_weights[lanes, N]``."""
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    total = np.cumsum(weights, axis=1)[:, -1:]  # in one order, however many lanes there are
    return np.asarray((1.0 - rate) * weights / total + rate / log_weights.shape[1])


class EXP3(Stateful):
    """EXP3 over ``arms`` ways of acting, one independent copy a lane.

    The draw of a turn depends on (seed, lane id, turn) only; ``log_weights`` is all the state there is.

    Parameters
    ----------
    arms
        Number of ways of acting.
    rate
        Share of draws that are uniform, in [0, 1].
    lane_ids
        Ids of the lanes.
    seed
        Seed of the draws.

    Examples
    --------
    >>> import numpy as np
    >>> exp3 = EXP3(4, 0.1, lane_ids=np.array([0]))
    >>> exp3.probabilities()
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    stored: ClassVar[tuple[str, ...]] = ("log_weights",)

    def __init__(self, arms: int, rate: float, *, lane_ids: Index, seed: int = 0) -> None:
        self.arms = check_whole("arms", arms, 1)
        self.rate = check_number("rate", rate, "in [0, 1]", lambda a: 0 <= a <= 1)
        self.seed = check_whole("seed", seed, 0, 2**64 - 1)
        self.lane_ids = lane_ids
        self.log_weights = np.zeros((len(lane_ids), self.arms))

    def probabilities(self) -> Array:
        """Return the law of the coming draw, [lanes, N]."""
        return compute_probabilities(self.log_weights, self.rate)

    def draw(self, turn: int) -> Index:
        """Return which way of acting each lane takes at this turn (numbered from 0)."""
        coins = np.empty(len(self.lane_ids))
        draw_uniforms(np.uint64(self.seed), self.lane_ids, turn, MASTER, coins)
        reached = np.cumsum(self.probabilities(), axis=1)
        drawn = (reached <= (coins * reached[:, -1])[:, None]).sum(axis=1)
        return np.asarray(np.minimum(drawn, self.arms - 1))

    def learn(self, drawn: Index, gain: Array) -> None:
        """Take in what the ways of acting ``drawn`` at this turn have earned, in [0, 1], one per lane."""
        if gain.shape != drawn.shape or not ((gain >= 0) & (gain <= 1)).all():
            raise ArgumentError("gain", gain.tolist(), "one number in [0, 1] per lane")
        lanes = np.arange(len(drawn))
        p = self.probabilities()[lanes, drawn]
        self.log_weights[lanes, drawn] += self.rate * gain / (self.arms * p)
