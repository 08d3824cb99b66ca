"""A policy as an experiment names it: which class, with which settings, swept over which values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import theory
from windvane._importing import imported
from windvane.arguments import Array, check_choice, check_number
from windvane.errors import ArgumentError, format_value
from windvane.lab.spec.python_objects import Table, frozen, plain_link, reference, resolved_link
from windvane.lab.spec.spec_errors import (
    SpecError,
    field_errors,
    not_a_flag,
    refuse_unknown,
    suggestion,
    text_line,
    with_hint,
)
from windvane.policies.registry import POLICIES, Signature

if TYPE_CHECKING:
    from windvane.environments import AnyEnvironment
    from windvane.policies.base import Policy

SCALES = ("bonus_scale", "posterior_scale")  # how much a policy explores: it takes one of them, or none
SWEEPABLE = ("gamma", *SCALES, "delta")  # what policies take lane by lane
RESERVED = ("policy", "label", "sweep")  # keys of a policy's table that are no settings
_SHORT = {"gamma": "γ", "delta": "δ"}  # in labels
_FILLED_ONLY = ("dim", "lanes", "seed")  # the experiment's alone; S, L, link, sigma, horizon, gamma may be set


@dataclass(frozen=True)
class PolicySpec:
    """One policy of an experiment.

    ``policy``: a registered name ("BVD-GLM-UCB"), a class on the lanes contract, or "module:Class", which imports
    the module and so runs its code (not before the policy is checked or built). A class that can be imported by name is
    kept by name. ``label``: what the policy is called in results; by default its registered name, or the class's own
    (``__name__``). ``settings``: arguments of the constructor. ``sweep``: lists of values for ``gamma``,
    ``bonus_scale``, ``posterior_scale`` or ``delta``; every combination is a variant, run in lanes of its own.

    The experiment fills in what the environment knows, as far as the class takes it: ``dim``, ``lanes`` and ``seed``
    always; ``link``, ``S``, ``L``, ``sigma`` and ``horizon`` unless set; and, unless it is told how to forget
    (``gamma``, ``window``, ``restart_every``, ``drift`` or ``switches`` set or swept), the environment's exact B_T as
    ``drift`` and its number of changes as ``switches``, lane by lane. A class that takes ``gamma`` but neither of
    these by name gets the discount recommended for B_T (:func:`windvane.theory.discount`, for the arms that the
    setting ``arm_geometry`` names). A class that takes ``**settings`` is given all but ``drift`` and ``switches``. One
    whose ``needs_truth`` is true gets ``truth``, the environment's own mean rewards (:meth:`Environment.means`).

    In a labelled data stream there is no theta*: ``S``, ``drift`` and ``switches`` are what its spec assumes. A class
    whose ``S`` may be None, because it learns the scale, is given None there.
    """

    policy: str | type[Policy]
    label: str | None = None
    settings: Mapping[str, Any] = field(default_factory=Table)
    sweep: Mapping[str, Sequence[float]] = field(default_factory=Table)

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # the dataclass is frozen: what is stored is a checked copy
        with field_errors(known=("policy", "label")):
            known_class = _known_class(self.policy)
            if isinstance(self.policy, type):
                set_(self, "policy", _registered_name(self.policy) or reference(self.policy) or self.policy)
            if self.label is not None:
                text_line("label", self.label)
        set_(self, "settings", _checked_settings(self.settings))
        set_(self, "sweep", _checked_sweep(self.sweep))
        for name in self.sweep:
            if name in self.settings:
                raise SpecError((name,), "is both set and swept; omit one of them")
        if "gamma" in self.sweep and "drift" in self.settings:
            raise SpecError(("drift",), "is set while gamma is swept; omit one of them")
        if known_class is not None:
            self._check_arguments(known_class)

    @property
    def name(self) -> str:
        """What the policy is called in results."""
        if self.label is not None:
            return self.label
        if isinstance(self.policy, type):
            return self.policy.__name__
        return self.policy if self.policy in POLICIES else self.policy.rpartition(":")[2].rpartition(".")[2]

    @property
    def scale(self) -> str | None:
        """The setting that says how much the policy explores, one of :data:`SCALES`; None if it has none.

        A class that is not imported yet is taken to have a bonus.
        """
        known_class = _known_class(self.policy)
        return next((name for name in SCALES if known_class is None or name in Signature(known_class).names), None)

    @property
    def variants(self) -> list[dict[str, float]]:
        """All combinations of the swept values; ``[{}]`` without a sweep."""
        return [dict(zip(self.sweep, point, strict=True)) for point in itertools.product(*self.sweep.values())]

    def resolve(self) -> type[Policy]:
        """The class, imported if need be."""
        found = _known_class(self.policy)
        if found is None:
            with field_errors(known=("policy",)):
                found = imported(str(self.policy), "policy")
                _check_class(found)
            self._check_arguments(found)
        return found

    def build(self, environment: AnyEnvironment, *, variants: Sequence[Mapping[str, float]] | None = None) -> Policy:
        """The policy for ``environment``; ``variants`` says which point of the sweep each of its lanes is."""
        signature = Signature(self.resolve())
        lanes = environment.lanes
        points = [{}] * lanes if variants is None else list(variants)
        if len(points) != lanes or any(set(point) != set(self.sweep) for point in points):
            swept = ", ".join(self.sweep) or "nothing, since nothing is swept"
            raise ArgumentError("variants", variants, f"given with {swept} for each of the {lanes} lanes")
        given = dict(self.settings)
        if "link" in given:
            with field_errors(known=("link",)):
                given["link"] = resolved_link("link", given["link"])
        learns_scale = not environment.has_theta and signature.may_be_none("S")
        filled: dict[str, Any] = {
            "dim": environment.dim,
            "link": environment.link,
            "S": None if learns_scale else environment.S,
            "L": environment.L,
            "sigma": environment.sigma,
            "horizon": environment.horizon,
            "lanes": environment.lane_ids,
            "seed": environment.seed,
            **given,
            **{name: np.array([point[name] for point in points]) for name in self.sweep},
        }
        with field_errors(known=(*given, *self.sweep), foreign=True):
            untold = not _TUNING & filled.keys()
            for name, truth in (("drift", environment.variation), ("switches", environment.switches)):
                if untold and name in signature.names:
                    filled[name] = truth
            if untold and signature.accepts("gamma") and not {"drift", "switches"} & filled.keys():
                kind = filled.get("arm_geometry", getattr(signature.cls, "arm_geometry", theory.KINDS[0]))
                filled["gamma"] = _recommended(environment, filled["horizon"], kind)
            if getattr(signature.cls, "needs_truth", False):
                filled["truth"] = environment.means
            return signature.cls(**{name: value for name, value in filled.items() if signature.accepts(name)})

    def check(self, environment: AnyEnvironment) -> None:
        """Build every variant in a lane of its own; an error names the setting, or the value of the sweep."""
        self.resolve()
        for point in self.variants:
            try:
                PolicySpec(self.policy, self.label, {**self.settings, **point}).build(environment)
            except SpecError as error:
                if error.path and (name := error.path[0]) in self.sweep:
                    index = self.sweep[str(name)].index(point[str(name)])
                    raise SpecError(("sweep", name, index, *error.path[1:]), error.problem) from error.__cause__
                raise

    def _check_arguments(self, cls: type[Policy]) -> None:
        signature = Signature(cls)
        for name, value in self.settings.items():
            _check_taken(signature, name, (name,))
            if isinstance(value, bool) and signature.is_number(name):
                with field_errors(known=(name,)):
                    not_a_flag(name, value)
        for name in self.sweep:
            _check_taken(signature, name, ("sweep", name))
        for name in signature.required:
            filled = name == "truth" and getattr(cls, "needs_truth", False)
            if not filled and name not in {*self.settings, *self.sweep, *_FILLED}:
                raise SpecError((name,), f"missing; {cls.__name__} needs it")


_FILLED = (*_FILLED_ONLY, "link", "S", "L", "sigma", "horizon", "gamma", "drift", "switches")
_TUNING = {
    "gamma",
    "window",
    "restart_every",
    "drift",
    "switches",
}  # any of these set: the policy is told how to forget


def variant_label(policy: str, variant: Mapping[str, float]) -> str:
    """Return what results call a variant: the policy's name and the values that were swept, to 12 digits."""
    return " ".join([policy, *(f"{_SHORT.get(name, name)}={value:.12g}" for name, value in variant.items())])


