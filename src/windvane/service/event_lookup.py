"""Find the events of a stream by decision or by key, whether or not they are stored yet.

A file is read at once. A database on another machine is not: an operation that needs a stored event raises
:class:`EventsNotLoadedError`, the engine fetches the event with :class:`BulkLookup`, and executes the operation again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from windvane.errors import WindvaneError
from windvane.service.problems import Problem
from windvane.service.store import STORE_ERRORS, Event, ReadableStore, UnreadableEventError, check_event
from windvane.service.turns import wait_while_held
from windvane.service.used_keys import UsedKeys

if TYPE_CHECKING:
    from windvane.service.streams import Stream

T = TypeVar("T")

RECENT = 1024
"""Keys and decisions that are remembered after their events are stored, in addition to those that were stored since a
fetch under way began: that fetch may not have found these events, and is repeated."""
FETCH_SECONDS = 3.0  # that a fetch may take; one takes milliseconds
COLUMNS = ("key", "decision")

log = logging.getLogger("windvane.service")


class Wanted(NamedTuple):
    """Stored events that an operation needs: those whose ``column``, "key" or "decision", has this ``value``."""

    column: str
    value: str | None


class EventsNotLoadedError(WindvaneError):
    """An operation needs events that must be fetched first."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        super().__init__(f"the events with the {wanted.column} {wanted.value!r} are not loaded")


