"""Saved states: they resume bit for bit, and a bad one is refused."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support import access
from support.estimators import KINDS, feed, make_kind, no_hanging
from support.refusals import refuses
from support.worlds import same_state

by_kind = pytest.mark.parametrize("kind", list(KINDS))


@by_kind
@pytest.mark.parametrize("rounds", [0, 1, 7, 8, 9, 100, 1200])
def test_a_loaded_state_goes_on_bit_for_bit(kind: str, rounds: int) -> None:
    """Mid-run, stale or solved, through a file, into a fresh estimator and into a used one."""
    original, fresh, used = make_kind(kind, rounds), make_kind(kind), make_kind(kind, 40)
    file = io.BytesIO()
    np.savez(file, **original.state())
    file.seek(0)
    with np.load(file) as saved:
        state = dict(saved)
    fresh.load_state(state)
    used.load_state(original.state())
    for array in state.values():
        array[...] = 0  # the estimator keeps no hold of it
    for estimator in (fresh, used):
        assert same_state(original.state(), estimator.state())
        np.testing.assert_array_equal(original.memory, estimator.memory)
        np.testing.assert_array_equal(access.theta_hat(original), access.theta_hat(estimator))
    for start in range(rounds, rounds + 90, 30):
        for estimator in (original, fresh, used):
            feed(estimator, [0, 1], range(start, start + 30), 2, solve_every=7)
        assert same_state(original.state(), fresh.state())
        assert same_state(original.state(), used.state())


def spoil(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def spoilt(state: dict[str, Any]) -> dict[str, Any]:
        array = state[name].copy()
        changed = change(array)
        return state | {name: array if changed is None else changed}

    return spoilt


def put(*index: Any, value: Any) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[index] = value

    return change


BAD_STATES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "an entry missing": lambda state: {name: array for name, array in state.items() if name != "b"},
    "an entry too many": lambda state: state | {"extra": np.zeros(1)},
    "V of another shape": spoil("V", lambda V: V[:, :1]),
    "V of another lane count": spoil("V", lambda V: V[:1]),
    "V of another type": spoil("V", lambda V: V.astype(np.float32)),
    "V below lam": spoil("V", put(0, 0, 0, value=0.5)),
    "V indefinite": spoil("V", put(0, 0, 0, value=-1.0)),
    "V not symmetric": spoil("V", put(0, 0, 1, value=50.0)),
    "V_tilde below lam": spoil("V_tilde", put(1, 1, 1, value=0.0)),
    "gamma zero": spoil("gamma", put(0, value=0.0)),
    "gamma above one": spoil("gamma", put(0, value=1.5)),
    "theta not finite": spoil("theta", put(0, 0, value=np.nan)),
    "b not finite": spoil("b", put(0, 0, value=np.inf)),
    "pull not finite": spoil("pull", put(0, 0, value=np.inf)),
    "pull partly missing": spoil("pull", put(0, 1, value=np.nan)),
    "an unknown staleness": spoil("stale", put(0, value=3)),
    "clock not finite": spoil("clock", put(0, 0, value=np.inf)),
    "weights from the future": spoil("clock", lambda clock: clock + [0.0, 1e3, 0.0]),
    "dropped weight negative": spoil("clock", put(0, 2, value=-1.0)),
    "more observations than there are": spoil("counts", put(0, value=1000)),
    "fewer observations than none": spoil("counts", put(0, value=-1)),
    "counts of another type": spoil("counts", lambda counts: counts.astype(float)),
    "removals negative": spoil("removals", put(0, value=-1)),
    "a weight of zero": spoil("W", put(0, 3, value=0.0)),
    "a weight below zero": spoil("W", put(0, 3, value=-1.0)),
    "a history without weights": spoil("W", lambda W: W[:, :-1]),
    "a weight that is one number": spoil("W", lambda W: W[0, 0]),
    "a feature not finite": spoil("X", put(0, 0, 0, value=np.nan)),
    "decisions out of order": spoil("decided", lambda decided: decided[:, ::-1]),
    "a decision in the future": spoil("decided", put(0, 8, value=1e6)),
}


@pytest.mark.parametrize("what", list(BAD_STATES))
def test_a_bad_state_is_refused_and_changes_nothing(what: str) -> None:
    """Each lane holds nine observations, one a round."""
    estimator = make_kind("gamma")
    for t in range(9):
        estimator.advance()
        estimator.observe([[0.5, 0.1 * t], [0.2, -0.3]], 1.0)
    estimator.solve()
    before = estimator.state()
    with pytest.raises(ValueError, match=r"^(state|gamma)"):
        estimator.load_state(BAD_STATES[what](estimator.state()))
    assert same_state(before, estimator.state())
    estimator.load_state(before)  # it was good before


def test_a_window_takes_no_state_with_a_discount() -> None:
    """Its constructor and its reset refuse a gamma other than 1; so must this door."""
    estimator = make_kind("window", 20)
    with refuses("gamma"):
        estimator.load_state(estimator.state() | {"gamma": np.array([0.9, 1.0])})


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no alarm to end a hang on this platform")
def test_an_estimator_without_memory_takes_no_state_with_one() -> None:
    remembering = access.make_estimator(2, "identity", gamma=[0.9, 1.0], lanes=2)
    feed(remembering, [0, 1], range(5), 2)
    forgetful = make_kind("linear")
    before = forgetful.state()
    with no_hanging(5), pytest.raises(ValueError, match="state"):
        forgetful.load_state(remembering.state())
    assert same_state(before, forgetful.state())
