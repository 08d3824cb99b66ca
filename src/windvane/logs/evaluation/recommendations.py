"""The value of a policy's recommendations: the policy learns from the logged rewards, and every row counts.

    phi_t = sum_a pi_t(a) q_t(a) + w_t (r_t - q_t(a_t)),    w_t = pi_t(a_t) / p_t(a_t)

The policy pi_t and the reward model q_t use only rewards of earlier rows that had arrived. Given the past and the
context, phi_t then has the mean sum_a pi_t(a) E[r_t(a)], also if the log was written by a policy that learned, and
whatever the drift. So the mean of phi is an unbiased estimate of the average value of the recommendations. It is not
what the policy would have earned when deployed: then it would have learned from the rewards of its own choices.

Variants. IPS is q = 0. SNIPS divides IPS by the mean weight. The direct method is q alone, and unbiased only if q is.
DR is phi. SWITCH-DR leaves out the second term of phi where w_t is above a threshold: less variance, some bias.

Rows without a reward are left out. That is unbiased only if, given the context, whether a reward is missing depends
neither on the reward nor on the arm. Rows that the log marks as not to be learned from are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.logs.evaluation.contrasts import Contrast, Interval, RecentMean, WeightSums
from windvane.logs.evaluation.estimates import Checkpoint, Estimate, RecommendationsResult, WeightSummary
from windvane.logs.evaluation.scores import RowScores
from windvane.logs.evaluation.survey import Survey
from windvane.logs.log import LogSchema

THRESHOLD = 10.0  # of SWITCH-DR. A row of weight 10 counts as much as ten rows on policy
# Relative standard errors of a mean reward: 10 % for 100 rewards whose standard deviation is as large as their mean,
# and 1 / sqrt(50) = 14 % if 50 rewards are 1 and the others, of any number, are 0.
SMALLEST_SAMPLE, FEWEST_SUCCESSES = 100.0, 50.0
ESTIMAND = "mean reward per decision of the recommendations of a policy that learns from the logged rewards"
TO_LOG = "mean reward per decision of the policy's recommendations, minus that of the log"
DIFFERENCE = "difference in mean reward per decision between the recommendations of two policies"
CAVEAT = (
    "the policy learned from the rewards of the logged arms; when deployed, it learns from those of its own choices, "
    "so the deployed value may be lower"
)
MISSING = "rows without a reward are left out: unbiased if missingness depends neither on the reward nor on the arm"
BIASED = "biased, unless the reward model is right"
ESTIMATED = "biased: the propensities of the log are estimated"
UNRECORDED = "rows without a propensity are left out: unbiased if that depends neither on the reward nor on the arm"
SEEN_RANGE = "the interval is valid if rewards outside the observed range are impossible: declare `reward_range`"
CONTRADICTED = "no value agrees with the rewards and propensities of the log, so the propensities are wrong"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all estimates of an evaluation share. ``refusal``: why no policy can be evaluated; empty if they can."""

    schema: LogSchema
    survey: Survey
    limits: Array
    alpha: float
    refusal: str
    least: float  # the declared floor, or 0 if there is none
    is_estimated: bool  # whether the probabilities of the log are estimated

    def to_unit(self, interval: Interval, *, is_difference: bool = False) -> Interval:
        """Return an interval in the unit of the log."""
        low, high = self.schema.reward_range
        shift = 0.0 if is_difference else low
        return Interval(*(shift + (high - low) * end for end in interval))

    @property
    def caveats(self) -> str:
        """The assumptions of estimates from the rows of the log."""
        notes = [MISSING] if self.survey.without_reward else []
        if self.survey.without_propensity:
            notes.append(UNRECORDED)
        if not self.schema.is_range_declared:
            notes.append(SEEN_RANGE)
        if self.survey.largest_weight > self.survey.smallest_weight:
            notes.append(
                "rows have different weights: the interval is valid if the weights do not depend on the rewards"
            )
        return "; ".join(notes)


def find_contradiction(interval: Interval) -> str:
    """Return why an interval is empty; an empty text if it is not.

    Its two ends are bounds of the same mean. With right probabilities they cross with probability at most alpha.
    """
    return CONTRADICTED if interval.low > interval.high else ""


class Rows(NamedTuple):
    """Evaluated rows: their scores, their weights, and the probabilities of all arms where the log has them."""

    scores: RowScores
    weight: Array
    probabilities: Array | None


