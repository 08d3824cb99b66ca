"""A stream: an agent, and the log of its events.

Every operation changes the agent at once and returns the events to store; it is acknowledged once they are on disk.
:mod:`windvane.service.stream_state` repeats an operation from its event.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from windvane.agent import ClosedDecision, ConflictingRewardError, UnknownDecisionError
from windvane.agent.history import LearnedHistory
from windvane.agent.info import CHECK_EVERY, AlertLog
from windvane.agent.pending import ClosedOutcome, PendingDecisions, RewardOutcome
from windvane.agent.refit import LogLearner
from windvane.records import (
    DecisionRecord,
    RewardReceipt,
    to_datetime,
    to_dict,
    to_json,
)
from windvane.service.bodies import is_same_request, write_json
from windvane.service.charts import Charts, Model
from windvane.service.decision_records import check_decision, describe_decision
from windvane.service.event_lookup import EventLookup
from windvane.service.problems import Problem, invalid
from windvane.service.random_bytes import draw_id
from windvane.service.store import Event, ReadableStore, Snapshot, StreamRow
from windvane.service.store import events as kinds
from windvane.service.stream_state import Removed, StreamState, describe_closed

REFITS = (kinds.REFITTED, kinds.REFIT_UNDONE)
MAX_CLOSED, CLOSING_SECONDS = 1000, 0.005
"""How many due decisions are closed at once, and for how long; the rest is closed after other requests took a turn."""
CLOSED_TOGETHER = 8  # decisions between two checks of the time


class Done(NamedTuple):
    """The answer of an operation, and the events that must be on disk before it is sent (none: a repeated answer).

    ``decision``: the id of the decision that was made.
    """

    status: int
    body: bytes
    events: list[Event]
    decision: str | None = None


class Stream(StreamState):
    """A stream as it was created, or as it was at ``snapshot``. One thread at a time may use it."""

    def __init__(self, row: StreamRow, store: ReadableStore, snapshot: Snapshot | None = None) -> None:
        super().__init__(row, store, snapshot)
        self.is_refitting = False  # while a refit is under way
        self.refit_key: str | None = None  # of the last refit
        self.lookup, self.charts = EventLookup(store, row.id), Charts()
        self.charts_lock = asyncio.Lock()  # held while a thread reads the log into the charts
        self.live: tuple[tuple[int, int, int], bytes] = ((-1, 0, 0), b"")  # the message for followers, and its progress
        self.sampled = 0  # number of the last event when the charts got the numbers of the model
        self.epochs: dict[int, int] = {}  # in a cluster: the epoch of its shard, by its id
        self.is_taken_over = False  # whether another node has taken it
        self.is_removed = False
        self.in_progress = 0  # requests that are changing it: a shard is not released before they are answered
        self.busy: asyncio.Future[None] | None = None  # while long work runs: done when it ends
        self.is_changing = False  # by that work: it cannot be read meanwhile
        self.closing: asyncio.Future[None] | None = None  # while due decisions are closed in slices
        self.erasing = asyncio.Lock()  # held while something of it is erased
        self.compact_at = 0.0  # the time when events may be older than the retention; 0: not known
        self.has_backlog = False  # whether the last operation left due decisions open, because they were many
        self.seconds = 0.0  # that the last operation took
        self._new_events: list[Event] = []
        self._alert_log, self._alerts_checked = AlertLog(), 0

    # --- operations ------------------------------------------------------------------------------------------------

    def decide(self, raw: bytes, key: str | None, now: float, *, decision: str | None = None) -> Done:
        """Choose an arm. ``raw``: the JSON of a request to decide. ``decision``: its id; by default a random one."""
        if again := self._answer_again(key, lambda event: _is_same(event, kinds.DECIDED, raw)):
            return again
        self.refuse_if_archived()
        try:
            offer = self.read_offer(raw)
        except ValueError as error:
            raise invalid(error) from None
        if decision is not None and self.lookup.find_by_decision(decision):
            raise Problem("key-reused", f"stream {self.name!r} has a decision with the id {decision!r}")
        id_ = decision or draw_id(now)
        self._expire(now, room=1)
        body = write_json(to_dict(self.core.decide(offer, id=id_, now=now)))
        self._log(kinds.DECIDED, now, body, id_, key, raw)
        return Done(201, body, self.take_events(), id_)

    def reward(self, decision: str, value: float, now: float) -> Done:
        """Record the reward of a decision. Repeating the same reward changes nothing."""
        return self._take_reward(decision, value, None, now, is_part=False)

    def add_reward(self, decision: str, value: float, key: str | None, now: float) -> Done:
        """Add a part to the reward of a decision."""

        def is_same(event: Event) -> bool:
            is_part = event.kind in (kinds.REWARD_PART, kinds.LATE)
            return is_part and (event.decision, event.outcome["value"]) == (decision, value)

        return self._answer_again(key, is_same) or self._take_reward(decision, value, key, now, is_part=True)

    def _take_reward(self, decision: str, value: float, key: str | None, now: float, *, is_part: bool) -> Done:
        if self.archived is not None and not is_part:
            for event in self.lookup.find_by_decision(decision):
                if event.kind == kinds.REWARDED and event.outcome["value"] == value:
                    return Done(200, _write_receipt(decision, "unchanged", value), [])
        self.refuse_if_archived()
        self._expire(now)
        if self.core.is_overdue(decision, now):  # older decisions are closed first, and its outcome is not learned yet
            detail = "many decisions have timed out and are still being closed; try again"
            raise Problem("unavailable", detail, cause="busy")
        try:
            try:
                (status, is_new), total = self.give_reward(decision, value, now, is_part)
            except UnknownDecisionError:
                (status, is_new), total = self._reward_forgotten(decision, value, is_part)
        except ConflictingRewardError as error:
            raise Problem("conflict", str(error)) from None
        except ValueError as error:
            raise invalid(error) from None
        if is_new:
            kind = kinds.LATE if status == "expired" else kinds.REWARD_PART if is_part else kinds.REWARDED
            outcome = write_json(self.describe_reward(kind, decision, value, total, is_part))
            self._log(kind, now, outcome, decision, key)
        return Done(200, _write_receipt(decision, status, total), self.take_events())

    def _reward_forgotten(self, decision: str, value: float, is_part: bool) -> tuple[RewardOutcome, float]:
        """Treat a reward as the agent does for a closed decision, if only the log still has the decision."""
        record, known = self.find_decision(decision), PendingDecisions()
        is_partial = any("sum" in event.outcome for event in self.lookup.find_by_decision(decision))
        known.closed[decision] = ClosedOutcome(record.reward, record.late_reward, is_partial)
        if not is_part:
            return known.repeat_reward(decision, value), value
        self.core.check_part(known, decision, value)
        return RewardOutcome("expired", True), known.add_late_part(decision, value)

    def find_history(self, raw: bytes, key: str | None) -> Done | None:
        """Return the answer to history that was learned before with this key."""
        again = self._answer_again(key, lambda event: _is_same(event, kinds.HISTORY, raw))
        if again is None:
            self.refuse_if_archived()
        return again

    def learn_history(self, raw: bytes, key: str | None, learned: LearnedHistory, now: float) -> Done:
        """Adopt what :meth:`read_history` learned from ``raw``."""
        body = to_json({"rows": self.core.adopt(learned)})
        self._log(kinds.HISTORY, now, body, None, key, raw)
        return Done(200, body, self.take_events())

    def configure(self, changes: dict[str, Any], now: float) -> Done:
        """Change the title and settings of the agent: all of ``changes``, or none if one is invalid."""
        self.refuse_if_archived()
        try:
            self.apply_changes(changes)
        except ValueError as error:
            raise invalid(error) from None
        if changes:
            self._log(kinds.CONFIGURED, now, to_json({"changes": changes}))
        return Done(200, to_json(self.info()), self.take_events())

    def find_refit(self, changes: dict[str, Any] | None, key: str | None) -> Done | None:
        """Return the answer to an earlier refit with this key, or to an earlier undo if ``changes`` is None."""
        again = self._answer_again(key, lambda event: event.kind in REFITS and event.outcome.get("settings") == changes)
        if again is None:
            self.refuse_if_archived()
        return again

    def refit(
        self, changes: dict[str, Any], learner: LogLearner, key: str | None, now: float, *, dry_run: bool
    ) -> Done:
        """Replace the model with that of ``learner``, which has learned the whole log, and return the comparison. A dry
        run only returns it. See :mod:`windvane.service.refit`."""
        outcome = {"settings": changes, "comparison": learner.compare()}
        if dry_run:
            return Done(200, to_json({"event": None, **outcome}), [])
        self._log(kinds.REFITTED, now, to_json(outcome), key=key)
        self.adopt_refit(learner)
        return Done(200, to_json({"event": self.number, **outcome}), self.take_events())

    def undo_refit(self, learner: LogLearner, key: str | None, now: float) -> Done:
        """Replace the model with that of ``learner``, the model from before the last refit."""
        self._log(kinds.REFIT_UNDONE, now, to_json({"refit": self.refits[-1]}), key=key)
        self.adopt_undo(learner)
        return Done(200, to_json(self.info()), self.take_events())

    def archive(self, now: float) -> Done:
        """Archive the stream: it can still be read, but no longer decides or learns."""
        if self.archived is None:
            self.archived = now
            self._log(kinds.ARCHIVED, self.archived, b"{}")
        return Done(200, to_json(self.info()), self.take_events())

    def unarchive(self, now: float) -> Done:
        """Let an archived stream decide and learn again. Timeouts that passed while it was archived take effect."""
        if self.archived is not None:
            self.archived = None
            self._log(kinds.UNARCHIVED, now, b"{}")
        return Done(200, to_json(self.info()), self.take_events())

    def erase_context(self, decision: str, now: float) -> list[Event]:
        """Record that the context of a decision is erased; a decision that is open is dropped."""
        self._log(kinds.ERASED, now, to_json({"decision": decision}))
        self.core.drop(decision)
        return self.take_events()

    def compact(self, removed: Removed, decisions: Sequence[str], now: float) -> list[Event]:
        """Record that events are ``removed``, with their ``decisions``; those that are open are dropped."""
        dropped = [decision for decision in decisions if decision in self.core.decisions.open]
        times = {"first_time": to_datetime(removed.first_time), "last_time": to_datetime(removed.last_time)}
        self._log(kinds.COMPACTED, now, to_json({"removed": removed.number, **times, "dropped": dropped}))
        self.remove(removed, decisions)
        return self.take_events()

    def record_loss(self, acknowledged: int, now: float) -> list[Event]:
        """Record that events up to number ``acknowledged`` were acknowledged but are not in the log."""
        self._log(kinds.LOST, now, to_json({"acknowledged": acknowledged}))
        return self.take_events()

    def is_due(self, now: float) -> bool:
        """Return whether any timeouts have passed."""
        return self.archived is None and self.core.is_due(now)

    def is_overdue(self, decision: str, now: float) -> bool:
        """Return whether a decision is still open although its timeout has passed."""
        return self.archived is None and self.core.is_overdue(decision, now)

    def expire(self, now: float) -> list[Event]:
        """Close some of the decisions whose timeout has passed; without any, no event is written."""
        if self.archived is None:
            self._expire(now)
        return self.take_events()

    def take_events(self) -> list[Event]:
        """Return the events that were not returned yet. A rejected operation leaves one if it closed decisions."""
        events, self._new_events = self._new_events, []
        return events

    def _expire(self, now: float, room: int = 0) -> None:
        """Close decisions that are due, oldest first; if there are many, only some of them."""
        closed: list[ClosedDecision] = []
        end, self.has_backlog = time.perf_counter() + CLOSING_SECONDS, True
        while self.has_backlog and len(closed) < MAX_CLOSED and time.perf_counter() < end:
            most = min(CLOSED_TOGETHER, MAX_CLOSED - len(closed))
            closed += (some := self.core.expire(now=now, room=room, most=most))
            self.has_backlog = len(some) == most
        if closed:
            self._log(kinds.CLOSED, now, to_json(describe_closed(closed, room)))

    # --- what operations share -------------------------------------------------------------------------------------

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
        """Return the earlier answer to a request with this key. ``is_same``: whether that request was the same."""
        event = None if key is None else self.lookup.find_by_key(key)
        if event is None:
            return None
        if event.request is None and event.request_digest is not None:
            raise Problem("key-reused", f"the key {key!r} was used for a request that was erased")
        if not is_same(event):
            raise Problem("key-reused", f"the key {key!r} was used for another request")
        if event.kind in REFITS:
            report = {"event": event.number, **event.outcome}
            return Done(200, to_json(report if event.kind == kinds.REFITTED else self.info()), [])
        if event.kind == kinds.DECIDED:
            return Done(201, event.outcome_json, [], event.decision)
        if event.kind == kinds.HISTORY:
            return Done(200, event.outcome_json, [])
        status = "expired" if event.kind == kinds.LATE else "recorded"
        return Done(200, _write_receipt(event.decision or "", status, event.outcome["sum"]), [])

    # --- what can be read -------------------------------------------------------------------------------------------

    def find_decision(self, decision: str) -> DecisionRecord:
        """Return a decision with its status and reward."""
        return describe_decision(self.core, check_decision(decision, self.lookup.find_by_decision(decision)))

    def preview(self, raw: bytes, now: float, *, is_ranked: bool) -> Done:
        """Return the model's predictions for the arms in a request, without deciding."""
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
        memory = info.memory if math.isfinite(info.memory) else None
        return {"norm": math.hypot(*info.theta.values()), "memory": memory, "rate": rate}

    def log_alerts(self) -> None:
        """Log the agent's alerts if enough decisions were made since the last check. Call it regularly."""
        decisions = self.core.tally.decisions
        if self.archived is None and decisions - self._alerts_checked >= CHECK_EVERY:
            self._alerts_checked = decisions
            self._alert_log.log(self.core.alerts, decisions, f"stream {self.name!r}")


def _is_same(event: Event, kind: int, raw: bytes) -> bool:
    """Return whether ``event`` has the same request; an erased request cannot be compared."""
    return event.kind == kind and event.request is not None and is_same_request(event.request, raw)


def _write_receipt(decision: str, status: Any, value: float) -> bytes:
    return write_json(to_dict(RewardReceipt(decision=decision, status=status, value=value)))
