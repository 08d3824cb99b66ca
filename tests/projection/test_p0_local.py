"""P0 in the metric H^-1(theta): against SciPy from many starts, a fine grid, numerical derivatives."""

import numpy as np
import pytest
from numpy.linalg import norm
from scipy.optimize import minimize

import naive
from support import access
from support.instances import Instance, instance
from support.refusals import refuses
from support.worlds import BENT, ball, draw_reward

LINK_NAMES = ["logistic", "poisson", "probit"]


def data_of(case: Instance) -> tuple:
    return case.features, case.weights, case.b, case.ridge, naive.LINKS[case.link]


def found_for(case: Instance):
    return access.p0_local(case.features, case.weights, case.b, case.S, case.ridge, case.link)


def outside_cases(count: int, seed: int) -> list[tuple[np.random.Generator, Instance]]:
    """Hard and mild instances, over links and dimensions, whose theta_hat lies outside the ball."""
    cases: list[tuple[np.random.Generator, Instance]] = []
    trial = 0
    while len(cases) < count:
        rng = np.random.default_rng([seed, trial])
        n = len(cases)
        case = instance(rng, [1, 2, 5, 10][n % 4], link=LINK_NAMES[n % 3], hard=trial % 2 == 0)
        trial += 1
        if found_for(case).stage == 2:
            cases.append((rng, case))
    return cases


@pytest.mark.parametrize("part", range(4))
def test_not_beaten_by_scipy_from_many_starts(part: int) -> None:
    for rng, case in outside_cases(6, 50 + part):
        found, data = found_for(case), data_of(case)
        assert norm(found.theta) <= case.S * (1 + 1e-12)
        assert found.value == pytest.approx(np.sqrt(2 * naive.h_value(found.theta, *data)), rel=1e-9)
        assert found.residual <= 1e-6 * case.S
        constraint = {"type": "ineq", "fun": lambda z, S=case.S: S**2 - z @ z}
        for _ in range(6):
            start = ball(rng, (), len(case.b), case.S)
            theta = minimize(
                naive.h_objective, start, args=data, jac=True, method="SLSQP", constraints=constraint,
                options={"ftol": 1e-12, "maxiter": 200},
            ).x  # fmt: skip
            theta *= min(1.0, case.S / norm(theta))
            assert found.value <= np.sqrt(2 * naive.h_value(theta, *data)) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_against_a_fine_grid(seed: int) -> None:
    """d = 2: theta on a polar grid of the whole ball, finest on the sphere."""
    rng = np.random.default_rng([60, seed])
    case = instance(rng, 2, n=40, link=LINK_NAMES[seed % 3])
    while (found := found_for(case)).stage != 2:
        case = instance(rng, 2, n=40, link=LINK_NAMES[seed % 3])
    angles = np.linspace(0, 2 * np.pi, 3601)[:-1]
    best = min(
        np.sqrt(2 * naive.h_value(r * np.array([np.cos(a), np.sin(a)]), *data_of(case)))
        for r in np.linspace(0, case.S, 9)
        for a in (angles if r == case.S else angles[::40])  # a finer one on the sphere, where the answer lies
    )
    assert found.value <= best * (1 + 1e-9)
    assert found.value >= best * (1 - 1e-2) - 1e-6  # the grid comes close


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("link", [*LINK_NAMES, "identity"])
def test_derivatives(dim: int, link: str) -> None:
    """The gradient against central differences of f, the Hessian against those of the gradient."""
    rng = np.random.default_rng([61, dim])
    case = instance(rng, dim, link=link, n=40)
    program = access.local_program(case.features, case.weights, case.ridge, link)
    theta = ball(rng, (), dim, case.S)

    def gradient(at: np.ndarray) -> np.ndarray:
        program.value(at, case.b)
        return program.derivatives()[0]

    value, numeric = naive.h_objective(theta, *data_of(case))
    assert program.value(theta, case.b) == pytest.approx(value, rel=1e-10)
    found, positive_part, hessian = program.derivatives()
    np.testing.assert_allclose(found, numeric, atol=1e-6 * (1 + norm(numeric)))
    second = np.array([(gradient(theta + e) - gradient(theta - e)) / 2e-5 for e in 1e-5 * np.eye(dim)])
    np.testing.assert_allclose(hessian, second, atol=1e-5 * (1 + norm(second)))
    assert np.linalg.eigvalsh(positive_part).min() >= -1e-9


def test_inside_the_ball_nothing_is_projected() -> None:
    case = instance(np.random.default_rng(62), 3, hard=False, S=1.0)._replace(S=50.0)
    found = found_for(case)
    assert found.stage == 1
    assert found.value == 0.0
    np.testing.assert_allclose(found.theta, naive.solve_theta_hat(*data_of(case)[:3], case.ridge, data_of(case)[4]))


def test_more_starts_find_nothing_better() -> None:
    """The program is not convex, but the one start that is used was never seen to miss its minimum."""
    for _, case in outside_cases(4, 63):
        many = access.p0_local(case.features, case.weights, case.b, case.S, case.ridge, case.link, starts=9)
        assert many.value == pytest.approx(found_for(case).value, rel=1e-6)


@pytest.mark.parametrize("link", ["logistic", BENT], ids=["logistic", "custom"])
@pytest.mark.parametrize("forgetting", [{"gamma": 0.9}, {"window": 12.0}])
def test_lanes_of_an_estimator(link, forgetting) -> None:
    """Each lane is the program of its own history; lanes whose theta_hat is admissible are left alone."""
    rng = np.random.default_rng(64)
    estimator = access.make_estimator(2, link, S=0.3, lam=0.5, lanes=3, **forgetting)
    features, rewards = ball(rng, (30, 3), 2), np.empty((30, 3))
    for t in range(30):
        rewards[t] = draw_reward(rng, "logistic", features[t] @ np.array([3.0, -1.0]))
        rewards[t, 2] = 0.5  # no signal in the last lane
        estimator.advance(1.0)
        estimator.observe(features[t], rewards[t])
    theta_hat = estimator.solve().copy()
    found = access.project_local(estimator, theta_hat, 0.3)
    age = np.arange(30)[::-1]
    weights = 0.9**age if "gamma" in forgetting else 1.0 * (age < 12)
    assert set(found.stage.tolist()) == {1, 2}
    for lane in range(3):
        X = features[:, lane]
        b = X.T @ (weights * rewards[:, lane])
        alone = access.p0_local(X, weights, b, 0.3, estimator.ridge, link)
        assert found.stage[lane] == alone.stage
        np.testing.assert_allclose(found.theta[lane], alone.theta, atol=1e-6)
        assert found.value[lane] == pytest.approx(alone.value, abs=1e-6)


def test_bad_arguments_are_named() -> None:
    good = {"features": np.ones((2, 2)), "weights": np.ones(2), "b": np.ones(2), "S": 1.0, "ridge": 0.1}
    bad = {"features": np.full((2, 2), np.nan), "weights": -np.ones(2), "b": np.ones(0), "S": 0.0, "ridge": 0.0}
    for name, value in bad.items():
        with refuses(name):
            access.p0_local(**good | {name: value}, link="logistic")
