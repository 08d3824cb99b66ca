"""The log of a newcomer: rare clicks, a context with a category and a number, one change for phones."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from support.drifting_logs import SURE
from support.log_files import CHANGE, write_banners
from windvane.logs import DriftDiagnosis, diagnose_drift, read

COLUMNS = {"time": "timestamp", "arm": "banner", "reward": "click"}


def diagnose(
    folder: Path, seed: int, *, change: int | None = CHANGE, features: list[str] | None = None, rows: int = 20_000
) -> DriftDiagnosis:
    path = write_banners(folder / f"banners{seed}.csv", rows, change=change, seed=seed)
    return diagnose_drift(read(path, **COLUMNS, features=features), calendar=False)


@pytest.fixture(scope="module")
def diagnosis(tmp_path_factory: pytest.TempPathFactory) -> DriftDiagnosis:
    path = write_banners(tmp_path_factory.mktemp("banners") / "banners.csv", seed=2)
    return diagnose_drift(read(path, **COLUMNS))


def test_the_change_is_detected_located_and_named(diagnosis: DriftDiagnosis) -> None:
    assert diagnosis.verdict == "drift"
    assert (diagnosis.dim, diagnosis.rank) == (13, 9)
    (point,) = diagnosis.change_points
    assert point.decision_low <= CHANGE + 1 <= point.decision_high
    assert point.row == point.decision + 1  # the first line of the file is its header
    assert {change.name: change.logits > 0.0 for change in point.coordinates} == {
        "sale: device = phone": True, "summer: device = phone": False,
    }  # fmt: skip
    assert {f.name for f in diagnosis.features.features if f.drifts} == {
        "sale: device = phone",
        "summer: device = phone",
    }
    assert diagnosis.answer.startswith("Drift detected")
    assert not point.is_step  # with clicks as rare as this, a gradual change fits nearly as well
    rows = f"line {point.row:,} or gradually around it ({point.row_low:,} to {point.row_high:,}; 2026-03-1"
    assert f"The coefficients change at {rows}" in diagnosis.answer
    assert "sale: device = phone rises by " in diagnosis.answer
    assert "summer: device = phone falls by " in diagnosis.answer


def test_what_drifts_has_an_answer_to_each_question(diagnosis: DriftDiagnosis) -> None:
    what = diagnosis.what
    assert what.ranking.has_changed
    assert what.calendar is not None
    assert not what.calendar.explains
    assert [shift.has_shifted for shift in what.contexts] == [False] * 3  # 20.8 days: not the hour, either
    assert "calendar" not in what.summary


def test_without_the_change_nothing_is_seen(tmp_path: Path) -> None:
    still = diagnose(tmp_path, 101, change=None)
    assert still.verdict == "no drift seen"
    assert still.answer.startswith("No drift seen (fixed-sample test: p = ")
    assert still.change_points == ()
    assert still.what.summary == "No drift was seen."


@pytest.mark.slow
@pytest.mark.parametrize("features", [None, ["device"]])
def test_power(tmp_path: Path, features: list[str] | None) -> None:
    found = [diagnose(tmp_path, seed, features=features) for seed in range(40)]
    verdicts = [each.verdict for each in found]
    print(features, {verdict: verdicts.count(verdict) for verdict in set(verdicts)})
    assert verdicts.count("drift") >= 26
    assert verdicts.count("drift") + verdicts.count("drift likely") == 40
    assert sum(len(each.change_points) == 1 for each in found) >= 36
    near = [p.decision_low <= CHANGE + 1 <= p.decision_high for each in found for p in each.change_points]
    assert stats.binomtest(sum(near), len(near), 0.95, alternative="less").pvalue > SURE


@pytest.mark.slow
def test_false_alarms_of_all_verdicts(tmp_path: Path) -> None:
    """A drift is detected in at most 5 % of logs, and detected or likely in about 5 %, at most twice that."""
    logs = 150
    verdicts = [diagnose(tmp_path, 1000 + seed, change=None, rows=4000).verdict for seed in range(logs)]
    detected, likely = verdicts.count("drift"), verdicts.count("drift likely")
    print(f"detected {detected}, likely {likely} of {logs}")
    assert verdicts.count("cannot be answered") == 0
    assert stats.binomtest(detected, logs, 0.05, alternative="greater").pvalue > SURE
    assert stats.binomtest(likely, logs, 0.05, alternative="greater").pvalue > SURE
