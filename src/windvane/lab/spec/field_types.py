"""Types of the fields of specs: how pydantic checks them, and how the JSON schema describes them.

Values are checked by :mod:`windvane.arguments` and by the classes they build, so that a spec and a call in Python
refuse the same values in the same words.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform

import pydantic
from pydantic import ConfigDict, Discriminator, Field, GetPydanticSchema, PlainValidator, SkipValidation, WrapValidator

from windvane.arguments import check_not_negative, check_number, check_positive, check_whole
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS, ArmLaw, DelayLaw, Drift, RewardLaw
from windvane.environments.fields import Record
from windvane.errors import ArgumentError
from windvane.lab.spec.python_objects import name_drift, name_link
from windvane.lab.spec.spec_errors import FieldPath, Place, SpecError, choose_error, located, translate
from windvane.links import Link

Model = TypeVar("Model")
PARTS: dict[str, Mapping[str, type]] = {"drift": DRIFTS, "arms": ARM_LAWS, "rewards": REWARD_LAWS, "delay": DELAYS}
ENVIRONMENT_KINDS = ("simulated", "labelled-stream", "gymnasium")
NOT_A_FLAG = "a number, not true or false"


# --- checked values ---------------------------------------------------------------------------------------------------


class Checked:
    """The annotation of a field whose value ``check(name, value, *limits)`` returns in its canonical form."""

    def __init__(self, schema: dict[str, Any], check: Callable[..., Any], *limits: Any) -> None:
        self._schema, self._check, self._limits = schema, check, limits

    def _validate(self, value: Any, info: pydantic.ValidationInfo) -> Any:
        return self._check(str(info.field_name), value, *self._limits)

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> Any:
        return PlainValidator(self._validate).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return self._schema


def check_text(name: str, value: Any, least: int = 1, most: int = 200) -> str:
    """Return ``value`` if it is a text of one line that can be stored and shown."""
    if not (isinstance(value, str) and least <= len(value) <= most and value.isprintable()):
        raise ArgumentError(name, value, f"a text of {least} to {most} printable characters")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise ArgumentError(name, value, "true or false")
    return value


def optional(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return a check that accepts None too."""
    return lambda name, value, *limits: None if value is None else check(name, value, *limits)


def check_intercept(name: str, value: Any) -> float:
    """Return ``value`` as a number of reasonable size."""
    return check_number(name, value, "within [-1e100, 1e100]", lambda b: abs(b) <= 1e100, booleans=False)


def whole(least: int, most: int) -> Checked:
    """Return the annotation of a whole number in [least, most]."""
    return Checked({"type": "integer", "minimum": least, "maximum": most}, check_whole, least, most)


# --- parts of environments --------------------------------------------------------------------------------------------


def table_model(cls: type[Record]) -> type[pydantic.BaseModel]:
    """Return the model of the table that describes a drift or law: its kind and its fields, not yet checked."""
    hints = typing.get_type_hints(cls)
    fields: dict[str, Any] = {"kind": (Literal[cls.kind], ...)}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint = str if "Callable" in str(hints[field.name]) else hints[field.name]  # a function is given by its name
        required = field.default is dataclasses.MISSING
        meaning = field.metadata.get("meaning")
        default = Field(description=meaning) if required else Field(field.default, description=meaning)
        fields[field.name] = (Annotated[hint, SkipValidation], default)
    summary = (cls.__doc__ or "").strip().partition("\n")[0]
    return pydantic.create_model(cls.__name__, __config__=ConfigDict(extra="forbid"), __doc__=summary, **fields)


def build_part(value: Any, handler: Any, *, kinds: Mapping[str, type], base: type) -> Any:
    """Return a drift or law from its table, or as it is."""
    if isinstance(value, base):
        return name_drift(value) if isinstance(value, Drift) else value
    if not isinstance(value, dict):
        raise SpecError.of((), value, "a table, or an instance of " + base.__name__)
    table = handler(value)
    cls: Any = kinds[table.kind]
    fields = {name: item for name, item in value.items() if name != "kind"}
    hints = typing.get_type_hints(cls)
    for name, item in fields.items():
        if hints[name] is not bool:
            with located(name):
                _refuse_flags(item)
    with located(known=tuple(fields)):
        return cls(**fields)


