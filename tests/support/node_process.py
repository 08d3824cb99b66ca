"""A node in a process of its own, made to be stopped at the worst moments: ``python -m support.node_process URL NAME``.

It reads commands from standard input, one a line. ``write SHARD WHEN`` adds a row to the table ``writes`` as every
write of the service does, to a shard that the node owns (``any``: one of them). WHEN says where the process prints the
shard and stops itself: ``before`` the transaction, ``fenced`` (after the row of the shard was locked), ``written``
(before the commit) or ``never``. Then it prints the outcome: ``committed``, ``fenced`` or ``failed``. Shards may move
meanwhile: what fails before the process has stopped is tried again.

The deadline of the lease is ignored: the fence must not need it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable

import psycopg

from support.peers import Peer, fence
from windvane.service.store.postgres.connections import Address

TABLE = (
    "CREATE TABLE writes (n bigserial PRIMARY KEY, shard integer NOT NULL, epoch bigint NOT NULL, node text NOT NULL)"
)
WRITE = "INSERT INTO writes (shard, epoch, node) VALUES (%s, %s, %s)"
# Rows of one shard are numbered in the order of their commits if their epochs differ, because no two epochs of a shard
# can be locked at once.
FIND_STALE = """
SELECT n, shard, epoch FROM (SELECT *, max(epoch) OVER (PARTITION BY shard ORDER BY n) AS newest FROM writes) AS w
WHERE epoch < newest
"""
FIND_SHARED = "SELECT shard, epoch FROM writes GROUP BY shard, epoch HAVING count(DISTINCT node) > 1"  # by two nodes
IDLE_MILLISECONDS = 100  # instead of two seconds: how long a stopped process may keep its locks


class Writer:
    """Writes rows, and stops this process at a given place."""

    def __init__(self, url: str, peer: Peer, name: str) -> None:
        self._address, self._peer, self._name = Address(url), peer, name

    def write(self, wanted: str, when: str) -> str:
        """Return the outcome."""
        outcome, has_stopped = "", False
        while not has_stopped and outcome != "committed":
            owned = [
                (shard, epoch) for shard, epoch in self._peer.keeper.epochs.items() if wanted in ("any", str(shard))
            ]
            if owned:
                outcome, has_stopped = self._try(*random.choice(owned), when)
            time.sleep(0.001)
        return outcome

    def _try(self, shard: int, epoch: int, when: str) -> tuple[str, bool]:
        """Return the outcome, and whether the process was stopped."""
        passed: list[str] = []

        def pass_by(place: str) -> None:
            passed.append(place)
            if place == when:
                print(shard, flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(0.01)  # another thread may have received the signal; it stops all of them in a moment

        return self._add_row(shard, epoch, pass_by), when in passed

    def _add_row(self, shard: int, epoch: int, pass_by: Callable[[str], None]) -> str:
        pass_by("before")
        try:
            opened = self._address.connect(idle_in_transaction_session_timeout=IDLE_MILLISECONDS)
            with opened as connection, connection.transaction():
                if not fence(connection, shard, epoch):
                    return "fenced"
                pass_by("fenced")
                connection.execute(WRITE, (shard, epoch, self._name))
                pass_by("written")
        except psycopg.Error:
            return "failed"
        return "committed"


def main(url: str, name: str, lease: str, tick: str) -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    peer = Peer(url, name, loop, lease=float(lease), tick=float(tick)).start()
    writer = Writer(url, peer, name)
    for line in sys.stdin:
        _, wanted, when = line.split()
        print(writer.write(wanted, when), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
