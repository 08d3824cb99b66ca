"""Arm laws: distributions, items that come and go, lanes."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from support.laws import ARMS
from windvane import environments as E

UNLIKELY = 1e-6  # a p-value below it is taken as a failure
DEVIATIONS = 6.0  # a mean this many standard errors off is taken as a failure
ROUNDED = 1 + 1e-12


def sample(law: E.ArmLaw, dim: int, L: float, rounds: int = 5, lanes: int = 100, seed: int = 3) -> np.ndarray:
    stream = law.bind(dim=dim, L=L, lane_ids=lanes, seed=seed)
    return np.concatenate([stream.at(t)[0] for t in range(1, rounds + 1)])


def isotropic(points: np.ndarray) -> None:
    """Directions are uniform: a squared coordinate over the squared norm has a beta law, of either sign alike."""
    d = points.shape[1]
    if d > 1:
        share = points[:, 0] ** 2 / np.square(points).sum(axis=1)
        assert scipy.stats.kstest(share, "beta", (0.5, (d - 1) / 2)).pvalue > UNLIKELY
    for coordinate in points.T:
        assert scipy.stats.binomtest(int((coordinate > 0).sum()), len(points)).pvalue > UNLIKELY


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_ball_arms_are_uniform_in_the_ball(dim: int) -> None:
    L = 2.5
    points = sample(E.BallArms(10), dim, L).reshape(-1, dim)
    r = np.linalg.norm(points, axis=1) / L
    assert r.max() <= ROUNDED
    assert scipy.stats.kstest(r**dim, "uniform").pvalue > UNLIKELY
    error = math.sqrt((dim / (dim + 2) - (dim / (dim + 1)) ** 2) / len(r))
    assert abs(r.mean() - dim / (dim + 1)) < DEVIATIONS * error
    isotropic(points)


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_sphere_arms_are_uniform_on_the_sphere(dim: int) -> None:
    points = sample(E.SphereArms(10), dim, 0.5).reshape(-1, dim)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 0.5, rtol=1e-14)
    isotropic(points)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_cube_arms_are_uniform_and_pulled_back(dim: int) -> None:
    L = 3.0
    points = sample(E.CubeArms(10), dim, L).reshape(-1, dim)
    r = np.linalg.norm(points, axis=1) / L
    assert r.max() <= ROUNDED
    inside = r < 1 - 1e-12
    fill = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1) / 2**dim  # the ball's share of the cube
    assert scipy.stats.binomtest(int(inside.sum()), len(r), fill).pvalue > UNLIKELY
    assert scipy.stats.kstest(r[inside] ** dim, "uniform").pvalue > UNLIKELY
    np.testing.assert_allclose(r[~inside], 1.0, rtol=1e-14)


def test_orthogonal_arms_lie_on_the_axes() -> None:
    dim, L = 4, 1.5
    points = sample(E.OrthogonalArms(10), dim, L).reshape(-1, dim)
    assert ((points != 0).sum(axis=1) == 1).all()
    assert scipy.stats.chisquare((points != 0).sum(axis=0)).pvalue > UNLIKELY
    assert scipy.stats.kstest(points.sum(axis=1), "uniform", (-L, 2 * L)).pvalue > UNLIKELY
    assert [law.orthogonal for law in E.ARM_LAWS.values()].count(True) == 1
    assert E.FixedArms([[1.0, 0.0], [0.0, -0.5], [0.0, 0.0], [0.3, 0.0]]).orthogonal
    assert not E.FixedArms([[1.0, 0.0], [0.6, 0.8]]).orthogonal


def ratios(law: E.ArmLaw, dim: int, rounds: int) -> np.ndarray:
    """The shorter over the longer of two exponential numbers: squared lengths, or coordinates, of sets of two arms."""
    pairs = sample(law, dim, 1.0, rounds=rounds)
    numbers = np.square(pairs).sum(axis=2) if dim > 1 else pairs[:, :, 0]
    return numbers.min(axis=1) / numbers.max(axis=1)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_gaussian_and_skewed_sets_are_scaled_to_the_longest(dim: int) -> None:
    gaussian, skewed = sample(E.GaussianArms(10), dim, 2.0), sample(E.SkewedArms(10), dim, 2.0)
    for sets in (gaussian, skewed):
        np.testing.assert_allclose(np.linalg.norm(sets, axis=2).max(axis=1), 2.0, rtol=1e-14)
    isotropic(gaussian.reshape(-1, dim))
    assert (skewed > 0).all()
    flat = skewed.reshape(len(skewed), -1)
    for i, j in ((0, 1), (0, flat.shape[1] - 1)):  # x / (x + y) of two exponential numbers is uniform at any scale
        assert scipy.stats.kstest(flat[:, i] / (flat[:, i] + flat[:, j]), "uniform").pvalue > UNLIKELY
    for ratio in (ratios(E.GaussianArms(2), 2, 20), ratios(E.SkewedArms(2), 1, 5)):
        assert scipy.stats.kstest(ratio, lambda r: 2 * r / (1 + r)).pvalue > UNLIKELY


def test_arms_of_different_slots_rounds_and_lanes_differ_but_for_fixed_ones() -> None:
    for law in (E.BallArms(6), E.CubeArms(6), E.GaussianArms(6), E.SkewedArms(6), E.ComeAndGo(count=6, lifetime=1)):
        points = sample(law, 3, 1.0, rounds=4, lanes=5).reshape(-1, 3)
        assert len(np.unique(points, axis=0)) == len(points)
    fixed = E.FixedArms(np.array([[1.0, 0.0], [0.6, 0.8]]))
    for t in (1, 9):
        arms, valid = fixed.bind(dim=2, L=1.0, lane_ids=3).at(t)
        np.testing.assert_array_equal(arms, [fixed.arms] * 3)
        assert valid is None
    assert fixed.count == 2


@pytest.mark.parametrize("law", [E.BallArms(6), E.SphereArms(6), E.CubeArms(6), E.GaussianArms(6), E.SkewedArms(6)])
def test_arms_that_are_drawn_once_are_those_of_the_first_round(law: E.ArmLaw) -> None:
    once = E.ArmsDrawnOnce(law.kind, count=6).bind(dim=3, L=2.0, lane_ids=5, seed=3)
    first, _ = law.bind(dim=3, L=2.0, lane_ids=5, seed=3).at(1)
    for t in (1, 2, 2**40):
        arms, valid = once.at(t)
        np.testing.assert_array_equal(arms, first)
        assert valid is None
        arms[:] = 0.0  # the caller's own
    assert len(np.unique(first.reshape(-1, 3), axis=0)) == 30  # lanes and arms differ


def test_items_keep_their_features_and_are_replaced_on_time() -> None:
    lifetime, T, lanes, count = 9, 60, 40, 6
    stream = E.ComeAndGo(count=count, lifetime=lifetime, presence=0.5).bind(dim=2, L=1.0, lane_ids=lanes, seed=5)
    arms, valid = (np.array(part) for part in zip(*(stream.at(t) for t in range(1, T + 1)), strict=True))
    assert valid.any(axis=2).all()
    offered, phases = valid.sum(axis=2), set()
    for lane, slot in itertools.product(range(lanes), range(count)):
        changes = np.flatnonzero((np.diff(arms[:, lane, slot], axis=0) != 0).any(axis=1))
        assert set(np.diff(changes)) == {lifetime}
        assert changes[0] < lifetime
        phases.add(int(changes[0]))
        # presence changes with the item, or where a lane would otherwise be empty
        for start in range(T - 1):
            if (arms[start, lane, slot] == arms[start + 1, lane, slot]).all():
                same = valid[start, lane, slot] == valid[start + 1, lane, slot]
                assert same or 1 in (offered[start, lane], offered[start + 1, lane])
    assert phases == set(range(lifetime))  # 240 slots: missing one of 9 has a chance below 1e-11


@pytest.mark.parametrize(("presence", "count"), [(0.0, 3), (0.3, 4), (0.7, 10), (1.0, 2)])
def test_items_are_offered_as_often_as_said(presence: float, count: int) -> None:
    lanes = 2000
    _, valid = E.ComeAndGo("cube", count, 5, presence).bind(dim=2, L=1.0, lane_ids=lanes, seed=5).at(1)
    assert valid is not None
    assert valid.any(axis=1).all()
    share = presence + (1 - presence) ** count / count
    # the number offered in a lane: binomial, but 1 where that is 0
    second = count * presence * (1 - presence) + (count * presence) ** 2 + (1 - presence) ** count
    error = math.sqrt(max(second - (count * share) ** 2, 0.0) / lanes)
    assert abs(valid.sum(axis=1).mean() - count * share) <= DEVIATIONS * error + 1e-12


@pytest.mark.parametrize("kind", ARMS)
def test_arms_do_not_depend_on_order_or_company(kind: str) -> None:
    ids = [3, 1, 7, 3]
    together = ARMS[kind].bind(dim=2, L=1.0, lane_ids=ids, seed=11)
    alone = [ARMS[kind].bind(dim=2, L=1.0, lane_ids=[i], seed=11) for i in ids]
    for t in (1, 40, 8, 9, 2**40, 3, 8):
        arms, valid = together.at(t)
        for place, stream in enumerate(alone):
            own, present = stream.at(t)
            np.testing.assert_array_equal(own[0], arms[place])
            assert (valid is None) == (present is None)
            if valid is not None and present is not None:
                np.testing.assert_array_equal(present[0], valid[place])
