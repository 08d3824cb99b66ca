"""EXP3: learn which of N options earns most, if only the gain of the chosen option is observed.

Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem" (SIAM J. Comput. 2002). The
weights s_j start at 1; their logarithms are stored, which do not overflow.

    p_j = (1 - alpha) s_j / sum(s) + alpha / N             (probability of option j in a turn)
    s_j <- s_j exp(alpha gain / (N p_j))                   (if j was drawn and its gain in [0, 1] is known)

Guarantee: for any sequence of gains that is fixed in advance and whose best option gains at most g in total, the
expected loss compared with that option is at most 2 sqrt(e - 1) sqrt(g N log N) at alpha = min(1, sqrt(N log N / ((e -
1) g))), which is :func:`windvane.theory.exp3_rate` with g = the number of turns. The bound holds in expectation, and
compared with the best *fixed* option.

EXP3 has no features, so it is not a policy: :mod:`windvane.policies.bandit_over_bandits` uses it to choose between
policies. Cost per turn: O(N).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import Array, Index, check_number, check_whole
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.kernels.drawing import draw_uniforms
from windvane.kernels.random import MASTER
from windvane.state import Stateful


@documented
class EXP3(Stateful):
    """EXP3 over ``arms`` options, with one independent copy per lane. Each draw depends on seed, lane id and turn only.

    Parameters
    ----------
    arms
        Number of options N.
    rate
        Share alpha of draws that are uniform, in [0, 1].
    lane_ids
        Ids of the lanes.

    >>> EXP3(4, 0.1, lane_ids=np.array([0])).probabilities()
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
        """Return the probabilities of the next draw, [lanes, N]."""
        weights = np.exp(self.log_weights - self.log_weights.max(axis=1, keepdims=True))
        total = np.cumsum(weights, axis=1)[:, -1:]  # the order of the sum does not depend on the number of lanes
        return np.asarray((1.0 - self.rate) * weights / total + self.rate / self.arms)

    def draw(self, turn: int) -> Index:
        """Return the option that each lane draws in a turn, [lanes]. Turns are numbered from 0."""
        coins = np.empty(len(self.lane_ids))
        draw_uniforms(np.uint64(self.seed), self.lane_ids, turn, MASTER, coins)
        reached = np.cumsum(self.probabilities(), axis=1)
        drawn = (reached <= (coins * reached[:, -1])[:, None]).sum(axis=1)
        return np.asarray(np.minimum(drawn, self.arms - 1))

    def learn(self, drawn: Index, gain: Array) -> None:
        """Learn the gains in [0, 1] of the options that were ``drawn`` in a turn, both [lanes]."""
        if gain.shape != drawn.shape or not ((gain >= 0) & (gain <= 1)).all():
            raise ArgumentError("gain", gain.tolist(), "one number in [0, 1] per lane")
        lanes = np.arange(len(drawn))
        p = self.probabilities()[lanes, drawn]
        self.log_weights[lanes, drawn] += self.rate * gain / (self.arms * p)
