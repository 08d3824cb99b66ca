"""The last pass over a log: combine the tracks of all policies with the logged rewards and propensities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from windvane.arguments import Array, Index
from windvane.logs.evaluation import thinning
from windvane.logs.evaluation.contrasts import Contrast, Interval
from windvane.logs.evaluation.estimates import Estimate, PolicyComparison, RecommendationsResult, ThinnedRun
from windvane.logs.evaluation.intervals import LowerBound
from windvane.logs.evaluation.propensity_model import PropensityModel
from windvane.logs.evaluation.recommendations import (
    CAVEAT,
    DIFFERENCE,
    FEWEST_SUCCESSES,
    SMALLEST_SAMPLE,
    RecommendationSums,
    Rows,
    Setting,
    TrackSums,
    find_contradiction,
)
from windvane.logs.evaluation.scores import RowScores
from windvane.logs.evaluation.survey import find_evaluated
from windvane.logs.evaluation.tracks import ReplayPlan, Tracks
from windvane.logs.log import Log, LogBatch

CHECKPOINTS = 100


class MeanReward:
    """The running mean of rewards in [0, 1], with its confidence sequence.

    Examples
    --------
    >>> mean = MeanReward()
    >>> mean.add(np.array([0.0, 1.0] * 1000), np.ones(2000))
    >>> mean.solve(0.05).value
    0.5
    """

    def __init__(self) -> None:
        self._lower = LowerBound(np.zeros(1), offset=0.0, span=1.0)
        self._upper = LowerBound(np.zeros(1), offset=1.0, span=1.0)
        self.count, self.total, self.ones, self.weight = 0, 0.0, 0, 0.0

    def add(self, rewards: Array, weight: Array) -> None:
        """Add rewards with predictable weights in [0, 1]."""
        self._lower.add(rewards[None], weight)
        self._upper.add(-rewards[None], weight)
        self.count, self.ones = self.count + len(rewards), self.ones + int((rewards == 1.0).sum())
        self.total, self.weight = self.total + float(weight @ rewards), self.weight + float(weight.sum())

    def solve(self, alpha: float) -> Interval:
        """Return the mean with its interval at level ``alpha``."""
        self._lower.record()
        self._upper.record()
        value = self.total / self.weight if self.weight else math.nan
        return Interval(value, float(self._lower.solve(alpha)[-1]), -float(self._upper.solve(alpha)[-1]))


@dataclass(frozen=True, kw_only=True)
class LogAssessment:
    """The results of the last pass; lists have an entry per policy."""

    log: Estimate
    recommendations: list[RecommendationsResult]
    runs: list[tuple[ThinnedRun, ...]]
    comparisons: list[PolicyComparison]


class Assessor:
    """Read the log once more, and evaluate the tracks of all policies.

    Parameters
    ----------
    log, setting, plan
        The log, the setting that all estimates share, and the plan of the lanes.
    folder, labels
        Where the tracks are, and the names of the policies.
    pairs
        Pairs of policies to compare, by index.
    epsilon
        The uniform exploration that is mixed into recommendations.
    """

    def __init__(
        self, log: Log, setting: Setting, plan: ReplayPlan, folder: Path, labels: Sequence[str],
        pairs: Sequence[tuple[int, int]], epsilon: float,
    ) -> None:  # fmt: skip
        self.log, self.setting, self.plan, self.epsilon, self.labels = log, setting, plan, epsilon, labels
        self.tracks = [Tracks(folder, f"policy{i}") for i in range(len(labels))] if plan.lanes else []
        self.q = np.load(folder / "q.npy", mmap_mode="r") if plan.lanes else None
        self.logged = MeanReward()
        self.recommended = [RecommendationSums(setting) for _ in labels] if plan.learns_all else []
        self.thinned = [[TrackSums(setting) for _ in plan.shares] for _ in labels]
        self.accepted = [[MeanReward() for _ in plan.shares] for _ in labels]
        self.acceptances = np.zeros((len(labels), len(plan.shares)), dtype=np.int64)
        self.pairs = {pair: Contrast(setting.limits, is_difference=True) for pair in pairs} if plan.learns_all else {}
        schema = log.schema
        self._model = PropensityModel(schema.dim, setting.survey.most_arms, schema.L) if setting.is_estimated else None

    def run(self) -> LogAssessment:
        """Read all rows, and return the results."""
        survey = self.setting.survey
        checkpoints = np.unique(np.linspace(0, survey.rows, CHECKPOINTS + 1).round().astype(np.int64))[1:]
        for batch, start in self._cut(checkpoints):
            self._add(batch, start)
            if start + len(batch) in checkpoints:
                for sums in self.recommended:
                    sums.record(start + len(batch), float(batch.time[-1]))
        recommendations = [sums.finish() for sums in self.recommended]
        return LogAssessment(
            log=self._present_log(),
            recommendations=recommendations,
            runs=[self._list_runs(policy) for policy in range(len(self.labels))],
            comparisons=[
                self._compare(pair, [recommendations[policy].value for policy in pair]) for pair in self.pairs
            ],
        )

    def _cut(self, checkpoints: Index) -> Iterator[tuple[LogBatch, int]]:
        """Yield all rows, cut at the checkpoints, with the number of rows before them."""
        row = 0
        for batch in self.log.batches():
            inside = checkpoints[(checkpoints > row) & (checkpoints < row + len(batch))] - row
            for start, stop in zip([0, *inside], [*inside, len(batch)], strict=True):
                yield batch.select(slice(int(start), int(stop))), row + int(start)
            row += len(batch)

    def _add(self, batch: LogBatch, start: int) -> None:
        """Add consecutive rows, of which ``start`` is the first."""
        K, setting = batch.valid.shape[1], self.setting
        p = self._model.estimate(batch.arms, batch.valid, batch.played) if self._model else batch.probabilities
        is_used = find_evaluated(batch, has_propensities=self._model is None)
        used, where = batch.select(is_used), slice(start, start + len(batch))
        p = None if p is None else p[is_used]
        self.logged.add(used.reward, used.weight / setting.survey.largest_weight)
        if self.q is None:
            return
        least: Array | float = p if p is not None else setting.least
        chance = p[np.arange(len(used)), used.played] if p is not None and self._model else used.propensity
        q = np.asarray(self.q[where, :K], dtype=float)[is_used]
        rows = Rows(RowScores(q, least, used.played, chance, used.reward), used.weight, p)
        policies = [track.read_probabilities(0, where, K, self.epsilon, batch.valid)[is_used] for track in self.tracks]
        for sums, pi in zip(self.recommended, policies, strict=False):
            sums.add(rows, pi)
        scale = used.weight / setting.survey.largest_weight
        for (first, second), contrast in self.pairs.items():
            contrast.add(rows.scores, policies[first] - policies[second], scale)
        for i, track in enumerate(self.tracks):
            for j in range(len(self.plan.shares)):
                lane = self.plan.learns_all + j
                counted = track.read_counted(lane, where)
                self.acceptances[i, j] += int(counted.sum())
                self.thinned[i][j].add(rows, track.read_probabilities(lane, where, K, 0.0, batch.valid)[is_used])
                self.accepted[i][j].add(used.reward[counted[is_used]], np.ones(int(counted[is_used].sum())))

    def _present_log(self) -> Estimate:
        interval = self.setting.to_unit(self.logged.solve(self.setting.alpha))
        estimand, size = "mean reward per decision of the policy that wrote the log", float(self.logged.count)
        if not self.logged.count:
            return Estimate(value=None, estimand=estimand, effective_sample_size=0.0, reason="no row has a reward")
        caveat = self.setting.caveats
        return Estimate(**interval._asdict(), estimand=estimand, effective_sample_size=size, caveat=caveat)

    def _list_runs(self, policy: int) -> tuple[ThinnedRun, ...]:
        """Return the thinned runs of one policy."""
        setting, runs = self.setting, []
        for j, share in enumerate(self.plan.shares):
            sums, mean = self.thinned[policy][j], self.accepted[policy][j]
            interval = setting.to_unit(mean.solve(setting.alpha))
            caveat, size = "; ".join(filter(None, (thinning.CAVEAT, setting.caveats))), float(mean.count)
            if reason := setting.refusal or _refuse_few(mean, setting.survey.is_binary):
                interval = Interval(*[None] * 3)  # type: ignore[arg-type]
            value = Estimate(
                **interval._asdict(), estimand=thinning.ESTIMAND, effective_sample_size=size, caveat=caveat,
                reason=reason,
            )  # fmt: skip
            sums.value.record()
            of_all = setting.to_unit(sums.value.solve(setting.alpha)[-1])
            runs.append(
                ThinnedRun(
                    share=share / setting.survey.largest_weight, rows=setting.survey.rows,
                    accepted=int(self.acceptances[policy, j]), rewarded=mean.count, value=value,
                    all_rows=sums.present(of_all, thinning.ESTIMAND, sums.find_refusal(), thinning.CAVEAT),
                )
            )  # fmt: skip
        return tuple(runs)

    def _compare(self, pair: tuple[int, int], values: Sequence[Estimate]) -> PolicyComparison:
        """Return the difference of two policies with these values, unless one of them is refused."""
        contrast, (first, second) = self.pairs[pair], pair
        contrast.record()
        interval = self.setting.to_unit(contrast.solve(self.setting.alpha)[-1], is_difference=True)
        refusals = [value.reason for value in values if not value.is_answered] or [find_contradiction(interval)]
        difference = Estimate(
            **(dict.fromkeys(Interval._fields) if refusals[0] else interval._asdict()), estimand=DIFFERENCE,
            effective_sample_size=min(self.recommended[policy].weights.effective_sample_size for policy in pair),
            reason=refusals[0], caveat="; ".join(filter(None, (CAVEAT, self.setting.caveats))),
        )  # fmt: skip
        return PolicyComparison(policy=self.labels[first], baseline=self.labels[second], difference=difference)


def _refuse_few(mean: MeanReward, is_binary: bool) -> str:
    """Return why the accepted rows are too few; empty if they are not."""
    if mean.count < SMALLEST_SAMPLE:
        return f"only {mean.count} accepted rows have a reward, fewer than {SMALLEST_SAMPLE:.0f}"
    if is_binary and mean.ones < FEWEST_SUCCESSES:
        return f"only {mean.ones} accepted rows have a reward of 1, fewer than {FEWEST_SUCCESSES:.0f}"
    return ""
