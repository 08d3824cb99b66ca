"""States that must be refused. This module and ``access`` are the only ones that know how a state is laid out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from support.access import FORMAT_VERSION

NAN, INF = float("nan"), float("inf")
Spoiler = Callable[[dict[str, Any]], dict[str, Any]]


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


# Rows of ``dense`` and of a history in two dimensions.
THETA_HAT, B, PULL, V, V_TILDE = 0, 1, 2, 3, 5
WEIGHT, TIME = 2, 4
# Of an estimator whose two lanes hold nine observations each, one a round; by the entry that the refusal must name.
BAD_ESTIMATOR_STATES: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "dense of another shape": ("dense", lambda dense: dense[:, :-1]),
    "dense of another lane count": ("dense", lambda dense: dense[:1]),
    "dense of another type": ("dense", lambda dense: dense.astype(np.float32)),
    "V below lam": ("dense", put(0, V, 0, value=0.5)),
    "V indefinite": ("dense", put(0, V, 0, value=-1.0)),
    "V not symmetric": ("dense", put(0, V, 1, value=50.0)),
    "V_tilde below lam": ("dense", put(1, V_TILDE + 1, 1, value=0.0)),
    "theta_hat not finite": ("dense", put(0, THETA_HAT, 0, value=NAN)),
    "theta_hat not the root": ("dense", put(0, THETA_HAT, 0, value=3.0)),
    "b not finite": ("dense", put(0, B, 0, value=INF)),
    "pull not finite": ("dense", put(0, PULL, 1, value=INF)),
    "gamma zero": ("gamma", put(0, value=0.0)),
    "gamma above one": ("gamma", put(0, value=1.5)),
    "a window where there was none": ("window", put(0, value=5.0)),
    "a window that is not a number": ("window", put(0, value=NAN)),
    "time not finite": ("now", put(0, value=INF)),
    "weights from the future": ("origin", lambda origin: origin + 1e3),
    "a scale of zero": ("scale", put(0, value=0.0)),
    "dropped weight negative": ("dropped", put(0, value=-1.0)),
    "strayed less than not at all": ("strayed", put(0, value=-1.0)),
    "strayed not a number": ("strayed", put(0, value=NAN)),
    "an unknown status": ("status", put(0, value=3)),
    "more observations than there are": ("count", put(0, value=1000)),
    "fewer observations than none": ("count", put(0, value=-1)),
    "counts of another type": ("count", lambda count: count.astype(float)),
    "removals negative": ("removals", put(0, value=-1)),
    "a weight below zero": ("history", put(0, WEIGHT, 3, value=-1.0)),
    "a history without weights": ("history", lambda history: history[:, :-1]),
    "a history that is one number": ("history", lambda history: history[0, 0, 0]),
    "a feature not finite": ("history", put(0, 0, 0, value=NAN)),
    "decisions out of order": ("history", lambda history: history[:, :, ::-1]),
    "a decision in the future": ("history", put(0, TIME, 8, value=1e6)),
}


def entry(name: str, value: Any) -> Spoiler:
    """Replace an entry, or remove it where ``value`` is None."""
    return lambda state: {key: array for key, array in (state | {name: value}).items() if array is not None}


# Of a policy whose two lanes hold ten observations each, one a round.
BAD_POLICY_STATES: dict[str, Spoiler] = {
    "format of the future": entry("format", np.array(FORMAT_VERSION + 1)),
    "format missing": entry("format", None),
    "settings": entry("config", np.array("0" * 64)),
    "settings as bytes": entry("config", np.zeros(3)),
    "other ids": entry("lane_ids", np.array([0, 2])),
    "no ids": entry("lane_ids", None),
    "time zero": entry("t", np.array(0.0)),
    "time NaN": entry("t", np.array(NAN)),
    "time in a row": entry("t", np.ones(2)),
    "negative decisions": entry("decisions", np.array(-1)),
    "half a decision": entry("decisions", np.array(2.5)),
    "last round ahead": entry("last_round", np.array(99.0)),
    "last round missing": entry("last_round", None),
    "last round NaN": entry("last_round", np.array(NAN)),
    "unknown entry": entry("extra", np.zeros(1)),
    "unknown estimator entry": entry("estimator.extra", np.zeros(1)),
    "V missing": entry("estimator.V", None),
    "V of another shape": entry("estimator.V", np.eye(2)),
    "V below lam": entry("estimator.V", np.zeros((2, 2, 2))),
    "V_tilde NaN": entry("estimator.V_tilde", np.full((2, 2, 2), NAN)),
    "b as integers": entry("estimator.b", np.zeros((2, 2), dtype=int)),
    "b infinite": entry("estimator.b", np.full((2, 2), INF)),
    "gamma above 1": entry("estimator.gamma", np.full(2, 1.5)),
    "more counted than held": entry("estimator.counts", np.full(2, 10**6)),
    "negative count": entry("estimator.counts", np.full(2, -1)),
    "half a NaN in pull": entry("estimator.pull", np.array([[0.0, NAN], [0.0, 0.0]])),
    "decisions out of order": spoil("estimator.decided", lambda decided: decided[:, [0, 1, 2, 6, 4, 5, 3, 7, 8, 9]]),
    "a decision in the future": spoil("estimator.decided", put(1, 9, value=1e6)),
    "a weight below zero": spoil("estimator.W", put(1, 4, value=-1.0)),
    **{
        f"{name} tampered with": spoil(f"estimator.{name}", lambda array: array * 1.01)
        for name in ("b", "theta", "R", "V", "X")
    },
}
