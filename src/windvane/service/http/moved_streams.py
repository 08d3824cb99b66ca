"""Requests for streams that another node owns: they are forwarded, and sent again if the stream has moved meanwhile.

While a node hands its shards over, a request can arrive at a node that has just lost the stream. It is then executed by
the next owner, so that clients see a short delay instead of an error. A request is sent again only if

- nothing of it was executed: the node that got it says so, or could not be connected to; or
- repeating it changes nothing: it reads, sets a value, or has an Idempotency-Key. The next owner finds the key in the
  log if the request was executed, because it reads the log after the epoch of its predecessor has ended, and nothing
  can be written in that epoch any more.

Everything else gets 503 or 504, and is left to the client.
"""

from __future__ import annotations

import time

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windvane.service.cluster.placement import ElsewhereError
from windvane.service.http.forwarding import BODY, IS_FORWARDED, MOVED_DETAIL, RefusedError, UnansweredError
from windvane.service.http.other_nodes import OtherNodes
from windvane.service.problems import MovedError, Problem

REPEAT_SECONDS = 2.0  # within which a request is sent again
MAP_SECONDS = 0.1  # to wait for a new map; then the node is asked again, because it may have been behind
_UNTIL = "windvane.repeat_until"  # key in the scope


class Again(Response):
    """In place of an answer: the request is to be executed once more. ``app`` executes requests."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Execute the request, as an ASGI application."""
        body = scope.get(BODY)
        await self._app(dict(scope), receive if body is None else replay(body, receive), send)


def refuse_moved() -> Problem:
    """Return the problem of a request whose stream has moved."""
    return Problem("unavailable", MOVED_DETAIL, cause="moving")


async def find_answer(request: Request, error: ElsewhereError | MovedError, others: OtherNodes) -> Response | None:
    """Return the answer of the node that owns the stream, or None if the request should be executed again here, where
    its owner is determined anew. Raise :class:`Problem` if neither is possible.
    """
    scope = request.scope
    if scope.get(IS_FORWARDED):
        raise RefusedError("unavailable", MOVED_DETAIL, cause="moving")
    end = scope.setdefault(_UNTIL, time.monotonic() + REPEAT_SECONDS)
    problem = refuse_moved()
    if isinstance(error, ElsewhereError):
        try:
            return await others.forwarder.forward(request, error)
        except (RefusedError, UnansweredError) as refusal:
            problem = refusal
        seconds = MAP_SECONDS if problem.cause == "moving" else 0.0
        if not await others.placement.wait_until_moved(error, seconds) and problem.cause != "moving":
            raise problem
    if time.monotonic() >= end:
        raise problem
    return None


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that first returns the whole body, and then passes on later messages."""
    is_read = False

    async def replay_once() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay_once
