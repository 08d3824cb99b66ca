"""The confidence sequence: its boundary against numerical integration, and the cost of several truncations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from naive import off_policy
from windvane.logs.evaluation.intervals import STIRLING, LowerBound, log_mixture


@pytest.mark.parametrize("v", [0.0, 0.3, 5.0, STIRLING - 1.001, STIRLING - 0.999, 120.0, 1e4, 1e6, 1e7])
@pytest.mark.parametrize("z", [-2.0, -0.5, 0.0, 0.5, 3.0, 6.0, 12.0])
def test_the_mixture_is_the_integral(v: float, z: float) -> None:
    s = z * math.sqrt(v + 1.0)
    if s + v + 1.0 <= 0.0:
        assert log_mixture(s, v) == -np.inf
    else:
        assert log_mixture(s, v) == pytest.approx(off_policy.log_mixture(s, v), rel=1e-9, abs=1e-8)


def test_the_mixture_is_the_integral_far_out() -> None:
    for s, v in [(200.0, 20.0), (1e6, 1e7), (30.0, 0.0), (5e3, 1e2)]:
        assert log_mixture(s, v) == pytest.approx(off_policy.log_mixture(s, v), rel=1e-9)


def test_the_mixture_increases_with_s_and_is_at_most_the_integral() -> None:
    for v in (0.0, 1.0, 50.0, 1e5):
        s = np.linspace(-1.5 * (v + 1.0), v + 10.0, 4001)
        values = log_mixture(s, v)
        assert not np.isnan(values).any()
        finite = values[np.isfinite(values)]
        assert (np.diff(finite) > 0.0).all()
        assert (values[s <= 0.0] <= 1e-12).all()  # M is at most 1 where the sum is below its mean


def test_the_bound_is_the_one_of_the_transcription() -> None:
    rng = np.random.default_rng(3)
    limits = np.array([0.0, 1.0, 4.0])
    scores = rng.exponential(0.3, (3, 300)) - limits[:, None] * (rng.random((3, 300)) < 0.05)
    weights = rng.uniform(0.2, 1.0, 300)
    for offset, span in ((0.0, 1.0), (1.0, 1.0), (1.0, 2.0)):
        shifted = scores - offset
        bound = LowerBound(limits, offset=offset, span=span)
        for start in range(0, 300, 70):  # in pieces
            bound.add(shifted[:, start : start + 70], weights[start : start + 70])
        bound.record()
        naive = off_policy.lower_bound(shifted.tolist(), limits.tolist(), offset, span, 0.05, weights.tolist())
        assert bound.solve(0.05)[-1] == pytest.approx(naive, abs=1e-8)


def test_pieces_do_not_matter() -> None:
    scores = np.random.default_rng(4).random((1, 500))
    bounds = [LowerBound(np.zeros(1), offset=0.0, span=1.0) for _ in range(2)]
    bounds[0].add(scores)
    for row in range(500):
        bounds[1].add(scores[:, row : row + 1])
    for bound in bounds:
        bound.record()
    assert bounds[0].solve(0.05)[0] == pytest.approx(bounds[1].solve(0.05)[0], abs=1e-12)
    empty = LowerBound(np.zeros(1), offset=0.0, span=1.0)
    assert empty.solve(0.05).shape == (0,)
    empty.add(np.zeros((1, 0)))
    empty.record()
    assert empty.solve(0.05).tolist() == [0.0]


def test_several_truncations_cost_at_most_the_logarithm_of_their_number() -> None:
    """The mean of e-processes is at least each of them divided by their number."""
    rng = np.random.default_rng(5)
    limits = np.array([0.0, 1.0, 4.0, 16.0, 50.0])
    scores = np.maximum(rng.normal(0.4, 0.3, (1, 800)), 0.0).repeat(5, axis=0)
    mixed = LowerBound(limits, offset=0.0, span=1.0)
    mixed.add(scores)
    mixed.record()
    for k in limits:
        single = LowerBound(np.array([k]), offset=0.0, span=1.0)
        single.add(scores[:1])
        single.record()
        assert mixed.solve(0.05)[0] >= single.solve(0.05 / 5)[0] - 1e-12
    assert mixed.solve(0.05)[0] > mixed.solve(0.01)[0]


@pytest.mark.parametrize("tail", ["heavy", "light"])
def test_changing_means_are_covered_at_all_times(tail: str) -> None:
    """The level is 0.45 on one side, so that a bound that is a little too high would be seen."""
    rng, lanes, rows, alpha = np.random.default_rng(6), 300, 400, 0.9
    means = 0.5 + 0.4 * np.sin(np.arange(rows) / 20.0)
    ends, missed = np.arange(5, rows + 1, 5), 0
    for _ in range(lanes):
        p = rng.choice([0.02, 0.1, 1.0] if tail == "heavy" else [1.0], rows)
        bound = LowerBound(np.zeros(1), offset=0.0, span=1.0)
        scores = (rng.random(rows) < p) / p * (rng.random(rows) < means)
        for end in ends:
            bound.add(scores[None, end - 5 : end])
            bound.record()
        missed += bool((bound.solve(alpha) > np.cumsum(means)[ends - 1] / ends).any())
    assert stats.binom.sf(missed - 1, lanes, alpha / 2) >= 0.001
    assert tail == "heavy" or missed > 0  # otherwise this test could not fail
