"""AdaptiveGLMUCB: a generalized linear bandit for an unknown drift, scale and horizon. The algorithm is our own.

A bank of experts learns from the same rewards. There is one expert g for each pair of a memory m_g (32, 128, 512, 2048,
8192 or 32768 rounds, or infinity: theta* does not move) and a scale S_g (the norm bound S, or 1/L, 8/L and 64/L if S is
not set). Expert g believes that theta* follows a stationary Ornstein-Uhlenbeck process with memory m_g and prior
N(0, S_g^2 I / d), and tracks it with a filter (:mod:`windvane.estimation.filters` has the equations). At round t, with
the beliefs N(theta_g, phi P_g),

    loss_g = sum over rewards of 0.998^k (-log p_g(r))       k: weight of later rewards; p_g: predictive density
    w_g    proportional to exp(-loss_g)                      (weight of an expert by its predictions)
    g      = the first expert, from fast to slow, at which the weights add up to 0.4       (the acting expert)
    x_t    = argmax over the arms of <x, theta_g> + c sqrt(phi x' P_g x),   c = 1 (``bonus_scale``)

mu is increasing. So if the belief is right, x_t has the largest 84 % quantile of the mean reward mu(<x, theta*>).

**Why.** A discount loses information at the same rate in every direction. A filter forgets only as fast as theta* may
have moved. In a direction that is not played, its belief returns to the prior, so an arm that was bad long ago is tried
again. The predictions show which speed, S_g / sqrt(m_g), is right, and every reward scores every expert. A bandit over
discounts (BOB), in contrast, observes only the reward of the discount that acts. A quantile of the weights varies less
than the best expert, because neighbouring experts predict about equally well. The quantile 0.4, rather than the median,
favours faster experts, which explore more. Without drift, the experts with infinite memory predict best.

The bonus is added to <x, theta>, not to the mean reward. With the bonus mu'(z) sqrt(v) of the delta method, an arm
whose rewards are wrongly believed to be rare is hardly ever tried again. On labelled data streams that bonus was worse
by up to 8 points.

The dispersion phi is 1 for rewards in [0, 1]: among such rewards with the same mean, Bernoulli rewards have the largest
variance. For unbounded rewards, each expert learns its own phi from the errors of its predictions. It starts at sigma^2
for the identity link and at 1 for counts. For counts it never falls below 1.

**Guarantee: none.** Nothing is proven about this policy. Its constants (memories, scales, 0.998, c) were chosen once,
after trials in the 24 environments of ``windvane benchmark drift`` (3000 rounds, d = 2 and 10) and on labelled data
streams, and are the same everywhere. docs/explanation/default-policy.md lists these data. The policy does badly where
rewards are rare and good and bad arms change places (``clicks``, d = 2): the predictions for the arms that it plays
hardly show the change.

Late rewards count as observations of the theta* of their round.

Cost per round and lane: O(G d n) for the experts, where n is the number of nonzero features of the arm that was played,
O(G d^2) to update their matrices, and O(K n^2) for the arms. G is 7 if S is set, else 21. The state takes O(G d^2),
independent of t.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_positive, check_real_array, check_scale
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.estimation.filters import FilterBank
from windvane.kernels.filters import ACTING_SHARE
from windvane.links import CustomLink, Link
from windvane.policies.base import Card, Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.state import Stateful

MEMORIES = (*(32.0 * 4.0**i for i in range(6)), math.inf)
SCALES = (1.0, 8.0, 64.0)  # in units of sqrt(phi) / L, if S is not set
CHECKED_REACH = 1.0  # a custom link is checked over |z| up to here; beliefs that need a larger z come only from rewards
EVIDENCE = math.log(20.0)  # a likelihood ratio of 20, in nats
DRIFT, NO_DRIFT, UNKNOWN = "drift", "no drift seen", "too little data to tell"


class DriftEstimate(NamedTuple):
    """An estimate of the drift from the rewards so far, one entry per lane. It is rough and has no guarantee.

    ``memory`` is the number of rounds over which the acting expert averages, the current effective memory. The experts
    at which the weights reach 10 % and 90 %, from fast to slow, and the acting one give ``memory_low`` and
    ``memory_high``. ``scale`` is the norm S of the acting expert.

    ``rate`` (``rate_low``, ``rate_high``) is the speed of theta* per round for which that memory would be best. At
    speed v, an estimate with memory m lags behind by v m, and its variance is phi d / (2 m i), where i is the
    information per round and coordinate. The sum v^2 m^2 + phi d / (2 m i) is smallest at the memory m with
    v = sqrt(phi d / (4 i m^3)). ``variation`` is the sum of the rates of all rounds so far, the implied B_t; it
    is 0 unless the verdict is "drift". It is right up to a factor of two or three at best, and less reliable for jumps.

    ``evidence`` is the log likelihood ratio, over the predictions of the whole run, of a theta* that moves (the mean
    over the experts with finite memory) against one that does not (the mean over the others). ``verdict`` is "drift"
    if the evidence is at least log 20. If theta* does not move and is drawn from the prior, exact predictions would
    ever reach this level in at most one run in 20. Otherwise ``verdict`` is "no drift seen" if the data refute the
    shortest memory, at every scale, by the same margin: drift at that speed would have been seen, and ``rate_high`` is
    the speed of a drift that could still be hidden. Otherwise it is "too little data to tell".
    """

    verdict: npt.NDArray[np.str_]
    evidence: Array
    memory: Array
    memory_low: Array
    memory_high: Array
    scale: Array
    rate: Array
    rate_low: Array
    rate_high: Array
    variation: Array


@dataclass(frozen=True)
class AdaptiveInfo(PolicyInfo):
    """The diagnostics of AdaptiveGLMUCB. The fields of :class:`PolicyInfo` are those of the acting expert."""

    memories: Array | None = None  #: [M]
    scales: Array | None = None  #: [C]
    weights: Array | None = None  #: weights of the experts, [lanes, M, C]
    acting_memory: Array | None = None  #: m_g of the acting expert
    acting_scale: Array | None = None  #: S_g of the acting expert, which grows and shrinks with a learned dispersion
    effective_memory: Array | None = None  #: number of rounds over which the acting expert averages
    dispersion: Array | None = None  #: phi of the acting expert
    drift: DriftEstimate | None = None  #: None unless there are experts with finite and with infinite memory


class AdaptiveGLMUCB(Policy):
    """AdaptiveGLMUCB (ours). It needs L and the link. It learns the drift and the scale, and needs no horizon.

    ``memories`` and ``bonus_scale`` are meant for research. The defaults need no tuning. With a single memory, the
    policy cannot estimate the drift.

    Parameters
    ----------
    S
        Bound on ||theta*||, the scale of the prior. Default: the scale is learned from 1/L, 8/L and 64/L.
    sigma
        Rewards are in [0, 2 sigma]. For the identity link, a first guess of the standard deviation of the noise.
    memories
        Increasing numbers of rounds, each above 1.
    bonus_scale
        c, the number of standard deviations in the bonus: one number, or one per lane.
    prior_dim
        The prior variance of a coordinate is S_g^2 / prior_dim. Default: ``dim``. An agent whose features change keeps
        the variance by it.
    """

    link: str | Link = field(default="logistic", kw_only=False)
    S: float | None = None
    sigma: float = 0.5
    memories: Sequence[float] = MEMORIES
    bonus_scale: npt.ArrayLike = 1.0
    prior_dim: float | None = None
    bank: FilterBank = field(init=False)

    takes_prior: ClassVar[bool] = True
    is_one_pass: ClassVar[bool] = True
    name = "AdaptiveGLMUCB"
    card = Card("generalized linear", "adaptive", "nothing", "none", "windvane", "O(G d^2 + K d^2), G = 7 or 21")

    def __post_init__(self) -> None:
        super().__post_init__()
        is_unbounded = math.isinf(self.accepted_rewards[1])
        dispersion = self.noise_scale**2 if is_unbounded else 1.0
        unit = math.sqrt(dispersion) / self.L
        if isinstance(self.reward_link, CustomLink):
            self.reward_link.constants(CHECKED_REACH / self.L, self.L)  # raises if it is no link
        self.bank = FilterBank(
            self.dim, self.reward_link, memories=_check_increasing(self.memories),
            scales=np.array([unit * scale for scale in SCALES] if self.S is None else [check_positive("S", self.S)]),
            dispersion=dispersion, lanes=self.lane_count, prior_dim=self.choose_prior_dim(), L=self.L,
        )  # fmt: skip
        self.factors = check_scale("bonus_scale", self.bonus_scale, self.lane_count)

    def choose_prior_dim(self) -> float:
        """Return ``prior_dim``, or the dimension if it is None."""
        return float(self.dim) if self.prior_dim is None else check_positive("prior_dim", self.prior_dim)

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        """Return a ``prior_dim`` for which beliefs about parameters, divided by ``scale``, have the same prior."""
        return {"prior_dim": self.choose_prior_dim() * (scale**2 if S is None else 1.0)}

    @property
    def link_reach(self) -> float:
        return SCALES[-1] if self.S is None else self.S * self.L

    def parts(self) -> Mapping[str, Stateful]:
        return {"bank": self.bank}

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        assessment = self.bank.assess(arms, self.factors)
        decision = self.begin_decision()
        index = self.play(assessment.upper, valid)  # not scores: mu may round to 1 for many arms
        decision.scores, decision.means, decision.chosen = assessment.scores, assessment.means, assessment.acting
        decision.theta_hat = decision.theta_tilde = assessment.theta
        decision.order = assessment.upper
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        with self.bank.lock:  # all of it from the same moment
            acting = self.bank.find_quantile(ACTING_SHARE)
            theta, P = self.bank.theta[np.arange(self.lane_count), acting], self.bank.covariance(acting)
            factors = self.factors * np.sqrt(self.bank.dispersion(acting))
        decision = self.begin_decision()
        decision.theta_hat, decision.theta_tilde, decision.chosen = theta, theta, acting
        return self.play_from(arm_set, theta, P, factors, np.asarray)

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        arms, valid = self.check_arms(arms, valid)
        return self.share_best(self.bank.assess(arms, self.factors).upper, valid)

    def learn(self, feedback: Feedback) -> None:
        mask = self.mask_restarted(feedback)
        self.bank.absorb(feedback.x, feedback.reward, feedback.age, feedback.weight, mask)

    def pass_time(self, rounds: float) -> None:
        self.bank.age(rounds)

    def forget(self, mask: Mask) -> None:
        self.bank.reset(mask)

    def start_at(self, theta: Array, weight: float) -> None:
        """Start at the guess ``theta``, which counts as ``weight`` rewards along each axis."""
        self.bank.start_at(theta, weight, self.L)

    def info(self, *, estimates: bool = True) -> AdaptiveInfo:
        with self.bank.lock:  # all of it from the same moment
            return self.describe(estimates)

    def describe(self, estimates: bool) -> AdaptiveInfo:
        """Return the diagnostics, with the estimates if ``estimates`` is true."""
        bank, lanes = self.bank, np.arange(self.lane_count)
        acting, shape = bank.find_quantile(ACTING_SHARE), (len(bank.memories), len(bank.scales))
        known: dict[str, Any] = {}  # without a discount: a filter forgets in the directions that are not played
        if estimates:
            theta, P = bank.theta[lanes, acting].copy(), bank.covariance(acting)
            metric = np.linalg.inv(P * bank.dispersion(acting)[:, None, None])
            known |= {"theta_hat": theta, "theta_tilde": theta, "metric": metric, "drift": self.estimate_drift()}
        return AdaptiveInfo(
            t=self.t, decisions=self.decisions, decision=self.decision, memories=bank.memories.copy(),
            scales=bank.scales.copy(), weights=bank.weigh().reshape(-1, *shape),
            acting_memory=bank.memories[acting // shape[1]], acting_scale=bank.scale(acting),
            effective_memory=bank.effective_memory(acting), dispersion=bank.dispersion(acting), **known,
        )  # fmt: skip

    def read_theta(self) -> Array:
        """Return the estimate of the acting expert, [lanes, dim]."""
        with self.bank.lock:
            return self.bank.theta[np.arange(self.lane_count), self.bank.find_quantile(ACTING_SHARE)].copy()

    def read_drift(self) -> DriftEstimate | None:
        """Return an estimate of the drift, as ``info().drift``, without the time that its matrices take."""
        with self.bank.lock:
            return self.estimate_drift()

    def estimate_drift(self) -> DriftEstimate | None:
        """Return an estimate of the drift from the rewards so far.

        Return None unless there are experts with finite and with infinite memory to compare.
        """
        bank = self.bank
        is_moving = bank.beliefs["a"][0] < 1.0
        if is_moving.all() or not is_moving.any():
            return None
        log_likelihoods = -bank.beliefs["run_loss"]
        static = _log_mean(log_likelihoods[:, ~is_moving])
        evidence = _log_mean(log_likelihoods[:, is_moving]) - static
        is_detectable = log_likelihoods[:, : len(bank.scales)].max(axis=1) - static <= -EVIDENCE
        verdict = np.where(evidence >= EVIDENCE, DRIFT, np.where(is_detectable, NO_DRIFT, UNKNOWN))
        experts = [bank.find_quantile(share) for share in (ACTING_SHARE, 0.1, 0.9)]  # the first one acts
        memories, rates = ([read(expert) for expert in experts] for read in (bank.effective_memory, bank.drift_rate))
        return DriftEstimate(
            verdict, evidence, *_with_range(memories), bank.scale(experts[0]), *_with_range(rates),
            np.where(verdict == DRIFT, bank.lanes["variation"], 0.0),
        )  # fmt: skip


def _with_range(values: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return the first value, the smallest and the largest."""
    return values[0], np.min(values, axis=0), np.max(values, axis=0)


def _log_mean(values: Array) -> Array:
    """Return the logarithm of the mean of exp(values) over the last axis."""
    top = values.max(axis=1)
    return np.asarray(top + np.log(np.exp(values - top[:, None]).mean(axis=1)))


def _check_increasing(memories: Sequence[float]) -> Array:
    """Return ``memories`` as an array of increasing numbers above 1."""
    rounds = np.array(check_real_array("memories", memories, "a list of numbers"))
    if rounds.ndim != 1 or not len(rounds) or not ((rounds > 1.0).all() and (np.diff(rounds) > 0.0).all()):
        raise ArgumentError("memories", memories, "one or more increasing numbers of rounds above 1")
    return rounds
