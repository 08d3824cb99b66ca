"""Requests and answers of the Personalizer API v1.0, translated into those of a stream with declared features.

The features of contexts and actions are free JSON there, and declared fields here. Nested objects become names with
dots, ``{"user": {"plan": "pro"}}`` the field ``user.plan``; entries of an array of numbers are numbered, ``grams.0``.
Fields that are not declared are left out, as are names that begin with an underscore. A declared field that is missing
is the middle of its range (0 without a range) or, if it is a category, the value :data:`OTHER`, which then must be
declared; so is a value that is not declared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from windvane.agent.feature_fields import Field as DeclaredField
from windvane.agent.features import Features
from windvane.errors import ArgumentError, Path
from windvane.records import KEY, to_json
from windvane.service.bodies import one_at_a_time, parse_json
from windvane.service.problems import Problem, invalid
from windvane.service.requests import MAX_ARMS, Text

OTHER = "other"
DEEPEST = 10  # nested objects
_CODES = {400: "BadRequest", 404: "ResourceNotFound"}
_BAD_REQUESTS = (408, 409, 413, 415, 422)  # more precise statuses, which that API does not have


class _Body(BaseModel):
    """A part of a body; fields that it does not have are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


Model = TypeVar("Model", bound=_Body)


class RankableAction(_Body):
    """An action to rank."""

    id: Text
    features: list[dict[str, Any]] | None = None


class RankRequest(_Body):
    """Actions to rank, and the context."""

    actions: Annotated[list[RankableAction], Field(min_length=1, max_length=MAX_ARMS)]
    contextFeatures: list[dict[str, Any]] | None = None  # noqa: N815 - the names of that API
    excludedActions: list[str] | None = None  # noqa: N815
    eventId: Annotated[str, Field(pattern=KEY)] | None = None  # noqa: N815
    deferActivation: bool | None = None  # noqa: N815


class RewardRequest(_Body):
    """The reward of an event."""

    value: float


class RankedAction(BaseModel):
    """An action, and the probability with which it was to be chosen."""

    id: str
    probability: float


class RankResponse(BaseModel):
    """The actions from the most preferred one; excluded ones stay in their places."""

    ranking: list[RankedAction]
    eventId: str  # noqa: N815
    rewardActionId: str  # noqa: N815


def parse_rank(raw: bytes) -> RankRequest:
    """Return the body of a request to rank."""
    request = _parse(RankRequest, raw)
    ids = [action.id for action in request.actions]
    if len(set(ids)) < len(ids):
        raise invalid(ArgumentError("actions", ids, "actions with different ids"))
    if "/" in (request.eventId or ""):  # its reward is sent to a path that has the id
        raise invalid(ArgumentError("eventId", request.eventId, "a text without a slash"))
    if not set(ids) - set(request.excludedActions or ()):
        raise invalid(ArgumentError("excludedActions", request.excludedActions, "some, but not all, of the actions"))
    return request


def parse_reward(raw: bytes) -> float:
    """Return the reward in the body of a request."""
    return _parse(RewardRequest, raw).value


def _parse(model: type[Model], raw: bytes) -> Model:
    with one_at_a_time(raw):
        try:
            return model.model_validate(parse_json(raw))
        except ValueError as error:
            raise invalid(error) from None


def build_decision(request: RankRequest, features: Features | None) -> bytes:
    """Return the body of the same request to a stream with these declared features."""
    if features is None:
        expected = "ranked by a stream with declared features"
        raise invalid(ArgumentError("actions", None, expected, got="a stream whose arms are vectors"))
    try:
        context_fields = {field.name: field for field in (*features.shared, *features.by_arm)}
        document: dict[str, Any] = {}
        if context_fields:
            document["context"] = _fit(context_fields, request.contextFeatures, ("contextFeatures",))
        own = {field.name: field for field in features.per_arm}
        excluded = set(request.excludedActions or ())
        offered = {
            action.id: _fit(own, action.features, ("actions", place, "features"))
            for place, action in enumerate(request.actions)
            if action.id not in excluded
        }
    except ArgumentError as error:
        raise invalid(error) from None
    return to_json({"arms": offered if own else list(offered), **document})


def _fit(
    fields: Mapping[str, DeclaredField], objects: Sequence[Mapping[str, Any]] | None, path: Path
) -> dict[str, Any]:
    """Return a value for each declared field."""
    flat = {name: value for entry in objects or () for name, value in _flatten(entry, "", path)}
    return {name: _fit_value(field, flat.get(name), (*path, name)) for name, field in fields.items()}


def _flatten(values: Mapping[str, Any], prefix: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested objects and arrays, by names with dots."""
    if prefix.count(".") >= DEEPEST:
        raise ArgumentError(path, prefix, f"objects in at most {DEEPEST} levels")
    for key, value in values.items():
        if key.startswith("_") or value is None:
            continue
        if isinstance(value, list):
            value = {str(place): entry for place, entry in enumerate(value)}
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.", path)
        else:
            yield prefix + key, value


def _fit_value(field: DeclaredField, value: Any, path: Path) -> Any:
    if field.values is None:
        if value is None:
            return 0.0 if field.low is None or field.high is None else (field.low + field.high) / 2.0
        if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise ArgumentError(path, value, "a finite number")
        return float(value)
    text = value if isinstance(value, str) else json.dumps(value)
    if value is not None and text in field.values:
        return text
    if OTHER not in field.values:
        hint = f"declare the value {OTHER!r} for what is missing or unknown"
        raise ArgumentError(path, value, f"one of {', '.join(map(repr, field.values))}", hint=hint)
    return OTHER


def describe_ranking(request: RankRequest, event: str, decision: bytes, epsilon: float) -> bytes:
    """Return the answer to a request to rank, for the JSON of a decision. ``epsilon``: that of the stream."""
    decided = from_json(decision)
    chosen, preferred, excluded = decided["arm"], decided["preferred"], set(request.excludedActions or ())
    offered = [action.id for action in request.actions if action.id not in excluded]
    chances = {arm: epsilon / len(offered) + (1.0 - epsilon) * (arm == preferred) for arm in offered}
    order = iter(sorted(offered, key=lambda arm: (arm != chosen, -chances[arm])))
    places = [action.id if action.id in excluded else next(order) for action in request.actions]
    ranking = [RankedAction(id=arm, probability=chances.get(arm, 0.0)) for arm in places]
    return to_json(RankResponse(ranking=ranking, eventId=event, rewardActionId=chosen).model_dump())


def describe_problem(problem: Problem) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of an error, as that API has them."""
    status = 400 if problem.status in _BAD_REQUESTS else problem.status
    code = "InternalServerError" if status >= 500 else _CODES.get(status, str(status))
    error: dict[str, Any] = {"code": code, "message": problem.detail, "innerError": {"code": problem.code}}
    if problem.errors:
        error["target"] = problem.errors[0]["pointer"]
    return status, {"error": error}
