"""Create and remove streams of an engine, one at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from windvane.agent.times import read_clock
from windvane.service.problems import MovedError, Problem
from windvane.service.readiness import NotReady, refuse_read, unavailable
from windvane.service.store import STORE_ERRORS, FencedError, NoConnectionError, StreamRow, TooManyStreamsError
from windvane.service.streams import Stream
from windvane.service.tasks import run_persistently

if TYPE_CHECKING:
    from windvane.service.engine import Engine

LOOK_SECONDS = 0.25  # between looks whether the disk has stalled
NOT_WRITTEN = "the store cannot be written to; repeat the request"

log = logging.getLogger("windvane.service")


class Registry:
    """The streams of ``engine``, at most ``most`` of them. ``changing`` is held while one is created or removed."""

    def __init__(self, engine: Engine, most: int | None) -> None:
        self._engine, self._most = engine, most
        self.changing = asyncio.Lock()
        self._since = 0.0  # when a stream began to be stored; 0: none is

    @property
    def waiting_seconds(self) -> float:
        """For how many seconds a new stream has been waiting to be stored; 0 if none is."""
        return time.monotonic() - self._since if self._since else 0.0

    async def refuse_if_taken(self, name: str) -> None:
        """Raise if no stream with this name can be created here."""
        engine = self._engine
        engine.refuse_if_not_ready()
        if engine.placement is not None:
            await engine.placement.prepare(name)
        if name in engine.rows:
            raise _taken(name)

    async def add(self, name: str, config: str) -> Stream:
        """Store a new stream and serve it."""
        adding = self._engine.tasks.run_to_end(self._add(name, config))
        while not adding.done():
            await asyncio.wait({adding}, timeout=LOOK_SECONDS)
            failure = self._engine.failure
            if failure is not None and failure.code == "stalled" and not adding.done():
                raise unavailable(failure)
        return adding.result()  # even if a recovery has begun: it is in the store

    async def _add(self, name: str, config: str) -> Stream:
        engine, placement = self._engine, self._engine.placement
        async with self.changing:
            await self.refuse_if_taken(name)
            epoch = None if placement is None else placement.find_epoch(name)
            row = await self._store_row(name, config, epoch)
            if row is None:
                raise _taken(name)
            stream = Stream(row, engine.store)
            if placement is not None:
                if not placement.is_current(name, epoch):
                    return stream  # it was created, and another node serves it
                placement.admit(stream)
            engine.rows[row.name] = row
            engine.install(stream)
            return stream

    async def _store_row(self, name: str, config: str, epoch: int | None) -> StreamRow | None:
        """Return the row of a new stream, None if the name is taken."""
        store, self._since = self._engine.store, time.monotonic()
        try:
            return await asyncio.to_thread(store.add_stream, name, read_clock(), config, most=self._most, epoch=epoch)
        except TooManyStreamsError as error:
            raise Problem("too-many-streams", f"{error}; delete a stream, or set --max-streams") from None
        except FencedError:
            raise MovedError from None
        except NoConnectionError as error:
            raise refuse_read(error) from None
        except STORE_ERRORS as error:
            log.error("stream %r cannot be stored: %s", name, error)
            self._engine.report_damage(error)
            if store.is_remote:  # whether it was stored is not known
                self._engine.fail(error)
            raise Problem("unavailable", NOT_WRITTEN, cause=NotReady.after(error).code) from None
        finally:
            self._since = 0.0

    async def remove(self, name: str) -> None:
        """Remove a stream with all of its data, whether or not it is served.

        This may take long if the stream has many events, but only this request waits for it.
        """
        is_known = await asyncio.shield(self._engine.tasks.run_to_end(self._begin_removal(name)))
        await self._purge()  # including the events that a failed earlier request has left
        if not is_known:
            raise unknown_stream(name)
        log.info("stream %r was deleted", name, extra={"fields": {"stream": name}})

    async def _begin_removal(self, name: str) -> bool:
        """Remove a stream but not its events. Return whether the stream existed."""
        engine, placement = self._engine, self._engine.placement
        async with self.changing:
            engine.refuse_if_not_ready()
            if placement is not None:
                await placement.prepare(name)
            if name not in engine.rows:
                return False
            epoch = None if placement is None else placement.find_epoch(name)
            row = engine.rows[name]
            with engine.removing(row):
                try:
                    await engine.journal.flush()  # until all of its events are stored
                    await run_persistently(partial(engine.store.begin_removal, row, epoch=epoch))
                except FencedError:
                    raise MovedError from None
                except STORE_ERRORS as error:  # it may still be there
                    engine.fail(error)
                    raise Problem("unavailable", NOT_WRITTEN, cause=NotReady.after(error).code) from None
        return True

    async def _purge(self) -> None:
        """Delete the events of removed streams. If the server stops meanwhile, the next one deletes the rest."""
        engine = self._engine
        try:
            is_done = await run_persistently(engine.store.purge, lambda: engine.is_closing)
        except STORE_ERRORS as error:
            engine.report_damage(error)
            raise Problem("unavailable", NOT_WRITTEN, cause=NotReady.after(error).code) from None
        if engine.is_closing and not is_done:
            raise unavailable(NotReady.of("stopping"))


def unknown_stream(name: str) -> Problem:
    """Return the problem of a request about a stream that does not exist."""
    return Problem("unknown-stream", f"there is no stream {name!r}")


def _taken(name: str) -> Problem:
    hint = f"to use it, or create it if it is missing, `ensure` it: PUT /v1/streams/{name} with the settings"
    return Problem("stream-exists", f"a stream with the name {name!r} already exists; {hint}", pointer="#/name")
