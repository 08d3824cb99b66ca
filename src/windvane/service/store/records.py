"""What stores hold and raise: streams, snapshots, tokens, the checksums of their rows, and errors.

Every table except the events ends with a column ``digest``, the SHA-256 of the other columns.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from windvane.errors import WindvaneError

if TYPE_CHECKING:
    from windvane.service.store.events import Event

T = TypeVar("T")
Value = str | float | bytes | None
"""What a column may hold."""

METRICS_ONLY = "metrics:"
"""What the hash of a token begins with that may only read the metrics."""

# --- errors ----------------------------------------------------------------------------------------------------------


class StoreError(WindvaneError):
    """A store cannot be used. ``where`` is its path or address without a password; ``problem`` says why and what to do.

    ``code`` is one of "no_folder", "no_store", "gone", "in_use", "unlockable", "unreadable", "not_a_store", "format",
    "hard_links", "repairing", "repair_failed", "not_migrated" and "damaged"; for copies also "exists", "not_copied" and
    "unsound"; for PostgreSQL also "unreachable", "refused", "no_standby", "name_taken" and "not_installed".
    """

    def __init__(self, where: Path | str, code: str, problem: str) -> None:
        self.where, self.code, self.problem = where, code, problem
        super().__init__(f"{where}: {problem}")


READ_ONLY, NO_RIGHT = "25006", "42501"  # SQLSTATE read_only_sql_transaction, insufficient_privilege


class DatabaseError(WindvaneError):
    """The database cannot be read or written now. ``sqlstate`` is PostgreSQL's code of the error, if it gave one."""

    def __init__(self, problem: str, sqlstate: str | None = None) -> None:
        super().__init__(problem)
        self.sqlstate = sqlstate

    @property
    def is_refusal(self) -> bool:
        """Whether the database is read-only, or the role lacks a privilege: waiting does not help."""
        return self.sqlstate in (READ_ONLY, NO_RIGHT)


class NoConnectionError(DatabaseError):
    """All connections of this process to the database were in use, for so long that nobody should wait for one.

    The database may be fine, and nothing was done.
    """


class StatementError(DatabaseError):
    """The database has answered that it cannot execute a statement, such as one about a table that was changed.

    Any other :class:`DatabaseError` says nothing about what it holds: it is away, or has ended the session.
    """


class DamageError(DatabaseError):
    """The file is inconsistent: a page, an index or a row was modified externally."""


class MisplacedError(DatabaseError):
    """The file is no longer at its path: new data would be lost."""


class FencedError(WindvaneError):
    """This node no longer owns the shards of ``streams`` (ids): nothing was written."""

    def __init__(self, streams: Collection[int]) -> None:
        self.streams = frozenset(streams)
        super().__init__(f"another node owns {len(self.streams)} of the streams")


class TooManyStreamsError(WindvaneError):
    """The store has ``most`` streams, which is the limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(f"the store has {most:,} streams, which is the limit")


class SnapshotError(WindvaneError, ValueError):
    """A snapshot that was changed, or does not belong to the log."""


STORE_ERRORS = (sqlite3.Error, DatabaseError)
"""What a store raises when it cannot be read or written."""
READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError, DamageError, StatementError)
"""What reading a damaged store raises. Names of columns are decoded by Python's own module, which may fail."""


def is_damage(error: BaseException) -> bool:
    """Whether ``error`` says that the file is damaged, and not merely busy, full or unreachable."""
    if isinstance(error, DamageError | UnicodeDecodeError):
        return True
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF  # extended codes keep the primary one in the low byte
    return primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def try_read(read: Callable[..., T], *arguments: Any) -> T | None:
    """Return the result of ``read``, or None if the store is damaged so that it cannot be read."""
    try:
        return read(*arguments)
    except READ_ERRORS:
        return None


# --- rows ------------------------------------------------------------------------------------------------------------


