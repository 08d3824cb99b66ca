"""Diagnostics: the typed objects that ``policy.info()`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.projection import Projection


@dataclass(init=False)  # one is created in every round, so policies set only the fields that they use
class DecisionInfo:
    """How a decision was made. Arrays have one row per lane. Fields that a policy does not use are None."""

    scores: Array | None = None  #: index of every arm; the largest was played. None after ``select_from``
    means: Array | None = None  #: predicted part of the scores, mu(<x, theta>). The rest is the bonus
    order: Array | None = None  #: what was maximised instead of the scores, where they are too coarse to order arms
    theta_hat: Array | None = None  #: the estimate
    theta_tilde: Array | None = None  #: the parameter that was used for predictions
    beta: Array | None = None  #: confidence radius
    projection: Projection | None = None  #: of theta_hat, with its stage, value and residual
    multiplier: Array | None = None  #: factor of ||x|| in the bonus
    optimistic: Array | None = None  #: parameter in the confidence set for which the played arm has its index
    draw: Array | None = None  #: random factor of the bonus (D-RandLinUCB)
    #: Forgetting parameter of the acting worker (bandits over bandits), or index of the acting expert (AdaptiveGLMUCB).
    chosen: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class PolicyInfo:
    """The diagnostics of a policy. Arrays have one row per lane. Fields that a policy does not use are None.

    Examples
    --------
    >>> import windvane
    >>> windvane.DLinUCB(dim=2, gamma=0.99).info().theta_hat
    array([[0., 0.]])
    """

    t: float  #: round to be decided next
    decisions: int  #: number of decisions so far
    decision: DecisionInfo | None = None  #: the last one. None before the first and after a state was loaded
    theta_hat: Array | None = None  #: the current estimate
    theta_tilde: Array | None = None  #: the parameter that a decision would use for predictions now
    metric: Array | None = None  #: M such that ||x||_{M^-1} is the uncertainty along x: V, or H of a one-pass estimate
    squared_metric: Array | None = None  #: the counterpart with squared weights: V_tilde
    b: Array | None = None  #: weighted sum of rewards times features
    gamma: Array | None = None  #: discount; 1 if old observations count as new ones, or are forgotten in another way
    memory: Array | None = None  #: age in rounds beyond which an observation can be dropped
    remembered: Index | None = None  #: number of observations in the history
    root_passes: Index | None = None  #: cost and accuracy of theta_hat, as MaximumLikelihoodEstimator describes them
    root_error: Array | None = None
    truncation_error: Array | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not None, by name. The field ``decision`` is a dict of the same kind."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        if self.decision is not None:
            known["decision"] = {name: value for name, value in vars(self.decision).items() if value is not None}
        return known
