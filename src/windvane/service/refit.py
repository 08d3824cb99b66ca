"""Refits of streams: learn the log again with new settings beside the running model, then swap the two.

A thread learns the new model from the events on disk, in slices, while the stream continues. The new model then catches
up with newer events; the stream is held only for the last few. An event records the swap. Its replay learns the same
events again with the same settings, which gives the same model to the last bit. To undo a refit, the model from before
it is rebuilt from the log and learns the decisions and rewards since then.

Of a log that is not whole, a refit learns what is left. Replays begin at the baseline, so that a refit is only replayed
if nothing that it learned was erased since, and only such a refit can be undone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from windvane.agent import AgentCore
from windvane.agent.refit import LogLearner, renew_settings
from windvane.agent.times import read_clock
from windvane.errors import ArgumentError
from windvane.service.baselines import find_start, read_baseline
from windvane.service.problems import Problem, invalid
from windvane.service.retention import check_retention
from windvane.service.store import ReadableStore, SnapshotError, UnreadableEventError, check_event
from windvane.service.store.events import REFIT_UNDONE
from windvane.service.stream_settings import check_features
from windvane.service.turns import hold, wait_while_held
from windvane.warmup import warm_up

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.stream_state import StreamState
    from windvane.service.streams import Done, Stream

SLICE = 100  # events between two pauses of the thread
PAUSE = 0.001  # seconds in which the interpreter serves requests
FEW = 200  # events for which a stream may be held
_REFITS = ThreadPoolExecutor(2, "windvane-refit")  # their own: a refit takes long, and others need threads meanwhile

T = TypeVar("T")


class Work:
    """Long work in a thread, which leaves the interpreter to requests from time to time and can be given up."""

    def __init__(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._is_given_up, self._is_stopping = threading.Event(), is_stopping

    def give_up(self) -> None:
        """Let the work end at its next pause. Thread-safe."""
        self._is_given_up.set()

    def pause(self) -> None:
        """Wait for a moment; call it in the thread."""
        if self._is_given_up.wait(PAUSE) or self._is_stopping():
            raise Problem("unavailable", "the service is stopping", cause="stopping")


class LogReader:
    """Feeds the log of a stream to a learner, from the event after ``number``, whose chain value is ``chain``."""

    def __init__(self, learner: LogLearner, store: ReadableStore, stream: int, number: int, chain: bytes) -> None:
        self.learner, self._store, self._stream = learner, store, stream
        self.number, self.chain = number, chain

    def read(self, last: int, work: Work) -> LogLearner:
        """Learn the events up to number ``last``."""
        while self.number < last:
            work.pause()
            first, limit = self.number, min(SLICE, last - self.number)
            for event in self._store.read_events(self._stream, after=first, limit=limit):
                check_event(self.chain, event)
                self.learner.learn(event.to_plain(), event.number)
                self.number, self.chain = event.number, event.chain
            if self.number != first + limit:
                raise UnreadableEventError(self.number + 1, "is missing")
        return self.learner


def begin_refit(stream: StreamState, changes: dict[str, Any]) -> Callable[[Work], LogReader]:
    """Return a function that builds the new, empty model, in any thread."""
    arguments = renew_settings(stream.core, changes)

    def build(_: Work) -> LogReader:
        start = find_start(stream.row, read_baseline(stream.row, stream.store))
        learner = LogLearner(AgentCore(**arguments), start.arms[-1], earlier=start.arms[:-1])
        learner.skipped = start.number
        warm_up([type(learner.core.policy)])
        return LogReader(learner, stream.store, stream.id, start.number, start.chain)

    return build


def begin_undo(stream: StreamState) -> Callable[[Work], LogReader]:
    """Return a function that rebuilds the model from before the last refit, in any thread."""
    refit = stream.refits[-1]
    return lambda work: _follow_without(_rebuild_before(stream, refit, work), refit)


def _rebuild_before(stream: StreamState, number: int, work: Work) -> StreamState:
    """Return the stream with the model that it had before event ``number``, rebuilt from its log.

    A refit that was undone by then is left out together with what undid it. The replay of an undo begins with this
    function: if it replayed others, each pair of a refit and an undo would double the time.
    """
    store, before = stream.store, stream.begin_again()
    if before.number >= number:
        raise Problem("no-refit", f"the last refit (event {number}) cannot be undone: events before it were erased")
    events = store.read_events(stream.id, after=before.number, limit=number - 1 - before.number)
    undone = {event.outcome["refit"]: event.number for event in events if event.kind == REFIT_UNDONE}
    while (first := before.number) < number - 1:
        work.pause()
        for event in store.read_events(stream.id, after=first, limit=min(SLICE, number - 1 - first)):
            if event.number in undone:
                last = undone[event.number]
                reader = _follow_without(before, event.number)
                reader.read(last - 1, work).finish()
                (undo,) = store.read_events(stream.id, after=last - 1, limit=1)
                check_event(reader.chain, undo)
                before.number, before.chain = undo.number, undo.chain
                break
            before.apply(event)
        if before.number == first:
            raise UnreadableEventError(first + 1, "is missing")
    return before


def _follow_without(before: StreamState, refit: int) -> LogReader:
    """Let the model of ``before`` learn the events after the refit with this number, which is the next one."""
    features = before.core.encoder.features
    learner = LogLearner(before.core, () if features is None else features.arms, follows=True)
    (skipped,) = before.store.read_events(before.id, after=refit - 1, limit=1)
    check_event(before.chain, skipped)
    return LogReader(learner, before.store, before.id, refit, skipped.chain)


async def refit(engine: Engine, stream: Stream, changes: dict[str, Any], key: str | None, *, dry_run: bool) -> Done:
    """Learn the log of ``stream`` again with ``changes``, and replace the model unless it is a ``dry_run``."""
    if again := await _find_answer(engine, stream, changes, key):
        await engine.journal.commit(stream)  # the first request may still wait for the disk
        return again
    try:
        check_features(changes.get("features"))
        check_retention(stream.retention, changes.get("reward_timeout"), "reward_timeout")
        build = begin_refit(stream, changes)
    except ValueError as error:
        raise invalid(error) from None

    def adopt(learner: LogLearner) -> Done:
        return stream.refit(changes, learner, key, read_clock(), dry_run=dry_run)

    return await _learn_beside(engine, stream, key, build, adopt, dry_run=dry_run)


async def undo(engine: Engine, stream: Stream, key: str | None) -> Done:
    """Restore the model from before the last refit."""
    if again := await _find_answer(engine, stream, None, key):
        await engine.journal.commit(stream)
        return again
    if not stream.refits:
        raise Problem("no-refit", f"stream {stream.name!r} has no refit to undo")
    return await _learn_beside(
        engine, stream, key, begin_undo(stream), lambda learner: stream.undo_refit(learner, key, read_clock())
    )


async def _find_answer(engine: Engine, stream: Stream, changes: dict[str, Any] | None, key: str | None) -> Done | None:
    async def find() -> Done | None:
        return stream.find_refit(changes, key)

    return await engine.lookups.execute(stream, find)


async def _learn_beside(
    engine: Engine, stream: Stream, key: str | None, build: Callable[[Work], LogReader],
    adopt: Callable[[LogLearner], Done], *, dry_run: bool = False,
) -> Done:  # fmt: skip
    """Let a new model learn the log in a thread, and adopt it; a dry run returns only the comparison."""
    if stream.is_refitting and key is not None and key == stream.refit_key:
        raise Problem("unavailable", "this refit is running; repeat the request to get its answer", cause="busy")
    if stream.is_refitting:
        raise Problem("refit-running", f"a refit of stream {stream.name!r} is running")
    stream.is_refitting, stream.refit_key, settings = True, key, dict(stream.core.settings)
    work = Work(lambda: engine.is_closing)
    try:
        async with stream.erasing:  # what is being erased must not be learned; from now on nothing is erased
            pass
        reader = await _run_in_thread(build, work)
        behind = FEW + 1
        while behind > FEW:
            last = stream.number
            await engine.journal.commit(stream)
            learner = await _run_in_thread(reader.read, last, work)
            behind = 0 if dry_run else stream.number - last
        if dry_run:
            return adopt(learner)
        await wait_while_held(stream)
        with hold(stream):
            await engine.journal.commit(stream)
            learner = await _run_in_thread(reader.read, stream.number, work)
            stream.refuse_if_archived()
            if stream.core.settings != settings:
                raise Problem("refit-running", "the settings changed during the refit; try again")
            with engine.operations.operating(stream):
                done = adopt(learner)
            await engine.journal.commit(stream, done.events)
            return done
    except SnapshotError as error:
        text = f"the baseline of the stream cannot be used ({error}); run `windvane verify` for details"
        raise Problem("unreadable", text) from None
    except ValueError as error:
        problem = invalid(error)
        if isinstance(error, ArgumentError) and error.path[0] == "log":  # which is not in the body
            problem.errors = []
        raise problem from None
    except UnreadableEventError as error:
        engine.refuse_if_replaced(stream)  # its events may be gone because it was deleted
        raise Problem("unreadable", f"{error}; run `windvane verify` for details") from None
    finally:
        stream.is_refitting = False
        work.give_up()  # its thread may go on, if the request was cancelled


async def _run_in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_REFITS, work, *arguments)
