"""LinTS and GLM-TS: Thompson sampling with the inflated perturbation for which regret is proven.

Abeille and Lazaric, "Linear Thompson sampling revisited" (AISTATS 2017), Figure 1 and appendix F. With weight 1 for all
rewards, V_t = sum x_s x_s' + lam I, delta' = delta / (4 T), and eta_t ~ N(0, I),

    beta_t(delta) = sqrt(lam) S + R sqrt(2 log(1/delta) + d log(1 + t / lam))
    LinTS:   theta_hat_t   = V_t^-1 sum r_s x_s
             theta_tilde_t = theta_hat_t + a beta_t(delta') V_t^-1/2 eta_t
    GLM-TS:  theta_hat_t   = the root of g_t(theta) = b_t
             theta_tilde_t = theta_hat_t + a (beta_t(delta') / c_mu) V_t^-1/2 eta_t,   with sqrt(lam) c_mu S in beta_t
    x_t = argmax over the arms of <x, theta_tilde_t>

R is ``sigma``, T ``horizon``, and a ``posterior_scale``, which is 1 in the paper. With ``inflation="none"`` the factor
beta_t(delta') / c_mu is left out, and theta_tilde_t has the covariance a^2 V_t^-1: this is the common practice, not the
algorithm of this paper. (For clicks, D-GLM-TS with gamma = 1 samples from the Laplace approximation instead.) There is
no further factor sqrt(d): the norm of eta_t is about sqrt(d).

Guarantee of LinTS (Theorem 1): with probability 1 - delta, regret of order d^{3/2} sqrt(T), up to logarithms, for a
fixed compact set of arms with ||x|| <= 1 and lam >= 1. (The proof is round by round, so it also holds for sets of arms
that are fixed before the draw. This remark is ours.)

Guarantee of GLM-TS (Lemma 4): the same order times k_mu / c_mu, for links with mu' >= c_mu > 0 on the whole line. Of
the built-in links, only the identity is one: for the logistic link, the result holds only as long as all parameters,
including theta_hat_t, stay where mu' >= c_mu.

Not covered: drift; a posterior_scale below 1; ``inflation="none"``. What is uncertain: nothing in the rule of LinTS.
**Replaced in GLM-TS**: the estimator of the paper, equation (16), minimises ||sum (r_s - mu(<x_s, theta>)) x_s|| in the
metric V_t^-1. This estimator has no regulariser and may not exist (separable clicks). We use the root of g_t, whose
ridge is lam c_mu, as in the other policies. The same argument bounds its error by beta_t / c_mu with the term sqrt(lam)
c_mu S.

Choices that are ours: for ||x|| <= L the logarithm is d log(1 + t L^2 / lam), which is the rule for x / L and S L; and
V_t^-1/2 is V_t^-1 C with C C' = V_t, because a Gaussian eta_t is the same in all coordinates.

Cost per round and lane: LinTS O(K d + d^3); GLM-TS also a pass or two over the history, O(t d^2).
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice, check_whole
from windvane.policies.base import Card
from windvane.policies.glm import LikelihoodPolicy
from windvane.policies.optimism import OptimisticPolicy
from windvane.policies.sampling import SamplingPolicy

INFLATIONS = ("theorem", "none")


class InflatedSampling(SamplingPolicy, OptimisticPolicy):
    """Thompson sampling without forgetting, with a perturbation of the size of a confidence radius.

    Parameters
    ----------
    inflation
        "theorem", the rule of the paper, which needs ``horizon``, or "none".
    horizon
        Number of rounds T, which the radius needs.
    """

    inflation: str = "theorem"
    horizon: int | None = None
    bonus_scale: npt.ArrayLike = field(default=1.0, init=False)
    example = "dim=2, horizon=1000"

    def build_radius(self) -> Any:
        """Return the part of the logarithm in the radius that does not depend on t, [lanes], if it is inflated."""
        if check_choice("inflation", self.inflation, INFLATIONS) == "none":
            return None
        return 2.0 * np.log(4.0 * check_whole("horizon", self.horizon, 1) / self.levels)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return beta_t(delta / (4 T)), [lanes]."""
        e = self.estimator
        growth = self.dim * np.log1p(self.rounds_since_restart * (self.L**2 / e.lam))
        return np.asarray(math.sqrt(e.lam) * self.constants.c_mu * self.S + self.sigma * np.sqrt(self.radius + growth))

    def choose_scale(self, theta_hat: Array) -> Array:
        """Return a beta_t / c_mu, or a, [lanes]."""
        if self.radius is None:
            return self.posterior_scales
        return np.asarray(self.posterior_scales * self.compute_beta(theta_hat) / self.constants.c_mu)


class LinTS(InflatedSampling):
    """LinTS (Abeille and Lazaric 2017). Pass ``horizon``."""

    name = "LinTS"
    card = Card("linear", "none", "T", "d^(3/2) T^(1/2), theta* fixed", "abeille2017", "O(K d + d^3)")


class GLMTS(LikelihoodPolicy, InflatedSampling):
    """GLM-TS (Abeille and Lazaric 2017, appendix F) with another estimator. Pass ``horizon``."""

    name = "GLM-TS"
    card = Card(
        "generalized linear", "none", "T", "(k_mu/c_mu) d^(3/2) T^(1/2), theta* fixed, mu' >= c_mu everywhere",
        "abeille2017", "O(K d + t d^2)",
    )  # fmt: skip
