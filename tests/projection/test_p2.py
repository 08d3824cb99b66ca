"""P0 and P2: against SLSQP, a fine grid, Proposition 1, first-order conditions, and the canonical rule."""

import numpy as np
import pytest
from numpy.linalg import norm

import naive
from support.instances import Instance, collect, instance, starts
from support.refusals import refuses
from windvane.projection import p0, p2

DIMS = [1, 2, 5, 10, 20]
LINK_NAMES = ["logistic", "poisson", "probit"]


def value_of(case: Instance, theta: np.ndarray, eta: np.ndarray) -> float:
    """P2's objective, written out."""
    gap = naive.g(theta, *case.moments) - case.b
    return norm(np.linalg.solve(case.V, gap + case.beta * naive.symmetric_root(case.V_tilde) @ eta))


FEW = [(5, part, 5) for part in range(8)]
MANY = [pytest.param(10, 100 + part, 20, marks=pytest.mark.slow) for part in range(20)]


@pytest.mark.parametrize(("count", "seed", "tries"), [*FEW, *MANY])
def test_stage_3_is_not_beaten_by_slsqp_from_many_starts(count: int, seed: int, tries: int) -> None:
    for rng, case in collect(count, seed, DIMS, lambda case: p2(*case).stage == 3):
        found = p2(*case)
        assert norm(found.theta) <= case.S + 1e-9
        assert norm(found.eta) <= 1 + 1e-9
        assert found.value == pytest.approx(value_of(case, found.theta, found.eta), rel=1e-7, abs=1e-10)
        best = naive.p2_full(*case.for_naive, starts=starts(rng, len(case.b), case.S, tries))[2]
        assert found.value <= best * (1 + 1e-6) + 1e-9, (found, best)
        assert found.residual <= 1e-6 * case.S


@pytest.mark.parametrize("seed", range(6))
def test_stage_3_against_a_fine_grid(seed: int) -> None:
    """d = 2: theta on a polar grid, and for each the best eta on a grid of the circle (a positive value lies there)."""
    rng = np.random.default_rng([7, seed])
    case = instance(rng, 2, n=60)
    while (found := p2(*case)).stage != 3:
        case = instance(rng, 2, n=60)
    angles = np.linspace(0, 2 * np.pi, 1441)[:-1]
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    slack = np.linalg.solve(case.V, case.beta * naive.symmetric_root(case.V_tilde) @ circle.T)
    best = np.inf
    for radius in np.linspace(0, case.S, 41):
        z = case.features @ (radius * circle.T)
        g = case.features.T @ (case.weights[:, None] * case.data[-1].mean(z)) + case.ridge * radius * circle.T
        for column in np.linalg.solve(case.V, g - case.b[:, None]).T[:: 1 if radius == case.S else 8]:
            best = min(best, float(np.min(np.linalg.norm(column[:, None] + slack, axis=0))))
    assert found.value <= best * (1 + 1e-9)
    assert found.value >= best * (1 - 1e-2) - 1e-6  # the grid comes close


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("link", LINK_NAMES)
def test_proposition_1(dim: int, link: str) -> None:
    """theta_p = g^-1(g(theta) + beta V_tilde^1/2 eta) satisfies P1's constraint and has P2's value."""
    for seed in range(3):
        case = instance(np.random.default_rng([11, dim, seed]), dim, link=link)
        found, data = p2(*case), case.moments
        target = naive.g(found.theta, *data) + case.beta * naive.symmetric_root(case.V_tilde) @ found.eta
        theta_p = naive.solve_theta_hat(*case[:2], target, *data[2:])
        gap = naive.g(found.theta, *data) - naive.g(theta_p, *data)
        assert np.sqrt(gap @ np.linalg.solve(case.V_tilde, gap)) <= case.beta * (1 + 1e-7)
        assert norm(found.theta) <= case.S + 1e-9
        tracking = norm(np.linalg.solve(case.V, naive.g(theta_p, *data) - case.b))
        assert tracking == pytest.approx(found.value, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("link", LINK_NAMES)
def test_stage_2_equals_the_oracle(dim: int, link: str) -> None:
    case = instance(np.random.default_rng([12, dim]), dim, link=link, hard=False, S=0.4)
    found = p2(*case)
    theta, eta, value, stage = naive.p2(*case.for_naive)
    assert found.stage == stage == 2
    assert found.value == value == 0.0
    np.testing.assert_allclose(found.theta, theta, atol=1e-6)
    np.testing.assert_allclose(found.eta, eta, atol=1e-6)
    assert norm(found.theta) == pytest.approx(case.S, abs=1e-12)
    assert value_of(case, found.theta, found.eta) <= 1e-9


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("metric", ["V", "V_tilde"])
def test_p0_equals_the_oracle(dim: int, metric: str) -> None:
    for link in LINK_NAMES:
        case = instance(np.random.default_rng([13, dim]), dim, link=link, hard=False, S=0.4)
        matrix = getattr(case, metric)
        found = p0(*case[:3], matrix, *case[6:])
        theta, value = naive.p0(*case[:3], matrix, *case.for_naive[6:])
        assert found.stage == 2
        assert found.value <= value * (1 + 1e-9)
        np.testing.assert_allclose(found.theta, theta, atol=1e-6)


def test_p0_has_one_minimum_from_many_starts() -> None:
    for seed in range(20):
        rng = np.random.default_rng([14, seed])
        case = instance(rng, DIMS[seed % 4], link=LINK_NAMES[seed % 3])
        found, data = p0(*case[:3], case.V_tilde, *case[6:]), (*case[:3], case.V_tilde, *case.for_naive[7:])
        for theta, _ in starts(rng, len(case.b), case.S, 5):
            end = naive.slsqp(lambda th, data=data: naive.p0_objective(th, *data), theta, [case.S])
            assert found.value <= np.sqrt(2 * naive.p0_objective(end, *data)[0]) * (1 + 1e-6) + 1e-9


def steep_case(seed: int) -> Instance:
    """Poisson rewards of 0 or 2 e^S with S up to 3: the objective is far from convex along the sphere."""
    rng = np.random.default_rng([17, seed])
    dim, S, n = [1, 2, 5, 10][seed % 4], float(rng.uniform(1.0, 3.0)), int(rng.integers(5, 60))
    features = rng.normal(size=(n, dim))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1, keepdims=True))
    lam, weights = 10 ** rng.uniform(-2, 0), 0.98 ** np.arange(n)
    b = features.T @ (weights * rng.integers(0, 2, n) * 2 * np.exp(S))
    V, V_tilde = (features.T @ (weights[:, None] ** power * features) + lam * np.eye(dim) for power in (1, 2))
    return Instance(features, weights, b, V, V_tilde, 0.05, S, lam * np.exp(-S), "poisson")


