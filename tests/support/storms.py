"""Nodes that write while everything goes wrong at random: a test of the invariants of the lease protocol."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from contextlib import closing
from typing import Any

import psycopg

from support.node_process import FIND_SHARED, FIND_STALE, TABLE, WRITE
from support.peers import Peer, Peers, fence
from support.server import until
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.eviction import CHANNEL
from windvane.service.store.records import DatabaseError

COUNT = 8
OPTIONS: dict[str, Any] = {"lease": 0.3, "tick": 0.05, "count": COUNT}
CHECK = """
CREATE FUNCTION check_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM writes WHERE shard = NEW.shard AND epoch > NEW.epoch) THEN
        RAISE EXCEPTION 'a stale write';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER check_write BEFORE INSERT ON writes FOR EACH ROW EXECUTE FUNCTION check_write();
"""
STALE = "P0001"  # SQLSTATE raise_exception
EDITS = [  # of one shard. An epoch that a node held before is not given back: see the notes of membership.
    "DELETE FROM shards WHERE shard = %(shard)s",
    "UPDATE shards SET node = 'garbage' WHERE shard = %(shard)s",
    "UPDATE shards SET node = NULL WHERE shard = %(shard)s",
    "UPDATE shards SET node = %(node)s WHERE shard = %(shard)s",
    "UPDATE shards SET epoch = -nextval('epochs') WHERE shard = %(shard)s",
    "UPDATE shards SET epoch = 1000000000 + nextval('epochs') WHERE shard = %(shard)s",
    "INSERT INTO shards VALUES (100 + nextval('epochs'), 0, %(node)s)",
    "DELETE FROM nodes WHERE instance = %(node)s",
    "UPDATE nodes SET lease_until = '-infinity' WHERE instance = %(node)s",
    "UPDATE nodes SET joined = clock_timestamp() WHERE instance = %(node)s",
]


class Storm:
    """Nodes in threads, each with a thread that writes, and the damage that is done to them.

    Parameters
    ----------
    peers
        Runs the nodes.
    seed
        Of everything that is drawn. Threads are not repeated exactly.
    edits
        Whether the map is edited by hand. Writes must be safe then, too; but until they read the map, two nodes may
        believe that they own a shard.
    """

    def __init__(self, peers: Peers, seed: int, *, edits: bool) -> None:
        self._peers, self._draw, self._numbers = peers, random.Random(seed), iter(range(10**6))
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self.violations: list[str] = []
        self.written = self.fenced = 0
        with self._connect() as connection:
            connection.execute(TABLE.encode())
            connection.execute(CHECK.encode())
        self._actions = [self._freeze, self._thaw, self._thaw, self._kill, self._leave, self._release, self._retake]
        self._actions += [self._terminate, *([self._edit] * 6 if edits else [])]
        self._live = [self._add() for _ in range(4)]
        if not edits:
            self._start_thread(self._watch)

    def run(self, steps: int) -> None:
        """Do damage, then wait until all is well, and compare what was written."""
        peers = self._peers
        peers.wait_for_balance()
        for _ in range(steps):
            self._draw.choice(self._actions)()
            time.sleep(self._draw.uniform(0.0, 0.1))
        for peer in peers.all:
            peer.address.thaw()
        peers.wait_for_balance(60.0)
        self._is_over = True
        for thread in self._threads:
            thread.join()
        with self._connect() as connection:
            until(lambda: peers.is_sound(connection))
            self.violations += [f"stale: {row}" for row in connection.execute(FIND_STALE)]
            self.violations += [f"by two nodes: {row}" for row in connection.execute(FIND_SHARED)]

    def _connect(self) -> closing[Connection]:
        return closing(Address(self._peers.url).connect(idle_in_transaction_session_timeout=200))

    def _start_thread(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _add(self, name: str | None = None) -> Peer:
        peer = self._peers.add(name or f"n{next(self._numbers)}", **OPTIONS).start()
        self._start_thread(self._write, peer, self._draw.random())
        return peer

    # --- what must hold ----------------------------------------------------------------------------------------------

    def _write(self, peer: Peer, seed: float) -> None:
        """Write to shards that the node owns, sometimes long after it was asked whether it owns them."""
        draw = random.Random(seed)
        while not self._is_over and (peer.keeper.is_running or draw.random() < 0.9):
            try:
                with self._connect() as connection:
                    while not self._is_over and peer.keeper.is_running:
                        self._write_once(connection, peer, draw)
            except (psycopg.Error, DatabaseError) as error:
                if getattr(error, "sqlstate", None) == STALE:
                    self.violations.append(f"{peer.keeper.node.name} wrote under an old epoch")

    def _write_once(self, connection: Connection, peer: Peer, draw: random.Random) -> None:
        shard = draw.randrange(COUNT)
        # Half of the time the deadline is ignored.
        epoch = peer.keeper.epochs.get(shard) if draw.random() < 0.5 else peer.keeper.owns(shard)
        time.sleep(draw.choice([0.0, 0.0, 0.002, 0.02, 0.4]) if epoch is not None else 0.002)
        if epoch is None:
            return
        with connection.transaction():
            if not fence(connection, shard, epoch):
                self.fenced += 1
                return
            time.sleep(draw.choice([0.0, 0.0, 0.002, 0.05]))
            connection.execute(WRITE, (shard, epoch, peer.keeper.node.name))
        self.written += 1

    def _watch(self) -> None:
        """No two nodes own a shard at the same time."""
        while not self._is_over:
            for shard in range(COUNT):
                for first in self._live:
                    before = first.keeper.owns(shard)
                    others = [peer.keeper.owns(shard) for peer in self._live if peer is not first]
                    after = first.keeper.owns(shard)
                    if before is not None and before == after and any(epoch is not None for epoch in others):
                        self.violations.append(f"shard {shard} has two owners: {before}, {others}")
            time.sleep(0.001)

    # --- damage ------------------------------------------------------------------------------------------------------

    def _freeze(self) -> None:
        self._draw.choice(self._live).address.freeze()

    def _thaw(self) -> None:
        for peer in self._live:
            peer.address.thaw()

    def _replace(self, *, releases: bool) -> None:
        peer = self._draw.choice(self._live)
        peer.keeper.stop(release=releases, seconds=0.05)
        name = peer.keeper.node.name
        has_left = releases and not peer.keeper.is_running
        new = self._add(name if has_left else None)
        self._live = [new if other is peer else other for other in self._live]

    def _kill(self) -> None:
        self._replace(releases=False)

    def _leave(self) -> None:
        self._replace(releases=True)

    def _release(self) -> None:
        peer = self._draw.choice(self._live)
        shards = frozenset(self._draw.sample(range(COUNT), 4))
        self._start_thread(peer.release, shards)

    def _retake(self) -> None:
        def work(peer: Peer) -> None:
            with contextlib.suppress(DatabaseError):
                peer.keeper.retake(0.5)

        self._start_thread(work, self._draw.choice(self._live))

    def _terminate(self) -> None:
        with self._connect() as connection:
            sql = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.3"""
            connection.execute(sql)

    def _edit(self) -> None:
        values = {"shard": self._draw.randrange(COUNT), "node": self._draw.choice(self._live).keeper.node.instance}
        with self._connect() as connection:
            try:
                connection.execute(self._draw.choice(EDITS).encode(), values)
            except psycopg.Error:
                return
            if self._draw.random() < 0.5:
                connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
