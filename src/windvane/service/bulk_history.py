"""Learning bulk history: in a copy of the agent, in a thread, while requests that change the stream wait."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from windvane.agent.history import LearnedHistory
from windvane.agent.times import read_clock
from windvane.service.problems import MovedError, TakenOverError
from windvane.service.turns import count_in_progress, hold, wait_while_held

if TYPE_CHECKING:
    from windvane.service.engine import Engine
    from windvane.service.streams import Done, Stream


async def learn_history(engine: Engine, stream: Stream, raw: bytes, key: str | None) -> Done:
    """Learn bulk history; it is on disk when this returns."""
    with count_in_progress(stream):
        return await engine.lookups.execute(stream, lambda: _learn(engine, stream, raw, key))


async def _learn(engine: Engine, stream: Stream, raw: bytes, key: str | None) -> Done:
    def read(now: float) -> Done | LearnedHistory:
        return stream.find_history(raw, key) or stream.read_history(raw, now)

    await wait_while_held(stream)
    try:
        engine.refuse_if_replaced(stream)
        with hold(stream):  # from the look for the key on: the same request may come again meanwhile
            now, began = read_clock(), time.perf_counter()
            learned = await asyncio.to_thread(read, now)
            if isinstance(learned, LearnedHistory):
                with engine.operations.operating(stream, began):
                    done = stream.learn_history(raw, key, learned, now)
                engine.journal.hand_over(stream, done.events)
            else:
                done = learned
    except TakenOverError:
        raise MovedError from None  # nothing was handed over
    await engine.journal.commit(stream)  # also if it was learned before: that may still wait for the disk
    return done
