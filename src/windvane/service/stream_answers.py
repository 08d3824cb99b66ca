"""What is answered about a stream, as plain data such as JSON holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from windvane.agent import Agent

if TYPE_CHECKING:
    from windvane.service.streams import Stream


def describe_stream(stream: Stream) -> dict[str, Any]:
    """A stream in a list of them: settings, counts and alerts."""
    agent = stream.agent
    return {
        "name": stream.name,
        "title": stream.title,
        "created": stream.created,
        "archived": stream.archived,
        "policy": agent.policy.name,
        "link": agent.policy.reward_link.name,
        "dim": agent.policy.dim,
        "learn": agent.learn,
        "decisions": agent.decisions,
        "rewards": agent.rewards,
        "defaulted": agent.defaulted,
        "settled": agent.settled,
        "history": agent.history,
        "mean_reward": agent.mean_reward,
        "pending": agent.waiting,
        "held": agent.held,
        "expired": agent.expired,
        "dropped": agent.dropped,
        "events": stream.number,
        "alerts": [alert._asdict() for alert in agent.alerts],
        "config": {**stream.config["agent"], **agent.configuration},
    }


def diagnose_stream(stream: Stream) -> dict[str, Any]:
    """The state in full, for the page and for people who look into it."""
    info = stream.agent.info()
    drift = info["drift"]
    return {
        **describe_stream(stream),
        "theta": info["theta"],
        "S": info["S"],
        "projected_share": info["projected_share"],
        "recent_projected_share": info["recent_projected_share"],
        "memory": _finite(info["memory"]),
        "memory_unit": info["memory_unit"],
        "drift": None if drift is None else {name: _finite(value) for name, value in drift.items()},
        "statistics": stream.statistics.document(),
    }


def describe_model(agent: Agent) -> dict[str, Any]:
    """The numbers of the model that are drawn over time."""
    drift = agent.drift_estimate()
    return {
        "norm": math.hypot(*agent.theta.tolist()),
        "memory": _finite(agent.memory),
        "rate": None if drift is None else drift.rate,
        "projected_share": agent.projected_share,
    }


def _finite(value: Any) -> Any:
    """JSON has no infinity: None stands for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
