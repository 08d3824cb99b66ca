"""The interfaces of a store, one for each kind of user. A function requires only the interface that it uses.

The methods raise one of :data:`windvane.service.store.STORE_ERRORS` if the store cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from windvane.service.store.events import Event
from windvane.service.store.records import Baseline, Erasure, Snapshot, StreamImport, StreamRow, Token

if TYPE_CHECKING:
    from windvane.service.store.postgres.connections import Address

NO_EPOCHS: Mapping[int, int] = {}


def never() -> bool:
    """Return False, as ``is_stopping`` of a process that does not stop."""
    return False


class ReadableStore(Protocol):
    """The methods that read streams and their logs.

    Attributes
    ----------
    name : str
        The path, or the address without a password, for messages.
    is_remote : bool
        Whether a read may take too long to be done in the event loop.
    """

    name: str
    is_remote: bool

    def read_transaction(self) -> AbstractContextManager[None]:
        """Open a read transaction in this thread: concurrent writes are not visible until it ends."""

    def read_streams(self) -> list[StreamRow]:
        """Return all streams. A row may be damaged: see :attr:`StreamRow.is_sound`."""

    def read_events(self, stream: int, after: int = 0, limit: int = 1 << 62) -> Iterator[Event]:
        """Yield the events with numbers above ``after``, in order."""

    def find_events(
        self, keys: Sequence[tuple[int, str]] = (), decisions: Sequence[tuple[int, str]] = ()
    ) -> list[Event]:
        """Return the events with these Idempotency-Keys and those of these decisions, ordered by stream and number.

        Every key and every decision is given as a pair with its stream.
        """

    def read_chain(self, stream: int, number: int) -> bytes | None:
        """Return the chain value of an event, None if the event does not exist.

        For number 0 it is the digest of the stream's row. For the last removed event it is stored in the baseline.
        """

    def last_number(self, stream: int) -> int:
        """Return the number of the last event, 0 if there is none."""

    def read_snapshot(self, stream: int) -> Snapshot | None:
        """Return the last snapshot; raise :class:`windvane.service.store.SnapshotError` if it was changed."""

    def read_baseline(self, stream: int) -> Baseline | None:
        """Return the baseline, from which replays of an incomplete log begin; raise SnapshotError if it was changed."""

    def read_acknowledged(self) -> dict[int, int] | None:
        """Return the last acknowledged event by stream, from marks outside the log; None if there are no marks."""


class EventStore(ReadableStore, Protocol):
    """The methods that serve streams. Any thread may call them; events are written by one thread at a time."""

    def append(
        self,
        events: Sequence[Event],
        snapshots: Sequence[tuple[int, Snapshot]] = (),
        erasures: Sequence[Erasure] = (),
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Store events, snapshots by stream, and erasures, all or none. They are durable when this returns.

        ``epochs``: in a cluster, by stream, the epoch of its shard in which the events were made. Raises
        :class:`windvane.service.store.FencedError` if one of them has ended.
        """

    def purge(self, is_stopping: Callable[[], bool] = never) -> bool:
        """Delete the remains of erased data: copies outside the tables, and streams whose removal was interrupted.

        Returns True if nothing is left. Call it after :meth:`append` with erasures and after :meth:`begin_removal`, and
        repeat the call until it returns True, because readers may prevent it from finishing. A store in a file also
        tries to purge copies at the end of such an :meth:`append`; a database has no copies outside its tables. It ends
        early, but not in the middle of a transaction, when ``is_stopping()``.
        """

    def mark_acknowledged(self, numbers: Mapping[int, int]) -> None:
        """Record the last acknowledged event of some streams outside the log, if the store has marks."""

    def add_stream(
        self,
        name: str,
        created: float,
        config: str,
        *,
        most: int | None = None,
        epoch: int | None = None,
    ) -> StreamRow | None:
        """Add a stream and return it, or None if the name is taken. Ids are never used again.

        Raises :class:`windvane.service.store.TooManyStreamsError` if the store already has ``most`` streams, and
        FencedError if ``epoch`` of the stream's shard has ended.
        """

    def begin_removal(self, row: StreamRow, *, epoch: int | None = None) -> None:
        """Remove a stream but not its events, of which it may have many: :meth:`purge` deletes them.

        The removal is durable when this returns. Raises FencedError if ``epoch`` of the stream's shard has ended.
        """


