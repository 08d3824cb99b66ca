"""The steps of online learners: first-order conditions over the ball, SciPy, and what extremes leave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import naive
from windvane.kernels import ecolog, online
from windvane.kernels.jit import callable_kernel
from windvane.kernels.lanes import RECORD, WORK
from windvane.links import get_link

step_in_ball = callable_kernel(online.step_in_ball)
CODES = {name: get_link(name).code for name in ("logistic", "poisson", "probit", "identity")}


def draw_problem(seed: int, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    """A metric with eigenvalues from 1 to 1000, a point and an arm."""
    rng = np.random.default_rng([seed, dim])
    Q = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    V = (Q * 10.0 ** rng.uniform(0, 3, dim)) @ Q.T
    return 0.5 * (V + V.T), rng.normal(size=dim), rng.normal(size=dim), rng


def take_step(
    link: str, V: np.ndarray, theta: np.ndarray, x: np.ndarray, pull: float, r: float, S: float
) -> np.ndarray:
    work, out = np.zeros((WORK, len(x), len(x))), np.empty(len(x))
    step_in_ball(CODES[link], V, V @ theta, x, pull, r, S, work, out)
    return out


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**16), st.integers(1, 6), st.sampled_from(["logistic", "probit", "identity"]),
    st.floats(-6, 6), st.floats(-2, 1), st.floats(-1, 2),
)  # fmt: skip
def test_a_step_is_the_minimum_over_the_ball(
    seed: int, dim: int, link: str, log_pull: float, log_S: float, reward: float
) -> None:
    """The gradient V (y - theta) + pull (mu - r) x is -kappa y with kappa >= 0, and 0 inside. The problem is convex."""
    V, theta, x, _ = draw_problem(seed, dim)
    pull, S = 10.0**log_pull, 10.0**log_S
    y = take_step(link, V, theta, x, pull, reward, S)
    terms = V @ y, V @ theta, pull * (float(get_link(link).mean(x @ y)) - reward) * x
    gradient, scale = terms[0] - terms[1] + terms[2], sum(np.linalg.norm(term) for term in terms)
    length = np.linalg.norm(y)
    assert length <= S * (1 + 1e-12)
    kappa = max(-gradient @ y / length**2, 0.0) if length >= S * (1 - 1e-9) else 0.0
    # Newton stops at a relative distance of 1e-13 from the sphere, which the step is then scaled to.
    np.testing.assert_allclose(gradient, -kappa * y, rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("S", [0.2, 1.0, 30.0])
def test_a_step_agrees_with_scipy(dim: int, S: float) -> None:
    for seed in range(10):
        V, theta, x, rng = draw_problem(seed, dim)
        pull, reward = 10.0 ** rng.uniform(-1, 2), float(rng.integers(0, 2))

        def objective(y: np.ndarray) -> tuple[float, np.ndarray]:
            gap = y - theta
            mean = float(get_link("logistic").mean(x @ y))
            value = gap @ V @ gap / 2 + pull * naive.loss(x @ y, reward)
            return value, V @ gap + pull * (mean - reward) * x

        inside = {"type": "ineq", "fun": lambda y: S**2 - y @ y, "jac": lambda y: -2 * y}
        found = minimize(
            objective, np.zeros(dim), jac=True, method="SLSQP", constraints=inside, options={"ftol": 1e-14}
        )
        y = take_step("logistic", V, theta, x, pull, reward, S)
        theirs = naive.into_balls(found.x, [S])  # it may end outside by a rounding error
        assert objective(y)[0] <= objective(theirs)[0] + 1e-9 * (1 + abs(found.fun))
        np.testing.assert_allclose(y, naive.step(theta, V, x, pull, reward, S), rtol=0, atol=1e-8)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**16), st.integers(1, 4), st.floats(0.3, 3), st.floats(-1, 3))
def test_a_step_in_a_set_obeys_it(seed: int, dim: int, S: float, log_level: float) -> None:
    """In the ball and the ellipsoid, with -gradient in the cone of their normals, if they meet."""
    V, theta, x, rng = draw_problem(seed, dim)
    E, center = draw_problem(seed + 1, dim)[0], 0.5 * S * rng.normal(size=dim) / np.sqrt(dim)
    region = np.zeros((dim + 2, dim))
    region[0], region[1:-1], region[-1] = center, E, 10.0**log_level
    lane, work, out = np.zeros(1, RECORD), np.zeros((WORK, dim, dim)), np.empty(dim)
    lane["link"], lane["S"] = CODES["logistic"], S
    step_in_set, prepare = callable_kernel(ecolog.step_in_set), callable_kernel(ecolog.prepare_step)
    prepare(V, theta, x, work)
    step_in_set(lane[0], V, theta, x, 2.0, 1.0, region, work, out)
    gap = out - center
    if np.linalg.norm(center) > S * 0.9:
        return  # the sets may not meet
    assert np.linalg.norm(out) <= S * (1 + 1e-9)
    assert gap @ E @ gap <= 10.0**log_level * (1 + 1e-6)
    gradient = V @ (out - theta) + 2.0 * (float(get_link("logistic").mean(x @ out)) - 1.0) * x
    normals = np.stack([out / S, E @ gap / np.sqrt(10.0**log_level)])
    active = [np.linalg.norm(out) > S * (1 - 1e-6), gap @ E @ gap > 10.0**log_level * (1 - 1e-5)]
    if not any(active):
        np.testing.assert_allclose(gradient, 0.0, atol=1e-7 * (1 + np.abs(V @ theta).sum()))
        return
    basis = normals[active].T
    multipliers, *_ = np.linalg.lstsq(basis, -gradient, rcond=None)
    size = np.linalg.norm(gradient) + 1e-6 * np.linalg.norm(V @ theta)
    assert np.linalg.norm(basis @ multipliers + gradient) <= 1e-4 * size
    assert (multipliers >= -1e-4 * size / np.linalg.norm(basis, axis=0)).all()


@pytest.mark.parametrize("pull", [0.0, 1e-300, 1e-12, 1e6, 1e12, 1e30])
@pytest.mark.parametrize("S", [1e-6, 1.0, 25.0])
def test_extremes_stay_finite_and_in_the_ball(pull: float, S: float) -> None:
    for seed, scale in ((0, 1.0), (1, 1e12), (2, 1e-6)):
        V, theta, x, _ = draw_problem(seed, 3)
        for reward in (-1e6, 0.0, 0.5, 1.0, 1e6):
            y = take_step("logistic", scale * V, theta, x, pull, reward, S)
            assert np.isfinite(y).all()
            assert np.linalg.norm(y) <= S * (1 + 1e-12)
