"""Drifts, arm laws and the environments made of them: exact lengths, bounds, distributions, lanes, refusals."""

from __future__ import annotations

import itertools
import math
import pickle
import re

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from windvane import BVDGLMUCB, CustomLink
from windvane import environments as E
from windvane.environments import paths
from windvane.errors import ArgumentError

UNLIKELY = 1e-6  # a p-value below it is taken as a failure
DEVIATIONS = 6.0  # a mean this many standard errors off is taken as a failure
ROUNDED = 1 + 1e-12


def spiral(t: int) -> np.ndarray:
    """A path for the function drift: outwards for 200 rounds, then at rest."""
    t = min(t, 200)
    return 0.002 * t * np.array([math.cos(0.1 * t), math.sin(0.1 * t)])


DRIFTS: dict[str, E.Drift] = {
    "static": E.Static(),
    "rotation": E.Rotation(),
    "arc": E.Arc(),
    "turns": E.Turns(),
    "switches": E.Switches(times=[5, 20], thetas=[[1.0, 0.0], [0.0, 0.5], [-0.6, 0.8]]),
    "random-switches": E.RandomSwitches(count=4),
    "random-walk": E.RandomWalk(step=0.05),
    "sinusoid": E.Sinusoid(period=17.0, amplitude=[0.3, 0.3], centre=[0.1, -0.4], phase=1.0),
    "piecewise-linear": E.PiecewiseLinear(times=[3, 10, 14, 24], points=[[1, 0], [0, 1], [0, 1], [-1, 0]]),
    "function": E.FunctionDrift(spiral),
}
ARMS: dict[str, E.ArmLaw] = {
    "ball": E.BallArms(5),
    "sphere": E.SphereArms(5),
    "cube": E.CubeArms(5),
    "orthogonal": E.OrthogonalArms(5),
    "gaussian": E.GaussianArms(5),
    "skewed": E.SkewedArms(5),
    "fixed": E.FixedArms([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]),
    "come-and-go": E.ComeAndGo(count=5, lifetime=7, presence=0.4),
}
REWARDS: dict[str, tuple[E.RewardLaw, str]] = {
    "bernoulli": (E.BernoulliRewards(), "logistic"),
    "gaussian": (E.GaussianRewards(sd=0.3), "identity"),
    "binomial": (E.BinomialRewards(trials=4), "probit"),
    "poisson": (E.PoissonRewards(), "poisson"),
}


def test_every_kind_is_tested_here() -> None:
    for ours, registry in ((DRIFTS, E.DRIFTS), (ARMS, E.ARM_LAWS), (REWARDS, E.REWARD_LAWS)):
        assert set(ours) == set(registry)
    for registry in (E.DRIFTS, E.ARM_LAWS, E.REWARD_LAWS, E.DELAYS):
        assert all(kind == law.kind and law.__name__ in E.__all__ for kind, law in registry.items())


def path_of(drift: E.Drift, T: int = 60, dim: int = 2, S: float = 1.0, lanes: int | list[int] = 3) -> E.Path:
    return drift.path(horizon=T, dim=dim, S=S, lane_ids=lanes, seed=7)


def literal(path: E.Path) -> tuple[np.ndarray, np.ndarray]:
    """B_T and the number of switches, by asking for every round."""
    thetas = np.array([path.at(t) for t in range(1, path.horizon + 1)])
    moves = np.diff(thetas, axis=0)
    return np.linalg.norm(moves, axis=2).sum(axis=0), (moves != 0).any(axis=2).sum(axis=0)


