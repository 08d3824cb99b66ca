"""A discounted estimate that uses each observation once, in constant time and memory.

theta_hat of :mod:`windvane.estimation.mle` minimises the sum of the losses w_s (B(<x_s, theta>) - r_s <x_s, theta>),
with B' = mu, plus ridge ||theta||^2 / 2. This needs all observations. Here each loss is replaced, when its observation
arrives, by a quadratic that touches it. Then

    H = sum w_s s_s x_s x_s' + ridge I,    c = sum w_s s_s y_s x_s,    theta_hat = H^-1 c

is the whole state. An observation of weight w first moves theta to the minimiser of its own loss plus the quadratic so
far, theta+ = argmin w loss(theta) + ||theta - theta_t||_H^2 / 2. This implicit (proximal) step is a scalar equation in
z = <x, theta+>, solved to rounding. The loss is then replaced by the quadratic with slope s = mu'(z) at that point,

    y = z + (r - mu(z)) / s,

which leaves theta+ unchanged. If mu'(z) is below c_mu, which no admissible parameter allows, s = c_mu.

For the identity link s = 1 and y = r, and theta_hat is exactly discounted ridge regression. For other links theta_hat
differs from the maximum-likelihood estimate, because each quadratic matches its loss only near the point where it was
formed, and it depends on the order in which rewards arrive. A late reward enters with the weight of its age, but its
quadratic is formed at the current parameter. One observation of weight two is not exactly the same as two equal
observations.

In terms of mirror descent: the step size is 1, the metric is the discounted Hessian, and the step uses the new loss
itself instead of its linearisation.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import Array, Mask
from windvane.documentation import documented
from windvane.estimation.base import Estimator, check_finite
from windvane.estimation.forgetting import Discount, Forgetting, Never
from windvane.kernels.history import observe_lanes
from windvane.kernels.root import solve_ridge_lanes


@documented
class OnePassEstimator(Estimator):
    """H, its counterpart with squared weights, and theta_hat of ``lanes`` independent lanes (notation: see the module).

    Here ``V`` and ``metric()`` are H, and ``V_tilde`` is the counterpart with squared weights.

    Parameters
    ----------
    forgetting
        ``Discount(gamma)`` or ``Never()``.
    lam
        Regularisation: H starts as ridge I with ridge = lam c_mu.

    >>> estimator = OnePassEstimator(2, "logistic", forgetting=Discount(0.99))
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve().round(3)
    array([[1.188, 0.   ]])
    """

    kinds: ClassVar[tuple[type[Forgetting], ...]] = (Discount, Never)  # a window would need stored observations
    has_curvature_metric: ClassVar[bool] = True

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            slope, response, work = np.empty(self.lanes), np.empty(self.lanes), self.work
            solve_ridge_lanes(self.record, self.dense, work)
            self.kernels.linearise_lanes(x, reward, age, weight, mask, self.record, self.dense, work, slope, response)
            if self.link.code < 0:
                check_finite(self.link, slope[mask], response[mask])
            observe_lanes(x, response, age, weight * slope, mask, self.record, self.dense, self.history)