def _check_taken(signature: Signature, name: str, path: tuple[str, ...]) -> None:
    if not signature.accepts(name):
        allowed = [other for other in signature.names if other not in _FILLED_ONLY]
        problem = f"{signature.cls.__name__} has no such setting"
        raise SpecError(path, with_hint(problem, suggestion(name, allowed)))


def _registered_name(cls: type) -> str | None:
    return next((name for name, registered in POLICIES.items() if registered is cls), None)


def _known_class(policy: Any) -> type[Policy] | None:
    """The class where it can be had without importing anything; None for "module:Class"."""
    if isinstance(policy, type):
        return _check_class(policy)
    if not isinstance(policy, str):
        raise ArgumentError("policy", policy, 'the name of a policy, a class, or "module:Class"')
    if ":" in policy:
        return None
    if policy not in POLICIES:
        raise ArgumentError("policy", policy, "the name of a policy", hint=suggestion(policy, POLICIES))
    return POLICIES[policy]


def _check_class(found: Any) -> type[Policy]:
    """``found`` if it looks like a policy on the lanes contract."""
    methods = isinstance(found, type) and all(callable(getattr(found, name, None)) for name in ("select", "update"))
    if not methods or not all(Signature(found).accepts(name) for name in _FILLED_ONLY):
        expected = "a class with select and update whose constructor takes dim, lanes and seed"
        raise SpecError.of(("policy",), found, expected)
    return found  # type: ignore[no-any-return]


