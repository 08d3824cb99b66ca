"""Settings for forgetting: a rule, a keyword shorthand for it, or the value that theory recommends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from windvane.arguments import check_choice, check_whole
from windvane.errors import ArgumentError
from windvane.estimation import Discount, Forgetting, Never, Restart, Window
from windvane.estimation.forgetting import tune_per_lane
from windvane.policies.optimism import EstimatingPolicy
from windvane.theory import KINDS, discount, window_length


def choose(
    name: str,
    given: npt.ArrayLike | None,
    rule: Callable[[int, float], float],
    horizon: int | None,
    amount: npt.ArrayLike | None,
    by: str = "drift",
) -> npt.ArrayLike:
    """Return the given setting, or the value that theory recommends.

    Parameters
    ----------
    name
        Name of the setting.
    given
        Its value, or None.
    rule
        Function of the horizon and the amount of drift that returns the recommended value.
    horizon, amount
        Number of rounds; amount of drift, one number or one per lane.
    by
        Name of the argument that holds the amount, "drift" or "switches".

    Returns
    -------
    float or ndarray
        The setting: one number, or one per lane.
    """
    if horizon is not None:
        horizon = check_whole("horizon", horizon, 1)
    if given is not None:
        if amount is not None:
            raise ArgumentError(by, amount, f"omitted when `{name}` is given")
        return given
    if horizon is None or amount is None:
        raise ArgumentError(name, given, f"given, or `horizon` and `{by}`")
    return tune_per_lane(lambda B: rule(horizon, B), by, amount)


def check_rule(forgetting: Any, kinds: tuple[type, ...], **shorthands: Any) -> Forgetting | None:
    """Return a forgetting rule of one of these kinds, or None. With a rule, the shorthands must be None."""
    if forgetting is None:
        return None
    for name, value in shorthands.items():
        if value is not None:
            raise ArgumentError(name, value, "omitted when `forgetting` is given")
    if not isinstance(forgetting, kinds):
        raise ArgumentError("forgetting", forgetting, f"one of {', '.join(kind.__name__ for kind in kinds)}")
    return forgetting  # type: ignore[return-value]


class DiscountSettings(EstimatingPolicy):
    """The settings of a policy that discounts the past.

    Parameters
    ----------
    forgetting
        ``Discount(gamma)`` or ``Never()``. Instead, give ``gamma``, or the horizon and the amount of drift.
    gamma
        Discount in (0, 1]: one number, or one per lane.
    horizon
        Number of rounds T, for which a discount is recommended.
    """

    forgetting: Discount | Never | None = None
    gamma: npt.ArrayLike | None = None
    horizon: int | None = None

    def tune_discount(self, rule: Callable[[int, float], float], by: str = "drift") -> Discount | Never:
        """Return the given rule or discount, or ``rule`` of the horizon and of the amount that ``by`` names."""
        amount = getattr(self, by)
        given = check_rule(self.forgetting, (Discount, Never), **{"gamma": self.gamma, by: amount})
        if given is not None:
            return given  # type: ignore[return-value]
        return Discount(choose("gamma", self.gamma, rule, self.horizon, amount, by))


class WindowSettings(EstimatingPolicy):
    """The settings of a policy with a sliding window.

    Parameters
    ----------
    forgetting
        ``Window(length)``. Instead, give ``window``, or the horizon and the amount of drift.
    window
        Number of rounds: one number, or one per lane.
    horizon
        Number of rounds T, for which a window is recommended.
    """

    forgetting: Window | None = None
    window: npt.ArrayLike | None = None
    horizon: int | None = None

    def tune_window(self, rule: Callable[[int, float], float], by: str = "drift") -> Window:
        """Return the given rule or window, or ``rule`` of the horizon and of the amount that ``by`` names."""
        amount = getattr(self, by)
        given = check_rule(self.forgetting, (Window,), **{"window": self.window, by: amount})
        if given is not None:
            return given  # type: ignore[return-value]
        return Window(choose("window", self.window, rule, self.horizon, amount, by))


class DriftSettings(EstimatingPolicy):
    """The amount of drift, by which forgetting is tuned.

    Parameters
    ----------
    drift
        Total drift B_T: one number, or one per lane.
    """

    drift: npt.ArrayLike | None = None


class SwitchSettings(EstimatingPolicy):
    """The number of abrupt changes, by which forgetting is tuned.

    Parameters
    ----------
    switches
        Number of abrupt changes Gamma_T: one number, or one per lane.
    """

    switches: npt.ArrayLike | None = None


class DiscountedPolicy(DiscountSettings, DriftSettings):
    """A policy that discounts the past. The recommended discount is that of D-LinUCB and BVD-GLM-UCB.

    Parameters
    ----------
    arm_geometry
        "orthogonal" or "general": the arm sets for which the discount is recommended.
    """

    arm_geometry: str = "orthogonal"

    def choose_discount(self) -> Discount | Never:
        """Return the given rule, or the recommended discount."""
        kind = check_choice("arm_geometry", self.arm_geometry, KINDS)
        return self.tune_discount(lambda T, B: discount(horizon=T, drift=B, dim=self.dim, kind=kind))


class RestartedPolicy(DriftSettings):
    """A policy that restarts after a fixed number of decisions.

    Parameters
    ----------
    forgetting
        ``Restart(every)``. Instead, give one of the shorthands below.
    restart_every
        Number of decisions between two restarts, a whole number: one number, or one per lane.
    horizon
        Number of rounds T, for which a period is recommended.
    """

    forgetting: Restart | None = None
    restart_every: npt.ArrayLike | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.periods = self.choose_period().memory(self.lane_count)

    def choose_period(self) -> Restart:
        """Return the given rule, or the recommended period."""
        rule = check_rule(self.forgetting, (Restart,), restart_every=self.restart_every, drift=self.drift)
        if rule is not None:
            return rule  # type: ignore[return-value]
        rule_of = lambda T, B: float(window_length(horizon=T, drift=B, dim=self.dim))  # noqa: E731
        return Restart(choose("restart_every", self.restart_every, rule_of, self.horizon, self.drift))

    def end_round(self) -> None:
        """End the round and restart the lanes whose period is over."""
        super().end_round()
        if (is_due := self.decisions % self.periods == 0).any():
            self.restart(is_due)
