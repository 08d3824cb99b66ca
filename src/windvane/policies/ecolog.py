"""ECOLogUCB: a logistic bandit with local curvature at a constant cost per round. The algorithm is our own.

Its step is that of ECOLog (Faury, Abeille, Jun and Calauzenes, "Jointly efficient and optimal algorithms for logistic
bandits", AISTATS 2022, Procedure 2), and its confidence set is new. With k = 1 + S L, the loss l(z, r) =
log(1 + e^z) - r z, and l_s(theta, r) = l(<x_s, theta>, r), theta_1 = 0 and W_1 = lam I,

    m_s(r)      = min over ||theta|| <= S of l_s(theta, r) + ||theta - theta_s||^2 / (2 k) in the metric W_s
    theta_{s+1} = the minimiser for the reward, r = r_s
    W_{s+1}     = W_s + mu'(<x_s, theta_{s+1}>) x_s x_s'
    rho_t       = lam S^2 + 2 k log(1/delta) + 2 k sum over s < t of log(exp(-m_s(0)) + exp(-m_s(1)))
    x_t         = argmax over the arms of <x, theta_t> + sqrt(rho_t) ||x|| in the metric W_t^-1

For a reward between 0 and 1, the sum also has (1 - r) m_s(0) + r m_s(1) - m_s(r), which is at most 0.

**Guarantee.** Let rewards be in [0, 1] with the mean mu(<x_s, theta*>) given the past, and let ||theta*|| <= S and
||x_s|| <= L. For arbitrary arms and any lam, with probability 1 - delta, ||theta_t - theta*||^2 <= rho_t in the metric
W_t at all rounds at once. Proof:

1. p_s(r) = exp(-m_s(r)) / (exp(-m_s(0)) + exp(-m_s(1))) predicts r_s from the past. Let q_s(r) be its log loss,
   -(1 - r) log p_s(0) - r log p_s(1). exp(l_s(theta*, r) - q_s(r)) is convex in r, so its mean is at most that of a
   reward in {0, 1} with the same mean: (1 - mu) p_s(0) / (1 - mu) + mu p_s(1) / mu = 1. By Ville's inequality, with
   probability 1 - delta, at all rounds sum l_s(theta*, r_s) <= sum q_s(r_s) + log(1/delta).
2. |mu''| <= mu' implies l(u, r) >= l(z, r) + (mu(z) - r) (u - z) + mu'(z) (u - z)^2 / (2 + |u - z|), and |u - z| <=
   2 S L if u and z are values of <x, theta> in the ball. Take z for theta_{s+1} and u for theta*, use that theta_{s+1}
   is a minimum over a convex set that contains theta*, multiply by 2 k = 2 + 2 S L, and complete the squares:

       ||theta_{s+1} - theta*||^2 in W_{s+1} <= ||theta_s - theta*||^2 in W_s + 2 k (l_s(theta*, r_s) - m_s(r_s)).
3. Add 2 over s < t. The first square is at most lam S^2. The claim follows with 1, because q_s(r) - m_s(r) is
   log(exp(-m_s(0)) + exp(-m_s(1))) for r = 0 and r = 1.

**Regret**, if lam >= k L^2 (the default is k L^2). Let A = d log(1 + T L^2 / (4 d lam)), w_t = ||x_t|| in W_t^-1, and
let x*_t be the best arm. A step moves <x_s, theta> by at most k w_s^2 <= 1, so the logarithm in rho is at most 1.8 k
mu'(<x_s, theta_{s+1}>) w_s^2, and rho_T <= lam S^2 + 2 k log(1/delta) + 7.2 k^2 A. By optimism, <x*_t - x_t, theta*> <=
2 sqrt(rho_t) w_t. mu'(<x_t, theta*>) is at most 2 mu'(<x_t, theta_{t+1}>), or else at most 0.2 sqrt(rho_T) w_t.
Further, sum mu'(<x_t, theta_{t+1}>) w_t^2 <= 2 A, sum w_t^2 <= 2 A / c_mu, and sum mu'(<x_t, theta*>) <= sum mu'(<x*_t,
theta*>) + R_T. Together, with probability 1 - delta and up to a universal constant,

    R_T <= sqrt(rho_T A sum mu'(<x*_t, theta*>)) + rho_T A / c_mu.

So the order is S d sqrt(sum mu'(<x*_t, theta*>)) log T, and the second term has no sqrt(T). This is the order of
ada-OFU-ECOLog (:mod:`windvane.policies.ada_ofu_ecolog`), with S^2 instead of S^6 in the second term, for any sequence
of sets of arms. No reward is rejected, and there is no warm-up.

**Not covered**: drift; an S that is too small; a reward of weight above 1, or whose weight depends on it; delays that
depend on the rewards; a ``bonus_scale`` other than 1. A reward of weight w has w times the loss. p_s has exp(-m_s / w),
and the logarithm counts w times.

**What is uncertain**: the proofs are ours and were not reviewed by others. The tests check the coverage, and step 2 on
arbitrary rewards.

Cost per round and lane: O(K d^2) for the arms and O(d^3) for two steps, each a few scalar equations solved to rounding
(:mod:`windvane.kernels.online`). The state takes O(d^2), independent of t.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from windvane.arguments import Array, check_positive
from windvane.estimation import ECOLogEstimator, Estimator
from windvane.links import Link, Logistic
from windvane.policies.base import Card
from windvane.policies.gloc import OnlinePolicy

ORDER = "S d (sum mu'(<x*, theta*>))^(1/2) + {} d^2 / c_mu, theta* fixed"


class ECOLogPolicy(OnlinePolicy):
    """A policy for rewards in [0, 1] with the logistic link whose estimate takes steps of ECOLog.

    Parameters
    ----------
    link
        "logistic": the rule is for this link only.
    """

    link: str | Link = field(default="logistic", kw_only=False)
    sigma: float = field(default=0.5, init=False)  # rewards are in [0, 1]
    links: ClassVar[tuple[type[Link], ...]] = (Logistic,)
    estimator: ECOLogEstimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = ECOLogEstimator


class ECOLogUCB(ECOLogPolicy):
    """ECOLogUCB (ours): the step of ECOLog with a radius from the data.

    Parameters
    ----------
    lam
        Regularisation: W starts as lam I. Default: (1 + S L) L^2.
    """

    lam: float | None = None
    name = "ECOLogUCB"
    card = Card("generalized linear", "none", "nothing", ORDER.format("S^2"), "windvane", "O((K + d) d^2)")

    def recommend_lam(self) -> float:
        return (1.0 + check_positive("S", self.S) * self.L) * self.L**2

    def build_radius(self) -> Array:
        """Return log(1/delta), [lanes]."""
        return np.asarray(-np.log(self.levels))

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the root of rho_t, [lanes]."""
        k, e = 1.0 + self.S * self.L, self.estimator
        return np.asarray(np.sqrt(np.maximum(e.lam * self.S**2 + 2.0 * k * (self.radius + e.regret), 0.0)))
