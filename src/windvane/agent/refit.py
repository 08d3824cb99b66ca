"""Learn a log again with new settings, and compare the predictions of the old and the new model.

A row of a log is an event as the service exports it (docs/reference/event-log.md), or a similar mapping:

=====================================  ==========================================================================
kind                                   fields that are read, besides ``time`` and ``decision`` (the id)
=====================================  ==========================================================================
decided                                ``arm``; ``request`` with the ``arms`` and the ``context`` that were sent,
                                       None if it was erased; for the comparison ``prediction`` and ``propensity``
rewarded, late                         ``value``
reward_part, late with ``sum``         ``value``, a part of the reward
history                                ``request``, the arguments of :meth:`windvane.Agent.history`
configured                             ``changes`` with the ``features``: the arms declared from then on
refitted, refit_undone                 ``settings`` with the ``features``, in the same way
closed                                 nothing but its time: what is closed by then follows from the settings
archived, unarchived, lost, erased,    nothing
compacted
=====================================  ==========================================================================

The settings hold for the whole log. A row that names no arms had all that were declared at the time: those of the last
row before it that changes features, or, if there is none, those that the agent has now. Rows from before the features
changed are read as far as they can be: a field that a row lacks, or a value that is not declared, counts as 0 in all
its coordinates, numbers are moved to the end of their range, and an arm that is not declared has only shared
coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windvane.agent.coordinates import name_parts
from windvane.agent.features import Features
from windvane.agent.pending import ClosedDecision, DecisionError, UnknownDecisionError
from windvane.agent.times import to_seconds
from windvane.arguments import check_number
from windvane.errors import ArgumentError
from windvane.links import Logistic, Probit
from windvane.records import Name, PredictionErrors, RefitComparison, ReplayedValue

if TYPE_CHECKING:
    from windvane.agent.core import AgentCore

RATES = ("half_life", "gamma", "drift")  # at most one of them sets how fast an agent forgets
HISTORY = ("rewards", "vectors", "contexts", "arms", "times", "weights")
IGNORED = ("archived", "unarchived", "lost", "erased", "compacted")
NOT_OF_THE_AGENT = ("title", "retention")  # settings of a stream that its agent does not have
CERTAIN = 1e-9  # predictions are clipped to this distance from 0 and 1, so that the log loss is finite
NO_PROPENSITIES = "the log has no propensities; with `epsilon`, later decisions will have them"
NO_OVERLAP = "no decision of the log has an outcome and an arm that the new policy might have played"


def renew_settings(core: AgentCore, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an agent like ``core`` with ``changes``.

    A new policy does not inherit the settings of the old one, a new rate replaces the old one, and new features have no
    prior.
    """
    dropped = set(core.policy_settings) if "policy" in changes else {"prior_dim"} if "features" in changes else set()
    kept = {name: value for name, value in name_parts(core).items() if name not in dropped}
    if any(name in changes for name in RATES):
        kept |= dict.fromkeys(RATES)
    if "features" in changes:
        kept["prior"] = None
    return {**kept, **changes}


def prepare_refit(
    core: AgentCore, changes: Mapping[str, Any]
) -> Callable[[Iterable[Mapping[str, Any]]], tuple[AgentCore, RefitComparison]]:
    """Return a function that learns a log with new settings. It does not read ``core``, which may continue."""
    arguments, features = renew_settings(core, changes), core.encoder.features
    build, pending = type(core), [decision.id for decision in core.pending()]

    def learn(log: Iterable[Mapping[str, Any]]) -> tuple[AgentCore, RefitComparison]:
        learner = LogLearner(build(**arguments), () if features is None else features.arms)
        missing = dict.fromkeys(pending)
        if not isinstance(log, Iterable):
            raise ArgumentError("log", log, "rows of a log")
        for place, row in enumerate(log):
            learner.learn(row, place)
            if row["kind"] == "decided":
                missing.pop(_id_of(row), None)
        for id_ in missing:
            raise ArgumentError("log", id_, "a log with every decision that is pending", got=f"one without {id_!r}")
        return learner.finish(), learner.compare()

    return learn


