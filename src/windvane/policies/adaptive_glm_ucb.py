"""AdaptiveGLMUCB: a generalized linear bandit for an unknown drift and an unknown horizon. An algorithm of our own.

Several memories m_1 < ... < m_G (32, 80, 200, 500, 1250, 3125 rounds, and no forgetting) learn the same rewards. Each
one is an estimator of :mod:`windvane.estimation.one_pass` with the discount gamma_g = 1 - 1/m_g. At round t,

    loss_g  = sum over rewards (x_s, r_s) of a^(t-1-s) (B(<x_s, theta_g>) - r_s <x_s, theta_g>) / phi,  B' = mu,
              each with theta_g from before the reward arrived, scaled back to ||theta_g|| <= S
    p_g     proportional to exp(-2 loss_g)                            (weight of a memory by its predictions)
    m       = the median memory under p                               (the acting memory: it provides theta, H and G)
    x_t     = argmax over the arms of mu(<x, theta>) + mu'(<x, theta>) sqrt(phi x' H^-1 G H^-1 x)

===========  ===================================================================================================
symbol       meaning
===========  ===================================================================================================
H            sum gamma^(t-1-s) mu' x_s x_s' + ridge I: the discounted information
G            sum gamma^(2(t-1-s)) mu' x_s x_s' + ridge I; H^-1 G H^-1 is the sandwich variance of theta
ridge        phi d / S^2: the prior N(0, S^2 I / d), under which ||theta||^2 is S^2 on average
phi          the dispersion: sigma^2 if rewards are unbounded (identity link), otherwise 1, see below
a            0.998: losses are compared over the last 500 rounds, approximately
===========  ===================================================================================================

**Why.** A discount expresses a belief about the speed of the drift, and its predictions show whether the belief is
right. Every reward scores every memory. A bandit over discounts (BOB), in contrast, observes only the reward of the
discount that acts. 2 loss_g is the deviance. The median under the weights varies less than the best memory, because
neighbouring memories predict about equally well. With exp(-2 loss) it follows the best memory more closely than with
exp(-loss).

**The bonus** is one standard error of the predicted mean (by the delta method). If the estimate is approximately
normal, the index is the 84 % quantile of the mean reward of the arm. In our trials a factor of 0.7 or 1.3 changed the
regret by a few percent on average. With arms that never change, 0.7 was 10 % worse, and a policy without a bonus fails.
G contains the ridge, so the prior counts as information: in a direction that was never played, or is forgotten, the
standard error is that of the prior, S / sqrt(d), and an arm that was bad long ago is tried again. Without the ridge in
G the sandwich would contain only the noise, and the policy would hardly explore in such directions.

phi = 1 is the dispersion of Bernoulli rewards with the logistic link and of Poisson counts. Among rewards in [0, 1]
with a given mean, Bernoulli rewards have the largest variance, so for others the bonus is too wide rather than too
narrow. Rewards with a larger variance are not covered. For probit the likelihood is a quasi-likelihood.

**Guarantee: none.** Nothing is proven about this policy. Its constants (the memories, a, the multiplier) were chosen
once, after trials in simulated worlds of 3000 rounds with d = 2 and 10, and are the same everywhere.

For a ball or a sphere the index is in units of z: <x, theta> + sqrt(phi x' H^-1 G H^-1 x). This is the same to first
order, and its best arm is known in closed form up to a one-dimensional search.

Late rewards: a loss enters with the weight of the age of its decision. It is computed with the current estimates,
before they learn the reward.

Cost per round and lane: O(G d^3) for the estimates, which is G = 7 times that of OnePassGLM; O((K + d) d^2) for the
arms. The state takes O(G d^2), whatever t. No history is stored, so the memory without forgetting costs no more than
the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_positive, check_real_array, check_scale
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.estimation import Discount, OnePassEstimator
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import EstimatingPolicy

MEMORIES = (*(32.0 * 2.5**i for i in range(6)), math.inf)
LOSS_DISCOUNT = 0.998
EVIDENCE = math.log(20.0)  # a likelihood ratio of 20, in nats
TINY = 1e-300  # avoids divisions by zero
NOTHING = 1e-12  # relative to the prior: less information than this is rounding, so nothing was learned
DRIFT, NO_DRIFT, UNKNOWN = "drift", "no drift seen", "too little data to tell"

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)  # for integrals over [-1, 1]


class DriftEstimate(NamedTuple):
    """An estimate of the drift from the rewards so far, one entry per lane. It is rough and has no guarantee.

    ``memory`` is the median memory under the weights, the current effective memory. The middle 80 % of the weight is
    between ``memory_low`` and ``memory_high``. ``rate`` (``rate_low``, ``rate_high``) is the speed of theta* per
    round for which that memory would be best, at most 2 S: an estimate of memory m lags v m behind a theta* of speed v,
    its variance is phi d / (2 m i), where i is the information per round and coordinate, and the sum v^2 m^2 + phi d /
    (2 m i) is smallest at v = sqrt(phi d / (4 i m^3)). ``variation`` is the sum of the rates of all rounds so far, the
    implied B_t. It is right up to a factor of two or three at best, and less reliable for jumps.

    ``evidence`` is the log likelihood ratio of forgetting (the mean over the finite memories) against not forgetting
    (the longest memory), for the predictions of the whole run. ``verdict`` is "drift" if it is at least log 20. If the
    predictions without forgetting were true, at most one run in 20 would ever reach this level. Otherwise it is "no
    drift seen" if the data refute the shortest memory by the same margin, so that drift could have been seen;
    ``rate_high`` is then the speed of a drift that could still be hidden. Otherwise it is "too little data to tell".
    """

    verdict: npt.NDArray[np.str_]
    evidence: Array
    memory: Array
    memory_low: Array
    memory_high: Array
    rate: Array
    rate_low: Array
    rate_high: Array
    variation: Array


@dataclass(frozen=True)
class AdaptiveInfo(PolicyInfo):
    """The diagnostics of AdaptiveGLMUCB. The fields of :class:`PolicyInfo` are those of the acting memory."""

    memories: Array | None = None  # [G]
    weights: Array | None = None  # of the memories, [lanes, G]
    acting_memory: Array | None = None  # the median memory under the weights
    drift: DriftEstimate | None = None  # None for a policy with a single memory


class AdaptiveGLMUCB(EstimatingPolicy):
    """AdaptiveGLMUCB (ours). It needs the bounds (S, L, sigma) and the link, but neither the drift nor the horizon.

    ``memories`` and ``bonus_scale`` are meant for research. The defaults need no tuning. A single memory m gives a
    policy with the discount 1 - 1/m, which cannot estimate the drift.

    Parameters
    ----------
    memories
        Increasing numbers of rounds, each above 1.
    bonus_scale
        Number of standard errors in the bonus: one number, or one per lane.
    """

    link: str | Link = field(default="logistic", kw_only=False)
    lam: float | None = field(default=None, init=False)
    memories: Sequence[float] = MEMORIES
    bonus_scale: npt.ArrayLike = 1.0
    estimator: OnePassEstimator = field(init=False)

    name = "AdaptiveGLMUCB"
    card = Card("generalized linear", "adaptive", "nothing", "none", "windvane", "O(G d^3 + K d^2), G = 7")
    is_sandwich: ClassVar[bool] = True
    # Per lane and memory: discounted losses, losses of the whole run.
    # Per lane: total weight of the rewards under the longest memory, and the implied B_t.
    stored: ClassVar[tuple[str, ...]] = (*EstimatingPolicy.stored, "losses", "run_losses", "seen", "variation")

    def __post_init__(self) -> None:
        super().__post_init__()
        scales = check_scale("bonus_scale", self.bonus_scale, self.lane_count)
        self.standard_errors = math.sqrt(self.dispersion) * scales  # the factor of sqrt(x' H^-1 G H^-1 x)
        self.losses, self.run_losses = np.zeros((2, self.lane_count, len(self.lengths)))
        self.seen, self.variation = np.zeros((2, self.lane_count))

    def build_estimator(self) -> OnePassEstimator:
        """Return an estimator with one row per lane and memory."""
        link = self.reward_link
        is_unbounded = math.isinf(link.reward_range(1.0)[1])
        self.dispersion = self.noise_scale**2 if is_unbounded else 1.0
        ridge = self.dispersion * self.dim / check_positive("S", self.S) ** 2
        self.lengths = _check_increasing(self.memories)
        self.gammas = 1.0 - 1.0 / self.lengths
        rows, bounds = Discount(np.tile(self.gammas, self.lane_count)), {"S": self.S, "L": self.L}
        lam, count = ridge / self.constants.c_mu, self.lane_count * len(self.lengths)
        return OnePassEstimator(self.dim, link, forgetting=rows, lam=lam, lanes=count, **bounds)

    def acting_rows(self) -> Index:
        """Return the row of the estimator that each lane uses: that of the median memory under the weights."""
        return np.asarray(np.arange(self.lane_count) * len(self.lengths) + _quantile(_weigh(self.losses), 0.5))

    def describe_estimates(self) -> dict[str, Any]:
        """Return the estimates of the acting memory."""
        e, rows = self.estimator, self.acting_rows()
        theta = self.pull_back(e.theta_hat)[rows]
        known: dict[str, Any] = {"theta_hat": theta, "theta_tilde": theta, "metric": e.metric()[rows], "b": e.b[rows]}
        return known | {"squared_metric": e.V_tilde[rows], "gamma": e.gamma[rows], "memory": e.memory[rows]}

    def info(self, *, estimates: bool = True) -> AdaptiveInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        weights, drift = _weigh(self.losses), self.estimate_drift() if estimates else None
        acting = self.lengths[_quantile(weights, 0.5)]
        return AdaptiveInfo(**known, memories=self.lengths.copy(), weights=weights, acting_memory=acting, drift=drift)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta, multiplier = self.estimate()
        widths = self.estimator.measure_width(arms, multiplier, is_sandwich=True, rows=self.acting_rows())
        z = _dot(arms, theta[:, None])
        means = self.reward_link.mean(z)
        return self.play(means + self.reward_link.slope(z) * widths, valid, means)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        return self.play_best(arm_set, *self.estimate(), mean=np.asarray, rows=self.acting_rows())

    def estimate(self) -> tuple[Array, Array]:
        rows = self.acting_rows()
        theta = self.pull_back(self.estimator.solve())[rows]
        decision = self.begin_decision()
        decision.theta_hat, decision.theta_tilde, decision.chosen = theta, theta, rows % len(self.lengths)
        return theta, self.standard_errors

    def pull_back(self, theta: Array) -> Array:
        """Return the estimates. Those outside the ball of radius S are scaled to its surface."""
        length = np.sqrt(_dot(theta, theta))
        return np.asarray(theta * np.minimum(1.0, self.S / np.maximum(length, TINY))[:, None])

    def learn(self, feedback: Feedback) -> None:
        """Score every memory by its prediction of the rewards, then let all memories learn the rewards."""
        mask = self.mask_restarted(feedback)
        x = np.where(mask[:, None], feedback.x, 0.0)  # masked values must not enter a sum
        reward, weight, age = np.where(mask, [feedback.reward, feedback.weight, feedback.age], 0.0)
        loss = weight[:, None] * self.measure_loss(x, reward)
        rows = (np.repeat(array, len(self.lengths), axis=0) for array in (x, reward, age, weight, mask))
        self.estimator.absorb(*rows)  # before the losses change: a custom link may raise
        self.losses += LOSS_DISCOUNT ** age[:, None] * loss
        self.run_losses += loss
        self.seen += self.gammas[-1] ** age * weight

    def measure_loss(self, x: Array, reward: Array) -> Array:
        """Return (B(z) - r z) / phi for the prediction z of each memory, [lanes, G].

        B(z) - B(0) is z times the mean of mu over [0, z].
        """
        theta = self.pull_back(self.estimator.solve()).reshape(self.lane_count, len(self.lengths), self.dim)
        z = _dot(x[:, None], theta)
        b = 0.5 * z * (self.reward_link.mean(z[:, :, None] * (0.5 + 0.5 * _NODES)) * _NODE_WEIGHTS).sum(axis=2)
        return np.asarray((b - reward[:, None] * z) / self.dispersion)

    def pass_time(self, rounds: float) -> None:
        """Discount the estimates, the losses and the total weight of the rewards. Add to the implied drift."""
        super().pass_time(rounds)
        self.losses *= LOSS_DISCOUNT**rounds
        self.seen *= self.gammas[-1] ** rounds
        self.variation += rounds * self.estimate_rates(self.lengths[_quantile(_weigh(self.losses), 0.5)])

    def forget(self, mask: Mask) -> None:
        self.estimator.reset(np.repeat(mask, len(self.lengths)))
        for array in (self.losses, self.run_losses, self.seen, self.variation):
            array[mask] = 0.0

    def estimate_drift(self) -> DriftEstimate | None:
        """Return an estimate of the drift from the rewards so far, or None if there is only one memory."""
        if len(self.lengths) == 1:
            return None
        weights = _weigh(self.losses)
        low, middle, high = (self.lengths[_quantile(weights, q)] for q in (0.1, 0.5, 0.9))
        advantage = self.run_losses[:, -1:] - self.run_losses  # over not forgetting
        finite = advantage[:, :-1]
        top = finite.max(axis=1)
        evidence = top + np.log(np.exp(finite - top[:, None]).mean(axis=1))
        is_detectable = advantage[:, 0] <= -EVIDENCE
        verdict = np.where(evidence >= EVIDENCE, DRIFT, np.where(is_detectable, NO_DRIFT, UNKNOWN))
        rate, slowest, fastest = map(self.estimate_rates, (middle, high, low))
        variation = self.variation.copy()
        return DriftEstimate(verdict, evidence, middle, low, high, rate, slowest, fastest, variation)

    def estimate_rates(self, memory: Array) -> Array:
        """Return the speed of theta* for which ``memory`` would be best, given the information per round."""
        count, ridge = len(self.lengths), self.estimator.ridge
        H = self.estimator.V[count - 1 :: count]  # of the longest memory
        information = np.trace(H, axis1=1, axis2=2) - self.dim * ridge
        per_round = np.maximum(information, TINY) / np.maximum(self.seen, TINY) / self.dim
        with np.errstate(over="ignore", invalid="ignore"):
            best = np.sqrt(self.dispersion * self.dim / (4.0 * per_round)) * memory**-1.5
        is_known = np.isfinite(memory) & (information > NOTHING * self.dim * ridge)
        return np.where(is_known, np.minimum(best, 2.0 * self.S), 0.0)


def _check_increasing(memories: Sequence[float]) -> Array:
    """Return ``memories`` as an array of increasing numbers above 1."""
    lengths = np.array(check_real_array("memories", memories, "a list of numbers"))
    if lengths.ndim != 1 or not len(lengths) or not ((lengths > 1.0).all() and (np.diff(lengths) > 0.0).all()):
        raise ArgumentError("memories", memories, "one or more increasing numbers of rounds above 1")
    return lengths


def _dot(a: Array, b: Array) -> Array:
    """Return <a, b> over the last axis. The order of the sum does not depend on the number of lanes."""
    total = a[..., 0] * b[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i] * b[..., i]
    return np.asarray(total)


def _weigh(losses: Array) -> Array:
    """Return weights proportional to exp(-2 loss)."""
    odds = np.exp(2.0 * (losses.min(axis=1, keepdims=True) - losses))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _quantile(weights: Array, q: float) -> npt.NDArray[np.int64]:
    """Return the index of the first memory at which the weights add up to ``q``, [lanes]."""
    return np.asarray(np.argmax(np.cumsum(weights, axis=1) >= q * (1.0 - 1e-12), axis=1))
