"""OFUL, D-LinUCB, D-RandLinUCB and SW-LinUCB: optimism for linear rewards r_s = <x_s, theta*_s> + noise.

At round t, the reward of round s < t has weight w_s, and

    V_t = sum w_s x_s x_s' + lam I,   V_tilde_t = sum w_s^2 x_s x_s' + lam I,   b_t = sum w_s r_s x_s
    theta_hat_t = V_t^-1 b_t
    x_t         = argmax over the arms of <x, theta_hat_t> + bonus_scale beta_t ||x||_M

============  ======================  =========================================================  =====================
policy        weight w_s              beta_t                                                     M
============  ======================  =========================================================  =====================
OFUL          1                       sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V/lam))  V^-1
D-LinUCB      gamma^(t-1-s)           :class:`windvane.theory.Radius` with c_mu = 1              V^-1 V_tilde V^-1
D-RandLinUCB  gamma^(t-1-s)           that of D-LinUCB times Z_t = 2/5 |N(0, 1)|                 V^-1 V_tilde V^-1
SW-LinUCB     1 in the last w rounds  sqrt(lam) S + sigma sqrt(d log((1 + w L^2 / lam)/delta))   V^-1
============  ======================  =========================================================  =====================

Rewards can be any finite numbers. sigma is the sub-Gaussian scale of the noise (1/2 for rewards in [0, 1]). No
guarantee of a linear policy covers generalized linear rewards, because the model is then misspecified.

OFUL (Abbasi-Yadkori, Pal and Szepesvari, "Improved algorithms for linear stochastic bandits", NeurIPS 2011). Guarantee:
regret of order d sqrt(T), up to logarithms, for a constant theta*; none under drift. The radius holds at all rounds at
once.

D-LinUCB (Russac, Vernade and Cappe, "Weighted linear bandits for non-stationary environments", NeurIPS 2019).
Guarantee: regret of order d^{2/3} B_T^{1/3} T^{2/3} for orthogonal arms at gamma = 1 - (B_T/(dT))^{2/3}. For general
arms the published proof has a gap (Faury et al. 2021, Touati and Vincent 2020). V_tilde has its own recursion with
gamma^2. Public code that updates it from V computes something else.

D-RandLinUCB (Kim and Tewari, "Randomized exploration for non-stationary stochastic linear bandits", UAI 2020) draws one
Z_t per round. The average bonus is a third of that of D-LinUCB. Guarantee: regret of order d^{7/8} B_T^{1/4} T^{3/4}
(as corrected on arXiv; the conference version claims d^{2/3} B_T^{1/3} T^{2/3}). What is uncertain: the conditions of
the theorem on the distribution of Z_t, which we could not check, so we do not know whether it covers the half-normal
distribution, with 2/5, of the authors' experiments and public code. A ``bonus_scale`` other than 1 is not covered.

SW-LinUCB (Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity", AISTATS 2019), with w = floor((d
T / B_T)^(2/3)), or floor((d T)^(2/3)) if B_T is unknown. Guarantee: the paper claims regret of order d^{2/3} B_T^{1/3}
T^{2/3}. After an error in the analysis was found (Touati and Vincent 2020), d^{7/8} B_T^{1/4} T^{3/4} remains in
general, and the claimed order, for which w is tuned, for orthogonal arms (Faury et al. 2021). beta holds at any fixed
round with probability 1 - delta; for all rounds at once use ``confidence="horizon"`` or ``"anytime"``.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.estimation import Forgetting, Window
from windvane.kernels.sampling import draw_normals
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy, WindowSettings
from windvane.policies.optimism import OptimisticPolicy
from windvane.policies.sampling import count_best
from windvane.theory import ConfidenceLevel, OFULRadius

ORDER, COST = "d^(2/3) B^(1/3) T^(2/3), orthogonal arms", "O((K + d) d^2)"


class LinearPolicy(OptimisticPolicy):
    """Ridge regression with a bonus."""


class OFUL(LinearPolicy):
    """OFUL (Abbasi-Yadkori et al. 2011): no forgetting, radius from the determinant, widths in V^-1."""

    name = "OFUL"
    card = Card("linear", "none", "nothing", "d T^(1/2), theta* fixed", "abbasi2011", COST)

    def build_radius(self) -> OFULRadius:
        return OFULRadius(S=self.S, lam=self.estimator.lam, sigma=self.sigma, delta=self.levels)

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.asarray(self.radius(self.estimator.log_det_ratio()))


class DLinUCB(LinearPolicy, DiscountedPolicy):
    """D-LinUCB (Russac et al. 2019). Pass ``gamma``, or ``horizon`` and ``drift`` for the recommended discount."""

    confidence: str = "pointwise"
    name = "D-LinUCB"
    card = Card("linear", "discount", "T, B_T", ORDER, "russac2019", COST)
    is_sandwich: ClassVar[bool] = True


class DRandLinUCB(DLinUCB):
    """D-RandLinUCB (Kim and Tewari 2020). Pass ``gamma``, or ``horizon`` and ``drift`` for the recommended discount."""

    name = "D-RandLinUCB"
    card = DLinUCB.card._replace(guarantee="d^(7/8) B^(1/4) T^(3/4), unknown if for the 2/5 law", reference="kim2020")
    is_randomised: ClassVar[bool] = True
    spread: ClassVar[float] = 0.4  # Z_t is this factor times |N(0, 1)|

    def estimate(self) -> tuple[Array, Array]:
        theta_hat, multiplier = super().estimate()
        normal = np.empty((self.lane_count, 1, 1))
        draw_normals(self.key, self.lane_ids, self.decisions, 0, normal)
        draw = self.spread * np.abs(normal[:, 0, 0])
        assert self.decision is not None  # set by the estimate of D-LinUCB
        self.decision.draw, self.decision.multiplier = draw, draw * multiplier
        return theta_hat, self.decision.multiplier

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 1000) -> Array:
        """Estimate the probability that ``select`` chooses each arm, [lanes, K]. Nothing changes.

        The distribution of Z_t is replaced by equally likely values, the midpoints of its quantiles. The estimate is
        the share of these values for which an arm is best. Its error is of order 1 / draws.
        """
        from scipy.special import ndtri

        arms, valid = self.check_arms(arms, valid)
        draws = check_whole("draws", draws, 1, 10**6)
        theta_hat = self.estimator.theta_hat
        bonus = self.bonus(arms, self.bonus_factors * self.compute_beta(theta_hat))
        z = self.spread * ndtri(0.5 + (np.arange(draws) + 0.5) / (2 * draws))  # half-normal quantiles
        return count_best(self.predict(arms, theta_hat)[:, :, None] + bonus[:, :, None] * z, valid)


class SWLinUCB(LinearPolicy, WindowSettings):
    """SW-LinUCB (Cheung et al. 2019). Pass ``window``, or ``horizon`` and, if it is known, ``drift``."""

    drift: npt.ArrayLike | None = None
    confidence: str = "pointwise"
    name = "SW-LinUCB"
    card = Card("linear", "window", "T, B_T", ORDER, "cheung2019", COST)

    def choose_forgetting(self) -> Forgetting:
        if self.forgetting is None and self.window is None and self.drift is None and self.horizon is not None:
            return Window.tuned(horizon=self.horizon, drift=None, dim=self.dim)
        return super().choose_forgetting()

    def build_radius(self) -> ConfidenceLevel:
        e = self.estimator
        self.log_growth = np.log1p(np.asarray(e.window) * e.L**2 / e.lam)
        return ConfidenceLevel(self.levels, self.confidence, self.horizon)

    def compute_beta(self, theta_hat: Array) -> Array:
        e = self.estimator
        log_term = self.log_growth + self.radius.log_inverse(self.rounds_since_restart)
        return np.asarray(math.sqrt(e.lam) * e.S + self.sigma * np.sqrt(e.dim * log_term))
