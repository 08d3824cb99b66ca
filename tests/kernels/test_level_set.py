"""max <x, theta> over a level set of the likelihood: certificates, first-order conditions, SciPy, grids, lanes."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import NonlinearConstraint, minimize, nnls

import naive
from support import access
from support.estimators import seeds
from support.worlds import ball, draw_reward
from windvane import ArgumentError, get_threads, set_threads
from windvane.estimation import Expansion, MaximumLikelihoodEstimator
from windvane.estimation.level_set import LikelihoodSets, Maxima
from windvane.kernels import elementary as elementary_kernels
from windvane.kernels.level_set import CERTIFIED

elementary = access.callable_module(elementary_kernels)
LINKS = ["logistic", "poisson", "identity"]
by_link = pytest.mark.parametrize("link", LINKS)


@dataclass
class Problem:
    """The data of one lane, its loss, and its set for a level."""

    X: np.ndarray
    r: np.ndarray
    w: np.ndarray
    link: str
    S: float
    L: float
    ridge: float
    level: float
    is_hat_in_ball: bool

    def losses(self, thetas: np.ndarray) -> np.ndarray:
        """The loss at every row."""
        z = thetas @ self.X.T
        return (naive.PRIMITIVES[self.link](z) - self.r * z) @ self.w + self.ridge / 2 * np.sum(thetas**2, axis=1)

    def loss(self, theta: np.ndarray) -> float:
        return float(self.losses(theta[None])[0])

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        mean = naive.LINKS[self.link].mean(self.X @ theta)
        return self.X.T @ (self.w * (mean - self.r)) + self.ridge * theta

    def hessian(self, theta: np.ndarray) -> np.ndarray:
        return naive.H(theta, self.X, self.w, self.ridge, naive.LINKS[self.link])

    def build(self, lam: float = 1.0, **more: Any) -> MaximumLikelihoodEstimator:
        e = MaximumLikelihoodEstimator(self.X.shape[1], self.link, S=self.S, L=self.L, lam=lam, **more)
        for x, r, w in zip(self.X, self.r, self.w, strict=True):
            e.observe(x[None], r, weight=w)
        e.solve()
        return e

    def sets(self, estimator: MaximumLikelihoodEstimator | None = None) -> LikelihoodSets:
        settings = {"level": np.array([self.level]), "ridge": self.ridge, "is_hat_in_ball": self.is_hat_in_ball}
        return LikelihoodSets(estimator or self.build(), **settings)


def draw_problem(seed: int) -> tuple[np.random.Generator, Problem]:
    """From no data to a few hundred rewards, small balls and large ones, tiny sets and sets that contain the ball."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.choice([1, 2, 3, 5, 8])), int(rng.choice([0, 1, 3, 20, 200]))
    link, L = str(rng.choice(LINKS)), float(rng.choice([0.3, 1.0, 3.0]))
    S = float(rng.choice([0.2, 1.0, 4.0] if link != "poisson" else [0.2, 0.7, 1.5])) / L
    X = ball(rng, (n,), d, L)
    if rng.random() < 0.3:
        X *= 10 ** rng.uniform(-2, 0, d)  # badly conditioned
    theta_star = ball(rng, (), d, float(rng.choice([0.5, 2.0])) * S)
    is_hat_in_ball = bool(rng.random() < 0.5)
    ridge = 10 ** (rng.uniform(-8, 1) if is_hat_in_ball else rng.uniform(-1, 1.5))
    r = draw_reward(rng, link, np.clip(X @ theta_star, -4, 4))
    w = rng.choice([1.0, 1.0, 2.5], n)
    return rng, Problem(X, r, w, link, S, L, float(ridge), float(10 ** rng.uniform(-2, 2.5)), is_hat_in_ball)


def solve(sets: LikelihoodSets, arms: np.ndarray) -> Maxima:
    return sets.maximise(arms[None], np.ones((1, len(arms)), dtype=bool))


