"""An environment as an experiment names it: a drift, an arm law, a reward law, and the constants of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windvane.arguments import check_number, check_positive, check_whole
from windvane.environments import ArmLaw, DelayLaw, Drift, FunctionDrift, RewardLaw
from windvane.errors import ArgumentError
from windvane.lab.spec.python_objects import plain_link, reference, resolved_link
from windvane.lab.spec.spec_errors import SpecError, argument_path, field_errors, locate, not_a_flag, text_line
from windvane.links import Link

if TYPE_CHECKING:
    from windvane.environments import Environment

PARTS: dict[str, type] = {"drift": Drift, "arms": ArmLaw, "rewards": RewardLaw, "delay": DelayLaw}
_OPTIONAL = ("rewards", "delay")


@dataclass(frozen=True)
class EnvironmentSpec:
    """One environment of an experiment; the fields are those of :class:`windvane.environments.Environment`.

    ``link`` is a name ("logistic"), a link, or "module:name" of one. That, and a drift of the kind "function" given as
    "module:name", imports the module and so runs its code (not before the environment is checked or built). What can
    be imported by name is kept by name.
    """

    name: str
    drift: Drift
    arms: ArmLaw
    rewards: RewardLaw | None = None
    dim: int = 2
    link: str | Link = "logistic"
    S: float = 1.0
    L: float = 1.0
    intercept: float | None = None
    delay: DelayLaw | None = None

    def __post_init__(self) -> None:
        with field_errors(known=FIELDS):
            checked: dict[str, Any] = {
                "name": text_line("name", self.name),
                "dim": check_whole("dim", self.dim, 1),
                "link": plain_link("link", self.link),
                "S": check_positive("S", not_a_flag("S", self.S)),
                "L": check_positive("L", not_a_flag("L", self.L)),
            }
            if self.intercept is not None:
                given = not_a_flag("intercept", self.intercept)
                checked["intercept"] = check_number(
                    "intercept", given, "of size at most 1e100", lambda b: abs(b) <= 1e100
                )
            for part, base in PARTS.items():
                value = getattr(self, part)
                if not isinstance(value, base) and not (value is None and part in _OPTIONAL):
                    raise ArgumentError(part, value, f"of type windvane.environments.{base.__name__}")
            checked["drift"] = _by_name(self.drift)
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen: what is stored is a checked copy

    def build(self, *, horizon: int, lanes: int | Sequence[int], seed: int) -> Environment:
        """The environment, for these lanes."""
        from windvane.environments import Environment

        try:
            return Environment(
                self.drift,
                self.arms,
                self.rewards,
                dim=self.dim,
                link=resolved_link("link", self.link),
                S=self.S,
                L=self.L,
                intercept=self.intercept,
                delay=self.delay,
                horizon=horizon,
                lanes=lanes,
                seed=seed,
            )
        except Exception as error:  # a function of the user may run in it
            raise self._located(error) from error

    def check(self, *, horizon: int, seed: int) -> Environment:
        """Build one lane and follow its drift to the end, so that whatever is wrong with it shows now."""
        environment = self.build(horizon=horizon, lanes=1, seed=seed)
        try:
            environment.variation  # noqa: B018
            environment.round(1)
        except Exception as error:
            raise self._located(error) from error
        return environment

    def _located(self, error: Exception) -> SpecError:
        """``error`` at the field it names: that of a part, if only one part has it, or else the environment's own."""
        if isinstance(error, SpecError):
            return error
        if not isinstance(error, ValueError):  # raised by code of the user
            place = ("drift", "function") if isinstance(self.drift, FunctionDrift) else ()
            return SpecError(place, f"{type(error).__name__}: {error}")
        path, _ = argument_path(error.argument) if isinstance(error, ArgumentError) else ((), False)
        homes = [part for part in PARTS if path and path[0] in _fields_of(getattr(self, part))]
        if len(homes) == 1:
            return locate(error, (homes[0],), _fields_of(getattr(self, homes[0])))
        return locate(error, (), () if homes else FIELDS)


FIELDS = tuple(field.name for field in dataclasses.fields(EnvironmentSpec))


def _fields_of(part: Any) -> Collection[str]:
    return [field.name for field in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else []


def _by_name(drift: Drift) -> Drift:
    """A drift made of a function that can be imported holds its name instead."""
    if not isinstance(drift, FunctionDrift) or isinstance(drift.function, str):
        return drift
    found = reference(drift.function)
    return FunctionDrift(found) if found and "." not in found.partition(":")[2] else drift
