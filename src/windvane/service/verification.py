"""Verification: everything that a store says, checked against everything else that it says.

The file must be whole, every event must match its checksum, and a replay of the whole log must come to every outcome
that was recorded and to the state that a server would start from. A store can be verified beside the server that has
it.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from windvane.service.comparison import Agreement, compare_outcomes, compare_streams
from windvane.service.recovery import apply_event, check_end, create_stream, restore_snapshot
from windvane.service.store import DECIDED, LOST, READ_ERRORS, Event, SnapshotError, Store, StreamRow
from windvane.service.streams import ReplayError, Stream

LAST_REQUESTS = 20  # requests to decide whose vectors are compared: some rounds of every arm
SHOWN = 3  # keys that a message names

_T = TypeVar("_T")

Progress = Callable[[str, int, int], None]


@dataclass
class StreamVerdict:
    """What was found out about a stream. It is sound if there is no problem; notes are no faults."""

    stream: str
    events: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def document(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "events": self.events,
            "problem": "; ".join(self.problems) or None,
            "note": "; ".join(self.notes) or None,
        }


@dataclass
class Verdict:
    """What was found out about a store: problems of the file, and a verdict on every stream."""

    store: list[str]
    streams: list[StreamVerdict]

    @property
    def is_sound(self) -> bool:
        return not self.store and not any(stream.problems for stream in self.streams)

    @property
    def document(self) -> dict[str, Any]:
        return {"sound": self.is_sound, "store": self.store, "streams": [each.document for each in self.streams]}


def verify_store(store: Store, progress: Progress = lambda *_: None) -> Verdict:
    """Verify a store.

    Parameters
    ----------
    store
        May be open in another process, too: every stream is read in one transaction.
    progress
        Called with the name of a stream, the events of it that are done, and all of them.
    """
    # The marks are read before the log, so that no mark is younger than the log that it is compared with.
    marks: dict[int, int] = _read(store.read_acknowledged, {})
    problems = store.find_damage()  # which says what the others below cannot read
    names: list[str] = _read(store.read_damaged_tokens, [])
    problems += [f"the token {name!r} does not match its checksum, and is not accepted" for name in names]
    rows: list[StreamRow] = _read(store.read_streams, [])
    lost = sorted(set(marks) - {row.id for row in rows})
    problems += [f"stream {number} is missing; it had {marks[number]} acknowledged events" for number in lost]
    return Verdict(problems, [_StreamCheck(store, row, marks.get(row.id), progress).check() for row in rows])


def _read(read: Callable[[], _T], default: _T) -> _T:
    """Return what ``read`` returns, or ``default`` where the file is damaged."""
    try:
        return read()
    except READ_ERRORS:
        return default


class _StreamCheck:
    """Verifies one stream."""

    def __init__(self, store: Store, row: StreamRow, acknowledged: int | None, progress: Progress) -> None:
        self._store, self._row, self._acknowledged = store, row, acknowledged
        self._progress = progress
        self._verdict = StreamVerdict(str(row.name))
        self._requests: deque[bytes] = deque(maxlen=LAST_REQUESTS)
        self._other_arms = self._rounded = 0  # numbers of events
        self._different: list[str] = []

    def check(self) -> StreamVerdict:
        verdict = self._verdict
        try:
            with self._store.read_transaction():
                verdict.events = self._store.last_number(self._row.id)
                self._check_keys()
                self._check_mark()
                stream = self._replay()
                self._check_snapshot(stream)
        except ReplayError as error:
            verdict.problems.append(str(error))
        except READ_ERRORS as error:
            verdict.problems.append(f"stream {self._row.name!r}: cannot be read ({error})")
        self._sum_up()
        return verdict

    def _check_keys(self) -> None:
        keys = self._store.find_repeated_keys(self._row.id)
        if keys:
            names = ", ".join(map(repr, keys[:SHOWN])) + (", ..." if len(keys) > SHOWN else "")
            self._verdict.problems.append(f"{len(keys)} keys were used by more than one request ({names})")

    def _check_mark(self) -> None:
        last = self._verdict.events
        if self._acknowledged is None:
            self._verdict.notes.append("there is no mark of it: whether acknowledged events are missing is not known")
        elif self._acknowledged > last:
            self._verdict.problems.append(
                f"events {last + 1} to {self._acknowledged} were acknowledged and are not in the log "
                "(a damaged write-ahead log, or a restored backup)"
            )

    def _replay(self) -> Stream:
        """Replay the whole log, and compare every outcome."""
        stream = create_stream(self._row, self._store)
        total = self._verdict.events
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
            lost = f"events {event.number} to {recorded['acknowledged']} were acknowledged and then lost"
            self._verdict.notes.append(f"{lost}; the new event {event.number} records this")
        agreement, name = compare_outcomes(recorded, replayed)
        if agreement is Agreement.EQUAL:
            return
        if agreement is Agreement.ROUNDED and not has_other_arm:
            self._rounded += 1
        elif has_other_arm:
            self._other_arms += 1
        else:
            values = f"{recorded.get(name)!r} was recorded, and the replay gives {replayed.get(name)!r}"
            self._different.append(f"event {event.number}: as {name!r}, {values}")

    def _check_snapshot(self, replayed: Stream) -> None:
        """Compare the state that a server would start from with the state after the replay."""
        stream = create_stream(self._row, self._store)
        try:
            restore_snapshot(stream, self._store)
        except (SnapshotError, sqlite3.DatabaseError) as error:
            self._verdict.problems.append(f"its snapshot cannot be used ({error})")
            return
        except (ValueError, TypeError, KeyError) as error:
            self._verdict.notes.append(f"this version does not read its snapshot ({error})")
            return
        if stream.number == 0:
            return  # there is no snapshot: a server would do the same replay
        for event in self._store.read_events(stream.id, after=stream.number):
            apply_event(stream, event)
        agreement, what = compare_streams(stream, replayed, self._requests)
        if agreement is Agreement.EQUAL:
            return
        text = f"the state differs from a replay of the log ({what})"
        # Where no parameter, vector or outcome differs, the bytes must not differ either.
        if agreement is Agreement.ROUNDED and (self._rounded > 0 or what != "its bytes"):
            self._verdict.notes.append(f"{text}, by rounding, as on another processor")
        else:
            self._verdict.problems.append(text)

    def _sum_up(self) -> None:
        problems, notes = self._verdict.problems, self._verdict.notes
        if self._other_arms:
            problems.append(f"in {self._other_arms} rounds other arms would be chosen now than were recorded")
        if self._different:
            problems.append(f"{len(self._different)} recorded outcomes differ from a replay ({self._different[0]})")
        if self._rounded:
            notes.append(f"{self._rounded} outcomes differ from a replay by rounding, as on another processor")
