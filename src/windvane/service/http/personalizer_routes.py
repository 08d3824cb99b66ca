"""The routes of the Personalizer API v1.0, for a stream with declared features: see ``create_app(personalizer=...)``.

They are routes of a stream: its path is the endpoint of that API. An event is a decision, and its id is the decision's.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path, Response
from pydantic import GetPydanticSchema
from starlette.types import Scope

from windvane.agent.times import read_clock
from windvane.service import personalizer
from windvane.service.http.endpoints import At, make_router
from windvane.service.http.json_routes import JsonRoute
from windvane.service.problems import Problem
from windvane.service.random_bytes import draw_bytes
from windvane.service.streams import Done

PREFIX = "/personalizer/v1.0"
KEY_HEADER = b"ocp-apim-subscription-key"  # in which that API expects its key, here a token

RawRank = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(personalizer.RankRequest))]
RawReward = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(personalizer.RewardRequest))]
EventId = Annotated[str, Path(description="Id of the event, which is that of the decision.")]

with_body = make_router(prefix=f"/v1/streams/{{stream}}{PREFIX}", tags=["personalizer"], route_class=JsonRoute)
without_body = make_router(prefix=f"/v1/streams/{{stream}}{PREFIX}", tags=["personalizer"])
ROUTERS = (with_body, without_body)


def is_personalizer(path: str) -> bool:
    """Return whether a path is one of these routes."""
    return PREFIX in path


def move_to_stream(scope: Scope, stream: str) -> Scope:
    """Return the scope of the same request to ``stream``, if its path names none."""
    path: str = scope["path"]
    if not path.startswith(PREFIX):
        return scope
    base = f"/v1/streams/{stream}"
    return {**scope, "path": base + path, "raw_path": base.encode() + scope["raw_path"]}


@with_body.post("/rank", status_code=201, response_model=personalizer.RankResponse)
async def rank_actions(at: At, body: RawRank) -> Response:
    """Choose an action. The same request with the same eventId gets the same answer."""
    request = personalizer.parse_rank(body)
    event, agent = request.eventId or draw_bytes(16).hex(), at.stream.core
    if request.deferActivation and agent.default_reward is not None:
        detail = "this stream has a default reward, so every event counts; leave deferActivation out"
        raise Problem("invalid", detail, pointer="#/deferActivation")

    def decide() -> Done:
        raw = personalizer.build_decision(request, at.stream.core.encoder.features)
        return at.stream.decide(raw, request.eventId, read_clock(), decision=event)

    done = await at.engine.operations.carry_out(at.stream, decide, size=len(body))
    answer = personalizer.describe_ranking(request, event, done.body, agent.epsilon)
    return Response(answer, 201, media_type="application/json")


@with_body.post("/events/{event}/reward", status_code=204)
async def reward_event(at: At, event: EventId, body: RawReward) -> Response:
    """Record the reward of an event. The first one counts; later ones change nothing."""
    value = personalizer.parse_reward(body)
    try:
        await at.carry_out(lambda: at.stream.reward(event, value, read_clock()), event)
    except Problem as problem:
        if problem.code != "conflict":
            raise
    return Response(status_code=204)


@without_body.post("/events/{event}/activate", status_code=204)
async def activate_event(at: At, event: EventId) -> Response:
    """Activate an event. Nothing is recorded: without a default reward, an event is learned by its reward only."""
    await at.carry_out(lambda: Done(204, b"", [], at.stream.find_decision(event).decision.id))
    return Response(status_code=204)
