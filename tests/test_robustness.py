"""What a hostile user found, kept so that it stays mended."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest

import naive
from windvane import BVDGLMUCB, OFUL, CustomLink, DiscountedEstimator, Logistic, p2, set_threads

X = np.array([[0.6, 0.5]])


def test_a_solve_limited_by_rounding_keeps_its_answer() -> None:
    """The heaviest weight allowed: <x, theta_hat> is log 200, not zero."""
    policy = BVDGLMUCB(2, "poisson", gamma=0.9, sigma=100.0)
    policy.select(X[None])
    policy.update(X, 200.0, weight=1e12)
    assert float(X[0] @ policy.theta_hat[0]) == pytest.approx(np.log(200.0), abs=1e-6)


def test_a_link_that_raises_leaves_the_state_alone() -> None:
    armed = [False]
    logistic = Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if armed[0]:
            raise RuntimeError("out of order")
        return logistic.mean(z)

    policy = BVDGLMUCB(2, CustomLink("own", mean, logistic.slope), gamma=0.9)
    policy.select(X[None])
    before = policy.V, policy.b
    armed[0] = True
    with pytest.raises(RuntimeError, match="out of order"):
        policy.update(X, 1.0)
    armed[0] = False
    assert np.array_equal(policy.V, before[0])
    assert np.array_equal(policy.b, before[1])
    policy.update(X, 1.0)
    assert policy.estimator.remembered[0] == 1


def test_a_subclass_of_a_built_in_link_is_not_taken_for_it() -> None:
    class Doubled(Logistic):
        def mean(self, z):
            return super().mean(2 * np.asarray(z))

    with pytest.raises(ValueError, match=r"^link=Doubled"):
        BVDGLMUCB(2, Doubled(), gamma=0.9)


def test_a_huge_reward_leaves_a_window_without_a_trace() -> None:
    estimator = DiscountedEstimator(2, "identity", window=3.0)
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (6, 1, 2))
    for x, reward in zip(points, [1e17, 1, 1, 1, 1, 1], strict=True):
        estimator.advance(1)
        estimator.observe(x, reward)
    np.testing.assert_allclose(estimator.b[0], points[-3:, 0].sum(axis=0), rtol=1e-12)


def test_p2_refuses_what_it_cannot_resolve() -> None:
    eye = np.eye(2)
    with pytest.raises(ValueError, match=r"^b="):
        p2(eye, np.ones(2), [1e60, 0], eye, eye, 0.1, 0.5, 0.2, "logistic")
    with pytest.raises(ValueError, match=r"^weights="):
        p2(eye, [1e300, 1.0], [1, 0], eye, eye, 0.1, 0.5, 0.2, "logistic")


def test_little_regularisation_does_not_lock_a_policy_out_of_its_own_state() -> None:
    v = np.array([[0.3, 0.5, 0.7]])
    policy = OFUL(3, lam=1e-6)
    for _ in range(1000):
        policy.select(v[None])
        policy.update(v, 1.0)
    OFUL(3, lam=1e-6).load_state(policy.state())


def test_many_threads_do_not_crash() -> None:
    """No promise of a sensible result, but memory must stay whole."""
    policy = BVDGLMUCB(2, gamma=0.99, lanes=3)
    arms = np.full((3, 2, 2), 0.3)

    def work() -> None:
        for _ in range(200):
            policy.select(arms)
            with contextlib.suppress(ValueError):  # rounds of one thread may look like the future to another
                policy.update(arms[:, 0], 1.0)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (policy.estimator.remembered > 0).all()
    assert np.isfinite(policy.theta_hat).all()


@pytest.mark.parametrize("entry", ["b", "theta", "R", "V", "X"])
def test_a_tampered_state_is_refused(entry: str) -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    for _ in range(5):
        policy.select(X[None])
        policy.update(X, 1.0)
    state = policy.state()
    state[f"estimator.{entry}"] = state[f"estimator.{entry}"] * 1.01
    with pytest.raises(ValueError, match=r"^state"):
        BVDGLMUCB(2, gamma=0.9).load_state(state)


@pytest.mark.parametrize("state", [None, [], "abc", {}, {1: np.ones(2)}])
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises(ValueError, match=r"^state"):
        BVDGLMUCB(2, gamma=0.9).load_state(state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", np.ma.masked_array([1.0], mask=[True])),
        ("reward", [1j]),
        ("reward", ["1"]),
        ("reward", 10**400),
        ("x", np.ma.masked_array(X, mask=True)),
        ("weight", np.array(["now"], dtype="datetime64[s]")),
    ],
)
def test_values_that_are_no_numbers_are_refused(name: str, value: object) -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    policy.select(X[None])
    with pytest.raises(ValueError, match=rf"^{name}\b") as caught:
        policy.update(**({"x": X, "reward": 1.0} | {name: value}))
    assert "\n" not in str(caught.value)


def test_errors_about_large_values_are_short() -> None:
    for bad in ({"S": np.ones((20, 20))}, {"S": 10**400}, {"lanes": np.zeros((30, 3))}, {"confidence": np.ones(3)}):
        with pytest.raises(ValueError, match=rf"^{next(iter(bad))}=") as caught:
            BVDGLMUCB(2, gamma=0.9, **bad)
        assert len(str(caught.value)) < 250
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"^count="):
        set_threads(10**6)


def test_read_only_arrays_are_fine() -> None:
    policy, arms = BVDGLMUCB(2, gamma=0.9), X[None].copy()
    arms.flags.writeable = False
    policy.select(arms)
    policy.update(arms[:, 0], 1.0)


def test_policies_can_be_copied_and_sent() -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    policy.select(X[None])
    policy.update(X, 1.0)
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert np.array_equal(twin.theta_hat, policy.theta_hat)
        twin.update(X, 1.0)
        assert twin.estimator.remembered[0] == 2
    assert policy.estimator.remembered[0] == 1


def test_theta_hat_at_the_edge_of_precision() -> None:
    """Separable data and next to no regularisation: still the root, as SciPy finds it."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 3))
    points /= 1.01 * np.linalg.norm(points, axis=1, keepdims=True)
    estimator = DiscountedEstimator(3, lam=1e-4)
    for x in points:
        estimator.observe(x[None], float(x[0] > 0))
    root = naive.solve_theta_hat(
        points, np.ones(60), points.T @ (points[:, 0] > 0), estimator.ridge, naive.LINKS["logistic"]
    )
    np.testing.assert_allclose(estimator.theta_hat[0], root, rtol=1e-8)
