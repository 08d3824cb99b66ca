"""The results of an evaluation. Every estimate states its estimand, its effective sample size and its caveat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windvane.plain_data import to_plain


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimated mean reward per decision, or a difference of two, in the unit of the log.

    Attributes
    ----------
    value : float or None
        The estimate. None if it is refused; then ``reason`` says why.
    low, high : float or None
        The ends of the confidence interval, which is valid at all times at once. None where there is no valid interval.
    estimand : str
        What is estimated.
    effective_sample_size : float or None
        (sum w)^2 / sum w^2 of the weights w of the rows. None where no weights are involved.
    caveat : str
        The assumptions of the estimate, and what it does not say.
    reason : str
        Why there is no value, or no interval; empty if there are both.

    Examples
    --------
    >>> Estimate(value=0.25, low=0.125, high=0.5, estimand="mean reward").is_answered
    True
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    estimand: str
    effective_sample_size: float | None = None
    caveat: str = ""
    reason: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


@dataclass(frozen=True, kw_only=True)
class WeightSummary:
    """The importance weights w = pi(a) / p(a) of a policy on a log.

    Attributes
    ----------
    rows, counting_rows : int
        The number of evaluated rows, and of those with w > 0: only these carry information about the policy.
    effective_sample_size : float
        (sum w)^2 / sum w^2.
    effective_successes : float or None
        The same over the rows with reward 1. None if rewards are not all 0 or 1.
    mean, largest : float
        The mean weight, which is 1 up to chance if the propensities are right, and the largest weight.
    top_share : float
        The share of the sum of weights that belongs to the 1 % of rows with the largest weights.
    clipped_rows : int
        Rows whose weight is above the threshold of SWITCH-DR.
    unsupported : float
        The share of the policy's probability on arms that the log plays with probability 0; known only where the log
        has the probabilities of all arms.
    """

    rows: int
    counting_rows: int
    effective_sample_size: float
    effective_successes: float | None
    mean: float
    largest: float
    top_share: float
    clipped_rows: int
    unsupported: float


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The evaluation after the first ``row`` rows.

    ``value`` (``low``, ``high``) is the mean over all rows so far; ``recent`` is an exponentially weighted mean, which
    shows how the value changes over time and has no interval. All are None where they are refused.
    """

    row: int
    time: float
    value: float | None
    low: float | None
    high: float | None
    recent: float | None


@dataclass(frozen=True, kw_only=True)
class RecommendationsResult:
    """The value of a policy's recommendations. The policy learned from the logged rewards."""

    value: Estimate
    difference_to_log: Estimate
    variants: Mapping[str, Estimate]
    weights: WeightSummary
    checkpoints: tuple[Checkpoint, ...]


@dataclass(frozen=True, kw_only=True)
class ThinnedRun:
    """An on-policy run that observes a share of the rewards.

    ``share`` of all rows are accepted in expectation. ``value`` is the mean reward of the accepted rows, ``all_rows``
    the doubly robust estimate of the same estimand from all rows, usually with a narrower interval.
    """

    share: float
    rows: int
    accepted: int
    rewarded: int
    value: Estimate
    all_rows: Estimate


@dataclass(frozen=True, kw_only=True)
class ThinningResult:
    """On-policy learning on shares of the traffic, from the largest share to the smallest; see :class:`ThinnedRun`."""

    runs: tuple[ThinnedRun, ...]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """The value of a policy in a simulation of a model that was fitted to the log.

    ``log_value`` is the mean reward that the model predicts for the arms that were played; compare it with the mean
    reward of the log. ``memory`` is the number of rows over which the fit averages on either side (None: all),
    ``scale`` the norm S of its prior, and ``drift`` the length of the fitted path. The fitted path is noisy, so it is
    usually longer than the true one: its length is not an estimate of B_T.
    """

    value: Estimate
    log_value: float
    lanes: int
    memory: float | None
    scale: float
    drift: float


@dataclass(frozen=True, kw_only=True)
class PolicyEvaluation:
    """All estimates for one policy. ``assumed`` are the values of other settings that the policy needed."""

    label: str
    policy: str
    settings: Mapping[str, Any]
    assumed: Mapping[str, Any]
    recommendations: RecommendationsResult | None = None
    thinning: ThinningResult | None = None
    model: ModelResult | None = None


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """The paired difference between the values of the recommendations of two policies, on the same rows."""

    policy: str
    baseline: str
    difference: Estimate

    @property
    def is_significant(self) -> bool | None:
        """Whether the interval excludes 0. None if there is no interval."""
        low, high = self.difference.low, self.difference.high
        return None if low is None or high is None else low > 0.0 or high < 0.0


@dataclass(frozen=True, kw_only=True)
class LogSummary:
    """The log that was evaluated.

    ``evaluated`` rows have a reward and a propensity. ``without_reward`` and ``without_propensity`` rows are left out.
    ``floor`` is the lower bound on all logging probabilities that was used.
    """

    source: str
    rows: int
    evaluated: int
    without_reward: int
    without_propensity: int
    propensities: str
    floor: float | None
    is_floor_declared: bool
    value: Estimate


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of :func:`windvane.logs.evaluate`.

    ``answer`` is one sentence. ``comparisons`` are paired differences of recommendations.
    """

    answer: str
    log: LogSummary
    policies: tuple[PolicyEvaluation, ...]
    comparisons: tuple[PolicyComparison, ...]
    alpha: float
    epsilon: float
    seed: int

    def __getitem__(self, label: str) -> PolicyEvaluation:
        for policy in self.policies:
            if policy.label == label:
                return policy
        raise KeyError(label)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: dicts, lists, numbers and strings. Numbers that are not finite become None."""
        result: dict[str, Any] = to_plain(self)
        return result

    def to_json(self, **options: Any) -> str:
        """Return JSON text; ``options`` are those of :func:`json.dumps`."""
        return json.dumps(self.to_dict(), **options)

    def __str__(self) -> str:
        return self.answer
