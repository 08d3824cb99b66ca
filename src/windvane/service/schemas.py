"""What requests may hold. Everything is checked here before a stream sees it; errors name the field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator
from pydantic_core import from_json

from windvane.errors import ArgumentError
from windvane.policies.registry import POLICIES
from windvane.service.errors import invalid

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
MOST_ARMS, MOST_ITEMS, MOST_DIM, MOST_HISTORY = 1000, 1000, 500, 20_000
MOST_VALUE = 1e12

Number = Annotated[float, Field(strict=True, ge=-MOST_VALUE, le=MOST_VALUE)]
Text = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Value = Number | Annotated[StrictStr, Field(max_length=200)]
Vector = Annotated[list[Number], Field(min_length=1, max_length=MOST_DIM)]
Fields = Annotated[dict[Text, Value], Field(max_length=MOST_DIM)]
Span = Annotated[StrictStr, Field(min_length=2, max_length=30, examples=["2d"])] | Annotated[Number, Field(gt=0)]
Key = Annotated[StrictStr, Field(min_length=1, max_length=200, description="the same key again repeats the answer")]
Decision = Annotated[StrictStr, Field(min_length=1, max_length=64)]


Request = TypeVar("Request", bound=BaseModel)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Range(_Model):
    low: Number
    high: Number


class Category(_Model):
    values: Annotated[list[Text], Field(min_length=1, max_length=MOST_DIM)]


class AnyNumber(_Model):
    """A number without a range."""


Declared = Annotated[dict[Text, Range | Category | AnyNumber], Field(max_length=MOST_DIM)]


class Features(_Model):
    """Fields of contexts and arms; see the documentation of the library."""

    shared: Declared = {}
    per_arm: Declared = {}
    by_arm: Declared = {}
    arms: Annotated[list[Text], Field(max_length=MOST_ARMS)] = []
    intercept: StrictBool = True
    clip: StrictBool = False


class Scaling(_Model):
    center: Vector
    spread: Vector


class Configuration(_Model):
    """What can be changed while a stream runs."""

    title: Annotated[StrictStr, Field(max_length=200)] | None = None
    wait: Span | None = None
    missing: Number | None = None
    learn: Literal["at_timeout", "on_arrival", "early"] | None = Field(
        None, description="when outcomes are learned; default: at_timeout if missing is set, else on_arrival"
    )
    max_pending: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 100_000
    randomize: Annotated[Number, Field(ge=0, le=1)] = 0.0


class NewStream(Configuration):
    """A stream: the arguments of the library's Agent."""

    name: Annotated[StrictStr, Field(pattern=NAME, examples=["homepage"])]
    dim: Annotated[StrictInt, Field(ge=1, le=MOST_DIM)] | None = None
    features: Features | None = None
    link: Literal["logistic", "poisson", "probit", "identity"] = "logistic"
    policy: StrictStr = Field("adaptive", examples=["adaptive", *list(POLICIES)[:4]])
    half_life: Span | None = None
    gamma: Annotated[Number, Field(gt=0, le=1)] | None = None
    horizon: Annotated[StrictInt, Field(ge=1, le=10**9)] | None = None
    drift: Annotated[Number, Field(ge=0)] | None = None
    S: Annotated[Number, Field(gt=0, le=50)] | None = None
    L: Annotated[Number, Field(gt=0, le=1e6)] = 1.0
    sigma: Annotated[Number, Field(gt=0, le=1e6)] = 0.5
    prior: Vector | None = None
    prior_weight: Annotated[Number, Field(gt=0, le=1e6)] = 10.0
    scaling: Scaling | Literal["fit"] | None = None
    intercept: StrictBool = False
    clip: StrictBool = False
    seed: Annotated[StrictInt, Field(ge=0, lt=2**63, description="left out: a random one")] | None = None
    settings: Annotated[dict[Text, StrictInt | Number | StrictStr], Field(max_length=20)] = {}

    @model_validator(mode="after")
    def _one_way_to_say_features(self) -> NewStream:
        if (self.dim is None) == (self.features is None):
            expected = "given unless `features` is" if self.dim is None else "omitted when `features` is given"
            raise ArgumentError("dim", self.dim, expected)
        return self

    @model_validator(mode="after")
    def _settings_are_the_policys_own(self) -> NewStream:
        for name in self.settings:
            if name in type(self).model_fields:
                hint = "give it beside `settings`"
                raise ArgumentError("settings", name, "settings of the policy, not of the stream", hint=hint)
        return self

    def agent(self) -> dict[str, Any]:
        """Arguments of the Agent."""
        given = self.model_dump(exclude={"name", "title", "settings", "scaling"})
        scaling = (self.scaling.center, self.scaling.spread) if isinstance(self.scaling, Scaling) else self.scaling
        return {**given, "scaling": scaling, **self.settings}


