"""The streams that a node of a cluster serves: those of the shards that it owns.

When a node takes a shard, it reads the list of its streams, and loads each of them at its first request or in the
background, whichever comes first. When it loses a shard, it drops the streams at once. A node that gives a shard up
voluntarily releases it only once all events and snapshots of its streams are stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from windvane.cluster_map import shard_of
from windvane.errors import WindvaneError
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.service.cluster.loading import StreamLoader
from windvane.service.cluster.shard_map import Node, ShardMap
from windvane.service.problems import Problem
from windvane.service.readiness import NotReady, unavailable
from windvane.service.recovery import Recovery
from windvane.service.store import STORE_ERRORS, ClusterStore, DatabaseError, StoreError, StreamRow
from windvane.service.store.migrations import FORMAT
from windvane.service.streams import Stream
from windvane.service.tasks import run_persistently
from windvane.service.turns import wait_while_held, wait_while_in_progress
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.cluster.keeper import Keeper
    from windvane.service.engine import Engine

JOIN_SECONDS = 5.0  # how long to wait for the keeper to join
MOVE_SECONDS = 1.0  # how long a request waits for the new owner of a moving shard to be known; then it gets 503
STEP_DOWN_SECONDS = 5.0  # how long recoveries may fail while the lease is renewed; then other nodes get the shards
IN_PROGRESS_SECONDS = 0.5  # how long requests that have begun may take before their shard is released
RELEASE_SECONDS = 5.0  # how long storing the streams of a shard may take before its release is abandoned

log = logging.getLogger("windvane.service")


class ElsewhereError(WindvaneError):
    """Another node, at ``url``, owns the ``shard`` of a stream. ``instance`` is the id of its membership.

    Nothing of the request was executed.
    """

    def __init__(self, node: Node, shard: int | None = None) -> None:
        self.node, self.url, self.instance, self.shard = node.name, node.url, node.instance, shard
        super().__init__(f"node {node.name!r} serves this stream")


class NodeSettings(NamedTuple):
    """The name of a node, the address at which others reach it, and its version of windvane."""

    name: str
    url: str
    version: str


class Placement:
    """The shards that a node serves, and their streams. Used in the event loop, except where noted."""

    def __init__(self, engine: Engine, store: ClusterStore, node: NodeSettings) -> None:
        self._engine, self.store, self.node = engine, store, node
        self.keeper: Keeper | None = None  # set once the database was reached
        self._secret = ""
        self._joining, self._is_stopped = threading.Lock(), False  # a stopped node must not join
        self.epochs: dict[int, int] = {}  # epochs of the shards that are served or being opened
        self.fenced = 0  # number of commits that were refused in part, because another node had taken a shard
        self._fenced: dict[int, int] = {}  # epochs that ended, which the keeper has not noticed yet
        self._recovered: dict[int, int] = {}  # the epochs of the last recovery
        self._failing_since = math.inf  # since when recoveries have failed while the keeper was healthy
        self._opening: dict[int, asyncio.Future[None]] = {}  # shards whose list of streams is being read
        self._leaving: dict[int, asyncio.Future[None]] = {}  # shards whose requests wait for the release
        self._releasing: set[int] = set()  # shards that are about to be released
        self._changed = asyncio.Event()  # set and immediately cleared when the map or the shards change
        self._loader = StreamLoader(engine, self)
        self.on_map: list[Callable[[ShardMap], object]] = []
        """Called with the map when it has changed."""
        self.find_problem: Callable[[], NotReady | None] = lambda: None
        """Returns any other reason why this node is not ready."""
        self.reachable: Mapping[str, bool] = {}  # by name of a node, whether it answered at its address

    # --- starting and stopping -------------------------------------------------------------------------------------

    def recover(self) -> Recovery:
        """Give the node's own shards new epochs, in a thread, and return their streams, none of them loaded.

        This waits for commits with an unknown outcome, and ends the epochs in which they were made.
        """
        self.store.open()
        warm_up([AdaptiveGLMUCB])  # before the node takes shards, because no other node serves them during the warm-up
        if self.keeper is None:
            self._secret = self.store.read_secret()
            self._join()
        assert self.keeper is not None
        try:
            if not self.keeper.wait_until_joined(JOIN_SECONDS):
                raise self.keeper.problem or DatabaseError("the database does not respond")
        except StoreError as error:
            if error.code == "name_taken":  # the keeper has ended; retry, because the other node may end too
                self.keeper = None
            raise
        epochs = self.keeper.retake()
        rows = self.store.read_streams(epochs)
        self._recovered = epochs
        return Recovery({row.name: row for row in rows}, {}, {}, {})

    def open(self) -> None:
        """Serve the shards that :meth:`recover` found."""
        self.epochs, self._fenced = dict(self._recovered), {}
        self._opening, self._failing_since = {}, math.inf
        self._loader.forget()
        if self.keeper is not None:
            self.keeper.resume()
        self._loader.begin(list(self._engine.rows.values()))
        self.sync()

    def _join(self) -> None:
        """Start a keeper, unless the service was stopped in the meantime."""
        from windvane.service.cluster.keeper import Keeper  # imports psycopg, which a service on a file does not need

        keeper = Keeper(
            self.store.address,
            Node("", *self.node, FORMAT),
            self.store.shards,
            self._engine.loop,
            on_taken=lambda _: self.sync(),
            on_lost=lambda _: self.sync(),
            on_map=self._note_map,
            on_excess=self.give_up,
        )
        with self._joining:
            if self._is_stopped:
                raise RuntimeError("the service is stopping")
            keeper.start()
            self.keeper = keeper

    async def stop(self) -> None:
        """Release all shards. Their streams must be stored."""
        self.epochs = {}
        with self._joining:
            self._is_stopped = True
        if self.keeper is not None:
            await asyncio.to_thread(self.keeper.stop)
        self._loader.stop()

    def read_secret(self) -> str:
        """Return the secret that all nodes share; empty until the database was reached."""
        return self._secret

    def step_down(self) -> None:
        """Leave the shards to other nodes until :meth:`open`, because this node cannot write."""
        if self.keeper is not None:
            self.keeper.step_down()

    def note_failed_recovery(self) -> None:
        """Step down if recoveries have failed for some time although the lease is renewed."""
        is_healthy = self.keeper is not None and self.keeper.problem is None
        self._failing_since = min(self._failing_since, time.monotonic()) if is_healthy else math.inf
        if time.monotonic() >= self._failing_since + STEP_DOWN_SECONDS:
            self.step_down()

    def drain(self) -> None:
        """Start to release all shards before the service stops, so that other nodes serve them."""
        if self.keeper is not None:
            self.keeper.drain()

    @property
    def is_handed_over(self) -> bool:
        """Whether, after :meth:`drain`, other nodes have all shards, or there is nobody to take them."""
        return self.keeper is None or self.keeper.problem is not None or self.keeper.is_handed_over

    def has_left(self, instance: str) -> bool:
        """Return whether a node that is no longer in the map has left by itself, and still answers."""
        return self.keeper is not None and self.keeper.has_left(instance)

    # --- taking and losing shards ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Serve the shards that the keeper has taken, and drop those that it has lost."""
        if self._engine.failure is not None or self.keeper is None:
            return  # the recovery will read which shards are owned
        self._note_change()
        owned = self.keeper.epochs
        self._drop([shard for shard, epoch in self.epochs.items() if owned.get(shard) != epoch])
        taken = {s: e for s, e in owned.items() if s not in self.epochs and self._fenced.get(s) != e}
        if taken:
            self.epochs |= taken
            self._engine.tasks.start(self._open_shards(taken, self._begin(self._opening, taken)))

    async def _open_shards(self, taken: dict[int, int], opened: asyncio.Future[None]) -> None:
        try:
            rows = await run_persistently(self.store.read_streams, taken)
            # Ignore shards that were lost in the meantime. If they were taken again, their streams are read again.
            rows = [row for row in rows if self.is_current(row.name, taken.get(self.shard_of(row.name)))]
            self._engine.rows |= {row.name: row for row in rows}
            self._loader.begin(rows)
            log.info("took shards", extra={"fields": {"shards": len(taken), "streams": len(rows)}})
        except Exception as error:
            if any(self.epochs.get(shard) == epoch for shard, epoch in taken.items()):  # otherwise it does not matter
                self._engine.fail(error)
        finally:
            self._end(self._opening, opened)

    def _begin(self, waiting: dict[int, asyncio.Future[None]], shards: Iterable[int]) -> asyncio.Future[None]:
        """Make requests for shards wait until :meth:`_end` is called with the returned future."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting |= dict.fromkeys(shards, future)
        return future

    def _end(self, waiting: dict[int, asyncio.Future[None]], future: asyncio.Future[None]) -> None:
        """Let the waiting requests continue, except for shards that have been given another future since."""
        for shard in [shard for shard, other in waiting.items() if other is future]:
            del waiting[shard]
        future.set_result(None)

    def note_fence(self, epochs: Mapping[str, int]) -> None:
        """Drop the shards of these streams, by name, because commits in these epochs were fenced.

        The keeper may not have noticed yet. A shard that this node has taken again since then is kept: what was not
        stored was dropped together with the old epoch.
        """
        ended = {self.shard_of(name): epoch for name, epoch in epochs.items() if self.is_current(name, epoch)}
        if ended:
            if ended.keys() - self._releasing:
                log.warning("shards were taken by another node: %s", sorted(ended))
                self.fenced += 1
            self._fenced |= ended
            self._drop(ended)
            if self.keeper is not None:
                self.keeper.drop_fenced(ended)

    def is_current(self, name: str, epoch: int | None) -> bool:
        """Return whether this node serves a stream in this epoch."""
        return epoch is not None and self.epochs.get(self.shard_of(name)) == epoch

    def _drop(self, shards: Collection[int]) -> None:
        for shard in shards:
            del self.epochs[shard]
        for row in self._list_rows(shards):
            self._engine.drop(row)

    def _list_rows(self, shards: Collection[int]) -> list[StreamRow]:
        return [row for row in self._engine.rows.values() if self.shard_of(row.name) in shards]

    def _note_map(self, shard_map: ShardMap) -> None:
        self._note_change()
        for call in self.on_map:
            call(shard_map)

    def list_known(self) -> dict[int, int]:
        """Return the epochs of the shards that this node serves and whose list of streams it has read."""
        return {shard: epoch for shard, epoch in self.epochs.items() if shard not in self._opening}

    def shard_of(self, name: str) -> int:
        """Return the shard of a stream."""
        return shard_of(name, self.store.shards)

    # --- releasing shards ------------------------------------------------------------------------------------------

    def give_up(self, shards: Collection[int]) -> None:
        """Start to release shards, because other nodes have fewer or this node is leaving."""
        if self._engine.failure is None and (own := [shard for shard in shards if shard in self.epochs]):
            self._engine.tasks.start(self._release(own))

    async def _release(self, shards: list[int]) -> None:
        """Release some shards once all events of their streams are stored. Requests for them wait during the last part.

        Snapshots are stored first, while requests are still answered, so that the next owner has little to replay.
        """
        epochs = {s: self.epochs[s] for s in shards if s in self.epochs and s not in self._releasing}
        if not epochs or self.keeper is None:
            return
        self._releasing |= epochs.keys()
        left: asyncio.Future[None] | None = None
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for stream in self._list_streams(epochs):
                    await self._engine.journal.save_snapshot(stream)
                left = self._begin(self._leaving, epochs)
                await wait_while_in_progress(self._list_streams(epochs), IN_PROGRESS_SECONDS)
                for stream in self._list_streams(epochs):
                    await wait_while_held(stream)
                await self._engine.journal.flush()
            # The streams are dropped only afterwards, so that requests whose events are stored are still answered.
            number = len(self._list_rows(epochs))
            released = await asyncio.to_thread(self.keeper.release, epochs)
            log.info("released shards", extra={"fields": {"shards": len(released), "streams": number}})
        except (Problem, TimeoutError, *STORE_ERRORS) as error:
            log.warning("shards %s could not be released: %s", sorted(epochs), error)
        finally:
            self._releasing -= epochs.keys()
            self.sync()
            if left is not None:
                self._end(self._leaving, left)

    def _list_streams(self, shards: Collection[int]) -> list[Stream]:
        """Return the loaded streams of these shards."""
        streams = self._engine.streams
        return [streams[row.name] for row in self._list_rows(shards) if row.name in streams]

    # --- requests --------------------------------------------------------------------------------------------------

    @property
    def not_ready(self) -> NotReady | None:
        """Why this node should get no requests."""
        problem = None if self.keeper is None else self.keeper.problem
        return self.find_problem() if problem is None else NotReady.after(problem)

    def find_epoch(self, name: str) -> int:
        """Return the epoch of the shard of a stream. Raise if this node does not own the shard."""
        assert self.keeper is not None  # the engine is ready
        shard = self.shard_of(name)
        epoch = self.keeper.owns(shard)
        if epoch is not None and self.epochs.get(shard) == epoch:
            return epoch
        owner = self.keeper.map.owners.get(shard)
        if owner is None or owner.instance == self.keeper.node.instance:
            if self.keeper.problem is not None:
                raise unavailable(NotReady.after(self.keeper.problem))
            raise Problem("unavailable", f"no node owns shard {shard} now; try again", cause="moving")
        raise ElsewhereError(owner, shard)

    async def prepare(self, name: str) -> None:
        """Wait until a stream is loaded, if this node serves it. Raise if another node does.

        During every wait the shard may be lost and taken again, so all conditions are checked again after it. Otherwise
        an existing stream could be reported as unknown.
        """
        shard, engine, end = self.shard_of(name), self._engine, time.monotonic() + MOVE_SECONDS
        while True:
            if (future := self._leaving.get(shard) or self._opening.get(shard)) is not None:
                await asyncio.shield(future)
                continue
            engine.refuse_if_not_ready()
            if self._is_moving(shard) and time.monotonic() < end:
                await self._wait_for_change(end)
                continue
            self.find_epoch(name)
            if name not in engine.rows or name in engine.streams or name in engine.unavailable:
                return
            await asyncio.shield(self._loader.load(engine.rows[name]))

    def _is_moving(self, shard: int) -> bool:
        """Return whether the owner of a shard is unknown at the moment, but should be known soon."""
        keeper = self.keeper
        if keeper is None or keeper.problem is not None:
            return False
        epoch, owner = keeper.owns(shard), keeper.map.owners.get(shard)
        if epoch is not None:
            return self.epochs.get(shard) != epoch
        return owner is None or owner.instance == keeper.node.instance

    async def wait_until_moved(self, owner: ElsewhereError, seconds: float) -> bool:
        """Wait until the map no longer says that this node owns the shard; return False if that takes longer."""
        end = time.monotonic() + seconds
        while self._is_owner(owner):
            if time.monotonic() >= end:
                return False
            await self._wait_for_change(end)
        return True

    def _is_owner(self, owner: ElsewhereError) -> bool:
        current = None if self.keeper is None or owner.shard is None else self.keeper.map.owners.get(owner.shard)
        return current is not None and current.instance == owner.instance

    async def _wait_for_change(self, end: float) -> None:
        """Wait until the map or the shards of this node change, but not beyond ``end`` (``time.monotonic()``)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(end - time.monotonic()):
                await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed.clear()

    def admit(self, stream: Stream) -> None:
        """Make the stream write its events in the current epoch of its shard."""
        stream.epochs = {stream.id: self.epochs[self.shard_of(stream.name)]}
