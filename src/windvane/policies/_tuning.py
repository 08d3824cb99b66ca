"""Settings that policies share, one per lane: as told, or else what theory recommends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice, check_discount, check_per_lane, check_whole
from windvane.errors import format_value
from windvane.theory import CONFIDENCES, KINDS
from windvane.theory import discount as discount_for


def level_per_lane(delta: npt.ArrayLike, lanes: int) -> Array:
    """The confidence parameter ``delta``, checked, one per lane."""
    return check_per_lane("delta", delta, lanes, "in (0, 1]", lambda d: (d > 0) & (d <= 1))


def rounds_per_lane(name: str, value: npt.ArrayLike, lanes: int) -> Array:
    """A whole number of rounds, at least 1, one per lane."""
    return check_per_lane(name, value, lanes, "that is whole, at least 1", lambda n: (n >= 1) & (n == np.floor(n)))


def choose_discount(
    gamma: npt.ArrayLike | None, horizon: int | None, drift: npt.ArrayLike | None, discount: str, dim: int, lanes: int
) -> Array:
    """``gamma`` where given, else the discount theory recommends for this ``horizon`` and ``drift``."""
    check_choice("discount", discount, KINDS)
    return check_discount(
        told_or_tuned(
            "gamma", gamma, lambda T, B: discount_for(horizon=T, drift=B, dim=dim, kind=discount), horizon, drift, lanes
        ),
        lanes,
    )


def told_or_tuned(
    name: str,
    told: npt.ArrayLike | None,
    rule: Callable[[int, float], float],
    horizon: int | None,
    amount: npt.ArrayLike | None,
    lanes: int,
    by: str = "drift",
) -> npt.ArrayLike:
    """The tuning ``name`` as ``told``, else ``rule`` of the horizon and of each lane's drift (or what ``by`` names)."""
    if horizon is not None:
        check_whole("horizon", horizon, 1)
    if told is not None:
        if amount is not None:
            raise ValueError(f"{name}={format_value(told)} and {by}={format_value(amount)}: give one or the other")
        return told
    if horizon is None or amount is None:
        raise ValueError(f"{name}=None: give {name}, or horizon and {by}")
    return by_drift(lambda B: rule(horizon, B), by, amount, lanes)


def by_drift(rule: Callable[[float], float], name: str, amount: npt.ArrayLike, lanes: int) -> Array:
    """``rule`` of the amount of drift (or of changes) in each lane, given as one number or one per lane."""
    amounts = check_per_lane(name, amount, lanes, "at least 0", lambda b: b >= 0).tolist()
    known = {b: rule(b) for b in set(amounts)}
    return np.array([known[b] for b in amounts])


def settings_of_confidence(confidence: str, horizon: int | None) -> dict[str, Any]:
    """What of the two a state must agree on: the horizon counts only where delta is divided by it."""
    check_choice("confidence", confidence, CONFIDENCES)
    return {"confidence": confidence, "horizon": horizon if confidence == "horizon" else None}
