"""BVD-GLM-UCB: optimism for generalized linear bandits under parameter drift.

Faury, Russac, Abeille and Calauzenes, "Regret bounds for generalized linear bandits under parameter drift" (2021),
Algorithm 1.

At round t, with the weight gamma^(t-1-s) for the reward of round s,

    theta_hat_t   = the root of g_t(theta) = b_t                          (weighted maximum likelihood)
    theta_tilde_t = a solution of P2 for theta_hat_t                      (Step 1: projection onto ||theta|| <= S)
    bonus_t(x)    = 2 R_mu beta_t(delta) ||x||_{V_t^-1}                   (Step 2)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_t(x)

===============  ====================  ===================================================================
symbol           here                  meaning
===============  ====================  ===================================================================
gamma            ``gamma``             discount; default: recommended for ``horizon`` and ``drift`` (B_T)
theta hat        ``theta_hat``         the discounted estimate, which can be outside the ball
theta tilde      ``theta_tilde``       its projection, which is used for predictions
V, V tilde, b    ``V, V_tilde, b``     see :mod:`windvane.estimation.mle`
beta_t(delta)    ``radius(t)``         confidence radius, :class:`windvane.theory.Radius`
R_mu             ``constants.R_mu``    k_mu / c_mu over ||theta|| <= S, ||x|| <= L
lambda           ``lam``               regularisation (the likelihood is penalised by lam c_mu ||theta||^2 / 2)
sigma            ``sigma``             rewards are in [0, 2 sigma]
===============  ====================  ===================================================================

Guarantee (Theorem 1): with high probability, regret of order R_mu d^{2/3} B_T^{1/3} T^{2/3} for orthogonal arm sets and
of order R_mu d^{9/10} B_T^{1/5} T^{4/5} in general, each with the discount recommended for it.

Not covered: the discounted noise is stationary, so the printed radius holds at any fixed round but not at all rounds at
once. A proof for the whole run needs ``confidence="horizon"`` or ``"anytime"``. The theorem does not cover a
``bonus_scale`` other than 1, several or weighted observations per round, or late rewards.

Cost per round and lane: one or two passes over the stored history for theta_hat, O(n d^2); about four more passes if
theta_hat is outside the ball; O(K d^2) for the arms. n is at most ``memory``, about log(1/tolerance)/(1 - gamma).
With a built-in link and up to ten dimensions, all but the last few hundred observations are represented by a certified
expansion (:mod:`windvane.estimation.mle`), and the cost does not grow with the memory.
"""

from __future__ import annotations

import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.kernels.projection import P2
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import GLMPolicy
from windvane.projection import Projection

GUARANTEE = "R_mu d^(2/3) B^(1/3) T^(2/3), orthogonal arms; R_mu d^(9/10) B^(1/5) T^(4/5)"


class BVDGLMUCB(GLMPolicy, DiscountedPolicy):
    """BVD-GLM-UCB (Algorithm 1). Pass ``gamma``, or ``horizon`` and ``drift`` for the recommended discount.

    >>> import numpy as np
    >>> policy = BVDGLMUCB(dim=2, gamma=0.99)
    >>> arms = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> choice = policy.select(arms)
    >>> policy.update(arms[[0], choice], reward=1.0)
    """

    confidence: str = "pointwise"
    name = "BVD-GLM-UCB"
    card = Card("generalized linear", "discount", "T, B_T", GUARANTEE, "faury2021", "O((K + memory) d^2)")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta_tilde, multiplier = self.estimate()
        mean = self.predict(arms, theta_tilde)
        bonus = self.bonus(arms, multiplier)  # Step 2
        return self.play(mean + bonus, valid, mean)

    def estimate(self) -> tuple[Array, Array]:
        """Return theta_tilde_t and 2 R_mu beta_t, the factor of ||x||_{V_t^-1} in the bonus."""
        theta_hat = self.estimator.solve()  # the root of g_t(theta) = b_t
        beta = self.compute_beta(theta_hat)  # beta_t(delta), eq. (8)
        projection = self.project(beta)  # Step 1: theta_hat_t -> theta_tilde_t
        return self.record(theta_hat, beta, self.bonus_factors * beta, projection)  # bonus_factors: 2 R_mu

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P2, beta)
