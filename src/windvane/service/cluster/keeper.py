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
from windvane.service.store.postgres.expulsion import MOST_LEASE_SECONDS
from windvane.service.store.records import DatabaseError, StoreError

log = logging.getLogger("windvane.service")

LEASE_SECONDS = 2.0
TICK_SECONDS = 0.5
COMMAND_SECONDS = 10.0  # for retake and release: longer than idle_in_transaction_session_timeout keeps a lock
SHORT_PAUSE_SECONDS = 0.05
BUSY = ("55P03", "57014", "40P01")  # SQLSTATE lock_not_available, query_canceled (a timeout), deadlock_detected


class Keeper:
    """Keeps a node in the cluster, in a thread of its own with its own connection.

    Parameters
    ----------
    address
        The database.
    node
        Name, url, version and format of this node; the instance is drawn.
    count
        Number of shards.
    loop
        The event loop in which the callbacks are called, in the order in which things happened.
    on_taken
        Called with new epochs by shard.
    on_lost
        Called with shards that the node no longer owns.
    on_map
        Called with the :class:`ShardMap` when it has changed.
    on_excess
        Called with shards that the node should give up: write snapshots, then call :meth:`release`. They are proposed
        again if that takes longer than 10 s.
    lease, tick
        Seconds of a lease, and between renewals.
    read_time
        The node's wall clock.

    Notes
    -----
    Whatever happens to the thread or its connection, :meth:`owns` returns None once the lease may have run out. Writes
    do not depend on that: each transaction checks the epoch.

    The callbacks tell every change of what the node owns, also those by :meth:`retake` and :meth:`release`, but not
    those by :meth:`stop`. :meth:`owns` may know of a change before they are called: a stream that was built under
    another epoch than that of :meth:`owns` must be built again.
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
        lease = min(lease, MOST_LEASE_SECONDS)
        self._member = Member(node, address.name, count, callbacks, WallClock(read_time), lease=lease, tick=tick)
        # A renewal is due after a tick, and a statement before it takes half a lease: together less than a lease.
        self._session = Session(address, lock_seconds=lease / 4, statement_seconds=lease / 2)
        self._problem: WindvaneError | None = None
        self._refusal: StoreError | None = None
        self._settled = threading.Event()  # the node has joined, or was refused
        self._commands = Commands()
        self._doubts: deque[dict[int, int]] = deque()  # epochs that are to be dropped
        self._is_stopping = False
        self._failures = 0  # in a row
        self._leaves_by: float | None = None  # None: the shards are not released at the end
        self._thread = threading.Thread(target=self._run, name="windvane-keeper", daemon=True)
        self.owns: Callable[[int], int | None] = self._member.lease.owns
        """``owns(shard)``: the epoch of a shard, None if it is not owned or the lease may have run out."""

    def _defer(self, call: Callable[[Any], object]) -> Callable[[Any], None]:
        def call_in_loop(value: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, value)

        return call_in_loop

    # --- what the service asks ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. It tries to join until it succeeds, is refused, or :meth:`stop` is called."""
        self._thread.start()

    def wait_until_joined(self, seconds: float | None = None) -> bool:
        """Wait until the node has joined for the first time; return False if it has not in time.

        Raises :class:`StoreError` with code "name_taken" or "format" if the node was refused.
        """
        is_settled = self._settled.wait(seconds)
        if self._refusal is not None:
            raise self._refusal
        return is_settled and self._member.has_ever_joined

    @property
    def is_running(self) -> bool:
        """Whether the thread is running: it was started, and neither stopped nor refused."""
        return self._thread.is_alive()

    @property
    def node(self) -> Node:
        """This node. Its instance changes when it has to join again."""
        return self._member.node

    @property
    def map(self) -> ShardMap:
        """The map as it was last read."""
        return self._member.map

    @property
    def epochs(self) -> Mapping[int, int]:
        """The epochs of the shards that the node owns, if the deadline has not passed."""
        return self._member.lease.epochs

    @property
    def deadline(self) -> float:
        """Until when the node owns its shards for sure, on :func:`windvane.service.cluster.clocks.read_clock`."""
        return self._member.lease.deadline

    @property
    def skew(self) -> float | None:
        """Seconds by which this node's clock is ahead of the database's; None: not known yet."""
        return self._member.clock.skew

    @property
    def problem(self) -> WindvaneError | None:
        """Why the node is no sound member of the cluster now, None if it is.

        :class:`DatabaseError`: the database does not respond. :class:`StoreError`: the code is "clock", "name_taken" or
        "format".
        """
        problem = self._refusal or self._problem or self._member.problem
        if problem is None and self._member.has_ever_joined and read_clock() >= self.deadline:
            return DatabaseError("the lease of this node could not be renewed in time")
        return problem

    def retake(self, seconds: float = COMMAND_SECONDS) -> dict[int, int]:
        """Take all shards of this node again, after a failure of unknown outcome; return the new epochs.

        This waits for transactions that still write under the old epochs. Raises :class:`DatabaseError` if it cannot be
        done in time. Then nothing is owned until ``on_taken`` says so.
        """
        taken: dict[int, int] = self._commands.ask(self._member.retake, seconds, self._session.wake)
        return taken

    def release(self, shards: Collection[int], seconds: float = COMMAND_SECONDS) -> set[int]:
        """Free shards of this node; return those that were owned and are free now.

        Raises :class:`DatabaseError` if it cannot be done in time. Then they are not owned until ``on_taken`` says so.
        """
        epochs: dict[int, int] = {}

        def work(connection: Connection) -> set[int]:
            epochs.update(self._member.drop(shards))  # a repetition finds none
            return self._member.release(connection, epochs)

        released: set[int] = self._commands.ask(work, seconds, self._session.wake)
        return released

    def doubt(self, epochs: Mapping[int, int]) -> None:
        """Own shards no longer under these epochs, which a commit has found to be over.

        If the map still gives them to this node, they are taken again under new epochs.
        """
        self._doubts.append(dict(epochs))
        self._session.wake()

    def withdraw(self) -> None:
        """Give up all shards, as ``on_excess`` proposes, and leave the cluster; the map is still read."""
        self._member.is_leaving = True
        self._session.wake()

    def rest(self) -> None:
        """Leave all shards to other nodes until :meth:`resume`, because this one cannot write.

        Nothing changes without another node, or if the lease cannot be renewed in time either. Shards that are being
        written to become free when that ends.
        """
        self._member.rests_from = read_clock()
        self._session.wake()

    def resume(self) -> None:
        """Take shards again after :meth:`rest`."""
        self._member.rests_from = math.inf
        self._session.wake()

    def stop(self, release: bool = True, seconds: float | None = None) -> None:
        """End the thread; with ``release``, free all shards and leave the cluster, unless that takes ``seconds``.

        Without it, or if it fails, the other nodes take over after the lease has run out.
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
                    self._commands.expire(str(self._problem or "they are locked"))
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
        """Return the result of ``work`` with the connection, or how long to wait after an error."""
        try:
            with self._address.translate_errors():
                result = work(self._session.open())
                self._failures = 0
                return result
        except StoreError as error:
            self._note_refusal(error)
        except DatabaseError as error:
            if error.sqlstate in BUSY:  # the wait for the lock was the pause
                self._note_problem(self._member.problem)
                return SHORT_PAUSE_SECONDS
            self._session.drop()
            self._failures += 1
            if self._failures == 1:  # the session was ended; the next attempt tells whether the database is there
                return SHORT_PAUSE_SECONDS
            self._note_problem(error)
        except Exception as error:  # whatever it is, a node without a keeper would be worse
            log.exception("the keeper of this node failed; it goes on")
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
        while self._doubts:
            doubts, owned = self._doubts.popleft(), self._member.lease.epochs
            self._member.drop([shard for shard, epoch in doubts.items() if owned.get(shard) == epoch])
        pause = self._member.step(connection, adopts=not self._commands)
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
            log.info("this node is a sound member of the cluster again")
        elif problem is not None and getattr(problem, "code", str(problem)) != getattr(known, "code", str(known)):
            log.warning("this node is no sound member of the cluster: %s", problem)

    def _note_refusal(self, error: StoreError) -> None:
        """End if the node has never been in the cluster: somebody has started it with wrong settings."""
        if self._member.has_ever_joined:
            self._note_problem(error)
        else:  # the caller logs it, once, however often it tries again
            self._problem = self._refusal = error
