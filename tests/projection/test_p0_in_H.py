"""P0 in the metric H^-1(theta) against SciPy and a fine grid; the derivatives of every program."""

import numpy as np
import pytest
from numpy.linalg import norm
from scipy.optimize import brentq, minimize

import naive
from support import access
from support.instances import Instance, collect, instance
from support.worlds import BENT, ball, draw_reward
from windvane.kernels.projection import P0_IN_H, P0_IN_V, P0_IN_V_TILDE, P2
from windvane.projection import p0, project_p0_in_H

LINK_NAMES = ["logistic", "poisson", "probit"]


def found_for(case: Instance):
    return p0(*case[:3], None, *case[6:])


@pytest.mark.parametrize("part", range(4))
def test_not_beaten_by_scipy_from_many_starts(part: int) -> None:
    for rng, case in collect(6, 50 + part, [1, 2, 5, 10], lambda case: found_for(case).stage == 2, mild=True):
        found, data = found_for(case), case.data
        assert norm(found.theta) <= case.S * (1 + 1e-12)
        assert found.value == pytest.approx(np.sqrt(2 * naive.h_value(found.theta, *data)), rel=1e-9)
        assert found.residual <= 1e-6 * case.S
        constraint = {"type": "ineq", "fun": lambda z, S=case.S: S**2 - z @ z}
        d, ray = len(case.b), case.S * (hat := naive.solve_theta_hat(*data[:3], case.ridge, data[4])) / norm(hat)
        fixed = [-ray, np.zeros(d), *case.S * np.eye(d)[:3], *-case.S * np.eye(d)[:3]]  # the one start used is +ray
        for start in (*fixed, *(ball(rng, (), d, case.S) for _ in range(6))):
            theta = minimize(
                lambda z, case=case, data=data: naive.h_objective(naive.into_balls(z, [3 * case.S]), *data), start,
                jac=True, method="SLSQP", constraints=constraint, options={"ftol": 1e-12, "maxiter": 200},
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
        np.sqrt(2 * naive.h_value(r * np.array([np.cos(a), np.sin(a)]), *case.data))
        for r in np.linspace(0, case.S, 9)
        for a in (angles if r == case.S else angles[::40])  # a finer one on the sphere, where the answer lies
    )
    assert found.value <= best * (1 + 1e-9)
    assert found.value >= best * (1 - 1e-2) - 1e-6  # the grid comes close


@pytest.mark.parametrize("program", [P0_IN_V, P0_IN_V_TILDE, P0_IN_H, P2], ids=["V", "V_tilde", "H", "P2"])
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("link", [*LINK_NAMES, "identity"])
def test_derivatives_of_every_program(program: int, dim: int, link: str) -> None:
    """The value against the definition, the gradient against differences of it, the Hessian against the gradient's."""
    rng = np.random.default_rng([61, dim])
    case = instance(rng, dim, link=link, n=40)._replace(beta=0.01)  # a small one: P2 is positive
    theta = ball(rng, (), dim, case.S)

    def value_at(at: np.ndarray) -> float:
        if program == P0_IN_H:
            return naive.h_value(at, *case.data)
        if program == P2:  # the best slack for this theta
            gap = naive.g(at, *case.moments) - case.b
            A = case.beta * np.linalg.solve(case.V, np.linalg.cholesky(case.V_tilde))
            return 0.5 * float(np.sum((np.linalg.solve(case.V, gap) + A @ least_slack(A, case.V, gap)) ** 2))
        metric = case.V if program == P0_IN_V else case.V_tilde
        return naive.p0_objective(at, *case.data[:3], metric, *case.data[3:])[0]

    value, gradient, positive_part, hessian = access.differentiate_program(program, case, theta)
    assert value == pytest.approx(value_at(theta), rel=1e-10)
    steps = 1e-5 * np.eye(dim)
    numeric = np.array([(value_at(theta + e) - value_at(theta - e)) / 2e-5 for e in steps])
    np.testing.assert_allclose(gradient, numeric, atol=1e-6 * (1 + norm(numeric)))
    slopes = [[access.differentiate_program(program, case, theta + s * e)[1] for s in (1, -1)] for e in steps]
    second = np.array([(ahead - behind) / 2e-5 for ahead, behind in slopes])
    np.testing.assert_allclose(hessian, second, atol=1e-5 * (1 + norm(second)))
    assert np.linalg.eigvalsh(positive_part).min() >= -1e-9


def least_slack(A: np.ndarray, V: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """argmin over |eta| <= 1 of |V^-1 gap + A eta|: on the sphere here, by bisection on its multiplier."""
    target = -A.T @ np.linalg.solve(V, gap)

    def eta(nu: float) -> np.ndarray:
        return np.linalg.solve(A.T @ A + nu * np.eye(len(gap)), target)

    assert norm(np.linalg.solve(A, np.linalg.solve(V, gap))) > 1.0  # the value is positive
    return eta(brentq(lambda nu: norm(eta(nu)) - 1.0, 0.0, norm(target), xtol=1e-15, rtol=1e-14))


def test_inside_the_ball_nothing_is_projected() -> None:
    case = instance(np.random.default_rng(62), 3, hard=False, S=1.0)._replace(S=50.0)
    found = found_for(case)
    assert found.stage == 1
    assert found.value == 0.0
    np.testing.assert_allclose(found.theta, naive.solve_theta_hat(*case.data[:3], case.ridge, case.data[4]))


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
    estimator.solve()
    found = project_p0_in_H(estimator)
    age = np.arange(30)[::-1]
    weights = 0.9**age if "gamma" in forgetting else 1.0 * (age < 12)
    assert set(found.stage.tolist()) == {1, 2}
    for lane in range(3):
        X = features[:, lane]
        b = X.T @ (weights * rewards[:, lane])
        alone = p0(X, weights, b, None, 0.3, estimator.ridge, link)
        assert found.stage[lane] == alone.stage
        np.testing.assert_allclose(found.theta[lane], alone.theta, atol=1e-6)
        assert found.value[lane] == pytest.approx(alone.value, abs=1e-6)
