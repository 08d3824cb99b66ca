"""What of an agent goes into its file, and how it is put together again.

``agent.json`` has, beside what :mod:`windvane.agent.file` writes:

=============  =====================================================================================================
entry          meaning
=============  =====================================================================================================
config         the arguments of :class:`windvane.Agent` but features and scaling; null: a link or policy of one's own
features       their declaration (with the ranges that were fitted), or null
to_fit         [whether the scaling is still to be fitted, whether ranges of features are]
counts         [decisions, rewards, expired, projections, defaulted, history], as the agent's attributes of these names
reward_total   the sum of the rewards and defaults of decisions
times          [when the policy's round 1 was, where forgetting goes by the clock; the last time seen], or null
pending        {"id", "arm", "preferred", "rival"}: of each decision that waits, the oldest first
closed         [id, reward, or null if it expired] for the last that were closed, the oldest first
=============  =====================================================================================================

Arrays: ``policy/...`` (:meth:`windvane.Policy.state`), ``center``, ``spread``, and what else is known of the decisions
that wait, a row for each: ``pending/x`` (the vector played), ``pending/reals`` (round of the policy, time, prediction,
bonus, propensity, rival_score; NaN: none) and ``pending/wholes`` (number of the decision, index, explored, projected;
-1: none). A number in the document that is not finite stands as {"number": "inf"} (or "-inf", "nan").

Version 1 had [round, number of the decision, the decision] for each entry of ``pending``, their vectors in the array
``pending``, and the first four counts, of which the rewards held those of the history too.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
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
_COUNTS = ("decisions", "rewards", "expired", "projections", "defaulted", "history")
_NAMES = ("id", "arm", "preferred", "rival")


def copied(agent: Agent) -> Callable[[], bytes]:
    """What makes the bytes of an agent's file as it is now; the agent is held up only while it is copied."""
    with agent._lock:
        arrays = {f"policy/{name}": array for name, array in agent.policy.state().items()}
        arrays["center"], arrays["spread"] = agent._scaling.center, agent._scaling.spread  # replaced, never written to
        waiting, closed, config = list(agent._waiting), list(agent._waiting.closed.items()), dict(agent._config)
        clock = agent._clock
        document: dict[str, Any] = {
            "features": None if agent.features is None else agent.features.declared(),
            "to_fit": [agent._scaling.to_fit, agent._fits_features],
            "counts": [getattr(agent, name) for name in _COUNTS],
            "reward_total": agent.reward_total,
            "times": [clock.first, None if math.isinf(clock.last) else clock.last],
            "closed": closed,
        }
        dim = agent.policy.dim

    def packed() -> bytes:
        document["config"] = {name: _written(name, value) for name, value in config.items()}
        document["pending"] = _names(waiting)
        return file.packed(document, arrays | _columns(waiting, dim))

    return packed


def restored(cls: type[Agent], content: bytes, link: Link | None, policy: type[Policy] | None, where: str) -> Agent:
    """The agent in ``content``; ``where`` is what an error calls it."""
    document, arrays = file.unpacked(content, where)
    try:
        if document["version"] == 1:
            document, arrays = _from_version_1(document, arrays)
        config = {name: _read(value) for name, value in document["config"].items()}
        own = {name: config[name] is None for name in ("link", "policy")}
    except Exception:  # it was made up by someone: anything can be in it
        raise file.FileError(f"{where}: cannot be loaded: it is not the document of an agent") from None
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
    for name, count in zip(_COUNTS, document["counts"], strict=True):
        setattr(agent, name, whole(name, count, 0, _MOST))
    agent.reward_total = _number(document["reward_total"])
    first, last = (None if at is None else _number(at) for at in document["times"])
    agent._clock.first, agent._clock.last = first, -math.inf if last is None else last
    waiting = _pending(document["pending"], arrays, policy)
    agent._waiting.pending = OrderedDict((one.decision.id, one) for one in waiting)
    closed = ((key, None if value is None else _number(value)) for key, value in document["closed"])
    agent._waiting.closed = OrderedDict(closed)
    if len(agent._waiting) < len(waiting) or not agent._waiting.pending.keys().isdisjoint(agent._waiting.closed):
        raise ValueError("pending: an id is there twice")


