"""Which streams a node of a cluster serves: those of the shards that it owns.

When a node takes a shard, it reads which streams the shard has, and loads each of them at its first request or in the
background, whichever comes first. When it loses a shard, it drops the streams at once. A shard that it gives up is
released only once all events and snapshots of its streams are stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from windvane.cluster_map import shard_of
from windvane.errors import WindvaneError
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.service.cluster.shard_map import Node
from windvane.service.garbage import pause_garbage_collection
from windvane.service.problems import Problem
from windvane.service.readiness import NotReady
from windvane.service.recovery import Recovery, rebuild_stream
from windvane.service.store import STORE_ERRORS, DatabaseError, StreamRow
from windvane.service.store.migrations import FORMAT
from windvane.service.stream_state import ReplayError
from windvane.service.streams import Stream
from windvane.service.turns import wait_while_held
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.cluster.keeper import Keeper
    from windvane.service.engine import Engine

JOIN_SECONDS = 5.0  # to wait for the keeper to join
LOADERS = 2  # threads that load streams
RELEASE_SECONDS = 5.0  # in which the streams of a shard that is given up must be stored

log = logging.getLogger("windvane.service")


class ElsewhereError(WindvaneError):
    """Another node, at ``url``, owns the shard of a stream."""

    def __init__(self, node: str, url: str) -> None:
        self.node, self.url = node, url
        super().__init__(f"node {node!r} serves this stream")


class NodeSettings(NamedTuple):
    """A node: its name, the address at which others reach it, and its version of windvane."""

    name: str
    url: str
    version: str


class Placement:
    """The shards that a node serves, and the streams in them. Used in the event loop, except where noted."""

    def __init__(self, engine: Engine, node: NodeSettings) -> None:
        self._engine, self.node = engine, node
        self.keeper: Keeper | None = None  # once the database was reached
        self._secret = ""
        self.epochs: dict[int, int] = {}  # of the shards that are served, or are about to be
        self._fenced: dict[int, int] = {}  # epochs that are over, though the keeper has not noticed yet
        self._opening: dict[int, asyncio.Future[None]] = {}  # until it is known which streams a shard has
        self._leaving: dict[int, asyncio.Future[None]] = {}  # until a shard is released
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._threads = ThreadPoolExecutor(LOADERS, "windvane-loader")

    # --- starting and stopping -------------------------------------------------------------------------------------

    def recover(self) -> Recovery:
        """Take the node's own shards again, in a thread, and return their streams, none of them loaded.

        Taking them waits for commits of unknown outcome, and ends the epochs in which they were made.
        """
        store: Any = self._engine.store
        store.open()
        if self.keeper is None:
            self.keeper, self._secret = self._join(store), store.read_secret()
        if not self.keeper.wait_until_joined(JOIN_SECONDS):
            raise self.keeper.problem or DatabaseError("the database does not respond")
        epochs = self.keeper.retake()
        rows = store.read_streams(epochs)
        warm_up([AdaptiveGLMUCB])
        self._recovered = epochs
        return Recovery({row.name: row for row in rows}, {}, {}, {})

    def open(self) -> None:
        """Serve the shards that :meth:`recover` found."""
        self.epochs, self._fenced = dict(self._recovered), {}
        self._end(self._opening, list(self._opening))
        self._loading = {}
        self._engine.tasks.start(self._load_all(list(self._engine.rows.values())))
        self.sync()

    def _join(self, store: Any) -> Keeper:
        """Begin to hold leases, in a thread of the keeper."""
        from windvane.service.cluster.keeper import Keeper  # it needs psycopg

        keeper = Keeper(
            store.address,
            Node("", *self.node, FORMAT),
            store.shards,
            self._engine.loop,
            on_taken=lambda _: self.sync(),
            on_lost=lambda _: self.sync(),
            on_map=lambda _: None,
            on_excess=self.give_up,
        )
        keeper.start()
        return keeper

    async def stop(self) -> None:
        """Release all shards, whose streams are stored."""
        self.epochs = {}
        if self.keeper is not None:
            await asyncio.to_thread(self.keeper.stop)
        self._threads.shutdown(wait=False)

    def read_secret(self) -> str:
        """Return the secret that all nodes share; empty before the database was reached."""
        return self._secret

    def leave(self) -> None:
        """Begin to give up all shards, before the service stops: other nodes serve them meanwhile."""
        if self.keeper is not None:
            self.keeper.withdraw()

    # --- taking and losing shards ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Serve the shards that the keeper has taken, and drop those that it has lost."""
        if self._engine.failure is not None or self.keeper is None:
            return  # the recovery begins with the shards that are owned then
        owned = self.keeper.epochs
        for shard, epoch in list(self.epochs.items()):
            if owned.get(shard) != epoch:
                self._drop(shard)
        taken = {s: e for s, e in owned.items() if s not in self.epochs and self._fenced.get(s) != e}
        if taken:
            self.epochs |= taken
            self._opening |= {shard: asyncio.get_running_loop().create_future() for shard in taken}
            self._engine.tasks.start(self._open_shards(taken))

    async def _open_shards(self, taken: dict[int, int]) -> None:
        try:
            rows = await self._run(self._engine.store.read_streams, taken)
        except Exception as error:
            self._engine.fail(error)
            return
        finally:
            self._end(self._opening, taken)
        rows = [row for row in rows if self._is_current(row.name, taken)]
        self._engine.rows |= {row.name: row for row in rows}
        if rows:
            self._engine.tasks.start(self._load_all(rows))

    def _end(self, waiting: dict[int, asyncio.Future[None]], shards: Iterable[int]) -> None:
        """Let requests go on that wait for shards."""
        for shard in shards:
            if (future := waiting.pop(shard, None)) is not None and not future.done():
                future.set_result(None)

    def _is_current(self, name: str, epochs: dict[int, int]) -> bool:
        shard = self.shard_of(name)
        return self.epochs.get(shard) == epochs.get(shard)

    def note_fence(self, rows: Iterable[StreamRow]) -> None:
        """Drop the shards of streams that another node has taken, before the keeper notices."""
        for shard in {self.shard_of(row.name) for row in rows}:
            if shard in self.epochs:
                self._fenced[shard] = self.epochs[shard]
                log.warning("shard %d was taken by another node", shard)
                self._drop(shard)

    def _drop(self, shard: int) -> None:
        del self.epochs[shard]
        for row in self._list_rows([shard]):
            self._engine.drop(row)

    def _list_rows(self, shards: Collection[int]) -> list[StreamRow]:
        return [row for row in self._engine.rows.values() if self.shard_of(row.name) in shards]

    def shard_of(self, name: str) -> int:
        """Return the shard of a stream."""
        return shard_of(name, self.shards)

    @property
    def shards(self) -> int:
        """The number of shards of the store."""
        store: Any = self._engine.store  # only a database has shards
        count: int = store.shards
        return count

    # --- giving shards up ------------------------------------------------------------------------------------------

    def give_up(self, shards: Collection[int]) -> None:
        """Begin to give up shards, because other nodes have fewer."""
        if self._engine.failure is None and (own := [shard for shard in shards if shard in self.epochs]):
            self._engine.tasks.start(self._release(own))

    async def _release(self, shards: list[int]) -> None:
        """Store all events and snapshots of some shards, then release them. Requests for them wait."""
        shards = [shard for shard in shards if shard not in self._leaving]
        if not shards:
            return
        self._leaving |= {shard: asyncio.get_running_loop().create_future() for shard in shards}
        epochs = {shard: self.epochs[shard] for shard in shards if shard in self.epochs}
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                for row in self._list_rows(epochs):
                    if (stream := self._engine.streams.get(row.name)) is not None:
                        await wait_while_held(stream)
                        await self._engine.store_snapshot(stream)
                await self._engine.flush()
            for shard in epochs:
                self._drop(shard)
            assert self.keeper is not None  # shards are owned
            await self._run(self.keeper.release, epochs)
        except (Problem, TimeoutError, *STORE_ERRORS) as error:
            log.warning("shards %s are not released: %s", sorted(epochs), error)
        finally:
            self._end(self._leaving, shards)

    # --- requests --------------------------------------------------------------------------------------------------

    @property
    def not_ready(self) -> NotReady | None:
        """Why this node should get no requests."""
        problem = None if self.keeper is None else self.keeper.problem
        return None if problem is None else NotReady.after(problem)

    def find_epoch(self, name: str) -> int:
        """Return the epoch of the shard of a stream; raise if this node does not own it."""
        assert self.keeper is not None  # the engine is ready
        shard = self.shard_of(name)
        epoch = self.keeper.owns(shard)
        if epoch is not None and self.epochs.get(shard) == epoch:
            return epoch
        owner = self.keeper.map.owners.get(shard)
        if owner is None or owner.instance == self.keeper.node.instance:
            raise Problem("unavailable", f"no node owns shard {shard} now; try again")
        raise ElsewhereError(owner.name, owner.url)

    async def prepare(self, name: str) -> None:
        """Wait until a stream of this node is loaded; raise if another node has it."""
        shard = self.shard_of(name)
        for waiting in (self._leaving, self._opening):
            if (future := waiting.get(shard)) is not None:
                await asyncio.shield(future)
        self.find_epoch(name)
        engine = self._engine
        if name in engine.rows and name not in engine.streams and name not in engine.unavailable:
            await asyncio.shield(self._load(engine.rows[name]))

    def admit(self, stream: Stream) -> None:
        """Let the events of a stream be written in the current epoch of its shard."""
        stream.epochs = {stream.id: self.epochs[self.shard_of(stream.name)]}

    # --- loading ---------------------------------------------------------------------------------------------------

    async def _load_all(self, rows: list[StreamRow]) -> None:
        """Load streams in the background: their timeouts pass without a request."""
        for row in rows:
            is_needed = self._engine.rows.get(row.name) is row and row.name not in self._engine.streams
            if is_needed and row.name not in self._engine.unavailable and self._engine.failure is None:
                await self._load(row)

    def _load(self, row: StreamRow) -> asyncio.Task[None]:
        task = self._loading.get(row.name)
        if task is None or task.done():
            epoch = self.epochs[self.shard_of(row.name)]
            task = self._loading[row.name] = self._engine.tasks.run_to_end(self._load_stream(row, epoch))
        return task

    async def _load_stream(self, row: StreamRow, epoch: int) -> None:
        engine = self._engine
        try:
            stream, number, seconds = await self._run(self._rebuild, row)
        except ReplayError as error:
            if engine.rows.get(row.name) is row:
                engine.unavailable[row.name] = str(error)
                log.error("stream %r is not served: %s", row.name, error)
            return
        except Exception as error:
            engine.fail(error)
            return
        if (
            engine.failure is None
            and engine.rows.get(row.name) is row
            and self.epochs.get(self.shard_of(row.name)) == epoch
        ):
            self.admit(stream)
            engine.install(stream, number, seconds)
            engine.tasks.start(engine.views.build_charts([stream]))

    def _rebuild(self, row: StreamRow) -> tuple[Stream, int, float]:
        began = time.perf_counter()
        with pause_garbage_collection():
            stream = rebuild_stream(row, self._engine.store)
        warm_up([type(stream.core.policy)])
        return stream, self._engine.store.read_snapshot_number(row.id), time.perf_counter() - began

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
