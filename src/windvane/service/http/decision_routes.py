"""The routes of HTTP v1 about decisions: deciding, rewards, batches and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import Body, Query, Response
from pydantic import GetPydanticSchema

from windvane import records, service_records
from windvane.agent.times import read_clock
from windvane.records import to_json
from windvane.service import bulk_history, requests
from windvane.service.http.endpoints import (
    At,
    DecisionId,
    IdempotencyKey,
    JsonResponse,
    Limit,
    Target,
    make_router,
    respond,
    respond_done,
)
from windvane.service.http.json_routes import JsonRoute
from windvane.service.http.middleware import CHARGE
from windvane.service.problems import MovedError, Problem, TakenOverError
from windvane.service.streams import Done
from windvane.service.turns import Pauses, count_in_progress, wait_while_changing

# Raw bodies, which the log keeps, documented by the models that they must match.
RawDecision = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(requests.DecisionRequest))]
RawHistory = Annotated[bytes, Body(), GetPydanticSchema(lambda _, handler: handler(requests.History))]

decisions = make_router(prefix="/v1/streams", tags=["decisions"])
outcomes = make_router(prefix="/v1/streams", tags=["decisions"], route_class=JsonRoute)
ROUTERS = (outcomes, decisions)


@decisions.get("/{stream}/pending", response_model=service_records.PendingPage)
async def list_pending(at: At, limit: Limit = 100, after: Annotated[int, Query(ge=-1, le=2**53)] = -1) -> Response:
    """List the pending decisions, oldest first. ``after``: the ``next`` of the previous page."""
    await wait_while_changing(at.stream)
    page, more = at.stream.core.list_pending(after, limit)
    return respond({"decisions": page, "next": more})


@decisions.get("/{stream}/decisions/{decision}", response_model=records.DecisionRecord)
async def get_decision(at: At, decision: DecisionId) -> Response:
    """Return a decision with its status and reward."""
    return await at.carry_out(lambda: Done(200, to_json(at.stream.find_decision(decision)), []))


@decisions.get("/{stream}/decisions/{decision}/explanation", response_model=records.Explanation)
async def explain_decision(at: At, decision: DecisionId) -> Response:
    """Explain a decision."""
    return await at.carry_out(
        lambda: Done(200, to_json(records.Explanation.of(at.stream.find_decision(decision).decision)), [])
    )


@outcomes.post("/{stream}/decisions", status_code=201, response_model=records.Decision)
async def decide(at: At, body: RawDecision, idempotency_key: IdempotencyKey = None) -> Response:
    """Choose an arm. The answer is sent when the decision is on disk."""
    done = await at.engine.operations.carry_out(
        at.stream, lambda: at.stream.decide(body, idempotency_key, read_clock()), size=len(body)
    )
    return respond_done(done, location=f"/v1/streams/{at.stream.name}/decisions/{done.decision}")


@outcomes.post("/{stream}/predict", response_model=records.Predictions)
async def predict(at: At, body: RawDecision) -> Response:
    """Predict the reward of each arm, without deciding or changing anything."""
    return await _preview(at, body, is_ranked=False)


@outcomes.post("/{stream}/rank", response_model=records.Predictions)
async def rank(at: At, body: RawDecision) -> Response:
    """Rank the arms, most preferred first, without deciding or changing anything."""
    return await _preview(at, body, is_ranked=True)


async def _preview(at: Target, body: bytes, *, is_ranked: bool) -> Response:
    def preview() -> Done:
        return at.stream.preview(body, read_clock(), is_ranked=is_ranked)

    try:
        return respond_done(await at.engine.operations.operate(at.stream, preview, size=len(body)))
    except TakenOverError:
        raise MovedError from None


@outcomes.put("/{stream}/decisions/{decision}/reward", response_model=records.RewardReceipt)
async def set_reward(at: At, decision: DecisionId, body: requests.Reward) -> Response:
    """Set the reward of a decision.

    Repeating the same value changes nothing; another value is a conflict. After the timeout the reward is recorded but
    not learned, and the status is "expired".
    """
    return await at.carry_out(lambda: at.stream.reward(decision, body.value, read_clock()), decision)


@outcomes.post("/{stream}/decisions/{decision}/rewards", response_model=records.RewardReceipt)
async def add_reward(
    at: At, decision: DecisionId, body: requests.Reward, idempotency_key: IdempotencyKey = None
) -> Response:
    """Add a part to the reward of a decision. The sum is learned at the timeout."""
    return await at.carry_out(
        lambda: at.stream.add_reward(decision, body.value, idempotency_key, read_clock()), decision
    )


@outcomes.post("/{stream}/decisions/batch", response_model=service_records.BatchResults)
async def decide_batch(at: At, body: requests.DecisionBatch) -> Response:
    """Make several decisions, one after the other. Every item has its own status and may have a key."""

    def decide(item: requests.DecisionItem) -> Done:
        raw = to_json(item.model_dump(exclude={"key"}, exclude_unset=True))
        return at.stream.decide(raw, item.key, read_clock())

    return await _run_batch(at, decide, body.decisions, "decisions", "decision")


@outcomes.post("/{stream}/rewards/batch", response_model=service_records.BatchResults)
async def set_rewards(at: At, body: requests.RewardBatch) -> Response:
    """Set the rewards of several decisions. Every item has its own status."""

    def set_reward(item: requests.RewardItem) -> Done:
        return at.stream.reward(item.decision, item.value, read_clock())

    return await _run_batch(at, set_reward, body.rewards, "rewards", "receipt")


@outcomes.post("/{stream}/history", response_model=service_records.LearnedRows)
async def learn_history(at: At, body: RawHistory, idempotency_key: IdempotencyKey = None) -> Response:
    """Learn past decisions in bulk, all rows or none."""
    return respond_done(await bulk_history.learn_history(at.engine, at.stream, body, idempotency_key))


async def _run_batch(
    at: Target, operate: Callable[[Any], Done], items: Sequence[Any], field: str, result: str
) -> Response:
    if "idempotency-key" in at.request.headers:
        raise Problem("invalid", "Idempotency-Key: not allowed for a batch; give each item its own key")
    at.request.scope[CHARGE](len(items) - 1)
    results = []
    pauses = Pauses(at.engine.turnstile)
    with count_in_progress(at.stream):
        for i, item in enumerate(items):
            try:
                done = await at.engine.operations.operate(
                    at.stream, partial(operate, item), size=item.size, decision=getattr(item, "decision", None)
                )
                results.append(b'{"status":%d,"%s":%s}' % (done.status, result.encode(), done.body))
            except TakenOverError:
                if not results:  # else some items may be stored
                    raise MovedError from None
                raise
            except Problem as problem:
                if problem.status >= 500 and problem.code != "unreadable":  # which fails the item that needs the event
                    raise
                problem.move_pointers(f"#/{field}/{i}")
                results.append(b'{"status":%d,"problem":%s}' % (problem.status, problem.to_json()))
            await pauses.take()
        await at.engine.journal.commit(at.stream)
    return JsonResponse(b'{"results":[%s]}' % b",".join(results))