def _from_version_1(document: dict[str, Any], arrays: file.Arrays) -> tuple[dict[str, Any], file.Arrays]:
    points = arrays.pop("pending")
    waiting = [
        Pending(x, round_, number_, Decision(**_read(told)))
        for x, (round_, number_, told) in zip(points, document["pending"], strict=True)
    ]
    counts = [*document["counts"], 0, 0]
    return {**document, "counts": counts, "pending": _names(waiting)}, arrays | _columns(waiting, points.shape[1])


def _names(waiting: Sequence[Pending]) -> dict[str, list[Any]]:
    return {name: [getattr(one.decision, name) for one in waiting] for name in _NAMES}


def _columns(waiting: Sequence[Pending], dim: int) -> file.Arrays:
    """All but the names of decisions that wait: there may be very many of them."""
    told = [(one, one.decision) for one in waiting]
    reals = [(p.round, d.time, d.prediction, d.bonus, _or(d.propensity), _or(d.rival_score)) for p, d in told]
    wholes = [(p.number, d.index, d.explored, -1 if d.projected is None else d.projected) for p, d in told]
    return {
        "pending/x": np.array([one.x for one in waiting]).reshape(-1, dim),
        "pending/reals": np.array(reals, dtype=float).reshape(-1, 6),
        "pending/wholes": np.array(wholes, dtype=np.int64).reshape(-1, 4),
    }


def _pending(names: Mapping[str, Any], arrays: file.Arrays, policy: Policy) -> list[Pending]:
    """What :func:`content` wrote of the decisions that wait, if it can be true."""
    n = len(names["id"])
    points = floats("pending", arrays["pending/x"], (n, policy.dim))
    reals, wholes = floats("pending", arrays["pending/reals"], (n, 6)), arrays["pending/wholes"]
    if not (np.linalg.norm(points, axis=1) <= policy.L * ROUNDING).all():
        raise ValueError("pending: has vectors that are too long, or not finite")
    if not np.isfinite(reals[:, :2]).all() or not (reals[:, 0] <= policy._latest_round()).all():
        raise ValueError("pending: a decision lies in the future, or at no time at all")
    if wholes.dtype.kind != "i" or wholes.shape != (n, 4) or not _within(wholes, [0, 0, 0, -1], [_MOST, _MOST, 1, 1]):
        raise ValueError("pending: has a number, an index or a mark that cannot be")
    if not all(isinstance(key, str) for key in names["id"]):
        raise ValueError("pending: an id is no text")
    for name in {*map(_typed, names["arm"]), *map(_typed, names["preferred"]), *map(_typed, names["rival"])}:
        if name[1] is not None:
            plain_name("pending", name[1])
    if None in names["arm"] or None in names["preferred"]:
        raise ValueError("pending: an arm has no name")
    found = []
    rows = zip(*(names[name] for name in _NAMES), points, reals.tolist(), wholes.tolist(), strict=True)
    for key, arm, preferred, rival, x, real, whole_ in rows:
        round_, time, prediction, bonus, propensity, rival_score = real
        number_, index, explored, projected = whole_
        decision = Decision(
            id=key, arm=arm, index=index, time=time, propensity=_or_none(propensity), explored=bool(explored),
            prediction=prediction, bonus=bonus, preferred=preferred, rival=rival, rival_score=_or_none(rival_score),
            projected=None if projected < 0 else bool(projected),
        )  # fmt: skip
        found.append(Pending(x.copy(), round_, number_, decision))
    return found


def _within(table: Any, low: list[int], high: list[int]) -> bool:
    return bool(((table >= low) & (table <= high)).all())


def _typed(name: Any) -> tuple[type, Any]:
    """1, 1.0 and True are equal, and not the same name."""
    return type(name), name


def _or(value: float | None) -> float:
    return math.nan if value is None else value


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


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
