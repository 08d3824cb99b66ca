"""Saved states of policies, and what a hostile user found, kept so that it stays mended."""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.cases import every_policy
from support.policies import decision
from support.refusals import refuses, refuses_unchanged
from support.states import BAD_POLICY_STATES
from support.worlds import World, play, same_state
from windvane import BVDGLMUCB, GLMUCB, OFUL, SWBVDGLMUCB, CustomLink
from windvane.links import Logistic

X = np.array([[0.6, 0.5]])


@every_policy
def test_loading_copies_and_forgets_the_past(cls, settings) -> None:
    """A loaded policy shares no memory with the state, and its own history leaves no trace."""
    source, target = cls(2, **settings, lanes=2), cls(2, **settings, lanes=2)
    play(source, World(2, 2), 20)
    play(target, World(2, 2, seed=5), 90)  # longer: its buffers are larger
    state = source.state()
    target.load_state(state)
    for array in state.values():
        array[...] = np.zeros((), dtype=array.dtype)
    assert same_state(target.state(), source.state())
    assert decision(target) is None  # none of its own yet
    assert (play(target, World(2, 2, seed=6), 40) == play(source, World(2, 2, seed=6), 40)).all()
    assert same_state(target.state(), source.state())


OTHER_SETTINGS = {
    "gamma": 0.94,
    "S": 1.1,
    "L": 1.1,
    "lam": 0.9,
    "sigma": 0.6,
    "delta": 0.06,
    "bonus_scale": 0.9,
    "seed": 1,
    "link": "probit",
    "tolerance": 1e-7,
    "confidence": "anytime",
    "horizon": 10,
    "arm_geometry": "general",
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_a_state_of_other_settings_is_refused(name: str) -> None:
    """The state carries a fingerprint of everything the policy was built with."""
    source = BVDGLMUCB(2, **{"gamma": 0.95} | {name: OTHER_SETTINGS[name]})
    play(source, World(1, 2, L=0.9), 3)
    policy = BVDGLMUCB(2, gamma=0.95)
    refuses_unchanged(policy, "state", lambda: policy.load_state(source.state()))


def test_a_state_of_another_policy_or_other_lanes_is_refused() -> None:
    """Policies of equal numbers are still different policies; so are other ids, another order, another count."""
    policy = BVDGLMUCB(2, gamma=1.0, lanes=[1, 2])
    play(policy, World(2, 2), 3)
    others = [
        GLMUCB(2, lanes=[1, 2]),
        OFUL(2, lanes=[1, 2]),
        BVDGLMUCB(3, gamma=1.0, lanes=[1, 2]),
        BVDGLMUCB(2, gamma=1.0, lanes=[2, 1]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 3]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 2, 3]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 2], confidence="horizon", horizon=10),
    ]
    for other in others:
        refuses_unchanged(policy, "state", lambda other=other: policy.load_state(other.state()))
    ten, twenty = (BVDGLMUCB(2, gamma=1.0, confidence="horizon", horizon=T) for T in (10, 20))
    refuses_unchanged(ten, "state", lambda: ten.load_state(twenty.state()))


@pytest.mark.parametrize("spoil", BAD_POLICY_STATES.values(), ids=BAD_POLICY_STATES)
def test_a_spoilt_state_is_refused_whole(spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Missing, unknown, misshapen, non-finite, impossible or altered entries: refused before anything is swapped."""
    source, policy = (BVDGLMUCB(2, gamma=0.95, lanes=2) for _ in range(2))
    play(source, World(2, 2), 10)
    play(policy, World(2, 2, seed=1), 4)
    refuses_unchanged(policy, "state", lambda: policy.load_state(spoil(source.state())))


def test_a_state_with_another_window_is_refused() -> None:
    source, policy = (SWBVDGLMUCB(2, window=30.0, lanes=2) for _ in range(2))
    play(source, World(2, 2), 10)
    state = source.state() | {"estimator.window": np.full(2, 31.0)}
    refuses_unchanged(policy, "state", lambda: policy.load_state(state))


def test_little_regularisation_does_not_lock_a_policy_out_of_its_own_state() -> None:
    v = np.array([[0.3, 0.5, 0.7]])
    policy = OFUL(3, lam=1e-6)
    for _ in range(1000):
        policy.select(v[None])
        policy.update(v, 1.0)
    OFUL(3, lam=1e-6).load_state(policy.state())


@pytest.mark.parametrize("state", [None, [], "abc", {}, {1: np.ones(2)}])
def test_what_is_no_state_is_refused(state: object) -> None:
    with refuses("state"):
        BVDGLMUCB(2, gamma=0.9).load_state(state)


def test_a_solve_limited_by_rounding_keeps_its_answer() -> None:
    """The heaviest weight allowed: <x, theta_hat> is log 200, not zero."""
    policy = BVDGLMUCB(2, "poisson", gamma=0.9, sigma=100.0)
    policy.select(X[None])
    policy.update(X, 200.0, weight=1e12)
    assert float(X[0] @ policy.info().theta_hat[0]) == pytest.approx(np.log(200.0), abs=1e-6)


def test_a_link_that_raises_leaves_the_state_alone() -> None:
    armed = [False]
    logistic = Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if armed[0]:
            raise RuntimeError("out of order")
        return logistic.mean(z)

    policy = BVDGLMUCB(2, CustomLink("own", mean, logistic.slope), gamma=0.9)
    policy.select(X[None])
    before = policy.estimator.V.copy(), policy.estimator.b
    armed[0] = True
    with pytest.raises(RuntimeError, match="out of order"):
        policy.update(X, 1.0)
    armed[0] = False
    assert np.array_equal(policy.estimator.V, before[0])
    assert np.array_equal(policy.estimator.b, before[1])
    policy.update(X, 1.0)
    assert policy.estimator.remembered[0] == 1


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
    assert np.isfinite(policy.info().theta_hat).all()


def test_read_only_arrays_are_fine() -> None:
    policy, arms = BVDGLMUCB(2, gamma=0.9), X[None].copy()
    arms.flags.writeable = False
    policy.select(arms)
    policy.update(arms[:, 0], 1.0)
