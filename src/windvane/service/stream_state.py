"""What a stream is, and the replay of its log: every event does again what the operation did that wrote it.

Operations (:mod:`windvane.service.streams`) and replays call the agent with the same arguments, so that a stream that
is rebuilt from its log equals the one that wrote the log to the last bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, NamedTuple

from windvane.agent import AgentCore, ClosedDecision, UnknownDecisionError
from windvane.agent.history import LearnedHistory
from windvane.agent.pending import RewardOutcome
from windvane.agent.refit import NOT_OF_THE_AGENT, LogLearner
from windvane.agent.vectors import Offer
from windvane.errors import WindvaneError
from windvane.records import RemovedEvents, StreamInfo, to_datetime, to_plain
from windvane.service import requests
from windvane.service.baselines import read_baseline
from windvane.service.bodies import one_at_a_time
from windvane.service.problems import invalid
from windvane.service.refit import Work, begin_refit, begin_undo
from windvane.service.retention import check_retention
from windvane.service.store import Event, ReadableStore, Snapshot, StreamRow, UnreadableEventError, check_event
from windvane.service.store import events as kinds


class ReplayError(WindvaneError):
    """The log of ``stream`` cannot be replayed, or the replay of ``event`` differs from what was recorded."""

    def __init__(self, stream: str, event: int | None, problem: str) -> None:
        self.stream, self.event, self.problem = stream, event, problem
        place = f"stream {stream!r}" if event is None else f"stream {stream!r}, event {event}"
        super().__init__(f"{place}: {problem}")


class Removed(NamedTuple):
    """The events that compactions removed: the number and the time of the last one, and the time of the first."""

    number: int
    first_time: float
    last_time: float


class StreamState:
    """A stream as it was created, or as it was at ``snapshot``: an agent, and the place in its log.

    ``retention``: how long events are kept, such as "90d"; None: forever.
    """

    def __init__(self, row: StreamRow, store: ReadableStore, snapshot: Snapshot | None = None) -> None:
        self.row, self.store = row, store
        self.id, self.name, self.created = row.id, row.name, row.created
        self.archived: float | None = None
        self.removed: Removed | None = None
        self.refits: list[int] = []  # the events of the refits that were not undone
        self.restored = 0 if snapshot is None else snapshot.number  # the event after which replays began
        self.differences = 0  # decisions for which a replay preferred another arm
        if snapshot is None:
            config = json.loads(row.config)
            self.core, self.title = AgentCore(**config["agent"]), config["title"]
            self.retention: str | None = config.get("retention")  # streams of older versions have none
            self.number, self.chain = 0, row.digest  # of the last event
        else:
            extra = json.loads(snapshot.extra)
            self.core = AgentCore.from_bytes(snapshot.agent, where="the snapshot")
            self.title, self.archived, self.refits = extra["title"], extra["archived"], list(extra["refits"])
            self.retention = extra.get("retention")
            self.number, self.chain = snapshot.number, snapshot.chain
            self.removed = Removed(*extra["removed"]) if extra.get("removed") else None
        _close_nothing(self.core)

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
                outcome = describe_closed(self.core.expire(now=event.time, room=room, most=most), room)
                if outcome["decisions"] != recorded["decisions"]:
                    raise ReplayError(self.name, event.number, f"the replay closes {outcome['decisions']}")
                return outcome
            case kinds.HISTORY:
                return {"rows": self.core.adopt(self.read_history(event.request or b"", None))}
            case kinds.CONFIGURED:
                self.apply_changes(recorded["changes"])
            case kinds.ARCHIVED | kinds.UNARCHIVED:
                self.archived = event.time if event.kind == kinds.ARCHIVED else None
            case kinds.ERASED:
                self.core.drop(recorded["decision"])
            case kinds.REFITTED:
                work = Work()
                learner = begin_refit(self, recorded["settings"])(work).read(event.number - 1, work)
                self.adopt_refit(learner, event.number)
            case kinds.REFIT_UNDONE:
                work = Work()
                self.adopt_undo(begin_undo(self)(work).read(event.number - 1, work))
            case kinds.COMPACTED:
                raise ReplayError(self.name, event.number, "removed events, and the state after it is missing")
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
            (status, is_new), total = self.give_reward(decision, value, event.time, is_part)
        except UnknownDecisionError:
            if event.kind != kinds.LATE:
                raise
            return recorded  # the agent had forgotten the decision at the time, too
        if not is_new or (status == "expired") != (event.kind == kinds.LATE):
            raise ReplayError(self.name, event.number, f"the reward is {status} in the replay")
        return self.describe_reward(event.kind, decision, value, total, is_part)

    def snapshot(self) -> Snapshot:
        """Return the stream as it is now."""
        return self.copy()()

    def copy(self) -> Callable[[], Snapshot]:
        """Copy the stream as it is now; the function returned makes the snapshot later, in any thread."""
        names = ("title", "archived", "refits", "retention", "removed")
        extra = json.dumps({name: getattr(self, name) for name in names}).encode()
        number, chain, pack = self.number, self.chain, self.core.pack()
        return lambda: Snapshot(number, chain, pack(), extra)

    # --- what operations and replays share -------------------------------------------------------------------------

    def read_offer(self, raw: bytes) -> Offer:
        """Return the arms that a request to decide offers, as the agent encodes them."""
        with one_at_a_time(raw):
            return self.core.offer(*requests.parse_decision(raw))

    def give_reward(self, decision: str, value: float, now: float, is_part: bool) -> tuple[RewardOutcome, float]:
        """Return what became of a reward or of a part of one, and the sum so far."""
        if is_part:
            return self.core.add_reward(decision, value, now=now)
        return self.core.reward(decision, value, now=now), value

    def describe_reward(self, kind: int, decision: str, value: float, total: float, is_part: bool) -> dict[str, Any]:
        """Return the outcome of the event: the ``sum`` of parts, and whether a reward is ``settled`` already."""
        if is_part:
            return {"value": value, "sum": total}
        is_settled = self.core.outcome_of(decision) is not None
        return {"value": value, "settled": is_settled} if kind == kinds.REWARDED else {"value": value}

    def read_history(self, raw: bytes, now: float | None) -> LearnedHistory:
        """Learn history in a copy of the agent, in any thread; nothing may change meanwhile. None: it is replayed."""
        try:
            return self.core.learn_history(**requests.parse_history(raw), now=now)
        except ValueError as error:
            raise invalid(error) from None

    def apply_changes(self, changes: dict[str, Any]) -> None:
        timeout = changes.get("reward_timeout", self.core.settings["reward_timeout"])
        if "retention" in changes:
            check_retention(changes["retention"], timeout)
        else:
            check_retention(self.retention, timeout, "reward_timeout")
        self.core.configure(**{name: value for name, value in changes.items() if name not in NOT_OF_THE_AGENT})
        self.title, self.retention = (changes.get(name, getattr(self, name)) for name in NOT_OF_THE_AGENT)

    def remove(self, removed: Removed, decisions: Iterable[str]) -> None:
        """Forget the ``decisions`` whose events are ``removed``."""
        for decision in decisions:
            self.core.drop(decision)
            self.core.decisions.closed.pop(decision, None)
        self.removed = removed

    def adopt_refit(self, learner: LogLearner, number: int | None = None) -> None:
        self.core = _close_nothing(learner.finish())
        self.refits.append(self.number if number is None else number)

    def adopt_undo(self, learner: LogLearner) -> None:
        self.core = _close_nothing(learner.finish())
        self.refits.pop()

    def begin_again(self) -> StreamState:
        """Return the stream as it was before its first event, or at its baseline if its log is not whole."""
        baseline = read_baseline(self.row, self.store)
        return StreamState(self.row, self.store, None if baseline is None else baseline.snapshot)

    # --- what can be read -------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return the fields of a stream beyond those of its agent."""
        archived = None if self.archived is None else to_datetime(self.archived)
        times = {"created": to_datetime(self.created), "archived": archived}
        removed = None
        if self.removed is not None:
            number, *ends = self.removed
            removed = RemovedEvents(number=number, first=to_datetime(ends[0]), last=to_datetime(ends[1]))
        log = {"events": self.number, "retention": self.retention, "removed": removed}
        return {"name": self.name, "title": self.title, **log, **times}

    def info(self) -> StreamInfo:
        """Return the record of the stream."""
        info = self.core.info()
        return StreamInfo(**{field.name: getattr(info, field.name) for field in fields(info)}, **self.describe())


def _close_nothing(core: AgentCore) -> AgentCore:
    """Let the stream close due decisions: whatever closes them is an event, and closes only some at a time."""
    core.closes_due = False
    return core


def describe_closed(closed: list[ClosedDecision], room: int) -> dict[str, Any]:
    """Return the outcome of the event: the decisions, what was learned, and how many of the last were dropped."""
    counts = {"dropped": sum(decision.dropped for decision in closed), "room": room}
    outcome = {"decisions": [decision.id for decision in closed], "learned": [d.learned for d in closed]}
    return outcome | {name: count for name, count in counts.items() if count}
