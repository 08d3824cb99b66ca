"""What of an agent goes into its file, and how it is put together again."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane._validation import floats
from windvane.agent import file
from windvane.agent.decisions import Decision, Pending
from windvane.links import Link
from windvane.policies.base import Policy

if TYPE_CHECKING:
    from windvane.agent.agent import Agent


def content(agent: Agent) -> bytes:
    """The bytes of an agent's file."""
    arrays = {f"policy/{name}": array for name, array in agent.policy.state().items()}
    waiting = list(agent._pending.values())
    arrays["pending"] = np.array([one.x for one in waiting]).reshape(len(waiting), agent.policy.dim)
    arrays["center"], arrays["spread"] = agent._scaling.center, agent._scaling.spread
    document = {
        "config": agent._config,
        "features": None if agent.features is None else agent.features.declared(),
        "to_fit": [agent._scaling.to_fit, agent._fits_features],
        "counts": [agent.decisions, agent.rewards, agent.expired, agent.projections],
        "reward_total": agent.reward_total,
        "times": [agent._first_time, None if math.isinf(agent._last_time) else agent._last_time],
        "pending": [[one.round, one.number, one.time, asdict(one.decision)] for one in waiting],
        "closed": list(agent._closed.items()),
    }
    return file.packed(document, arrays)


def restored(cls: type[Agent], content: bytes, link: Link | None, policy: type[Policy] | None, where: str) -> Agent:
    """The agent in ``content``; ``where`` is what an error calls it."""
    document, arrays = file.unpacked(content, where)
    try:
        config = dict(document["config"])
        for name, own in (("link", link), ("policy", policy)):
            if config[name] is None and own is None:
                raise ValueError(f"{name}=None: it was made with a {name} of your own; give it again")
            config[name] = own if config[name] is None else config[name]
        agent = cls(**config, features=document["features"])
        _fill(agent, document, arrays)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise file.FileError(f"{where}: cannot be loaded: {error}") from error
    return agent


def _fill(agent: Agent, document: Mapping[str, Any], arrays: file.Arrays) -> None:
    state = {name.removeprefix("policy/"): a for name, a in arrays.items() if name.startswith("policy/")}
    agent.policy.load_state(state)
    dim = agent._scaling.raw_dim
    agent._scaling.set(floats("center", arrays["center"], (dim,)), floats("spread", arrays["spread"], (dim,)))
    agent._scaling.to_fit, agent._fits_features = map(bool, document["to_fit"])
    agent.decisions, agent.rewards, agent.expired, agent.projections = map(int, document["counts"])
    agent.reward_total = float(document["reward_total"])
    agent._first_time, last = document["times"]
    agent._last_time = -math.inf if last is None else float(last)
    waiting = document["pending"]
    points = floats("pending", arrays["pending"], (len(waiting), agent.policy.dim))
    agent._pending = {
        told["id"]: Pending(x.copy(), float(round_), int(number), float(at), Decision(**told))
        for x, (round_, number, at, told) in zip(points, waiting, strict=True)
    }
    agent._closed = OrderedDict((str(key), outcome) for key, outcome in document["closed"])
