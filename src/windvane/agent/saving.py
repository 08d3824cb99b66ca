"""What of an agent goes into its file, and how it is put together again.

``agent.json`` has, beside what :mod:`windvane.agent.file` writes:

=============  =====================================================================================================
entry          meaning
=============  =====================================================================================================
config         the arguments of :class:`windvane.Agent` but features and scaling; null: a link or policy of one's own
features       their declaration (with the ranges that were fitted) in the order of the coordinates, or null
feature_names  what each coordinate of the parameter belongs to; a file whose features make other names is refused
columns        of the first frame of raw vectors, which set the order of the coordinates, or null
to_fit         [whether the scaling is still to be fitted, whether ranges of features are]
counts         [decisions, rewards, expired, projections, defaulted, dropped, settled, history], as the agent's
               attributes of these names
reward_total   the sum of the outcomes of settled decisions
times          [when the policy's round 1 was, where forgetting goes by the clock; the last time seen], or null
pending        {"id", "arm", "preferred", "rival"}: of each decision that is open, the oldest first
closed         [id, reward, or null if none came in time] for the last that were closed, the oldest first
=============  =====================================================================================================

Arrays: ``policy/...`` (:meth:`windvane.Policy.state`), ``center``, ``spread``; of the open decisions, a row for each,
``pending/x`` (the vector played), ``pending/reals`` (round of the policy, time, prediction, bonus, propensity,
rival_score, the reward that came, its delay, the share of rewards credited early; NaN: none) and ``pending/wholes``
(number of the decision, index, explored, projected, early looks, whether its reward was learned, whether it is a miss;
-1: none); with ``learn="early"``, ``early/delays`` and ``early/counts``
(:meth:`windvane.agent.early.DelayModel.arrays`), whose arms are ``early`` in the document; ``recent/projected`` and
``recent/dropped`` (0 or 1 for each of the last decisions, and of the last that were closed). A number in the document
that is not finite stands as {"number": "inf"} (or "-inf", "nan").
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.agent import file
from windvane.agent.alerts import RECENT, RecentShare
from windvane.agent.decisions import Decision, Pending
from windvane.agent.early import LOOKS, DelayModel, EarlyLearning
from windvane.agent.features import Name, named, plain_name
from windvane.arguments import NORM_SLACK, check_array, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.links import Link
from windvane.policies.base import Policy

if TYPE_CHECKING:
    from windvane.agent.agent import Agent

_MOST = 2**53
_COUNTS = ("decisions", "rewards", "expired", "projections", "defaulted", "dropped", "settled", "history")
_REALS, _WHOLES = 9, 7  # numbers of an open decision
_NAMES = ("id", "arm", "preferred", "rival")


def copied(agent: Agent) -> Callable[[], bytes]:
    """What makes the bytes of an agent's file as it is now; the agent is held up only while it is copied."""
    with agent.lock:
        arrays = {f"policy/{name}": array for name, array in agent.policy.state().items()}
        arrays["center"], arrays["spread"] = agent.scaling.center, agent.scaling.spread  # replaced, never written to
        arrays["recent/projected"] = np.array(agent.recently_projected.marks, dtype=np.int8)
        arrays["recent/dropped"] = np.array(agent.recently_dropped.marks, dtype=np.int8)
        waiting, dim = list(agent.open_decisions), agent.policy.dim
        changing = [_changing_numbers(pending) for pending in waiting]  # copied now: all else of a decision stays
        closed, config, clock = list(agent.open_decisions.closed.items()), dict(agent.config), agent.clock
        document: dict[str, Any] = {
            "features": None if agent.features is None else agent.features.declared(),
            "feature_names": agent.feature_names,
            "columns": agent.columns,
            "to_fit": [agent.scaling.to_fit, agent.fits_features],
            "counts": [getattr(agent, name) for name in _COUNTS],
            "reward_total": agent.reward_total,
            "times": [clock.first, None if math.isinf(clock.last) else clock.last],
            "closed": closed,
            "early": None if agent.early is None else list(agent.early.model.arms),
        }
        if agent.early is not None:
            arrays["early/delays"], arrays["early/counts"] = agent.early.model.arrays()

    def packed() -> bytes:
        document["config"] = {name: _written(name, value) for name, value in config.items()}
        document["pending"] = _names(waiting)
        return file.packed(document, arrays | _columns(waiting, changing, dim))

    return packed


