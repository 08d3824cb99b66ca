"""EXP3 and EXP3.S: exponential weights for options of which only the drawn one is observed.

These are the parts of policies: of a bandit over bandits, which draws discounts or windows, and of Rexp3 and EXP3.S,
which draw arms (:mod:`windvane.policies.exp3`).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_number, check_per_lane, check_whole
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.kernels.drawing import draw_uniforms
from windvane.kernels.random import MASTER
from windvane.state import Stateful


@documented
class EXP3(Stateful):
    """EXP3 over ``arms`` options, one copy per lane: learn the best option when only the drawn one is observed.

    Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem" (SIAM J. Comput. 2002). The
    weights s_j start at 1; their logarithms, which do not overflow, are stored. Turn i draws option j with probability
    p_j, and once the gain of the turn (in [0, 1]) is known, only the weight of the drawn option changes:

        p_j = (1 - alpha) s_j / sum(s) + alpha / N,     s_j <- s_j exp(alpha gain / (N p_j))

    Guarantee: for any sequence of gains that is fixed in advance and whose best option gains at most g in total, the
    expected loss compared with that *fixed* option is at most 2 sqrt(e - 1) sqrt(g N log N) at alpha = min(1, sqrt(N
    log N / ((e - 1) g))), which is :func:`windvane.theory.exp3_rate` with g = the number of turns. Each draw depends on
    seed, lane id and turn only. Cost per turn: O(N).

    Parameters
    ----------
    arms
        Number of options N.
    rate
        Share alpha of draws that are uniform, in [0, 1]: one number, or one per lane.
    lane_ids
        Ids of the lanes.

    >>> EXP3(4, 0.1, lane_ids=np.array([0])).probabilities()
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    stored: ClassVar[tuple[str, ...]] = ("log_weights",)

    def __init__(self, arms: int, rate: npt.ArrayLike, *, lane_ids: Index, seed: int = 0) -> None:
        self.arms = check_whole("arms", arms, 1)
        self.rates = check_per_lane("rate", rate, len(lane_ids), "in [0, 1]", lambda a: (a >= 0) & (a <= 1))
        self.seed = check_whole("seed", seed, 0, 2**64 - 1)
        self.lane_ids = lane_ids
        self.log_weights = np.zeros((len(lane_ids), self.arms))

    def begin_turn(self) -> None:
        """Prepare the weights for the draw of a turn. EXP3 has nothing to prepare."""

    def probabilities(self, present: Mask | None = None) -> Array:
        """Return the probabilities of the next draw, [lanes, N].

        ``present[lanes, N]`` are the options on offer, by default all. The others have probability 0, and N in the
        formula is the number of those on offer.
        """
        if present is None:
            weights, count = np.exp(self.log_weights - self.log_weights.max(axis=1, keepdims=True)), self.arms
        else:
            weights, count = np.where(present, self.log_weights, -math.inf), present.sum(axis=1, keepdims=True)
            weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        total = np.cumsum(weights, axis=1)[:, -1:]  # the order of the sum does not depend on the number of lanes
        rates = self.rates[:, None]
        p = np.asarray((1.0 - rates) * weights / total + rates / count)
        return p if present is None else np.where(present, p, 0.0)

    def draw(self, turn: int, p: Array | None = None) -> Index:
        """Return the option that each lane draws in a turn, [lanes]. Turns are numbered from 0.

        ``p[lanes, N]`` are its probabilities, by default :meth:`probabilities`.
        """
        coins = np.empty(len(self.lane_ids))
        draw_uniforms(np.uint64(self.seed), self.lane_ids, turn, MASTER, coins)
        reached = np.cumsum(self.probabilities() if p is None else p, axis=1)
        drawn = (reached <= (coins * reached[:, -1])[:, None]).sum(axis=1)
        return np.asarray(np.minimum(drawn, self.arms - 1))

    def learn(self, drawn: Index, gain: Array) -> None:
        """Learn the gains in [0, 1] of the options that were ``drawn`` in the last turn, both [lanes]."""
        if gain.shape != drawn.shape or not ((gain >= 0) & (gain <= 1)).all():
            raise ArgumentError("gain", gain.tolist(), "one number in [0, 1] per lane")
        self.reinforce(drawn, gain, self.probabilities()[np.arange(len(drawn)), drawn])

    def reinforce(self, drawn: Index, gain: Array, p: Array) -> None:
        """Learn gains of options that were ``drawn`` with probability ``p`` in any turn, all [lanes], unchecked."""
        self.log_weights[np.arange(len(drawn)), drawn] += self.rates * gain / (self.arms * p)

    def reset(self, mask: Mask) -> None:
        """Return to equal weights in the lanes of ``mask``."""
        self.log_weights[mask] = 0.0


@documented
class SharingEXP3(EXP3):
    """EXP3.S: EXP3 whose options share a part of their weight, so that another one can become the best.

    The same paper. After each turn, with W the sum of the weights before the gain of the turn, every option j gets a
    share of it, in addition to what the drawn option gets for its gain:

        s_j <- s_j exp(rate gain_j / N) + (e share / N) W,        gain_j = gain / p_j of the drawn option, else 0

    A gain that is learned later multiplies the weight of its option in the turn in which it arrives. Weights count
    relative to the largest one.

    Parameters
    ----------
    arms, rate, lane_ids, seed
        As for :class:`EXP3`.
    share
        The part of the weight that is shared, in (0, 1].

    >>> exp3 = SharingEXP3(2, 0.1, share=0.01, lane_ids=np.array([0]))
    >>> exp3.begin_turn()
    >>> exp3.learn(exp3.draw(0), np.array([1.0]))
    """

    stored: ClassVar[tuple[str, ...]] = (*EXP3.stored, "log_shares")
    unbounded: ClassVar[tuple[str, ...]] = ("log_shares",)

    def __init__(self, *args: Any, share: float, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.share = check_number("share", share, "in (0, 1]", lambda a: 0 < a <= 1)
        self.log_shares = np.full(len(self.lane_ids), -math.inf)  # log((e share / N) W) of the last turn

    def begin_turn(self) -> None:
        """Give each option its share of the last turn, and measure that of this turn."""
        log_weights = np.logaddexp(self.log_weights, self.log_shares[:, None])
        self.log_weights = log_weights - log_weights.max(axis=1, keepdims=True)
        total = np.cumsum(np.exp(self.log_weights), axis=1)[:, -1]
        self.log_shares = 1.0 + math.log(self.share / self.arms) + np.log(total)

    def reset(self, mask: Mask) -> None:
        super().reset(mask)
        self.log_shares[mask] = -math.inf
