"""A stream: an agent, and the log of the events that made it what it is.

Every operation changes the agent at once and returns the events to store; it is acknowledged once they are on disk.
:meth:`Stream.apply` repeats an operation from its event. Both call the agent with the same arguments, so that a stream
that is rebuilt from its log equals the one that wrote the log to the last bit.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any, NamedTuple

from windvane.agent import AgentCore, ClosedDecision, ConflictingRewardError, UnknownDecisionError
from windvane.agent.history import LearnedHistory
from windvane.agent.info import CHECK_EVERY, AlertLog
from windvane.agent.pending import ClosedOutcome, PendingDecisions, RewardOutcome
from windvane.agent.refit import LogLearner
from windvane.agent.vectors import Offer
from windvane.errors import WindvaneError
from windvane.records import (
    Decision,
    DecisionRecord,
    DecisionStatus,
    Name,
    RewardReceipt,
    StreamInfo,
    to_datetime,
    to_json,
    to_plain,
)
from windvane.service import requests
from windvane.service.bodies import is_same_request, one_at_a_time
from windvane.service.charts import Charts, Model
from windvane.service.event_lookup import EventLookup
from windvane.service.problems import Problem, invalid
from windvane.service.refit import Work, begin_refit, begin_undo
from windvane.service.store import Event, Snapshot, Store, StreamRow, UnreadableEventError, check_event
from windvane.service.store import events as kinds

REFITS = (kinds.REFITTED, kinds.REFIT_UNDONE)
MAX_CLOSED, CLOSING_SECONDS = 1000, 0.005
"""How many due decisions are closed at once, and for how long: the rest is closed after other requests had a turn."""
CLOSED_TOGETHER = 8  # between two looks at the time


class ReplayError(WindvaneError):
    """The log of ``stream`` cannot be replayed, or the replay of ``event`` differs from what was recorded."""

    def __init__(self, stream: str, event: int | None, problem: str) -> None:
        self.stream, self.event, self.problem = stream, event, problem
        place = f"stream {stream!r}" if event is None else f"stream {stream!r}, event {event}"
        super().__init__(f"{place}: {problem}")


class Done(NamedTuple):
    """The answer of an operation, and the events that must be on disk before it is sent (none: a repeated answer)."""

    status: int
    body: bytes
    events: list[Event]


class Stream:
    """A stream as it was created, or as it was at ``snapshot``. One thread at a time may use it."""

    def __init__(self, row: StreamRow, store: Store, snapshot: Snapshot | None = None) -> None:
        self.row, self.store = row, store
        self.id, self.name, self.created = row.id, row.name, row.created
        self.archived: float | None
        self.refits: list[int] = []  # the events of the refits that were not undone
        self.is_refitting = False  # while one is under way
        self.refit_key: str | None = None  # of the last one
        if snapshot is None:
            config = json.loads(row.config)
            self.core, self.title, self.archived = AgentCore(**config["agent"]), config["title"], None
            self.number, self.chain = 0, row.digest  # of the last event
        else:
            extra = json.loads(snapshot.extra)
            self.core = AgentCore.from_bytes(snapshot.agent, where="the snapshot")
            self.title, self.archived, self.refits = extra["title"], extra["archived"], list(extra["refits"])
            self.number, self.chain = snapshot.number, snapshot.chain
        _close_nothing(self.core)
        self.lookup, self.charts = EventLookup(store, row.id), Charts()
        self.charts_lock = asyncio.Lock()  # held while a thread reads the log into the charts
        self.live: tuple[tuple[int, int, int], bytes] = ((-1, 0, 0), b"")  # what followers get, and as of when
        self.sampled = 0  # number of the last event when the charts got the numbers of the model
        self.differences = 0  # decisions for which a replay preferred another arm
        self.busy: asyncio.Future[None] | None = None  # while long work is under way: done when it ends
        self.is_changing = False  # by that work: it cannot be read meanwhile
        self.closing: asyncio.Future[None] | None = None  # while due decisions are closed, some at a time
        self.has_backlog = False  # whether the last operation left due decisions open, because they were many
        self.seconds = 0.0  # that the last operation took
        self._new_events: list[Event] = []
        self._alert_log, self._alerts_checked = AlertLog(), 0

    # --- operations ------------------------------------------------------------------------------------------------

    def decide(self, raw: bytes, key: str | None, now: float) -> Done:
        """Choose an arm. ``raw``: the JSON of a request to decide."""
        if again := self._answer_again(key, lambda event: _is_same(event, kinds.DECIDED, raw)):
            return again
        self.refuse_if_archived()
        try:
            offer = self.read_offer(raw)
        except ValueError as error:
            raise invalid(error) from None
        id_ = secrets.token_hex(8)
        self._expire(now, room=1)
        body = to_json(self.core.decide(offer, id=id_, now=now))
        self._log(kinds.DECIDED, now, body, id_, key, raw)
        return Done(201, body, self.take_events())

    def reward(self, decision: str, value: float, now: float) -> Done:
        """Record the reward of a decision. The same reward again changes nothing."""
        return self._take_reward(decision, value, None, now, is_part=False)

    def add_reward(self, decision: str, value: float, key: str | None, now: float) -> Done:
        """Add a part to the reward of a decision."""

        def is_same(event: Event) -> bool:
            is_part = event.kind in (kinds.REWARD_PART, kinds.LATE)
            return is_part and (event.decision, event.outcome["value"]) == (decision, value)

        return self._answer_again(key, is_same) or self._take_reward(decision, value, key, now, is_part=True)

    def _take_reward(self, decision: str, value: float, key: str | None, now: float, *, is_part: bool) -> Done:
        if self.archived is not None and not is_part:
            for event in self.lookup.of_decision(decision):
                if event.kind == kinds.REWARDED and event.outcome["value"] == value:
                    return Done(200, _write_receipt(decision, "unchanged", value), [])
        self.refuse_if_archived()
        self._expire(now)
        if self.core.is_overdue(decision, now):  # its outcome must be learned before, and others first
            raise Problem("unavailable", "many timeouts have passed and are being closed; try again")
        try:
            try:
                (status, is_new), total = self._reward(decision, value, now, is_part)
            except UnknownDecisionError:
                (status, is_new), total = self._reward_forgotten(decision, value, is_part)
        except ConflictingRewardError as error:
            raise Problem("conflict", str(error)) from None
        except ValueError as error:
            raise invalid(error) from None
        if is_new:
            kind = kinds.LATE if status == "expired" else kinds.REWARD_PART if is_part else kinds.REWARDED
            self._log(kind, now, to_json(self._describe_reward(kind, decision, value, total, is_part)), decision, key)
        return Done(200, _write_receipt(decision, status, total), self.take_events())

    def _reward_forgotten(self, decision: str, value: float, is_part: bool) -> tuple[RewardOutcome, float]:
        """Do what the agent does with a reward of a closed decision, for one that only the log remembers."""
        record, known = self.find_decision(decision), PendingDecisions()
        is_partial = any("sum" in event.outcome for event in self.lookup.of_decision(decision))
        known.closed[decision] = ClosedOutcome(record.reward, record.late_reward, is_partial)
        if not is_part:
            return known.repeat_reward(decision, value), value
        self.core.check_part(known, decision, value)
        return RewardOutcome("expired", True), known.add_late_part(decision, value)

    def find_history(self, raw: bytes, key: str | None) -> Done:
        """Return the answer to history that was learned before with this key; an empty one if there is none."""
        again = self._answer_again(key, lambda event: _is_same(event, kinds.HISTORY, raw))
        if again is None:
            self.refuse_if_archived()
        return again or Done(200, b"", [])

    def read_history(self, raw: bytes, now: float | None) -> LearnedHistory:
        """Learn history in a copy of the agent, in any thread; nothing may change meanwhile. None: it is replayed."""
        try:
            return self.core.learn_history(**requests.parse_history(raw), now=now)
        except ValueError as error:
            raise invalid(error) from None

    def learn_history(self, raw: bytes, key: str | None, learned: LearnedHistory, now: float) -> Done:
        """Adopt what :meth:`read_history` learned from ``raw``."""
        body = to_json({"rows": self.core.adopt(learned)})
        self._log(kinds.HISTORY, now, body, None, key, raw)
        return Done(200, body, self.take_events())

    def configure(self, changes: dict[str, Any], now: float) -> Done:
        """Change the title and settings of the agent: all of ``changes``, or none if one is refused."""
        self.refuse_if_archived()
        try:
            self._configure(changes)
        except ValueError as error:
            raise invalid(error) from None
        if changes:
            self._log(kinds.CONFIGURED, now, to_json({"changes": changes}))
        return Done(200, to_json(self.info()), self.take_events())

    def find_refit(self, changes: dict[str, Any] | None, key: str | None) -> Done | None:
        """Return the answer to a refit, or with None to an undo, that was carried out before with this key."""
        again = self._answer_again(key, lambda event: event.kind in REFITS and event.outcome.get("settings") == changes)
        if again is None:
            self.refuse_if_archived()
        return again

    def refit(
        self, changes: dict[str, Any], learner: LogLearner, key: str | None, now: float, *, dry_run: bool
    ) -> Done:
        """Put the model of ``learner``, which has learned the whole log, in the place of this one, and return the
        comparison; of a dry run, only that. See :mod:`windvane.service.refit`."""
        outcome = {"settings": changes, "comparison": learner.compare()}
        if dry_run:
            return Done(200, to_json({"event": None, **outcome}), [])
        self._log(kinds.REFITTED, now, to_json(outcome), key=key)
        self._adopt_refit(learner)
        return Done(200, to_json({"event": self.number, **outcome}), self.take_events())

    def undo_refit(self, learner: LogLearner, key: str | None, now: float) -> Done:
        """Put the model of ``learner``, that of before the last refit, in the place of this one."""
        self._log(kinds.REFIT_UNDONE, now, to_json({"refit": self.refits[-1]}), key=key)
        self._adopt_undo(learner)
        return Done(200, to_json(self.info()), self.take_events())

    def archive(self, now: float) -> Done:
        """End the stream: it can be read, and does not decide or learn any more."""
        if self.archived is None:
            self.archived = now
            self._log(kinds.ARCHIVED, self.archived, b"{}")
        return Done(200, to_json(self.info()), self.take_events())

    def record_loss(self, acknowledged: int, now: float) -> list[Event]:
        """Record that events up to number ``acknowledged`` were acknowledged and are not in the log."""
        self._log(kinds.LOST, now, to_json({"acknowledged": acknowledged}))
        return self.take_events()

    def is_due(self, now: float) -> bool:
        """Return whether any timeouts have passed."""
        return self.archived is None and self.core.is_due(now)

    def is_overdue(self, decision: str, now: float) -> bool:
        """Return whether a decision is still to be closed though its timeout has passed."""
        return self.archived is None and self.core.is_overdue(decision, now)

    def expire(self, now: float) -> list[Event]:
        """Close some of the decisions whose timeout has passed; no event if there is none."""
        if self.archived is None:
            self._expire(now)
        return self.take_events()

    def take_events(self) -> list[Event]:
        """Return the events that were not returned yet. A refused operation leaves one if it closed decisions."""
        events, self._new_events = self._new_events, []
        return events

    # --- the log ---------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> dict[str, Any]:
        """Replay ``event``, which must be the next one, and return the outcome of the replay."""
        if event.number != self.number + 1:
            raise ReplayError(self.name, event.number, f"follows event {self.number}")
        try:
            check_event(self.chain, event)
        except UnreadableEventError as error:
            raise ReplayError(self.name, error.number, error.problem) from None
        outcome = self._replay(event, event.outcome)
        self.number, self.chain = event.number, event.chain
        return outcome

    def _replay(self, event: Event, recorded: dict[str, Any]) -> dict[str, Any]:
        """Do what the operation did that wrote ``event``; ``recorded`` is its outcome."""
        match event.kind:
            case kinds.DECIDED:
                return self._replay_decision(event, recorded)
            case kinds.REWARDED | kinds.REWARD_PART | kinds.LATE:
                return self._replay_reward(event, recorded, is_part="sum" in recorded)
            case kinds.CLOSED:
                room, most = recorded.get("room", 0), len(recorded["decisions"])
                outcome = _describe_closed(self.core.expire(now=event.time, room=room, most=most), room)
                if outcome["decisions"] != recorded["decisions"]:
                    raise ReplayError(self.name, event.number, f"the replay closes {outcome['decisions']}")
                return outcome
            case kinds.HISTORY:
                return {"rows": self.core.adopt(self.read_history(event.request or b"", None))}
            case kinds.CONFIGURED:
                self._configure(recorded["changes"])
            case kinds.ARCHIVED:
                self.archived = event.time
            case kinds.REFITTED:
                work = Work()
                learner = begin_refit(self, recorded["settings"])(work).read(event.number - 1, work)
                self._adopt_refit(learner, event.number)
            case kinds.REFIT_UNDONE:
                work = Work()
                self._adopt_undo(begin_undo(self)(work).read(event.number - 1, work))
            case kinds.LOST:
                pass
            case _:
                raise ReplayError(self.name, event.number, f"is of an unknown kind ({event.kind})")
        return recorded

    def _replay_decision(self, event: Event, recorded: dict[str, Any]) -> dict[str, Any]:
        offer, played = self.read_offer(event.request or b""), recorded["index"]
        outcome = to_plain(self.core.decide(offer, id=event.decision or "", now=event.time, played=played))
        if outcome["arm"] != recorded["arm"]:
            raise ReplayError(self.name, event.number, f"arm {recorded['arm']!r} was not offered")
        if any(outcome[name] != recorded[name] for name in ("preferred", "explored")):
            self.differences += 1  # on another processor, or in another version, rounding may differ
        return dict(outcome)

    def _replay_reward(self, event: Event, recorded: dict[str, Any], is_part: bool) -> dict[str, Any]:
        decision, value = event.decision or "", recorded["value"]
        try:
            (status, is_new), total = self._reward(decision, value, event.time, is_part)
        except UnknownDecisionError:
            if event.kind != kinds.LATE:
                raise
            return recorded  # the agent had forgotten the decision at the time, too
        if not is_new or (status == "expired") != (event.kind == kinds.LATE):
            raise ReplayError(self.name, event.number, f"the reward is {status} in the replay")
        return self._describe_reward(event.kind, decision, value, total, is_part)

    def snapshot(self) -> Snapshot:
        """Return the stream as it is now."""
        return self.copy()()

    def copy(self) -> Callable[[], Snapshot]:
        """Copy the stream as it is now; the function returned makes the snapshot later, in any thread."""
        extra = json.dumps({"title": self.title, "archived": self.archived, "refits": self.refits}).encode()
        number, chain, pack = self.number, self.chain, self.core.pack()
        return lambda: Snapshot(number, chain, pack(), extra)

    # --- what operations and replays share --------------------------------------------------------------------------

    def read_offer(self, raw: bytes) -> Offer:
        """Return the arms that a request to decide offers, as the agent encodes them."""
        with one_at_a_time(raw):
            return self.core.offer(*requests.parse_decision(raw))

    def _reward(self, decision: str, value: float, now: float, is_part: bool) -> tuple[RewardOutcome, float]:
        """Return what became of a reward or of a part of one, and the sum so far."""
        if is_part:
            return self.core.add_reward(decision, value, now=now)
        return self.core.reward(decision, value, now=now), value

    def _describe_reward(self, kind: int, decision: str, value: float, total: float, is_part: bool) -> dict[str, Any]:
        """Return the outcome of the event: the ``sum`` of parts, and whether a reward is ``settled`` already."""
        if is_part:
            return {"value": value, "sum": total}
        is_settled = self.core.outcome_of(decision) is not None
        return {"value": value, "settled": is_settled} if kind == kinds.REWARDED else {"value": value}

    def _expire(self, now: float, room: int = 0) -> None:
        """Close decisions that are due, the oldest first; not all of them if they are many."""
        closed: list[ClosedDecision] = []
        end, self.has_backlog = time.perf_counter() + CLOSING_SECONDS, True
        while self.has_backlog and len(closed) < MAX_CLOSED and time.perf_counter() < end:
            most = min(CLOSED_TOGETHER, MAX_CLOSED - len(closed))
            closed += (some := self.core.expire(now=now, room=room, most=most))
            self.has_backlog = len(some) == most
        if closed:
            self._log(kinds.CLOSED, now, to_json(_describe_closed(closed, room)))

    def _configure(self, changes: dict[str, Any]) -> None:
        self.core.configure(**{name: value for name, value in changes.items() if name != "title"})
        self.title = changes.get("title", self.title)

    def _adopt_refit(self, learner: LogLearner, number: int | None = None) -> None:
        self.core = _close_nothing(learner.finish())
        self.refits.append(self.number if number is None else number)

    def _adopt_undo(self, learner: LogLearner) -> None:
        self.core = _close_nothing(learner.finish())
        self.refits.pop()

    @property
    def first_arms(self) -> list[Name]:
        """The arms that the features declared when the stream was created."""
        return list((json.loads(self.row.config)["agent"]["features"] or {}).get("arms", ()))

    def begin_again(self) -> Stream:
        """Return the stream as it was before its first event."""
        return Stream(self.row, self.store)

    # --- what operations share --------------------------------------------------------------------------------------

    def _log(
        self, kind: int, now: float, outcome: bytes, decision: str | None = None, key: str | None = None,
        request: bytes | None = None,
    ) -> None:  # fmt: skip
        """Append an event to the log."""
        event = Event.create(self.chain, self.id, self.number + 1, now, kind, decision, key, outcome, request)
        self.number, self.chain = event.number, event.chain
        self._new_events.append(event)
        self.lookup.add(event)

    def refuse_if_archived(self) -> None:
        if self.archived is not None:
            raise Problem("archived", f"stream {self.name!r} is archived and can only be read")

    def _answer_again(self, key: str | None, is_same: Callable[[Event], bool]) -> Done | None:
        """Return the answer that a request with this key got before. ``is_same``: whether it was this request."""
        event = None if key is None else self.lookup.with_key(key)
        if event is None:
            return None
        if not is_same(event):
            raise Problem("key-reused", f"the key {key!r} was used for another request")
        if event.kind in REFITS:
            report = {"event": event.number, **event.outcome}
            return Done(200, to_json(report if event.kind == kinds.REFITTED else self.info()), [])
        if event.kind in (kinds.DECIDED, kinds.HISTORY):
            return Done(201 if event.kind == kinds.DECIDED else 200, event.outcome_json, [])
        status = "expired" if event.kind == kinds.LATE else "recorded"
        return Done(200, _write_receipt(event.decision or "", status, event.outcome["sum"]), [])

    # --- what can be read -------------------------------------------------------------------------------------------

    def find_decision(self, decision: str) -> DecisionRecord:
        """Return a decision and what became of it."""
        events = self.lookup.of_decision(decision)
        if not events:
            raise Problem("unknown-decision", f"there is no decision {decision!r}")
        outcome, reward, late = events[0].outcome, None, None
        for event in events[1:]:
            value = event.outcome.get("sum", event.outcome["value"])
            reward, late = (reward, value) if event.kind == kinds.LATE else (value, late)
        return DecisionRecord(
            decision=Decision(**outcome | {"time": datetime.fromisoformat(outcome["time"])}),
            status=self._find_status(decision, reward),
            reward=reward,
            late_reward=late,
        )

    def _find_status(self, decision: str, reward: float | None) -> DecisionStatus:
        """Return what became of a decision. One that was dropped long ago counts as expired."""
        closed = self.core.outcome_of(decision)
        if closed is not None and closed.is_dropped:
            return "dropped"
        return "pending" if self.core.is_pending(decision) else "expired" if reward is None else "rewarded"

    def describe(self) -> dict[str, Any]:
        """Return what a stream has besides its agent."""
        archived = None if self.archived is None else to_datetime(self.archived)
        times = {"created": to_datetime(self.created), "archived": archived}
        return {"name": self.name, "title": self.title, "events": self.number, **times}

    def info(self) -> StreamInfo:
        """Return all that is known about the stream."""
        info = self.core.info()
        return StreamInfo(**{field.name: getattr(info, field.name) for field in fields(info)}, **self.describe())

    def preview(self, raw: bytes, now: float, *, is_ranked: bool) -> Done:
        """Answer what the model thinks of the arms in a request to decide, without deciding."""
        try:
            arms, ranking = self.core.preview(self.read_offer(raw), now=now)
        except ValueError as error:
            raise invalid(error) from None
        return Done(200, to_json({"arms": [arms[i] for i in ranking] if is_ranked else arms}), [])

    @property
    def progress(self) -> tuple[int, int, int]:
        """The last event, the last one in the charts, and the last one when the charts got the model."""
        return self.number, self.charts.number, self.sampled

    def describe_model(self) -> Model:
        """Return the numbers of the model that charts show over time."""
        info = self.core.info()
        rate = None if info.drift is None else info.drift.rate
        return {"norm": math.hypot(*info.theta.values()), "memory": info.memory, "rate": rate}

    def log_alerts(self) -> None:
        """Log the agent's alerts if enough decisions were made since the last check. Call it regularly."""
        decisions = self.core.tally.decisions
        if self.archived is None and decisions - self._alerts_checked >= CHECK_EVERY:
            self._alerts_checked = decisions
            self._alert_log.log(self.core.alerts, decisions, f"stream {self.name!r}")


def _close_nothing(core: AgentCore) -> AgentCore:
    """Let the stream close due decisions: whatever closes them is an event, and closes only some at a time."""
    core.closes_due = False
    return core


def _is_same(event: Event, kind: int, raw: bytes) -> bool:
    """Return whether ``event`` is that of the same request; one that was erased cannot be compared."""
    return event.kind == kind and event.request is not None and is_same_request(event.request, raw)


def _describe_closed(closed: list[ClosedDecision], room: int) -> dict[str, Any]:
    """Return the outcome of the event: the decisions, what was learned, and how many of the last were dropped."""
    counts = {"dropped": sum(decision.dropped for decision in closed), "room": room}
    outcome = {"decisions": [decision.id for decision in closed], "learned": [d.learned for d in closed]}
    return outcome | {name: count for name, count in counts.items() if count}


def _write_receipt(decision: str, status: Any, value: float) -> bytes:
    return to_json(RewardReceipt(decision=decision, status=status, value=value))