def restored(cls: type[Agent], content: bytes, link: Link | None, policy: type[Policy] | None, where: str) -> Agent:
    """The agent in ``content``; ``where`` is what an error calls it."""
    document, arrays = file.unpacked(content, where)
    try:
        config = {name: _read(value) for name, value in document["config"].items()}
        own = {name: config[name] is None for name in ("link", "policy")}
    except Exception:  # a forged document can hold anything
        raise file.FileError(where, "state", "cannot be loaded: it is not the document of an agent") from None
    for name, given in (("link", link), ("policy", policy)):
        if own[name] and given is None:
            raise ArgumentError(name, None, f"given, because the agent has a {name} that is not windvane's own")
        if given is not None and not own[name]:
            raise ArgumentError(name, given, f"omitted, because the agent already has {config[name]!r}")
        config[name] = given if own[name] else config[name]
    try:
        agent = cls(**config, features=document["features"])
        _fill(agent, document, arrays)
    except Exception as error:  # a forged document can hold anything
        reason = " ".join(str(error).split())
        raise file.FileError(where, "state", f"cannot be loaded: {reason or type(error).__name__}") from error
    return agent


def _fill(agent: Agent, document: Mapping[str, Any], arrays: file.Arrays) -> None:
    policy = agent.policy
    policy.load_state({name.removeprefix("policy/"): a for name, a in arrays.items() if name.startswith("policy/")})
    dim = agent.scaling.raw_dim
    agent.scaling.set(check_array("center", arrays["center"], (dim,)), check_array("spread", arrays["spread"], (dim,)))
    agent.scaling.to_fit, agent.fits_features = map(bool, document["to_fit"])
    for name, count in zip(_COUNTS, document["counts"], strict=True):
        setattr(agent, name, check_whole(name, count, 0, _MOST))
    agent.columns = _checked_columns(document["columns"], dim)
    if agent.feature_names != document["feature_names"]:
        expected = "the names of the declared features in their order"
        raise ArgumentError("feature_names", document["feature_names"], expected)
    agent.reward_total = _number(document["reward_total"])
    first, last = (None if at is None else _number(at) for at in document["times"])
    agent.clock.first, agent.clock.last = first, -math.inf if last is None else last
    waiting = _pending(document["pending"], arrays, policy, agent.reward_range)
    for pending in waiting:
        agent.open_decisions.add(pending)
    closed = ((key, None if value is None else _number(value)) for key, value in document["closed"])
    agent.open_decisions.closed = OrderedDict(closed)
    if len(agent.open_decisions) < len(waiting) or not agent.open_decisions.open.keys().isdisjoint(
        agent.open_decisions.closed
    ):
        raise _pending_error("decisions with different ids", "an id twice")
    if agent.early is not None:
        model = DelayModel.of(named("early", document["early"]), arrays["early/delays"], arrays["early/counts"])
        agent.early = EarlyLearning(waiting, model)
    agent.recently_projected = _recent_share("recent/projected", arrays)
    agent.recently_dropped = _recent_share("recent/dropped", arrays)


def _checked_columns(columns: Any, dim: int) -> list[Name] | None:
    if columns is None:
        return None
    names = named("columns", columns)
    if len(names) != dim:
        raise ArgumentError("columns", columns, f"{dim} names")
    return names


def _recent_share(name: str, arrays: file.Arrays) -> RecentShare:
    marks = arrays[name]
    if marks.dtype != np.int8 or marks.ndim != 1 or len(marks) > RECENT or not _within(marks, [0], [1]):
        raise ArgumentError(name, marks, f"at most {RECENT} zeros and ones")
    return RecentShare(marks.astype(bool).tolist())


def _names(waiting: Sequence[Pending]) -> dict[str, list[Any]]:
    return {name: [getattr(one.decision, name) for one in waiting] for name in _NAMES}


_Changing = tuple[float, float, float, int, bool, bool]


def _changing_numbers(pending: Pending) -> _Changing:
    marks = pending.looks, pending.is_learned, pending.is_miss
    return _or(pending.reward), _or(pending.delay), pending.credited, *marks


