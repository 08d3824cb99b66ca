"""AdaptiveGLMUCB: a generalized linear bandit under drift that is told neither the drift nor the horizon (our own).

Several memories m_1 < ... < m_G (32, 80, 200, 500, 1250, 3125 rounds, and no forgetting) look at the one stream of
rewards, each through the estimator of :mod:`windvane.estimation.one_pass` with discount gamma_g = 1 - 1/m_g. At round t,

    loss_g  = sum over rewards (x_s, r_s) of a^(t-1-s) (b(<x_s, theta_g>) - r_s <x_s, theta_g>) / phi,  b' = mu,
              each with the theta_g from before that reward came in, pulled back to ||theta_g|| <= S
    p_g     proportional to exp(-2 loss_g)                            (what each memory has earned by predicting)
    m       = the median memory under p                               (its theta, H and G are what is acted by)
    x_t     = argmax over the arms of mu(<x, theta>) + mu'(<x, theta>) sqrt(phi x' H^-1 G H^-1 x)

===========  ===================================================================================================
symbol       meaning
===========  ===================================================================================================
H            sum gamma^(t-1-s) mu' x_s x_s' + ridge I: the discounted information
G            sum gamma^(2(t-1-s)) mu' x_s x_s' + ridge I; H^-1 G H^-1 is the sandwich variance of theta
ridge        phi d / S^2: the prior N(0, S^2 I / d), under which ||theta||^2 is S^2 on average
phi          the dispersion: sigma^2 where any reward goes (identity), else 1, see below
a            0.998: losses are compared over the last 500 rounds or so
===========  ===================================================================================================

**Why so.** A discount is only one's belief about how fast the world moves, and its predictions tell whether it is
right: unlike a bandit over discounts (BOB), which sees one reward of the one it follows, all of them are scored by
every reward. 2 loss_g is the deviance. The median under the weights is steadier than the best memory, since neighbours
do about equally well, and with exp(-2 loss) it follows the best one closer than with exp(-loss).

**The bonus** is one standard error of the predicted mean (by the delta method), nothing else: if the estimate is about
normal, the index is the 84 % quantile of what the arm is worth. In our trials 0.7 or 1.3 of it changed the regret by a
few percent on average; where the arms are always the same, 0.7 was a tenth worse, and none at all fails.
In G the prior counts as information: along a direction never played, or forgotten, the standard error is again that of
the prior, S / sqrt(d), so that an arm that was bad long ago is tried again; without the ridge in G the sandwich would
know the noise only, and explore next to nothing there.

phi = 1 is the dispersion of Bernoulli rewards with the logistic link and of Poisson counts; among rewards in [0, 1] of
a given mean Bernoulli ones vary most, so that for others the bonus errs on the wide side. Rewards that vary more than
that are not allowed for. For probit it is a quasi-likelihood.

**Guarantee: none.** Nothing is proven about this policy. Its settings (the memories, a, the multiplier) were fixed
once, after trials in simulated worlds of 3000 rounds with d = 2 and 10, and are the same everywhere.

Over a ball or a sphere of arms the index is taken before mu, <x, theta> + sqrt(phi x' H^-1 G H^-1 x): the same to first
order, and its best arm is known in closed form up to a search in one dimension.

Late rewards: a loss counts by the age of the decision and is taken with the estimates of now, before they see it.

Cost per round and lane: G = 7 times that of OnePassGLM for the estimates, O(G d^3); O((K + d) d^2) for the arms. Memory
O(G d^2), whatever t: no history is kept, and forgetting nothing costs no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, Array, Index, Mask, check_per_lane, check_positive, check_real_array
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.estimation import Discount, OnePassEstimator
from windvane.kernels.scoring import width_lanes
from windvane.links import Link, get_link
from windvane.policies.base import Card, Feedback
from windvane.policies.info import DecisionInfo, PolicyInfo
from windvane.policies.optimism import EstimatingPolicy

MEMORIES = (*(32.0 * 2.5**i for i in range(6)), math.inf)
LOSS_DISCOUNT = 0.998
EVIDENCE = math.log(20.0)  # a likelihood ratio of 20, in nats
TINY = 1e-300  # keeps divisions by zero finite
NOTHING = 1e-12  # of the prior: less information than this is rounding, nothing was learned
DRIFT, NO_DRIFT, UNKNOWN = "drift", "no drift seen", "too little data to tell"

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)  # for the mean of a function over [-1, 1], times 2


class DriftEstimate(NamedTuple):
    """What the rewards say about the drift, one entry per lane: see :meth:`AdaptiveGLMUCB.drift_estimate`."""

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
    """Where AdaptiveGLMUCB stands; what :class:`PolicyInfo` holds is that of the acting memory.

    Attributes
    ----------
    memories, weights
        The memories, [G], and their weights, [lanes, G].
    acting_memory
        The median memory under the weights, [lanes].
    """

    memories: Array | None = None
    weights: Array | None = None
    acting_memory: Array | None = None


class AdaptiveGLMUCB(EstimatingPolicy):
    """AdaptiveGLMUCB (ours). Needs to know the world's bounds (S, L, sigma) and its link, not its drift or horizon.

    ``memories`` and ``bonus_scale`` are for those who study the policy: nothing needs to be set. One memory alone is a
    policy with that discount, 1 - 1/m, which can say nothing about the drift.

    Parameters
    ----------
    link
        Name of a link ("logistic", "poisson", "probit", "identity"), or a :class:`windvane.Link`.
    memories
        Increasing numbers of rounds above 1.
    bonus_scale
        Standard errors in the bonus, one number or one per lane.

    Examples
    --------
    >>> AdaptiveGLMUCB(dim=2).select([[[1.0, 0.0]]])
    array([0])
    """

    link: str | Link = field(default="logistic", kw_only=False)
    lam: float | None = field(default=None, init=False)
    memories: Sequence[float] = MEMORIES
    bonus_scale: npt.ArrayLike = 1.0

    estimator: OnePassEstimator = field(init=False)

    name = "AdaptiveGLMUCB"
    card = Card("generalized linear", "adaptive", "nothing", "none", "windvane", "O(G d^3 + K d^2), G = 7")
    is_sandwich: ClassVar[bool] = True
    # per lane and memory: discounted losses, losses of the whole run;
    # per lane: weight of all rewards, as the longest memory counts it, and the implied B_t
    stored: ClassVar[tuple[str, ...]] = (*EstimatingPolicy.stored, "losses", "run_losses", "seen", "variation")

    def __post_init__(self) -> None:
        self.link = link = get_link(self.link)
        super().__post_init__()
        is_unbounded = math.isinf(link.reward_range(1.0)[1])
        self.dispersion = self.noise_scale**2 if is_unbounded else 1.0
        ridge = self.dispersion * self.dim / check_positive("S", self.S) ** 2
        self.lengths = _check_increasing(self.memories)
        self.gammas = 1.0 - 1.0 / self.lengths
        rows = np.tile(self.gammas, self.lane_count)
        lam = ridge / link.constants(self.S, self.L).c_mu
        self.estimator = OnePassEstimator(
            self.dim, link, forgetting=Discount(rows), S=self.S, L=self.L, lam=lam, lanes=len(rows)
        )
        scales = check_per_lane(
            "bonus_scale", self.bonus_scale, self.lane_count, "in [0, 1e100]", lambda s: (s >= 0) & (s <= LARGEST)
        )
        self.standard_errors = math.sqrt(self.dispersion) * scales  # what the root of x' H^-1 G H^-1 x is multiplied by
        self.losses, self.run_losses = np.zeros((2, self.lane_count, len(self.lengths)))
        self.seen, self.variation = np.zeros((2, self.lane_count))

    # --- what can be read ------------------------------------------------------------------------------------------

    @property
    def weights(self) -> Array:
        """p of each memory, [lanes, G]."""
        return _weigh(self.losses)

    def acting_rows(self) -> Index:
        """Return the row of the estimator that each lane acts by: that of the median memory under the weights."""
        return np.asarray(np.arange(self.lane_count) * len(self.lengths) + _quantile(self.weights, 0.5))

    def theta_now(self) -> Array:
        """Return the parameter that a decision made now would use."""
        return self.pull_back(self.estimator.theta_hat)[self.acting_rows()]

    def describe_estimates(self) -> dict[str, Any]:
        """Return the estimates of the acting memory."""
        e, rows = self.estimator, self.acting_rows()
        theta = self.theta_now()
        return {
            "theta_hat": theta,
            "theta_tilde": theta,
            "metric": e.metric()[rows],
            "squared_metric": e.V_tilde[rows],
            "b": e.b[rows],
            "gamma": e.gamma[rows],
            "memory": e.memory[rows],
        }

    def info(self, *, estimates: bool = True) -> AdaptiveInfo:
        """Return where the policy stands, and the weights of its memories."""
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        acting = self.lengths[_quantile(self.weights, 0.5)]
        return AdaptiveInfo(**known, memories=self.lengths.copy(), weights=self.weights, acting_memory=acting)

    # --- deciding --------------------------------------------------------------------------------------------------

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t among ``arms[lanes, K, dim]``; ``valid[lanes, K]`` marks the arms that are really there."""
        arms, present = self.check_arms(arms, valid)
        theta, decision = self.choose_theta()
        widths = np.empty(arms.shape[:2])
        dense = self.estimator.dense[self.acting_rows()]
        width_lanes(True, arms, self.standard_errors, dense, self.estimator.work, widths)
        z = _dot(arms, theta[:, None])
        means = self.reward_link.mean(z)
        decision.means = means
        return self.play(means + self.reward_link.slope(z) * widths, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        """Decide round t among all arms of a ball or a sphere; return the arms played, [lanes, dim]."""
        arm_set = self.check_arm_set(arm_set)
        (theta, _), rows = self.choose_theta(), self.acting_rows()
        return self.play_best(arm_set, theta, self.standard_errors, mean=np.asarray, rows=rows)

    def choose_theta(self) -> tuple[Array, DecisionInfo]:
        """Return the parameter of the coming decision, and the record of how it is made."""
        rows = self.acting_rows()
        theta = self.pull_back(self.estimator.solve())[rows]
        decision = self.begin_decision()
        decision.theta_hat, decision.theta_tilde, decision.chosen = theta, theta, rows % len(self.lengths)
        return theta, decision

    def pull_back(self, theta: Array) -> Array:
        """Return estimates with those outside the ball of radius S moved to its surface."""
        length = np.sqrt(_dot(theta, theta))
        return np.asarray(theta * np.minimum(1.0, self.S / np.maximum(length, TINY))[:, None])

    # --- learning --------------------------------------------------------------------------------------------------

    def learn(self, feedback: Feedback) -> None:
        """Score every memory by its prediction of the rewards, then let all of them learn."""
        mask = feedback.mask & (feedback.round >= self.born)
        x = np.where(mask[:, None], feedback.x, 0.0)  # what is masked must not reach a sum
        reward, weight, age = np.where(mask, [feedback.reward, feedback.weight, feedback.age], 0.0)
        loss = weight[:, None] * self.measure_loss(x, reward)
        self.losses += LOSS_DISCOUNT ** age[:, None] * loss
        self.run_losses += loss
        self.seen += self.gammas[-1] ** age * weight
        rows = (np.repeat(array, len(self.lengths), axis=0) for array in (x, reward, age, weight, mask))
        self.estimator.absorb(*rows)

    def measure_loss(self, x: Array, reward: Array) -> Array:
        """Return (b(z) - r z) / phi at the z each memory predicts; b(z) - b(0) is z times the mean of mu over [0, z]."""
        theta = self.pull_back(self.estimator.solve()).reshape(self.lane_count, len(self.lengths), self.dim)
        z = _dot(x[:, None], theta)
        b = 0.5 * z * (self.reward_link.mean(z[:, :, None] * (0.5 + 0.5 * _NODES)) * _NODE_WEIGHTS).sum(axis=2)
        return np.asarray((b - reward[:, None] * z) / self.dispersion)

    def pass_time(self, rounds: float) -> None:
        """Let the estimates, the losses and the weight of all rewards age; add to the implied drift."""
        super().pass_time(rounds)
        self.losses *= LOSS_DISCOUNT**rounds
        self.seen *= self.gammas[-1] ** rounds
        self.variation += rounds * self.estimate_rates(self.lengths[_quantile(self.weights, 0.5)])

    def forget(self, mask: Mask) -> None:
        """Reset the estimates and the losses in the lanes of ``mask``."""
        self.estimator.reset(np.repeat(mask, len(self.lengths)))
        for array in (self.losses, self.run_losses, self.seen, self.variation):
            array[mask] = 0.0

    # --- for a person to read --------------------------------------------------------------------------------------

    def drift_estimate(self) -> DriftEstimate:
        """What the rewards so far say about the drift, per lane. A reading of the weights, rough, without guarantee.

        ``memory`` is the median memory under the weights, the effective memory of now; ``memory_low`` and
        ``memory_high`` hold between them the middle 80 % of the weight. ``rate`` (with ``rate_low``, ``rate_high``) is
        the speed of theta*, per round, at which that memory would be best: v m is how far an estimate of memory m
        trails, phi d / (2 m i) its variance, i the information a round and coordinate, and v^2 m^2 plus that is least
        at v = sqrt(phi d / (4 i m^3)). No rate is above 2 S. ``variation`` is the sum of the rates of all rounds so
        far, the implied B_t; right to a factor of two or three at best, and for jumps it tells less than that.

        ``verdict`` goes by the predictions of the whole run. ``evidence`` is the log likelihood ratio of forgetting
        (the mean over the finite memories) against not forgetting. "drift": it is at least log 20, which would ever
        happen in at most one run of 20 if the predictions without forgetting were the truth. Else "no drift seen" where
        the data could have told, that is where they have refuted the shortest memory by as much; ``rate_high`` says how
        fast a drift may still be hidden. Else "too little data to tell". (Where other ``memories`` were given, the
        longest of them is what "not forgetting" means.)
        """
        if len(self.lengths) == 1:
            raise ArgumentError("memories", self.memories, "at least two, to be compared, for a drift estimate")
        weights = self.weights
        low, middle, high = (self.lengths[_quantile(weights, q)] for q in (0.1, 0.5, 0.9))
        behind = self.run_losses[:, -1:] - self.run_losses  # > 0: better than not forgetting
        finite = behind[:, :-1]
        top = finite.max(axis=1)
        evidence = top + np.log(np.exp(finite - top[:, None]).mean(axis=1))
        could_tell = behind[:, 0] <= -EVIDENCE
        verdict = np.where(evidence >= EVIDENCE, DRIFT, np.where(could_tell, NO_DRIFT, UNKNOWN))
        return DriftEstimate(
            verdict,
            evidence,
            middle,
            low,
            high,
            self.estimate_rates(middle),
            self.estimate_rates(high),
            self.estimate_rates(low),
            self.variation.copy(),
        )

    def estimate_rates(self, memory: Array) -> Array:
        """Return the speed at which ``memory`` would be best, given the information that a round brings."""
        count, ridge = len(self.lengths), self.estimator.ridge
        H = self.estimator.V[count - 1 :: count]  # of the longest memory
        gathered = np.trace(H, axis1=1, axis2=2) - self.dim * ridge
        each = np.maximum(gathered, TINY) / np.maximum(self.seen, TINY) / self.dim
        with np.errstate(over="ignore", invalid="ignore"):
            best = np.sqrt(self.dispersion * self.dim / (4.0 * each)) * memory**-1.5
        is_known = np.isfinite(memory) & (gathered > NOTHING * self.dim * ridge)
        return np.where(is_known, np.minimum(best, 2.0 * self.S), 0.0)


def _check_increasing(memories: Sequence[float]) -> Array:
    """Return memories as an array of increasing numbers above 1."""
    lengths = np.array(check_real_array("memories", memories, "a list of numbers"))
    if lengths.ndim != 1 or not len(lengths) or not ((lengths > 1.0).all() and (np.diff(lengths) > 0.0).all()):
        raise ArgumentError("memories", memories, "one or more increasing numbers of rounds above 1")
    return lengths


def _dot(a: Array, b: Array) -> Array:
    """Return <a, b> over the last axis, summed in one order however many lanes there are."""
    total = a[..., 0] * b[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i] * b[..., i]
    return np.asarray(total)


def _weigh(losses: Array) -> Array:
    """Return weights proportional to exp(-2 loss)."""
    odds = np.exp(2.0 * (losses.min(axis=1, keepdims=True) - losses))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _quantile(weights: Array, q: float) -> npt.NDArray[np.int64]:
    """Return the first memory at which the weights add up to ``q``, per lane."""
    return np.asarray(np.argmax(np.cumsum(weights, axis=1) >= q * (1.0 - 1e-12), axis=1))
