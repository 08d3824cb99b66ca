"""The best memory and its interval, what never forgetting costs, and how fast theta* moves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from support.drifting_logs import displacement, examine, is_plausible, simulate
from windvane.environments import Arc, RandomWalk, Static
from windvane.logs.drift.best_memory import (
    choose_memory,
    find_candidates,
    measure_cost,
    merge_blocks,
    mix_scales,
)
from windvane.logs.drift.rate import LAG, BlockFits, choose_lengths, estimate_rate, fit_blocks, measure_square
from windvane.logs.drift.replay import log_mean, to_half_life
from windvane.logs.drift.rows import read_rows


def test_without_drift_never_forgetting_is_among_the_best_memories() -> None:
    lanes = 20
    past = simulate(Static(), rounds=1500, lanes=lanes, seed=11)
    memories = []
    for lane in range(lanes):
        rows, replay, _ = examine(past.log(lane))
        memories.append(choose_memory(rows, replay, seed=lane))
        assert measure_cost(rows, replay, seed=lane).low <= 1.0
    assert is_plausible(sum(math.isinf(memory.effective_high) for memory in memories), lanes, 0.95)
    # Experts that average over fewer than 50 decisions are excluded; the interval reaches half a step of the grid, a
    # factor sqrt(2), beyond its experts.
    assert np.median([memory.effective_low for memory in memories]) >= 50.0 / math.sqrt(2.0)


def test_faster_drift_needs_a_shorter_memory() -> None:
    best = []
    for angle in (1.5, 6.0, 24.0):
        past = simulate(Arc(angle=angle), rounds=3000, lanes=4, seed=12)
        chosen = [choose_memory(*examine(past.log(lane))[:2], seed=0) for lane in range(4)]
        assert all(c.effective_low <= c.effective <= c.effective_high for c in chosen)
        assert all(c.half_life == pytest.approx(math.log(0.5) / math.log(c.gamma)) for c in chosen)
        best.append(np.median([c.effective for c in chosen]))
    assert best == sorted(best, reverse=True)
    assert best[0] > 2 * best[-1]


def test_never_forgetting_costs_more_if_the_world_drifts_faster() -> None:
    costs = []
    for angle in (1.0, 3.0, 9.0):
        rows, replay, _ = examine(simulate(Arc(angle=angle), rounds=3000, lanes=1, seed=13).log(0))
        cost = measure_cost(rows, replay, seed=0)
        assert cost.low <= cost.per_thousand <= cost.high
        costs.append(cost.per_thousand)
    assert costs == sorted(costs)
    assert costs[0] > 0.0


def test_losses_of_mixtures_telescope() -> None:
    rows, replay, _ = examine(simulate(Arc(angle=2.0), rounds=800, lanes=1).log(0))
    memories, losses = mix_scales(replay)
    assert memories.tolist() == sorted({*replay.memories.tolist()})
    for memory, column in zip(memories, losses.T, strict=True):
        total = replay.losses[:, replay.memories == memory].sum(axis=0)
        assert column.sum() == pytest.approx(float(-log_mean(-total)))
    assert merge_blocks(losses).sum(axis=0) == pytest.approx(losses.sum(axis=0))
    assert len(merge_blocks(losses)) == 50
    table = choose_memory(rows, replay, 0).losses
    assert [entry.loss for entry in table] == pytest.approx((losses.sum(axis=0) / len(rows)).tolist())


def test_the_best_column_is_a_candidate_as_often_as_stated() -> None:
    rng, trials, hits = np.random.default_rng(14), 150, 0
    for _ in range(trials):
        shared = rng.normal(size=(50, 1))
        losses = shared + rng.normal([0.0, 0.0, 0.1, 0.3, 1.0], 0.5, size=(50, 5))
        candidates = find_candidates(losses, rng)
        hits += candidates[0]
        assert not candidates[4]
    assert is_plausible(hits, trials, 0.95)


def test_half_lives() -> None:
    assert to_half_life(math.inf) == math.inf
    assert 0.99 ** to_half_life(100.0) == pytest.approx(0.5)


# --- the rate ---------------------------------------------------------------------------------------------------------


def compare_rates(drift: object, lanes: int, seed: int, rounds: int = 4000, dim: int = 2) -> list[float]:
    """Estimated over true displacement at the reported span."""
    past = simulate(drift, rounds=rounds, lanes=lanes, seed=seed, dim=dim)
    ratios = []
    for lane in range(lanes):
        rows, replay, _ = examine(past.log(lane))
        rate = estimate_rate(rows, choose_memory(rows, replay, 0).effective, seed=lane)
        assert rate is not None
        assert rate.low <= rate.rate <= rate.high
        assert rate.variation == pytest.approx(rate.rate * rows.decisions)
        ratios.append(rate.rate * rate.span / displacement(past.theta[lane], round(rate.span)))
    return ratios


def within_two(ratios: list[float]) -> int:
    return sum(0.5 <= ratio <= 2.0 for ratio in ratios)


@pytest.mark.parametrize(
    ("drift", "dim"), [(Arc(angle=3.0), 2), (Arc(angle=9.0), 2), (RandomWalk(0.03), 2), (Arc(angle=3.0), 4)]
)
def test_the_rate_is_right_within_a_factor_of_two(drift: object, dim: int) -> None:
    lanes = 8
    ratios = compare_rates(drift, lanes, seed=15, dim=dim)
    assert is_plausible(within_two(ratios), lanes, 0.95)
    assert 0.7 <= np.median(ratios) <= 1.4


@pytest.mark.slow
@pytest.mark.parametrize("drift", [Arc(angle=1.0), Arc(angle=3.0), Arc(angle=12.0), RandomWalk(0.03), RandomWalk(0.06)])
def test_the_rate_in_many_logs(drift: object) -> None:
    lanes = 60
    ratios = compare_rates(drift, lanes, seed=16)
    assert is_plausible(within_two(ratios), lanes, 0.95)
    assert 0.8 <= np.median(ratios) <= 1.25


def test_without_drift_the_squared_displacement_is_zero_on_average() -> None:
    lanes = 40
    past = simulate(Static(), rounds=800, lanes=lanes, seed=17)
    squares = []
    for lane in range(lanes):
        fits = fit_blocks(read_rows(past.log(lane)), 160)
        squares.append(measure_square(fits, LAG, np.eye(2), np.random.default_rng(0)).value)
    assert abs(np.mean(squares)) <= 4.0 * np.std(squares) / math.sqrt(lanes)


def test_a_faster_steady_drift_is_excluded_as_often_as_stated() -> None:
    """The drift is along a line: theta* = (1, 0) to (1, 0.8). The excluded speed is above its speed in 95 % of logs."""
    rng, n, lanes = np.random.default_rng(18), 2000, 60
    from windvane.logs import from_arrays

    hits = 0
    for lane in range(lanes):
        x = rng.uniform(-1.0, 1.0, size=(n, 2))
        z = x[:, 0] + 0.8 * np.arange(n) / n * x[:, 1]
        log = from_arrays(x[:, None], np.zeros(n, dtype=int), (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float))
        rate = estimate_rate(read_rows(log), math.inf, seed=lane)
        assert rate is not None
        hits += rate.excluded >= 0.8 / n
    assert is_plausible(hits, lanes, 0.95)


def test_known_displacements() -> None:
    thetas = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
    fits = BlockFits(thetas, np.tile(1e-12 * np.eye(2), (6, 1, 1)), np.arange(6.0))
    square = measure_square(fits, 2, np.eye(2), np.random.default_rng(0))
    assert square.value == pytest.approx(4.0)
    assert square.draws == pytest.approx(4.0, abs=1e-3)
    assert measure_square(fits, 1, np.diag([4.0, 1.0]), np.random.default_rng(0)).value == pytest.approx(4.0)


def test_lengths_of_blocks_double_and_leave_enough_pairs() -> None:
    rows = read_rows(simulate(Static(), rounds=3000, lanes=1).log(0))
    lengths = choose_lengths(rows, 100.0)
    assert lengths[0] == 100
    assert all(b == 2 * a for a, b in itertools.pairwise(lengths))
    assert 3000 // lengths[-1] >= 5
    assert choose_lengths(rows, math.inf) == [600]
