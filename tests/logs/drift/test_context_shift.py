"""Shifts of contexts: the level if days differ, hours that are no shift, and what a log is too short for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE
from windvane.agent.features import Features
from windvane.logs import ArrayLog, LogSchema, from_arrays
from windvane.logs.drift.context_shift import DAY, ContextShift, compare_contexts
from windvane.logs.drift.rows import read_rows

PER_DAY = 200


def compare(contexts: Any, days: float | None, seed: int = 0) -> tuple[ContextShift, ...]:
    n = len(contexts)
    time = {} if days is None else {"time": np.arange(n) * days * DAY / n}
    log = from_arrays(np.ones((n, 1, 1)), np.zeros(n, dtype=int), np.zeros(n), context=contexts, **time)
    return compare_contexts(read_rows(log), 0.05, seed)


def draw(kind: str, days: float, rng: np.random.Generator) -> np.ndarray:
    n = int(days * PER_DAY)
    day = np.arange(n) // PER_DAY
    if kind == "independent":
        return rng.normal(size=(n, 1))
    if kind == "category":
        return (rng.random((n, 1)) < 0.5).astype(float)
    return (rng.normal(size=day.max() + 1)[day] + rng.normal(size=n))[:, None]  # each day is different


@pytest.mark.parametrize("kind", ["independent", "category", "days"])
@pytest.mark.parametrize("days", [10.3, 20.8])
def test_false_alarms(kind: str, days: float) -> None:
    logs, rng = 60, np.random.default_rng(1)
    alarms = sum(compare(draw(kind, days, rng), days, seed)[0].p <= 0.05 for seed in range(logs))
    assert stats.binomtest(alarms, logs, 0.05, alternative="greater").pvalue > SURE


@pytest.mark.parametrize("days", [20.8, 3.5, 30.2])
def test_the_hour_of_the_day_does_not_shift(days: float) -> None:
    hour = (np.arange(int(days * 24 * 40)) // 40 % 24)[:, None].astype(float)
    (shift,) = compare(hour, days)
    assert shift.has_shifted is not True


def test_a_shift_is_found_with_its_size() -> None:
    rng, n = np.random.default_rng(2), 5000
    contexts = (
        rng.random((n, 2)) < np.stack([np.where(np.arange(n) < n / 2, 0.3, 0.5), np.full(n, 0.5)], axis=1)
    ) * 1.0
    first, second = compare(contexts, 20.8)
    assert first.has_shifted
    assert (first.before, first.after) == (pytest.approx(0.3, abs=0.05), pytest.approx(0.5, abs=0.05))
    assert second.has_shifted is False
    assert compare(contexts, None)[0].has_shifted
    assert compare(contexts, 3.0)[0].has_shifted is None  # it may be the time of day
    assert compare(contexts[:30], None) == ()


def test_sizes_are_in_the_unit_of_the_log() -> None:
    features = Features(by_arm={"device": ["phone", "desktop"], "age": (20.0, 60.0)}, arms=["a"])
    n, rng = 2000, np.random.default_rng(3)
    device, age = rng.integers(2, size=n), rng.uniform(30.0, 50.0, size=n)
    contexts = np.stack([device == 0, device == 1, (age - 40.0) / 20.0], axis=1) * features.scale
    log = from_arrays(np.ones((n, 1, 1)), np.zeros(n, dtype=int), np.zeros(n), context=contexts)
    names = ("device = phone", "device = desktop", "age")
    log = ArrayLog(LogSchema(**(vars(log.schema) | {"features": features, "context_names": names})), log.rows)
    phone, _, old = compare_contexts(read_rows(log), 0.05, 0)
    assert phone.is_share
    assert phone.before == pytest.approx(float((device[: n // 2] == 0).mean()))
    assert not old.is_share
    assert old.after == pytest.approx(float(age[n // 2 :].mean()))
