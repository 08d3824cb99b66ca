"""Rexp3 and EXP3.S: random play by exponential weights, for arms without features whose rewards change in any way.

With w_k = 1 for all K arms at the start, gamma the ``rate`` and rewards in [0, 1] (here: reward / (2 ``sigma``)),

    p_k  = (1 - gamma) w_k / sum(w) + gamma / K;   draw the arm k with probability p_k
    Rexp3:   w_k <- w_k exp(gamma reward / (K p_k)) of the drawn arm; all w = 1 again after every Delta_T decisions
    EXP3.S:  w_j <- w_j exp(gamma xhat_j / K) + (e alpha / K) W for all j, with W the old sum of w and
             xhat_j = reward / p_j of the drawn arm, 0 of the others

========  ==================================================  ==================================================
policy    gamma                                               recommended
========  ==================================================  ==================================================
Rexp3     min(1, sqrt(K log K / ((e - 1) Delta_T)))           Delta_T = ceil((K log K)^(1/3) (T / V_T)^(2/3))
EXP3.S    min(1, sqrt(K (S log(K T) + e) / ((e - 1) T))), or  alpha = 1/T
          min(1, sqrt(K log(K T) / T)) if S is unknown
========  ==================================================  ==================================================

V_T (``drift``) bounds the sum over rounds of the largest change of a mean reward, sup over k of |mu_{t+1}(k) -
mu_t(k)|. S is the number of segments of the best arm: one more than the number of changes (``switches``).

Rexp3: Besbes, Gur and Zeevi, "Stochastic multi-armed-bandit problem with non-stationary rewards" (NIPS 2014).
Guarantee: expected regret of order (K V_T log K)^{1/3} T^{2/3} for any means, including jumps, with V_T in [1/K, T/K];
no policy can improve on this order by more than the logarithm.

EXP3.S: Auer, Cesa-Bianchi, Freund and Schapire, "The nonstochastic multiarmed bandit problem" (SIAM J. Comput. 2002).
Guarantee: for any rewards that are fixed in advance, expected regret of order sqrt(S K T log(K T)) compared with any
sequence of arms with S segments, if S is known, and S sqrt(K T log(K T)) with the rate for an unknown S.

Not covered by either: arms that are not always on offer, late rewards, and rewards of weights other than 1.

What is uncertain: we did not have the papers themselves. Independent public code confirms the rules, and texts that
quote the orders confirm those. Some public code draws with the probabilities of the round before, or updates EXP3.S
without the factor e.

Choices that are ours:

* If only some of the arms are on offer, K in p_k is their number. An arm that is listed several times has one weight.
* A late reward is weighted by the probability that its decision had, and multiplies the weight of its arm in the round
  in which it arrives. The probabilities of the last ``log_length`` decisions are stored. Rewards of earlier ones, of
  decisions before a restart, and of arms that the policy did not draw, as when an agent plays at random sometimes,
  change no weight. ``info().unused`` counts them.
* A reward of weight w counts as w equal rewards.
* K = 1, or Delta_T below 1, gives Delta_T = 1, and V_T = 0 gives T. Only decisions count towards a restart and for the
  sharing of EXP3.S: time that passes without a decision changes nothing.

The mean rewards in ``info()`` and in the decisions of agents are for display: the policies do not use them.

Cost per round and lane: O(K) besides reading the arms.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_whole
from windvane.errors import ArgumentError
from windvane.estimation.forgetting import tune_per_lane
from windvane.policies.base import Card
from windvane.policies.exponential_weights import EXP3, SharingEXP3
from windvane.policies.forgetting import RestartRule
from windvane.policies.indexed import IndexedInfo, IndexedPolicy, gather
from windvane.policies.inputs import Feedback
from windvane.state import State, Stateful, refuse
from windvane.theory import exp3_batch, exp3_rate, sharing_rate

LONGEST_LOG = 10**6  # decisions


@dataclass(frozen=True)
class WeightsInfo(IndexedInfo):
    """The diagnostics of Rexp3 and EXP3.S."""

    draw_probabilities: Array | None = None  #: of the next decision if all arms are on offer, [lanes, K]
    unused: Index | None = None  #: number of rewards that changed no weight, [lanes]


class ExponentialWeights(IndexedPolicy):
    """The base class of Rexp3 and EXP3.S.

    Parameters
    ----------
    rate
        Share gamma of decisions that are uniform, in [0, 1]: one number, or one per lane. Default: recommended.
    log_length
        Number of last decisions whose probabilities are stored, so that their rewards can be learned.
    """

    rate: npt.ArrayLike | None = None
    log_length: int = 1024
    needs_bounded_rewards: ClassVar[bool] = True
    stored: ClassVar[tuple[str, ...]] = (*IndexedPolicy.stored, "log_rounds", "log_arms", "log_probabilities", "unused")

    def __post_init__(self) -> None:
        super().__post_init__()
        length = check_whole("log_length", self.log_length, 1, LONGEST_LOG)
        self.log_rounds, self.log_probabilities = np.zeros(length), np.zeros((self.lane_count, length))
        self.log_arms = np.zeros((self.lane_count, length), dtype=np.int64)
        self.unused = np.zeros(self.lane_count, dtype=np.int64)
        self.exp3 = self.build_exp3()

    def build_exp3(self) -> EXP3:
        """Return the weights."""
        raise NotImplementedError

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        indices, valid = self.read_arms(arms, valid)
        self.exp3.begin_turn()
        p = self.exp3.probabilities(find_present(indices, self.dim))
        drawn = self.exp3.draw(self.decisions, p)  # k ~ p
        self.log_draws(drawn, gather(p, drawn[:, None])[:, 0])
        order = gather(p, indices) + (indices == drawn[:, None])  # the drawn arm is the first
        index = self.play(order, valid)
        decision = self.decision
        assert decision is not None  # set by ``play``
        decision.order, decision.scores = order, gather(self.arm_means.means, indices)
        decision.means = decision.scores
        return index

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        """Return the probability that ``select`` chooses each arm, [lanes, K], which is exact. Nothing changes."""
        indices, valid = self.read_arms(arms, valid)
        p = self.preview_weights().probabilities(find_present(indices, self.dim))
        copies = (indices[:, :, None] == indices[:, None, :]).sum(axis=2)  # an arm may be listed several times
        return np.where(valid, gather(p, indices) / copies, 0.0)

    def preview_weights(self) -> EXP3:
        """Return the weights of the next decision."""
        twin = copy.copy(self.exp3)
        twin.begin_turn()
        return twin

    def log_draws(self, drawn: Index, p: Array) -> None:
        """Store the arm that each lane draws in this round, and its probability."""
        slot = self.decisions % self.log_length
        self.log_rounds[slot] = self.t
        self.log_arms[:, slot], self.log_probabilities[:, slot] = drawn, p

    def find_draws(self, rounds: Array) -> tuple[Index, Mask]:
        """Return where in the log the decision of each round is, and whether it is there, [lanes]."""
        order = (self.decisions + np.arange(self.log_length)) % self.log_length  # the oldest first
        slots = order[np.minimum(np.searchsorted(self.log_rounds[order], rounds), self.log_length - 1)]
        return slots, (self.log_rounds[slots] == rounds) & (rounds > 0.0)

    def learn(self, feedback: Feedback) -> None:
        """Learn checked rewards of arms that were drawn: w_k <- w_k exp(gamma reward / (K p_k))."""
        super().learn(feedback)
        lanes, arm = np.arange(self.lane_count), feedback.x.argmax(axis=1)
        slots, is_logged = self.find_draws(feedback.round)
        is_used = self.mask_restarted(feedback) & is_logged & (self.log_arms[lanes, slots] == arm)
        gain = np.where(is_used, feedback.reward, 0.0) * np.where(is_used, feedback.weight, 0.0) / self.largest_reward
        self.exp3.reinforce(arm, gain, np.where(is_used, self.log_probabilities[lanes, slots], 1.0))
        self.unused += feedback.mask & (feedback.weight > 0.0) & ~is_used

    def forget(self, mask: Mask) -> None:
        super().forget(mask)
        self.exp3.reset(mask)

    def info(self, *, estimates: bool = True) -> WeightsInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        p = self.preview_weights().probabilities()
        return WeightsInfo(**known, draw_probabilities=p, unused=self.unused.copy())

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "exp3": self.exp3}

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        for name, is_possible, expected in (
            ("log_rounds", (fields["log_rounds"] >= 0.0) & (fields["log_rounds"] < fields["t"]), "rounds before t"),
            ("log_arms", (fields["log_arms"] >= 0) & (fields["log_arms"] < self.dim), f"indices of {self.dim} arms"),
            ("log_probabilities", np.abs(fields["log_probabilities"] - 0.5) <= 0.5, "in [0, 1]"),
        ):
            if not is_possible.all():
                raise refuse(path, name, fields[name], expected)


class Rexp3(ExponentialWeights, RestartRule):
    """Rexp3 (Besbes et al. 2014). Pass ``restart_every``, or ``horizon`` and ``drift`` for the recommended Delta_T.

    Parameters
    ----------
    drift
        Bound V_T on the sum over rounds of the largest change of a mean reward: one number, or one per lane.
    """

    drift: npt.ArrayLike | None = None
    name = "Rexp3"
    card = Card("a mean per arm", "restarts", "T, V_T", "(K V log K)^(1/3) T^(2/3)", "besbes2014", "O(K)")
    formula = staticmethod(exp3_batch)

    def recommend(self, horizon: int, amount: float) -> float:
        return float(exp3_batch(arms=self.dim, horizon=horizon, drift=amount / (2.0 * self.noise_scale)))

    def build_exp3(self) -> EXP3:
        rates = [exp3_rate(self.dim, int(period)) for period in self.choose_forgetting().memory(self.lane_count)]
        return EXP3(self.dim, rates if self.rate is None else self.rate, lane_ids=self.lane_ids, seed=self.seed)


class EXP3S(ExponentialWeights):
    """EXP3.S (Auer et al. 2002). Pass ``horizon`` and, if it is known, ``switches``; or ``rate`` and ``share``.

    Parameters
    ----------
    switches
        Number of changes of the best arm: one number, or one per lane. Default: unknown.
    share
        Part alpha of the weight that all arms share after each decision, in (0, 1]. Default: 1/T.
    """

    horizon: int | None = None
    switches: npt.ArrayLike | None = None
    share: float | None = None
    example = "dim=2, horizon=1000"
    name = "EXP3.S"
    card = Card("a mean per arm", "adaptive", "T, Gamma_T", "(Gamma K T log(K T))^(1/2)", "auer2002", "O(K)")

    def build_exp3(self) -> EXP3:
        rate, share = self.rate, self.share
        if rate is None or share is None:
            name = "rate" if rate is None else "share"
            if self.horizon is None:
                raise ArgumentError(name, None, "given, or `horizon`")
            T = check_whole("horizon", self.horizon, 1)
            share = 1.0 / T if share is None else share
            rate = self.recommend_rate(T) if rate is None else rate
        return SharingEXP3(self.dim, rate, share=share, lane_ids=self.lane_ids, seed=self.seed)

    def describe_means(self) -> dict[str, Any]:
        """Return the fields of ``info()``; gamma is what sharing leaves of the effect of a reward after a decision."""
        assert isinstance(self.exp3, SharingEXP3)  # as ``build_exp3`` returns
        kept = 1.0 / (1.0 + math.e * self.exp3.share)
        return super().describe_means() | {"gamma": np.full(self.lane_count, kept)}

    def recommend_rate(self, T: int) -> npt.ArrayLike:
        """Return the rate of Corollary 8.3, or of 8.2 if the number of changes is unknown."""
        if self.switches is None:
            return sharing_rate(arms=self.dim, horizon=T)
        return tune_per_lane(lambda G: sharing_rate(arms=self.dim, horizon=T, switches=G), "switches", self.switches)


def find_present(indices: Index, K: int) -> Mask:
    """Return which of the K arms occur in ``indices[lanes, places]``, [lanes, K]; -1 stands for no arm."""
    present = np.zeros((len(indices), K + 1), dtype=bool)  # the last column, with index -1, is dropped
    np.put_along_axis(present, indices, True, axis=1)
    return present[:, :K]