def declare_arms(arms: Sequence[Sequence[Name]], kind: str, row: Mapping[str, Any]) -> list[list[Name]]:
    """Return the arms that the features declare after a row of a log. Those declared now come last, after those that
    undoing refits would restore."""
    before, now = [list(names) for names in arms[:-1]], list(arms[-1])
    if kind not in ("configured", "refitted", "refit_undone"):
        return [*before, now]
    name = "changes" if kind == "configured" else "settings"
    changes = _check_mapping(name, row.get(name) or {}, "settings by name")
    features = Features.parse(changes.get("features"))
    new = now if features is None else list(features.arms)
    if kind == "refit_undone":
        return before or [now]
    return [*before, now, new] if kind == "refitted" else [*before, new]


class LogLearner:
    """Lets ``core`` learn a log. ``arms`` are those that the features declare at its beginning.

    ``follows``: ``core`` continues with its own log, and changes of settings in it are applied. ``earlier``: the arms
    that undoing the refits before the log would restore. ``skipped``: rows that could not be learned.
    """

    def __init__(
        self, core: AgentCore, arms: Iterable[Name], *, follows: bool = False, earlier: Sequence[Sequence[Name]] = ()
    ) -> None:
        self.core, self._follows, self.skipped = core, follows, 0
        self._arms = [*map(list, earlier), list(arms)]
        self._open: dict[str, tuple[float | None, float, float | None, float]] = {}
        self._old, self._new, self._value = _Errors(core), _Errors(core), _Weights()
        self._decisions, self._with_propensity = 0, 0
        core.encoder.is_lenient = True

    def finish(self) -> AgentCore:
        """Return the agent that has learned the log."""
        self.core.encoder.is_lenient = False
        return self.core

    def learn(self, row: Mapping[str, Any], place: int) -> None:
        """Learn the next row of the log; ``place`` is its number, for errors."""
        if not isinstance(row, Mapping):
            raise ArgumentError(("log", place), row, "a mapping: an event of a log")
        try:
            self._learn(row)
        except ArgumentError as error:
            raise error.rename(("log", place, *error.path)) from None

    def _learn(self, row: Mapping[str, Any]) -> None:
        kind = row.get("kind")
        if kind == "decided":
            self._learn_decision(row)
        elif kind in ("rewarded", "reward_part", "late"):
            self._learn_reward(row)
        elif kind == "history":
            if row.get("request"):
                request = _check_mapping("request", row["request"], "the arguments of `history`")
                self.core.adopt(self.core.learn_history(now=None, **{name: request.get(name) for name in HISTORY}))
            else:  # it was erased
                self.skipped += 1
        elif kind in ("configured", "refitted", "refit_undone"):
            self._note_change(kind, row)
        elif kind == "closed":
            self._settle(self.core.expire(now=_time_of(row)))
        elif kind not in IGNORED:
            raise ArgumentError("kind", kind, "one of those of the event log")

    def _learn_decision(self, row: Mapping[str, Any]) -> None:
        request, id_, at = row.get("request"), _id_of(row), _time_of(row)
        if request is None:  # it was erased
            self.skipped += 1
            return
        arms = _check_mapping("request", request, "the arms and the context that were sent").get("arms")
        offer = self.core.offer(self._arms[-1] if arms is None else arms, request.get("context"))
        if row.get("arm") not in offer.names:
            hint = "" if arms is not None else "begin the log with a row `configured` that has the features of the time"
            raise ArgumentError("arm", row.get("arm"), "one of the arms of its request", hint=hint)
        self._settle(self.core.expire(now=at, room=1))
        decision = self.core.decide(offer, id=id_, now=at, played=offer.names.index(row["arm"]))
        is_preferred = float(decision.arm == decision.preferred)
        chance = is_preferred if decision.propensity is None else decision.propensity
        old, propensity = (_read_number(row, name) for name in ("prediction", "propensity"))
        self._open[id_] = old, decision.prediction, propensity, chance
        self._decisions += 1

    def _learn_reward(self, row: Mapping[str, Any]) -> None:
        core, id_, value, at = self.core, _id_of(row), row.get("value"), _time_of(row)
        self._settle(core.expire(now=at))
        try:
            if row["kind"] == "reward_part" or "sum" in row:
                core.add_reward(id_, value, now=at)  # type: ignore[arg-type]
            else:
                core.reward(id_, value, now=at)  # type: ignore[arg-type]
        except UnknownDecisionError:  # the decision is not in the log, or was closed long before a late reward
            self.skipped += row["kind"] != "late"
        except DecisionError:  # the reward is too late
            pass
        outcome = core.outcome_of(id_)
        if outcome is not None and outcome.reward is not None:
            self._count(id_, outcome.reward)

    def _note_change(self, kind: str, row: Mapping[str, Any]) -> None:
        self._arms = declare_arms(self._arms, kind, row)
        if self._follows and kind == "configured":
            changes = row.get("changes") or {}
            if changes.get("features") is not None:
                raise ArgumentError("features", changes["features"], "those of the refit", got="others, given after it")
            self.core.configure(**{name: value for name, value in changes.items() if name not in NOT_OF_THE_AGENT})

    def _settle(self, closed: Iterable[ClosedDecision]) -> None:
        for decision in closed:
            if decision.learned is None:
                self._open.pop(decision.id, None)
            else:
                self._count(decision.id, decision.learned)

    def _count(self, id_: str, outcome: float) -> None:
        """Compare the predictions for a decision with its outcome."""
        if id_ in self._open:
            old, new, propensity, chance = self._open.pop(id_)
            self._new.add(new, outcome)
            if old is not None:
                self._old.add(old, outcome)
            if propensity:
                self._with_propensity += 1
                self._value.add(chance / propensity, outcome)

    def compare(self) -> RefitComparison:
        """Return the errors of both models, each outcome predicted before it was learned, and the replayed value."""
        value = self._value.estimate()
        reason = None if value is not None else NO_OVERLAP if self._with_propensity else NO_PROPENSITIES
        return RefitComparison(
            decisions=self._decisions,
            outcomes=self._new.count,
            mean_reward=self._new.total / self._new.count if self._new.count else None,
            old=self._old.summarise() if self._old.count == self._new.count else None,
            new=self._new.summarise(),
            value=value,
            reason=reason,
            skipped=self.skipped,
        )


