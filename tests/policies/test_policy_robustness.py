"""What a hostile user found, kept so that it stays mended."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest

from support import access
from windvane import BVDGLMUCB, CustomLink
from windvane.links import Logistic

X = np.array([[0.6, 0.5]])


def test_a_solve_limited_by_rounding_keeps_its_answer() -> None:
    """The heaviest weight allowed: <x, theta_hat> is log 200, not zero."""
    policy = BVDGLMUCB(2, "poisson", gamma=0.9, sigma=100.0)
    policy.select(X[None])
    policy.update(X, 200.0, weight=1e12)
    assert float(X[0] @ access.theta_hat(policy)[0]) == pytest.approx(np.log(200.0), abs=1e-6)


def test_a_link_that_raises_leaves_the_state_alone() -> None:
    armed = [False]
    logistic = Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if armed[0]:
            raise RuntimeError("out of order")
        return logistic.mean(z)

    policy = BVDGLMUCB(2, CustomLink("own", mean, logistic.slope), gamma=0.9)
    policy.select(X[None])
    before = access.V(policy), access.b(policy)
    armed[0] = True
    with pytest.raises(RuntimeError, match="out of order"):
        policy.update(X, 1.0)
    armed[0] = False
    assert np.array_equal(access.V(policy), before[0])
    assert np.array_equal(access.b(policy), before[1])
    policy.update(X, 1.0)
    assert access.estimator(policy).remembered[0] == 1


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
    assert (access.estimator(policy).remembered > 0).all()
    assert np.isfinite(access.theta_hat(policy)).all()


def test_read_only_arrays_are_fine() -> None:
    policy, arms = BVDGLMUCB(2, gamma=0.9), X[None].copy()
    arms.flags.writeable = False
    policy.select(arms)
    policy.update(arms[:, 0], 1.0)
