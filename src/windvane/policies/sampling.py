"""D-LinTS and D-GLM-TS: Thompson sampling with a discount. They play the best arm for a perturbed parameter.

At round t, with the weight gamma^(t-1-s) for the reward of round s and ``posterior_scale`` a,

    x_t = argmax over the arms of mu(<x, theta_tilde_t>)
    D-LinTS:   theta_hat_t   = V_t^-1 b_t                                    (discounted ridge regression)
               theta_tilde_t = theta_hat_t + V_t^-1 V_tilde_t^(1/2) Z_t,     Z_t ~ N(0, a^2 I)
    D-GLM-TS:  theta_hat_t   = the root of g_t(theta) = b_t                  (the mode of the discounted posterior)
               theta_tilde_t ~ N(theta_hat_t, a^2 H_t(theta_hat_t)^-1)       (its Laplace approximation)

D-LinTS: Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits" (UAI 2020), with a = 1 in
their experiments. Every root of V_tilde gives the same distribution; we use the Cholesky factor. gamma is that of
D-LinUCB, as in the authors' public code (which, unlike this policy, plays at random in the first d rounds). Guarantee:
for linear rewards and an a of the order of a confidence radius, regret of the best possible order times a logarithm of
the number of arms; none for a = 1 or generalized linear rewards. What is uncertain: the a of the theorem and the exact
order, which we could not check.

D-GLM-TS is not the algorithm of a single paper. It combines Thompson sampling on a Laplace approximation (Chapelle and
Li 2011) with a discount, as practitioners do for clicks under drift. The prior is N(0, I / (lam c_mu)). The likelihood
is exp(sum w_s (r_s z_s - B(z_s))) with z_s = <x_s, theta> and B' = mu: the canonical exponential family with unit
dispersion. This is the true likelihood of Bernoulli rewards with the logistic link and of Poisson counts, and otherwise
a quasi-likelihood. For the identity link it assumes noise of variance 1, so a = sigma is the right scale there. The
default of gamma is that of BVD-GLM-UCB. We do not know whether it is the best one here. Guarantee: none. (There are
analyses for a stationary parameter and a larger a, but not for this policy.)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_scale, check_whole
from windvane.arms import Function
from windvane.kernels.random import LARGEST_BLOCK
from windvane.kernels.sampling import draw_normals, spread_lanes
from windvane.kernels.scoring import choice_probabilities
from windvane.linalg import apply_with_ridge
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import LikelihoodPolicy
from windvane.policies.optimism import EstimatingPolicy


class SamplingPolicy(EstimatingPolicy):
    """A policy that perturbs its estimate and plays the arm with the largest <x, theta_tilde>.

    A subclass implements ``spread`` or its metric.

    Parameters
    ----------
    posterior_scale
        Scale a of the perturbation: one number, or one per lane.
    """

    posterior_scale: npt.ArrayLike = 1.0
    is_randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.posterior_scales = check_scale("posterior_scale", self.posterior_scale, self.lane_count)

    def choose_index_mean(self) -> Function:
        return np.asarray  # mu is increasing, but may round to 1 for many arms

    def choose_scale(self, theta_hat: Array) -> Array:
        """Return what the perturbation of the next decision is multiplied by, [lanes]."""
        return self.posterior_scales

    def spread(self, theta_hat: Array, z: Array) -> Array:
        """Return the unscaled perturbations of theta_hat for standard normal ``z``, which may be overwritten.

        Both have one row per perturbation, [lanes, n, dim]. By default, V^-1 C z with C C' = V_tilde, whose covariance
        is V^-1 V_tilde V^-1. Without a discount that is V^-1.
        """
        steps, scratch = np.empty(z.shape), np.empty((self.dim, self.dim))
        spread_lanes(self.estimator.V.copy(), self.estimator.V_tilde.copy(), z, scratch, steps)
        return steps

    def estimate(self) -> tuple[Array, Array]:
        theta_hat, z = self.estimator.solve(), np.empty((self.lane_count, 1, self.dim))
        draw_normals(self.key, self.lane_ids, self.decisions, 0, z)
        decision = self.begin_decision()
        decision.theta_hat = theta_hat
        decision.theta_tilde = theta_hat + self.choose_scale(theta_hat)[:, None] * self.spread(theta_hat, z)[:, 0]
        return decision.theta_tilde, np.zeros(self.lane_count)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta_tilde, _ = self.estimate()
        products = self.estimator.predict_linearly(arms, theta_tilde)
        return self.play_highest(products, valid)  # the scores are random, not predictions

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 1000) -> Array:
        """Estimate the probability that ``select`` chooses each arm, [lanes, K]. Nothing changes.

        The estimate is the share of samples of theta_tilde for which an arm is best. Ties are shared. Its standard
        error is sqrt(p (1 - p) / draws), and the estimate for an arm that is rarely best can be 0. The samples depend
        only on the seed, the lane id and the number of the decision. They differ from the sample that the decision will
        use.
        """
        arms, valid = self.check_arms(arms, valid)
        blocks = (self.dim + 1) // 2
        draws = check_whole("draws", draws, 1, LARGEST_BLOCK // blocks - 1)
        z = np.empty((self.lane_count, draws, self.dim))
        draw_normals(self.key, self.lane_ids, self.decisions, 1, z)
        theta_hat = self.estimator.theta_hat
        theta_tilde = theta_hat[:, None] + self.choose_scale(theta_hat)[:, None, None] * self.spread(theta_hat, z)
        return count_best(arms @ theta_tilde.transpose(0, 2, 1), valid)


class DLinTS(SamplingPolicy, DiscountedPolicy):
    """D-LinTS (Kim and Tewari 2020). Pass ``gamma``, or ``horizon`` and ``drift`` for the recommended discount."""

    name = "D-LinTS"
    card = Card("linear", "discount", "T, B_T", "none at a = 1", "kim2020", "O(K d + d^3)")


class DGLMTS(LikelihoodPolicy, SamplingPolicy, DiscountedPolicy):
    """D-GLM-TS. Pass ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB."""

    name = "D-GLM-TS"
    card = Card("generalized linear", "discount", "T, B_T", "none", "chapelle2011", "O(K d + memory d^2)")

    def spread(self, theta_hat: Array, z: Array) -> Array:
        H = self.estimator.curvature(theta_hat)
        C = apply_with_ridge(np.linalg.cholesky, H)  # C C' = H(theta_hat), and C'^-1 z is returned
        return apply_with_ridge(np.linalg.solve, C.transpose(0, 2, 1), z.transpose(0, 2, 1)).transpose(0, 2, 1)


def count_best(scores: Array, valid: Mask) -> Array:
    """Return the share of the columns of ``scores[lanes, K, n]`` in which each valid arm is best. Ties are shared."""
    lanes, K, n = scores.shape
    shares = np.empty((lanes, n, K))
    rows = np.ascontiguousarray(scores.transpose(0, 2, 1)).reshape(-1, K)
    choice_probabilities(rows, np.repeat(valid, n, axis=0), shares.reshape(-1, K))
    return np.asarray(shares.mean(axis=1))
