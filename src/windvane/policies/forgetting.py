"""Settings for forgetting: a rule, a keyword shorthand for it, or the value that theory recommends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy.typing as npt

from windvane.arguments import check_choice, check_whole
from windvane.errors import ArgumentError
from windvane.estimation import Discount, Forgetting, Never, Restart, Window
from windvane.estimation.forgetting import tune_per_lane
from windvane.policies.base import Policy
from windvane.policies.optimism import EstimatingPolicy
from windvane.theory import ARM_GEOMETRIES, discount, window_length


class ForgettingSettings(Policy):
    """The settings of a policy that forgets. A subclass has ``drift`` or ``switches``, the amount of change.

    Parameters
    ----------
    forgetting
        A forgetting rule. Alternatively, pass its shorthand (``gamma``, ``window`` or ``restart_every``), or the
        horizon and the amount of change for the rule that theory recommends.
    """

    horizon: int | None = None
    forgetting: Forgetting | None = None
    shorthand: ClassVar[str]  # the setting that can replace a rule
    rules: ClassVar[tuple[Callable[..., Forgetting], ...]]  # the allowed rules; the shorthand is short for the first
    formula: ClassVar[Callable[..., float]]  # the value that theory recommends

    def recommend(self, horizon: int, amount: float) -> float:
        """Return the value that theory recommends for ``horizon`` rounds with this amount of change."""
        geometry = getattr(self, "arm_geometry", "orthogonal")  # only some policies have this setting
        return self.formula(horizon=horizon, drift=amount, dim=self.dim, arm_geometry=geometry)

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        """Return as well the rule as it is, where it was tuned for the dimension."""
        kept = super().carry_settings(scale, S)
        if self.forgetting is None and getattr(self, self.shorthand) is None:
            (value,) = vars(self.choose_forgetting()).values()
            kept |= {self.shorthand: value, "switches" if hasattr(self, "switches") else "drift": None}
        return kept

    def choose_forgetting(self) -> Forgetting:
        if hasattr(self, "arm_geometry"):
            check_choice("arm_geometry", self.arm_geometry, ARM_GEOMETRIES)
        amount_name = "switches" if hasattr(self, "switches") else "drift"
        rule, value, amount = self.forgetting, getattr(self, self.shorthand), getattr(self, amount_name)
        if rule is not None:
            for name, other in ((self.shorthand, value), (amount_name, amount)):
                if other is not None:
                    raise ArgumentError(name, other, "omitted when `forgetting` is given")
            if not isinstance(rule, self.rules):  # type: ignore[arg-type]
                raise ArgumentError("forgetting", rule, f"one of {', '.join(kind.__name__ for kind in self.rules)}")
            return rule
        horizon = None if self.horizon is None else check_whole("horizon", self.horizon, 1)
        if value is not None and amount is not None:
            raise ArgumentError(amount_name, amount, f"omitted when `{self.shorthand}` is given")
        if value is None:
            if horizon is None or amount is None:
                raise ArgumentError(self.shorthand, value, f"given, or `horizon` and `{amount_name}`")
            value = tune_per_lane(lambda B: self.recommend(horizon, B), amount_name, amount)
        return self.rules[0](value)


class DiscountRule(ForgettingSettings):
    """The settings of a policy that discounts the past: ``Discount(gamma)``, or ``Never()``."""

    gamma: npt.ArrayLike | None = None
    example, shorthand = "dim=2, gamma=0.99", "gamma"
    rules = (Discount, Never)


class WindowRule(ForgettingSettings):
    """The settings of a policy with a sliding window, ``Window(length)``."""

    window: npt.ArrayLike | None = None
    example, shorthand = "dim=2, window=100", "window"
    rules = (Window,)


class RestartRule(ForgettingSettings):
    """The settings of a policy that restarts after a fixed number of decisions, ``Restart(every)``."""

    restart_every: npt.ArrayLike | None = None
    example, shorthand = "dim=2, restart_every=100", "restart_every"
    rules = (Restart,)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.periods = self.choose_forgetting().memory(self.lane_count)

    def end_round(self) -> None:
        """End the round and restart the lanes whose period is over."""
        super().end_round()
        if (is_due := self.decisions % self.periods == 0).any():
            self.restart(is_due)


class ForgettingPolicy(ForgettingSettings, EstimatingPolicy):
    """A policy with an estimator that forgets."""


class DiscountSettings(DiscountRule, ForgettingPolicy):
    """The settings of a policy with an estimator that discounts the past."""

    formula = staticmethod(discount)


class DiscountedPolicy(DiscountSettings):
    """A policy that discounts the past. The recommended discount is that of D-LinUCB and BVD-GLM-UCB."""

    drift: npt.ArrayLike | None = None
    arm_geometry: str = "orthogonal"


class WindowSettings(WindowRule, ForgettingPolicy):
    """The settings of a policy with an estimator over a sliding window."""

    formula = staticmethod(window_length)
