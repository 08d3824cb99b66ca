"""Decide and reward, which are nearly all requests, without the framework.

FastAPI finds the route, checks the path and makes the answer in several times the time that a decision at constant cost
takes. These two routes are found here by one pattern; everything else, and every path that does not fit it, goes on to
FastAPI, whose routes for the two call the same functions, and document them.
"""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from fastapi import FastAPI

from windvane.service import schemas
from windvane.service.engine import Engine
from windvane.service.errors import ServiceError
from windvane.service.gate import Receive, Scope, Send
from windvane.service.streams import Done

MOST_KEY = 200

_PATH = re.compile(rf"/v1/streams/({schemas.NAME.strip('^$')})/(decide|reward)")


class _Route(NamedTuple):
    """What the gate counts a request under."""

    path: str


_ROUTES = {what: _Route(f"/v1/streams/{{name}}/{what}") for what in ("decide", "reward")}


class Express:
    """An ASGI application in front of ``app``. It must be given whole bodies, as the gate does."""

    def __init__(self, app: FastAPI) -> None:
        self._app, self.state = app, app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        name, what = found.groups()
        scope["route"] = _ROUTES[what]
        raw = (await receive())["body"]
        key = next(
            (value.decode("latin-1") for header, value in scope["headers"] if header == b"idempotency-key"), None
        )
        done = await (decide if what == "decide" else reward)(self.state.engine, name, raw, key)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(done.body))]
        await send({"type": "http.response.start", "status": done.status, "headers": headers})
        await send({"type": "http.response.body", "body": done.body})


async def decide(engine: Engine, name: str, raw: bytes, key: str | None) -> Done:
    """One round; on disk when this returns."""
    check_key(key)
    stream = engine.stream(name)
    return await engine.carry_out(stream, lambda: stream.decide(raw, key, time.time()))


async def reward(engine: Engine, name: str, raw: bytes, key: str | None) -> Done:
    """The reward of a decision; on disk when this returns."""
    given = schemas.parsed(schemas.Reward, raw)
    check_key(key)
    stream = engine.stream(name)
    return await engine.carry_out(stream, lambda: stream.reward(given.decision, given.value, key, time.time()))


def check_key(key: str | None) -> None:
    if key is not None and not 0 < len(key) <= MOST_KEY:
        raise ServiceError(422, "invalid", f"Idempotency-Key: must have 1 to {MOST_KEY} characters", "Idempotency-Key")
