"""GLOC and GLOC-TS: generalized linear bandits at a constant cost per round.

Jun, Bhargava, Nowak and Willett, "Scalable generalized linear bandits: online computation and hashing" (NIPS 2017),
Algorithms 1 and 2. An online learner predicts z_s = <x_s, theta_s> before each reward. The estimate is ridge regression
on these predictions, not on the rewards. With V_t = lam I + sum over s < t of x_s x_s' and q_t = sum z_s x_s,

    theta_hat_t = V_t^-1 q_t
    GLOC:     x_t = argmax over the arms of <x, theta_hat_t> + sqrt(beta_t) ||x||_{V_t^-1}
    GLOC-TS:  x_t = argmax over the arms of <x, theta_tilde_t>,   theta_tilde_t ~ N(theta_hat_t, beta_t V_t^-1)
    z_t = <x_t, theta_t>,   g_t = mu(z_t) - r_t                      (theta_t before its update)
    theta_{t+1} = the projection of theta_t - (g_t / kappa) V_{t+1}^-1 x_t on ||theta|| <= S, in the metric V_{t+1}
    G_t     = sum over s < t of g_s^2 ||x_s||^2 in V_{s+1}^-1
    B_t     = G_t / (2 kappa) + 2 kappa S^2 lam                       (a bound on the regret of the learner, Theorem 3)
    alpha_t = 1 + 4 B_t / kappa + (8 R^2 / kappa^2) log((2/delta) sqrt(1 + 2 B_t / kappa + 4 R^4 / (kappa^4 delta^2)))
    beta_t  = alpha_t + lam S^2 - (sum z_s^2 - <theta_hat_t, q_t>)    (Theorem 1; a squared radius)

=======  =========  ==============================================================================================
symbol   here       meaning
=======  =========  ==============================================================================================
kappa    ``c_mu``   infimum of mu' over ``|z| <= S L``
R        ``sigma``  sub-Gaussian scale of the noise (1/2 for rewards in [0, 1])
lambda   ``lam``    V starts as lam I
epsilon  ``lam``    the matrix A of the learner starts as epsilon I; here epsilon = lambda, so that A = V
=======  =========  ==============================================================================================

Guarantee (Corollary 1): with probability 1 - delta, ||theta* - theta_hat_t||^2 <= beta_t in the metric V_t at all
rounds at once, for any sequence of arms and any link with mu' >= kappa > 0 over ``|z| <= S L``, canonical or not
(probit). (Corollary 2) the regret of GLOC is of order (k_mu / kappa) d sqrt(T), up to logarithms; that of GLOC-TS has
d^{3/2}.

Not covered: drift; an S that is too small; noise that is not sigma-sub-Gaussian, such as that of counts; a weight other
than 1. The factor 1/kappa, about e^S for the logistic link, is real: for S = 3 the bonus is so wide that GLOC plays the
longest arm for thousands of rounds.

What is uncertain: nothing in the rules. We read Theorem 2, on which the orders rest, without its proof, because we
could not get the supplement.

Choices that are ours: epsilon = lambda (the authors' code does the same); theta_1 = 0; for ||x|| <= L only kappa
changes, because the theorems use no other bound on the arms; the first arm is the longest one, as the formula says,
where the authors' code draws it at random; sum z_s^2 - <theta_hat_t, q_t> is summed without loss of digits
(:mod:`windvane.estimation.online_newton`). The authors' code uses the updated theta in z_t, and their experiments
replace beta_t by a tuned multiple of G_t. Late rewards enter in the order in which they arrive, which the theorem
allows if delays do not depend on the rewards.

Cost per round and lane: O(K d^2) for the arms and O(d^3) for a step; the state takes O(d^2), independent of t.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.estimation import Estimator, OnlineNewtonEstimator
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.optimism import LinearIndexPolicy
from windvane.policies.sampling import SamplingPolicy
from windvane.theory import OnlineToConfidenceRadius


class OnlinePolicy(LinearIndexPolicy):
    """A policy whose estimate uses each reward once, with a radius that the estimate adds up."""

    is_one_pass: ClassVar[bool] = True

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        """Return a ``lam`` that weighs as much beside sums of x x' as before."""
        return {"lam": scale**2 * self.given_lam()} if scale != 1.0 or self.lam is None else {}


class GLOC(OnlinePolicy):
    """GLOC (Jun et al. 2017): an online Newton step, and a bonus at a constant cost per round."""

    link: str | Link = field(default="logistic", kw_only=False)
    estimator: OnlineNewtonEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = OnlineNewtonEstimator
    takes_prior: ClassVar[bool] = False  # theta_hat follows predictions, so it does not become what rewards say
    name = "GLOC"
    card = Card(
        "generalized linear", "none", "nothing", "(k_mu/c_mu) d T^(1/2), theta* fixed", "jun2017",
        "O((K + d) d^2)",
    )  # fmt: skip

    def build_radius(self) -> OnlineToConfidenceRadius:
        settings = self.pick_settings("S", "sigma") | {"lam": self.estimator.lam, "c_mu": self.constants.c_mu}
        return OnlineToConfidenceRadius(delta=self.levels, **settings)

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the root of the beta_t of the paper, [lanes]."""
        record = self.estimator.record
        return np.asarray(np.sqrt(self.radius(record["regret"], record["misfit"])))


class GLOCTS(SamplingPolicy, GLOC):
    """GLOC-TS (Jun et al. 2017): Thompson sampling with the confidence set of GLOC. The paper has a = 1."""

    bonus_scale: npt.ArrayLike = field(default=1.0, init=False)
    name = "GLOC-TS"
    card = GLOC.card._replace(guarantee="(k_mu/c_mu) d^(3/2) T^(1/2), theta* fixed")

    def choose_scale(self, theta_hat: Array) -> Array:
        """Return a sqrt(beta_t), [lanes]."""
        return np.asarray(self.posterior_scales * self.compute_beta(theta_hat))