class EventLookup:
    """The events of one stream: those that are not stored yet from memory, the others from ``store``.

    The engine limits how many events wait to be stored, and thereby the size of this object. One thread at a time adds
    and looks up events; the event loop may forget some meanwhile, so the queue is copied before iteration.
    """

    def __init__(self, store: ReadableStore, stream: int) -> None:
        self._store, self._stream = store, stream
        self._used_keys: UsedKeys | None = None
        self._unsaved: deque[Event] = deque()
        self._keys: dict[str | None, Event] = {}  # of the unsaved events
        self._fetched: dict[Wanted, tuple[list[Event], int]] = {}  # and the last stored event when the fetch began
        self._begun: list[int] = []  # the last stored events when fetches began whose operations have not ended
        self._recent: OrderedDict[Wanted, int] = OrderedDict()  # by key and decision: events stored lately
        self._last = self._last_unknown = 0  # event that was added, and event that is no longer in _recent

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
            if self._store.is_remote:  # first: a thread that no longer finds the event must know that it is stored
                self._remember(event)
            self._unsaved.popleft()
            self._keys.pop(event.key, None)

    def _remember(self, event: Event) -> None:
        for wanted in (Wanted("key", event.key), Wanted("decision", event.decision)):
            if wanted.value is not None:
                self._recent[wanted] = event.number
                self._recent.move_to_end(wanted)
        while len(self._recent) > RECENT:
            oldest = next(iter(self._recent))
            if self._recent[oldest] > min(self._begun, default=math.inf):
                return  # or a busy stream would make the fetch be repeated for ever
            self._last_unknown = self._recent[oldest]
            del self._recent[oldest]

    @property
    def last_stored(self) -> int:
        """The number up to which all events are stored, as far as is known."""
        return self._last if not self._unsaved else self._unsaved[0].number - 1

    def with_key(self, key: str) -> Event | None:
        """Return the event of the request that had this key."""
        event = self._keys.get(key)
        if event is not None:
            return event
        if self._used_keys is not None and not self._used_keys.may_have(self._stream, key):
            return None
        if not self._store.is_remote:
            events = [self._check(event) for event in self._store.find_events(keys=[(self._stream, key)])]
        else:
            events = self._read_fetched(Wanted("key", key))
        return events[0] if events else None

    def of_decision(self, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""
        unsaved = list(self._unsaved)  # first: what is forgotten from now on is stored
        if self._store.is_remote:
            stored = self._read_fetched(Wanted("decision", decision))
        else:
            found = self._store.find_events(decisions=[(self._stream, decision)])
            stored = [self._check(event) for event in found]
        last = stored[-1].number if stored else 0  # events may be stored and not forgotten yet
        return stored + [event for event in unsaved if event.decision == decision and event.number > last]

    def _read_fetched(self, wanted: Wanted) -> list[Event]:
        events, began = self._fetched.get(wanted, ([], -1))
        if began < self._last_unknown or self._recent.get(wanted, -1) > began:
            raise EventsNotLoadedError(wanted)
        return events

    def begin_fetch(self) -> int:
        """Return :attr:`last_stored`; what is stored from now on is remembered until :meth:`discard`."""
        self._begun.append(self.last_stored)
        return self._begun[-1]

    def supply(self, wanted: Wanted, events: list[Event], began: int) -> None:
        """Add events that were fetched; ``began``: the result of :meth:`begin_fetch`."""
        self._fetched[wanted] = events, began

    def discard(self, wanted: Wanted, began: int) -> None:
        """Forget events that were fetched: the operation that needed them has ended."""
        self._fetched.pop(wanted, None)
        self._begun.remove(began)

    def _first_unsaved(self) -> float:
        try:
            return self._unsaved[0].number
        except IndexError:
            return math.inf

    def _check(self, event: Event) -> Event:
        """Return an event that is new or matches the chain value stored with its predecessor."""
        if event.number < self._first_unsaved():
            check_stored(self._store, event)
        return event


def check_stored(store: ReadableStore, event: Event) -> None:
    """Raise a problem unless a stored event follows its predecessor."""
    try:
        check_event(store.read_chain(event.stream, event.number - 1) or b"", event)
    except UnreadableEventError as error:
        raise Problem("unreadable", f"{error}; run `windvane verify` for details") from None


class BulkLookup:
    """Fetches events from a database: while one query runs, the requests for the next gather."""

    def __init__(self, store: ReadableStore) -> None:
        self._store = store
        self._waiting: dict[tuple[int, Wanted], asyncio.Future[list[Event]]] = {}
        self._is_running = False
        self._thread = ThreadPoolExecutor(1, "windvane-lookup")

    async def execute(self, stream: Stream, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work`` on a stream. If it needs stored events, fetch them and begin it again."""
        if not self._store.is_remote:
            return await work()
        fetches: list[tuple[Wanted, int]] = []
        try:
            while True:
                try:
                    return await work()
                except EventsNotLoadedError as missing:
                    began = stream.lookup.begin_fetch()
                    fetches.append((missing.wanted, began))
                    stream.lookup.supply(missing.wanted, await self._fetch(stream.id, missing.wanted), began)
                await wait_while_held(stream)
        finally:
            for fetch in fetches:
                stream.lookup.discard(*fetch)

    async def _fetch(self, stream: int, wanted: Wanted) -> list[Event]:
        """Return the stored events of a stream that are wanted, each checked."""
        loop = asyncio.get_running_loop()
        future = self._waiting.get((stream, wanted))
        if future is None:
            future = self._waiting[stream, wanted] = loop.create_future()
            if not self._is_running:
                self._is_running = True
                loop.call_soon(self._begin, loop)
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                return await asyncio.shield(future)
        except (*STORE_ERRORS, TimeoutError) as error:
            log.error("events cannot be read: %s", error)
            raise Problem("unavailable", "the store cannot be read") from None

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Query everything that was asked for until now."""
        batch, self._waiting = self._waiting, {}
        if not batch:
            self._is_running = False
            return
        query = loop.run_in_executor(self._thread, self._read, list(batch))
        query.add_done_callback(lambda done: self._finish(loop, batch, done))

    def _finish(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: dict[tuple[int, Wanted], asyncio.Future[list[Event]]],
        done: asyncio.Future[dict[tuple[int, Wanted], list[Event] | Problem]],
    ) -> None:
        error = done.exception()
        for want, future in batch.items():
            if future.done():
                continue
            answer = error or done.result().get(want, [])
            if isinstance(answer, BaseException):
                future.set_exception(answer)
                future.exception()  # or asyncio complains if nobody waits for it any more
            else:
                future.set_result(answer)
        self._begin(loop)

    def _read(self, wants: list[tuple[int, Wanted]]) -> dict[tuple[int, Wanted], list[Event] | Problem]:
        values = {column: [(stream, w.value or "") for stream, w in wants if w.column == column] for column in COLUMNS}
        answers: dict[tuple[int, Wanted], list[Event] | Problem] = {}
        for event in self._store.find_events(values["key"], values["decision"]):
            try:
                check_stored(self._store, event)
                problem = None
            except Problem as raised:
                problem = raised
            for wanted in (Wanted("key", event.key), Wanted("decision", event.decision)):
                if (event.stream, wanted) not in wants:
                    continue
                answer = answers.setdefault((event.stream, wanted), [])
                if problem is not None or isinstance(answer, Problem):
                    answers[event.stream, wanted] = problem or answer
                else:
                    answer.append(event)
        return answers
