"""The thread that keeps a node in the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from windvane.errors import WindvaneError
from windvane.service.cluster.callbacks import Callbacks
from windvane.service.cluster.clocks import WallClock, read_clock
from windvane.service.cluster.commands import Commands
from windvane.service.cluster.member import Member
from windvane.service.cluster.session import Session
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.eviction import MAX_LEASE_SECONDS
from windvane.service.store.records import DatabaseError, StoreError

log = logging.getLogger("windvane.service")

LEASE_SECONDS = 2.0
TICK_SECONDS = 0.5
COMMAND_SECONDS = 10.0  # for retake and release: longer than a lock can be held (idle_in_transaction_session_timeout)
SHORT_PAUSE_SECONDS = 0.05
BUSY = ("55P03", "57014", "40P01")  # SQLSTATE lock_not_available, query_canceled (a timeout), deadlock_detected


class Keeper:
    """Keeps a node in the cluster, in its own thread with its own connection.

    Parameters
    ----------
    address
        The database.
    node
        Name, url, version and format of this node. Its instance is replaced by a random one.
    count
        Number of shards.
    loop
        The event loop that runs the callbacks, in the order of the changes.
    on_taken
        Called with the epochs of newly taken shards, by shard.
    on_lost
        Called with the shards that the node no longer owns.
    on_map
        Called with the :class:`ShardMap` when it has changed.
    on_excess
        Called with shards that the node should release: store snapshots, then call :meth:`release`. The shards are
        proposed again if that takes longer than 10 s.
    lease, tick
        Duration of a lease, and time between renewals, in seconds.
    read_time
        The node's wall clock.

    Notes
    -----
    Whatever happens to the thread or its connection, :meth:`owns` returns None once the lease may have expired. The
    safety of writes does not depend on that: each transaction checks the epoch.

    The callbacks report every change of the owned shards, including those made by :meth:`retake` and :meth:`release`,
    but not those made by :meth:`stop`. :meth:`owns` may reflect a change before the callbacks are called: a stream that
    was built under another epoch than the one :meth:`owns` returns must be built again.
    """

    def __init__(
        self,
        address: Address,
        node: Node,
        count: int,
        loop: asyncio.AbstractEventLoop,
        *,
        on_taken: Callable[[Mapping[int, int]], object],
        on_lost: Callable[[frozenset[int]], object],
        on_map: Callable[[ShardMap], object],
        on_excess: Callable[[frozenset[int]], object],
        lease: float = LEASE_SECONDS,
        tick: float = TICK_SECONDS,
        read_time: Callable[[], float] = time.time,
    ) -> None:
        self._address, self._loop, self._tick = address, loop, tick
        callbacks = Callbacks(*(self._defer(call) for call in (on_taken, on_lost, on_map, on_excess)))
        lease = min(lease, MAX_LEASE_SECONDS)
        self._member = Member(node, address.name, count, callbacks, WallClock(read_time), lease=lease, tick=tick)
        # A renewal is due after a tick, and a statement before it takes half a lease: together less than a lease.
        self._session = Session(address, lock_seconds=lease / 4, statement_seconds=lease / 2)
        self._problem: WindvaneError | None = None
        self._refusal: StoreError | None = None
        self._settled = threading.Event()  # set once the node has joined or was refused
        self._commands = Commands()
        self._fenced: deque[dict[int, int]] = deque()  # epochs reported by drop_fenced
        self._is_stopping = False
        self._failures = 0  # in a row
        self._leaves_by: float | None = None  # None: stop without releasing the shards
        self._thread = threading.Thread(target=self._run, name="windvane-keeper", daemon=True)
        self.owns: Callable[[int], int | None] = self._member.lease.owns
        """``owns(shard)``: the epoch of a shard, None if it is not owned or the lease may have expired."""

    def _defer(self, call: Callable[[Any], object]) -> Callable[[Any], None]:
        def call_in_loop(value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, value)

        return call_in_loop

    # --- called by the service ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. It tries to join until the node has joined, was refused, or :meth:`stop` is called."""
        self._thread.start()

    def wait_until_joined(self, seconds: float | None = None) -> bool:
        """Wait until the node has joined for the first time. Return False on a timeout.

        Raises :class:`StoreError` with code "name_taken" or "format" if the node was refused.
        """
        is_settled = self._settled.wait(seconds)
        if self._refusal is not None:
            raise self._refusal
        return is_settled and self._member.has_ever_joined

    @property
    def is_running(self) -> bool:
        """Whether the thread is running: it was started and has not ended by :meth:`stop` or a refusal."""
        return self._thread.is_alive()

    @property
    def node(self) -> Node:
        """This node. Its instance changes when it has to join again."""
        return self._member.node

    @property
    def map(self) -> ShardMap:
        """The map that was read last."""
        return self._member.map

    @property
    def is_handed_over(self) -> bool:
        """Whether the node has left after :meth:`drain`, or is alone."""
        member = self._member
        return not member.is_member or all(node.instance == member.node.instance for node in member.map.nodes)

    def has_left(self, instance: str) -> bool:
        """Return whether a node that is no longer in the map has left by itself: it still runs, and answers."""
        return instance in self._member.left

    @property
    def epochs(self) -> Mapping[int, int]:
        """The epochs of the shards that the node owns, valid until the deadline."""
        return self._member.lease.epochs

    @property
    def deadline(self) -> float:
        """Until when the node certainly owns its shards, on :func:`windvane.service.cluster.clocks.read_clock`."""
        return self._member.lease.deadline

    @property
    def skew(self) -> float | None:
        """How many seconds this node's clock is ahead of the database's. None if it is not known yet."""
        return self._member.clock.skew

    @property
    def problem(self) -> WindvaneError | None:
        """Why the node is not a healthy member of the cluster now; None if it is.

        :class:`DatabaseError`: the database does not respond. :class:`StoreError`: its code is "clock", "name_taken" or
        "format".
        """
        problem = self._refusal or self._problem or self._member.problem
        if problem is None and self._member.has_ever_joined and read_clock() >= self.deadline:
            return DatabaseError("the lease of this node could not be renewed in time")
        return problem

    def retake(self, seconds: float = COMMAND_SECONDS) -> dict[int, int]:
        """Give all shards of this node new epochs, after a commit with an unknown outcome. Return these epochs.

        This waits for transactions that are still writing under the old epochs. Raises :class:`DatabaseError` on a
        timeout; the node then owns no shard until ``on_taken`` reports it.
        """
        return self._commands.ask(self._member.retake, seconds, self._session.wake)

    def release(self, shards: Collection[int], seconds: float = COMMAND_SECONDS) -> set[int]:
        """Free shards of this node. Return those that it owned and that are free now.

        Raises :class:`DatabaseError` on a timeout; the node then does not own them until ``on_taken`` reports it.
        """
        epochs: dict[int, int] = {}

        def work(connection: Connection) -> set[int]:
            epochs.update(self._member.drop(shards))  # a retry drops nothing more
            return self._member.release(connection, epochs)

        return self._commands.ask(work, seconds, self._session.wake)

    def drop_fenced(self, epochs: Mapping[int, int]) -> None:
        """Drop shards whose commit was fenced: these epochs are no longer valid.

        If the map still assigns the shards to this node, the node takes them again under new epochs.
        """
        self._fenced.append(dict(epochs))
        self._session.wake()

    def drain(self) -> None:
        """Propose all shards for release by ``on_excess``, and then leave the cluster. The map is still read.

        A node that is alone keeps its shards until :meth:`stop`: nobody else could serve them.
        """
        self._member.is_draining = True
        self._session.wake()

    def step_down(self) -> None:
        """Leave all shards to other nodes until :meth:`resume`, because this node cannot commit.

        The node keeps its shards if it is alone, or if it cannot renew its lease in time either. A shard with a write
        in progress becomes free when the write ends.
        """
        self._member.step_down_requested_at = min(self._member.step_down_requested_at, read_clock())
        self._session.wake()

    def resume(self) -> None:
        """Take shards again after :meth:`step_down`."""
        self._member.step_down_requested_at = math.inf
        self._session.wake()

    def stop(self, release: bool = True, seconds: float | None = None) -> None:
        """End the thread. With ``release``, first free all shards and leave the cluster, within ``seconds``.

        Without ``release``, or if it fails, the other nodes take the shards over once the lease has expired.
        """
        seconds = 2 * self._tick if seconds is None else seconds
        self._leaves_by = read_clock() + seconds if release else None
        self._is_stopping = True
        self._session.wake()
        if self._thread.ident is not None:
            self._thread.join(seconds + self._tick)
        self._member.lease.clear()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopping and self._refusal is None:
                pause = self._try(self._step)
                if self._commands:
                    pause = min(pause, self._try(self._run_command))
                    self._commands.expire(str(self._problem or "their rows are locked"))
                if self._member.has_ever_joined:
                    self._settled.set()
                self._wait(pause)
            self._member.lease.clear()
            self._leave()
        finally:
            self._commands.close()
            self._session.close()
            self._settled.set()

    def _try(self, work: Callable[[Connection], float]) -> float:
        """Run ``work`` with the connection. Return its result, or after an error the seconds to wait."""
        try:
            with self._address.translate_errors():
                result = work(self._session.open())
                self._failures = 0
                return result
        except StoreError as error:
            self._note_refusal(error)
        except DatabaseError as error:
            if error.sqlstate in BUSY:  # waiting for the lock was pause enough
                self._note_problem(self._member.problem)
                return SHORT_PAUSE_SECONDS
            self._session.drop()
            self._failures += 1
            if self._failures == 1:  # perhaps only the session was ended: reconnect before reporting a problem
                return SHORT_PAUSE_SECONDS
            self._note_problem(error)
        except Exception as error:  # a node without a keeper would be worse than one that keeps failing
            log.exception("the lease keeper of this node failed; it is trying again")
            self._note_problem(DatabaseError(f"internal error in the keeper ({type(error).__name__})"))
            self._session.drop()
        return self._tick

    def _wait(self, seconds: float) -> None:
        try:
            with self._address.translate_errors():
                self._session.wait(seconds)
        except DatabaseError:
            self._session.drop()

    def _step(self, connection: Connection) -> float:
        while self._fenced:
            epochs, owned = self._fenced.popleft(), self._member.lease.epochs
            self._member.drop([shard for shard, epoch in epochs.items() if owned.get(shard) == epoch])
        pause = self._member.step(connection, adopt=not self._commands)
        self._note_problem(self._member.problem)
        return pause

    def _run_command(self, connection: Connection) -> float:
        self._commands.run_first(connection)
        return 0.0

    def _leave(self) -> None:
        def leave(connection: Connection) -> float:
            self._member.leave(connection)
            return 0.0

        while self._member.is_member and self._leaves_by is not None and read_clock() < self._leaves_by:
            pause = self._try(leave)
            self._wait(min(pause, SHORT_PAUSE_SECONDS))

    def _note_problem(self, problem: WindvaneError | None) -> None:
        known, self._problem = self._problem, problem
        if problem is None and known is not None:
            log.info("this node is a healthy member of the cluster again")
        elif problem is not None and getattr(problem, "code", str(problem)) != getattr(known, "code", str(known)):
            log.warning("this node is not a healthy member of the cluster: %s", problem)

    def _note_refusal(self, error: StoreError) -> None:
        """End the thread if the node has never joined: it was started with wrong settings."""
        if self._member.has_ever_joined:
            self._note_problem(error)
        else:  # the caller logs it once, however often it retries
            self._problem = self._refusal = error
