"""D-GLM-TS: Thompson sampling for generalized linear bandits with a discount.

Not from one paper: Thompson sampling on a Laplace approximation (Chapelle and Li 2011) with the past discounted is what
people use for clicks that drift. At round t, with weights gamma^(t-1-s) on the past,

    theta_hat_t   = the root of g_t(theta) = b_t                         (the mode of the discounted posterior)
    theta_tilde_t ~ N(theta_hat_t, a^2 H_t(theta_hat_t)^-1)              (its Laplace approximation, a = 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>)

The posterior is that of the prior N(0, I / (lam c_mu)) and of the likelihood exp(sum w_s (r_s z_s - b(z_s))), z_s =
<x_s, theta>, b a primitive of mu: the canonical exponential family with unit dispersion. That is the true likelihood of
Bernoulli rewards with the logistic link and of Poisson counts; for probit, and for rewards spread otherwise, it is a
quasi-likelihood. For the identity link it supposes noise of variance 1: a = sigma is then the right scale.
``posterior_scale`` is a.

gamma, where not given, is that of BVD-GLM-UCB; nothing says that it is best here. :meth:`DGLMTS.probabilities` estimates
by Monte Carlo how likely each arm is to be chosen, for off-policy evaluation.

Guarantee: none. (For a stationary parameter and a larger a there are analyses of such sampling; not for this.)

Cost per round and lane: one or two passes over the remembered history for theta_hat, one for H, O(n d^2); O(K d) for
the arms.
"""

from __future__ import annotations

from dataclasses import field

from windvane.arguments import Array
from windvane.estimation import MaximumLikelihoodEstimator
from windvane.linalg import cholesky, solve
from windvane.links import Link, get_link
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.sampling import SamplingPolicy


class DGLMTS(SamplingPolicy, DiscountedPolicy):
    """D-GLM-TS. Give ``gamma``, or ``horizon`` and ``drift`` for the discount of BVD-GLM-UCB.

    Parameters
    ----------
    link
        Name of a link ("logistic", "poisson", "probit", "identity"), or a :class:`windvane.Link`.
    tolerance
        Bound on what dropping old observations may do to theta_hat.

    Examples
    --------
    >>> DGLMTS(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    link: str | Link = field(default="logistic", kw_only=False)
    tolerance: float = 1e-6

    estimator: MaximumLikelihoodEstimator = field(init=False)

    name = "D-GLM-TS"
    card = Card("generalized linear", "discount", "T, B_T", "none", "Chapelle and Li 2011", "O(K d + memory d^2)")

    def __post_init__(self) -> None:
        self.link = get_link(self.link)
        super().__post_init__()
        self.estimator = MaximumLikelihoodEstimator(
            self.dim,
            self.link,
            forgetting=self.choose_discount(),
            S=self.S,
            L=self.L,
            lam=self.choose_lam(),
            lanes=self.lane_count,
            tolerance=self.tolerance,
        )

    def spread(self, theta_hat: Array, z: Array) -> Array:
        """Return C'^-1 z with C C' = H(theta_hat)."""
        C = cholesky(self.estimator.moments(theta_hat)[1])
        return solve(C.transpose(0, 2, 1), z)
