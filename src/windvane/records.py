"""The return types of the agent, the service and the client, each declared once.

Over HTTP, in the log and in exports, a record is a JSON object with the names of its fields. Times are datetimes in
UTC; in JSON they are RFC 3339 strings with microseconds. JSON has no infinity: a memory of all data so far is
``math.inf`` in Python and null in JSON (:data:`Memory`); any other number that is infinite or unknown is None.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

Name = str | int
"""The name of an arm."""

STREAM_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
STREAM_NAME_IN_WORDS = "1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit"

KEY = r"^[!-~]([ -~]{0,198}[!-~])?$"
"""An idempotency key: printable ASCII, without a space at either end, which HTTP would remove."""
KEY_IN_WORDS = "1 to 200 printable ASCII characters without a space at either end"

TIE = 1e-11
"""Scores this close, relative to the larger of 1 and the score, are a tie. Policies draw among scores within 1e-12; a
record has the sum of a prediction and a bonus instead, which differs by rounding."""

RewardStatus = Literal["recorded", "unchanged", "expired"]
"""The status of a reward: it is new; it was recorded before; it arrived after the timeout and is not learned."""

DecisionStatus = Literal["pending", "rewarded", "expired", "dropped"]


class _NullIsInfinity:
    """Lets pydantic read null as infinity."""

    def __get_pydantic_core_schema__(self, source: Any, build: Any) -> Any:
        from pydantic_core import core_schema

        def read(value: float | None) -> float:
            return math.inf if value is None else value

        return core_schema.no_info_after_validator_function(read, core_schema.nullable_schema(build(source)))


Memory = Annotated[float, _NullIsInfinity()]
"""How many decisions or seconds back the past counts. ``math.inf``: all data so far; in JSON that is null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The choice of an arm.

    Attributes
    ----------
    id : str
        Identifies the decision when its reward is sent.
    arm, index
        The arm that is played, by name and by its index among the arms on offer.
    time : datetime
        When it was decided.
    propensity : float or None
        The probability with which this arm was played, given the policy's data and draws. None without ``epsilon``:
        every other arm had probability 0, and a log of such decisions cannot be evaluated off-policy.
    explored : bool
        Whether the arm was drawn at random, with probability ``epsilon``.
    prediction, bonus : float
        The predicted mean reward of the arm, and what optimism adds to it.
    preferred, rival, rival_score
        The arm that the policy preferred, the best of the arms that were not played, and its score.
    projected : bool or None
        Whether the estimate was outside the ball of radius S. None for policies without such a ball.
    """

    id: str
    arm: Name
    index: int
    time: datetime
    propensity: float | None
    explored: bool
    prediction: float
    bonus: float
    preferred: Name
    rival: Name | None
    rival_score: float | None
    projected: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an arm was played: the numbers behind a decision, and a sentence."""

    arm: Name
    preferred: Name
    explored: bool
    prediction: float
    bonus: float
    score: float
    rival: Name | None
    rival_score: float | None
    projected: bool | None
    text: str

    @classmethod
    def of(cls, decision: Decision) -> Explanation:
        """Explain ``decision``."""
        d, score = decision, decision.prediction + decision.bonus
        if d.explored:
            text = f"{d.arm!r} was played at random; the policy preferred {d.preferred!r}"
        else:
            parts = f"predicted {d.prediction:.4g}, bonus {d.bonus:.4g} for uncertainty"
            text = f"{d.arm!r} scored {score:.4g}: {parts}"
            if d.rival_score is not None:
                is_tie = d.arm == d.preferred and abs(score - d.rival_score) <= TIE * max(1.0, abs(score))
                text += (
                    f"; tied with {d.rival!r}, drawn at random" if is_tie
                    else f"; next was {d.rival!r} with {d.rival_score:.4g}"
                )  # fmt: skip
        if d.projected:
            text += "; the estimate was outside the ball of radius S"
        shared = {f.name: getattr(d, f.name) for f in fields(cls) if f.name not in ("score", "text")}
        return cls(**shared, score=score, text=text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A policy's view of an arm: the predicted mean reward, the bonus for uncertainty, and their sum.

    The ``bonus`` of a policy that draws at random is the effect of its draw. UniformRandom does not predict: all three
    are 0.
    """

    arm: Name
    prediction: float
    bonus: float
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions for arms, in the order of the request or from the most to the least preferred."""

    arms: list[Prediction]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers of decisions, rewards and rows of history of an agent.

    ``rewards`` arrived in time. ``pending`` decisions have no reward yet; ``held`` ones have theirs, which is learned
    at the timeout. ``settled``: the outcome is final and was learned. ``expired``: the timeout passed without a reward,
    and ``defaulted`` of these counted as ``default_reward``. ``dropped``: not learned, because ``max_pending``
    pushed them out, or because their context was erased or removed while they were open.
    """

    decisions: int
    rewards: int
    pending: int
    held: int
    settled: int
    expired: int
    defaulted: int
    dropped: int
    history_rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """The drift estimated from the rewards; see :class:`windvane.policies.adaptive_glm_ucb.DriftEstimate`.

    ``memory``, ``memory_low`` and ``memory_high`` are ``math.inf`` where all data so far predict best.
    """

    verdict: str
    evidence: float | None
    memory: Memory
    memory_low: Memory
    memory_high: Memory
    scale: float | None
    rate: float | None
    rate_low: float | None
    rate_high: float | None
    variation: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfLife:
    """The information half-life, after which half of a reward's information is lost; see :mod:`windvane.agent.memory`.

    ``decisions`` and ``seconds`` are converted by the rate of past decisions. They are None while it is unknown, or if
    nothing is forgotten. ``text`` is for people: "2.3 days". It is about the latest rewards, while the verdict of
    :class:`Drift` is about all of them.
    """

    decisions: float | None
    seconds: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationMeans:
    """The mean prediction and the mean reward of ``settled`` decisions; None if there are none.

    ``z`` is mean reward minus mean prediction in standard errors: about standard normal if predictions are right.
    """

    settled: int
    mean_prediction: float | None
    mean_reward: float | None
    standard_error: float | None
    z: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCalibration(CalibrationMeans):
    """The same for the decisions for one arm."""

    arm: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether predictions are right on average; see :mod:`windvane.agent.calibration`.

    Attributes
    ----------
    overall, recent : CalibrationMeans
        Of all settled decisions, and of the last 1000 to 1099 of them.
    by_arm : list of ArmCalibration
        Of the 100 most recently settled arms, over all time, the arm with the most settled decisions first.
    others : CalibrationMeans
        Of the arms that are not in the list.
    is_off : bool
        Whether recent predictions are off by more than noise explains: the alert ``miscalibrated``.
    """

    overall: CalibrationMeans
    recent: CalibrationMeans
    by_arm: list[ArmCalibration]
    others: CalibrationMeans
    is_off: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A condition under which an agent learns little or predicts badly: a code, and a message with the remedy."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInfo:
    """An agent: its counts, its estimate, how far back it looks, how well it predicts, and its settings.

    Attributes
    ----------
    theta : dict
        The estimated parameter by the name of the feature.
    S : float or None
        The norm bound, given or learned. None for a policy without one.
    projected_share, recent_projected_share : float
        Of all and of the last 200 decisions: how many had an estimate outside the ball of radius S.
    memory, memory_unit
        How far back the past counts, in decisions or in seconds. ``math.inf``: all of it.
    half_life : HalfLife
        The information half-life.
    decisions_per_second : float or None
        Over the last 1000 decisions. None while it is unknown.
    calibration : Calibration
        The mean prediction against the mean reward.
    settings : dict
        The arguments of :class:`windvane.Agent`, including later changes.
    """

    policy: str
    link: str
    dim: int
    learn: str
    counts: Counts
    mean_reward: float | None
    theta: dict[str, float]
    S: float | None
    projected_share: float
    recent_projected_share: float
    memory: Memory
    memory_unit: Literal["decisions", "seconds"]
    half_life: HalfLife
    decisions_per_second: float | None
    drift: Drift | None
    calibration: Calibration
    alerts: list[Alert]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEvents:
    """The oldest events of a log, which were removed: the number of the last, and the times of the first and the last.

    What was learned from them stays.
    """

    number: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo(AgentInfo):
    """A stream of the service: its agent, and the number of the last event of its log.

    ``events``: that number, which counts removed events. ``retention``: how long events are kept, such as "90d"; None:
    forever. ``removed``: the events that were removed.
    """

    name: str
    title: str | None
    created: datetime
    archived: datetime | None
    events: int
    retention: str | None = None
    removed: RemovedEvents | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A stream in a list of streams."""

    name: str
    title: str | None
    created: datetime
    archived: datetime | None
    events: int
    retention: str | None = None
    removed: RemovedEvents | None = None
    policy: str
    counts: Counts
    mean_reward: float | None
    alerts: list[Alert]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardReceipt:
    """The answer to a reward. ``value``: the reward or, if it arrives in parts, their sum so far."""

    decision: str
    status: RewardStatus
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision with its status. ``reward`` counts as its outcome; ``late_reward`` arrived after the timeout."""

    decision: Decision
    status: DecisionStatus
    reward: float | None
    late_reward: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionErrors:
    """How well outcomes were predicted, each before it was learned.

    Attributes
    ----------
    mean_prediction : float
        Compare it with the mean reward.
    squared_error : float
        The mean square of prediction minus outcome: for clicks, the Brier score.
    log_loss : float or None
        The mean of minus the log likelihood, for rewards in [0, 1] that are predicted as probabilities.
    """

    mean_prediction: float
    squared_error: float
    log_loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedValue:
    """What the new policy would have earned per decision, by self-normalised importance weighting.

    Outcomes of the log are weighted by how much more likely the new policy would have been to play their arm.

    Attributes
    ----------
    value, standard_error : float
        The estimate and its standard error. It is self-normalised: its bias shrinks faster than its standard error.
    effective_sample_size : float
        How many decisions of the new policy itself would be as informative.
    decisions, logged
        How many decisions of the log have a propensity and an outcome, and what these earned.
    """

    value: float
    standard_error: float
    effective_sample_size: float
    decisions: int
    logged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitComparison:
    """Compares the original model of a log with a model that learned the log again with new settings.

    ``old`` has the errors of the predictions made at the time, None if the log does not have them; ``new`` has those of
    the new model, which predicts each decision before learning it. ``value`` is None if the log cannot determine it;
    ``reason`` says why. ``skipped`` events could not be learned: they, or the decisions they are about, were erased.
    """

    decisions: int
    outcomes: int
    mean_reward: float | None
    old: PredictionErrors | None
    new: PredictionErrors | None
    value: ReplayedValue | None
    reason: str | None
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitReport:
    """A refit of a stream: the new settings, and the comparison.

    ``event`` is the number of the event that replaced the old model; None after a dry run.
    """

    event: int | None
    settings: dict[str, Any]
    comparison: RefitComparison


def to_datetime(seconds: float) -> datetime:
    """Return the time ``seconds`` after 1970, to the nearest microsecond.

    Examples
    --------
    >>> to_plain(to_datetime(0.25))
    '1970-01-01T00:00:00.250000Z'
    """
    return datetime.fromtimestamp(seconds, UTC)


def _to_jsonable(value: Any) -> Any:
    """Convert a value that the JSON encoder does not support."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    if is_dataclass(value):
        return to_dict(value)
    raise TypeError(f"{type(value).__name__}  is not a part of a record")


_MEMORIES = ("memory", "memory_low", "memory_high")


def to_dict(record: Any) -> dict[str, Any]:
    """Return the fields of a record by name, with its own times and memories as in JSON."""
    plain = {
        name: _to_jsonable(value) if isinstance(value := getattr(record, name), datetime) else value
        for name in record.__dataclass_fields__
    }
    if "memory" in plain:
        plain |= {name: None for name in _MEMORIES if name in plain and plain[name] == math.inf}
    return plain


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_to_jsonable).encode


def to_json(value: Any) -> bytes:
    """Return a record, or plain data, as JSON without spaces."""
    return _encode(value).encode()


def to_plain(value: Any) -> Any:
    """Return a record, or any part of one, as the dicts, lists, numbers and strings of its JSON."""
    return json.loads(to_json(value))
