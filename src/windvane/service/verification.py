"""Verification: check a store against itself.

The file must be whole, every event must match its checksum, and a replay of the whole log must give every outcome that
was recorded and the state that a server would start from. A store can be verified beside the server that uses it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from windvane.service.comparison import Agreement, compare_outcomes, compare_streams
from windvane.service.recovery import apply_event, check_end, create_stream, read_snapshot
from windvane.service.store import DECIDED, LOST, READ_ERRORS, Event, SnapshotError, Store, StreamRow
from windvane.service.streams import ReplayError, Stream

LAST_REQUESTS = 20  # requests to decide whose vectors are compared: some rounds of every arm
SHOWN = 3  # keys that a message names

_T = TypeVar("_T")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """A problem, or something to know: a code, and a sentence."""

    code: str
    text: str


@dataclass
class StreamReport:
    """The findings about a stream. Notes are no faults."""

    stream: str
    events: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)


@dataclass
class StoreReport:
    """The findings about a store: problems of the file, and a report on every stream."""

    problems: list[Finding]
    streams: list[StreamReport]

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return not self.problems and not any(stream.problems for stream in self.streams)

    def to_plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"sound": self.is_sound, **asdict(self)}


def verify_store(store: Store, progress: Progress = lambda *_: None) -> StoreReport:
    """Verify a store.

    Parameters
    ----------
    store
        Another process may have it open, too: every stream is read in one transaction.
    progress
        Called with the name of a stream, the number of its events that are done, and of all of them.
    """
    # The marks are read before the log, so that no mark is younger than the log that it is compared with.
    marks: dict[int, int] = _read(store.read_acknowledged, {})
    problems = [Finding("structure", text) for text in store.find_damage()]  # which names what cannot be read below
    damaged: list[str] = _read(store.read_damaged_tokens, [])
    for name in damaged:
        problems.append(Finding("token", f"the token {name!r} does not match its checksum and is not accepted"))
    rows: list[StreamRow] = _read(store.read_streams, [])
    for number in sorted(set(marks) - {row.id for row in rows}):
        text = f"stream {number} is missing; it had {marks[number]} acknowledged events"
        problems.append(Finding("missing_stream", text))
    return StoreReport(problems, [_StreamCheck(store, row, marks.get(row.id), progress).check() for row in rows])


def _read(read: Callable[[], _T], default: _T) -> _T:
    """Return what ``read`` returns, or ``default`` where the file is damaged."""
    try:
        return read()
    except READ_ERRORS:
        return default


class _StreamCheck:
    """Verifies one stream."""

    def __init__(self, store: Store, row: StreamRow, acknowledged: int | None, progress: Progress) -> None:
        self._store, self._row, self._acknowledged, self._progress = store, row, acknowledged, progress
        self._report = StreamReport(str(row.name))
        self._requests: deque[bytes] = deque(maxlen=LAST_REQUESTS)
        self._counts: Counter[str] = Counter()  # of events that differ from their replay
        self._difference = ""  # the first of an outcome

    def check(self) -> StreamReport:
        try:
            with self._store.read_transaction():
                self._report.events = self._store.last_number(self._row.id)
                self._check_keys()
                self._check_mark()
                self._check_snapshot(self._replay())
        except ReplayError as error:
            self._add_problem("replay", str(error))
        except READ_ERRORS as error:
            self._add_problem("unreadable", f"stream {self._row.name!r}: cannot be read ({error})")
        self._sum_up()
        return self._report

    def _add_problem(self, code: str, text: str) -> None:
        self._report.problems.append(Finding(code, text))

    def _add_note(self, code: str, text: str) -> None:
        self._report.notes.append(Finding(code, text))

    def _check_keys(self) -> None:
        if keys := self._store.find_repeated_keys(self._row.id):
            names = ", ".join(map(repr, keys[:SHOWN])) + (", ..." if len(keys) > SHOWN else "")
            self._add_problem("repeated_keys", f"{len(keys)} keys were used by more than one request ({names})")

    def _check_mark(self) -> None:
        last = self._report.events
        if self._acknowledged is None:
            self._add_note("no_mark", "it has no mark: whether acknowledged events are missing is not known")
        elif self._acknowledged > last:
            text = f"events {last + 1} to {self._acknowledged} were acknowledged and are not in the log"
            self._add_problem("missing_events", f"{text} (a damaged write-ahead log, or a restored backup)")

    def _replay(self) -> Stream:
        """Replay the whole log, and compare every outcome."""
        stream, total = create_stream(self._row, self._store), self._report.events
        self._progress(stream.name, 0, total)
        try:
            for event in self._store.read_events(stream.id):
                arms = stream.differences
                self._compare(event, apply_event(stream, event), stream.differences > arms)
                self._progress(stream.name, event.number, total)
        except READ_ERRORS as error:
            raise ReplayError(stream.name, stream.number + 1, f"cannot be read ({error})") from None
        check_end(stream, self._store)
        return stream

    def _compare(self, event: Event, replayed: dict[str, Any], has_other_arm: bool) -> None:
        if event.kind == DECIDED and event.request is not None:
            self._requests.append(event.request)
        recorded = event.outcome
        if event.kind == LOST:
            text = f"events {event.number} to {recorded['acknowledged']} were acknowledged and then lost"
            self._add_note("lost", f"{text}; the new event {event.number} records this")
        agreement, name = compare_outcomes(recorded, replayed)
        if agreement is Agreement.EQUAL:
            return
        if has_other_arm:
            self._counts["arms"] += 1
        elif agreement is Agreement.ROUNDED:
            self._counts["rounding"] += 1
        else:
            self._counts["outcomes"] += 1
            values = f"{recorded.get(name)!r} was recorded, and the replay gives {replayed.get(name)!r}"
            self._difference = self._difference or f"event {event.number}: as {name!r}, {values}"

    def _check_snapshot(self, replayed: Stream) -> None:
        """Compare the state that a server would start from with the state after the replay."""
        try:
            snapshot = read_snapshot(self._row, self._store)
            if snapshot is None:
                return  # a server would do the same replay
            stream = Stream(self._row, self._store, snapshot)
        except (SnapshotError, sqlite3.DatabaseError) as error:
            self._add_problem("snapshot", f"its snapshot cannot be used ({error})")
            return
        except (ValueError, TypeError, KeyError) as error:
            self._add_note("other_version", f"this version does not read its snapshot ({error})")
            return
        for event in self._store.read_events(stream.id, after=stream.number):
            apply_event(stream, event)
        agreement, part = compare_streams(stream, replayed, self._requests)
        if agreement is Agreement.EQUAL:
            return
        text = f"the state differs from a replay of the log ({part})"
        # Where no parameter, vector or outcome differs, the bytes must not differ either.
        if agreement is Agreement.ROUNDED and (self._counts["rounding"] > 0 or part != "its bytes"):
            self._add_note("rounding", f"{text}, by rounding, as on another processor")
        else:
            self._add_problem("state", text)

    def _sum_up(self) -> None:
        """Report how many events differ from their replay, by code."""
        rounding, report = "outcomes differ from a replay by rounding, as on another processor", self._report
        for findings, code, text in (
            (report.problems, "arms", "decisions were recorded for which a replay prefers another arm"),
            (report.problems, "outcomes", f"recorded outcomes differ from a replay ({self._difference})"),
            (report.notes, "rounding", rounding),
        ):
            if self._counts[code]:
                findings.append(Finding(code, f"{self._counts[code]} {text}"))
