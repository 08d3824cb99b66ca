"""The online Newton step of GLOC, and ridge regression on its predictions.

An online learner has the iterate theta_s and the matrix V, which starts as lam I. For an observation (x_s, r_s) with
z_s = <x_s, theta_s>, g_s = mu(z_s) - r_s and the new V = V_s,

    theta_{s+1} = argmin over ||theta|| <= S of ||theta - theta_s + (g_s / c_mu) V_s^-1 x_s|| in the metric V_s

From its predictions, and not from the rewards, the estimate is theta_hat = V^-1 sum z_s x_s. So the whole state is
theta, V, sum z_s x_s and two numbers that a radius needs,

    regret = sum g_s^2 ||x_s||^2 in V_s^-1
    misfit = sum z_s^2 - <theta_hat, sum z_s x_s> = the smallest value of sum (z_s - <x_s, theta>)^2 + lam ||theta||^2

The second one is a difference of growing numbers. It is summed as (1 - h_s) (z_s - <x_s, theta_hat_s>)^2, with h_s =
||x_s||^2 in V_s^-1 and the theta_hat_s before the observation, which is the same (recursive least squares) without loss
of digits. An observation of weight w enters V, sum z_s x_s and misfit with this weight, and its g_s counts w times.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from windvane.arguments import NORM_SLACK, Array, Mask
from windvane.documentation import documented
from windvane.estimation.base import Estimator, check_finite
from windvane.estimation.forgetting import Forgetting, Never
from windvane.kernels.history import observe_lanes
from windvane.kernels.lanes import ITERATE
from windvane.kernels.root import solve_ridge_lanes
from windvane.state import CoordinateChange, State, refuse


@documented
class OnlineNewtonEstimator(Estimator):
    """The iterate theta, V and theta_hat of ``lanes`` independent lanes (notation: see the module docstring).

    Parameters
    ----------
    forgetting
        ``Never()``.
    lam
        Regularisation: V starts as lam I.

    >>> estimator = OnlineNewtonEstimator(2, "logistic")
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.iterate.round(3), estimator.solve()  # its first prediction was z = 0
    (array([[1., 0.]]), array([[0., 0.]]))
    """

    kinds: ClassVar[tuple[type[Forgetting], ...]] = (Never,)
    stored: ClassVar[tuple[str, ...]] = (*Estimator.stored, "regret", "misfit")

    @property
    def iterate(self) -> Array:
        """The iterate theta of the online learner, [lanes, dim], as a view."""
        return self.dense[:, ITERATE]

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            if self.link.code < 0:  # a custom link may raise, which must happen before any lane learns
                check_finite(self.link, self.link.mean(np.einsum("ld,ld->l", x, self.iterate)[mask]))
            response = np.empty(self.lanes)
            solve_ridge_lanes(self.record, self.dense, self.work)
            self.kernels.newton_lanes(x, reward, weight, mask, self.record, self.dense, self.work, response)
            observe_lanes(x, response, age, weight, mask, self.record, self.dense, self.history)

    def map_fields(self, successor: Any, change: CoordinateChange) -> State:
        """Return the state of an estimator that has seen the same observations in other coordinates."""
        fields = super().map_fields(successor, change)
        fields["dense"][:, ITERATE] = change.move(self.iterate, 1.0 / change.scale)
        return fields

    def check_fields(self, fields: State, path: str) -> None:
        """Also raise ``ArgumentError`` for an iterate outside the ball, or a negative regret or misfit."""
        super().check_fields(fields, path)
        iterate = fields["dense"][:, ITERATE]
        if not (np.linalg.norm(iterate, axis=1) <= self.S * NORM_SLACK).all():
            raise refuse(path, "dense", iterate, f"with an iterate of norm at most S={self.S:g}")
        for name in ("regret", "misfit"):
            if not (fields[name] >= 0.0).all():
                raise refuse(path, name, fields[name], "at least 0")
