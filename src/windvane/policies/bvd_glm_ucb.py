"""BVD-GLM-UCB: optimism for generalized linear bandits under parameter drift.

Faury, Russac, Abeille and Calauzenes, "Regret bounds for generalized linear bandits under parameter drift" (2021),
Algorithm 1.

At round t, with discounted weights gamma^(t-1-s) on the past,

    theta_hat_t   = the root of g_t(theta) = b_t                          (weighted maximum likelihood)
    theta_tilde_t = a solution of P2 for theta_hat_t                      (Step 1: back to the ball ||theta|| <= S)
    bonus_t(x)    = 2 R_mu beta_t(delta) ||x||_{V_t^-1}                   (Step 2)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_t(x)

===============  ====================  ===================================================================
symbol           here                  meaning
===============  ====================  ===================================================================
gamma            ``gamma``             discount; from ``horizon`` and ``drift`` (B_T) when not given
theta hat        ``theta_hat``         the discounted estimate, may lie outside the ball
theta tilde      ``theta_tilde``       its projection, what predictions are made with
V, V tilde, b    ``V, V_tilde, b``     see :mod:`windvane.estimation.mle`
beta_t(delta)    ``radius(t)``         confidence radius, :class:`windvane.theory.Radius`
R_mu             ``constants.R_mu``    k_mu / c_mu over ||theta|| <= S, ||x|| <= L
lambda           ``lam``               regularisation (the likelihood is penalised by lam c_mu ||theta||^2 / 2)
sigma            ``sigma``             rewards lie in [0, 2 sigma]
===============  ====================  ===================================================================

Guarantee (Theorem 1): with high probability regret of order R_mu d^{2/3} B_T^{1/3} T^{2/3} for orthogonal arm sets, and
R_mu d^{9/10} B_T^{1/5} T^{4/5} in general, at the discount of the same name. What it does not cover: the discounted
noise is stationary, so the printed radius holds at any fixed round but not at all rounds at once; a proof for the whole
run needs ``confidence="horizon"`` or ``"anytime"``. ``bonus_scale`` other than 1, several or
weighted observations a round, and rewards that arrive late are outside the theorem.

Cost per round and lane: one or two passes over the remembered history, O(n d^2), for theta_hat; about four more when
theta_hat lies outside the ball; O(K d^2) for the arms. n is at most ``memory``, about log(1/tolerance)/(1 - gamma).
"""

from __future__ import annotations

import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import GLMPolicy
from windvane.projection import project_p2


class BVDGLMUCB(GLMPolicy, DiscountedPolicy):
    """BVD-GLM-UCB (Algorithm 1). Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one.

    Parameters
    ----------
    confidence
        Whether the radius holds at any fixed round ("pointwise", as printed), at all rounds up to ``horizon``
        ("horizon") or at all rounds ("anytime").

    Examples
    --------
    >>> import numpy as np
    >>> policy = BVDGLMUCB(dim=2, gamma=0.99)
    >>> arms = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    >>> choice = policy.select(arms)
    >>> policy.update(arms[[0], choice], reward=1.0)
    """

    confidence: str = "pointwise"

    name = "BVD-GLM-UCB"
    card = Card(
        "generalized linear",
        "discount",
        "T, B_T",
        "R_mu d^(2/3) B^(1/3) T^(2/3), orthogonal arms; R_mu d^(9/10) B^(1/5) T^(4/5)",
        "Faury et al. 2021",
        "O((K + memory) d^2)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = self.build_estimator(self.choose_discount())
        self.radius = self.build_radius(self.confidence, self.horizon)  # beta_t(delta)
        self.bonus_factors = self.bonus_scales * 2.0 * self.constants.R_mu

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t among ``arms[lanes, K, dim]``; ``valid[lanes, K]`` marks the arms that are really there."""
        arms, valid = self.check_arms(arms, valid)
        theta_tilde, multiplier = self.estimate()
        mean = self.predict(arms, theta_tilde)
        bonus = self.bonus(arms, multiplier)  # Step 2
        return self.play(mean + bonus, valid)

    def estimate(self) -> tuple[Array, Array]:
        """Return theta_tilde_t, and 2 R_mu beta_t: what ||x||_{V_t^-1} is multiplied by in the bonus."""
        theta_hat = self.estimator.solve()  # the root of g_t(theta) = b_t
        beta = self.radius.since(self.born, self.t)  # beta_t(delta), eq. (8)
        projection = project_p2(self.estimator, beta)  # Step 1: theta_hat_t -> theta_tilde_t
        return self.record(theta_hat, beta, self.bonus_factors * beta, projection)
