"""Rows that are not in time order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from windvane.errors import ArgumentError
from windvane.logs import read


def write(path: Path, times: np.ndarray) -> Path:
    rows = [f"{t},{'ab'[i % 2]},{i % 2},{i % 10},{'xyz'[i % 3] if i % 4 else ''}" for i, t in enumerate(times.tolist())]
    path.write_text("\n".join(["time,arm,reward,x,w", *rows]))
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    monkeypatch.setattr("windvane.logs.ordering.BUFFER", 50)
    monkeypatch.setattr("windvane.logs.formats.csv_files.CHUNK", 37)


def test_rows_that_are_nearly_sorted_are_sorted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times = np.round(np.arange(1000) + rng.uniform(0, 20, 1000), 1)
    log = read(write(tmp_path / "log.csv", times))
    assert log.problems.count("not in time order") == int((times < np.maximum.accumulate(times)).sum())
    batches = list(log.batches(16))
    found = np.concatenate([batch.time for batch in batches])
    order = np.argsort(times, kind="stable")
    np.testing.assert_array_equal(found, times[order])
    np.testing.assert_array_equal(np.concatenate([batch.place for batch in batches]), order + 2)
    vectors = np.concatenate([batch.arms for batch in batches])
    for i, row in enumerate(order[:100].tolist()):
        context = {"x": row % 10, "w": "xyz"[row % 3] if row % 4 else None}
        np.testing.assert_array_equal(vectors[i], log.schema.features.vectors(context, ["a", "b"], lenient=True))


def test_rows_that_are_far_from_sorted_are_refused(tmp_path: Path) -> None:
    times = np.concatenate((np.arange(500.0), [3.0]))
    with pytest.raises(ArgumentError) as caught:
        read(write(tmp_path / "log.csv", times))
    assert "sort the file by time" in caught.value.hint
    assert caught.value.got == "1 row earlier than a row before it, the first in line 502"
    short = read(write(tmp_path / "log.csv", np.arange(90.0)[::-1]))  # it fits into the buffer
    assert np.concatenate([batch.time for batch in short.batches()]).tolist() == list(range(90))


def test_equal_times_stay_in_the_order_of_the_file(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log.csv", np.repeat(np.arange(40.0), 25)))
    assert not len(log.problems)
    assert np.concatenate([batch.place for batch in log.batches()]).tolist() == list(range(2, 1002))
