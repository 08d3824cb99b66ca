"""What routes have in common: the stream that a request is about, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic.alias_generators import to_camel

from windvane.records import KEY, to_json
from windvane.service.engine import Engine
from windvane.service.streams import Done, Stream

StreamName = Annotated[str, Path(description="Name of the stream.", examples=["homepage"])]
DecisionId = Annotated[str, Path(description="Id of the decision.", examples=["9f86d081884c7d65"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
_KEY_TEXT = "The same request with the same key is executed once and always gets the same answer."
IdempotencyKey = Annotated[str | None, Header(pattern=KEY, description=_KEY_TEXT)]


class Target(NamedTuple):
    """The stream that a request is about."""

    request: Request
    engine: Engine
    stream: Stream

    async def carry_out(self, operation: Callable[[], Done], decision: str | None = None) -> Response:
        """Execute an operation, which may be about a ``decision``; it is on disk when this returns."""
        return respond_done(await self.engine.operations.carry_out(self.stream, operation, decision=decision))


def require_engine(engine: Engine) -> Engine:
    """Return the engine, if it is ready."""
    engine.check_in_place()
    engine.refuse_if_not_ready()
    return engine


async def find_target(request: Request, engine: Engine, stream: str) -> Target:
    """Return the stream that the path names."""
    return Target(request, require_engine(engine), await engine.find(stream))


async def depend_on_engine(request: Request) -> Engine:
    """Call :func:`require_engine` in the event loop: FastAPI calls plain functions in threads, and a failure that is
    noticed begins a recovery."""
    return require_engine(request.app.state.engine)


async def depend_on_target(request: Request, stream: StreamName) -> Target:
    """Call :func:`find_target`."""
    return await find_target(request, request.app.state.engine, stream)


ReadyEngine = Annotated[Engine, Depends(depend_on_engine)]
At = Annotated[Target, Depends(depend_on_target)]


make_router = partial(APIRouter, generate_unique_id_function=lambda route: to_camel(route.name))


class JsonResponse(Response):
    """An answer whose body is a line of JSON. Starlette takes twice as long to find out which headers are missing."""

    media_type = "application/json"

    def render(self, content: bytes) -> bytes:
        return content + b"\n"  # in a terminal, what follows begins on a line of its own

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        if headers:
            self.raw_headers += [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def respond(record: Any, status: int = 200, **headers: str) -> Response:
    """Return a record as JSON."""
    return JsonResponse(to_json(record), status, headers)


def respond_done(done: Done, **headers: str) -> Response:
    """Return the answer of an operation."""
    return JsonResponse(done.body, done.status, headers)
