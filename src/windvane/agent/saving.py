"""What of an agent goes into its file, and how it is put together again.

``agent.json`` has, beside what :mod:`windvane.agent.file` writes:

=============  =====================================================================================================
entry          meaning
=============  =====================================================================================================
config         the arguments of :class:`windvane.Agent` but features and scaling; null: a link or policy of one's own
features       their declaration (with the ranges that were fitted), or null
to_fit         [whether the scaling is still to be fitted, whether ranges of features are]
counts         [decisions, rewards, expired, projections]
reward_total   the sum of all rewards
times          [when the policy's round 1 was, where forgetting goes by the clock; the last time seen], or null
pending        [round of the policy, number of the decision, the decision] for each that waits, the oldest first
closed         [id, reward, or null if it expired] for the last that were closed, the oldest first
=============  =====================================================================================================

Arrays: ``policy/...`` (:meth:`windvane.Policy.state`), ``pending`` (for each waiting decision the vector played),
``center`` and ``spread``. A number that is not finite stands as {"number": "inf"} (or "-inf", "nan").
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane._validation import floats, number, shown, whole
from windvane.agent import file
from windvane.agent.decisions import Decision, Pending
from windvane.agent.features import plain_name
from windvane.estimation import ROUNDING
from windvane.links import Link
from windvane.policies.base import Policy

if TYPE_CHECKING:
    from windvane.agent.agent import Agent

_MOST = 2**53
_FIELDS = {field.name: str(field.type).split(" | ") for field in fields(Decision)}
_KINDS = {"str": str, "int": int, "bool": bool, "float": float}


def content(agent: Agent) -> bytes:
    """The bytes of an agent's file; the agent is held up only while it is copied."""
    with agent._lock:
        arrays = {f"policy/{name}": array for name, array in agent.policy.state().items()}
        arrays["center"], arrays["spread"] = agent._scaling.center, agent._scaling.spread  # replaced, never written to
        waiting, closed, config = list(agent._pending.values()), list(agent._closed.items()), dict(agent._config)
        clock = agent._clock
        document: dict[str, Any] = {
            "features": None if agent.features is None else agent.features.declared(),
            "to_fit": [agent._scaling.to_fit, agent._fits_features],
            "counts": [agent.decisions, agent.rewards, agent.expired, agent.projections],
            "reward_total": agent.reward_total,
            "times": [clock.first, None if math.isinf(clock.last) else clock.last],
            "closed": closed,
        }
    arrays["pending"] = np.array([one.x for one in waiting]).reshape(len(waiting), agent.policy.dim)
    document["config"] = {name: _written(name, value) for name, value in config.items()}
    document["pending"] = [[one.round, one.number, _told(one.decision)] for one in waiting]
    return file.packed(document, arrays)


def restored(cls: type[Agent], content: bytes, link: Link | None, policy: type[Policy] | None, where: str) -> Agent:
    """The agent in ``content``; ``where`` is what an error calls it."""
    document, arrays = file.unpacked(content, where)
    try:
        config = {name: _read(value) for name, value in document["config"].items()}
        own = {name: config[name] is None for name in ("link", "policy")}
    except Exception:  # it was made up by someone: anything can be in it
        raise file.FileError(f"{where}: cannot be loaded: its config is not that of an agent") from None
    for name, given in (("link", link), ("policy", policy)):
        if own[name] and given is None:
            raise ValueError(f"{name}=None: the agent was made with a {name} of its maker's own; give it again")
        if given is not None and not own[name]:
            raise ValueError(f"{name}={shown(given)}: the agent has {config[name]!r} already; leave it out")
        config[name] = given if own[name] else config[name]
    try:
        agent = cls(**config, features=document["features"])
        _fill(agent, document, arrays)
    except Exception as error:  # the same
        reason = " ".join(str(error).split())
        raise file.FileError(f"{where}: cannot be loaded: {reason or type(error).__name__}") from error
    return agent


def _fill(agent: Agent, document: Mapping[str, Any], arrays: file.Arrays) -> None:
    policy = agent.policy
    policy.load_state({name.removeprefix("policy/"): a for name, a in arrays.items() if name.startswith("policy/")})
    dim = agent._scaling.raw_dim
    agent._scaling.set(floats("center", arrays["center"], (dim,)), floats("spread", arrays["spread"], (dim,)))
    agent._scaling.to_fit, agent._fits_features = map(bool, document["to_fit"])
    counts = [whole("counts", count, 0, _MOST) for count in document["counts"]]
    agent.decisions, agent.rewards, agent.expired, agent.projections = counts
    agent.reward_total = _number(document["reward_total"])
    first, last = (None if at is None else _number(at) for at in document["times"])
    agent._clock.first, agent._clock.last = first, -math.inf if last is None else last
    points = floats("pending", arrays["pending"], (len(document["pending"]), policy.dim))
    if not (np.linalg.norm(points, axis=1) <= policy.L * ROUNDING).all():
        raise ValueError("pending: has vectors that are too long, or not finite")
    for x, (round_, number_, told) in zip(points, document["pending"], strict=True):
        decision = _decision(_read(told))
        if not _number(round_) <= policy._latest_round():
            raise ValueError(f"pending: decision {decision.id!r} lies in the future")
        agent._pending[decision.id] = Pending(x.copy(), round_, whole("number", number_, 0, _MOST), decision)
    agent._closed = OrderedDict((key, None if value is None else _number(value)) for key, value in document["closed"])
    if len(agent._pending) < len(points) or not agent._pending.keys().isdisjoint(agent._closed):
        raise ValueError("pending: an id is there twice")


def _told(decision: Decision) -> dict[str, Any]:
    return {name: _written(name, getattr(decision, name)) for name in _FIELDS}


def _decision(told: dict[str, Any]) -> Decision:
    """A decision whose fields are of the kinds they have to be."""
    found = Decision(**told)
    for name, allowed in _FIELDS.items():
        value = told[name]
        if value is None and "None" in allowed:
            continue
        if allowed[0] == "Name":
            plain_name(name, value)
        elif not isinstance(value, _KINDS[allowed[0]]):
            raise ValueError(f"pending: {name}={shown(value)}: is of another kind")
    return found


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a truth value stands where a number should")
    return number("a number", value, "that is finite", math.isfinite)


def _written(name: str, value: Any) -> Any:
    """``value`` as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_written(name, one) for one in value]
    raise ValueError(f"{name}={shown(value)}: cannot be saved; only numbers, texts and lists of them can")


def _read(value: Any) -> Any:
    """What :func:`_written` wrote."""
    if isinstance(value, dict):
        if set(value) == {"number"}:
            return float(value["number"])
        return {key: _read(one) for key, one in value.items()}
    return [_read(one) for one in value] if isinstance(value, list) else value