# --- drifts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DRIFTS)
@pytest.mark.parametrize("T", [24, 60, 2500])
def test_length_and_switches_are_those_of_the_path(kind: str, T: int) -> None:
    path = path_of(DRIFTS[kind], T)
    length, switches = literal(path)
    np.testing.assert_allclose(path.variation, length, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(path.switches, switches)
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
    expected = 2 * (T - 1) * S * abs(math.sin(angle / (2 * T)))
    np.testing.assert_allclose(path.variation, expected, rtol=1e-9, atol=1e-12 * S)
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
    np.testing.assert_allclose(
        path.at(T)[0], [math.cos(count * math.pi / 3), math.sin(count * math.pi / 3)], atol=1e-12
    )


def test_switches_happen_when_they_should() -> None:
    thetas = np.array([[1.0, 0.0], [0.0, 0.5], [-0.6, 0.8]])
    path = path_of(DRIFTS["switches"])
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


def test_random_switches_in_one_dimension_count_real_moves_only() -> None:
    path = path_of(E.RandomSwitches(20), 50, 1, 1.0, 40)
    assert path.switches.max() < 20
    np.testing.assert_array_equal(path.variation, 2.0 * path.switches)


def test_a_random_walk_starts_where_told_and_takes_steps_of_the_right_size() -> None:
    step, dim, lanes = 0.01, 3, 300
    start = [0.1, 0.0, 0.2]
    path = path_of(E.RandomWalk(step, start), 40, dim, 1.0, lanes)
    np.testing.assert_array_equal(path.at(1), [start] * lanes)
    moves = np.diff([path.at(t) for t in range(1, 41)], axis=0).ravel() * math.sqrt(dim) / step
    assert scipy.stats.kstest(moves, "norm").pvalue > UNLIKELY
    np.testing.assert_array_equal(path_of(E.RandomWalk(1.0), S=3.0).at(1), [[3.0, 0.0]] * 3)


def test_sinusoid_and_lines_follow_their_formulas() -> None:
    wave = path_of(DRIFTS["sinusoid"])
    line = path_of(DRIFTS["piecewise-linear"])
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


@pytest.mark.parametrize("kind", DRIFTS)
@pytest.mark.parametrize("dim", [2, 5])
def test_parameters_stay_in_the_ball(kind: str, dim: int) -> None:
    S, drift = 1.5, DRIFTS[kind]
    if dim != 2 and kind in ("switches", "sinusoid", "piecewise-linear", "function"):
        return  # made for the plane
    path = drift.path(horizon=300, dim=dim, S=S, lane_ids=4, seed=1)
    norms = [np.linalg.norm(path.at(t), axis=1).max() for t in range(1, 301)]
    assert max(norms) <= S * ROUNDED


@pytest.mark.parametrize("kind", DRIFTS)
def test_a_path_is_the_same_in_any_order_and_in_any_company(kind: str) -> None:
    T = 2300  # three blocks
    together = path_of(DRIFTS[kind], T, lanes=[3, 1, 7, 3])
    order = np.random.default_rng(0).permutation(np.arange(1, T + 1))[:60].tolist()
    forward = {t: together.at(t) for t in sorted(order)}
    again = path_of(DRIFTS[kind], T, lanes=[3, 1, 7, 3])
    for t in order:
        np.testing.assert_array_equal(again.at(t), forward[t])
    for place, lane in enumerate([3, 1, 7, 3]):
        alone = path_of(DRIFTS[kind], T, lanes=[lane])
        for t in sorted(order):
            np.testing.assert_array_equal(alone.at(t)[0], forward[t][place])
        assert alone.variation[0] == together.variation[place]
        assert alone.switches[0] == together.switches[place]


def test_lengths_do_not_depend_on_how_a_path_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = path_of(E.RandomWalk(0.1), 500)
    lengths = whole.variation
    monkeypatch.setattr(paths, "LARGEST_BLOCK", 100)
    cut = path_of(E.RandomWalk(0.1), 500)
    assert cut._length < whole._length
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


def test_measuring_leaves_a_walk_where_it_is() -> None:
    path, other = path_of(E.RandomWalk(0.1), 3000), path_of(E.RandomWalk(0.1), 3000)
    path.at(1500)
    held = path._block
    assert (path.variation > 0).all()
    assert path._block is held
    np.testing.assert_array_equal(path.at(1501), other.at(1501))
    path.at(5)[:] = 9.0  # the caller's own
    np.testing.assert_array_equal(path.at(5), other.at(5))


# --- arms -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_gaussian_sets_are_scaled_to_the_longest(dim: int) -> None:
    sets = sample(E.GaussianArms(10), dim, 2.0)
    np.testing.assert_allclose(np.linalg.norm(sets, axis=2).max(axis=1), 2.0, rtol=1e-14)
    isotropic(sets.reshape(-1, dim))
    twos = np.square(sample(E.GaussianArms(2), 2, 1.0, rounds=20)).sum(axis=2)  # exponential numbers, scaled
    ratio = twos.min(axis=1) / twos.max(axis=1)
    assert scipy.stats.kstest(ratio, lambda r: 2 * r / (1 + r)).pvalue > UNLIKELY


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_skewed_sets_are_exponential_and_scaled_to_the_longest(dim: int) -> None:
    sets = sample(E.SkewedArms(10), dim, 2.0)
    np.testing.assert_allclose(np.linalg.norm(sets, axis=2).max(axis=1), 2.0, rtol=1e-14)
    assert (sets > 0).all()
    flat = sets.reshape(len(sets), -1)
    for i, j in ((0, 1), (0, flat.shape[1] - 1)):  # x / (x + y) of two exponential numbers is uniform at any scale
        share = flat[:, i] / (flat[:, i] + flat[:, j])
        assert scipy.stats.kstest(share, "uniform").pvalue > UNLIKELY
    ones = sample(E.SkewedArms(2), 1, 1.0)[:, :, 0]  # exponential numbers, scaled
    ratio = ones.min(axis=1) / ones.max(axis=1)
    assert scipy.stats.kstest(ratio, lambda r: 2 * r / (1 + r)).pvalue > UNLIKELY


def test_fixed_arms_are_always_the_same() -> None:
    law = E.FixedArms(np.array([[1.0, 0.0], [0.6, 0.8]]))
    stream = law.bind(dim=2, L=1.0, lane_ids=3)
    for t in (1, 9):
        arms, valid = stream.at(t)
        np.testing.assert_array_equal(arms, [law.arms] * 3)
        assert valid is None
    assert law.count == 2


def test_arms_of_different_slots_rounds_and_lanes_differ() -> None:
    for law in (E.BallArms(6), E.CubeArms(6), E.GaussianArms(6), E.SkewedArms(6), E.ComeAndGo(count=6, lifetime=1)):
        points = sample(law, 3, 1.0, rounds=4, lanes=5).reshape(-1, 3)
        assert len(np.unique(points, axis=0)) == len(points)


def test_items_keep_their_features_and_are_replaced_on_time() -> None:
    lifetime, T, lanes, count = 9, 60, 40, 6
    stream = E.ComeAndGo(count=count, lifetime=lifetime, presence=0.5).bind(dim=2, L=1.0, lane_ids=lanes, seed=5)
    arms, valid = (np.array(part) for part in zip(*(stream.at(t) for t in range(1, T + 1)), strict=True))
    assert valid.any(axis=2).all()
    phases = set()
    for lane, slot in itertools.product(range(lanes), range(count)):
        changes = np.flatnonzero((np.diff(arms[:, lane, slot], axis=0) != 0).any(axis=1))
        assert set(np.diff(changes)) == {lifetime}
        assert changes[0] < lifetime
        phases.add(int(changes[0]))
    assert phases == set(range(lifetime))  # 240 slots: missing one of 9 has a chance below 1e-11
    # presence changes with the item, or where a lane would otherwise be empty
    offered = valid.sum(axis=2)
    for lane, slot in itertools.product(range(lanes), range(count)):
        for start in range(T - 1):
            if (arms[start, lane, slot] == arms[start + 1, lane, slot]).all():
                same = valid[start, lane, slot] == valid[start + 1, lane, slot]
                assert same or 1 in (offered[start, lane], offered[start + 1, lane])


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


# --- environments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drift", "arms", "rewards"), list(itertools.product(DRIFTS, ARMS, REWARDS)))
def test_every_combination_runs_under_a_policy(drift: str, arms: str, rewards: str) -> None:
    law, link = REWARDS[rewards]
    T = 24
    world = E.Environment(DRIFTS[drift], ARMS[arms], law, link=link, horizon=T, lanes=[2, 0], seed=5)
    policy = BVDGLMUCB(
        world.dim, world.link, gamma=0.95, S=world.S, L=world.L, sigma=world.sigma, lanes=world.lane_ids, seed=5
    )
    everyone = np.arange(world.lanes)
    for t in range(1, T + 1):
        offer = world.round(t)
        choice = policy.select(offer.arms, offer.valid)
        means = offer.means[everyone, choice]
        assert (offer.best - means >= 0).all()
        assert offer.valid is None or offer.valid[everyone, choice].all()
        policy.update(offer.arms[everyone, choice], world.reward(t, means))


@given(
    st.sampled_from(sorted(DRIFTS)),
    st.sampled_from(sorted(ARMS)),
    st.sampled_from(sorted(REWARDS)),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
    st.lists(st.integers(1, 24), min_size=1, max_size=5),
    st.sampled_from([None, -0.3]),
)
@settings(max_examples=40)
def test_lanes_and_rounds_are_independent(
    drift: str, arms: str, rewards: str, ids: list[int], seed: int, order: list[int], intercept: float | None
) -> None:
    law, link = REWARDS[rewards]

    def build(lanes: list[int]) -> E.Environment:
        return E.Environment(
            DRIFTS[drift],
            ARMS[arms],
            law,
            link=link,
            intercept=intercept,
            delay=E.GeometricDelay(3.0),
            horizon=24,
            lanes=lanes,
            seed=seed,
        )

    together, forward = build(ids), build(ids)
    rounds = {t: forward.round(t) for t in sorted(order)}
    for t in order:
        seen = together.round(t)
        u = together.reward(t, seen.means[:, 0])
        delays = together.delays(t)
        assert delays is not None
        for name in ("arms", "theta", "means", "best"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(rounds[t], name))
        for place, identity in enumerate(ids):
            world = build([identity])
            own = world.round(t)
            for name in ("arms", "valid", "theta", "means", "best"):
                ours, theirs = getattr(own, name), getattr(seen, name)
                assert (ours is None and theirs is None) or np.array_equal(ours[0], theirs[place])
            assert world.reward(t, own.means[:, 0])[0] == u[place]
            assert world.delays(t)[0] == delays[place]  # type: ignore[index]


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[float]:
        world = E.Environment(
            E.RandomWalk(0.1), E.BallArms(), E.GaussianRewards(), link="identity", horizon=50, seed=seed
        )
        offer = world.round(50)
        return [offer.theta[0, 0], offer.arms[0, 0, 0], world.reward(50, [0.0])[0]]

    assert first(4) == first(4)
    assert all(a != b for a, b in zip(first(4), first(5), strict=True))


def test_a_round_is_what_it_says() -> None:
    world = E.Environment(E.Rotation(), E.ComeAndGo(presence=0.3), horizon=300, lanes=20)
    for t in (1, 150, 300):
        offer = world.round(t)
        z = np.einsum("lkd,ld->lk", offer.arms, offer.theta)
        np.testing.assert_allclose(offer.means, scipy.special.expit(z), rtol=1e-14)
        assert offer.valid is not None
        np.testing.assert_array_equal(offer.best, np.where(offer.valid, offer.means, -1).max(axis=1))
        np.testing.assert_array_equal(offer.theta, world.path.at(t))
        assert offer.t == t
    assert world.variation.tolist() == world.path.variation.tolist()
    assert world.switches.tolist() == [100] * 20


def test_an_intercept_is_one_more_feature() -> None:
    plain = E.Environment(E.Rotation(), E.OrthogonalArms(), S=0.5, L=2.0, horizon=30, lanes=3)
    world = E.Environment(E.Rotation(), E.OrthogonalArms(), S=0.5, L=2.0, intercept=-1.2, horizon=30, lanes=3)
    assert (world.dim, world.S, world.L) == (3, math.hypot(0.5, 1.2), math.sqrt(5))
    assert (plain.orthogonal, world.orthogonal) == (True, False)
    offer, bare = world.round(15), plain.round(15)
    np.testing.assert_array_equal(offer.arms[..., :2], bare.arms)
    np.testing.assert_array_equal(offer.theta[:, :2], bare.theta)
    assert (offer.arms[..., 2] == 1).all()
    assert (offer.theta[:, 2] == -1.2).all()
    z = np.einsum("lkd,ld->lk", bare.arms, bare.theta) - 1.2
    np.testing.assert_allclose(offer.means, scipy.special.expit(z), rtol=1e-14)
    np.testing.assert_array_equal(world.variation, plain.variation)


def test_the_natural_rewards_of_each_link() -> None:
    expected = {
        "logistic": E.BernoulliRewards(),
        "probit": E.BernoulliRewards(),
        "poisson": E.PoissonRewards(),
        "identity": E.GaussianRewards(),
    }
    for link, law in expected.items():
        assert E.Environment(E.Static(), E.BallArms(), link=link, horizon=5).rewards == law


def test_custom_links_work_and_are_judged_by_their_means() -> None:
    cloglog = CustomLink("cloglog", lambda z: -np.expm1(-np.exp(z)), lambda z: np.exp(z - np.exp(z)))
    world = E.Environment(E.Rotation(), E.BallArms(), link=cloglog, horizon=30, lanes=2)
    assert world.rewards == E.BernoulliRewards()
    offer = world.round(3)
    np.testing.assert_allclose(offer.means, cloglog.mean(np.einsum("lkd,ld->lk", offer.arms, offer.theta)), rtol=1e-12)
    free = CustomLink("shifted", lambda z: z + 5, np.ones_like, any_reward=True)
    assert E.Environment(E.Static(), E.BallArms(), link=free, horizon=3).rewards == E.GaussianRewards()
    large = CustomLink("tripled", lambda z: 3 * scipy.special.expit(z), lambda z: 3 * scipy.special.expit(z))
    with pytest.raises(ArgumentError, match="link 'tripled'"):
        E.Environment(E.Static(), E.BallArms(), link=large, horizon=3)
    assert E.Environment(E.Static(), E.BallArms(), E.PoissonRewards(), link=large, horizon=3).sigma > 1.5


def test_environments_travel() -> None:
    world = E.Environment(E.RandomWalk(0.1), E.ComeAndGo(), delay=E.FixedDelay(3), horizon=50, lanes=[4, 2])
    world.round(20)
    arrived = pickle.loads(pickle.dumps(world))
    np.testing.assert_array_equal(arrived.round(21).means, world.round(21).means)
    np.testing.assert_array_equal(arrived.reward(21, [0.5, 0.5]), world.reward(21, [0.5, 0.5]))
    assert repr(arrived) == repr(world)
    for kind, drift in DRIFTS.items():
        assert kind == "function" or pickle.loads(pickle.dumps(path_of(drift))).at(3).shape == (3, 2)


def test_records_are_equal_when_their_fields_are() -> None:
    assert E.Switches([5], [[1, 0], [0, 1]]) == E.Switches((5,), np.eye(2))
    assert hash(E.FixedArms([[1, 0]])) == hash(E.FixedArms(np.array([[1.0, 0.0]])))
    assert E.FunctionDrift("math:sqrt") == E.FunctionDrift("math:sqrt")
    assert E.BallArms(4) != E.SphereArms(4)


def test_a_function_may_be_named() -> None:
    named = E.FunctionDrift("test_environments:spiral")
    np.testing.assert_array_equal(path_of(named).at(30), path_of(DRIFTS["function"]).at(30))


# --- refusals -------------------------------------------------------------------------------------------------------


def outwards(t: int) -> list[float]:
    return [0.1 * t, 0.0]


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: E.Static(["a"]), "theta"),
        (lambda: E.Static([math.nan, 0]), "theta"),
        (lambda: E.Static([]), "theta"),
        (lambda: path_of(E.Static([0.5])), "theta"),
        (lambda: path_of(E.Static([1.0, 0.1])), "theta"),
        (lambda: E.Rotation(begin=0.5, end=0.5), "end"),
        (lambda: E.Rotation(begin=-0.1), "begin"),
        (lambda: E.Rotation(angle=math.inf), "angle"),
        (lambda: path_of(E.Rotation(), dim=1), "dim"),
        (lambda: path_of(E.Arc(), dim=1), "dim"),
        (lambda: E.Turns(count=0), "count"),
        (lambda: E.Turns(share=0), "share"),
        (lambda: E.Switches([1], [[1, 0], [0, 1]]), "times"),
        (lambda: E.Switches([5, 5], [[1, 0]] * 3), "times"),
        (lambda: E.Switches([5], [[1, 0]]), "thetas"),
        (lambda: E.Switches(5, [[1, 0]]), "times"),
        (lambda: E.Switches([5], [[1, 0], [1]]), "thetas"),
        (lambda: path_of(E.Switches([61], [[1, 0], [0, 1]])), "times"),
        (lambda: path_of(E.Switches([6], [[1, 0], [0, 2]])), "thetas"),
        (lambda: E.RandomSwitches(-1), "count"),
        (lambda: path_of(E.RandomSwitches(60)), "count"),
        (lambda: E.RandomWalk(0.0), "step"),
        (lambda: path_of(E.RandomWalk(0.1, [2, 0])), "start"),
        (lambda: E.Sinusoid(period=-3), "period"),
        (lambda: path_of(E.Sinusoid(3, centre=[0.1, 0])), "centre"),
        (lambda: E.PiecewiseLinear([1, 2], [[1, 0]]), "points"),
        (lambda: path_of(E.PiecewiseLinear([1, 70], [[1, 0]] * 2)), "times"),
        (lambda: E.FunctionDrift(3), "function"),
        (lambda: E.FunctionDrift("nowhere"), "function"),
        (lambda: path_of(E.FunctionDrift("nowhere:at_all")), "function"),
        (lambda: path_of(E.FunctionDrift("math:pi")), "function"),
        (lambda: path_of(E.FunctionDrift(outwards)), "function"),
        (lambda: path_of(E.FunctionDrift(lambda _: [1.0])), "function"),
        (lambda: path_of(E.FunctionDrift(lambda _: [math.nan, 0])), "function"),
        (lambda: path_of(E.Static()).at(0), "t"),
        (lambda: path_of(E.Static()).at(61), "t"),
        (lambda: path_of(E.Static(), T=0), "horizon"),
        (lambda: path_of(E.Static(), S=-1), "S"),
        (lambda: path_of(E.Static(), lanes=[-1]), "lanes"),
        (lambda: E.BallArms(0), "count"),
        (lambda: E.BallArms(10**5).bind(dim=1000, L=1.0, lane_ids=1), "count"),
        (lambda: E.SphereArms(2).bind(dim=2, L=0, lane_ids=1), "L"),
        (lambda: E.CubeArms(2).bind(dim=2, L=1, lane_ids=1).at(0), "t"),
        (lambda: E.FixedArms([1, 0]), "arms"),
        (lambda: E.FixedArms([[1, 1]]).bind(dim=2, L=1, lane_ids=1), "arms"),
        (lambda: E.ComeAndGo("gaussian"), "law"),
        (lambda: E.ComeAndGo(lifetime=0), "lifetime"),
        (lambda: E.ComeAndGo(presence=1.1), "presence"),
        (lambda: E.Environment("static", E.BallArms(), horizon=3), "drift"),
        (lambda: E.Environment(E.Static(), E.Static(), horizon=3), "arms"),
        (lambda: E.Environment(E.Static(), E.BallArms(), 3, horizon=3), "rewards"),
        (lambda: E.Environment(E.Static(), E.BallArms(), delay=3, horizon=3), "delay"),
        (lambda: E.Environment(E.Static(), E.BallArms(), link="logit", horizon=3), "link"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, seed=-1), "seed"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, dim=0), "dim"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3, intercept="x"), "intercept"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).round(4), "t"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(4, [0.5]), "t"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [0.5, 0.5]), "means"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [math.nan]), "means"),
        (lambda: E.Environment(E.Static(), E.BallArms(), horizon=3).reward(1, [1.5]), "means"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_that_names_them(make: object, argument: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        make()  # type: ignore[operator]
    assert argument == re.match(r"\w+", refusal.value.argument)[0]
    assert "\n" not in str(refusal.value)
