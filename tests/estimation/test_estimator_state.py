"""Saved states resume bit for bit, and what the estimator refuses."""

import io
import math
import signal
from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import KINDS, feed, make_kind, no_hanging
from support.refusals import refuses, refuses_unchanged
from support.states import BAD_ESTIMATOR_STATES, spoil
from support.worlds import same_state
from windvane.estimation import MaximumLikelihoodEstimator, OnePassEstimator, RidgeEstimator, Window

by_kind = pytest.mark.parametrize("kind", list(KINDS))


@by_kind
@pytest.mark.parametrize("rounds", [0, 1, 7, 8, 9, 100, 1200])
def test_a_loaded_state_goes_on_bit_for_bit(kind: str, rounds: int) -> None:
    """Mid-run, stale or solved, through a file, into a fresh estimator and into a used one."""
    original, fresh, used = make_kind(kind, rounds), make_kind(kind), make_kind(kind, 40)
    file = io.BytesIO()
    np.savez(file, **access.save(original))
    file.seek(0)
    with np.load(file) as saved:
        state = dict(saved)
    access.load(fresh, state)
    access.load(used, access.save(original))
    for array in state.values():
        array[...] = 0  # the estimator keeps no hold of it
    for estimator in (fresh, used):
        assert same_state(access.save(original), access.save(estimator))
        np.testing.assert_array_equal(original.memory, estimator.memory)
        np.testing.assert_array_equal(access.theta_hat(original), access.theta_hat(estimator))
    for start in range(rounds, rounds + 90, 30):
        for estimator in (original, fresh, used):
            feed(estimator, [0, 1], range(start, start + 30), 2, solve_every=7)
        assert same_state(access.save(original), access.save(fresh))
        assert same_state(access.save(original), access.save(used))


@pytest.mark.parametrize("what", list(BAD_ESTIMATOR_STATES))
def test_a_bad_state_is_refused_and_changes_nothing(what: str) -> None:
    """Each lane holds nine observations, one a round."""
    estimator = make_kind("gamma")
    for t in range(9):
        estimator.advance()
        estimator.observe([[0.5, 0.1 * t], [0.2, -0.3]], 1.0)
    estimator.solve()
    before = access.save(estimator)
    name, change = BAD_ESTIMATOR_STATES[what]
    with refuses(f"state['{name}']"):
        access.load(estimator, spoil(name, change)(access.save(estimator)))
    assert same_state(before, access.save(estimator))
    access.load(estimator, before)  # it was good before


def test_a_window_takes_no_state_with_a_discount() -> None:
    """Its constructor and its reset cannot have a gamma other than 1; neither may this door let one in."""
    estimator = make_kind("window", 20)
    with refuses("state['gamma']"):
        access.load(estimator, access.save(estimator) | {"gamma": np.array([0.9, 1.0])})


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarm to end a hang on this platform")
def test_an_estimator_without_memory_takes_no_state_with_one() -> None:
    remembering, forgetful = make_kind("linear window", 5), make_kind("linear")
    spoilt = access.save(forgetful) | {"history": access.save(remembering)["history"]}
    with no_hanging(5):
        refuses_unchanged(forgetful, "state['history']", lambda: access.load(forgetful, spoilt))


BAD_SETTINGS: dict[str, list[Any]] = {
    "dim": [0, 1.5, True],
    "lanes": [0, "2"],
    "link": ["tanh"],
    "gamma": [0.0, 1.0001, math.nan, [0.9, 0.9], "high"],
    "window": [0.0, -3, math.inf],
    "S": [0.0, None],
    "L": [-1.0],
    "lam": [math.nan, 0],
    "tolerance": [0.0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD_SETTINGS for value in BAD_SETTINGS[name]])
def test_the_constructor_names_what_it_refuses(name: str, value: Any) -> None:
    with refuses(name):
        access.make_estimator(**{"dim": 2, name: value})


@pytest.mark.parametrize("make", [MaximumLikelihoodEstimator, OnePassEstimator, RidgeEstimator])
@pytest.mark.parametrize("bad", [0.9, None, "window"])
def test_forgetting_must_be_a_rule(make: Any, bad: Any) -> None:
    with refuses("forgetting"):
        make(2, forgetting=bad)


def test_a_one_pass_estimate_cannot_have_a_window() -> None:
    """It keeps no observations to take out again."""
    with refuses("forgetting"):
        OnePassEstimator(2, forgetting=Window(5.0))


BAD_OBSERVATIONS: dict[str, list[Any]] = {
    "x": [[[1.0, 0.0]], [1.0, 0.0], [[1.0, math.nan], [0.0, 0.0]], "features"],
    "reward": [math.inf, [0.0, math.nan], [0.0, 1.0, 1.0]],
    "age": [-0.5, math.nan, [0.0, 0.0, 0.0]],
    "weight": [-1.0, math.inf, [1.0, 1.0, 1.0]],
    "mask": [[True], [1, 0]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD_OBSERVATIONS for value in BAD_OBSERVATIONS[name]], ids=str
)
def test_observe_names_what_it_refuses_and_takes_nothing_in(name: str, value: Any) -> None:
    estimator = make_kind("gamma", 5)
    good: dict[str, Any] = {"x": [[0.5, 0.0], [0.0, 0.5]], "reward": 1.0}
    refuses_unchanged(estimator, name, lambda: estimator.observe(**good | {name: value}))


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1 day"])
def test_advance_names_what_it_refuses(bad: Any) -> None:
    estimator = make_kind("gamma", 5)
    refuses_unchanged(estimator, "rounds", lambda: estimator.advance(bad))


def test_moments_refuse_a_theta_of_another_shape() -> None:
    with refuses("theta"):
        access.moments(make_kind("gamma"), np.zeros(2))
