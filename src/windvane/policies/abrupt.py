"""D-GLUCB, SW-GLUCB, SC-D-GLUCB and SC-SW-GLUCB: generalized linear bandits whose parameter changes abruptly.

Gamma_T is the number of abrupt changes (``switches``). Gamma_T = 0 gives gamma = 1 and a window of T. No guarantee
below covers a drifting parameter.

**D-GLUCB and SW-GLUCB.** Russac, Cappe and Garivier, "Algorithms for non-stationary generalized linear bandits" (2020).

    theta_hat_t   = the root of g_t(theta) = b_t                         (discounted, or over the last w rounds)
    theta_tilde_t = argmin over ||theta|| <= S of ||g_t(theta) - b_t|| in the metric V_tilde_t^-1
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + 2 R_mu beta_t ||x||_{V_t^-1}
    gamma         = 1 - (Gamma_T / (d T))^{2/3},     w = floor((d T / Gamma_T)^{2/3})

What is uncertain: the exact radius. We could not check it in the paper and use the beta_t of BVD-GLM-UCB
(:class:`windvane.theory.Radius`, with min(t, w) for a window), which has the form that the paper's summary describes.
The rule for w is 1 / (1 - gamma) with the recommended gamma.

Guarantee: the authors prove regret of order d^{2/3} Gamma_T^{1/3} T^{2/3} for abrupt changes and general arms (we could
not check the dependence on k_mu and c_mu). Faury et al. (2021) show that the proof does not extend directly to drift:
drift can then move theta_hat out of the ball, and this projection treats that as noise.

**SC-D-GLUCB and SC-SW-GLUCB.** Russac, Faury, Cappe and Garivier, "Self-concordant analysis of generalized linear
bandits with forgetting" (AISTATS 2021).

    theta_hat_t = argmin of the weighted negative log-likelihood + (lam/2) ||theta||^2,     not projected
    V_t         = sum w_s x_s x_s' + (lam / c_mu) I
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + c_mu^{-1/2} beta_t ||x||_{V_t^-1}
    gamma       = 1 - (c_mu^{1/2} Gamma_T / (d T))^{2/3},   tau = floor((d T / (c_mu^{1/2} Gamma_T))^{2/3})
    lam         = d log T                                   (here; in :mod:`windvane.estimation` ``ridge``, not ``lam``)

beta_t is :class:`windvane.theory.SelfConcordantRadius`: a small radius if ||theta_hat_t|| <= S, and a much larger one
otherwise, which is the price of omitting the projection. Rewards are in [0, m], m = 2 sigma.

Guarantee: with probability 1 - delta, regret of order d^{2/3} Gamma_T^{1/3} T^{2/3}, as the tuning implies, for abrupt
changes, general arms of norm at most 1, and links with |mu''| <= mu' (logistic, Poisson, identity; not probit). (We
could not check the theorem itself or its dependence on c_mu.) For ||x|| <= L with L other than 1 the algorithm uses the
units x / L: beta_t is evaluated at S L and lam / L^2, and the default is lam = L^2 d log T.

What is uncertain: nothing in the rules as stated here, but we know them from a summary of the paper. Three choices are
ours: the behaviour at gamma = 1, where the paper's 1 / (1 - gamma) is undefined (see the radius); gamma >= 1/2; and log
3 for T < 3. The paper's delta covers the whole run, so there is no ``confidence`` argument.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.kernels.projection import P0_IN_V_TILDE
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountSettings, ForgettingPolicy, WindowSettings
from windvane.policies.glm import GLMPolicy
from windvane.policies.weight_ucb import logarithmic_ridge
from windvane.projection import Projection
from windvane.theory import SelfConcordantRadius

ORDER = "d^(2/3) Gamma^(1/3) T^(2/3), abrupt changes"


class AbruptGLMPolicy(GLMPolicy):
    """The base class of D-GLUCB and SW-GLUCB, which differ in how they forget."""

    switches: npt.ArrayLike | None = None
    confidence: str = "pointwise"

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P0_IN_V_TILDE)


class DGLUCB(AbruptGLMPolicy, DiscountSettings):
    """D-GLUCB (Russac et al. 2020). Pass ``gamma``, or ``horizon`` and ``switches`` for the recommended discount."""

    name = "D-GLUCB"
    card = Card("generalized linear", "discount", "T, Gamma_T", ORDER, "russac2020", "O((K + memory) d^2)")


class SWGLUCB(AbruptGLMPolicy, WindowSettings):
    """SW-GLUCB (Russac et al. 2020). Pass ``window``, or ``horizon`` and ``switches`` for the recommended window."""

    name = "SW-GLUCB"
    card = Card("generalized linear", "window", "T, Gamma_T", ORDER, "russac2020", "O((K + window) d^2)")


class SelfConcordantPolicy(GLMPolicy, ForgettingPolicy):
    """The base class of SC-D-GLUCB and SC-SW-GLUCB, which differ in how they forget. The radius needs the horizon.

    Parameters
    ----------
    lam
        Regularisation of the paper: V starts as (lam / c_mu) I. Default: L^2 d log T.
    """

    switches: npt.ArrayLike | None = None
    lam: float | None = None

    def recommend(self, horizon: int, amount: float) -> float:
        return super().recommend(horizon, math.sqrt(self.constants.c_mu) * amount)

    def recommend_lam(self) -> float:
        return self.L**2 * logarithmic_ridge(self.dim, self.horizon)

    def choose_lam(self) -> float:
        check_whole("horizon", self.horizon, 1)
        return super().choose_lam() / self.constants.c_mu

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        return super().carry_settings(scale, S) | {"lam": scale**2 * self.given_lam()}  # which is the ridge itself

    def choose_factor(self) -> float:
        return 1.0 / math.sqrt(self.constants.c_mu)

    def build_radius(self) -> SelfConcordantRadius:
        e, settings = self.estimator, self.pick_settings("dim", "S", "L", "sigma", "horizon")
        settings |= {"lam": self.given_lam(), "k_mu": self.constants.k_mu, "delta": self.levels}
        return SelfConcordantRadius(gamma=e.gamma, window=e.window, **settings)

    def compute_beta(self, theta_hat: Array) -> Array:
        t, is_inside = self.rounds_since_restart, np.linalg.norm(theta_hat, axis=1) <= self.S
        return np.asarray(np.where(is_inside, self.radius.inside(t), self.radius.outside(t)))


class SCDGLUCB(SelfConcordantPolicy, DiscountSettings):
    """SC-D-GLUCB (Russac et al. 2021). Pass ``horizon``, and ``switches`` or ``gamma``. ``lam=None``: L^2 d log T."""

    example = "dim=2, gamma=0.99, horizon=1000"
    name = "SC-D-GLUCB"
    card = DGLUCB.card._replace(guarantee=f"{ORDER}, self-concordant", reference="russac2021")


class SCSWGLUCB(SelfConcordantPolicy, WindowSettings):
    """SC-SW-GLUCB (Russac et al. 2021). Pass ``horizon``, and ``switches`` or ``window``. ``lam=None``: L^2 d log T."""

    example = "dim=2, window=100, horizon=1000"
    name = "SC-SW-GLUCB"
    card = SWGLUCB.card._replace(guarantee=f"{ORDER}, self-concordant", reference="russac2021")