def test_steep_poisson_instances_converge_and_are_not_beaten() -> None:
    """Of the first twelve, eight reach stage 3."""
    reached, third = 0, []
    for seed in range(300):
        case = steep_case(seed)
        for found in (p2(*case), p0(*case[:3], case.V, *case[6:])):
            assert norm(found.theta) <= case.S + 1e-9
            assert found.residual <= 1e-6 * case.S, (seed, found)
            reached += found.stage > 1
            if seed < 12 and found.stage == 3:
                third.append((seed, case, found.value))
    assert reached > 300
    assert len(third) == 8
    for seed, case, value in third:
        best = naive.p2_full(*case.for_naive, starts=starts(np.random.default_rng(seed), len(case.b), case.S, 5))[2]
        assert value <= best * (1 + 1e-6) + 1e-9


def test_an_instance_whose_model_is_indefinite_off_the_sphere() -> None:
    """Newton's model used to jump across the ball here; the answer is SLSQP's."""
    X = np.array([[0.62, -0.77], [0.59, -0.8], [-0.89, -0.43], [-0.98, -0.11], [-0.25, 0.96], [0.53, -0.83]])
    r, ridge = np.array([60.0, 60, 60, 60, 0, 60]), 0.1 * np.exp(-2.5)
    V = X.T @ X + 0.1 * np.eye(2)
    found = p0(X, np.ones(6), X.T @ r, V, 2.5, ridge, "poisson")
    theta, value = naive.p0(X, np.ones(6), X.T @ r, V, 2.5, ridge, naive.LINKS["poisson"])
    np.testing.assert_allclose(found.theta, theta, atol=1e-5)
    assert found.value == pytest.approx(value, rel=1e-9)
    assert found.residual < 1e-9


def test_inside_the_ball_nothing_is_projected() -> None:
    case = instance(np.random.default_rng(15), 3, hard=False, S=50.0)
    found = p2(*case)
    assert (found.stage, found.value) == (1, 0.0)
    assert found.residual <= 1e-9  # the error of theta_hat itself
    assert not found.eta.any()
    np.testing.assert_allclose(found.theta, naive.p2(*case.for_naive)[0], atol=1e-8)
    empty = p2(np.zeros((0, 2)), np.zeros(0), np.zeros(2), EYE, EYE, 1.0, 1.0, 0.2, "logistic")
    assert empty.stage == 1
    assert not empty.theta.any()


EYE = np.eye(2)
GOOD = {"features": np.eye(4)[:, :2], "weights": np.ones(4), "b": np.zeros(2), "V": EYE, "V_tilde": EYE}
GOOD |= {"beta": 1.0, "S": 1.0, "ridge": 0.1, "link": "logistic"}
BAD = {
    **dict.fromkeys(("beta", "ridge"), (0.0,)),
    "S": [-1.0],
    "link": ["cloglog"],
    "V": [-EYE],
    "b": [[np.nan, 0.0], np.ones(0)],
    "features": [np.zeros((4, 3)), np.full((4, 2), np.nan)],
    "weights": [-np.ones(4), np.ones(3)],
    "V_tilde": [np.array([[1.0, 0.5], [0.0, 1.0]])],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_bad_arguments_are_named(name: str, value: object) -> None:
    p2(**GOOD)
    with refuses(name):
        p2(**GOOD | {name: value})
    local = {key: entry for key, entry in (GOOD | {name: value}).items() if key not in ("V", "V_tilde", "beta")}
    if name in local:
        with refuses(name):
            p0(**local, metric=None)


def test_p2_refuses_what_it_cannot_resolve() -> None:
    for name, weights, b in (("b", np.ones(2), [1e60, 0]), ("weights", [1e300, 1.0], [1, 0])):
        with refuses(name):
            p2(EYE, weights, b, EYE, EYE, 0.1, 0.5, 0.2, "logistic")


def test_p0_names_its_own_argument() -> None:
    with refuses("metric"):
        p0([[1.0, 0.0]], [1.0], [0.5, 0.0], -np.eye(2), 1.0, 0.1, "logistic")
