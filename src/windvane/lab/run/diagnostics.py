"""The paper's lemmas, measured round by round on a simulated run (Faury et al. 2021).

Only a simulation knows theta*. Given its path, the noiseless twin theta_bar_t of the estimate theta_hat_t is defined by

    g_t(theta_bar_t) = b_bar_t + lam c_mu theta*_t,   b_bar_t = sum over s < t of gamma^(t-1-s) mu(<x_s, theta*_s>) x_s,

so that g_t(theta_bar_t) is exact and needs no solve; g_t(theta_hat_t) is b_t. A late observation enters b_bar when it
is learnt, with the weight of its age, as it enters b. The row of a recorded round holds, per lane:

==================  =================================================================================================
``learning``        ||g(theta_bar) - g(theta_hat)|| in Vtilde^-1: what noise and regularisation did
``beta``            the radius that Lemma 1 sets it; Lemma 1 covers round t where ``learning <= beta``
``tracking``        ||g(theta_bar) - g(theta*)|| in V^-2: what drift did
``tracking_bound``  Lemma 2, for orthogonal or general arms, with D = max(1, ceil(log T / (1 - gamma)))
``lemma_2_slack``   tracking_bound - tracking
``lemma_3_slack``   bonus(x_t) - bonus(x*_t) + Delta(x_t) + Delta(x*_t) - regret of the round, the regret decomposition;
                    Delta(x) = |what the policy predicts for x - the mean of x|, x*_t the best arm
``lemma_4_slack``   tracking - the value of P2, where learning <= beta
==================  =================================================================================================

A slack is negative by rounding and by the tolerances of the solvers only. It is nan where nothing is claimed: Lemma 3
for a policy that is none of those it is written for (BVD-GLM-UCB and GLM-UCB with their bonus 2 R_mu beta ||x||_{V^-1};
D-LinUCB and OFUL with their own norms), Lemma 4 outside its event and without P2. At gamma = 1 Lemma 2 says nothing:
its bound and its slack are infinite.

A policy whose link is not the environment's (the linear ones under logistic rewards) is misspecified. Its learning term
still measures its noise, since b_bar holds the true means, and the regret decomposition needs no model. Its theta_bar
however differs from theta* even without drift, so tracking and Lemmas 2 and 4 are nan; so they are for a policy that
was told an S or an L smaller than the environment's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import numpy.typing as npt

from windvane.arguments import NORM_SLACK, Array
from windvane.errors import ArgumentError
from windvane.estimation import MaximumLikelihoodEstimator, RidgeEstimator
from windvane.policies.base import Policy
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.glm import GLMUCB
from windvane.policies.info import DecisionInfo
from windvane.policies.linear import DRandLinUCB, LinearPolicy
from windvane.policies.optimism import OptimisticPolicy
from windvane.policies.references import Greedy
from windvane.theory import tracking_bound

if TYPE_CHECKING:
    from windvane.environments import Environment, Round


def applies(policy: Policy) -> bool:
    """Return whether the policy forgets by a discount or not at all, as the analysis assumes."""
    estimator, card = getattr(policy, "estimator", None), getattr(policy, "card", None)
    if not isinstance(estimator, MaximumLikelihoodEstimator | RidgeEstimator) or estimator.window is not None:
        return False
    return card is None or card.forgetting in ("none", "discount")


class Diagnostics:
    """Measure one policy in one environment.

    Call ``begin_round`` before and ``measure_decision`` after its select, and ``learn`` after its update. Outside
    recorded rounds it costs a step of the path and of b_bar. Memory: as many past values of the drift as Lemma 2 calls
    recent, D per lane, at most the horizon.
    """

    def __init__(self, policy: Policy, environment: Environment) -> None:
        if not applies(policy):
            got = type(policy).__name__
            raise ArgumentError("policy", policy, "a policy with a discounted estimator", got=got)
        estimator: MaximumLikelihoodEstimator | RidgeEstimator = getattr(policy, "estimator")  # noqa: B009
        self._policy, self._estimator = policy, estimator
        self._arm_geometry = "orthogonal" if environment.orthogonal else "general"
        reach = estimator.S * estimator.L
        self._specified = (
            estimator.link.fingerprint(reach) == environment.link.fingerprint(reach)
            and environment.S <= estimator.S * NORM_SLACK
            and environment.L <= estimator.L * NORM_SLACK
        )
        self._everyone = np.arange(estimator.lanes)
        self._b_bar = np.zeros((estimator.lanes, estimator.dim))
        self._t, self._elapsed = policy.t, estimator.elapsed
        self._theta: Array | None = None
        # sum over s < t of ||theta*_{s+1} - theta*_s||, and its past values: row t % rows belongs to round t
        self._path = np.zeros(estimator.lanes)
        self._depth = _depths(estimator.gamma, environment.horizon)
        self._rows = int(min(self._depth.max(), environment.horizon)) + 1
        self._paths = np.zeros((self._rows, estimator.lanes))
        self._row: dict[str, Array] = {}
        self._recorded = False

    def begin_round(self, round: Round, recorded: bool) -> None:
        """Prepare a round that is about to be decided. Call it for every round, ``recorded`` or not."""
        if self._theta is not None:
            step = round.theta - self._theta
            self._path += np.sqrt(np.einsum("ld,ld->l", step, step))
        self._theta = round.theta
        self._paths[round.t % self._rows] = self._path
        self._recorded = recorded
        if not recorded:
            return
        e = self._estimator
        self._age()
        self._V, self._V_tilde = e.V.copy(), e.V_tilde.copy()
        g_bar = self._b_bar + e.ridge * self._theta
        self._noise = g_bar - e.b
        if self._specified:
            self._lag = g_bar - _g(e, self._theta)
            self._bound = self._lemma_2(round.t)
        else:
            self._lag, self._bound = np.full_like(g_bar, np.nan), np.full(e.lanes, np.nan)

    def measure_decision(self, round: Round, choice: npt.NDArray[np.int64]) -> None:
        """Compute the row of a recorded round that was decided."""
        if not self._recorded:
            return
        decision, nothing = self._policy.decision or DecisionInfo(), np.full(self._estimator.lanes, np.nan)
        beta = nothing if decision.beta is None else decision.beta
        learning = np.sqrt(_square(self._noise, self._V_tilde))
        tracking = np.linalg.norm(_solve(self._V, self._lag), axis=1)
        p2 = decision.projection if isinstance(self._policy, BVDGLMUCB | Greedy) else None
        left = nothing if p2 is None else p2.value
        self._row = {
            "learning": learning,
            "beta": beta,
            "tracking": tracking,
            "tracking_bound": self._bound,
            "lemma_2_slack": self._bound - tracking,
            "lemma_3_slack": self._lemma_3(round, choice, decision),
            "lemma_4_slack": np.where(learning <= beta, tracking - left, np.nan),
        }
        # a lane that started afresh within the decision has no history that its radius belongs to
        restarted = self._estimator.elapsed != self._elapsed + 1.0
        for values in self._row.values():
            values[restarted] = np.nan

    def learn(self, x: Array, mean: Array, decided: Array, mask: npt.NDArray[np.bool_] | None = None) -> None:
        """Add rewards of mean ``mean[lanes]`` that the policy learnt, for arms ``x`` played in rounds ``decided``."""
        self._age()
        age = self._t - 1.0 - decided
        # what the policy leaves out too: older than its memory, or decided before the lane was reset
        taken = (age <= self._estimator.memory) & (age < self._elapsed)
        if mask is not None:
            taken &= mask
        weight = np.where(taken, self._estimator.gamma ** np.where(taken, age, 0.0), 0.0)
        self._b_bar += (weight * mean)[:, None] * x

    def read_row(self) -> dict[str, Array]:
        """Return the quantities of the last recorded round by name (``play.QUANTITIES``), [lanes] each."""
        return self._row

    def _age(self) -> None:
        """Discount b_bar to the present time of the policy; a lane that was reset meanwhile starts from 0."""
        gap, elapsed = self._policy.t - self._t, self._estimator.elapsed
        if gap > 0.0:
            self._b_bar *= (self._estimator.gamma**gap)[:, None]
            self._b_bar[elapsed < self._elapsed + gap] = 0.0
        self._t, self._elapsed = self._policy.t, elapsed

    def _lemma_2(self, t: int) -> Array:
        e = self._estimator
        first = np.maximum(t - np.minimum(self._depth, self._rows - 1), 1).astype(np.int64)
        recent = self._path - self._paths[first % self._rows, self._everyone]
        return np.asarray(
            tracking_bound(
                e.gamma,
                self._depth,
                recent,
                k_mu=e.constants.k_mu,
                S=e.S,
                L=e.L,
                lam=e.lam,
                dim=e.dim,
                arm_geometry=self._arm_geometry,
            )
        )

    def _lemma_3(self, round: Round, choice: npt.NDArray[np.int64], decision: DecisionInfo) -> Array:
        policy, theta, multiplier = self._policy, decision.theta_tilde, decision.multiplier
        if not _is_covered_by_lemma_3(policy) or theta is None or multiplier is None:
            return np.full(self._estimator.lanes, np.nan)
        means = round.means if round.valid is None else np.where(round.valid, round.means, -np.inf)
        slack = np.zeros(len(multiplier))
        for pick, sign in ((choice, 1.0), (np.argmax(means, axis=1), -1.0)):
            x, mean = round.arms[self._everyone, pick], means[self._everyone, pick]
            if policy.is_sandwich:
                dual = _solve(self._V, x)
                width = np.sqrt(np.einsum("ld,lde,le->l", dual, self._V_tilde, dual))
            else:
                width = np.sqrt(_square(x, self._V))
            predicted = policy.reward_link.mean(np.einsum("ld,ld->l", x, theta))
            slack += sign * (multiplier * width + mean) + np.abs(predicted - mean)
        return slack


def _is_covered_by_lemma_3(policy: Policy) -> TypeGuard[OptimisticPolicy]:
    """Return whether the policy maximises prediction plus bonus, without drawing the bonus."""
    is_linear = isinstance(policy, LinearPolicy) and not isinstance(policy, DRandLinUCB)
    return is_linear or isinstance(policy, BVDGLMUCB | GLMUCB | Greedy)


def _g(estimator: MaximumLikelihoodEstimator | RidgeEstimator, theta: Array) -> Array:
    """Return g(theta), lane by lane; of ridge regression it is V theta."""
    if isinstance(estimator, MaximumLikelihoodEstimator):
        return estimator.moments(theta)[0]
    return np.asarray(np.einsum("lde,le->ld", estimator.V, theta))


def _depths(gamma: Array, horizon: int) -> Array:
    """Return D of the theorems for each lane; the horizon where gamma = 1. Lemma 2 holds with any D."""
    forget = 1.0 - gamma
    rounds = np.ceil(math.log(horizon) / np.where(forget > 0.0, forget, 1.0))
    return np.where(forget > 0.0, np.maximum(1.0, rounds), float(horizon))


def _solve(V: Array, x: Array) -> Array:
    """Return V^-1 x, lane by lane."""
    return np.asarray(np.linalg.solve(V, x[:, :, None])[:, :, 0])


def _square(x: Array, V: Array) -> Array:
    """Return ||x||^2 in the metric V^-1, lane by lane."""
    return np.asarray(np.maximum(np.einsum("ld,ld->l", x, _solve(V, x)), 0.0))
