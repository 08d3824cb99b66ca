"""Copy or move streams from one store to another: between files, between databases, or from one to the other.

A stream is copied with everything of it, in one transaction of the target, and keeps its id if that is free there: then
every byte is the same. Otherwise it gets a new id, which is part of all checksums, and these are computed again. The
original is verified before, and the copy before the transaction ends: a target never has a part of a stream, or one
that was not verified.

A stream is removed from the source once its copy is durable. If the process ends in between, both stores have it, and
a repetition finds that the target has all of its events and removes it from the source.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windvane.service.store import (
    STORE_ERRORS,
    Baseline,
    Event,
    OfflineStore,
    ReadableStore,
    Snapshot,
    StoreError,
    StreamRow,
    Token,
    UnreadableEventError,
    check_event,
    is_postgres,
    open_store,
)
from windvane.service.verification import verify_stream

CHUNK, CHUNK_BYTES = 1000, 1 << 20
"""Events that are written at once, and the bytes of their requests and outcomes after which no more are."""
QUIET_EVENTS = 10_000  # of the target that are verified without a look at the source: about two seconds
SHOWN = 5  # names of streams in a message

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StreamCopy:
    """A stream in the target. ``is_new``: whether it was copied now, and not by an earlier command that was stopped.

    ``keeps_id``: whether it has the id of the original, and so the same checksums.
    """

    stream: str
    events: int
    is_new: bool
    keeps_id: bool


@dataclass
class CopyResult:
    """The streams that are in the target now, and the names of the tokens that were added to it.

    ``other_tokens``: tokens that were not, because the target has others of these names.
    """

    source: str
    target: str
    has_moved: bool
    streams: list[StreamCopy] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    other_tokens: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        streams = [
            {"stream": copy.stream, "events": copy.events, "copied": copy.is_new, "same_id": copy.keeps_id}
            for copy in self.streams
        ]
        tokens = {"tokens": self.tokens, "other_tokens": self.other_tokens}
        places = {"source": self.source, "target": self.target, "moved": self.has_moved}
        return {**places, "streams": streams, **tokens, "seconds": self.seconds}


def copy_streams(
    source: str | Path,
    target: str | Path,
    names: Sequence[str] = (),
    *,
    move: bool = False,
    tokens: bool | None = None,
    progress: Progress = lambda *_: None,
) -> CopyResult:
    """Copy streams to another store, one after the other, and verify the originals and the copies.

    Parameters
    ----------
    source, target
        Paths of SQLite files or addresses of PostgreSQL databases. No server may use them. The target is created if it
        does not exist.
    names
        The streams; default: all.
    move
        Whether to remove every stream from the source once it is in the target.
    tokens
        Whether to copy the access tokens as well, and that requests need one. Default: if all streams are copied, so
        that a service never loses its protection by moving to another store.
    progress
        Called with the name of a step, the number of events done, and the total.

    Raises
    ------
    StoreError
        If a store cannot be used ("in_use": a server uses it; "format", "damaged": it would have to be migrated or
        repaired first), a stream is missing ("no_stream") or not sound
        ("unsound"), the target has another stream of that name ("exists"), or copying fails ("not_copied"). The streams
        before that one are in the target.
    """
    began = time.monotonic()
    _refuse_same_store(source, target)
    _refuse_unsuitable(source)
    _refuse_unsuitable(target, may_be_missing=True)
    with contextlib.closing(open_store(source, create=False)) as old:
        rows = _choose(old, names)
        with _name_errors(old, old), old.hold():
            pass  # or the target would be created although the source is served
        with contextlib.closing(open_store(target)) as new:
            transfer = _Transfer(old, new, progress)
            result = CopyResult(old.name, new.name, move)
            with _name_errors(old, new):
                transfer.check(rows)
                if tokens if tokens is not None else not names:
                    result.tokens, result.other_tokens = transfer.copy_tokens()
                taken = {row.id: row.name for row in new.read_streams()}
                # Those that need new ids come last: they must not get the ids of others.
                for row in sorted(rows, key=lambda row: taken.get(row.id, row.name) != row.name):
                    result.streams.append(transfer.copy(row, move=move))
    result.seconds = time.monotonic() - began
    return result


def _refuse_same_store(source: str | Path, target: str | Path) -> None:
    if is_postgres(source) or is_postgres(target):
        is_same = source == target  # other spellings are noticed when both are to be held
    else:
        is_same = Path(source).resolve() == Path(target).resolve()
    if is_same:
        where = "PostgreSQL" if is_postgres(target) else target
        raise StoreError(where, "in_use", "the source and the target are the same store")


def _refuse_unsuitable(where: str | Path, *, may_be_missing: bool = False) -> None:
    """Raise :class:`StoreError` if a store would be migrated or repaired when it is opened to be changed: a command
    that copies streams must not do that unasked."""
    try:
        with contextlib.closing(open_store(where, shared=True, create=False, read_only=True)) as store:
            with _name_errors(store, store):
                problems = store.find_damage(pages=False)
            if problems:
                problem = f"is damaged ({problems[0]}); `windvane serve` repairs it, if it can be"
                raise StoreError(store.name, "damaged", problem)
    except StoreError as error:
        if error.code == "format" and not is_postgres(where):
            hint = "keeps the old file; `windvane backup` writes a migrated copy and leaves this one as it is"
            raise StoreError(error.where, "format", f"{error.problem} and {hint}") from None
        if not (may_be_missing and error.code == "no_store"):
            raise


def _choose(store: ReadableStore, names: Sequence[str]) -> list[StreamRow]:
    """Return the streams with these names, or all, in the order in which they were created."""
    with _name_errors(store, store):
        rows = store.read_streams()
    missing = sorted({*names} - {row.name for row in rows})
    if missing:
        raise StoreError(store.name, "no_stream", f"has no stream named {_list_names(missing)}")
    return [row for row in rows if not names or row.name in names]


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")


@contextlib.contextmanager
def _name_errors(source: ReadableStore, target: ReadableStore) -> Iterator[None]:
    """Turn errors of a store into :class:`StoreError`."""
    try:
        yield
    except (UnreadableEventError, *STORE_ERRORS) as error:
        where = source.name if source is target else f"{source.name} and {target.name}"
        raise StoreError(where, "not_copied", f"could not be read or written ({error})") from None


class _Transfer:
    """Copies streams from ``source`` to ``target``."""

    def __init__(self, source: OfflineStore, target: OfflineStore, progress: Progress) -> None:
        self._source, self._target, self._progress = source, target, progress

    def check(self, rows: Sequence[StreamRow]) -> None:
        """Raise if a store is served, or the target has other streams of these names."""
        with self._source.hold(), self._target.hold():
            taken = [row.name for row in rows if not self._is_possible(row)]
        if taken:
            problem = f"has other streams of the same name: {_list_names(taken)}"
            raise StoreError(self._target.name, "exists", f"{problem}; delete them, or name the streams to copy")

    def _is_possible(self, row: StreamRow) -> bool:
        there = self._target.find_stream(row.name)
        return there is None or self._has_all(row, there)

    def copy(self, row: StreamRow, *, move: bool) -> StreamCopy:
        """Copy a stream, unless the target has it, and remove it from the source if it is moved."""
        with self._source.hold():
            if self._source.find_stream(row.name) != row:
                raise StoreError(self._source.name, "not_copied", f"the stream {row.name!r} was changed meanwhile")
            self._verify(self._source, row, "verifying")
            with self._target.hold():
                there = self._target.find_stream(row.name)
                copy = self._import(row) if there is None else self._find(row, there)
            if move:
                self._source.remove_stream(row)
        return copy

    def _verify(self, store: OfflineStore, row: StreamRow, step: str) -> int:
        """Return the number of events; raise if the stream is not sound."""

        def note_progress(name: str, done: int, total: int) -> None:
            self._progress(f"{step} {name}", done, total)
            if done % QUIET_EVENTS == 0:
                self._source.find_stream(name)  # a database ends a transaction in which nothing happens for long

        report = verify_stream(store, row, note_progress)
        if report.problems:
            problem = f"the stream {row.name!r} is not sound ({report.problems[0].text}); run `windvane verify`"
            raise StoreError(store.name, "unsound", problem)
        return report.events

    def _import(self, row: StreamRow) -> StreamCopy:
        """Add a stream to the target, and verify it before it is stored."""
        snapshot, baseline = self._source.read_snapshot(row.id), self._source.read_baseline(row.id)
        last = self._source.last_number(row.id)
        with self._target.import_stream(row) as new:
            log = _LogCopy(self._source, row, new.row, baseline)
            for events in _chunk(log.read_events(snapshot)):
                new.write_events(events)
                self._progress(f"copying {row.name}", events[-1].number, last)
            new.write_states(*log.convert_states(snapshot))
            number = self._verify(self._target, new.row, "verifying the copy of")
            return StreamCopy(row.name, number, is_new=True, keeps_id=new.row.id == row.id)

    def _find(self, row: StreamRow, there: StreamRow) -> StreamCopy:
        """Return the stream of an earlier copy, which was stopped; it was verified, but may have been damaged since."""
        if not self._has_all(row, there):
            raise StoreError(self._target.name, "exists", f"has another stream named {row.name!r}")
        number = self._verify(self._target, there, "verifying the copy of")
        return StreamCopy(row.name, number, is_new=False, keeps_id=there.id == row.id)

    def _has_all(self, row: StreamRow, there: StreamRow) -> bool:
        """Return whether the stream ``there`` begins with all events of the source."""
        baseline, other = self._source.read_baseline(row.id), self._target.read_baseline(there.id)
        if row[1:4] != there[1:4] or (baseline and baseline.removed) != (other and other.removed):
            return False
        copies = _LogCopy(self._source, row, there, baseline).read_events()
        events = self._target.read_events(there.id)
        return all(copy == next(events, None) for copy in copies)

    def copy_tokens(self) -> tuple[list[str], list[str]]:
        """Return the names of the tokens that were added, and of those for which the target has another one."""
        with self._source.hold(), self._target.hold():
            source, target = self._source.tokens, self._target.tokens
            known = set(target.read())
            results = {token.name: target.add(token) for token in source.read() if token not in known}
            if source.are_required and not target.are_required:
                # All tokens of the source were removed, which does not turn authentication off.
                name = secrets.token_hex(8)
                target.add(Token(name, name, False, 0.0))
                target.remove(name)
        return [name for name, is_new in results.items() if is_new], [name for name in results if not results[name]]


class _LogCopy:
    """The log of the stream ``row`` as that of the stream ``copy``, which may have another id."""

    def __init__(self, source: ReadableStore, row: StreamRow, copy: StreamRow, baseline: Baseline | None) -> None:
        self._source, self._row, self._copy, self._baseline = source, row, copy, baseline
        # Where events were removed, the chain continues with a value that cannot be computed again, and need not be.
        self._start = (row.digest, copy.digest)
        if baseline is not None and baseline.removed > 0:
            self._start = (baseline.removed_chain, baseline.removed_chain)
        self._chains: dict[int, bytes] = {}  # new chain values, by the numbers of events that have a state

    def read_events(self, snapshot: Snapshot | None = None) -> Iterator[Event]:
        """Yield the events of the copy. The originals must match their checksums, or damage would be sealed."""
        old, new = self._start
        states = [state for state in (snapshot, self._baseline and self._baseline.snapshot) if state is not None]
        numbers = {state.number for state in states}
        self._chains[self._baseline.removed if self._baseline else 0] = new
        for event in self._source.read_events(self._row.id):
            check_event(old, event)
            copy = event if self._copy == self._row else event.copy_to(self._copy.id, new)
            old, new = event.chain, copy.chain
            if event.number in numbers:
                self._chains[event.number] = new
            yield copy

    def convert_states(self, snapshot: Snapshot | None) -> tuple[Snapshot | None, Baseline | None]:
        """Return the snapshot and the baseline of the copy, once its events were read."""
        return None if snapshot is None else self._convert(snapshot), self._convert_baseline()

    def _convert_baseline(self) -> Baseline | None:
        if self._baseline is None:
            return None
        snapshot = self._convert(self._baseline.snapshot)
        chain = self._start[1] if self._baseline.removed_chain == self._start[0] else self._baseline.removed_chain
        return self._baseline._replace(snapshot=snapshot, removed_chain=chain)

    def _convert(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.number not in self._chains:
            raise UnreadableEventError(snapshot.number, "is missing")
        return snapshot._replace(chain=self._chains[snapshot.number])


def _chunk(events: Iterable[Event]) -> Iterator[list[Event]]:
    chunk: list[Event] = []
    size = 0
    for event in events:
        chunk.append(event)
        size += event.size
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
