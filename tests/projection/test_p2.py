"""P0 and P2: against SLSQP, a fine grid, Proposition 1, first-order conditions, and the canonical rule."""

import numpy as np
import pytest
from numpy.linalg import norm

import naive
from support.instances import Instance, instance, starts
from support.refusals import refuses
from windvane.projection import p0, p2

DIMS = [1, 2, 5, 10, 20]
LINK_NAMES = ["logistic", "poisson", "probit"]


def value_of(case: Instance, theta: np.ndarray, eta: np.ndarray) -> float:
    """P2's objective, written out."""
    link = naive.LINKS[case.link]
    gap = naive.g(theta, case.features, case.weights, case.ridge, link) - case.b
    return norm(np.linalg.solve(case.V, gap + case.beta * naive.symmetric_root(case.V_tilde) @ eta))


def positive_cases(count: int, seed: int) -> list[tuple[np.random.Generator, Instance]]:
    """``count`` hard instances that reach stage 3, spread over all dimensions and links."""
    cases: list[tuple[np.random.Generator, Instance]] = []
    trial = 0
    while len(cases) < count:
        rng = np.random.default_rng([seed, trial])
        case = instance(rng, DIMS[len(cases) % len(DIMS)], link=LINK_NAMES[len(cases) % 3])
        trial += 1
        if p2(*case).stage == 3:
            cases.append((rng, case))
    assert trial < 6 * count, "hard instances are meant to be hard"
    return cases


def assert_not_beaten(case: Instance, rng: np.random.Generator, tries: int) -> None:
    found = p2(*case)
    assert norm(found.theta) <= case.S + 1e-9
    assert norm(found.eta) <= 1 + 1e-9
    assert found.value == pytest.approx(value_of(case, found.theta, found.eta), rel=1e-7, abs=1e-10)
    best = naive.p2_full(*case.for_naive, starts=starts(rng, len(case.b), case.S, tries))[2]
    assert found.value <= best * (1 + 1e-6) + 1e-9, (found, best)
    assert found.residual <= 1e-6 * case.S


@pytest.mark.parametrize("part", range(8))
def test_stage_3_is_not_beaten_by_five_slsqp_starts(part: int) -> None:
    for rng, case in positive_cases(5, seed=part):
        assert_not_beaten(case, rng, 5)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_stage_3_is_not_beaten_by_twenty_slsqp_starts(part: int) -> None:
    for rng, case in positive_cases(10, seed=100 + part):
        assert_not_beaten(case, rng, 20)


@pytest.mark.parametrize("seed", range(6))
def test_stage_3_against_a_fine_grid(seed: int) -> None:
    """d = 2: theta on a polar grid, and for each the best eta on a grid of the circle (a positive value lies there)."""
    rng = np.random.default_rng([7, seed])
    case = instance(rng, 2, n=60)
    while (found := p2(*case)).stage != 3:
        case = instance(rng, 2, n=60)
    angles = np.linspace(0, 2 * np.pi, 1441)[:-1]
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    link = naive.LINKS[case.link]
    slack = np.linalg.solve(case.V, case.beta * naive.symmetric_root(case.V_tilde) @ circle.T)
    best = np.inf
    for radius in np.linspace(0, case.S, 41):
        z = case.features @ (radius * circle.T)
        g = case.features.T @ (case.weights[:, None] * link.mean(z)) + case.ridge * radius * circle.T
        gap = g - case.b[:, None]
        for column in np.linalg.solve(case.V, gap).T[:: 1 if radius == case.S else 8]:
            best = min(best, float(np.min(np.linalg.norm(column[:, None] + slack, axis=0))))
    assert found.value <= best * (1 + 1e-9)
    assert found.value >= best * (1 - 1e-2) - 1e-6  # the grid comes close


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("link", LINK_NAMES)
def test_proposition_1(dim: int, link: str) -> None:
    """theta_p = g^-1(g(theta) + beta V_tilde^1/2 eta) satisfies P1's constraint and has P2's value."""
    for seed in range(3):
        case = instance(np.random.default_rng([11, dim, seed]), dim, link=link)
        found = p2(*case)
        nlink = naive.LINKS[link]
        data = (case.features, case.weights, case.ridge, nlink)
        target = naive.g(found.theta, *data) + case.beta * naive.symmetric_root(case.V_tilde) @ found.eta
        theta_p = naive.solve_theta_hat(case.features, case.weights, target, case.ridge, nlink)
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
        found = p0(case.features, case.weights, case.b, matrix, case.S, case.ridge, link)
        theta, value = naive.p0(case.features, case.weights, case.b, matrix, case.S, case.ridge, naive.LINKS[link])
        assert found.stage == 2
        assert found.value <= value * (1 + 1e-9)
        np.testing.assert_allclose(found.theta, theta, atol=1e-6)


