"""The models of request bodies, except those with settings (:mod:`windvane.service.stream_settings`).

They check only sizes and the types that JSON needs. The agent checks the rest, and its errors have JSON Pointers.
"""

from __future__ import annotations

from collections.abc import Sized
from itertools import islice
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from windvane.errors import ArgumentError, Path
from windvane.records import KEY
from windvane.service.bodies import one_at_a_time, parse_json
from windvane.service.problems import MAX_ERRORS, invalid

MAX_ARMS, MAX_ITEMS, MAX_DIM, MAX_HISTORY = 1000, 1000, 500, 20_000
MAX_TEXT = 200  # characters of a name, a key or a title

Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Vector = Annotated[list[float], Field(fail_fast=True, min_length=1, max_length=MAX_DIM)]
Fields = Annotated[dict[Text, float | str], Field(max_length=MAX_DIM)]


def describe(type_: Any, description: str) -> WithJsonSchema:
    """Document a value that the agent checks, because its errors say where; those of a pydantic union would not."""
    return WithJsonSchema({**TypeAdapter(type_).json_schema(), "description": description})


_Size = Field(min_length=1, max_length=MAX_ARMS)
_ArmForms = (
    Annotated[dict[Text, Vector], Field(title="Vectors by name"), _Size]
    | Annotated[list[Vector], Field(title="Vectors, named 0, 1, ..."), _Size]
    | Annotated[list[Text], Field(title="Names of declared arms"), _Size]
    | Annotated[dict[Text, Fields], Field(title="Fields by name"), _Size]
)
Arms = Annotated[Any, describe(_ArmForms | None, "The arms on offer. Omit them if the features declare them.")]
Context = Annotated[Any, describe(Fields | None, "Fields of the context, if features are declared.")]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, max_length=MAX_TEXT)]
PastArm = Annotated[Any, describe(Text | dict[Text, Fields], "The arm that was played.")]


class RequestBody(BaseModel):
    """A body. Lists stop at their first error, so a million errors cost no more than a single one."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _omit_errors(cls, document: Any) -> Any:
        """Omit all unknown fields except the first few, which the answer names."""
        if not isinstance(document, dict) or len(document) <= len(cls.model_fields) + MAX_ERRORS:
            return document
        unknown = islice((name for name in document if name not in cls.model_fields), MAX_ERRORS)
        return {name: document[name] for name in (*cls.model_fields.keys() & document.keys(), *unknown)}


Model = TypeVar("Model", bound=RequestBody)


class DecisionRequest(RequestBody):
    """Arms to choose from, and the context."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7]}}, {"context": {"age": 30}}]}
    )

    arms: Arms = None
    context: Context = None

    @property
    def size(self) -> int:
        """The approximate size of the request as JSON, in bytes."""
        arms = self.arms.values() if isinstance(self.arms, dict) else self.arms if isinstance(self.arms, list) else ()
        return 8 * sum(len(entry) if isinstance(entry, Sized) else 1 for entry in arms)


class DecisionItem(DecisionRequest):
    """One decision of a batch."""

    key: Annotated[str, Field(pattern=KEY)] | None = None


class DecisionBatch(RequestBody):
    """Decisions, made one after the other."""

    decisions: Annotated[list[DecisionItem], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


class Reward(RequestBody):
    """The reward of a decision, or a part of it."""

    value: Annotated[float, Field(examples=[1.0])]


class RewardItem(Reward):
    """One reward of a batch."""

    decision: Text
    size: ClassVar[int] = 0


class RewardBatch(RequestBody):
    """Rewards of several decisions."""

    rewards: Annotated[list[RewardItem], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


class History(RequestBody):
    """Past decisions with their rewards."""

    rewards: Annotated[list[float], Field(fail_fast=True, min_length=1, max_length=MAX_HISTORY)]
    vectors: Annotated[list[Vector], Field(fail_fast=True, max_length=MAX_HISTORY)] | None = None
    contexts: Annotated[list[Context], Field(fail_fast=True, max_length=MAX_HISTORY)] | None = None
    arms: Annotated[list[PastArm], Field(fail_fast=True, max_length=MAX_HISTORY)] | None = None
    times: Annotated[list[Time], Field(fail_fast=True, max_length=MAX_HISTORY)] | None = None
    weights: Annotated[list[float], Field(fail_fast=True, max_length=MAX_HISTORY)] | None = None


def parse_history(raw: bytes) -> dict[str, Any]:
    """Return the arguments of ``AgentCore.learn_history`` in the body of a request."""
    return dict(parse_body(History, raw))


def parse_body(model: type[Model], raw: bytes) -> Model:
    """Return the body of a request as a ``model``."""
    with one_at_a_time(raw):
        try:
            return model.model_validate(parse_json(raw))
        except ValueError as error:
            raise invalid(error) from None


def parse_decision(raw: bytes) -> tuple[Any, Any]:
    """Return the arms and the context in a request to decide, whose sizes are within the limits.

    A pydantic model would repeat checks of the agent and could not locate an error within a union. It takes as long for
    three arms, and twice as long for a hundred.
    """
    document = parse_json(raw)
    try:
        if not isinstance(document, dict) or not document.keys() <= DecisionRequest.model_fields.keys():
            DecisionRequest.model_validate(document)  # says what is wrong
        arms, context = document.get("arms"), document.get("context")
        if isinstance(arms, dict | list):
            _check_size(("arms",), arms, MAX_ARMS)
            if not _are_short_vectors(arms):
                for name, entry in arms.items() if isinstance(arms, dict) else enumerate(arms):
                    _check_size(("arms", name), str(name), MAX_TEXT)
                    _check_entry(("arms", name), entry)
        _check_entry(("context",), context)
    except ValueError as error:
        raise invalid(error) from None
    return arms, context


def _are_short_vectors(arms: dict[str, Any] | list[Any]) -> bool:
    """Return whether all arms are vectors, and these and their names are short: the usual case, without a loop."""
    entries, names = (list(arms.values()), arms) if isinstance(arms, dict) else (arms, ())
    return (
        {list}.issuperset(map(type, entries))
        and max(map(len, entries), default=0) <= MAX_DIM
        and max(map(len, names), default=0) <= MAX_TEXT
    )


def _check_entry(path: Path, entry: Any) -> None:
    """Check the sizes of an arm or a context."""
    if isinstance(entry, str | list | dict):
        _check_size(path, entry, MAX_TEXT if isinstance(entry, str) else MAX_DIM)
    if isinstance(entry, dict):
        for name, value in entry.items():
            _check_size((*path, name), name, MAX_TEXT)
            _check_entry((*path, name), value)


def _check_size(path: Path, value: Sized, most: int) -> None:
    if len(value) > most:
        raise ArgumentError(path, value, f"of a size up to {most:,}", got=f"{len(value):,}")
