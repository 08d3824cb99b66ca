"""A policy of an experiment: which class, with which settings, swept over which values, told what."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from windvane.arguments import check_number
from windvane.environments import AnyEnvironment
from windvane.errors import ArgumentError, format_value
from windvane.lab.run.build import (
    FILLED,
    FILLED_ALWAYS,
    FORGETTING,
    LISTABLE,
    PER_LANE,
    TRUTHS,
    build_policy,
    check_class,
    find_told,
    resolve_policy,
)
from windvane.lab.run.cells import list_variants
from windvane.lab.spec.field_types import NOT_A_FLAG, Checked, OptionalText, optional, spec_model
from windvane.lab.spec.python_objects import NONE, Table, find_name, freeze, name_link
from windvane.lab.spec.spec_errors import FieldPath, SpecError, add_hint, locate, located, suggest
from windvane.policies.registry import POLICIES, Signature, describe_unknown_policy

if TYPE_CHECKING:
    from windvane.policies.base import Policy

SCALES = ("bonus_scale", "posterior_scale")  # how much a policy explores: it has one of them, or none
_SYMBOLS = {"gamma": "γ", "delta": "δ"}  # in labels


def _check_policy_name(name: str, policy: Any) -> Any:
    """Return a policy as a spec stores it: by name if it has one, else the class. Nothing is imported."""
    if isinstance(policy, type):
        check_class(policy)
        registered = next((key for key, cls in POLICIES.items() if cls is policy), None)
        return registered or find_name(policy) or policy
    if not isinstance(policy, str):
        raise ArgumentError(name, policy, 'the name of a policy, a class, or "module:Class"')
    if ":" not in policy and policy not in POLICIES:
        raise describe_unknown_policy(name, policy, "the name of a policy")
    return policy


def _check_settings(name: str, settings: Any) -> Table:
    """Return settings that cannot change."""
    if not isinstance(settings, Mapping):
        raise ArgumentError(name, settings, "a table of settings")
    checked_values = {}
    for key, value in settings.items():
        if not isinstance(key, str) or not key.isidentifier():
            raise SpecError((), f"{format_value(key)} cannot be the name of a setting")
        if key in FILLED_ALWAYS:
            raise SpecError((key,), "is filled in by the experiment and cannot be set")
        with located(key):
            checked_values[key] = _check_value(key, value)
    return Table(checked_values)


def _check_value(name: str, value: Any) -> Any:
    """Return a value that cannot change; a link by its name, if it has one."""
    try:
        return name_link(name, value) if name == "link" and value not in (None, NONE) else freeze(value)
    except ArgumentError as error:
        raise SpecError((), error.problem) from None


def _check_sweep(name: str, sweep: Any) -> Table:
    """Return the lists of values as tuples; what policies accept lane by lane are finite numbers."""
    if not isinstance(sweep, Mapping):
        raise ArgumentError(name, sweep, "a table of lists, such as { gamma = [0.9, 0.99] }")
    for key, values in sweep.items():
        if not isinstance(values, list | tuple | np.ndarray) or not len(values):
            raise SpecError.of((key,), values, "a list of one or more values")
    _check_settings(name, dict.fromkeys(sweep))  # the names
    lists = {key: list(freeze(values)) for key, values in sweep.items()}
    for key, values in lists.items():
        for index, value in enumerate(values):
            with located(key, index):
                values[index] = _check_swept(key, value)
                if values[index] in values[:index]:
                    raise SpecError.of((), value, "unique in its list")
    return Table({key: tuple(values) for key, values in lists.items()})


def _check_swept(name: str, value: Any) -> Any:
    if name in PER_LANE:
        with located():
            return check_number(name, value, "that is finite", math.isfinite, booleans=False)
    value = _check_value(name, value)
    try:
        json.dumps(value)
    except TypeError:
        raise SpecError.of((), value, "a number, a text, true or false, or a list of these") from None
    return value


def _check_told(name: str, told: Any) -> tuple[str, ...]:
    if not isinstance(told, list | tuple) or not all(truth in TRUTHS for truth in told):
        raise ArgumentError(name, told, 'a list with "drift", "switches", both or neither')
    return tuple(truth for truth in TRUTHS if truth in told)


PolicyName = Annotated[str | type[Any], Checked({"type": "string"}, _check_policy_name)]
Settings = Annotated[Mapping[str, Any], Checked({"type": "object"}, _check_settings)]
_LISTS = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}}
Sweep = Annotated[Mapping[str, Sequence[Any]], Checked(_LISTS, _check_sweep)]
Told = Annotated[Sequence[str] | None, Checked({"type": "array", "items": {"enum": [*TRUTHS]}}, optional(_check_told))]


@spec_model("policies")
class PolicySpec:
    """A policy of an experiment.

    Parameters
    ----------
    policy
        A registered name ("BVD-GLM-UCB"), a class that follows the lanes contract, or "module:Class". The latter is
        imported, which runs the code of the module, when the spec is checked or the policy is built.
    label
        What results call the policy. Default: its registered name, or the name of the class.
    settings
        Arguments of the constructor. The text "none" is None.
    sweep
        Lists of values for settings. Every combination is a variant with its own runs.
    told
        What the experiment tells the policy about each run, although nobody knows it in practice: "drift" (the exact
        B_T) and "switches" (the number of changes). Default: what the constructor accepts, unless a setting says how
        to forget (``gamma``, ``window``, ``restart_every``, ``drift`` or ``switches``). A class that accepts
        ``gamma`` but not ``drift`` gets the recommended discount for B_T.

    Notes
    -----
    The experiment fills in ``dim``, ``lanes`` and ``seed``, and ``link``, ``S``, ``L``, ``sigma`` and ``horizon``
    unless they are set: a policy that could learn the scale, such as AdaptiveGLMUCB, knows S unless ``settings`` has
    ``S = "none"``. A class whose ``needs_truth`` is true gets ``truth``, the mean rewards of the environment.
    A labelled data stream has no theta*: ``S``, ``drift`` and ``switches`` are then assumptions of its spec, and a
    class whose ``S`` may be None, because it learns the scale, gets None.

    Examples
    --------
    >>> PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99]}).variants
    [{'gamma': 0.9}, {'gamma': 0.99}]
    >>> PolicySpec("BVD-GLM-UCB").resolve().told
    ('drift',)
    """

    policy: PolicyName
    label: OptionalText = None
    settings: Settings = field(default_factory=Table)
    sweep: Sweep = field(default_factory=Table)
    told: Told = None

    def __post_init__(self) -> None:
        for name in self.sweep:
            if name in self.settings:
                raise SpecError(("settings", name), "is both set and swept; omit one of them")
        if "gamma" in self.sweep and "drift" in self.settings:
            raise SpecError(("settings", "drift"), "is set while gamma is swept; omit one of them")
        if (signature := self._find_signature()) is not None:
            self._check_arguments(signature)

    @property
    def name(self) -> str:
        """What the policy is called in results."""
        if self.label is not None:
            return str(self.label)
        if isinstance(self.policy, type):
            return self.policy.__name__
        return str(self.policy if self.policy in POLICIES else self.policy.rpartition(":")[2].rpartition(".")[2])

    @property
    def scale(self) -> str | None:
        """The setting that says how much the policy explores, "bonus_scale" or "posterior_scale"; else None."""
        names = self._import_signature().names
        return next((name for name in SCALES if name in names), None)

    @property
    def variants(self) -> list[dict[str, Any]]:
        """All combinations of the swept values; ``[{}]`` without a sweep."""
        return list_variants(self.sweep)

    @property
    def has_optional_S(self) -> bool:
        """Whether the policy learns the scale of theta* without S, and its settings leave S to the experiment.

        The experiment tells it the exact S all the same, where theta* is simulated: ``settings = { S = "none" }``
        prevents that.
        """
        return self._import_signature().may_be_none("S") and "S" not in {*self.settings, *self.sweep}

    def _find_signature(self) -> Signature | None:
        """Return the signature of the constructor; None if the class is in a module that is not imported yet."""
        is_named = isinstance(self.policy, str) and self.policy not in POLICIES
        if is_named and str(self.policy).partition(":")[0] not in sys.modules:
            return None
        return self._import_signature()

    def _import_signature(self) -> Signature:
        with located(known=("policy",)):
            return Signature(resolve_policy(self.policy))

    def resolve(self) -> PolicySpec:
        """Return this spec with its class imported, its settings checked, and ``told`` filled in."""
        signature = self._import_signature()
        self._check_arguments(signature)
        told = find_told(signature, {*self.settings, *self.sweep}) if self.told is None else self.told
        return replace(self, told=told)

    def build(self, environment: AnyEnvironment, *, variants: Sequence[Mapping[str, Any]] | None = None) -> Policy:
        """Return the policy for ``environment``; ``variants`` has the point of the sweep of each lane."""
        return build_policy(self.resolve(), environment, variants)

    def check(self, environment: AnyEnvironment) -> None:
        """Build every variant in a lane of its own; an error names the setting, or the value in the sweep."""
        spec = self.resolve()
        for point in spec.variants:
            try:
                build_policy(replace(spec, settings={**spec.settings, **point}, sweep={}), environment)
            except Exception as error:  # the class of a user can raise anything
                raise self._locate(error, point) from error

    def _locate(self, error: Exception, point: Mapping[str, Any]) -> SpecError:
        """Return ``error`` at the setting that it names: in ``settings``, or at a value in ``sweep``."""
        spec_error = locate(error, (), (*self.settings, *self.sweep))
        if isinstance(error, SpecError) or not spec_error.path:
            return spec_error
        name, *rest = str(spec_error.path[0]), *spec_error.path[1:]
        place = ("sweep", name, self.sweep[name].index(point[name])) if name in self.sweep else ("settings", name)
        return SpecError((*place, *rest), spec_error.problem)

    def _check_arguments(self, signature: Signature) -> None:
        """Raise unless the constructor accepts all settings and gets all that it needs."""
        for place in ("settings", "sweep"):
            for name, value in getattr(self, place).items():
                if not signature.accepts(name):
                    allowed = [other for other in signature.names if other not in FILLED_ALWAYS]
                    problem = f"{signature.cls.__name__} has no such setting"
                    raise SpecError((place, name), add_hint(problem, suggest(name, allowed)))
                values: dict[FieldPath, Any] = {(place, name): value}
                if place == "sweep":
                    values = {(place, name, index): swept for index, swept in enumerate(value)}
                for path, entry in values.items():
                    _check_setting(signature, path, entry)
        names = {*self.settings, *self.sweep}
        for name in signature.required:
            is_filled = name == "truth" and getattr(signature.cls, "needs_truth", False)
            if not is_filled and name not in {*names, *FILLED}:
                raise SpecError(("settings", name), f"missing; {signature.cls.__name__} requires it")
        for truth in self.told or ():
            if not signature.accepts(truth) and not (truth == "drift" and signature.accepts("gamma")):
                raise SpecError(("told",), f"{signature.cls.__name__} has no argument {truth!r}")
        if self.told and FORGETTING & names:
            raise SpecError(("told",), f"must be empty, because {min(FORGETTING & names)} already sets the forgetting")


def _check_setting(signature: Signature, path: FieldPath, value: Any) -> None:
    """Refuse a value that the constructor would misread: a flag as a number, or a list as one value per lane."""
    from windvane.policies.base import Policy

    name = str(path[1])
    if value is None and signature.is_text(name):
        raise SpecError.of(path, NONE, f'a text; "{NONE}" stands for None in a spec')
    if isinstance(value, bool) and signature.is_number(name):
        raise SpecError.of(path, value, NOT_A_FLAG)
    if isinstance(value, tuple) and name in LISTABLE and issubclass(signature.cls, Policy):
        hint = f"every run has the same settings; to compare several values, write sweep = {{ {name} = [...] }}"
        raise SpecError.of(path, list(value), "a single number", hint)


def label_variant(policy: str, variant: Mapping[str, Any]) -> str:
    """Return what results call a variant: the name of the policy and the swept values, numbers with 12 digits."""
    return " ".join([policy, *(f"{_SYMBOLS.get(name, name)}={_format(value)}" for name, value in variant.items())])


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value, default=str)
