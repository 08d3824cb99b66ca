"""BOF-UCB: D-LinUCB as sequential Bayesian inference, whose penalty for the prior shrinks as data arrive.

Werge, Akgul and Kandemir, "BOF-UCB: A Bayesian-optimistic frequentist algorithm for non-stationary contextual bandits"
(arXiv:2307.03587, version 1, 2023), the first version of Werge, Wu, Akgul and Kandemir, "Weighted sequential Bayesian
inference for non-stationary linear contextual bandits" (UAI 2026). The posterior of theta is N(mu_t, Sigma_t), with the
prior N(0, I / lam), unit noise, and a discount that also renews the prior:

    Sigma_t^-1       = gamma   Sigma_{t-1}^-1       + x x' + (1 - gamma)   lam I                  (= V_t)
    Sigma_tilde_t^-1 = gamma^2 Sigma_tilde_{t-1}^-1 + x x' + (1 - gamma^2) lam I                  (= V_tilde_t)
    mu_t             = Sigma_t (gamma Sigma_{t-1}^-1 mu_{t-1} + r x)                              (= theta_hat_t)
    x_t              = argmax over the arms of <x, mu_t> + bonus_scale beta_t ||x|| in Sigma_t Sigma_tilde_t^-1 Sigma_t
    beta_t           = lam S sqrt(lambda_max(Sigma_tilde_t))
                       + sigma sqrt(2 log(1/delta) + d log(1 + L^2 (1 - gamma^{2(t-1)}) / (lam d (1 - gamma^2))))

So this is D-LinUCB (:mod:`windvane.policies.linear`) with lam S sqrt(lambda_max(V_tilde^-1)) in place of sqrt(lam) S,
which is never more, and less once there are data in all directions.

Guarantee: unknown. The abstract of the UAI version says that its bounds match those of weighted least squares; we could
not check them, nor which of them hold for this first version.

What is uncertain: we had only the authors' lab code (adinrl, class BOFUCBHead), not the full text. The code differs
from the above in three details. Its penalty is the norm of Sigma_0^-1 S (1, ..., 1)' in the metric Sigma_tilde_t, which
is neither an upper nor a lower bound of ||Sigma_0^-1 theta|| for ||theta|| <= S; the one above is the smallest that
holds for all such theta. Its logarithm has the trace of the prior covariance, d / lam, where 1 / lam suffices. And it
adds 0.001 I before every inversion. We do not claim the name of the UAI version, WSB-LinUCB, because we did not have
its rule.

Choices that are ours: the recommended discount is that of D-LinUCB. The prior mean is 0 and the prior covariance a
multiple of the identity.

Cost per round and lane: O((K + d) d^2).
"""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array
from windvane.policies.linear import DLinUCB
from windvane.theory import ConfidenceLevel, Growth


class BOFUCB(DLinUCB):
    """BOF-UCB (Werge et al.). Pass ``gamma``, or ``horizon`` and ``drift`` for the discount of D-LinUCB."""

    name = "BOF-UCB"
    card = DLinUCB.card._replace(guarantee="claimed, not checked", reference="werge2026")

    def build_radius(self) -> ConfidenceLevel:
        e = self.estimator
        self.growth = Growth(e.L**2 / (e.lam * e.dim), e.gamma)
        return ConfidenceLevel(self.levels, self.confidence, self.horizon)

    def compute_beta(self, theta_hat: Array) -> Array:
        e, t = self.estimator, self.rounds_since_restart
        penalty = e.lam * e.S / np.sqrt(np.linalg.eigvalsh(e.V_tilde)[:, 0])
        noise = 2.0 * self.radius.log_inverse(t) + e.dim * np.log1p(self.growth(t - 1.0))
        return np.asarray(penalty + self.sigma * np.sqrt(noise))
