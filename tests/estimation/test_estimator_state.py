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
        np.testing.assert_array_equal(original.theta_hat, estimator.theta_hat)
    for start in range(rounds, rounds + 90, 30):
        for estimator in (original, fresh, used):
            feed(estimator, [0, 1], range(start, start + 30), 2, solve_every=7)
        assert same_state(access.save(original), access.save(fresh))
        assert same_state(access.save(original), access.save(used))


@pytest.mark.parametrize("what", list(BAD_ESTIMATOR_STATES))
def test_a_bad_state_is_refused_and_changes_nothing(what: str) -> None:
    estimator = make_kind("gamma")
    for t in range(9):
        estimator.advance()
        estimator.observe([[0.5, 0.1 * t], [0.2, -0.3]], 1.0)
    estimator.solve()
    name, change = BAD_ESTIMATOR_STATES[what]
    spoilt = spoil(name, change)(access.save(estimator))
    refuses_unchanged(estimator, f"state['{name}']", lambda: access.load(estimator, spoilt))
    access.load(estimator, access.save(estimator))  # it was good before


def test_a_window_needs_decisions_in_order() -> None:
    estimator = make_kind("window", 9)
    spoilt = spoil("history", lambda history: history[:, :, ::-1])(access.save(estimator))
    refuses_unchanged(estimator, "state['history']", lambda: access.load(estimator, spoilt))


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarm to end a hang on this platform")
def test_no_state_of_another_kind_is_let_in() -> None:
    """A window cannot have a gamma other than 1; an estimator without memory takes no history."""
    window, forgetful = make_kind("window", 20), make_kind("linear")
    discounted = access.save(window) | {"gamma": np.array([0.9, 1.0])}
    refuses_unchanged(window, "state['gamma']", lambda: access.load(window, discounted))
    spoilt = access.save(forgetful) | {"history": access.save(make_kind("linear window", 5))["history"]}
    with no_hanging(5):
        refuses_unchanged(forgetful, "state['history']", lambda: access.load(forgetful, spoilt))


BAD_SETTINGS: dict[str, list[Any]] = {"dim": [0, 1.5, True], "lanes": [0, "2"], "link": ["tanh"], "tolerance": [0.0]}
BAD_SETTINGS |= {"gamma": [0.0, 1.0001, math.nan, [0.9, 0.9], "high"], "window": [0.0, -3, math.inf]}
BAD_SETTINGS |= {"S": [0.0, None], "L": [-1.0], "lam": [math.nan, 0]}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD_SETTINGS for value in BAD_SETTINGS[name]])
def test_the_constructor_names_what_it_refuses(name: str, value: Any) -> None:
    with refuses(name):
        access.make_estimator(**{"dim": 2, name: value})


ANY_KIND = (MaximumLikelihoodEstimator, OnePassEstimator, RidgeEstimator)
NO_RULES = [(make, bad) for make in ANY_KIND for bad in (0.9, None, "window")]


@pytest.mark.parametrize(("make", "bad"), [*NO_RULES, (OnePassEstimator, Window(5.0))])
def test_forgetting_must_be_a_rule_that_the_estimator_can_follow(make: Any, bad: Any) -> None:
    with refuses("forgetting"):
        make(2, forgetting=bad)


OBSERVATION = {"x": [[0.5, 0.0], [0.0, 0.5]], "reward": 1.0}
BAD_CALLS: list[tuple[str, str, list[Any]]] = [
    ("observe", "x", [[[1.0, 0.0]], [1.0, 0.0], [[1.0, math.nan], [0.0, 0.0]], "features"]),
    ("observe", "reward", [math.inf, [0.0, math.nan], [0.0, 1.0, 1.0]]),
    ("observe", "age", [-0.5, math.nan, [0.0, 0.0, 0.0]]),
    ("observe", "weight", [-1.0, math.inf, [1.0, 1.0, 1.0]]),
    ("observe", "mask", [[True], [1, 0]]),
    ("advance", "rounds", [-1.0, math.nan, math.inf, "1 day"]),
    ("moments", "theta", [np.zeros(2)]),
]


@pytest.mark.parametrize(("method", "name", "value"), [(*case, value) for *case, bad in BAD_CALLS for value in bad])
def test_a_refused_call_names_the_argument_and_changes_nothing(method: str, name: str, value: Any) -> None:
    estimator, good = make_kind("gamma", 5), OBSERVATION if method == "observe" else {}
    refuses_unchanged(estimator, name, lambda: getattr(estimator, method)(**good | {name: value}))
