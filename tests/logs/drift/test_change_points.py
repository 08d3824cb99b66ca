"""Change points: found where they are, with intervals that cover as often as stated, and none without a change."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.drifting_logs import is_plausible, simulate
from windvane.environments import Static, Switches
from windvane.logs import from_arrays
from windvane.logs.drift.answers import _describe_change
from windvane.logs.drift.change_points import find_change_points
from windvane.logs.drift.rows import read_rows
from windvane.logs.drift.segmentation import seed_intervals, segment


def turn(angle: float, dim: int = 2) -> list[float]:
    return [2.0 * math.cos(angle), 2.0 * math.sin(angle), *[0.0] * (dim - 2)]


def count_covered(angle: float, lanes: int, seed: int, dim: int = 2) -> tuple[int, int]:
    """How many logs with one change have exactly one change point, and in how many of these it is in its interval."""
    at, rounds = 901, 2000
    drift = Switches([at], [turn(0.0, dim), turn(angle, dim)])
    past = simulate(drift, rounds=rounds, lanes=lanes, seed=seed, dim=dim)
    found, covered = 0, 0
    for lane in range(lanes):
        points = find_change_points(read_rows(past.log(lane)), seed=lane)
        if len(points) == 1:
            found += 1
            covered += points[0].decision_low <= at <= points[0].decision_high
            assert points[0].decision_low <= points[0].decision <= points[0].decision_high
            assert points[0].row == points[0].decision == points[0].time
    return found, covered


@pytest.mark.parametrize(("angle", "dim"), [(1.2, 2), (2.5, 4)])
def test_intervals_cover_as_often_as_stated(angle: float, dim: int) -> None:
    lanes = 30
    found, covered = count_covered(angle, lanes, seed=21, dim=dim)
    assert found >= 0.8 * lanes
    assert is_plausible(covered, found, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize(("angle", "dim"), [(0.8, 2), (1.5, 2), (3.0, 2), (2.0, 5)])
def test_intervals_in_many_logs(angle: float, dim: int) -> None:
    found, covered = count_covered(angle, 250, seed=22, dim=dim)
    assert found >= 150
    assert is_plausible(covered, found, 0.95)


@pytest.mark.parametrize("dim", [2, 5])
def test_without_a_change_there_is_hardly_ever_a_change_point(dim: int) -> None:
    lanes = 40
    past = simulate(Static(), rounds=1500, lanes=lanes, seed=23, dim=dim)
    empty = 0
    for lane in range(lanes):
        rows = read_rows(past.log(lane))
        empty += not segment(rows.x, rows.reward, rows.schema.L)
    assert is_plausible(empty, lanes, 0.99)


def test_several_changes_are_found() -> None:
    times, thetas = [1001, 2001, 2601], [turn(0.0), turn(2.0), turn(4.0), turn(0.5)]
    past = simulate(Switches(times, thetas), rounds=4000, lanes=1, seed=24)
    points = find_change_points(read_rows(past.log(0)), seed=0)
    assert len(points) == 3
    for point, truth in zip(points, times, strict=True):
        assert abs(point.decision - truth) <= 40
        assert point.gain > 3 * math.log(4000)
        assert point.size == pytest.approx(2.0 * 2.0 * math.sin(1.0), abs=1.0)


def test_a_change_point_has_the_place_and_the_time_of_its_row() -> None:
    past = simulate(Switches([501], [turn(0.0), turn(3.0)]), rounds=1000, lanes=1, seed=25)
    reward = past.reward[0].copy()
    reward[::7] = np.nan
    log = from_arrays(past.arms[0], past.played[0], reward, time=1e9 + 60.0 * np.arange(1000))
    (point,) = find_change_points(read_rows(log), seed=0)
    assert abs(point.decision - 501) <= 20
    assert point.row == point.decision
    assert point.time == 1e9 + 60.0 * (point.row - 1)


def test_a_step_is_told_from_a_ramp_and_only_then_announced_as_an_event() -> None:
    rounds, steps, ramps = 3000, [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x, clock = rng.normal(size=(rounds, 1, 2)), np.linspace(0.0, 1.0, rounds)
        for share, found in ((np.where(clock > 0.6, 1.0, 0.0), steps), (clock, ramps)):
            z = x[:, 0, 0] * (1.0 - 2.0 * share) + x[:, 0, 1]
            reward = (rng.random(rounds) < 1.0 / (1.0 + np.exp(-z))).astype(float)
            log = from_arrays(x, np.zeros(rounds, dtype=int), reward)
            points = find_change_points(read_rows(log), seed=0)
            found += [point.is_step for point in points]
            sentences = [_describe_change(log.schema, point) for point in points]
            assert [" or gradually around it (" in each for each in sentences] == [not p.is_step for p in points]
    assert steps == [True] * 5
    assert len(ramps) >= 5
    assert not any(ramps)


def test_seeded_intervals_cover_every_place_at_every_length() -> None:
    intervals = seed_intervals(100)
    assert len(intervals) < 8 * 100
    for length in (100, 50, 25, 12):
        for middle in range(length // 2, 100 - length // 2):
            assert any(first < middle < last and last - first <= 2 * length for first, last in intervals)
