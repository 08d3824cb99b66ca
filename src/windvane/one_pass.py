"""A discounted maximum-likelihood estimate from one look at each observation: constant time and memory.

The losses w_s (b(<x_s, theta>) - r_s <x_s, theta>), b a primitive of mu, plus ridge ||theta||^2 / 2 are what theta_hat
of :mod:`windvane.estimation` minimises, and that needs all of them. Here each is replaced, when it comes in, by a
quadratic that touches it; of a sum of quadratics

    V = sum w_s s_s x_s x_s' + ridge I,    b = sum w_s s_s y_s x_s,    theta = V^-1 b

is all there is to keep. An observation of weight w first moves theta to the minimiser of its own loss and the quadratic
so far, theta+ = argmin w loss(theta) + ||theta - theta_t||_V^2 / 2 (an implicit or proximal step; a scalar equation in
z = <x, theta+>, solved to rounding), and is then held as the quadratic with slope s = mu'(z) at that point,

    y = z + (r - mu(z)) / s,

which leaves theta+ where it is. Where mu'(z) is below c_mu, which no admissible parameter allows, s = c_mu.

For the identity link s = 1, y = r, and theta is discounted ridge regression exactly. For others it differs from
theta_hat by what the losses curve between where they were touched and where theta is now: it is not the maximum
likelihood estimate, and it depends on the order in which rewards come in. A late reward enters with the weight of its
age, but touches its loss at the parameter of now; weight two is not quite the same observation twice.

As a mirror descent: with the step size 1, ||theta - theta_t||^2 in the metric of the discounted Hessian, and the new
loss kept whole rather than linearised.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane.arguments import Array, check_positive
from windvane.estimation import DiscountedEstimator
from windvane.links import Link, get_link


class OnePassEstimator(DiscountedEstimator):
    """V, b and theta as above, on the linear estimator: it is fed (x, y) with weights w s, and remembers nothing."""

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike = 1.0,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        lanes: int = 1,
    ) -> None:
        link = get_link(link)
        constants = link.constants(S, L)
        ridge = check_positive("lam", lam) * constants.c_mu
        super().__init__(dim, "identity", gamma=gamma, S=S, L=L, lam=ridge, lanes=lanes, remember=False)
        self.link, self.constants, self._k = link, constants, kernels.load(link)

    def _take(
        self, x: Array, reward: Array, decided: Array, now: float, weight: Array, mask: npt.NDArray[np.bool_]
    ) -> None:
        with self._lock:
            slope, response = np.empty(self.lanes), np.empty(self.lanes)
            self._k.working_lanes(
                self.link.code,
                self.constants.c_mu,
                self._gamma,
                x,
                reward,
                decided,
                now,
                weight,
                mask,
                self._V,
                self.solve(),
                slope,
                response,
            )
            super()._take(x, response, decided, now, weight * slope, mask)
