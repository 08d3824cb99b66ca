"""MASTER-OFUL, MASTER-GLM-UCB and MASTER-Logistic-UCB-1: MASTER (:mod:`windvane.policies.master`) over three bases.

=====================  =======================================================  =======================================
policy                 index                                                    rho(t)
=====================  =======================================================  =======================================
MASTER-OFUL            <x, theta_hat> + 2 beta ||x||_V^-1                       beta sqrt(d log(T/delta) / t)
MASTER-GLM-UCB         mu(<x, theta_tilde>) + 2 beta ||x||_V^-1, as GLM-UCB     beta sqrt(d log(T/delta) / t)
MASTER-Logistic-UCB-1  that of Logistic-UCB-1 with gamma_T(delta / T)           C k_mu c_mu^(-1/2) gamma_T / sqrt(t)
=====================  =======================================================  =======================================

    OFUL:     beta = 4 sqrt(d log(T/delta))
    GLM-UCB:  beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam))
    C         = sqrt(32 d (1 + 2S) max(1, c_mu/lam) log(1 + c_mu T/(lam d)))

MASTER-OFUL and MASTER-GLM-UCB: Wei and Luo (2021, appendix I). What is uncertain: nothing in index, beta and rho, which
we read in the paper. The GLM base projects as GLM-UCB does (Filippi et al. 2010), to the argmin over the ball of
||g(theta) - g(theta_hat)|| in V^-1. The paper has S = 1, and lam = 1 for OFUL: beta does not grow with S, nor, in OFUL,
with lam. For arms of norm up to L the rule is that for x / L, so beta has lam / L^2.

MASTER-Logistic-UCB-1: Logistic-UCB-1 (:mod:`windvane.policies.logistic_ucb_1`) is the base. Wang, Zhao and Zhou (2023)
compare with a policy of this kind, "MASTER+LogUCB1", and do not say which rho it has. **What is ours:** rho, for which
t rho(t) is the regret bound of Faury et al. (2020, Theorem 2) for t rounds, with the logarithms of T; delta / T in
gamma, because MASTER needs bounds that fail with probability delta / T; and the same gamma_T in all rounds. Guarantee:
none. Theorem 2 is for a constant theta*. MASTER also requires that a small drift adds no more than t times the drift to
the regret of a copy. We know no proof of this for Logistic-UCB-1.

Bonus and rho are for rewards divided by the width of their range (``reward_range``).
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

from windvane.arguments import check_whole
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.glm import GLMUCB
from windvane.policies.linear import OFUL
from windvane.policies.logistic_ucb_1 import LogisticUCB1
from windvane.policies.master import MasterBase, MasterPolicy, log_quotient

GUARANTEE = "min(sqrt(T changes), T^(2/3) B^(1/3)), one set of arms"


class BaseOFUL(MasterBase, OFUL):
    """OFUL with beta = 4 sqrt(d log(T/delta))."""

    name = "base of MASTER-OFUL"

    def build_radius(self) -> Any:
        return 4.0 * math.sqrt(self.dim * self.log_level)


class BaseGLMUCB(MasterBase, GLMUCB):
    """GLM-UCB with beta = 4 R_mu (sqrt(d log(c_mu T/(lam delta))) + c_mu sqrt(lam))."""

    name = "base of MASTER-GLM-UCB"

    def build_radius(self) -> Any:
        T, c_mu, lam = check_whole("horizon", self.horizon, 1), self.constants.c_mu, self.estimator.lam / self.L**2
        growth = max(0.0, log_quotient(c_mu * T, lam * self.levels.item()))
        return 4.0 * self.constants.R_mu * (math.sqrt(self.dim * growth) + c_mu * math.sqrt(lam))


class BaseLogisticUCB1(MasterBase, LogisticUCB1):
    """Logistic-UCB-1 with gamma_T(delta / T) in all rounds."""

    name = "base of MASTER-Logistic-UCB-1"

    def build_radius(self) -> Any:
        """Return the factor of ||x||_{V^-1} in the index, 2 sqrt(1 + 2S) k_mu c_mu^(-1/2) gamma_T(delta / T)."""
        gamma = self.build_gamma("horizon")(float(check_whole("horizon", self.horizon, 1)))
        return LogisticUCB1.choose_factor(self) * float(gamma.item())

    def choose_multiplier(self) -> float:
        return self.radius  # gamma contains the range of rewards

    def choose_rho(self) -> float:
        share = self.constants.c_mu * self.L**2 / self.given_lam()  # 1 / (kappa lam)
        growth = math.log1p(share * check_whole("horizon", self.horizon, 1) / self.dim)
        return self.radius * math.sqrt(8.0 * self.dim * max(1.0, share) * growth) / self.width_of_rewards


class MasterOFUL(MasterPolicy):
    """MASTER-OFUL (Wei and Luo 2021). It needs the horizon T, but not the drift."""

    name = "MASTER-OFUL"
    card = Card("linear", "adaptive", "T", GUARANTEE, "wei2021", "O((K + d) d^2), per lane")
    base_type = BaseOFUL


class MasterLikelihoodPolicy(MasterPolicy):
    """A form of MASTER over a base with a maximum-likelihood estimate."""

    link: str | Link = field(default="logistic", kw_only=False)
    tolerance: float = 1e-6


class MasterGLMUCB(MasterLikelihoodPolicy):
    """MASTER-GLM-UCB: MASTER (Wei and Luo 2021) over GLM-UCB. It needs the horizon T, but not the drift."""

    name = "MASTER-GLM-UCB"
    card = MasterOFUL.card._replace(rewards="generalized linear", cost="O((K + t) d^2), per lane")
    base_type = BaseGLMUCB


class MasterLogisticUCB1(MasterLikelihoodPolicy):
    """MASTER-Logistic-UCB-1: MASTER over Logistic-UCB-1. It needs the horizon T, but not the drift.

    Parameters
    ----------
    lam
        Regularisation of Logistic-UCB-1. Default: L^2 d log T.
    """

    lam: float | None = None
    name = "MASTER-Logistic-UCB-1"
    links: ClassVar[tuple[type[Link], ...]] = LogisticUCB1.links
    card = MasterGLMUCB.card._replace(guarantee="none")
    base_type = BaseLogisticUCB1
