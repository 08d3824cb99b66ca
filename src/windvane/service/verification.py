"""Verification: check a store against itself.

The file must be intact, every event must match its checksum, and a replay of the whole log must give every recorded
outcome and the state from which a server would start: numbers computed by the model up to rounding, everything else
exactly. A store can be verified beside the server that uses it.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from windvane.agent.archive import read_archive
from windvane.service.recovery import apply_event, check_end, create_stream, read_snapshot
from windvane.service.store import READ_ERRORS, STORE_ERRORS, Event, Snapshot, SnapshotError, Store, StreamRow, try_read
from windvane.service.store import events as kinds
from windvane.service.stream_state import ReplayError
from windvane.service.streams import Stream

ROUNDING = 1e-9
"""Relative difference that is attributed to rounding. Processors differ by about 1e-16 per operation, which adds up to
about 1e-10 over the 1e6 operations of a long stream. This leaves a factor of ten."""
LAST_REQUESTS = 20  # requests to decide whose vectors are compared: some rounds of every arm
SHOWN = 3  # keys that a message names
NOTES = ("lost", "no_mark", "other_version", "rounding")  # codes of findings that are no problems

EQUAL, ROUNDED, DIFFERENT = range(3)  # how well two values agree
_SCORES = ("prediction", "bonus", "rival_score")  # sums and differences of each other: one size for all of them
_COMPUTED = (*_SCORES, "propensity")  # numbers of an outcome that the model computes; all others are exact
_EXACT_ARRAYS = ("pending/round", "pending/time", "pending/reward", "pending/delay")
_SOLVER_STATE = ("checksum", "passes", "status")
"""Last parts of the names of arrays of a policy that rounding changes altogether: the checksum of the others, and how
far an iterative solution has come."""

Comparison = tuple[int, str]  # how well two things agree, and the name of the part that agrees least
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


def verify_store(store: Store, progress: Progress = lambda *_: None) -> StoreReport:
    """Verify a store.

    Parameters
    ----------
    store
        Another process may also have it open: every stream is read in one transaction.
    progress
        Called with the name of a stream, the number of events done, and the total.
    """
    # The marks are read before the log, so that no mark is newer than the log that it is compared with.
    marks = _read_marks(store)
    problems = [Finding("structure", text) for text in store.find_damage()]  # rows may be unreadable below
    for name in try_read(store.read_damaged_tokens) or ():
        problems.append(Finding("token", f"the token {name!r} does not match its checksum and is not accepted"))
    rows = try_read(store.read_streams)
    if rows is None and not problems:  # a database that has just become unreachable must not pass for an empty one
        problems.append(Finding("structure", "the streams cannot be read"))
    for number in sorted({*(marks or ())} - {row.id for row in rows or ()}):
        text = f"stream {number} is missing; it had {(marks or {})[number]} acknowledged events"
        problems.append(Finding("missing_stream", text))
    return StoreReport(problems, [_StreamCheck(store, row, marks, progress).check() for row in rows or ()])


def verify_stream(store: Store, row: StreamRow, progress: Progress = lambda *_: None) -> StreamReport:
    """Verify one stream of a store, without its mark."""
    return _StreamCheck(store, row, None, progress).check()


def _read_marks(store: Store) -> dict[int, int] | None:
    """Return the last acknowledged event by stream, None for a store without marks. Unreadable ones are missing."""
    try:
        return store.read_acknowledged()
    except READ_ERRORS:
        return {}


class _StreamCheck:
    """Verifies one stream. ``marks``: the last acknowledged events by stream; None: they are not looked at."""

    def __init__(self, store: Store, row: StreamRow, marks: Mapping[int, int] | None, progress: Progress) -> None:
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
                self._check_snapshot(self._replay())
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
            text = f"events {last + 1} to {acknowledged} were acknowledged and are not in the log"
            self._report.add("missing_events", f"{text} (a damaged write-ahead log, or a restored backup)")

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
        if event.kind == kinds.DECIDED and event.request is not None:
            self._requests.append(event.request)
        if event.kind in (kinds.CONFIGURED, kinds.REFITTED, kinds.REFIT_UNDONE):
            self._requests.clear()  # other features may not encode what was requested before
        recorded = event.outcome
        if event.kind == kinds.LOST:
            text = f"events {event.number} to {recorded['acknowledged']} were acknowledged and then lost"
            self._report.add("lost", f"{text}; the new event {event.number} records this")
        agreement, name = _compare_outcomes(recorded, replayed)
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
        except (SnapshotError, *STORE_ERRORS) as error:
            return self._report.add("snapshot", f"its snapshot cannot be used ({error})")
        except (ValueError, TypeError, KeyError) as error:
            return self._report.add("other_version", f"this version does not read its snapshot ({error})")
        for event in self._store.read_events(stream.id, after=stream.number):
            apply_event(stream, event)
        first, second = stream.snapshot(), replayed.snapshot()
        if first == second:
            return
        model = _compare_models(stream, replayed, self._requests)
        agreement, part = _find_worst([model, _compare_snapshots(first, second)])
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


# --- comparing -------------------------------------------------------------------------------------------------------


def _find_worst(comparisons: Iterable[Comparison]) -> Comparison:
    return max(comparisons, key=lambda comparison: comparison[0], default=(EQUAL, ""))


def _compare_numbers(first: Any, second: Any, scale: float = 0.0) -> int:
    """Compare numbers or arrays. ``scale``: the size of what they were computed from, where it may be larger."""
    if np.array_equal(first, second, equal_nan=True):
        return EQUAL
    if np.shape(first) != np.shape(second):
        return DIFFERENT
    sizes = np.abs([first, second])
    tolerance = ROUNDING * sizes[np.isfinite(sizes)].max(initial=scale)
    return ROUNDED if np.allclose(first, second, rtol=0.0, atol=tolerance, equal_nan=True) else DIFFERENT


def _compare_outcomes(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> Comparison:
    """Return how well two outcomes of an event agree, and the name of the field that agrees least."""
    values = {name: (recorded.get(name), replayed.get(name)) for name in sorted({*recorded, *replayed})}
    scores = [value for name in _SCORES for value in values.get(name, ()) if isinstance(value, float)]
    scale = max(map(abs, scores), default=0.0)
    comparisons = []
    for name, (first, second) in values.items():
        if name in _COMPUTED and isinstance(first, float) and isinstance(second, float):
            comparisons.append((_compare_numbers(first, second, scale), name))
        elif json.dumps(first) != json.dumps(second):
            comparisons.append((DIFFERENT, name))
    return _find_worst(comparisons)


def _compare_models(first: Stream, second: Stream, requests: Iterable[bytes]) -> Comparison:
    """Compare two states by the names of features: their parameters, and the vectors that ``requests`` to decide are
    encoded to."""
    names, others = first.core.feature_names, second.core.feature_names
    if sorted(names) != sorted(others):
        return DIFFERENT, "the names of its features"
    columns, theta = [names.index(name) for name in others], second.core.theta
    scale = np.abs(theta).max(initial=0.0)
    comparisons = [
        (_compare_numbers(value, other, scale), f"the parameter of {name}")
        for name, value, other in zip(others, first.core.theta[columns], theta, strict=True)
    ]
    for request in requests:
        offer, other = first.read_offer(request), second.read_offer(request)
        is_same = offer.names == other.names
        agreement = _compare_numbers(offer.vectors[:, columns], other.vectors) if is_same else DIFFERENT
        comparisons.append((agreement, "the vectors of the last requests"))
    return _find_worst(comparisons)


def _compare_snapshots(first: Snapshot, second: Snapshot) -> Comparison:
    """Compare all that two snapshots hold: only numbers that the model computes may be rounded."""
    (exact, computed), (other_exact, other_computed) = _list_parts(first), _list_parts(second)
    for name in sorted({*exact, *other_exact}):
        if exact.get(name) != other_exact.get(name):
            return DIFFERENT, name
    scales = {"fitted": 1.0, "reward_total": 1.0}  # they may be zero but for rounding
    return _find_worst(
        (_compare_numbers(value, other_computed[name], scales.get(name, 0.0)), name) for name, value in computed.items()
    )


def _list_parts(snapshot: Snapshot) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what a snapshot holds, by name: as text what must be the same, and numbers that may be rounded.

    Of the numbers of a policy only their places must be the same: some are residuals, which are nothing but rounding.
    What counts of them is in its parameters.
    """
    document, arrays = read_archive(snapshot.agent, "snapshot")
    fitted: list[str] = []  # numbers of features and scaling
    settings = {name: document["settings"].pop(name) for name in ("features", "scaling")}
    document["fitted"] = json.loads(json.dumps(settings), parse_float=fitted.append)
    computed = {"fitted": np.array(fitted, dtype=float), "reward_total": document["tally"].pop("reward_total")}
    exact = {"event": snapshot[:2], **json.loads(snapshot.extra), **document}
    columns = {f"{name}/{field}": array[field] for name, array in arrays.items() for field in array.dtype.names or ()}
    plain = {name: array for name, array in arrays.items() if array.dtype.names is None}
    for name, array in (plain | columns).items():
        exact[f"{name} (type)"] = array.dtype.str, array.shape
        is_computed = array.dtype.kind == "f" and name not in _EXACT_ARRAYS
        if is_computed and not name.startswith("policy/"):
            computed[name] = array
        elif not name.endswith(_SOLVER_STATE):
            exact[name] = (np.isfinite(array) if is_computed else array).tolist()
    return {name: ascii(value) for name, value in exact.items()}, computed