def _columns(waiting: Sequence[Pending], changing: Sequence[_Changing], dim: int) -> file.Arrays:
    """All but the names of open decisions: there may be very many of them."""
    pairs = [(one, one.decision, numbers) for one, numbers in zip(waiting, changing, strict=True)]
    reals = [
        (p.round, d.time, d.prediction, d.bonus, _or(d.propensity), _or(d.rival_score), *numbers[:3])
        for p, d, numbers in pairs
    ]
    wholes = [
        (p.number, d.index, d.explored, -1 if d.projected is None else d.projected, *numbers[3:])
        for p, d, numbers in pairs
    ]
    return {
        "pending/x": np.array([one.x for one in waiting]).reshape(-1, dim),
        "pending/reals": np.array(reals, dtype=float).reshape(-1, _REALS),
        "pending/wholes": np.array(wholes, dtype=np.int64).reshape(-1, _WHOLES),
    }


def _pending(
    names: Mapping[str, Any], arrays: file.Arrays, policy: Policy, reward_range: tuple[float, float]
) -> list[Pending]:
    """The open decisions as :func:`_names` and :func:`_columns` wrote them, if they are possible."""
    n = len(names["id"])
    points = check_array("pending", arrays["pending/x"], (n, policy.dim))
    reals, wholes = check_array("pending", arrays["pending/reals"], (n, _REALS)), arrays["pending/wholes"]
    if not (np.linalg.norm(points, axis=1) <= policy.L * NORM_SLACK).all():
        raise _pending_error(f"vectors of norm at most {policy.L:g}", "a longer one, or one that is not finite")
    if not np.isfinite(reals[:, :2]).all() or not (reals[:, 0] <= policy.latest_round).all():
        raise _pending_error("decisions of the past", "one in the future, or without a time")
    if (
        wholes.dtype.kind != "i"
        or wholes.shape != (n, _WHOLES)
        or not _within(wholes, [0, 0, 0, -1, 0, 0, 0], [_MOST, _MOST, 1, 1, LOOKS, 1, 1])
    ):
        raise _pending_error("whole numbers in their ranges", "one outside, or a wrong shape or type")
    low, high = reward_range
    rewards, delays, credited = reals[:, 6:].T
    if (delays < 0.0).any() or not ((credited >= 0.0) & (credited <= 1.0)).all():
        raise _pending_error("delays of at least 0 and shares in [0, 1]", "one outside")
    if not (np.isnan(rewards) | ((rewards >= low) & (rewards <= high))).all():
        raise _pending_error(f"rewards in [{low:g}, {high:g}]", "one outside")
    if any(len(names[name]) != n for name in _NAMES):
        raise _pending_error(f"lists of {n} names", "another length")
    if not all(isinstance(key, str) for key in names["id"]):
        raise _pending_error("ids that are texts", "another type")
    for name in {*map(_typed, names["arm"]), *map(_typed, names["preferred"]), *map(_typed, names["rival"])}:
        if name[1] is not None:
            plain_name("pending", name[1])
    if None in names["arm"] or None in names["preferred"]:
        raise _pending_error("arms with names", "one without")
    rounds, times, predictions, bonuses = reals[:, :4].T.tolist()
    propensities, rival_scores, held, after = ([_or_none(v) for v in column] for column in reals[:, 4:8].T.tolist())
    numbers, indexes, explored, projected, looks, learned, misses = wholes.T.tolist()
    marks = [None if mark < 0 else bool(mark) for mark in projected]
    decisions = map(
        Decision, names["id"], names["arm"], indexes, times, propensities, map(bool, explored), predictions, bonuses,
        names["preferred"], names["rival"], rival_scores, marks,
    )  # fmt: skip
    changing = held, after, looks, credited.tolist(), map(bool, learned), map(bool, misses)
    return list(map(Pending, points.copy(), rounds, numbers, decisions, *changing))


def _pending_error(expected: str, got: str) -> ArgumentError:
    return ArgumentError("pending", None, expected, got=got)


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
        raise ArgumentError("number", value, "a number, not true or false")
    return check_number("number", value, "that is finite", math.isfinite)


def _written(name: str, value: Any) -> Any:
    """``value`` as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_written(name, one) for one in value]
    raise ArgumentError(name, value, "a number, a text or a list of these in an agent that is saved")


def _read(value: Any) -> Any:
    """What :func:`_written` wrote."""
    if isinstance(value, dict):
        if set(value) == {"number"}:
            return float(value["number"])
        return {key: _read(one) for key, one in value.items()}
    return [_read(one) for one in value] if isinstance(value, list) else value
