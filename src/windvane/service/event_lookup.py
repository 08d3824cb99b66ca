"""Find the events of a stream by decision or by key, whether or not they are stored yet.

A file is read immediately. A database on another machine is not: an operation that needs a stored event raises
:class:`EventsNotLoadedError`, and the engine fetches the event with :class:`BulkLookup` and repeats the operation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from windvane.errors import WindvaneError
from windvane.service.problems import Problem
from windvane.service.readiness import refuse_read
from windvane.service.store import STORE_ERRORS, Event, ReadableStore, UnreadableEventError, check_event
from windvane.service.turns import wait_while_held
from windvane.service.used_keys import UsedKeys

if TYPE_CHECKING:
    from windvane.service.streams import Stream

T = TypeVar("T")

RECENT = 1024
"""How many keys and decisions are remembered after their events are stored. Those of events stored during a fetch are
remembered too, until it ends: the fetch may have missed these events, and is then repeated."""
FETCH_SECONDS = 3.0  # limit of a fetch, which normally takes milliseconds
COLUMNS = ("key", "decision")

log = logging.getLogger("windvane.service")


class EventQuery(NamedTuple):
    """A query for stored events: those whose ``column``, "key" or "decision", has this ``value``."""

    column: str
    value: str | None


class EventsNotLoadedError(WindvaneError):
    """An operation needs events that must be fetched first."""

    def __init__(self, query: EventQuery) -> None:
        self.query = query
        super().__init__(f"the events with the {query.column} {query.value!r} are not loaded")


class EventLookup:
    """The events of one stream: unsaved ones from memory, the others from ``store``.

    The engine limits how many events wait to be stored, and thereby the size of this object. One thread at a time adds
    and looks up events. The event loop may forget some concurrently, so the queue is copied before iteration.
    """

    def __init__(self, store: ReadableStore, stream: int) -> None:
        self._store, self._stream = store, stream
        self._used_keys: UsedKeys | None = None
        self._unsaved: deque[Event] = deque()
        self._keys: dict[str | None, Event] = {}  # unsaved events by key
        self._fetched: dict[EventQuery, tuple[list[Event], int]] = {}  # with the last stored event before it
        self._begun: list[int] = []  # for each fetch in use, the last stored event at its start
        self._recent: OrderedDict[EventQuery, int] = OrderedDict()  # recently stored events, by key and decision
        self._last = self._last_unknown = 0  # the last event added, and the last one dropped from _recent

    def add(self, event: Event) -> None:
        """Add an event that is about to be stored."""
        self._unsaved.append(event)
        self._keys[event.key] = event
        if self._used_keys is not None and event.key is not None:  # last: see know_keys
            self._used_keys.add(self._stream, event.key)
        self._last = event.number

    def know_keys(self, used_keys: UsedKeys) -> None:
        """Look up only keys that may be in ``used_keys``, and add those of this stream from now on.

        The stored keys are read later: those of events that are not stored yet are added here. Another thread may add
        an event meanwhile, to ``_keys`` first.
        """
        self._used_keys = used_keys
        for key in list(self._keys):
            if key is not None:
                used_keys.add(self._stream, key)

    def forget(self, number: int) -> None:
        """Forget the events up to ``number``, which are stored."""
        while self._unsaved and self._unsaved[0].number <= number:
            event = self._unsaved[0]
            if self._store.is_remote:  # first, so that a thread that no longer finds the event here knows it is stored
                self._remember(event)
            self._unsaved.popleft()
            self._keys.pop(event.key, None)

    def _remember(self, event: Event) -> None:
        for query in (EventQuery("key", event.key), EventQuery("decision", event.decision)):
            if query.value is not None:
                self._recent[query] = event.number
                self._recent.move_to_end(query)
        while len(self._recent) > RECENT:
            oldest = next(iter(self._recent))
            if self._recent[oldest] > min(self._begun, default=math.inf):
                return  # otherwise a fetch on a busy stream would be repeated forever
            self._last_unknown = self._recent[oldest]
            del self._recent[oldest]

    @property
    def last_stored(self) -> int:
        """The number up to which all events are known to be stored."""
        return self._last if not self._unsaved else self._unsaved[0].number - 1

    def find_by_key(self, key: str) -> Event | None:
        """Return the event of the request that had this key."""
        event = self._keys.get(key)
        if event is not None:
            return event
        if self._used_keys is not None and not self._used_keys.may_have(self._stream, key):
            return None
        if self._store.is_remote:
            events = self._read_fetched(EventQuery("key", key))
        else:
            events = self._read_checked(lambda: self._store.find_events(keys=[(self._stream, key)]))
        return events[0] if events else None

    def find_by_decision(self, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        unsaved = list(self._unsaved)  # copied first: an event that is forgotten later is already stored
        if self._store.is_remote:
            stored = self._read_fetched(EventQuery("decision", decision))
        else:
            stored = self._read_checked(lambda: self._store.find_events(decisions=[(self._stream, decision)]))
        last = stored[-1].number if stored else 0  # some events may be stored and not forgotten yet
        return stored + [event for event in unsaved if event.decision == decision and event.number > last]

    def _read_fetched(self, query: EventQuery) -> list[Event]:
        events, began = self._fetched.get(query, ([], -1))
        if began < self._last_unknown or self._recent.get(query, -1) > began:
            raise EventsNotLoadedError(query)
        return events

    def begin_fetch(self) -> int:
        """Return :attr:`last_stored`. Events stored later are remembered until :meth:`discard`."""
        self._begun.append(self.last_stored)
        return self._begun[-1]

    def supply(self, query: EventQuery, events: list[Event], began: int) -> None:
        """Add fetched events. ``began``: the result of :meth:`begin_fetch`."""
        self._fetched[query] = events, began

    def discard(self, query: EventQuery, began: int) -> None:
        """Forget fetched events, because the operation that needed them has ended."""
        self._fetched.pop(query, None)
        self._begun.remove(began)

    def _first_unsaved(self) -> float:
        try:
            return self._unsaved[0].number
        except IndexError:
            return math.inf

    def _read_checked(self, read: Callable[[], Sequence[Event]]) -> list[Event]:
        """Read events from the store, and check the stored ones against the chain values of their predecessors.

        A compaction may remove a predecessor between the two reads. Therefore, if a check fails, everything is read
        again in one transaction.
        """
        with contextlib.suppress(UnreadableEventError):
            return [self._check(event) for event in read()]
        try:
            with self._store.read_transaction():
                return [self._check(event) for event in read()]
        except UnreadableEventError as error:
            raise unreadable(error) from None

    def _check(self, event: Event) -> Event:
        if event.number < self._first_unsaved():
            check_stored(self._store, event)
        return event


def check_stored(store: ReadableStore, event: Event) -> None:
    """Raise :class:`UnreadableEventError` unless a stored event matches the chain value of its predecessor."""
    check_event(store.read_chain(event.stream, event.number - 1) or b"", event)


def unreadable(error: UnreadableEventError) -> Problem:
    """Return the problem for a request that needs an unreadable event."""
    return Problem("unreadable", f"{error}; run `windvane verify` for details")


class BulkLookup:
    """Fetches events from a database. While one query runs, further requests are collected for the next."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store
        self._waiting: dict[tuple[int, EventQuery], asyncio.Future[list[Event]]] = {}
        self._is_running = False
        self._thread = ThreadPoolExecutor(1, "windvane-lookup")

    async def execute(self, stream: Stream, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` on a stream and return its result. If it needs stored events, fetch them and repeat it."""
        if not self._store.is_remote:
            return await work()
        fetches: list[tuple[EventQuery, int]] = []
        try:
            while True:
                try:
                    return await work()
                except EventsNotLoadedError as missing:
                    began = stream.lookup.begin_fetch()
                    fetches.append((missing.query, began))
                    stream.lookup.supply(missing.query, await self._fetch(stream.id, missing.query), began)
                await wait_while_held(stream)
        finally:
            for fetch in fetches:
                stream.lookup.discard(*fetch)

    async def _fetch(self, stream: int, query: EventQuery) -> list[Event]:
        """Fetch and check the stored events of a stream that match the query."""
        loop = asyncio.get_running_loop()
        future = self._waiting.get((stream, query))
        if future is None:
            future = self._waiting[stream, query] = loop.create_future()
            if not self._is_running:
                self._is_running = True
                loop.call_soon(self._begin, loop)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await asyncio.shield(future)
        except (*STORE_ERRORS, TimeoutError) as error:
            log.error("stored events cannot be read: %s", error)
            raise refuse_read(error) from None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run one query for all requests that have been collected."""
        batch, self._waiting = self._waiting, {}
        if not batch:
            self._is_running = False
            return
        reading = loop.run_in_executor(self._thread, self._read, list(batch))
        reading.add_done_callback(lambda done: self._finish(loop, batch, done))

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: dict[tuple[int, EventQuery], asyncio.Future[list[Event]]],
        done: asyncio.Future[dict[tuple[int, EventQuery], list[Event] | Problem]],
    ) -> None:
        error = done.exception()
        for query, future in batch.items():
            if future.done():
                continue
            answer = error or done.result().get(query, [])
            if isinstance(answer, BaseException):
                future.set_exception(answer)
                future.exception()  # mark it as retrieved: nobody may be waiting for it any more
            else:
                future.set_result(answer)
        self._begin(loop)

    def _read(self, queries: list[tuple[int, EventQuery]]) -> dict[tuple[int, EventQuery], list[Event] | Problem]:
        values = {
            column: [(stream, query.value or "") for stream, query in queries if query.column == column]
            for column in COLUMNS
        }
        answers: dict[tuple[int, EventQuery], list[Event] | Problem] = {}
        events, problems = self._find_events(values)
        if problems:  # a compaction may have removed predecessors in the meantime
            with self._store.read_transaction():
                events, problems = self._find_events(values)
        for event in events:
            problem = problems.get(event[:2])
            for query in (EventQuery("key", event.key), EventQuery("decision", event.decision)):
                if (event.stream, query) not in queries:
                    continue
                answer = answers.setdefault((event.stream, query), [])
                if problem is not None or isinstance(answer, Problem):
                    answers[event.stream, query] = problem or answer
                else:
                    answer.append(event)
        return answers

    def _find_events(
        self, values: dict[str, list[tuple[int, str]]]
    ) -> tuple[list[Event], dict[tuple[int, int], Problem]]:
        """Return stored events, and the problems of those that do not match their predecessors."""
        events, problems = self._store.find_events(values["key"], values["decision"]), {}
        for event in events:
            try:
                check_stored(self._store, event)
            except UnreadableEventError as error:
                problems[event[:2]] = unreadable(error)
        return events, problems
