"""A discounted maximum-likelihood estimate from one look at each observation: constant time and memory.

The losses w_s (b(<x_s, theta>) - r_s <x_s, theta>), b a primitive of mu, plus ridge ||theta||^2 / 2 are what theta_hat
of :mod:`windvane.estimation.mle` minimises, and that needs all of them. Here each loss is replaced, when it comes in,
by a quadratic that touches it, so that

    H = sum w_s s_s x_s x_s' + ridge I,    c = sum w_s s_s y_s x_s,    theta_hat = H^-1 c

are all there is to keep. An observation of weight w first moves theta to the minimiser of its own loss and the
quadratic so far, theta+ = argmin w loss(theta) + ||theta - theta_t||_H^2 / 2 (an implicit or proximal step; a scalar
equation in z = <x, theta+>, solved to rounding), and is then held as the quadratic with slope s = mu'(z) at that point,

    y = z + (r - mu(z)) / s,

which leaves theta+ where it is. Where mu'(z) is below c_mu, which no admissible parameter allows, s = c_mu.

For the identity link s = 1, y = r, and theta_hat is discounted ridge regression exactly. For others it differs from the
maximum-likelihood estimate by what the losses curve between where they were touched and where theta is now, and it
depends on the order in which rewards come in. A late reward enters with the weight of its age, but touches its loss at
the parameter of now; weight two is not quite the same observation twice.

As a mirror descent: with the step size 1, ||theta - theta_t||^2 in the metric of the discounted Hessian, and the new
loss kept whole rather than linearised.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import Array, Mask
from windvane.estimation.base import QuadraticEstimator
from windvane.estimation.forgetting import Discount, Never
from windvane.kernels.history import observe_lanes
from windvane.kernels.root import solve_ridge_lanes
from windvane.links import Link


class OnePassEstimator(QuadraticEstimator):
    """H, its squared-weight companion and theta_hat of ``lanes`` independent streams (notation: see the module).

    Parameters
    ----------
    dim
        Number of features.
    link
        Name of a link, or a :class:`windvane.Link`.
    forgetting
        ``Discount(gamma)`` or ``Never()``.
    S, L
        Norm bounds of the parameter and of the arms.
    lam
        Regularisation, as in the other estimators: ``ridge`` = lam c_mu.
    lanes
        Number of lanes.

    Examples
    --------
    >>> from windvane.estimation import Discount, OnePassEstimator
    >>> estimator = OnePassEstimator(2, "logistic", forgetting=Discount(0.99))
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve().round(3)
    array([[1.203, 0.   ]])
    """

    allows_window: ClassVar[bool] = False  # observations are not kept, so none can be taken out again

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        forgetting: Discount | Never = Never(),  # noqa: B008  (frozen)
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        lanes: int = 1,
        tolerance: float = 1e-6,
    ) -> None:
        super().__init__(
            dim,
            link,
            forgetting=forgetting,
            S=S,
            L=L,
            lam=lam,
            lanes=lanes,
            tolerance=tolerance,
            linearised=False,
            remembers=False,
        )

    def initial_metric(self) -> float:
        """Return ridge: the metric is the curvature H, not V."""
        return self.ridge

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Take in one observation per lane, for arguments that have been checked."""
        with self.lock:
            slope, response, work = np.empty(self.lanes), np.empty(self.lanes), self.work
            solve_ridge_lanes(self.record, self.dense, work)
            self.kernels.linearise_lanes(x, reward, age, weight, mask, self.record, self.dense, work, slope, response)
            observe_lanes(x, response, age, weight * slope, mask, self.record, self.dense, self.history)
