"""The models of request bodies.

They check only sizes and the types that JSON needs. The agent checks the rest, and its errors have JSON Pointers.
"""

from __future__ import annotations

import inspect
from collections.abc import Sized
from itertools import islice
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from windvane import Agent, agent
from windvane.errors import ArgumentError, Path
from windvane.records import KEY, STREAM_NAME
from windvane.service.bodies import one_at_a_time, parse_json
from windvane.service.problems import MAX_ERRORS, invalid

MAX_ARMS, MAX_ITEMS, MAX_DIM, MAX_HISTORY = 1000, 1000, 500, 20_000
MAX_TEXT = 200  # characters of a name, a key or a title
MAX_SETTINGS = 20
MAX_PENDING = 1_000_000
MAX_SEED = 2**63 - 1  # SQLite and NumPy integers have 64 bits

_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Agent).parameters.items()}

Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Vector = Annotated[list[float], Field(fail_fast=True, min_length=1, max_length=MAX_DIM)]
Fields = Annotated[dict[Text, float | str], Field(max_length=MAX_DIM)]


def _describe(type_: Any, description: str) -> WithJsonSchema:
    """Document a value that the agent checks, because its errors say where; those of a pydantic union would not."""
    return WithJsonSchema({**TypeAdapter(type_).json_schema(), "description": description})


_Size = Field(min_length=1, max_length=MAX_ARMS)
_ArmForms = (
    Annotated[dict[Text, Vector], Field(title="Vectors by name"), _Size]
    | Annotated[list[Vector], Field(title="Vectors, named 0, 1, ..."), _Size]
    | Annotated[list[Text], Field(title="Names of declared arms"), _Size]
    | Annotated[dict[Text, Fields], Field(title="Fields by name"), _Size]
)
Arms = Annotated[Any, _describe(_ArmForms | None, "The arms on offer. Omit them if the features declare them.")]
Context = Annotated[Any, _describe(Fields | None, "Fields of the context, if features are declared.")]
Duration = Annotated[Any, _describe(str | float | None, 'A number of decisions, or a time such as "2d".')]
Retention = Annotated[Any, _describe(str | None, 'How long events are kept, a time such as "90d". Default: forever.')]
Features = Annotated[Any, _describe(dict[str, Any] | None, "Fields of contexts and arms: see windvane.Features.")]
Scaling = Annotated[Any, _describe(str | dict[str, Vector] | None, '"fit", or {"center": [...], "spread": [...]}.')]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, max_length=MAX_TEXT)]
PastArm = Annotated[Any, _describe(Text | dict[Text, Fields], "The arm that was played.")]


class _Body(BaseModel):
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


Model = TypeVar("Model", bound=_Body)


class AgentChanges(_Body):
    """Arguments of an agent that can be changed while it runs."""

    features: Features = _DEFAULTS["features"]
    reward_timeout: Duration = _DEFAULTS["reward_timeout"]
    default_reward: float | None = _DEFAULTS["default_reward"]
    learn: str | None = _DEFAULTS["learn"]
    max_pending: Annotated[int, Field(le=MAX_PENDING)] = _DEFAULTS["max_pending"]
    epsilon: float = _DEFAULTS["epsilon"]

    @field_validator("features")
    @classmethod
    def _check_features(cls, features: Any) -> Any:
        """Reject too long vectors before the agent names every coordinate: there are fields times arms of them."""
        if isinstance(features, dict):
            arms, *kinds = (features.get(name) for name in ("arms", "shared", "per_arm", "by_arm"))
            shared, per_arm, by_arm = map(_count_numbers, kinds)
            least = shared + per_arm + (len(arms) if isinstance(arms, list) else 0) * (1 + by_arm)
            if least > MAX_DIM:
                raise _too_long(features, f"{least:,} or more")
        return features


def _count_numbers(fields: Any) -> int:
    """Return how many numbers of a vector declared fields take: one each, or as many as a category has values."""
    entries = list(fields.values()) if isinstance(fields, dict) else fields if isinstance(fields, list) else []
    count = 0
    for entry in entries:
        values = entry.get("values") if isinstance(entry, dict) else entry
        count += len(values) if isinstance(values, list) and values and isinstance(values[0], str) else 1
    return count


def _too_long(features: Any, got: str) -> ArgumentError:
    return ArgumentError("features", features, f"fields with vectors of at most {MAX_DIM} numbers", got=got)


