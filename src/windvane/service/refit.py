"""Refits of streams: learn the log again under other settings beside the running model, then swap the two.

The new model is learned in a thread, from the events on disk, some at a time, while the stream goes on. It then catches
up with the events that came meanwhile; the stream is held only for the last of them. An event records the swap. Its
replay learns the same events again under the same settings, so that it gives the same model to the last bit. To undo a
refit, the model from before it is rebuilt from the log and learns the decisions and rewards since.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from windvane.agent import AgentCore
from windvane.agent.refit import LogLearner, renew_settings
from windvane.agent.times import read_clock
from windvane.errors import WindvaneError
from windvane.service.problems import Problem, invalid
from windvane.service.requests import check_features
from windvane.service.store import Store, UnreadableEventError, check_event
from windvane.service.turns import hold, wait_while_held
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.stream_state import StreamState
    from windvane.service.streams import Done, Stream

SLICE = 100  # events between two pauses of the thread
PAUSE = 0.001  # seconds, in which the thread leaves the interpreter to requests
FEW = 200  # events for which a stream may be held
_REFITS = ThreadPoolExecutor(2, "windvane-refit")  # their own: a refit takes long, and others need threads meanwhile

T = TypeVar("T")


class AbandonedError(WindvaneError):
    """Nobody waits for a refit any more."""


class LogReader:
    """Lets a learner read the log of a stream, from the event after ``number``, whose chain value is ``chain``."""

    def __init__(self, learner: LogLearner, store: Store, stream: int, number: int, chain: bytes) -> None:
        self.learner, self._store, self._stream = learner, store, stream
        self._number, self._chain = number, chain
        self.is_abandoned = False

    def read(self, last: int) -> LogLearner:
        """Learn the events up to number ``last``."""
        while self._number < last:
            if self.is_abandoned:
                raise AbandonedError("nobody waits for the refit any more")
            first, limit = self._number, min(SLICE, last - self._number)
            for event in self._store.read_events(self._stream, after=first, limit=limit):
                check_event(self._chain, event)
                self.learner.learn(event.to_plain())
                self._number, self._chain = event.number, event.chain
            if self._number != first + limit:
                raise UnreadableEventError(self._number + 1, "is missing")
            time.sleep(PAUSE)
        return self.learner


def begin_refit(stream: StreamState, changes: dict[str, Any]) -> Callable[[], LogReader]:
    """Return a function that builds the new model, in any thread, before it has learned anything."""
    arguments, arms = renew_settings(stream.core, changes), stream.first_arms

    def build() -> LogReader:
        learner = LogLearner(AgentCore(**arguments), arms)
        warm_up([type(learner.core.policy)])
        return LogReader(learner, stream.store, stream.id, 0, stream.row.digest)

    return build


def begin_undo(stream: StreamState) -> Callable[[], LogReader]:
    """Return a function that rebuilds the model from before the last refit, in any thread."""
    refit = stream.refits[-1]

    def build() -> LogReader:
        before = stream.rebuild(refit - 1)
        features = before.core.encoder.features
        learner = LogLearner(before.core, () if features is None else features.arms, follows=True)
        (skipped,) = stream.store.read_events(stream.id, after=refit - 1, limit=1)
        return LogReader(learner, stream.store, stream.id, refit, skipped.chain)

    return build


async def refit(engine: Engine, stream: Stream, changes: dict[str, Any], key: str | None, *, dry_run: bool) -> Done:
    """Learn the log of ``stream`` again under ``changes``, and swap the model unless it is a ``dry_run``."""
    if again := stream.find_refit(changes, key):
        await engine.commit(stream)  # the first request may still wait for the disk
        return again
    try:
        check_features(changes.get("features"))
        build = begin_refit(stream, changes)
    except ValueError as error:
        raise invalid(error) from None

    def adopt(learner: LogLearner) -> Done:
        return stream.refit(changes, learner, key, read_clock(), dry_run=dry_run)

    return await _learn_beside(engine, stream, build, adopt, dry_run=dry_run)


async def undo(engine: Engine, stream: Stream, key: str | None) -> Done:
    """Put the model from before the last refit in the place of the present one."""
    if again := stream.find_refit(None, key):
        await engine.commit(stream)
        return again
    if not stream.refits:
        raise Problem("no-refit", f"stream {stream.name!r} has no refit that could be undone")
    return await _learn_beside(
        engine, stream, begin_undo(stream), lambda learner: stream.undo_refit(learner, key, read_clock())
    )


async def _learn_beside(
    engine: Engine, stream: Stream, build: Callable[[], LogReader], adopt: Callable[[LogLearner], Done], *,
    dry_run: bool = False,
) -> Done:  # fmt: skip
    """Let a new model learn the log in a thread, and adopt it; of a dry run, only its comparison."""
    if stream.is_refitting:
        raise Problem("refit-running", f"a refit of stream {stream.name!r} is under way")
    stream.is_refitting, settings = True, dict(stream.core.settings)
    reader: LogReader | None = None
    try:
        reader = await _run_in_thread(build)
        behind = FEW + 1
        while behind > FEW:
            last = stream.number
            await engine.commit(stream)
            learner = await _run_in_thread(reader.read, last)
            behind = 0 if dry_run else stream.number - last
        if dry_run:
            return adopt(learner)
        await wait_while_held(stream)
        with hold(stream):
            await engine.commit(stream)
            learner = await _run_in_thread(reader.read, stream.number)
            stream.refuse_if_archived()
            if stream.core.settings != settings:
                raise Problem("refit-running", "the settings were changed while the log was learned again; try again")
            with engine.operating(stream):
                done = adopt(learner)
            await engine.commit(stream, done.events)
            return done
    except ValueError as error:
        raise invalid(error) from None
    except UnreadableEventError as error:
        raise Problem("unreadable", f"{error}; `windvane verify` says more") from None
    finally:
        stream.is_refitting = False
        if reader is not None:
            reader.is_abandoned = True  # its thread may go on, if the request was cancelled


async def _run_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_REFITS, work, *arguments)