class Changes(Configuration):
    """Settings of a running stream to change; what is left out stays."""


Arms = (
    Annotated[dict[Text, Vector], Field(min_length=1, max_length=MOST_ARMS, title="vectors by name")]
    | Annotated[list[Vector], Field(min_length=1, max_length=MOST_ARMS, title="vectors, named 0, 1, ...")]
    | Annotated[list[Text], Field(min_length=1, max_length=MOST_ARMS, title="names")]
    | Annotated[dict[Text, Fields], Field(min_length=1, max_length=MOST_ARMS, title="fields by name")]
)


class Decide(_Model):
    """Arms to choose from; with declared features, names or fields, and the context."""

    arms: Arms | None = Field(None, description="may be left out where the features declare the arms")
    context: Fields | None = None


class DecideItem(Decide):
    key: Key | None = None


class DecideBatch(_Model):
    """Each item is one round, in order."""

    items: Annotated[list[DecideItem], Field(min_length=1, max_length=MOST_ITEMS)]


class Reward(_Model):
    decision: Decision
    value: Number


class RewardItem(Reward):
    key: Key | None = None


class RewardBatch(_Model):
    items: Annotated[list[RewardItem], Field(min_length=1, max_length=MOST_ITEMS)]


class History(_Model):
    """Decisions of the past with their rewards, learnt in bulk before live ones."""

    rewards: Annotated[list[Number], Field(min_length=1, max_length=MOST_HISTORY)]
    vectors: Annotated[list[Vector], Field(max_length=MOST_HISTORY)] | None = None
    contexts: Annotated[list[Fields], Field(max_length=MOST_HISTORY)] | None = None
    arms: Annotated[list[Text | dict[Text, Fields]], Field(max_length=MOST_HISTORY)] | None = None
    times: Annotated[list[Number], Field(max_length=MOST_HISTORY)] | None = None
    weights: Annotated[list[Number], Field(max_length=MOST_HISTORY)] | None = None


def parsed(model: type[Request], raw: bytes) -> Request:
    """A request's body as ``model`` wants it; what is wrong is told to the client."""
    try:
        return model.model_validate_json(raw)
    except ValueError as error:
        raise invalid(error) from None


def decide_request(raw: bytes) -> tuple[Any, Any]:
    """Arms and context of a request to decide, as :class:`Decide` wants them.

    Vectors by name, by far the most common form, are read without the schema: the same, in a quarter of the time.
    """
    document = from_json(raw, allow_inf_nan=False)
    if isinstance(document, dict) and document.keys() == {"arms"} and not (b"true" in raw or b"false" in raw):
        arms = document["arms"]
        if isinstance(arms, dict) and 0 < len(arms) <= MOST_ARMS and "" not in arms and max(map(len, arms)) <= 200:
            try:
                rows = np.array(list(arms.values()))
            except ValueError:  # of different lengths
                rows = np.empty(0)
            fits = rows.ndim == 2 and rows.dtype.kind in "fi" and 0 < rows.shape[1] <= MOST_DIM
            if fits and rows.min() >= -MOST_VALUE and rows.max() <= MOST_VALUE:  # |-2**63| does not fit an int64
                return dict(zip(arms, rows, strict=True)), None
    request = Decide.model_validate_json(raw)
    if isinstance(request.arms, list) and isinstance(request.arms[0], list):
        if len({len(vector) for vector in request.arms}) > 1:
            raise ArgumentError("arms", request.arms, "vectors of the same length", got="different lengths")
        return np.array(request.arms, dtype=float), request.context
    return request.arms, request.context