class TrackSums:
    """Accumulate the value of the choices of one lane of a policy.

    Parameters
    ----------
    setting
        What all estimates share.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting, survey = setting, setting.survey
        self.value = Contrast(setting.limits)
        self.weights = WeightSums(THRESHOLD, max(survey.evaluated // 100, 1))

    def add(self, rows: Rows, pi: Array) -> Array:
        """Add evaluated rows. Return their scores."""
        self.weights.add(rows.scores, pi, rows.weight)
        return self.value.add(rows.scores, pi, rows.weight / self.setting.survey.largest_weight)

    def find_refusal(self) -> str:
        """Return why the policy cannot be evaluated; empty if it can."""
        sums, setting = self.weights, self.setting
        if setting.refusal:
            return setting.refusal
        if sums.unsupported > 0.0:
            share = sums.unsupported / sums.base
            return f"in {share:.1%} of decisions the policy recommends an arm that the log plays with probability 0"
        size = sums.effective_sample_size
        if size < SMALLEST_SAMPLE:
            return f"the effective sample size is {size:.0f} decisions, below {SMALLEST_SAMPLE:.0f}"
        count = sums.effective_successes
        if setting.survey.is_binary and count < FEWEST_SUCCESSES:
            return f"the effective sample has {count:.0f} rewards of 1, fewer than {FEWEST_SUCCESSES:.0f}"
        return ""

    def present(self, interval: Interval, estimand: str, refusal: str, caveat: str = CAVEAT) -> Estimate:
        """Return an estimate with its interval, or with the reason why it is refused."""
        caveat = "; ".join(filter(None, (caveat, self.setting.caveats)))
        size, refusal = self.weights.effective_sample_size, refusal or find_contradiction(interval)
        if refusal:
            return Estimate(value=None, estimand=estimand, effective_sample_size=size, caveat=caveat, reason=refusal)
        return Estimate(**interval._asdict(), estimand=estimand, effective_sample_size=size, caveat=caveat)


class RecommendationSums(TrackSums):
    """Accumulate the estimates for one policy that learns from all logged rewards.

    Parameters
    ----------
    setting
        What all estimates share.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.to_log = Contrast(setting.limits, is_difference=True)
        self.recent = RecentMean(setting.survey.evaluated)
        self._places: list[tuple[int, float, float]] = []

    def add(self, rows: Rows, pi: Array) -> Array:
        """Add evaluated rows. Return their scores."""
        scores, scale = super().add(rows, pi), rows.weight / self.setting.survey.largest_weight
        self.recent.add(scores, scale)
        if rows.probabilities is None:
            self.to_log.add(rows.scores, pi, scale, minus=rows.scores.reward)
        else:
            self.to_log.add(rows.scores, pi - rows.probabilities, scale)
        return scores

    def record(self, row: int, time: float) -> None:
        """Record a checkpoint after the first ``row`` rows."""
        self._places.append((row, time, self.recent.value))
        self.value.record()

    def finish(self) -> RecommendationsResult:
        """Return all estimates."""
        setting = self.setting
        intervals = [setting.to_unit(interval) for interval in self.value.solve(setting.alpha)]
        refusal = self.find_refusal() or find_contradiction(intervals[-1])
        if refusal:
            checkpoints = [Checkpoint(row=row, time=time, value=None, low=None, high=None, recent=None)
                           for row, time, _ in self._places]  # fmt: skip
        else:
            recents = [setting.schema.to_reward(recent) for _, _, recent in self._places]
            checkpoints = [
                Checkpoint(row=row, time=time, **interval._asdict(), recent=recent)
                for (row, time, _), interval, recent in zip(self._places, intervals, recents, strict=True)
            ]
        self.to_log.record()
        difference = setting.to_unit(self.to_log.solve(setting.alpha)[-1], is_difference=True)
        return RecommendationsResult(
            value=self.present(intervals[-1], ESTIMAND, refusal),
            difference_to_log=self.present(difference, TO_LOG, refusal),
            variants=self.list_variants(refusal), weights=self.summarise(), checkpoints=tuple(checkpoints),
        )  # fmt: skip

    def list_variants(self, refusal: str) -> dict[str, Estimate]:
        """Return the estimates of other estimators, without intervals. The direct method is never refused."""
        sums, to_unit, n = self.weights, self.setting.schema.to_reward, max(self.weights.base, 1e-300)
        dr = self.value.total / max(self.value.weight, 1e-300)
        bias = (self.setting.schema.reward_range[1] - self.setting.schema.reward_range[0]) * (sums.switched / n - dr)
        without = "no interval; see the interval of the main estimate"
        weighted: dict[str, tuple[Callable[[], float], str]] = {
            "ips": (lambda: sums.rewards / n, "unbiased"),
            "snips": (lambda: sums.rewards / sums.total, "bias of order 1 / effective sample size"),
            "dr": (lambda: dr, "unbiased"),
            "switch_dr": (
                lambda: sums.switched / n,
                f"biased: only the reward model where weights are above {THRESHOLD:g}; differs from DR by {bias:.2g}",
            ),
        }
        if self.setting.is_estimated:
            weighted = {"dr_estimated_propensities": (lambda: dr, ESTIMATED)}
            refusal, without = "", "no interval, because the estimate is biased"
        size, variants = sums.effective_sample_size, {}
        for name, (compute, caveat) in weighted.items():
            value, reason = (None, refusal) if refusal else (to_unit(compute()), without)
            variants[name] = Estimate(
                value=value, estimand=ESTIMAND, effective_sample_size=size, caveat=caveat, reason=reason
            )
        variants["direct_method"] = Estimate(
            value=to_unit(sums.direct / n), estimand=ESTIMAND, caveat=BIASED,
            reason="no interval, because the estimate is biased",
        )  # fmt: skip
        return variants

    def summarise(self) -> WeightSummary:
        """Return the summary of the weights."""
        sums, is_binary = self.weights, self.setting.survey.is_binary
        return WeightSummary(
            rows=sums.rows, counting_rows=sums.counting, effective_sample_size=sums.effective_sample_size,
            effective_successes=sums.effective_successes if is_binary else None,
            mean=sums.total / sums.base if sums.base else 0.0, largest=sums.largest,
            top_share=float(np.sum(sums.largest_few)) / sums.total if sums.total else 0.0, clipped_rows=sums.clipped,
            unsupported=sums.unsupported / sums.base if sums.base else 0.0,
        )  # fmt: skip
