"""Unbiasedness and coverage, by simulation: drifting worlds, logged by policies that learn and by policies that do not.

Every number of a coverage test is compared with its nominal level by a binomial test at 0.001, and every bias with 0 by
a z-test at 4 standard errors (6e-5). Seeds are fixed and were not chosen.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from support.logged_worlds import WrittenLogs, follow, write_logs
from windvane import OFUL, AdaptiveGLMUCB, DLinUCB
from windvane.logs.evaluation.contrasts import Contrast
from windvane.logs.evaluation.scores import RowScores, choose_limits

CASES = [
    ("adaptive", 0.01, False, True),
    ("adaptive", 0.1, True, True),
    ("adaptive", 0.3, True, False),
    ("fixed", 0.05, False, False),
    ("fixed", 0.3, True, True),
    ("fixed", 1.0, False, True),
]


def miss(intervals: list, truths: np.ndarray) -> tuple[bool, bool]:
    """Whether the last interval, and whether any, misses the running mean."""
    wrong = [not i.low <= truth <= i.high for i, truth in zip(intervals, truths, strict=True)]
    return wrong[-1], any(wrong)


class Study:
    """All contrasts of all lanes of logs: value, difference of two policies, and difference to the log."""

    def __init__(self, logs: WrittenLogs, has_all: bool, every: int) -> None:
        self.logs, self.has_all = logs, has_all
        lanes, dim = logs.arms.shape[1], logs.arms.shape[3]
        _, self.q = follow(logs, AdaptiveGLMUCB(dim=dim, lanes=lanes))
        self.pi, _ = follow(logs, DLinUCB(dim=dim, gamma=0.98, lanes=lanes))
        self.other, _ = follow(logs, OFUL(dim=dim, lanes=lanes))
        self.limits = choose_limits(logs.floor, has_all=has_all)
        self.ends = np.arange(every, len(logs.arms) + 1, every)

    def rows(self, lane: int) -> RowScores:
        logs = self.logs
        least = logs.probabilities[:, lane] if self.has_all else logs.floor
        return RowScores(self.q[:, lane], least, logs.played[:, lane], logs.propensity[:, lane], logs.reward[:, lane])

    def deltas(self, lane: int) -> dict[str, tuple[np.ndarray, np.ndarray | float, np.ndarray]]:
        """For each contrast: delta, what is subtracted, and the signed policy of the truth."""
        logs, pi, other = self.logs, self.pi[:, lane], self.other[:, lane]
        p = logs.probabilities[:, lane]
        to_log = (pi - p, 0.0, pi - p) if self.has_all else (pi, logs.reward[:, lane], pi - p)
        return {"value": (pi, 0.0, pi), "pair": (pi - other, 0.0, pi - other), "log": to_log}

    def judge(self, alpha: float) -> tuple[dict[str, np.ndarray], dict[str, list[float]]]:
        """Missed at the end and ever, counted over lanes; and the errors of the estimates."""
        missed: dict[str, np.ndarray] = {}
        errors: dict[str, list[float]] = {}
        for lane in range(self.logs.arms.shape[1]):
            rows = self.rows(lane)
            for name, (delta, minus, signed) in self.deltas(lane).items():
                contrast = Contrast(self.limits, is_difference=name != "value")
                truths = np.cumsum((signed * self.logs.means[:, lane]).sum(axis=1)) / np.arange(1, len(signed) + 1)
                start = 0
                for end in self.ends:
                    some = slice(start, end)
                    part = RowScores(
                        rows.q[some], rows.least if np.isscalar(rows.least) else rows.least[some], rows.played[some],
                        rows.propensity[some], rows.reward[some],
                    )  # fmt: skip
                    contrast.add(part, delta[some], np.ones(end - start), minus if np.isscalar(minus) else minus[some])
                    contrast.record()
                    start = end
                result = contrast.solve(alpha)
                missed[name] = missed.get(name, np.zeros(2, dtype=int)) + miss(result, truths[self.ends - 1])
                scores = rows.score(delta) - minus
                errors.setdefault(name, []).append(float(scores.mean() - truths[-1]))
            weights = rows.weigh(self.pi[:, lane])
            truth = (self.pi[:, lane] * self.logs.means[:, lane]).sum(axis=1).mean()
            errors.setdefault("ips", []).append(float((weights * rows.reward).mean() - truth))
        return missed, errors


def check(missed: dict[str, np.ndarray], lanes: int, alpha: float) -> None:
    for name, counts in missed.items():
        for count in counts:
            assert stats.binom.sf(count - 1, lanes, alpha) >= 0.001, f"{name}: missed {count} of {lanes}"


def check_unbiased(errors: dict[str, list[float]]) -> None:
    for name, values in errors.items():
        z = np.mean(values) / (np.std(values, ddof=1) / np.sqrt(len(values)))
        assert abs(z) < 4.0, f"{name}: z = {z:.2f}"


@pytest.mark.parametrize(("logger", "epsilon", "late", "has_all"), CASES[1::2])
def test_estimates_are_unbiased_and_intervals_cover(logger: str, epsilon: float, late: bool, has_all: bool) -> None:
    logs = write_logs(lanes=60, rows=200, epsilon=epsilon, logger=logger, late=late, seed=1)
    missed, errors = Study(logs, has_all, every=25).judge(alpha=0.2)
    check(missed, 60, 0.2)
    check_unbiased(errors)


def test_wrong_probabilities_are_seen() -> None:
    """A control: the tests of this file fail if the log states other probabilities than it used."""
    logs = write_logs(lanes=60, rows=200, epsilon=0.3, logger="fixed", seed=3)
    uniform = np.full_like(logs.probabilities, 0.25)
    study = Study(replace(logs, probabilities=0.5 * logs.probabilities + 0.5 * uniform), True, every=200)
    with pytest.raises(AssertionError, match="z = "):
        check_unbiased(study.judge(0.2)[1])


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize(("logger", "epsilon", "late", "has_all"), CASES)
def test_coverage_over_a_thousand_logs(logger: str, epsilon: float, late: bool, has_all: bool, alpha: float) -> None:
    logs = write_logs(lanes=1000, rows=400, epsilon=epsilon, logger=logger, late=late, seed=2)
    missed, errors = Study(logs, has_all, every=20).judge(alpha)
    for name, (last, ever) in missed.items():
        print(f"{logger} epsilon={epsilon} late={late} all={has_all} alpha={alpha} {name}: end {last} ever {ever}")
    check(missed, 1000, alpha)
    check_unbiased(errors)
