"""What the service needs of a store, by who needs it. A function asks for no more than it uses.

The methods raise one of :data:`windvane.service.store.STORE_ERRORS` if the store cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from windvane.service.store.events import Event
from windvane.service.store.records import Baseline, Erasure, Snapshot, StreamImport, StreamRow, Token

if TYPE_CHECKING:
    from windvane.service.store.postgres.connections import Address

NO_EPOCHS: Mapping[int, int] = {}


class ReadableStore(Protocol):
    """What reading streams and their logs needs.

    Attributes
    ----------
    name : str
        The path, or the address without a password, for messages.
    is_remote : bool
        Whether reading takes so long that the event loop must not wait for it.
    """

    name: str
    is_remote: bool

    def read_streams(self) -> list[StreamRow]:
        """Return all streams. A row may be damaged: see :attr:`StreamRow.is_sound`."""

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events of the requests with these Idempotency-Keys, and those of these decisions, by stream and in
        order. A key or a decision comes with its stream."""

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if there is no such event. Before the first event it is the digest
        of the stream's row; after the last one that was removed, it is that of the baseline."""

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the last snapshot; raise :class:`windvane.service.store.SnapshotError` if it was changed."""

    def read_baseline(self, stream: int) -> Baseline | None:
        """Return where replays begin if the log is not whole; raise SnapshotError if it was changed."""

    def read_acknowledged(self) -> dict[int, int] | None:
        """Return the last acknowledged event by stream as marks outside the log tell, None if there are no marks."""


class EventStore(ReadableStore, Protocol):
    """What serving streams needs. Any thread may use it; events are written by one thread at a time."""

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[tuple[int, Snapshot]] = (),
        erasures: Sequence[Erasure] = (),
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

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Mark the last acknowledged event of some streams, if the store has marks."""

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


class CheckableStore(Protocol):
    """Whether a store is where it was, whole, and writable.

    Attributes
    ----------
    name : str
        The path, or the address without a password, for messages.
    is_checked : bool
        Whether the structure was checked for damage.
    """

    name: str
    is_checked: bool

    def check_in_place(self) -> None:
        """Raise :class:`windvane.service.store.MisplacedError` if the store is no longer where it was. This is cheap
        enough for every request."""

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return the problems with the structure; ``pages``: look at everything, which takes long."""

    def repair(self, *, pages: bool = True) -> list[str]:
        """Check the structure and rebuild it if it is damaged and can be rebuilt; return the problems."""

    def measure(self) -> dict[str, float]:
        """Return sizes in bytes by name, those that are known."""


class TokenStore(Protocol):
    """The access tokens of a store."""

    @property
    def are_required(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""

    def add(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""

    def remove(self, name: str) -> bool:
        """Return False if no token has this name. Every request still needs a token."""

    def remove_all(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""

    def read(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""

    def read_damaged(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""


class ClusterStore(Protocol):
    """What the nodes of a cluster need of the database that they share.

    Attributes
    ----------
    address : Address
        Where it is, for connections that a node keeps for itself.
    shards : int
        The number of shards; see :func:`windvane.cluster_map.shard_of`.
    """

    address: Address
    shards: int

    def open(self) -> None:
        """Open a store that could not be reached when this object was made; do nothing if it is open."""

    def read_secret(self) -> str:
        """Return the secret that the nodes share."""

    def read_streams(self, shards: Collection[int]) -> list[StreamRow]:
        """Return the streams of some shards. A row may be damaged: see :attr:`StreamRow.is_sound`."""

    def count_streams(self) -> dict[int, int]:
        """Return the number of streams by shard; a shard without streams is missing."""


class KeyStore(Protocol):
    """The Idempotency-Keys of all events."""

    def count_keys(self) -> int:
        """Return how many there are."""

    def read_keys(self) -> Iterator[list[tuple[int, str]]]:
        """Yield all of them with their streams, some at a time. Those that are added meanwhile may be missing."""


class ServedStore(EventStore, CheckableStore, Protocol):
    """What a server needs."""

    @property
    def tokens(self) -> TokenStore:
        """The access tokens."""

    @property
    def cluster(self) -> ClusterStore | None:
        """What nodes that share the store need; None for a file, which only one server can use."""

    @property
    def keys(self) -> KeyStore | None:
        """The keys of all events; None for a database, whose other nodes add some at any time."""


class VerifiableStore(ReadableStore, CheckableStore, Protocol):
    """What a comparison of a store with a replay needs. A server may be using the store."""

    @property
    def tokens(self) -> TokenStore:
        """The access tokens."""

    def read_transaction(self) -> AbstractContextManager[None]:
        """Hold a read transaction in this thread: concurrent writes are not visible until it ends."""

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that several events have."""


class OfflineStore(VerifiableStore, EventStore, Protocol):
    """What copying and moving streams needs, while no server uses the store."""

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""

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


class Store(ServedStore, OfflineStore, Protocol):
    """A store that is open, whatever it is used for."""

    def close(self) -> None:
        """Close the store."""
