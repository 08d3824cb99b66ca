"""Confidence sets by likelihood, and the maximum of <x, theta> over them (:mod:`windvane.kernels.level_set`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.estimation.base import shape_error
from windvane.estimation.expansion import SMALL
from windvane.estimation.mle import MaximumLikelihoodEstimator
from windvane.kernels.level_set import (
    CENTER,
    CENTER_AND_ROOT,
    CENTER_IN_BALL,
    LEVEL,
    LOWER,
    NOT_SOLVED,
    PASSES,
    PLAN,
    RESIDUAL,
    UPPER,
    center_lanes,
    maximise_lanes,
)
from windvane.kernels.threads import over_lanes

EVALUATIONS = 6  # approximate number of passes over the history for a center or an arm; decides whether to use threads


@dataclass(frozen=True)
class Maxima:
    """Bounds on max <x, theta> over the set, for every arm.

    Attributes
    ----------
    upper, lower
        Bounds, [lanes, K]. For an arm that can be the best they differ by at most 1e-9 <x, theta - center>, unless
        rounding prevents it.
    theta
        The point of the set with the lower bound, [lanes, K, dim].
    passes
        Passes over the history for each arm; -1 if the bounds of the screening showed that another arm is better.
    """

    upper: Array
    lower: Array
    theta: Array
    passes: Index


class LikelihoodSets:
    """{theta: ||theta|| <= S, loss(theta) - loss(theta_hat) <= level} for the present history of every lane.

    The loss is the negative log-likelihood + ridge ||theta||^2 / 2, with a ridge of its own. The link must be logistic,
    Poisson or identity. If the set is empty, which is possible if ||theta_hat|| > S, its center takes its place. In up
    to four dimensions, old observations are expanded where the estimator's certificate allows it at all points that a
    search meets.

    Attributes
    ----------
    theta_hat
        The minimiser of the loss, over all theta or over the ball, [lanes, dim].
    center
        The minimiser over the ball, [lanes, dim].
    level
        The largest loss(theta) - loss(center) in the set, [lanes].
    residual
        Decrease of the loss that another step towards the center would promise, [lanes].
    """

    def __init__(
        self, estimator: MaximumLikelihoodEstimator, *, level: Array, ridge: Array | float, is_hat_in_ball: bool
    ) -> None:
        n, d = estimator.lanes, estimator.dim
        if level.shape != (n,):
            raise shape_error("level", level, (n,))
        self.estimator, self.record, self.centers = estimator, estimator.record.copy(), np.empty((n, CENTER + 2 * d))
        self.record["beta"], self.record["ridge"] = level, ridge
        self._run(center_lanes, 1, (CENTER_IN_BALL if is_hat_in_ball else CENTER_AND_ROOT,), (self.centers,))
        self.theta_hat, self.center = self.centers[:, CENTER : CENTER + d], self.centers[:, CENTER + d :]
        self.level, self.residual = self.centers[:, LEVEL], self.centers[:, RESIDUAL]

    def _run(self, kernel: Any, programs: int, shared: tuple[Any, ...], rows: tuple[Any, ...]) -> None:
        e = self.estimator
        with e.lock:
            # In more dimensions, polynomials of lower degree rarely reach as far as the boundary of the set.
            expansions = e.expansions if e.dim <= SMALL else np.ascontiguousarray(e.expansions[..., :0])
            rows = (*rows, self.record, e.dense, e.history, expansions)
            cost = programs * EVALUATIONS * e.pass_cost
            over_lanes(kernel, cost, shared, rows, lambda number: e.workspace(number)[:2])

    def maximise(self, arms: Array, valid: Mask) -> Maxima:
        """Maximise <x, theta> for ``arms[lanes, K, dim]``, as far as needed to find the best of the valid arms."""
        n, K, d = arms.shape
        if n != self.estimator.lanes or d != self.estimator.dim:
            raise shape_error("arms", arms, (self.estimator.lanes, K, self.estimator.dim))
        plans = np.empty((n, K, PLAN + d))
        self._run(maximise_lanes, 2, (), (arms, valid, self.centers, plans))
        passes = np.where(plans[..., PASSES] == NOT_SOLVED, -1, plans[..., PASSES]).astype(np.int64)
        return Maxima(plans[..., UPPER], plans[..., LOWER], plans[..., PLAN:], passes)
