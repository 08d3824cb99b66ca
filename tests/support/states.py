"""States that must be refused. This module and ``access`` are the only ones that know how a state is laid out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from support.policies import FORMAT

NAN, INF = float("nan"), float("inf")
Spoiler = Callable[[dict[str, Any]], dict[str, Any]]


def spoil(name: str, change: Callable[[np.ndarray], Any]) -> Spoiler:
    """Change a copy of an entry, in place or by what ``change`` returns."""

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
WEIGHT, REWARD, TIME = 2, 3, 4
# Of an estimator whose two lanes hold nine observations each, one a round; by the entry that the refusal must name.
BAD_ESTIMATOR_STATES: dict[str, tuple[str, Callable[[np.ndarray], Any]]] = {
    "dense of another shape": ("dense", lambda dense: dense[:, :-1]),
    "dense of another lane count": ("dense", lambda dense: dense[:1]),
    "dense of another rank": ("dense", lambda dense: dense[0, :2]),
    "dense of another type": ("dense", lambda dense: dense.astype(np.float32)),
    "dense as integers": ("dense", lambda dense: dense.astype(int)),
    "V below lam": ("dense", put(0, V, 0, value=0.5)),
    "V indefinite": ("dense", put(0, V, 0, value=-1.0)),
    "V not symmetric": ("dense", put(0, V, 1, value=50.0)),
    "V of zeros": ("dense", put(slice(None), slice(V, V_TILDE), value=0.0)),
    "V_tilde not a number": ("dense", put(slice(None), slice(V_TILDE, None), value=NAN)),
    "V_tilde below lam": ("dense", put(1, V_TILDE + 1, 1, value=0.0)),
    "theta_hat not finite": ("dense", put(0, THETA_HAT, 0, value=NAN)),
    "theta_hat not the root": ("dense", put(0, THETA_HAT, 0, value=3.0)),
    "b not finite": ("dense", put(0, B, 0, value=INF)),
    "pull not finite": ("dense", put(0, PULL, 1, value=INF)),
    "half a NaN in pull": ("dense", put(0, PULL, 1, value=NAN)),
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
    "a decision in the future": ("history", put(0, TIME, 8, value=1e6)),
}


def entry(name: str, value: Any) -> Spoiler:
    """Replace an entry, or remove it where ``value`` is None."""
    return lambda state: {key: array for key, array in (state | {name: value}).items() if array is not None}


def scale(rows: slice) -> Callable[[np.ndarray], None]:
    """A change of one per cent, which only the checksum shows."""

    def change(array: np.ndarray) -> None:
        array[:, rows] *= 1.01

    return change


TAMPERED = {
    "b": ("dense", slice(B, PULL)),
    "theta_hat": ("dense", slice(THETA_HAT, B)),
    "V": ("dense", slice(V, V_TILDE)),
    "reward": ("history", slice(REWARD, TIME)),
    "features": ("history", slice(WEIGHT)),
}


# Of a policy in two dimensions whose two lanes hold ten observations each, one a round.
BAD_POLICY_STATES: dict[str, Spoiler] = {
    "format of the future": entry("format", np.array(FORMAT + 1)),
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
    "born in the future": entry("born", np.array([1.0, 99.0])),
    "unknown entry": entry("extra", np.zeros(1)),
    "unknown estimator entry": entry("estimator.extra", np.zeros(1)),
    "dense missing": entry("estimator.dense", None),
    **{what: spoil(f"estimator.{name}", change) for what, (name, change) in BAD_ESTIMATOR_STATES.items()},
    **{f"{what} tampered with": spoil(f"estimator.{name}", scale(rows)) for what, (name, rows) in TAMPERED.items()},
}