def _checked_settings(settings: Any) -> Table:
    if not isinstance(settings, Mapping):
        raise SpecError.of(("settings",), settings, "a mapping from names to values")
    for name in settings:
        if name in _FILLED_ONLY:
            raise SpecError((name,), "is filled in by the experiment and cannot be set")
        if name in RESERVED or not isinstance(name, str) or not name.isidentifier():
            raise SpecError(("settings",), f"{format_value(name)} cannot be the name of a setting")
    checked = {}
    for name, value in settings.items():
        with field_errors(name):
            checked[name] = frozen(value)
    if "link" in checked:
        with field_errors(known=("link",)):
            checked["link"] = plain_link("link", checked["link"])
    return Table(checked)


def _checked_sweep(sweep: Any) -> Table:
    """The swept values, as tuples of floats, in the order of ``SWEEPABLE``."""
    if not isinstance(sweep, Mapping):
        raise SpecError.of(("sweep",), sweep, "a table of lists, such as { gamma = [0.9, 0.99] }")
    with field_errors("sweep"):
        refuse_unknown(sweep, SWEEPABLE, "cannot be swept")
        for name, values in sweep.items():
            if not isinstance(values, list | tuple | np.ndarray) or len(values) == 0:
                raise SpecError.of((name,), values, "a list of one or more numbers")
        return Table({name: _checked_values(name, sweep[name]) for name in SWEEPABLE if name in sweep})


def _checked_values(name: str, values: Sequence[Any]) -> tuple[float, ...]:
    checked: list[float] = []
    for index, value in enumerate(values):
        with field_errors(known=(name,)):
            place = f"{name}[{index}]"
            found = check_number(place, not_a_flag(place, value), "that is finite", math.isfinite)
        if found in checked:
            raise SpecError.of((name, index), value, "in the list only once")
        checked.append(found)
    return tuple(checked)


def _recommended(environment: AnyEnvironment, horizon: int, kind: str) -> Array:
    """gamma for the exact B_T of each lane."""
    check_choice("arm_geometry", kind, theory.KINDS)
    drifts = environment.variation.tolist()
    known = {
        drift: theory.discount(horizon=horizon, drift=drift, dim=environment.dim, kind=kind) for drift in set(drifts)
    }
    return np.array([known[drift] for drift in drifts])
