"""What the service needs of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from windvane.service.store.events import Event
from windvane.service.store.records import Baseline, Erasure, Snapshot, StreamImport, StreamRow, Token

NO_EPOCHS: Mapping[int, int] = {}


class Store(Protocol):
    """A store that is open. Any thread may use it; events are written by one thread at a time.

    The methods raise one of :data:`windvane.service.store.STORE_ERRORS` if the store cannot be read or written.

    Attributes
    ----------
    name : str
        The path, or the address without a password, for messages.
    is_remote : bool
        Whether reading takes so long that the event loop must not wait for it.
    is_checked : bool
        Whether the structure was checked for damage.
    """

    name: str
    is_remote: bool
    is_checked: bool

    def open(self) -> None:
        """Open a store that could not be reached when this object was made; do nothing if it is open."""

    def close(self) -> None:
        """Close the store."""

    # --- its state ---

    def check_in_place(self) -> None:
        """Raise :class:`windvane.service.store.MisplacedError` if the store is no longer where it was."""

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return the problems with the structure; ``pages``: look at everything, which takes long."""

    def repair(self, *, pages: bool = True) -> list[str]:
        """Check the structure and rebuild it if it is damaged and can be rebuilt; return the problems."""

    def measure(self) -> dict[str, float]:
        """Return sizes in bytes by name, those that are known."""

    def read_transaction(self) -> AbstractContextManager[None]:
        """Hold a read transaction in this thread: concurrent writes are not visible until it ends."""

    # --- events and snapshots ---

    def append(
        self,
        events: Sequence[Event],
        snapshots: Iterable[tuple[int, Snapshot]] = (),
        erasures: Iterable[Erasure] = (),
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Store events, snapshots by stream, and erasures: durable when this returns, or none of them.

        ``epochs``: by stream, the epoch of its shard in which the events were made, in a cluster. Raises
        :class:`windvane.service.store.FencedError` if one is over.
        """

    def purge(self) -> bool:
        """Delete what is left of erased data outside the tables; return whether nothing is left.

        :meth:`append` and :meth:`remove_stream` call it, and readers may hold it back: call it until it returns True.
        """

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""

    def events_of_decision(self, stream: int, decision: str) -> list[Event]:
        """Return all events of a decision, in order."""

    def event_with_key(self, stream: int, key: str) -> Event | None:
        """Return the event of the request with this Idempotency-Key."""

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events with these keys, and those of these decisions, by stream and in order."""

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row; after the last one that was removed, it is that of the baseline."""

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that several events have."""

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the last snapshot; raise :class:`windvane.service.store.SnapshotError` if it was changed."""

    def read_snapshot_number(self, stream: int) -> int:
        """Return the number of the event after which the last snapshot was made, 0 if there is none."""

    def read_baseline(self, stream: int) -> Baseline | None:
        """Return where replays begin if the log is not whole; raise SnapshotError if it was changed."""

    def read_acknowledged(self) -> dict[int, int] | None:
        """Return the last acknowledged event by stream as marks outside the log tell, None if there are no marks."""

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Mark the last acknowledged event of some streams, if the store has marks."""

    # --- streams ---

    def add_stream(
        self,
        name: str,
        created: float,
        config: str,
        *,
        most: int | None = None,
        epoch: int | None = None,
    ) -> StreamRow | None:
        """Return the new stream, None if the name is taken. Ids are never used again.

        Raises :class:`windvane.service.store.TooManyStreamsError` if the store has ``most`` streams, and FencedError if
        ``epoch`` of the stream's shard is over.
        """

    def remove_stream(self, row: StreamRow, *, epoch: int | None = None) -> None:
        """Remove a stream with everything of it."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep servers from using the store. What this thread changes meanwhile is stored at the end, or not at all.

        The store must be open for this process alone. Raises :class:`windvane.service.store.StoreError` with code
        "in_use" if a server is using a database.
        """

    def import_stream(self, row: StreamRow) -> AbstractContextManager[StreamImport]:
        """Add a stream of another store, with everything of it: durable at the end, or nothing if the block raises.

        This thread can read the stream before the end; nobody else can. Raises
        :class:`windvane.service.store.StoreError` with code "exists" if the name is taken.
        """

    def read_streams(self, shards: Collection[int] | None = None) -> list[StreamRow]:
        """Return all streams, or those of some shards. A row may be damaged: see :attr:`StreamRow.is_sound`."""

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""

    # --- tokens ---

    @property
    def requires_token(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""

    def add_token(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""

    def remove_token(self, name: str) -> bool:
        """Return False if no token has this name. Every request still needs a token."""

    def remove_all_tokens(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""

    def read_tokens(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""

    def read_damaged_tokens(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""