class _Errors:
    """Running sums of the errors of predictions."""

    def __init__(self, core: AgentCore) -> None:
        self.is_probability = isinstance(core.policy.reward_link, Logistic | Probit)
        self.count, self.total, self.predicted, self.squares, self.logs = 0, 0.0, 0.0, 0.0, 0.0

    def add(self, prediction: float, outcome: float) -> None:
        self.count += 1
        self.total += outcome
        self.predicted += prediction
        self.squares += (prediction - outcome) ** 2
        if self.is_probability:
            p = min(max(prediction, CERTAIN), 1.0 - CERTAIN)
            self.logs -= outcome * math.log(p) + (1.0 - outcome) * math.log1p(-p)

    def summarise(self) -> PredictionErrors | None:
        n = self.count
        if n == 0:
            return None
        return PredictionErrors(
            mean_prediction=self.predicted / n,
            squared_error=self.squares / n,
            log_loss=self.logs / n if self.is_probability else None,
        )


class _Weights:
    """Running sums for self-normalised importance weighting."""

    def __init__(self) -> None:
        self.count, self.rewards, self.w, self.ww, self.wr, self.wwr, self.wwrr = 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0

    def add(self, weight: float, reward: float) -> None:
        square = weight * weight
        self.count += 1
        self.rewards += reward
        self.w += weight
        self.ww += square
        self.wr += weight * reward
        self.wwr += square * reward
        self.wwrr += square * reward * reward

    def estimate(self) -> ReplayedValue | None:
        if not self.w > 0.0:
            return None
        value = self.wr / self.w
        spread = max(self.wwrr - 2.0 * value * self.wwr + value * value * self.ww, 0.0)
        return ReplayedValue(
            value=value,
            standard_error=math.sqrt(spread) / self.w,
            effective_sample_size=self.w * self.w / self.ww,
            decisions=self.count,
            logged=self.rewards / self.count,
        )


def _id_of(row: Mapping[str, Any]) -> str:
    id_ = row.get("decision") or row.get("id")
    if not isinstance(id_, str):
        raise ArgumentError("decision", id_, "the id of a decision")
    return id_


def _time_of(row: Mapping[str, Any]) -> float:
    return to_seconds(("time",), row.get("time"))  # type: ignore[arg-type]


def _read_number(row: Mapping[str, Any], name: str) -> float | None:
    number = row.get(name)
    return None if number is None else check_number(name, number, "that is finite", math.isfinite)


def _check_mapping(name: str, value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ArgumentError(name, value, f"a mapping: {what}")
    return value
