"""Diagnostics: the typed objects that ``policy.info()`` returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.projection import Projection


@dataclass(init=False)  # one is created in every round, so policies set only the fields that they use
class DecisionInfo:
    """How a decision was made. Arrays have one row per lane. Fields that a policy does not use are None.

    Attributes
    ----------
    scores
        Index of every arm; an arm with the largest index was played. None after ``select_from``.
    means
        Predicted part of the scores, mu(<x, theta>). The rest is the bonus.
    theta_hat, theta_tilde
        The estimate, and the parameter that was used for predictions.
    beta
        Confidence radius.
    projection
        Projection of theta_hat, with its stage, value and residual (:mod:`windvane.projection`).
    multiplier
        Factor of ||x|| in the bonus.
    draw
        Random factor of the bonus (D-RandLinUCB).
    chosen
        Forgetting parameter of the acting worker (bandits over bandits), or index of the acting memory
        (AdaptiveGLMUCB).
    """

    scores: Array | None = None
    means: Array | None = None
    theta_hat: Array | None = None
    theta_tilde: Array | None = None
    beta: Array | None = None
    projection: Projection | None = None
    multiplier: Array | None = None
    draw: Array | None = None
    chosen: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class PolicyInfo:
    """The diagnostics of a policy. Arrays have one row per lane. Fields that a policy does not use are None.

    Attributes
    ----------
    t, decisions
        Round to be decided next; number of decisions so far.
    decision
        How the last decision was made. None before the first decision and after a state was loaded.
    theta_hat, theta_tilde
        The current estimate, and the parameter that a decision would use for predictions now.
    metric
        M such that ||x||_{M^-1} measures the uncertainty along x: V, or the curvature H of a one-pass estimate.
    squared_metric
        The counterpart with squared weights: V_tilde.
    b
        Weighted sum of rewards times features.
    gamma
        Discount; 1 without a discount.
    memory
        Age in rounds beyond which an observation can be dropped.
    remembered
        Number of observations in the history.
    root_passes, root_error, truncation_error
        Cost and accuracy of theta_hat (:class:`windvane.estimation.MaximumLikelihoodEstimator`).

    Examples
    --------
    >>> import windvane
    >>> policy = windvane.DLinUCB(dim=2, gamma=0.99)
    >>> policy.info().theta_hat
    array([[0., 0.]])
    """

    t: float
    decisions: int
    decision: DecisionInfo | None = None
    theta_hat: Array | None = None
    theta_tilde: Array | None = None
    metric: Array | None = None
    squared_metric: Array | None = None
    b: Array | None = None
    gamma: Array | None = None
    memory: Array | None = None
    remembered: Index | None = None
    root_passes: Index | None = None
    root_error: Array | None = None
    truncation_error: Array | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, by name. The field ``decision`` is a dict of the same kind."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        if self.decision is not None:
            known["decision"] = {name: value for name, value in vars(self.decision).items() if value is not None}
        return known


def join_lanes(infos: list[Any]) -> Any:
    """Join the diagnostics of single lanes. Arrays are concatenated; other values are those of the first lane."""
    joined: dict[str, Any] = {}
    for field in dataclasses.fields(infos[0]):
        values = [getattr(info, field.name) for info in infos]
        if isinstance(values[0], np.ndarray):
            joined[field.name] = np.concatenate(values)
        elif dataclasses.is_dataclass(values[0]):
            joined[field.name] = join_lanes(values)
        else:
            joined[field.name] = values[0]
    result = object.__new__(type(infos[0]))
    vars(result).update(joined)
    return result
