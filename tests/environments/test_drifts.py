"""Drifts: exact lengths, bounds, and paths that do not depend on the order of questions."""

import math
import pickle

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from support import access
from support.laws import DRIFTS, path_of
from windvane import environments as E
from windvane.environments import paths

UNLIKELY = 1e-6  # a p-value below it is taken as a failure
ROUNDED = 1 + 1e-12


@pytest.mark.parametrize("kind", DRIFTS)
@pytest.mark.parametrize("T", [24, 60, 2500])
def test_length_and_switches_are_those_of_the_path(kind: str, T: int) -> None:
    path = path_of(DRIFTS[kind], T)
    moves = np.diff([path.at(t) for t in range(1, T + 1)], axis=0)
    np.testing.assert_allclose(path.variation, np.linalg.norm(moves, axis=2).sum(axis=0), rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(path.switches, (moves != 0).any(axis=2).sum(axis=0))
    assert path.variation.shape == path.switches.shape == (3,)


@pytest.mark.parametrize("T", [3, 30, 3000, 9999])
@pytest.mark.parametrize("S", [1.0, 2.5])
def test_the_papers_rotation(T: int, S: float) -> None:
    path = path_of(E.Rotation(), T, S=S)
    np.testing.assert_allclose(path.variation, S * (2 * T / 3) * math.sin(3 * math.pi / (4 * T)), rtol=1e-12)
    assert (path.switches == T // 3).all()
    np.testing.assert_array_equal(path.at(1 + (T > 3) * (T // 3 - 1)), [[S, 0]] * 3)
    np.testing.assert_allclose(path.at(T), [[0, S]] * 3, atol=1e-15 * S)


@given(st.integers(2, 400), st.floats(-20, 20), st.floats(-3, 3), st.integers(2, 5), st.floats(1e-3, 1e3))
def test_arcs_have_constant_speed(T: int, angle: float, start: float, dim: int, S: float) -> None:
    path = path_of(E.Arc(angle, start), T, dim, S)
    length = 2 * (T - 1) * S * abs(math.sin(angle / (2 * T)))
    np.testing.assert_allclose(path.variation, length, rtol=1e-9, atol=1e-12 * S)
    end = [S * math.cos(start + angle), S * math.sin(start + angle)] + [0] * (dim - 2)
    np.testing.assert_allclose(path.at(T)[0], end, atol=1e-13 * S)


@given(st.integers(1, 6), st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 20))
def test_turns_rest_and_turn(count: int, share: float, quarter: int) -> None:
    """Periods of 4 quarters: each turn takes 4 share quarters, and nothing moves in between."""
    T = 4 * quarter * count
    path = path_of(E.Turns(count, math.pi / 3, share), T)
    steps = round(4 * quarter * share)  # a turn, but the first of a run that never rests begins at round 0
    turns = count * steps - (1 if share == 1.0 else 0)
    assert (path.switches == turns).all()
    np.testing.assert_allclose(path.variation, turns * 2 * math.sin(math.pi / 6 / steps), rtol=1e-10)
    end = [math.cos(count * math.pi / 3), math.sin(count * math.pi / 3)]
    np.testing.assert_allclose(path.at(T)[0], end, atol=1e-12)


def test_switches_happen_when_they_should() -> None:
    thetas, path = np.array([[1.0, 0.0], [0.0, 0.5], [-0.6, 0.8]]), path_of(DRIFTS["switches"])
    for t in range(1, 61):
        np.testing.assert_array_equal(path.at(t)[1], thetas[(t >= 5) + (t >= 20)])
    np.testing.assert_allclose(path.variation, math.hypot(1, 0.5) + math.hypot(0.6, 0.3), rtol=1e-15)
    assert (path.switches == 2).all()
    still = path_of(E.Switches([], [[0.5, 0.5]]))
    assert still.variation.tolist() == still.switches.tolist() == [0, 0, 0]


def test_random_switches_are_uniform_in_time_and_on_the_sphere() -> None:
    T, count, lanes, S = 30, 6, 400, 2.0
    path = path_of(E.RandomSwitches(count), T, 3, S, lanes)
    thetas = np.array([path.at(t) for t in range(1, T + 1)])
    moved = (np.diff(thetas, axis=0) != 0).any(axis=2)
    assert (moved.sum(axis=0) == count).all()  # distinct times, and no two parameters alike
    # a uniform choice of 6 out of 29 rounds a lane: counts a round have this mean and variance, and sum to a constant
    share = count / (T - 1)
    statistic = np.sum((moved.sum(axis=1) - lanes * share) ** 2) / (lanes * share * (1 - share)) * (T - 2) / (T - 1)
    assert scipy.stats.chi2.sf(statistic, T - 2) > UNLIKELY
    np.testing.assert_allclose(np.linalg.norm(thetas, axis=2), S, rtol=1e-14)
    for t in (0, T - 1):  # on a sphere in 3 dimensions every coordinate is uniform
        for coordinate in thetas[t].T:
            assert scipy.stats.kstest(coordinate, "uniform", (-S, 2 * S)).pvalue > UNLIKELY
    line = path_of(E.RandomSwitches(20), 50, 1, 1.0, 40)  # in one dimension, where not every switch is a move
    assert line.switches.max() < 20
    np.testing.assert_array_equal(line.variation, 2.0 * line.switches)


def test_a_random_walk_starts_where_told_and_takes_steps_of_the_right_size() -> None:
    step, dim, lanes, start = 0.01, 3, 300, [0.1, 0.0, 0.2]
    path = path_of(E.RandomWalk(step, start), 40, dim, 1.0, lanes)
    np.testing.assert_array_equal(path.at(1), [start] * lanes)
    moves = np.diff([path.at(t) for t in range(1, 41)], axis=0).ravel() * math.sqrt(dim) / step
    assert scipy.stats.kstest(moves, "norm").pvalue > UNLIKELY
    np.testing.assert_array_equal(path_of(E.RandomWalk(1.0), S=3.0).at(1), [[3.0, 0.0]] * 3)


def test_sinusoid_and_lines_follow_their_formulas() -> None:
    wave, line = path_of(DRIFTS["sinusoid"]), path_of(DRIFTS["piecewise-linear"])
    knots = {1: [1, 0], 3: [1, 0], 10: [0, 1], 12: [0, 1], 14: [0, 1], 19: [-0.5, 0.5], 24: [-1, 0], 60: [-1, 0]}
    for t, point in knots.items():
        np.testing.assert_allclose(line.at(t)[2], point, atol=1e-15)
    np.testing.assert_allclose(line.variation, 2 * math.sqrt(2), rtol=1e-14)
    assert (line.switches == 7 + 10).all()
    for t in (1, 17, 33, 60):
        level = math.sin(2 * math.pi * t / 17 + 1)
        np.testing.assert_allclose(wave.at(t)[0], [0.1 + 0.3 * level, -0.4 + 0.3 * level], rtol=1e-14)
    default = path_of(E.Sinusoid(period=4), S=2.0)
    np.testing.assert_allclose([default.at(t)[0, 0] for t in (1, 2, 3, 4)], [2, 0, -2, 0], atol=1e-14)
    assert path_of(E.Static([0.6, -0.8])).at(9).tolist() == [[0.6, -0.8]] * 3


IN_ANY_DIMENSION = ("static", "rotation", "arc", "turns", "random-switches", "random-walk")


@pytest.mark.parametrize(("kind", "dim"), [*((kind, 2) for kind in DRIFTS), *((kind, 5) for kind in IN_ANY_DIMENSION)])
def test_parameters_stay_in_the_ball(kind: str, dim: int) -> None:
    path = DRIFTS[kind].path(horizon=300, dim=dim, S=1.5, lane_ids=4, seed=1)
    assert max(np.linalg.norm(path.at(t), axis=1).max() for t in range(1, 301)) <= 1.5 * ROUNDED


@pytest.mark.parametrize("kind", DRIFTS)
def test_a_path_is_the_same_in_any_order_and_in_any_company(kind: str) -> None:
    T = 2300  # three blocks
    together, again = (path_of(DRIFTS[kind], T, lanes=[3, 1, 7, 3]) for _ in range(2))
    order = np.random.default_rng(0).permutation(np.arange(1, T + 1))[:60].tolist()
    forward = {t: together.at(t) for t in sorted(order)}
    for t in order:
        np.testing.assert_array_equal(again.at(t), forward[t])
    for place, lane in enumerate([3, 1, 7, 3]):
        alone = path_of(DRIFTS[kind], T, lanes=[lane])
        for t in sorted(order):
            np.testing.assert_array_equal(alone.at(t)[0], forward[t][place])
        assert alone.variation[0] == together.variation[place]
        assert alone.switches[0] == together.switches[place]


def test_the_length_of_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not depend on how the path is cut, and measuring it leaves the walk where it is."""
    path, other = path_of(E.RandomWalk(0.1), 3000), path_of(E.RandomWalk(0.1), 3000)
    path.at(1500)
    assert (path.variation > 0).all()
    np.testing.assert_array_equal(path.at(1501), other.at(1501))
    path.at(5)[:] = 9.0  # the caller's own
    np.testing.assert_array_equal(path.at(5), other.at(5))
    whole = path_of(E.RandomWalk(0.1), 500)
    lengths = whole.variation
    monkeypatch.setattr(paths, "LARGEST_BLOCK", 100)
    cut = path_of(E.RandomWalk(0.1), 500)
    assert access.block_length(cut) < access.block_length(whole)
    np.testing.assert_array_equal(cut.variation, lengths)
    np.testing.assert_array_equal(cut.at(499), whole.at(499))


@pytest.mark.parametrize("kind", [kind for kind in DRIFTS if kind != "function"])
def test_memory_does_not_depend_on_the_horizon(kind: str) -> None:
    sizes = []
    for T in (5_000, 200_000):
        path = path_of(DRIFTS[kind], T, lanes=2)
        path.at(1)
        path.at(T // 2)
        assert path.variation.shape == (2,)
        sizes.append(len(pickle.dumps(path)))
    assert sizes[1] <= sizes[0] + 100
