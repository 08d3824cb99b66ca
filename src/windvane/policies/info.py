"""What a policy tells about itself: the typed objects that ``policy.info()`` returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.projection import LaneProjections


@dataclass(init=False)  # policies set what they use: one is made in every round
class DecisionInfo:
    """How the last decision was made; arrays have one row per lane. What a policy does not use is None.

    Attributes
    ----------
    scores
        Index of every arm; the largest was played. None after ``select_from``.
    means
        What of the scores is prediction, mu(<x, theta>); the rest is bonus.
    theta_hat, theta_tilde
        The estimate, and the parameter that predictions were made with.
    beta
        Confidence radius.
    projection
        The projection of theta_hat (:mod:`windvane.projection`), with its stage, value and residual.
    multiplier
        Factor of ||x|| in the bonus.
    draw
        Random number that multiplied the bonus (D-RandLinUCB).
    chosen
        Forgetting parameter of the acting policy (bandits over bandits), or place of the acting memory.
    """

    scores: Array | None = None
    means: Array | None = None
    theta_hat: Array | None = None
    theta_tilde: Array | None = None
    beta: Array | None = None
    projection: LaneProjections | None = None
    multiplier: Array | None = None
    draw: Array | None = None
    chosen: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class PolicyInfo:
    """Where a policy stands; arrays have one row per lane.

    Attributes
    ----------
    t, decisions
        Round to be decided next; number of decisions so far.
    decision
        How the last decision was made; None before the first, and after a state was loaded.
    theta_hat, theta_tilde
        The estimate now, and the parameter that a decision made now would predict with.
    metric
        M such that ||x||_{M^-1} measures how little is known along x: V, or the curvature of a one-pass estimate.
    squared_metric
        The same with squared weights: V_tilde.
    b
        Weighted sum of rewards times features.
    gamma
        Discount (1 without one).
    memory
        Age in rounds beyond which an observation is forgotten.
    remembered
        Number of observations kept.
    root_passes, root_error, truncation_error
        How exact theta_hat is (:class:`windvane.estimation.MaximumLikelihoodEstimator`).
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
        """Return what is known, by name; the fields of the last decision under ``decision``."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        if self.decision is not None:
            known["decision"] = {name: value for name, value in vars(self.decision).items() if value is not None}
        return known


def join_lanes(infos: list[Any]) -> Any:
    """Return the infos of single lanes as one of all: arrays one after the other, anything else of the first."""
    joined: dict[str, Any] = {}
    for field in dataclasses.fields(infos[0]):
        values = [getattr(info, field.name) for info in infos]
        if isinstance(values[0], LaneProjections):
            theta, report = (np.concatenate([getattr(v, part) for v in values]) for part in ("theta", "report"))
            joined[field.name] = LaneProjections(theta, report)
        elif isinstance(values[0], np.ndarray):
            joined[field.name] = np.concatenate(values)
        elif dataclasses.is_dataclass(values[0]):
            joined[field.name] = join_lanes(values)
        else:
            joined[field.name] = values[0]
    result = object.__new__(type(infos[0]))
    vars(result).update(joined)
    return result
