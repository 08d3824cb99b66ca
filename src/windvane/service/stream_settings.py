"""The bodies of requests with settings of a stream, which are arguments of its agent.

Like the other models of :mod:`windvane.service.requests`, they check only sizes and types.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from windvane import Agent, agent
from windvane.errors import ArgumentError
from windvane.records import STREAM_NAME
from windvane.service.problems import invalid
from windvane.service.requests import MAX_DIM, MAX_TEXT, RequestBody, Text, Vector, describe

MAX_SETTINGS = 20
MAX_PENDING = 1_000_000
MAX_SEED = 2**63 - 1  # SQLite and NumPy integers have 64 bits

_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Agent).parameters.items()}

Duration = Annotated[Any, describe(str | float | None, 'A number of decisions, or a time such as "2d".')]
Retention = Annotated[Any, describe(str | None, 'How long events are kept, a time such as "90d". Default: forever.')]
Features = Annotated[Any, describe(dict[str, Any] | None, "Fields of contexts and arms: see windvane.Features.")]
Scaling = Annotated[Any, describe(str | dict[str, Vector] | None, '"fit", or {"center": [...], "spread": [...]}.')]


class AgentChanges(RequestBody):
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
    ] = {}  # noqa: RUF012  (pydantic copies it)

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


def name_stream(name: str, settings: StreamSettings) -> NewStream:
    """Return the stream with these settings."""
    try:
        return NewStream.model_validate({**settings.model_dump(exclude_unset=True), "name": name})
    except ValueError as error:
        raise invalid(error) from None