def test_p0_has_one_minimum_from_many_starts() -> None:
    """The start of stage 2 is as good as any: no random SLSQP start finds a lower P0 value."""
    for seed in range(20):
        rng = np.random.default_rng([14, seed])
        case = instance(rng, DIMS[seed % 4], link=LINK_NAMES[seed % 3])
        found = p0(case.features, case.weights, case.b, case.V_tilde, case.S, case.ridge, case.link)
        data = (case.features, case.weights, case.b, case.V_tilde, case.ridge, naive.LINKS[case.link])
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
    V = features.T @ (weights[:, None] * features) + lam * np.eye(dim)
    V_tilde = features.T @ (weights[:, None] ** 2 * features) + lam * np.eye(dim)
    return Instance(features, weights, b, V, V_tilde, 0.05, S, lam * np.exp(-S), "poisson")


def test_steep_poisson_instances_converge() -> None:
    reached = 0
    for seed in range(300):
        case = steep_case(seed)
        for found in (
            p2(*case),
            p0(case.features, case.weights, case.b, case.V, case.S, case.ridge, case.link),
        ):
            assert norm(found.theta) <= case.S + 1e-9
            assert found.residual <= 1e-6 * case.S, (seed, found)
            reached += found.stage > 1
    assert reached > 300


def test_steep_poisson_instances_are_not_beaten() -> None:
    """Of the first instances those that reach stage 3: eight, none of them beaten by SLSQP."""
    reached = 0
    for seed in range(12):
        case = steep_case(seed)
        found = p2(*case)
        if found.stage == 3:
            reached += 1
            best = naive.p2_full(*case.for_naive, starts=starts(np.random.default_rng(seed), len(case.b), case.S, 5))[2]
            assert found.value <= best * (1 + 1e-6) + 1e-9
    assert reached == 8


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


def test_no_observations() -> None:
    eye = np.eye(2)
    found = p2(np.zeros((0, 2)), np.zeros(0), np.zeros(2), eye, eye, 1.0, 1.0, 0.2, "logistic")
    assert found.stage == 1
    assert not found.theta.any()


BAD = {
    "beta": [0.0],
    "S": [-1.0],
    "ridge": [0.0],
    "link": ["cloglog"],
    "b": [[np.nan, 0.0], np.ones(0)],
    "features": [np.zeros((4, 3)), np.full((4, 2), np.nan)],
    "weights": [-np.ones(4), np.ones(3)],
    "V": [-np.eye(2)],
    "V_tilde": [np.array([[1.0, 0.5], [0.0, 1.0]])],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_bad_arguments_are_named(name: str, value: object) -> None:
    good = {"features": np.eye(4)[:, :2], "weights": np.ones(4), "b": np.zeros(2), "V": np.eye(2), "V_tilde": np.eye(2)}
    good |= {"beta": 1.0, "S": 1.0, "ridge": 0.1, "link": "logistic"}
    p2(**good)
    with refuses(name):
        p2(**(good | {name: value}))
    local = {key: entry for key, entry in (good | {name: value}).items() if key not in ("V", "V_tilde", "beta")}
    if name in local:
        with refuses(name):
            p0(**local, metric=None)


def test_p2_refuses_what_it_cannot_resolve() -> None:
    eye = np.eye(2)
    with refuses("b"):
        p2(eye, np.ones(2), [1e60, 0], eye, eye, 0.1, 0.5, 0.2, "logistic")
    with refuses("weights"):
        p2(eye, [1e300, 1.0], [1, 0], eye, eye, 0.1, 0.5, 0.2, "logistic")
