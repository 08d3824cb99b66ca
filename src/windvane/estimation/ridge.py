"""Weighted ridge regression, theta_hat = V^-1 b: the estimator of linear policies (notation: :mod:`.mle`)."""

from __future__ import annotations

from windvane.arguments import Array, Mask
from windvane.documentation import documented
from windvane.estimation.base import Estimator
from windvane.estimation.forgetting import NEVER, Forgetting
from windvane.kernels.history import observe_lanes


@documented
class RidgeEstimator(Estimator):
    """V, V_tilde, b and theta_hat = V^-1 b of ``lanes`` independent lanes.

    Observations are stored only with a window. They are subtracted from the sums when they leave it.

    >>> estimator = RidgeEstimator(2)
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve()
    array([[0.5, 0. ]])
    """

    def __init__(
        self, dim: int, *, forgetting: Forgetting = NEVER, S: float = 1.0, L: float = 1.0, lam: float = 1.0,
        lanes: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(dim, "identity", forgetting=forgetting, S=S, L=L, lam=lam, lanes=lanes)

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments have been checked."""
        with self.lock:
            self.make_room()
            observe_lanes(x, reward, age, weight, mask, self.record, self.dense, self.history)