def check_features(declaration: Any) -> None:
    """Raise if declared features are invalid, or their vectors are too long."""
    features = agent.Features.parse(declaration)
    if features is not None and features.dim > MAX_DIM:
        raise _too_long(declaration, str(features.dim))


Title = Annotated[str, Field(max_length=MAX_TEXT)] | None


class StreamChanges(AgentChanges):
    """Settings of a running stream to change. Omitted settings keep their values."""

    title: Title = None
    retention: Retention = None


def _limit_settings(settings: Any) -> Any:
    """Reject too many settings before each of them is checked."""
    if isinstance(settings, dict) and len(settings) > MAX_SETTINGS:
        raise ArgumentError("settings", settings, f"at most {MAX_SETTINGS} settings", got=f"{len(settings):,}")
    return settings


class AgentArguments(AgentChanges):
    """The arguments of :class:`windvane.Agent`."""

    dim: Annotated[int, Field(le=MAX_DIM)] | None = _DEFAULTS["dim"]
    link: str = _DEFAULTS["link"]
    policy: Text = _DEFAULTS["policy"]
    half_life: Duration = _DEFAULTS["half_life"]
    gamma: float | None = _DEFAULTS["gamma"]
    horizon: Annotated[int, Field(le=10**9)] | None = _DEFAULTS["horizon"]
    drift: float | None = _DEFAULTS["drift"]
    S: float | None = _DEFAULTS["S"]
    L: float = _DEFAULTS["L"]
    reward_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = _DEFAULTS["reward_range"]
    prior: Vector | None = _DEFAULTS["prior"]
    prior_weight: float = _DEFAULTS["prior_weight"]
    scaling: Scaling = _DEFAULTS["scaling"]
    intercept: bool = _DEFAULTS["intercept"]
    clip: bool = _DEFAULTS["clip"]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED, description="Default: a random one.")] | None = None
    settings: Annotated[
        dict[Text, Any],
        BeforeValidator(_limit_settings),
        Field(max_length=MAX_SETTINGS, description="The policy's own settings."),
    ] = {}

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in settings:
            if name in {"name", "title", "retention", "self", *_DEFAULTS, *cls.model_fields}:
                hint = "give it beside `settings`"
                raise ArgumentError(("settings", name), name, "a setting of the policy", hint=hint)
            if isinstance(settings[name], list) and len(settings[name]) > MAX_SETTINGS:
                raise ArgumentError(("settings", name), settings[name], f"a list of at most {MAX_SETTINGS} numbers")
        return settings

    def agent_arguments(self) -> dict[str, Any]:
        """Return the agent's arguments in the request."""
        given = self.model_dump(exclude={"name", "title", "retention", "settings"}, exclude_unset=True)
        return {name: value for name, value in given.items() if (name, value) != ("seed", None)} | self.settings


class StreamSettings(AgentArguments):
    """A stream whose name is in the path: the arguments of :class:`windvane.Agent`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dim": 2, "reward_timeout": "2d"}]})

    title: Title = None
    retention: Retention = None


class NewStream(StreamSettings):
    """A stream to create: its name, and the arguments of :class:`windvane.Agent`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "homepage", "dim": 2, "reward_timeout": "2d"}]})

    name: Annotated[str, Field(pattern=STREAM_NAME)]


class RefitRequest(AgentArguments):
    """Settings with which a stream learns its log again. Omitted settings keep their values."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"S": 4.0}, {"half_life": "14d"}]})


class DecisionRequest(_Body):
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


class DecisionBatch(_Body):
    """Decisions, made one after the other."""

    decisions: Annotated[list[DecisionItem], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


class Reward(_Body):
    """The reward of a decision, or a part of it."""

    value: Annotated[float, Field(examples=[1.0])]


class RewardItem(Reward):
    """One reward of a batch."""

    decision: Text
    size: ClassVar[int] = 0


class RewardBatch(_Body):
    """Rewards of several decisions."""

    rewards: Annotated[list[RewardItem], Field(fail_fast=True, min_length=1, max_length=MAX_ITEMS)]


class History(_Body):
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


def name_stream(name: str, settings: StreamSettings) -> NewStream:
    """Return the stream with these settings."""
    try:
        return NewStream.model_validate({**settings.model_dump(exclude_unset=True), "name": name})
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
