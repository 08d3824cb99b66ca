"""Copy or move streams between stores: SQLite files and PostgreSQL databases, in any combination.

A stream is copied completely, in one transaction of the target. It keeps its id if the target has no stream with that
id, and then every byte is the same. Otherwise it gets a new id. The id is part of all checksums, so they are computed
again. The original is verified before it is copied, and the copy before its transaction commits: the target never
contains a part of a stream, or a stream that was not verified.

A moved stream is removed from the source once its copy is durable. If the process ends in between, both stores have the
stream. Repeating the command finds that the target has all of its events, and removes it from the source.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windvane.service.log_copy import LogCopy
from windvane.service.store import (
    STORE_ERRORS,
    Event,
    OfflineStore,
    ReadableStore,
    Store,
    StoreError,
    StreamRow,
    Token,
    UnreadableEventError,
    is_postgres,
    open_store,
)
from windvane.service.verification import verify_stream

CHUNK, CHUNK_BYTES = 1000, 1 << 20
"""The limits of one write: the number of events, and the bytes of their requests and outcomes."""
KEEPALIVE_EVENTS = 10_000  # events verified between two queries that keep the source's transaction alive: about 2 s
MAX_NAMES = 5  # how many streams a message names

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StreamCopy:
    """A stream in the target. ``is_new``: whether this command copied it, not an earlier one that was interrupted.

    ``keeps_id``: whether it has the id of the original, and therefore the same checksums.
    """

    stream: str
    events: int
    is_new: bool
    keeps_id: bool


@dataclass
class CopyResult:
    """The streams that are in the target now, and the names of the tokens that were added to it.

    ``other_tokens``: the names of tokens that were not copied because the target has different tokens with these names.
    """

    source: str
    target: str
    has_moved: bool
    streams: list[StreamCopy] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    other_tokens: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def to_plain(self) -> dict[str, Any]:
        """Convert the result to JSON values."""
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
        Whether to remove each stream from the source once it is in the target.
    tokens
        Whether to copy the access tokens, and the setting that requests need one. Default: only if all streams are
        copied, so that a service never loses its protection by moving to another store.
    progress
        Called with the name of a step, the number of events done, and the total.

    Raises
    ------
    StoreError
        If a store cannot be used ("in_use": a server is using it; "format", "damaged": it would have to be migrated or
        repaired first), a stream is missing ("no_stream") or damaged ("unsound"), the target has a different stream of
        that name ("exists"), or copying fails ("not_copied"). Streams that were copied before the error remain.
    """
    began = time.monotonic()
    _refuse_same_store(source, target)
    _refuse_unsuitable(source)
    _refuse_unsuitable(target, may_be_missing=True)
    with contextlib.closing(_open_source(source, to_change=move)) as old:
        rows = _select_rows(old, names)
        with _raise_store_errors(old, old), old.hold():
            pass  # fail before the target is created if a server is using the source
        with contextlib.closing(open_store(target)) as new:
            transfer = _Transfer(old, new, progress)
            result = CopyResult(old.name, new.name, move)
            with _raise_store_errors(old, new):
                transfer.check(rows)
                if tokens if tokens is not None else not names:
                    result.tokens, result.other_tokens = transfer.copy_tokens()
                taken = {row.id: row.name for row in new.read_streams()}
                # Streams that need new ids come last, so that they do not get the ids of others.
                for row in sorted(rows, key=lambda row: taken.get(row.id, row.name) != row.name):
                    result.streams.append(transfer.copy(row, move=move))
    result.seconds = time.monotonic() - began
    return result


def _open_source(source: str | Path, *, to_change: bool) -> Store:
    """Open the source, read-only if its role may only read and nothing is to be changed."""
    try:
        return open_store(source, create=False)
    except StoreError as error:
        if to_change or error.code != "refused":
            raise
        return open_store(source, shared=True, create=False, read_only=True)


def _refuse_same_store(source: str | Path, target: str | Path) -> None:
    if is_postgres(source) or is_postgres(target):
        is_same = source == target  # the same database under another address is noticed when both are held
    else:
        is_same = Path(source).resolve() == Path(target).resolve()
    if is_same:
        where = "PostgreSQL" if is_postgres(target) else target
        raise StoreError(where, "in_use", "the source and the target are the same store")


def _refuse_unsuitable(where: str | Path, *, may_be_missing: bool = False) -> None:
    """Raise :class:`StoreError` if opening a store for writing would migrate or repair it.

    A command that copies streams must not do that as a side effect.
    """
    try:
        with contextlib.closing(open_store(where, shared=True, create=False, read_only=True)) as store:
            with _raise_store_errors(store, store):
                problems = store.find_damage(pages=False)
            if problems:
                problem = f"is damaged ({problems[0]}); `windvane serve` repairs it if possible"
                raise StoreError(store.name, "damaged", problem)
    except StoreError as error:
        if error.code == "format" and not is_postgres(where):
            hint = "keeps the old file; `windvane backup` writes a migrated copy and leaves this one as it is"
            raise StoreError(error.where, "format", f"{error.problem} and {hint}") from None
        if not (may_be_missing and error.code == "no_store"):
            raise


