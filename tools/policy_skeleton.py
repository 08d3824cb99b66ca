"""NAME: what it does, in a line. Copy this file, rename it, and make every line true (see CONTRIBUTING.md).

Authors, "Title" (venue, year), Algorithm n.

At round t:

    theta_hat_t = the root of g_t(theta) = b_t                             (the estimate)
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + bonus_scale beta_t(delta) ||x||_{V_t^-1}

=============  =================  =========================================================================
symbol         here               meaning
=============  =================  =========================================================================
gamma          ``gamma``          discount; from ``horizon`` (T) and ``drift`` (B_T) when not given
V, b           ``estimator``      see :mod:`windvane.estimation.mle`
beta_t(delta)  ``radius(t)``      confidence radius, :class:`windvane.theory.Radius`
=============  =================  =========================================================================

Guarantee: the theorem and its assumptions; and what it does not cover.
"""

from __future__ import annotations

import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import GLMPolicy


class Skeleton(GLMPolicy, DiscountedPolicy):
    """A discounted estimate with a bonus. Give ``gamma``, or ``horizon`` and ``drift`` for the recommended one.

    Examples
    --------
    >>> policy = Skeleton(dim=2, gamma=0.99)
    >>> policy.select([[[1.0, 0.0]]])
    array([0])
    """

    # Settings are annotated fields; the base classes bring dim, link, gamma, S, ... ``windvane/documentation.py``
    # describes those that mean the same everywhere; the docstring needs a section Parameters for the others.
    confidence: str = "pointwise"

    name = "skeleton"
    card = Card("generalized linear", "discount", "T, B_T", "none", "authors2025", "O((K + memory) d^2)")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t."""
        arms, valid = self.check_arms(arms, valid)
        theta_hat, multiplier = self.estimate()
        mean = self.predict(arms, theta_hat)
        bonus = self.bonus(arms, multiplier)
        return self.play(mean + bonus, valid, mean)

    def estimate(self) -> tuple[Array, Array]:
        """Return theta_hat_t, and what ||x||_{V_t^-1} is multiplied by in the bonus."""
        theta_hat = self.estimator.solve()
        beta = self.compute_beta(theta_hat)
        return self.record(theta_hat, beta, self.bonus_scales * beta)  # ``info()`` shows what is recorded
