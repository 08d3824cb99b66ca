"""A stream: an agent, and the events that made it what it is.

Every operation changes the agent at once and returns the events to be logged; it is acknowledged once they are on disk.
:meth:`Stream.apply` does what an operation did from its event alone. The two must agree to the last bit: a stream is
rebuilt from its events, and then goes on from there.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from windvane.agent import (
    Agent,
    AlertLog,
    ConflictingRewardError,
    Decision,
    ExpiredDecisionError,
    Learnt,
    Offer,
    UnknownDecisionError,
)
from windvane.agent.alerts import LOOK
from windvane.agent.waiting import ON_ARRIVAL
from windvane.errors import ArgumentError, WindvaneError
from windvane.records import to_json
from windvane.service import schemas
from windvane.service.errors import ServiceError, invalid, unknown_decision, unreadable
from windvane.service.kept_answers import (
    KeptAnswer,
    answer_reward,
    describe_decision,
    digest_request,
    digest_reward,
    read_kept_answer,
    refuse_late,
)
from windvane.service.statistics import Statistics
from windvane.service.store import (
    ARCHIVED,
    CONFIGURED,
    DECIDED,
    EXPIRED,
    HISTORY,
    LATE,
    LOST,
    REWARDED,
    Event,
    Snapshot,
    Store,
    StreamRow,
    UnreadableEventError,
    check_event,
)
from windvane.service.stream_answers import describe_model, describe_stream, diagnose_stream

REMEMBERED = 10_000
"""Keys, decisions and late rewards that are known without asking the store, and before they are on disk: the engine
lets fewer events than that wait for the disk."""
AT_ONCE = 1000  # decisions that one event may expire in the background


class ReplayError(WindvaneError):
    """The log of ``stream`` cannot be replayed, or the replay of ``event`` differs from what was logged."""

    def __init__(self, stream: str, event: int | None, problem: str) -> None:
        self.stream, self.event, self.problem = stream, event, problem
        place = f"stream {stream!r}" if event is None else f"stream {stream!r}, event {event}"
        super().__init__(f"{place}: {problem}")


class Done(NamedTuple):
    """What an operation answers, and the events to be on disk before it does (none: an answer given before)."""

    status: int
    body: bytes
    events: list[Event]


class Stream:
    """See the module. Not safe to call from several threads."""

    def __init__(self, row: StreamRow, store: Store) -> None:
        self.id, self.name, self.created, self._store = row.id, row.name, row.created, store
        self.config: dict[str, Any] = json.loads(row.config)
        self.title: str | None = self.config["title"]
        self.agent = Agent(**self.config["agent"])
        self.statistics = Statistics()
        self.number = 0
        self.chain = row.digest  # of the last event
        self.archived: float | None = None
        self.differences = 0  # decisions that a replay would have made differently
        self.held: asyncio.Future[None] | None = None  # while something long is under way, changes wait for it
        self._keys: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._recent: OrderedDict[str, float | None] = OrderedDict()  # decisions; their reward, if it was learnt
        self._late_ones: OrderedDict[str, float] = OrderedDict()  # decisions; the reward that came too late
        self._state_json: tuple[int, bytes] = (-1, b"")
        self._alert_log, self._looked_at = AlertLog(), 0

    # --- operations ------------------------------------------------------------------------------------------------

    def decide(self, raw: bytes, key: str | None, now: float) -> Done:
        """One round. ``raw``: a JSON document of :class:`schemas.Decide`."""
        digest = "" if key is None else digest_request("decide", raw)  # only ever asked for by key
        if repeated := self._repeated(key, digest):
            return repeated
        self._refuse_if_archived()
        try:
            offer = self.read_offer(raw)
        except ValueError as error:
            raise invalid(error) from None
        events = self._expire(now, room=1)
        decision = self._decide(offer, now, secrets.token_hex(8))
        body = to_json(describe_decision(decision))
        _remember(self._recent, decision.id, None)
        event = self._event(DECIDED, decision.time, decision.id, key, body, raw)
        return self._remembered(key, digest, Done(200, body, [*events, event]))

    def reward(self, decision: str, value: float, key: str | None, now: float) -> Done:
        digest = "" if key is None else digest_reward(decision, value)
        if repeated := self._repeated(key, digest):
            return repeated
        self._refuse_if_archived()
        events = self._expire(now)
        try:
            learnt = self._reward(decision, value, now)
        except ExpiredDecisionError:
            return self._late(decision, value, key, now, events)
        except UnknownDecisionError:
            return self._not_waiting(decision, value, key, now, events)
        except ConflictingRewardError as error:
            return self._refused(ServiceError(409, "conflict", str(error), "decision"), events)
        except ValueError as error:
            return self._refused(invalid(error), events)
        if not learnt:
            return Done(200, answer_reward(decision, False), events)
        _remember(self._recent, decision, value)
        event = self._event(REWARDED, now, decision, key, to_json({"value": value}))
        return self._remembered(key, digest, Done(200, answer_reward(decision, True), [*events, event]))

    def _not_waiting(self, decision: str, value: float, key: str | None, now: float, events: list[Event]) -> Done:
        """The agent does not know the decision (any more): the store tells what became of it, unless it is so recent
        that it may not be there yet."""
        if decision in self._recent:
            known = self._recent[decision]
        else:
            try:
                past = self.read_events_of(decision)
            except UnreadableEventError as error:
                return self._refused(unreadable(error), events)
            if not past:
                return self._refused(unknown_decision(decision), events)
            known = next((event.outcome["value"] for event in past if event.kind == REWARDED), None)
        if known is None:
            return self._late(decision, value, key, now, events)
        if known == value:
            return Done(200, answer_reward(decision, False), events)
        text = f"decision {decision!r}: has the reward {known:g} already, not {value:g}"
        return self._refused(ServiceError(409, "conflict", text, "decision"), events)

    def _late(self, decision: str, value: float, key: str | None, now: float, events: list[Event]) -> Done:
        """Answer a reward that came after the wait: the first one is recorded, and not learnt from."""
        known = self._late_ones.get(decision)
        if known is None:
            try:
                past = self.read_events_of(decision)
            except UnreadableEventError as error:
                return self._refused(unreadable(error), events)
            known = next((event.outcome["value"] for event in past if event.kind == LATE), None)
        if known is None:
            events = [*events, self._event(LATE, now, decision, key, to_json({"value": value}))]
            _remember(self._late_ones, decision, value)
            return self._remembered(key, digest_reward(decision, value), self._refused(refuse_late(decision), events))
        if known == value:
            return self._refused(refuse_late(decision), events)
        text = f"decision {decision!r}: a late reward of {known:g} is recorded, and this one of {value:g} is not"
        return self._refused(ServiceError(409, "conflict", text, "decision"), events)

    def read_events_of(self, decision: str) -> list[Event]:
        """Return all stored events of a decision; raise :class:`UnreadableEventError` if one was changed."""
        events = self._store.events_of_decision(self.id, decision)
        for event in events:
            self._check(event)
        return events

    def _check(self, event: Event) -> None:
        """Check a stored event against the chain value that is stored with the one before it."""
        check_event(self._store.read_chain(self.id, event.number - 1) or b"", event)

    def asked_before(self, raw: bytes, key: str | None) -> Done | None:
        """The answer that this bulk history, a JSON document of :class:`schemas.History`, got before."""
        if repeated := self._repeated(key, digest_request("history", raw)):
            return repeated
        self._refuse_if_archived()
        return None

    def learnt(self, raw: bytes, now: float | None) -> Learnt:
        """What the history makes of the agent. Nothing is changed, and nothing may change meanwhile; in any thread.
        ``now``: None for what is in the log."""
        request = schemas.parsed(schemas.History, raw)
        given = request.vectors, request.rewards, request.contexts, request.arms, request.times, request.weights
        try:
            return Learnt.of(self.agent, *given, now)
        except ArgumentError as error:
            name, bracket, rest = error.argument.partition("[")  # what the library calls X, a request calls vectors
            raise invalid(error.rename(f"vectors{bracket}{rest}") if name == "X" else error) from None
        except ValueError as error:
            raise invalid(error) from None

    def learn(self, raw: bytes, key: str | None, learnt: Learnt, now: float) -> Done:
        """Take in what :meth:`learnt` made of ``raw`` at the time ``now``."""
        count = self.agent.adopt(learnt)
        event = self._event(HISTORY, now, None, key, to_json({"rows": count}), raw)
        return self._remembered(key, digest_request("history", raw), Done(200, to_json({"learnt": count}), [event]))

    def configure(self, changes: dict[str, Any], now: float) -> Done:
        self._refuse_if_archived()
        try:
            self._configure(changes)
        except ValueError as error:
            raise invalid(error) from None
        event = self._event(CONFIGURED, now, None, None, to_json({"changes": changes}))
        return Done(200, to_json(describe_stream(self)), [event])

    def archive(self, now: float) -> Done:
        events = []
        if self.archived is None:
            self.archived = now
            events = [self._event(ARCHIVED, now, None, None, b"{}")]
        return Done(200, to_json(describe_stream(self)), events)

    def record_loss(self, acknowledged: int, now: float) -> Event:
        """Record that events up to number ``acknowledged`` were acknowledged, and are not in the log."""
        return self._event(LOST, now, None, None, to_json({"acknowledged": acknowledged}))

    def waits_over(self, now: float, *, many: bool = False) -> bool:
        """Whether any decisions have waited too long; or so ``many`` that they should not be closed at once."""
        return self.archived is None and self.agent.overdue(now, AT_ONCE if many else 1)

    def expire(self, now: float) -> list[Event]:
        """Close what has waited too long, some of it at a time; nothing left: no event."""
        return [] if self.archived is not None else self._expire(now, most=AT_ONCE)

    # --- the log ---------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> dict[str, Any]:
        """Replay ``event``, which must be the next one, and return the outcome of the replay."""
        if event.number != self.number + 1:
            raise ReplayError(self.name, event.number, f"follows event {self.number}")
        try:
            check_event(self.chain, event)
        except UnreadableEventError as error:
            raise ReplayError(self.name, error.number, error.problem) from None
        outcome, at = event.outcome, event.time
        if event.kind == DECIDED:
            decision = self._decide(self.read_offer(event.request or b""), at, event.decision or "", outcome["index"])
            if (decision.arm, decision.time) != (outcome["arm"], at):
                raise ReplayError(self.name, event.number, f"arm {outcome['arm']!r} was not offered")
            if (decision.preferred, decision.explored) != (outcome["preferred"], outcome["explored"]):
                self.differences += 1  # another version, or another processor, would have chosen another one
            outcome = describe_decision(decision)
        elif event.kind == REWARDED:
            if not self._reward(event.decision or "", outcome["value"], at):
                raise ReplayError(self.name, event.number, "is a reward that was known already")
        elif event.kind == EXPIRED:
            recorded, count = outcome, len(outcome["decisions"])
            outcome = self._close(at, recorded.get("room", 0), count)
            if outcome["decisions"] != recorded["decisions"]:
                raise ReplayError(self.name, event.number, f"replay expired {outcome['decisions']}")
        elif event.kind == CONFIGURED:
            self._configure(outcome["changes"])
        elif event.kind == ARCHIVED:
            self.archived = at
        elif event.kind == HISTORY:
            outcome = {"rows": self.agent.adopt(self.learnt(event.request or b"", None))}
        elif event.kind not in (LATE, LOST):  # which change nothing
            raise ReplayError(self.name, event.number, f"is of no known kind ({event.kind})")
        self.number, self.chain = event.number, event.chain
        return outcome

    def snapshot(self) -> Snapshot:
        """The stream as it is now."""
        return self.copied()()

    def copied(self) -> Callable[[], Snapshot]:
        """What makes the snapshot of the stream as it is now, at any time, in any thread."""
        extra = {"title": self.title, "archived": self.archived, "statistics": self.statistics.document()}
        number, chain, agent, text = self.number, self.chain, self.agent.copied(), json.dumps(extra).encode()
        return lambda: Snapshot(number, chain, agent(), text)

    def restore(self, snapshot: Snapshot) -> None:
        extra = json.loads(snapshot.extra)
        self.agent = Agent.from_bytes(snapshot.agent)
        self.title, self.archived = extra["title"], extra["archived"]
        self.statistics = Statistics.of(extra["statistics"])
        self.number, self.chain = snapshot.number, snapshot.chain

    # --- what operations and replays share --------------------------------------------------------------------------

    def read_offer(self, raw: bytes) -> Offer:
        """Return the arms that a request to decide offers, as the agent encodes them."""
        arms, context = schemas.decide_request(raw)
        return self.agent.offer(arms, context)

    def _decide(self, offer: Offer, now: float, decision_id: str, played: int | None = None) -> Decision:
        decision = self.agent.replay(played, offer, now=now, id=decision_id)
        model = describe_model(self.agent) if self.statistics.full else {}
        self.statistics.decided(
            decision.time, decision.arm, decision.id, decision.prediction, decision.projected, model
        )
        return decision

    def _reward(self, decision: str, value: float, now: float) -> bool:
        is_new = self.agent.reward(decision, value, now=now)
        if is_new:
            self.statistics.reward(decision, value)
            if self.agent.learn == ON_ARRIVAL:
                self.statistics.settle(value)
        return is_new

    def _close(self, now: float, room: int, most: int | None, *, drop: bool = True) -> dict[str, Any]:
        """Close decisions whose wait is over, or that are too many; returns the outcome of the event."""
        closings = self.agent.expire(now=now, room=room, most=most, drop=drop)
        for closing in closings:
            self.statistics.close(closing)
        outcome: dict[str, Any] = {
            "decisions": [closing.id for closing in closings],
            "learned": [closing.learned for closing in closings],
        }
        dropped = sum(
            closing.dropped for closing in closings
        )  # they come last: the oldest are those whose wait is over
        return outcome | {name: count for name, count in (("dropped", dropped), ("room", room)) if count}

    def _configure(self, changes: dict[str, Any]) -> None:
        self.agent.configure(**{name: value for name, value in changes.items() if name != "title"})  # all or nothing
        self.title = changes.get("title", self.title)

    def _expire(self, now: float, room: int = 0, most: int | None = None) -> list[Event]:
        """Before the agent would do so by itself: every end of a wait is an event."""
        outcome = self._close(now, room, most)
        return [self._event(EXPIRED, now, None, None, to_json(outcome))] if outcome["decisions"] else []

    def _event(
        self, kind: int, at: float, decision: str | None, key: str | None, outcome: bytes, request: bytes | None = None
    ) -> Event:
        """Make the next event of the log, with its place in the chain."""
        event = Event.create(self.chain, self.id, self.number + 1, at, kind, decision, key, outcome, request)
        self.number, self.chain = event.number, event.chain
        return event

    def _refuse_if_archived(self) -> None:
        if self.archived is not None:
            raise ServiceError(409, "archived", f"stream {self.name!r}: is archived, and only read")

    @staticmethod
    def _refused(error: ServiceError, events: list[Event]) -> Done:
        return Done(error.status, to_json(error.document), events)

    def _repeated(self, key: str | None, digest: str) -> Done | None:
        """The answer that a request with this key got before."""
        if key is None:
            return None
        kept = self._keys.get(key)
        if kept is None:
            event = self._store.event_with_key(self.id, key)
            if event is None:
                return None
            try:
                self._check(event)
            except UnreadableEventError as error:
                raise unreadable(error) from None
            kept = read_kept_answer(event)
        if kept.digest != digest:
            raise ServiceError(409, "key_reused", f"key {key!r}: was used for another request", "key")
        return Done(kept.status, kept.body, [])

    def _remembered(self, key: str | None, digest: str, done: Done) -> Done:
        if key is not None:
            _remember(self._keys, key, KeptAnswer(digest, done.status, done.body))
        return done

    def state_json(self) -> bytes:
        """The state in full as JSON; encoded once, however many watch."""
        if self._state_json[0] != self.number:
            self._state_json = self.number, to_json(diagnose_stream(self))
        return self._state_json[1]

    def log_alerts(self) -> None:
        """Log the agent's alerts if enough decisions were made since the last check. Call it regularly."""
        if self.archived is None and self.agent.decisions - self._looked_at >= LOOK:
            self._looked_at = self.agent.decisions
            self._alert_log.log(self.agent.alerts, self.agent.decisions, f"stream {self.name!r}")


def _remember(known: OrderedDict[str, Any], name: str, value: Any) -> None:
    """Of the last so many."""
    known[name] = value
    known.move_to_end(name)
    if len(known) > REMEMBERED:
        known.popitem(last=False)