def _select_rows(store: ReadableStore, names: Sequence[str]) -> list[StreamRow]:
    """Return the streams with these names, or all, in the order in which they were created."""
    with _raise_store_errors(store, store):
        rows = store.read_streams()
    missing = sorted({*names} - {row.name for row in rows})
    if missing:
        raise StoreError(store.name, "no_stream", f"has no stream named {_list_names(missing)}")
    return [row for row in rows if not names or row.name in names]


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MAX_NAMES])) + (", ..." if len(names) > MAX_NAMES else "")


@contextlib.contextmanager
def _raise_store_errors(source: ReadableStore, target: ReadableStore) -> Iterator[None]:
    """Convert errors of a store to :class:`StoreError`."""
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
        """Raise if a server is using a store, or if the target has different streams with these names."""
        with self._source.hold(), self._target.hold():
            taken = [row.name for row in rows if not self._can_copy(row)]
        if taken:
            problem = f"has different streams with the same names: {_list_names(taken)}"
            raise StoreError(self._target.name, "exists", f"{problem}; delete them, or name the streams to copy")

    def _can_copy(self, row: StreamRow) -> bool:
        existing = self._target.find_stream(row.name)
        return existing is None or self._has_all(row, existing)

    def copy(self, row: StreamRow, *, move: bool) -> StreamCopy:
        """Copy a stream, unless the target already has it. If ``move`` is set, then remove it from the source."""
        with self._source.hold():
            if self._source.find_stream(row.name) != row:
                raise StoreError(self._source.name, "not_copied", f"the stream {row.name!r} has changed")
            self._verify(self._source, row, "verifying")
            with self._target.hold():
                existing = self._target.find_stream(row.name)
                copy = self._import(row) if existing is None else self._check_existing(row, existing)
            if move:
                self._source.remove_stream(row)
        return copy

    def _verify(self, store: OfflineStore, row: StreamRow, step: str) -> int:
        """Verify a stream and return the number of its events. Raise if it is damaged."""

        def note_progress(name: str, done: int, total: int) -> None:
            self._progress(f"{step} {name}", done, total)
            if done % KEEPALIVE_EVENTS == 0:
                self._source.find_stream(name)  # the database ends a transaction that is idle for long

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
            log = LogCopy(self._source, row, new.row, baseline)
            for events in _chunk(log.read_events(snapshot)):
                new.write_events(events)
                self._progress(f"copying {row.name}", events[-1].number, last)
            new.write_states(*log.convert_states(snapshot))
            number = self._verify(self._target, new.row, "verifying the copy of")
            return StreamCopy(row.name, number, is_new=True, keeps_id=new.row.id == row.id)

    def _check_existing(self, row: StreamRow, existing: StreamRow) -> StreamCopy:
        """Verify the copy that an interrupted command left, again: it may have been damaged since then."""
        if not self._has_all(row, existing):
            raise StoreError(self._target.name, "exists", f"has a different stream named {row.name!r}")
        number = self._verify(self._target, existing, "verifying the copy of")
        return StreamCopy(row.name, number, is_new=False, keeps_id=existing.id == row.id)

    def _has_all(self, row: StreamRow, existing: StreamRow) -> bool:
        """Return whether ``existing``, a stream of the target, begins with all events of the source."""
        baseline, other = self._source.read_baseline(row.id), self._target.read_baseline(existing.id)
        if row[1:4] != existing[1:4] or (baseline and baseline.removed) != (other and other.removed):
            return False
        copies = LogCopy(self._source, row, existing, baseline).read_events()
        events = self._target.read_events(existing.id)
        return all(copy == next(events, None) for copy in copies)

    def copy_tokens(self) -> tuple[list[str], list[str]]:
        """Copy the tokens. Return the names of those that were added, and of those that differ in the target."""
        with self._source.hold(), self._target.hold():
            source, target = self._source.tokens, self._target.tokens
            known = set(target.read())
            results = {token.name: target.add(token) for token in source.read() if token not in known}
            if source.are_required and not target.are_required:
                # All tokens of the source were removed, but authentication is still on. Turn it on here as well.
                name = secrets.token_hex(8)
                target.add(Token(name, name, False, 0.0))
                target.remove(name)
        return [name for name, is_new in results.items() if is_new], [name for name in results if not results[name]]


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