class StreamRow(NamedTuple):
    """A stream as it was created. ``digest`` is also where its chain of events starts."""

    id: int
    name: str
    created: float
    config: str
    digest: bytes = b""

    @property
    def is_sound(self) -> bool:
        """Whether the row matches its checksum."""
        return is_sealed("streams", self)


class Snapshot(NamedTuple):
    """The state of a stream after its event ``number``, whose chain value is ``chain``."""

    number: int
    chain: bytes
    agent: bytes
    extra: bytes


class Baseline(NamedTuple):
    """Where replays of a stream begin whose log is not whole.

    Events up to number ``removed`` are gone: ``removed_chain`` is the chain value of the last of them, ``first_time``
    and ``last_time`` are the times of the first and the last. Requests of later events, up to the one of ``snapshot``,
    may be erased.
    """

    snapshot: Snapshot
    removed: int
    removed_chain: bytes
    first_time: float | None
    last_time: float | None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Baseline:
        """Return the baseline of a row of the table; raise :class:`SnapshotError` if the row was changed."""
        if not is_sealed("baselines", row):
            raise SnapshotError("it does not match its checksum")
        return cls(Snapshot(*row[1:5]), *row[5:-1])

    def to_row(self, stream: int) -> tuple[Value, ...]:
        """Return the row of the table of baselines."""
        # Stores keep times as floating-point numbers, and -0.0 as 0: the checksum is that of what is read back.
        times = [None if time is None else float(time) + 0.0 for time in (self.first_time, self.last_time)]
        return seal_row("baselines", stream, *self.snapshot, self.removed, self.removed_chain, *times)


class Erasure(NamedTuple):
    """What is erased of a stream: events up to ``baseline.removed``, and the ``requests`` of events by number.

    A refit learned from events before it. The snapshot of the baseline must therefore be that of the last event: then
    no refit is replayed whose events were erased.
    """

    stream: int
    baseline: Baseline
    requests: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise ValueError if something would be erased that a replay from the baseline needs."""
        last = self.baseline.snapshot.number
        if not 0 <= self.baseline.removed <= last or not all(0 < number <= last for number in self.requests):
            raise ValueError(f"stream {self.stream}: only events up to number {last} can be erased")


class StreamImport(NamedTuple):
    """A stream that is being copied into a store: its row there, and functions that write what belongs to it.

    The row has the id of the original, unless that is taken. ``write_events``: takes events of ``row.id``, in order.
    ``write_states``: takes the snapshot and the baseline.
    """

    row: StreamRow
    write_events: Callable[[Sequence[Event]], None]
    write_states: Callable[[Snapshot | None, Baseline | None], None]


class Token(NamedTuple):
    """An access token: its name, the hash of its secret, and whether it may change anything.

    The hash of a token that may only read the metrics begins with :data:`METRICS_ONLY`. A version of windvane that does
    not know such tokens finds no secret with that hash, and refuses them.
    """

    name: str
    hash: str
    full: bool
    created: float

    @property
    def rights(self) -> str:
        """What the token may do: "full", "read" or "metrics"."""
        if self.hash.startswith(METRICS_ONLY):
            return "metrics"
        return "full" if self.full else "read"


# --- checksums -------------------------------------------------------------------------------------------------------


def digest_row(table: str, *values: Value) -> bytes:
    """Return the checksum of a row of ``table``: of its values, with ``(length,)`` in the place of bytes, and of these
    bytes."""
    plain: list[Any] = [table]
    content = b""
    for value in values:
        if isinstance(value, bytes):
            plain.append((len(value),))
            content += value
        else:
            plain.append(value)
    return hashlib.sha256(ascii(tuple(plain)).encode() + content).digest()


def seal_row(table: str, *values: Value) -> tuple[Value, ...]:
    """Return ``values`` followed by their checksum: a row of ``table``."""
    return *values, digest_row(table, *values)


def is_sealed(table: str, row: Sequence[Any]) -> bool:
    """Whether a row ends with the checksum of its other values."""
    return bool(row[-1] == digest_row(table, *row[:-1]))
