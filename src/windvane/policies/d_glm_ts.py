"""D-GLM-TS: Thompson sampling for generalized linear bandits with a discount.

This is not the algorithm of a single paper. It combines Thompson sampling on a Laplace approximation (Chapelle and Li
2011) with a discount, as practitioners do for clicks under drift. At round t, with the weight gamma^(t-1-s) for the
reward of round s,

    theta_hat_t   = the root of g_t(theta) = b_t                         (the mode of the discounted posterior)
    theta_tilde_t ~ N(theta_hat_t, a^2 H_t(theta_hat_t)^-1)              (its Laplace approximation, a = 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>)

``posterior_scale`` is a. The prior is N(0, I / (lam c_mu)). The likelihood is exp(sum w_s (r_s z_s - B(z_s))) with z_s
= <x_s, theta> and B' = mu: the canonical exponential family with unit dispersion. This is the true likelihood of
Bernoulli rewards with the logistic link and of Poisson counts. For probit, and for rewards of another dispersion, it is
a quasi-likelihood. For the identity link it assumes noise of variance 1, so a = sigma is the right scale there.

The default of gamma is that of BVD-GLM-UCB. We do not know whether it is the best one here.
:meth:`DGLMTS.probabilities` estimates the probability of each arm by Monte Carlo, for off-policy evaluation.

Guarantee: none. (There are analyses for a stationary parameter and a larger a, but not for this policy.)

Cost per round and lane: one or two passes over the stored history for theta_hat and one for H, O(n d^2); O(K d) for the
arms.
"""

from __future__ import annotations

from windvane.arguments import Array
from windvane.linalg import cholesky, solve
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import LikelihoodPolicy
from windvane.policies.sampling import SamplingPolicy


class DGLMTS(LikelihoodPolicy, SamplingPolicy, DiscountedPolicy):
    """D-GLM-TS. Give ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB.

    Examples
    --------
    >>> DGLMTS(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    name = "D-GLM-TS"
    card = Card("generalized linear", "discount", "T, B_T", "none", "Chapelle and Li 2011", "O(K d + memory d^2)")

    def spread(self, theta_hat: Array, z: Array) -> Array:
        """Return C'^-1 z with C C' = H(theta_hat)."""
        C = cholesky(self.estimator.moments(theta_hat)[1])
        return solve(C.transpose(0, 2, 1), z.transpose(0, 2, 1)).transpose(0, 2, 1)
