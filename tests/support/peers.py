"""Nodes of a cluster without a service: keepers whose callbacks are recorded, and connections that can be frozen."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from support.server import until
from windvane.service.cluster.keeper import Keeper
from windvane.service.cluster.shard_map import Node
from windvane.service.store.migrations import FORMAT
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.schema import create_schema

COUNT = 64
FAST = {"lease": 0.6, "tick": 0.1}  # with other tests on the same machine, a keeper may be late by a few ticks


def build_node(name: str = "a", **changes: Any) -> Node:
    """Describe a node; without an instance its name is the instance."""
    values = {"instance": name, "url": f"http://{name}:8000", "version": "1.0", "format": FORMAT, **changes}
    return Node(name=name, **values)


class FreezingAddress(Address):
    """Connections that wait before each statement, and after it, while ``is_open`` is not set."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = threading.Event()
        self.gate.set()
        self.connections: list[Connection] = []

    def connect(self, **settings: str | int) -> Connection:
        self.gate.wait()
        connection = super().connect(**settings)
        execute = connection.execute

        def wait_and_execute(*arguments: Any, **options: Any) -> Any:
            self.gate.wait()
            try:
                return execute(*arguments, **options)
            finally:
                self.gate.wait()

        connection.execute = wait_and_execute  # type: ignore[method-assign]
        self.connections.append(connection)
        return connection

    def freeze(self) -> None:
        self.gate.clear()

    def thaw(self) -> None:
        self.gate.set()


class Peer:
    """A keeper that gives up shards when it is asked to, and remembers what it was told."""

    def __init__(self, url: str, name: str, loop: asyncio.AbstractEventLoop, **options: Any) -> None:
        self.address = FreezingAddress(url)
        self.log: list[tuple[str, Any]] = []
        self.owned: dict[int, int] = {}  # as the callbacks tell
        self.is_obedient = options.pop("is_obedient", True)
        changes, self.count = options.pop("changes", {}), options.pop("count", COUNT)
        self.keeper = Keeper(
            self.address,
            build_node(name, **changes),
            self.count,
            loop,
            on_taken=self._note_taken,
            on_lost=self._note_lost,
            on_map=lambda shard_map: self.log.append(("map", shard_map)),
            on_excess=self._give_up,
            **{**FAST, **options},
        )

    def _note_taken(self, epochs: Mapping[int, int]) -> None:
        self.log.append(("taken", dict(epochs)))
        self.owned.update(epochs)

    def _note_lost(self, shards: frozenset[int]) -> None:
        self.log.append(("lost", shards))
        for shard in shards:
            self.owned.pop(shard, None)

    def _give_up(self, shards: frozenset[int]) -> None:
        self.log.append(("excess", shards))
        if self.is_obedient:
            threading.Thread(target=self.release, args=(shards,), daemon=True).start()

    def release(self, shards: frozenset[int]) -> None:
        with contextlib.suppress(Exception):
            self.keeper.release(shards)

    def start(self) -> Peer:
        self.keeper.start()
        return self

    def count_owned(self) -> int:
        return sum(self.keeper.owns(shard) is not None for shard in range(self.count))

    def read_log(self, kind: str) -> list[Any]:
        return [value for what, value in self.log if what == kind]


class Peers:
    """Nodes that share a database and an event loop."""

    def __init__(self, url: str) -> None:
        create_schema(url)
        self.url = url
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.all: list[Peer] = []

    def add(self, name: str, **options: Any) -> Peer:
        peer = Peer(self.url, name, self.loop, **options)
        self.all.append(peer)
        return peer

    def start(self, *names: str, **options: Any) -> list[Peer]:
        """Start nodes, and wait until all of them have their share."""
        peers = [self.add(name, **options).start() for name in names]
        self.wait_for_balance()
        return peers

    def wait_for_balance(self, seconds: float = 20.0) -> list[int]:
        """Wait until every shard has an owner, and no node has two more than another; return how many each owns."""

        def read() -> list[int]:
            counts = [peer.count_owned() for peer in self.all if peer.keeper.is_running]
            is_done = sum(counts) == self.all[0].count and max(counts) - min(counts) <= 1
            return counts if is_done else []

        return until(read, seconds)

    def is_sound(self, connection: Connection) -> bool:
        """Whether every shard has an owner, which knows its epoch and was told, and nobody else believes to own it."""
        rows = connection.execute("SELECT shard, epoch, node FROM shards").fetchall()
        live = [peer for peer in self.all if peer.keeper.is_running]
        held = {
            (shard, epoch, peer.keeper.node.instance) for peer in live for shard, epoch in peer.keeper.epochs.items()
        }
        told = {(shard, epoch, peer.keeper.node.instance) for peer in live for shard, epoch in peer.owned.items()}
        count = self.all[0].count
        return held == told == {row for row in rows if 0 <= row[0] < count} and len(held) == count

    def close(self) -> None:
        for peer in self.all:
            peer.address.thaw()
            peer.keeper.stop(release=False)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def settle(read: Callable[[], Any], seconds: float) -> list[Any]:
    """Return the values of ``read`` that were seen in some time."""
    values: list[Any] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = read()
        if not values or values[-1] != value:
            values.append(value)
        time.sleep(0.01)
    return values


@contextlib.contextmanager
def run_peers(url: str) -> Iterator[Peers]:
    peers = Peers(url)
    try:
        yield peers
    finally:
        peers.close()


# --- rows ------------------------------------------------------------------------------------------------------------


def expire(connection: Connection, *instances: str) -> None:
    """Let the leases of nodes run out."""
    sql = "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 s' WHERE instance = ANY(%s)"
    connection.execute(sql, (list(instances),))


def read_owners(connection: Connection) -> dict[int, str]:
    """Return the instances that own shards."""
    return dict(connection.execute("SELECT shard, node FROM shards WHERE node IS NOT NULL ORDER BY shard").fetchall())


def is_waiting(observer: Connection, connection: Connection) -> bool:
    """Whether a connection waits for a lock."""
    sql = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    row = observer.execute(sql, (connection.info.backend_pid,)).fetchone()
    return row is not None and row[0] is True


def fence(connection: Connection, shard: int, epoch: int) -> bool:
    """Hold a shard as every write does; return False if its epoch is over."""
    sql = "SELECT shard FROM shards WHERE shard = %s AND epoch = %s ORDER BY shard FOR SHARE"
    return connection.execute(sql, (shard, epoch)).fetchone() is not None
