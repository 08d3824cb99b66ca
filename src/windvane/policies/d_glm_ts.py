"""D-GLM-TS: Thompson sampling for generalized linear bandits with a discount.

Not from one paper: Thompson sampling on a Laplace approximation (Chapelle and Li 2011) with the past discounted is what
people use for clicks that drift. At round t, with weights gamma^(t-1-s) on the past,

    theta_hat_t   = the root of g_t(theta) = b_t                         (the mode of the discounted posterior)
    theta_tilde_t ~ N(theta_hat_t, a^2 H_t(theta_hat_t)^-1)              (its Laplace approximation, a = 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>)

The posterior is that of the prior N(0, I / (lam c_mu)) and of the likelihood exp(sum w_s (r_s z_s - b(z_s))), z_s =
<x_s, theta>, b a primitive of mu: the canonical exponential family with unit dispersion. That is the true likelihood of
Bernoulli rewards with the logistic link and of Poisson counts; for probit, and for rewards spread otherwise, it is a
quasi-likelihood. For the identity link it supposes noise of variance 1: a = sigma is then the right scale.
``bonus_scale`` is a.

gamma, where not given, is that of BVD-GLM-UCB; nothing says that it is best here. :meth:`DGLMTS.propensities` estimates
by Monte Carlo how likely each arm is to be chosen, for off-policy evaluation.

Guarantee: none. (For a stationary parameter and a larger a there are analyses of such sampling; not for this.)

Cost per round and lane: one or two passes over the remembered history for theta_hat, one for H, O(n d^2); O(K d) for
the arms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windvane._linalg import cholesky, solve
from windvane.arguments import Array, check_lanes, check_whole
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import choose_discount
from windvane.policies.base import Card, Index, Policy


class DGLMTS(Policy):
    """D-GLM-TS. Give ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB."""

    name = "D-GLM-TS"
    card = Card("generalized linear", "discount", "T, B_T", "none", "Chapelle and Li 2011", "O(K d + memory d^2)")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        discount: str = "orthogonal",
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        gamma = choose_discount(gamma, horizon, drift, discount, dim, len(ids))
        estimator = DiscountedEstimator(dim, link, gamma=gamma, S=S, L=L, lam=lam, lanes=len(ids), tolerance=tolerance)
        self._begin(estimator, ids, seed=seed, sigma=sigma, delta=1.0, bonus_scale=bonus_scale)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        return self._play(self._means(arms, self._sample()), present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        return self._play_from(arm_set, self._sample(), np.zeros(self.lanes))

    def _sample(self) -> Array:
        theta_hat = self.estimator.solve().copy()
        theta_tilde = self._perturbed(theta_hat)
        self.last = {"theta_hat": theta_hat, "theta_tilde": theta_tilde}
        return theta_tilde

    def _perturbed(self, theta_hat: Array) -> Array:
        """theta_tilde of the coming decision: the same however often it is asked for."""
        z = np.empty((self.lanes, self.dim))
        self._k.draw_normals(np.uint64(self.seed), self.lane_ids, self._decisions, z)
        return theta_hat + self._spread(theta_hat, z[:, :, None])[:, :, 0]

    def _spread(self, theta_hat: Array, z: Array) -> Array:
        """a C'^-1 z with C C' = H(theta_hat), for the columns of z[lanes, dim, any]."""
        C = cholesky(self.estimator.moments(theta_hat)[1])
        return self.bonus_scale[:, None, None] * solve(C.transpose(0, 2, 1), z)

    @property
    def theta_tilde(self) -> Array:
        """The sampled parameter that a decision made now would use."""
        return self._perturbed(self.theta_hat)

    def propensities(
        self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 1000
    ) -> npt.NDArray[np.float64]:
        """Estimates of the probability that :meth:`select` would choose each arm, [lanes, K]; nothing changes.

        The share of ``draws`` samples of theta_tilde in which an arm is best, ties shared; its standard error is
        sqrt(p (1 - p) / draws), and an arm that is rarely best may get 0. The samples depend on (seed, lane id,
        decision number) only, and are not the one that the decision itself will use.
        """
        arms, present = self._checked_arms(arms, valid)
        blocks = (self.dim + 1) // 2
        draws = check_whole("draws", draws, 1, self._k.LARGEST_BLOCK // blocks - 1)
        z = np.empty((self.lanes, draws, self.dim))
        for lane, identity in enumerate(self.lane_ids):
            key = np.uint64(self.seed), identity, self._decisions, self._k.SAMPLES
            for draw in range(draws):
                self._k.normal_vector(*key, blocks * (draw + 1), z[lane, draw])
        theta_hat = self.theta_hat
        samples = theta_hat[:, :, None] + self._spread(theta_hat, z.transpose(0, 2, 1))
        scores = np.where(present[:, :, None], arms @ samples, -np.inf)  # mu is increasing: <x, theta> ranks alike
        best = scores >= scores.max(axis=1, keepdims=True)
        return np.asarray((best / best.sum(axis=1, keepdims=True)).mean(axis=2))
