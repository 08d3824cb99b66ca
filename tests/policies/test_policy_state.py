"""Saved states of policies, and what must not damage one."""

import contextlib
import pickle
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
from windvane import BVDGLMUCB, DGLMTS, GLMUCB, OFUL, SWBVDGLMUCB, CustomLink
from windvane.links import Logistic

X = np.array([[0.6, 0.5]])


@every_policy
def test_loading_copies_and_forgets_the_past(cls, settings) -> None:
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


def test_a_state_of_another_policy_or_other_lanes_is_refused() -> None:
    """Policies of equal numbers are still different policies; so are other ids, another order, another count."""
    policy = BVDGLMUCB(2, gamma=1.0, lanes=[1, 2])
    play(policy, World(2, 2), 3)
    for other in (
        GLMUCB(2, lanes=[1, 2]),
        OFUL(2, lanes=[1, 2]),
        BVDGLMUCB(3, gamma=1.0, lanes=[1, 2]),
        BVDGLMUCB(2, gamma=1.0, lanes=[1, 2], confidence="horizon", horizon=10),
        *(BVDGLMUCB(2, gamma=1.0, lanes=lanes) for lanes in ([2, 1], [1, 3], [1], [1, 2, 3])),
    ):
        refuses_unchanged(policy, "state", lambda other=other: policy.load_state(other.state()))
    ten, twenty = (BVDGLMUCB(2, gamma=1.0, confidence="horizon", horizon=T) for T in (10, 20))
    refuses_unchanged(ten, "state", lambda: ten.load_state(twenty.state()))


@pytest.mark.parametrize("spoil", BAD_POLICY_STATES.values(), ids=BAD_POLICY_STATES)
def test_a_spoilt_state_is_refused_whole(spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
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


def test_a_restart_in_the_first_round_is_the_same_after_loading() -> None:
    policy, other = (BVDGLMUCB(2, gamma=0.9) for _ in range(2))
    policy.restart()
    other.load_state(policy.state())
    for each in (policy, other):
        each.select(X[None])
        each.update(X, 1.0, round=0.5)
    assert (policy.estimator.remembered == other.estimator.remembered).all()


def test_a_pickled_policy_holds_no_compiled_code() -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    before = len(pickle.dumps(policy))
    policy.select(X[None])
    assert len(pickle.dumps(policy)) < before + 1500  # the record of a decision


def test_a_solve_limited_by_rounding_keeps_its_answer() -> None:
    """The heaviest weight allowed: <x, theta_hat> is log 200, not zero."""
    policy = BVDGLMUCB(2, "poisson", gamma=0.9, sigma=100.0)
    policy.select(X[None])
    policy.update(X, 200.0, weight=1e12)
    assert float(X[0] @ policy.info().theta_hat[0]) == pytest.approx(np.log(200.0), abs=1e-6)


def test_a_link_that_raises_leaves_every_lane_as_it_was() -> None:
    logistic, limit = Logistic(), [np.inf]

    def mean(z: np.ndarray) -> np.ndarray:
        if (np.abs(z) > limit[0]).any():
            raise RuntimeError("out of range")
        return logistic.mean(z)

    policy = BVDGLMUCB(1, CustomLink("touchy", mean, logistic.slope), gamma=0.9, lanes=2)
    x = np.array([[0.1], [1.0]])
    for limited in (-1.0, 0.2):
        for _ in range(3):
            policy.select(x[:, None])
            policy.update(x, 1.0)
        policy.select(x[:, None])
        before, limit[0] = policy.state(), limited
        with pytest.raises(RuntimeError, match="out of range"):
            policy.update(x, 1.0)
        limit[0] = np.inf
        assert same_state(policy.state(), before)
    assert policy.estimator.remembered.tolist() == [6, 6]


@pytest.mark.parametrize(("cls", "decided"), [(BVDGLMUCB, None), (DGLMTS, 1.0)])
def test_many_threads_do_not_crash(cls, decided: float | None) -> None:
    """No promise of a sensible result, but memory must stay whole. D-GLM-TS reads its history for every decision."""
    policy, arms = cls(2, gamma=0.999, lanes=3), np.full((3, 2, 2), 0.3)
    policy.select(arms)

    def work() -> None:
        for _ in range(200):
            policy.select(arms)
            with contextlib.suppress(ValueError):  # rounds of one thread may look like the future to another
                policy.update(arms[:, 0], 1.0, round=decided)

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
