"""The estimate of ECOLog for the logistic link, and the maximum likelihood of the rewards that ada-OFU-ECOLog rejects.

Faury, Abeille, Jun and Calauzenes (2022). With k = 1 + S L and the loss l(z, r) = log(1 + e^z) - r z, an observation
(x, r) moves the estimate and adds to the matrix W (here ``V``), which starts as lam I,

    theta+ = argmin over ||theta|| <= S of l(<x, theta>, r) + ||theta - theta_t||^2 / (2 k) in the metric W
    W+     = W + mu'(<x, theta+>) x x'

The steps are solved to rounding (:mod:`windvane.kernels.online`), where the paper allows an error of 1/t. An
observation of weight w has w times this loss, and adds w times this matrix.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from windvane.arguments import NORM_SLACK, Array, Mask
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.estimation.base import Estimator
from windvane.estimation.forgetting import NEVER, Forgetting, Never
from windvane.estimation.mle import MaximumLikelihoodEstimator
from windvane.kernels.ecolog import ecolog_lanes, ecolog_or_reject_lanes
from windvane.kernels.elementary import LOGISTIC
from windvane.kernels.history import observe_lanes
from windvane.kernels.lanes import FRESH, LOST, THETA_HAT
from windvane.links import Link
from windvane.state import State, refuse


@documented
class ECOLogEstimator(Estimator):
    """theta and W of ``lanes`` independent lanes (notation: see the module docstring).

    ``regret`` of a lane, which :meth:`absorb` sums, is what the radius of :class:`windvane.ECOLogUCB` needs.

    Parameters
    ----------
    link
        The logistic link.
    forgetting
        ``Never()``.
    lam
        Regularisation: W starts as lam I.

    >>> estimator = ECOLogEstimator(2)
    >>> estimator.observe([[1.0, 0.0]], 1.0)
    >>> estimator.solve().round(3)
    array([[0.675, 0.   ]])
    """

    kinds: ClassVar[tuple[type[Forgetting], ...]] = (Never,)
    stored: ClassVar[tuple[str, ...]] = (*Estimator.stored, "regret")

    def __init__(
        self, dim: int, link: str | Link = "logistic", *, forgetting: Forgetting = NEVER, S: float = 1.0,
        L: float = 1.0, lam: float = 1.0, lanes: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(dim, link, forgetting=forgetting, S=S, L=L, lam=lam, lanes=lanes)
        if self.link.code != LOGISTIC:
            raise ArgumentError("link", link, '"logistic", which is what the step and its analysis are for')
        self.ridge = self.lam / (1.0 + self.S * self.L)  # of the first step, W = lam I

    @property
    def regret(self) -> Array:
        """The sum of what the radius adds for each observation, without the factor 2 k, [lanes]."""
        return self.record["regret"].copy()

    def solve(self) -> Array:
        """Return a copy of theta, [lanes, dim]."""
        with self.lock:
            self.record["status"] = FRESH
            return self.dense[:, THETA_HAT].copy()

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            slope = np.empty(self.lanes)
            ecolog_lanes(x, reward, weight, mask, self.record, self.dense, self.work, slope)
            self.add_curvature(x, age, weight * slope, mask)

    def absorb_or_reject(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask, sets: Array) -> Mask:
        """Learn the observations that satisfy the condition of ada-OFU-ECOLog, and return their lanes.

        ``sets[lanes, d + 2, d]`` are ellipsoids that estimates must lie in: center, shape, and the level in a row.
        """
        with self.lock:
            slope, accepted = np.empty(self.lanes), np.empty(self.lanes, dtype=bool)
            rows = (self.record, self.dense, self.work)
            ecolog_or_reject_lanes(x, reward, weight, mask, sets, *rows, slope, accepted)
            self.add_curvature(x, age, weight * slope, accepted)
            return accepted

    def add_curvature(self, x: Array, age: Array, curvature: Array, mask: Mask) -> None:
        """Add curvature x x' to W in the lanes of ``mask``."""
        observe_lanes(x, np.zeros(self.lanes), age, curvature, mask, self.record, self.dense, self.history)

    def check_fields(self, fields: State, path: str) -> None:
        """Also raise ``ArgumentError`` for a theta outside the ball."""
        super().check_fields(fields, path)
        theta = fields["dense"][:, THETA_HAT]
        if not (np.linalg.norm(theta, axis=1) <= self.S * NORM_SLACK).all():
            raise refuse(path, "dense", theta, f"with an estimate of norm at most S={self.S:g}")


@documented
class RejectedRewards(MaximumLikelihoodEstimator):
    """A maximum-likelihood estimate whose ridge can change, for the set of parameters that rejected rewards leave.

    >>> rewards = RejectedRewards(1, lanes=2)
    >>> rewards.observe([[1.0], [1.0]], 1.0)
    >>> rewards.change_ridge(np.array([0.5, 9.0]), np.array([True, True]))
    >>> rewards.solve().round(3)
    array([[0.675],
           [0.054]])
    """

    stored: ClassVar[tuple[str, ...]] = (*MaximumLikelihoodEstimator.stored, "ridge")

    def change_ridge(self, ridge: Array, mask: Mask) -> None:
        """Use another coefficient of theta in g in the lanes of ``mask``."""
        with self.lock:
            self.record["ridge"][mask] = ridge[mask]
            self.record["status"][mask] = LOST

    def check_fields(self, fields: State, path: str) -> None:
        """Also raise ``ArgumentError`` for a ridge that is not positive."""
        if not (fields["ridge"] > 0.0).all():
            raise refuse(path, "ridge", fields["ridge"], "above 0")
        super().check_fields(fields, path)