def _refuse_flags(value: Any) -> None:
    """Raise if ``value`` is true or false, or a list that holds one: Python would take them for numbers."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            with located(index):
                _refuse_flags(item)
    elif isinstance(value, bool):
        raise SpecError.of((), value, NOT_A_FLAG)


def part(kinds: Mapping[str, type], base: type) -> GetPydanticSchema:
    """Return the annotation of a drift or law: an object, or a table whose ``kind`` says which."""
    tables: Any = Union[tuple(table_model(cls) for cls in kinds.values())]  # noqa: UP007
    build = WrapValidator(functools.partial(build_part, kinds=kinds, base=base))
    return GetPydanticSchema(lambda _, handler: handler(Annotated[Annotated[tables, Discriminator("kind")], build]))


Text = Annotated[str, Checked({"type": "string", "minLength": 1, "maxLength": 200}, check_text)]
OptionalText = Annotated[str | None, Checked({"type": "string", "maxLength": 200}, optional(check_text))]
Title = Annotated[str, Checked({"type": "string", "maxLength": 200}, check_text, 0)]
Flag = Annotated[bool, Checked({"type": "boolean"}, check_flag)]
Dim = Annotated[int, Checked({"type": "integer", "minimum": 1}, check_whole, 1)]
Positive = Annotated[float, Checked({"type": "number", "exclusiveMinimum": 0}, check_positive)]
NotNegative = Annotated[float | None, Checked({"type": "number", "minimum": 0}, optional(check_not_negative))]
Intercept = Annotated[float | None, Checked({"type": "number"}, optional(check_intercept))]
LinkName = Annotated[str | Link, Checked({"type": "string"}, name_link)]
DriftPart = Annotated[Drift, part(DRIFTS, Drift)]
ArmsPart = Annotated[ArmLaw, part(ARM_LAWS, ArmLaw)]
RewardsPart = Annotated[RewardLaw, part(REWARD_LAWS, RewardLaw)] | None
DelayPart = Annotated[DelayLaw, part(DELAYS, DelayLaw)] | None


# --- models -----------------------------------------------------------------------------------------------------------

MODELS: dict[str, list[str]] = {}  # the fields of the models that a list holds, by the tag of the model


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def spec_model(tag: str) -> Callable[[type[Model]], type[Model]]:
    """Return the decorator of a frozen pydantic dataclass whose constructor raises :class:`SpecError`.

    ``tag`` is the kind of an environment, or the name of the list that holds the model.
    """

    def decorate(cls: type[Model]) -> type[Model]:
        model: Any = pydantic.dataclasses.dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
        names = MODELS[tag] = [field.name for field in dataclasses.fields(model)]
        validate = model.__init__

        @functools.wraps(validate)
        def construct(self: Any, *arguments: Any, **fields: Any) -> None:
            named = dict(zip(names, arguments, strict=False))
            wrong = [*arguments[len(names) :], *(fields.keys() - set(names)), *(fields.keys() & named.keys())]
            if wrong:
                raise TypeError(f"{cls.__name__}: unexpected or repeated argument {wrong[0]!r}")
            with translated(names):
                validate(self, **named, **fields)

        model.__init__ = construct
        return model  # type: ignore[no-any-return]

    return decorate


@contextmanager
def translated(names: Collection[str]) -> Iterator[None]:
    """Turn an error of pydantic about a model with the fields ``names`` into a :class:`SpecError`."""
    try:
        yield
    except pydantic.ValidationError as error:
        cause = choose_error(error).get("ctx", {}).get("error")
        raise translate(error, functools.partial(find_place, names)) from getattr(cause, "__cause__", None) or cause


def find_place(names: Collection[str], location: FieldPath) -> Place:
    """Return the place that pydantic means in a model with the fields ``names``.

    Pydantic names the kind of an environment, a drift or a law after it in a location, which is no field.
    """
    path: FieldPath = ()
    keys: Collection[str] = names
    previous: str | int = ""
    for item in location:
        if previous in PARTS and item in PARTS[str(previous)]:
            cls: Any = PARTS[str(previous)][str(item)]
            keys, previous = ["kind", *(field.name for field in dataclasses.fields(cls))], ""
        elif isinstance(previous, int) and path[0] == "environments" and item in ENVIRONMENT_KINDS:
            keys, previous = MODELS[str(item)], ""
        else:
            path, previous = (*path, item), item
            if isinstance(item, int):
                keys = MODELS.get(str(path[-2]), keys)
    return Place(path, keys, PARTS.get(str(path[-1]), ENVIRONMENT_KINDS) if path else ())
