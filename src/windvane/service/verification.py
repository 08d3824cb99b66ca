"""Verification: check a store against itself.

The file must be intact, every event must match its checksum, and a replay of the whole log must give every recorded
outcome and the state from which a server would start: numbers computed by the model up to rounding, everything else
exactly. The replay of a log that is not whole begins at its baseline; the checksums of the events that are left before
it are checked. A store can be verified beside the server that uses it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from windvane.records import to_datetime, to_plain
from windvane.service.baselines import read_baseline
from windvane.service.recovery import apply_event, begin_stream, check_end, read_snapshot
from windvane.service.state_comparison import (
    DIFFERENT,
    EQUAL,
    ROUNDED,
    compare_models,
    compare_outcomes,
    compare_snapshots,
    find_worst,
)
from windvane.service.store import (
    READ_ERRORS,
    Baseline,
    Event,
    ReadableStore,
    SnapshotError,
    StreamRow,
    UnreadableEventError,
    VerifiableStore,
    check_event,
    try_read,
)
from windvane.service.store import events as kinds
from windvane.service.stream_state import ReplayError
from windvane.service.streams import Stream

LAST_REQUESTS = 20  # requests to decide whose vectors are compared: some rounds of every arm
SHOWN = 3  # keys that a message names
NOTES = ("lost", "no_mark", "other_version", "rounding", "removed", "erased")  # codes of findings that are no problems

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """A problem or a note: a code, and a sentence."""

    code: str
    text: str


@dataclass
class StreamReport:
    """The findings about a stream. Notes are not problems."""

    stream: str
    events: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    def add(self, code: str, text: str) -> None:
        """Add a problem, or a note if the code is one of :data:`NOTES`."""
        (self.notes if code in NOTES else self.problems).append(Finding(code, text))


@dataclass
class StoreReport:
    """The findings about a store: problems of the file, and a report on every stream."""

    problems: list[Finding]
    streams: list[StreamReport]

    @property
    def is_sound(self) -> bool:
        """Whether there is no problem."""
        return next(self.list_problems(), None) is None

    def list_problems(self) -> Iterator[Finding]:
        """Yield the problems of the file and of all streams."""
        yield from self.problems
        for stream in self.streams:
            yield from stream.problems

    def to_plain(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"sound": self.is_sound, **asdict(self)}


def verify_store(store: VerifiableStore, progress: Progress = lambda *_: None) -> StoreReport:
    """Verify a store.

    Parameters
    ----------
    store
        Another process may also have it open: every stream is read in one transaction.
    progress
        Called with the name of a stream, the number of events done, and the total.

    Raises
    ------
    DatabaseError
        If the database goes away meanwhile, which says nothing about what it holds.
    """
    # The marks are read before the log, so that no mark is newer than the log that it is compared with.
    marks = _read_marks(store)
    problems = [Finding("structure", text) for text in store.find_damage()]  # rows may be unreadable below
    tokens, rows = try_read(store.tokens.read_damaged), try_read(store.read_streams)
    if (tokens is None or rows is None) and not problems:  # an unreachable database must not pass for an empty one
        problems.append(Finding("structure", "its tokens or its streams cannot be read"))
    for name in tokens or ():
        problems.append(Finding("token", f"the token {name!r} does not match its checksum and is not accepted"))
    for number in sorted({*(marks or ())} - {row.id for row in rows or ()}):
        text = f"stream {number} is missing; it had {(marks or {})[number]} acknowledged events"
        problems.append(Finding("missing_stream", text))
    return StoreReport(problems, [_StreamCheck(store, row, marks, progress).check() for row in rows or ()])


def verify_stream(store: VerifiableStore, row: StreamRow, progress: Progress = lambda *_: None) -> StreamReport:
    """Verify one stream of a store, without its mark."""
    return _StreamCheck(store, row, None, progress).check()


def _read_marks(store: ReadableStore) -> dict[int, int] | None:
    """Return the last acknowledged event by stream, None for a store without marks. Unreadable ones are missing."""
    try:
        return store.read_acknowledged()
    except READ_ERRORS:
        return {}


class _StreamCheck:
    """Verifies one stream. ``marks``: the last acknowledged events by stream; None: they are not looked at."""

    def __init__(
        self, store: VerifiableStore, row: StreamRow, marks: Mapping[int, int] | None, progress: Progress
    ) -> None:
        self._store, self._row, self._marks, self._progress = store, row, marks, progress
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
                if (baseline := read_baseline(self._row, self._store)) is not None:
                    self._check_start(baseline)
                self._check_snapshot(self._replay())
        except SnapshotError as error:
            self._report.add("baseline", f"its baseline cannot be used ({error})")
        except ReplayError as error:
            self._report.add("replay", str(error))
        except READ_ERRORS as error:
            self._report.add("unreadable", f"stream {self._row.name!r}: cannot be read ({error})")
        self._sum_up()
        return self._report

    def _check_keys(self) -> None:
        if keys := self._store.find_repeated_keys(self._row.id):
            names = ", ".join(map(repr, keys[:SHOWN])) + (", ..." if len(keys) > SHOWN else "")
            self._report.add("repeated_keys", f"{len(keys)} keys were used by more than one request ({names})")

    def _check_mark(self) -> None:
        if self._marks is None:
            return
        last, acknowledged = self._report.events, self._marks.get(self._row.id)
        if acknowledged is None:
            self._report.add("no_mark", "it has no mark: whether acknowledged events are missing is not known")
        elif acknowledged > last:
            text = f"{_name_events(last + 1, acknowledged)} acknowledged, and missing in the log"
            self._report.add("missing_events", f"{text} (a damaged write-ahead log, or a restored backup)")

    def _check_start(self, baseline: Baseline) -> None:
        """Check the events that are left before the baseline, and report what was erased."""
        number, last, erased = baseline.removed, baseline.snapshot.number, 0
        chain = baseline.removed_chain if number else self._row.digest
        try:
            for event in self._store.read_events(self._row.id, limit=last - number):
                if event.number != number + 1:
                    raise ReplayError(self._row.name, event.number, f"follows event {number}")
                check_event(chain, event)
                number, chain = event.number, event.chain
                erased += event.request is None and event.request_digest is not None
                self._progress(self._row.name, number, self._report.events)
        except UnreadableEventError as error:
            raise ReplayError(self._row.name, error.number, error.problem) from None
        except READ_ERRORS as error:
            raise ReplayError(self._row.name, number + 1, f"cannot be read ({error})") from None
        if number < last:
            raise ReplayError(self._row.name, number + 1, "cannot be read")
        if baseline.removed > 0:
            times = [to_plain(to_datetime(time)) for time in (baseline.first_time or 0.0, baseline.last_time or 0.0)]
            text = f"{_name_events(1, baseline.removed)} removed ({' to '.join(times)})"
            self._report.add("removed", f"{text}; the replay begins after event {last}")
        if erased > 0:
            requests = "1 request was" if erased == 1 else f"{erased} requests were"
            self._report.add("erased", f"{requests} erased; the replay begins after event {last}")

    def _replay(self) -> Stream:
        """Replay the log, from its baseline if it is not whole, and compare every outcome."""
        stream, total = begin_stream(self._row, self._store), self._report.events
        self._progress(stream.name, stream.number, total)
        try:
            for event in self._store.read_events(stream.id, after=stream.number):
                arms = stream.differences
                self._compare(event, apply_event(stream, event), stream.differences > arms)
                self._progress(stream.name, event.number, total)
        except READ_ERRORS as error:
            raise ReplayError(stream.name, stream.number + 1, f"cannot be read ({error})") from None
        check_end(stream, self._store)
        return stream

    def _compare(self, event: Event, replayed: dict[str, Any], has_other_arm: bool) -> None:
        if event.kind == kinds.DECIDED and event.request is not None:
            self._requests.append(event.request)
        if event.kind in (kinds.CONFIGURED, kinds.REFITTED, kinds.REFIT_UNDONE):
            self._requests.clear()  # other features may not encode what was requested before
        recorded = event.outcome
        if event.kind == kinds.LOST:
            text = f"{_name_events(event.number, recorded['acknowledged'])} acknowledged and then lost"
            self._report.add("lost", f"{text}; the new event {event.number} records this")
        agreement, name = compare_outcomes(recorded, replayed)
        if agreement == EQUAL:
            return
        code = "arms" if has_other_arm else "rounding" if agreement == ROUNDED else "outcomes"
        self._counts[code] += 1
        if code == "outcomes" and not self._difference:
            values = f"{recorded.get(name)!r} was recorded, and the replay gives {replayed.get(name)!r}"
            self._difference = f"event {event.number}: as {name!r}, {values}"

    def _check_snapshot(self, replayed: Stream) -> None:
        """Compare the state that a server would start from with the state after the replay."""
        try:
            snapshot = read_snapshot(self._row, self._store)
            if snapshot is None:
                return  # a server would do the same replay
            stream = Stream(self._row, self._store, snapshot)
        except (SnapshotError, *READ_ERRORS) as error:
            return self._report.add("snapshot", f"its snapshot cannot be used ({error})")
        except (ValueError, TypeError, KeyError) as error:
            return self._report.add("other_version", f"this version does not read its snapshot ({error})")
        for event in self._store.read_events(stream.id, after=stream.number):
            apply_event(stream, event)
        first, second = stream.snapshot(), replayed.snapshot()
        if first == second:
            return
        model = compare_models(stream, replayed, self._requests)
        agreement, part = find_worst([model, compare_snapshots(first, second)])
        text = f"the state differs from a replay of the log ({part or 'its bytes'})"
        # Where no parameter, vector or outcome differs, the bytes must not differ either.
        if agreement != DIFFERENT and (model[0] == ROUNDED or self._counts["rounding"]):
            self._report.add("rounding", f"{text}, by rounding, as on another processor")
        else:
            self._report.add("state", text)

    def _sum_up(self) -> None:
        """Report how many events differ from their replay, by code."""
        for code, text in {
            "arms": "decisions were recorded for which a replay prefers another arm",
            "outcomes": f"recorded outcomes differ from a replay ({self._difference})",
            "rounding": "outcomes differ from a replay by rounding, as on another processor",
        }.items():
            if self._counts[code]:
                self._report.add(code, f"{self._counts[code]} {text}")


def _name_events(first: int, last: int) -> str:
    """Return "event 1 was" or "events 1 to 5 were"."""
    return f"event {first} was" if first == last else f"events {first} to {last} were"