def solve_each(sets: LikelihoodSets, arms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bounds and points for each arm alone, so that none is screened out."""
    found = [solve(sets, arm[None]) for arm in arms]
    upper, lower = (np.array([getattr(m, name)[0, 0] for m in found]) for name in ("upper", "lower"))
    return upper, lower, np.array([m.theta[0, 0] for m in found])


@settings(deadline=None, max_examples=120)
@given(seed=seeds)
def test_certificates_and_first_order_conditions(seed: int) -> None:
    """The bounds meet; the point is in the set and has the lower one; x = a grad loss + b theta with a, b >= 0 there.

    An error of e in the value moves the point along the boundary by sqrt(e) of the set's width, and so the residual of
    the conditions: sqrt(1e-9) = 3e-5.
    """
    rng, problem = draw_problem(seed)
    sets, arms = problem.sets(), ball(rng, (3,), problem.X.shape[1], problem.L)
    center, S = sets.center[0], problem.S
    assert np.linalg.norm(center) <= S * (1 + 1e-9)
    C = problem.loss(sets.theta_hat[0]) + problem.level
    size = max(problem.level, 1e-13 * (1.0 + abs(problem.loss(center))))
    assert sets.level[0] == pytest.approx(C - problem.loss(center), abs=1e-9 * size + 1e-12 * abs(C))
    upper, lower, points = solve_each(sets, arms)
    for x, high, low, theta in zip(arms, upper, lower, points, strict=True):
        assert low == pytest.approx(x @ theta, rel=1e-9, abs=1e-12)
        assert np.linalg.norm(theta) <= S * (1 + 1e-9)
        if sets.level[0] <= 0.0:
            np.testing.assert_array_equal(theta, center)
            continue
        assert 0 <= high - low <= 2 * CERTIFIED * (high - x @ center) + 1e-13 * S * np.linalg.norm(x)
        assert problem.loss(theta) <= C + 1e-7 * size
        columns = np.stack([problem.gradient(theta), theta], axis=1)
        columns[:, 0] *= problem.loss(theta) >= C - 1e-6 * size  # what does not bind has no multiplier
        columns[:, 1] *= np.linalg.norm(theta) >= S * (1 - 1e-6)
        residual = nnls(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300), x / np.linalg.norm(x))[1]
        assert residual <= 2e-4


@settings(deadline=None, max_examples=60)
@given(seed=seeds)
def test_no_point_of_the_set_is_better(seed: int) -> None:
    """Weak duality: 600 points on the boundary, found by bisection along rays from the center."""
    rng, problem = draw_problem(seed)
    sets, arms = problem.sets(), ball(rng, (3,), problem.X.shape[1], problem.L)
    if sets.level[0] <= 0.0:
        return
    center, C = sets.center[0], problem.loss(sets.theta_hat[0]) + problem.level
    upper = solve_each(sets, arms)[0]
    targets = ball(rng, (300,), len(center), problem.S)
    targets = np.concatenate([targets, problem.S * targets / np.linalg.norm(targets, axis=1, keepdims=True)])
    low, high = np.zeros(len(targets)), np.ones(len(targets))
    for _ in range(30):
        middle = (low + high) / 2
        is_inside = problem.losses(center + middle[:, None] * (targets - center)) <= C
        low, high = np.where(is_inside, middle, low), np.where(is_inside, high, middle)
    values = (center + low[:, None] * (targets - center)) @ arms.T
    assert (values.max(axis=0) <= upper + 1e-9 * problem.S * problem.L).all()


@pytest.mark.parametrize("part", range(6))
def test_against_scipy(part: int) -> None:
    """SLSQP from several starts finds the same value, within 1e-6 of the width of the set."""
    for seed in range(12):
        rng, problem = draw_problem(1000 * part + seed)
        sets, arms = problem.sets(), ball(rng, (2,), problem.X.shape[1], problem.L)
        if sets.level[0] <= 1e-3 * problem.level:
            continue
        C = problem.loss(sets.theta_hat[0]) + problem.level
        upper, lower, _ = solve_each(sets, arms)
        for x, high, low in zip(arms, upper, lower, strict=True):
            found = naive.value_over_set(x, problem.loss, problem.gradient, C, problem.S, sets.center[0])
            width = high - x @ sets.center[0]
            assert found <= high + 1e-6 * width
            assert found >= low - 1e-4 * width  # SLSQP stops early now and then


@by_link
@pytest.mark.parametrize("seed", range(3))
def test_against_trust_constr(link: str, seed: int) -> None:
    """Another algorithm of SciPy, an interior-point method, on a set that both constraints bound."""
    rng = np.random.default_rng([7, seed])
    X, x = ball(rng, (80,), 3), ball(rng, (1,), 3)
    r = draw_reward(rng, link, X @ np.array([0.9, 0.3, 0.0]))
    problem = Problem(X, r, np.ones(80), link, 1.0, 1.0, 0.5, 2.0, is_hat_in_ball=True)
    sets = problem.sets()
    C = problem.loss(sets.theta_hat[0]) + problem.level
    in_set = NonlinearConstraint(
        problem.loss, -np.inf, C, jac=problem.gradient, hess=lambda z, v: v[0] * problem.hessian(z)
    )
    in_ball = NonlinearConstraint(
        lambda z: z @ z, -np.inf, 1.0, jac=lambda z: 2 * z, hess=lambda z, v: (2 * v[0] + 0 * z[0]) * np.eye(3)
    )
    found = minimize(
        lambda z: (float(-x[0] @ z), -x[0]), 0.5 * sets.center[0], jac=True, hess=lambda z: 0 * np.outer(z, z),
        method="trust-constr", constraints=[in_set, in_ball],
        options={"gtol": 1e-12, "xtol": 1e-14, "barrier_tol": 1e-12, "maxiter": 3000},
    )  # fmt: skip
    assert x[0] @ found.x == pytest.approx(solve(sets, x).upper[0, 0], abs=1e-6)


@by_link
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("level", [0.3, 3.0, 100.0])
def test_against_a_grid_of_the_ball(link: str, dim: int, level: float) -> None:
    rng = np.random.default_rng([8, dim])
    X = ball(rng, (40,), dim)
    r = draw_reward(rng, link, X @ np.full(dim, 0.8))
    problem = Problem(X, r, np.ones(40), link, 1.2, 1.0, 1e-3, level, is_hat_in_ball=True)
    sets, arms = problem.sets(), ball(rng, (4,), dim)
    side = np.linspace(-1.2, 1.2, 40_001 if dim == 1 else 801)
    grid = np.stack(np.meshgrid(*[side] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    grid = grid[np.linalg.norm(grid, axis=1) <= 1.2]
    z = grid @ X.T
    loss = naive.PRIMITIVES[link](z).sum(axis=1) - z @ r + 5e-4 * np.sum(grid**2, axis=1)
    inside = grid[loss <= problem.loss(sets.theta_hat[0]) + level]
    best, step = (inside @ arms.T).max(axis=0), side[1] - side[0]
    upper = solve_each(sets, arms)[0]
    assert (best <= upper + 1e-9).all()
    assert (best >= upper - 3 * step * np.linalg.norm(arms, axis=1)).all()


# --- what is not solved, and what does not depend on it ---------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(seed=seeds)
def test_screening_finds_the_best_valid_arm(seed: int) -> None:
    """The best arm and its bounds are those of all arms solved alone, to the bit, in any order; the rest is bounded."""
    rng, problem = draw_problem(seed)
    sets, d = problem.sets(), problem.X.shape[1]
    arms, valid = ball(rng, (9,), d, problem.L), rng.random(9) < 0.7
    arms[3], valid[[3, 6]] = arms[6], True  # two equal arms
    arms[4] = 0.0
    alone = solve_each(sets, arms)[0]
    order = rng.permutation(9)
    for places in (np.arange(9), order):
        found = sets.maximise(arms[None, places].copy(), valid[None, places].copy())
        upper = np.empty(9)
        upper[places] = found.upper[0]
        best = alone[valid].max()
        assert upper[valid].max() == best
        assert (upper >= alone - 1e-9 * (1 + np.abs(alone))).all()
        ties = valid & (alone == best)
        np.testing.assert_array_equal(upper[ties], alone[ties])
        assert (found.passes[0][~valid[places]] == -1).all()


def test_few_arms_are_solved_and_few_passes_are_needed() -> None:
    rng = np.random.default_rng(0)
    X = ball(rng, (500,), 2)
    r = draw_reward(rng, "logistic", X @ np.array([0.8, 0.0]))
    problem = Problem(X, r, np.ones(500), "logistic", 1.0, 1.0, 1e-8, 20.0, is_hat_in_ball=True)
    sets, solved, passes = problem.sets(), [], []
    for _ in range(50):
        found = solve(sets, ball(rng, (10,), 2))
        solved.append(int((found.passes >= 0).sum()))
        passes.append(int(found.passes.max()))
    assert np.mean(solved) <= 4
    assert max(passes) <= 6


def many_lanes(lanes: list[int], n: int = 60, d: int = 3) -> tuple[MaximumLikelihoodEstimator, np.ndarray]:
    """A lane's data depend on its id only; theta* is far outside the ball in every second one."""
    e = MaximumLikelihoodEstimator(d, "logistic", S=1.0, lam=0.5, lanes=len(lanes))
    rngs = [np.random.default_rng([9, lane]) for lane in lanes]
    for _ in range(n):
        x = np.stack([ball(rng, (), d) for rng in rngs])
        scale = np.array([6.0 if lane % 2 else 0.8 for lane in lanes])
        luck = np.array([rng.random() for rng in rngs])
        e.observe(x, (luck < 1 / (1 + np.exp(-scale * x[:, 0]))).astype(float))
    e.solve()
    return e, np.stack([ball(rng, (5,), d) for rng in rngs])


@pytest.mark.parametrize("is_hat_in_ball", [True, False])
def test_lanes_together_are_lanes_alone_in_any_number_of_threads(is_hat_in_ball: bool) -> None:
    ids, before = list(range(12)), get_threads()
    together, arms = many_lanes(ids, n=400)
    level, ridge = np.linspace(0.5, 30.0, 12), np.linspace(0.1, 3.0, 12)
    shared = {"is_hat_in_ball": is_hat_in_ball}
    try:
        for threads in (1, 3):
            set_threads(threads)
            sets = LikelihoodSets(together, level=level, ridge=ridge, **shared)
            found = sets.maximise(arms, np.ones((12, 5), dtype=bool))
            for lane in ids:
                own = slice(lane, lane + 1)
                single = LikelihoodSets(many_lanes([lane], n=400)[0], level=level[own], ridge=ridge[own], **shared)
                alone = single.maximise(arms[own], np.ones((1, 5), dtype=bool))
                for name in ("upper", "lower", "theta", "passes"):
                    np.testing.assert_array_equal(getattr(found, name)[own], getattr(alone, name))
                np.testing.assert_array_equal(sets.center[own], single.center)
    finally:
        set_threads(before)


def test_the_estimator_is_left_alone() -> None:
    e, arms = many_lanes([0, 1])
    before = copy.deepcopy(access.save(e))
    LikelihoodSets(e, level=np.ones(2), ridge=0.1, is_hat_in_ball=False).maximise(arms, np.ones((2, 5), dtype=bool))
    for name, array in access.save(e).items():
        np.testing.assert_array_equal(array, before[name])
    assert (e.record["ridge"] == e.ridge).all()


def test_the_root_of_the_estimator_only_saves_passes() -> None:
    """Another ridge in the estimator, another start: the same centers and values, to the accuracy of both."""
    rng, problem = draw_problem(4242)
    arms = ball(rng, (4,), problem.X.shape[1], problem.L)
    one, two = (problem.sets(problem.build(lam=lam)) for lam in (0.01, 30.0))
    np.testing.assert_allclose(one.center, two.center, atol=1e-7)
    np.testing.assert_allclose(solve_each(one, arms)[0], solve_each(two, arms)[0], rtol=1e-8)


def test_wrong_shapes_are_refused() -> None:
    e, arms = many_lanes([0, 1])
    with pytest.raises(ArgumentError):
        LikelihoodSets(e, level=np.ones(3), ridge=0.1, is_hat_in_ball=True)
    sets = LikelihoodSets(e, level=np.ones(2), ridge=0.1, is_hat_in_ball=True)
    for wrong in (arms[:1], arms[:, :, :2].copy()):
        with pytest.raises(ArgumentError):
            sets.maximise(wrong, np.ones(wrong.shape[:2], dtype=bool))


# --- the primitive of a link, and old observations that are expanded --------------------------------------------------


@by_link
@settings(deadline=None, max_examples=60)
@given(z=st.lists(st.floats(-700.0, 700.0) | st.floats(-40.0, 40.0) | st.floats(-1e-6, 1e-6), min_size=1, max_size=40))
def test_primitives(link: str, z: list[float]) -> None:
    points = np.array(z)
    mean, slope, out = (np.empty(len(z)) for _ in range(3))
    code = {"logistic": 1, "poisson": 2, "identity": 0}[link]
    elementary.mean_slope_array(code, points, mean, slope, len(z))
    elementary.primitive_array(code, points, mean, out, len(z))
    np.testing.assert_allclose(out, naive.PRIMITIVES[link](points), rtol=2e-15, atol=4e-16)


def long_histories(link: str, d: int, n: int, S: float) -> tuple[list[MaximumLikelihoodEstimator], np.random.Generator]:
    """The same observations in two estimators: one that expands old ones, and one that sums all of them."""
    rng = np.random.default_rng([n, d])
    both = [MaximumLikelihoodEstimator(d, link, S=S, lam=1.0, expansion=expansion) for expansion in (None, Expansion())]
    theta_star = 0.7 * S * np.eye(d)[0]
    for _ in range(n):
        x = ball(rng, (1,), d)
        reward = draw_reward(rng, link, x @ theta_star)
        for e in both:
            e.observe(x, reward)
        both[0].solve()
    both[1].solve()
    return both, rng


@pytest.mark.parametrize(
    ("link", "d", "n", "S", "fewest"),
    [("logistic", 2, 6000, 1.0, 0), ("poisson", 1, 3000, 0.5, 2), ("logistic", 3, 9000, 2.0, 0)],
)
def test_expanded_observations_change_no_value_by_more_than_the_tolerance(
    link: str, d: int, n: int, S: float, fewest: int
) -> None:
    """For small sets all levels are used, for large ones ``fewest``; theta_hat and the values agree within 1e-6."""
    (expanded, exact), rng = long_histories(link, d, n, S)
    assert expanded.record["anchored"][0, 0] == 1
    used = set()
    for level in (0.01, 1.0, 30.0, 1000.0):
        for is_hat_in_ball in (True, False):
            one, two = (
                LikelihoodSets(e, level=np.array([level]), ridge=0.3, is_hat_in_ball=is_hat_in_ball)
                for e in (expanded, exact)
            )
            np.testing.assert_allclose(one.center, two.center, atol=1e-6)
            arms = ball(rng, (4,), d)
            np.testing.assert_allclose(solve_each(one, arms)[0], solve_each(two, arms)[0], atol=1e-6)
            used.add(int(one.record["expanded"][0]))
    assert max(used) == 2
    assert min(used) == fewest