class CheckableStore(Protocol):
    """The methods that check whether a store is in its place, undamaged and writable.

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
        """Raise :class:`windvane.service.store.MisplacedError` if the store was moved or removed.

        This is cheap enough for every request.
        """

    def check_writable(self) -> None:
        """Write without changing anything, to raise the errors that a commit would raise."""

    def find_damage(self, *, pages: bool = True) -> list[str]:
        """Return the problems of the structure. ``pages``: check everything, which takes long."""

    def repair(self, *, pages: bool = True) -> list[str]:
        """Check the structure, and rebuild it if it is damaged and can be rebuilt. Return the problems."""

    def measure(self) -> dict[str, float]:
        """Return the known sizes in bytes, by name."""


class TokenStore(Protocol):
    """The access tokens of a store."""

    @property
    def are_required(self) -> bool:
        """Whether every request needs a token: a token exists or existed, or the setting cannot be read."""

    def add(self, token: Token) -> bool:
        """Add a token; return False if the name is taken. Afterwards every request needs a token."""

    def remove(self, name: str) -> bool:
        """Remove a token; return False if no token has this name. Every request still needs a token."""

    def remove_all(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""

    def read(self) -> list[Token]:
        """Return the tokens that match their checksums; no others are accepted."""

    def read_damaged(self) -> list[str]:
        """Return the names of the tokens that do not match their checksums."""


class ClusterStore(Protocol):
    """The methods that the nodes of a cluster use on their shared database.

    Attributes
    ----------
    address : Address
        The address of the database, for a connection that a node opens itself.
    shards : int
        The number of shards; see :func:`windvane.cluster_map.shard_of`.
    """

    address: Address
    shards: int

    @property
    def lacks_standby(self) -> bool | None:
        """Whether a standby is needed, but commits wait for none any more; None if no standby is needed."""

    def open(self) -> None:
        """Open a store that could not be reached when this object was created. Do nothing if it is open."""

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
    """The methods that a server uses."""

    @property
    def tokens(self) -> TokenStore:
        """The access tokens."""

    @property
    def cluster(self) -> ClusterStore | None:
        """The interface for nodes that share the store; None for a file, which only one server can use."""

    @property
    def keys(self) -> KeyStore | None:
        """The keys of all events; None for a database, whose other nodes add some at any time."""


class VerifiableStore(ReadableStore, CheckableStore, Protocol):
    """The methods that compare a store with a replay of its logs. A server may be using the store."""

    @property
    def tokens(self) -> TokenStore:
        """The access tokens."""

    def find_repeated_keys(self, stream: int) -> list[str]:
        """Return the keys that occur in several events."""


class OfflineStore(VerifiableStore, EventStore, Protocol):
    """The methods that copy and move streams while no server uses the store."""

    def find_stream(self, name: str) -> StreamRow | None:
        """Return the stream with this name."""

    def remove_stream(self, row: StreamRow) -> None:
        """Remove a stream with everything of it."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep servers from using the store. All changes of this thread in the block are stored at its end, or none.

        Only this process may have the store open. If it has opened the store read-only, it is only checked that no
        server is using the store, and changes that are made in the meantime are not seen. Raises
        :class:`windvane.service.store.StoreError` with code "in_use" if a server is using a database.
        """

    def import_stream(self, row: StreamRow) -> AbstractContextManager[StreamImport]:
        """Add a stream of another store with all of its data. It is durable after the block, or absent if that raises.

        Inside the block, only this thread can read the stream. Raises
        :class:`windvane.service.store.StoreError` with code "exists" if the name is taken.
        """


class Store(ServedStore, OfflineStore, Protocol):
    """An open store, for any use."""

    def close(self) -> None:
        """Close the store."""
