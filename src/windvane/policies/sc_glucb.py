"""SC-D-GLUCB and SC-SW-GLUCB: self-concordant generalized linear bandits with forgetting, without a projection.

Russac, Faury, Cappe and Garivier, "Self-concordant analysis of generalized linear bandits with forgetting" (AISTATS
2021).

    theta_hat_t = argmin of the weighted negative log-likelihood + (lam/2) ||theta||^2,     not projected
    V_t         = sum w_s x_s x_s' + (lam / c_mu) I
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + c_mu^{-1/2} beta_t ||x||_{V_t^-1}
    gamma       = 1 - (c_mu^{1/2} Gamma_T / (d T))^{2/3},   tau = floor((d T / (c_mu^{1/2} Gamma_T))^{2/3})
    lam         = d log T

with Gamma_T the number of abrupt changes (``switches``; 0 gives gamma = 1, tau = T) and beta_t
:class:`windvane.theory.SelfConcordantRadius`: a small one where ||theta_hat_t|| <= S, a much larger one elsewhere,
which is what the missing projection costs. ``lam`` here is the paper's; in the words of :mod:`windvane.estimation` it
is ``estimator.ridge``, and ``estimator.lam`` is lam / c_mu. Rewards lie in [0, m], m = 2 sigma.

Guarantee: regret of order d^{2/3} Gamma_T^{1/3} T^{2/3}, as the tuning implies (the theorem itself, and its dependence
on c_mu, we could not read), with probability 1 - delta for abrupt changes, arms of any kind with norm at most 1, and
links with |mu''| <= mu' (logistic, Poisson, identity; not probit). None for a drifting parameter. For ||x|| <= L other
than 1 the same algorithm runs in the units x / L: beta_t is evaluated at S L and lam / L^2, and the default is lam =
L^2 d log T.

What is uncertain: nothing in the rules as given here, but we had them from a summary of the paper. What happens at
gamma = 1, where its 1 / (1 - gamma) is not defined, is ours (see the radius), and so are the clip of gamma to at least
1/2 and log T for T < 3, taken as log 3. The paper's delta is for the whole run, so there is no ``confidence`` to
choose.

Cost per round and lane: as BVD-GLM-UCB, but never a projection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_discount, check_lanes, check_positive, check_whole
from windvane.estimation import DiscountedEstimator
from windvane.links import Link, get_link
from windvane.policies._tuning import told_or_tuned
from windvane.policies.base import Card
from windvane.policies.glm_index import GLMIndex
from windvane.policies.glm_weight_ucb import logarithmic_ridge
from windvane.theory import SelfConcordantRadius, discount, window_length

_GUARANTEE = "d^(2/3) Gamma^(1/3) T^(2/3), abrupt changes, self-concordant"


class _SelfConcordant(GLMIndex):
    """What the two share; they differ in how they forget."""

    program = "none"

    def _forgetting(
        self,
        dim: int,
        link: str | Link,
        *,
        gamma: npt.ArrayLike = 1.0,
        window: npt.ArrayLike | None = None,
        horizon: int | None,
        S: float,
        L: float,
        lam: float | None,
        sigma: float,
        delta: npt.ArrayLike,
        bonus_scale: npt.ArrayLike,
        tolerance: float,
        lanes: int | Sequence[int],
        seed: int,
    ) -> None:
        ids, constants, T = check_lanes(lanes), get_link(link).constants(S, L), check_whole("horizon", horizon, 1)
        lam = check_positive("L", L) ** 2 * logarithmic_ridge(dim, T) if lam is None else check_positive("lam", lam)
        estimator = DiscountedEstimator(
            dim,
            link,
            gamma=check_discount(gamma, len(ids)),
            window=window,
            S=S,
            L=L,
            lam=lam / constants.c_mu,
            lanes=len(ids),
            tolerance=tolerance,
        )
        self._assemble(estimator, ids, seed=seed, sigma=sigma, delta=delta, bonus_scale=bonus_scale, horizon=T)
        self.radii = SelfConcordantRadius(
            dim=dim,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=self.delta,
            k_mu=constants.k_mu,
            horizon=T,
            gamma=estimator.gamma,
            window=estimator.window,
        )

    def factor(self) -> float:
        return 1.0 / math.sqrt(self.constants.c_mu)

    def _radius(self, theta_hat: Array) -> Array:
        """By whether theta_hat is admissible."""
        t, inside = self.local_t, np.linalg.norm(theta_hat, axis=1) <= self.estimator.S
        return np.where(inside, self.radii.inside(t), self.radii.outside(t))


class SCDGLUCB(_SelfConcordant):
    """SC-D-GLUCB (Russac et al. 2021). Give ``horizon``, and ``switches`` or ``gamma``; ``lam=None``: L^2 d log T."""

    name = "SC-D-GLUCB"
    card = Card("generalized linear", "discount", "T, Gamma_T", _GUARANTEE, "Russac et al. 2021", "O((K + memory) d^2)")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int | None = None,
        gamma: npt.ArrayLike | None = None,
        switches: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float | None = None,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        root = math.sqrt(get_link(link).constants(S, L).c_mu)
        gamma = told_or_tuned(
            "gamma",
            gamma,
            lambda T, n: discount(horizon=T, drift=root * n, dim=dim),
            horizon,
            switches,
            len(check_lanes(lanes)),
            by="switches",
        )
        self._forgetting(
            dim,
            link,
            gamma=gamma,
            horizon=horizon,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            tolerance=tolerance,
            lanes=lanes,
            seed=seed,
        )


class SCSWGLUCB(_SelfConcordant):
    """SC-SW-GLUCB (Russac et al. 2021). Give ``horizon``, and ``switches`` or ``window``; ``lam=None``: L^2 d log T."""

    name = "SC-SW-GLUCB"
    card = Card("generalized linear", "window", "T, Gamma_T", _GUARANTEE, "Russac et al. 2021", "O((K + window) d^2)")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int | None = None,
        window: npt.ArrayLike | None = None,
        switches: npt.ArrayLike | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float | None = None,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        root = math.sqrt(get_link(link).constants(S, L).c_mu)
        window = told_or_tuned(
            "window",
            window,
            lambda T, n: window_length(horizon=T, drift=root * n, dim=dim),
            horizon,
            switches,
            len(check_lanes(lanes)),
            by="switches",
        )
        self._forgetting(
            dim,
            link,
            window=window,
            horizon=horizon,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            tolerance=tolerance,
            lanes=lanes,
            seed=seed,
        )
