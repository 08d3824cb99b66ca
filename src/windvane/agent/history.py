"""Bulk history: rows of the past with their rewards, all of them checked before any is learnt."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windvane.agent.features import Features, Name, plain_name, sequence
from windvane.agent.offers import columns_of, frame_fields, frame_matrix, frame_names, frame_rows, is_frame, matrix
from windvane.agent.scaling import Scaling
from windvane.agent.times import Clock, moment
from windvane.arguments import Array, check_real_array
from windvane.errors import ArgumentError
from windvane.policies.base import Policy

if TYPE_CHECKING:
    from windvane.agent.agent import Agent

HEAVIEST = 1e9


@dataclass(frozen=True)
class History:
    """Rows, the oldest first: vectors as the policy sees them, rewards, times, weights. And the features, the scaling
    and the order of a frame's columns that they went through, fitted if they were to be."""

    x: Array
    rewards: Array
    times: Array | None
    weights: Array
    features: Features | None
    scaling: Scaling
    columns: list[Name] | None

    def __len__(self) -> int:
        return len(self.rewards)

    def rows(self) -> Iterator[tuple[Array, float, float | None, float]]:
        times = [None] * len(self) if self.times is None else self.times.tolist()
        yield from zip(self.x, self.rewards.tolist(), times, self.weights.tolist(), strict=True)

    @classmethod
    def of(
        cls, agent: Agent, X: Any, rewards: Any, contexts: Any, arms: Any, times: Any, weights: Any, now: float | None
    ) -> History:
        """What was given to :meth:`Agent.update_many` at the time ``now``, checked, the oldest first."""
        features, scaling, where, columns = agent.features, agent.scaling, "X", agent.columns
        if features is None:
            if X is None:
                raise ArgumentError("X", X, "given, with the features of every row")
            for name, value in (("contexts", contexts), ("arms", arms)):
                if value is not None:
                    raise ArgumentError(name, value, "omitted, because the agent has no declared features")
            if is_frame(X):
                raw, columns = frame_matrix("X", X, scaling.raw_dim, columns), columns or columns_of(X, None)
            else:
                raw = matrix("X", X, scaling.raw_dim)
        else:
            if X is not None:
                raise ArgumentError("X", X, "omitted, because the agent has declared features", hint="give `arms`")
            if arms is None:
                raise ArgumentError("arms", arms, "given for every row, because the agent has declared features")
            where = "rows"
            names, own = _arms(arms)
            told = _contexts(contexts, len(names))
            if agent.fits_features:
                features = features.fitted(told, own)
            raw = _encoded(features, told, names, own)
        if scaling.to_fit:
            if not np.isfinite(raw).all():
                row = int(np.argmax(~np.isfinite(raw).all(axis=1)))
                raise ArgumentError(f"{where}[{row}]", raw[row].tolist(), "finite")
            scaling = scaling.fitted(raw)
        x, count = scaling.apply(raw, where), len(raw)
        found = _column("rewards", rewards, count, *agent.reward_range)
        weight = np.ones(count) if weights is None else _column("weights", weights, count, 0.0, HEAVIEST)
        at = _times(agent, times, count, now)
        order = np.arange(count) if at is None else np.argsort(at, kind="stable")
        at = None if at is None else at[order]
        return cls(x[order], found[order], at, weight[order], features, scaling, columns)


class Learnt(NamedTuple):
    """What history makes of an agent: a policy and its clock."""

    policy: Policy
    clock: Clock
    history: History

    @classmethod
    def of(
        cls, agent: Agent, X: Any, rewards: Any, contexts: Any, arms: Any, times: Any, weights: Any, now: float | None
    ) -> Learnt:
        """The agent stays as it is; it must not change meanwhile. ``now``: None for what was learnt once, as a log has
        it: then its ``times`` are not questioned."""
        history = History.of(agent, X, rewards, contexts, arms, times, weights, now)
        policy, clock = copy.deepcopy(agent.policy), copy.copy(agent.clock)
        for x, reward, at, weight in history.rows():
            if at is not None:
                clock.pass_to(at, policy)
            round_ = policy.t
            policy.advance(1.0)
            policy.update(x[None], reward, round=round_, weight=weight)
        return cls(policy, clock, history)


def _arms(arms: Any) -> tuple[list[Any], list[Mapping[str, Any]]]:
    """The arm played in every row, and its own fields."""
    if is_frame(arms):
        given, own = frame_names("arms", arms), list[Mapping[str, Any]](frame_fields("arms", arms))
    else:
        given, own = [], []
        for i, arm in enumerate(sequence("arms", arms)):
            fields: Any = {}
            if isinstance(arm, Mapping):
                if len(arm) != 1:
                    raise ArgumentError(f"arms[{i}]", arm, "a name, or a mapping from one name to its fields")
                ((arm, fields),) = arm.items()
            given.append(arm)
            own.append(fields)
    return [plain_name(f"arms[{i}]", arm) for i, arm in enumerate(given)], own


def _contexts(contexts: Any, count: int) -> list[Mapping[str, Any]]:
    if contexts is None:
        return [{}] * count
    found: list[Any] = frame_rows("contexts", contexts) if is_frame(contexts) else sequence("contexts", contexts)
    if len(found) != count:
        raise ArgumentError("contexts", contexts, f"{count} rows, one for each of `arms`", got=str(len(found)))
    return found


def _encoded(
    features: Features, contexts: list[Mapping[str, Any]], names: list[Any], own: list[Mapping[str, Any]]
) -> Array:
    rows = np.zeros((len(names), features.dim))
    for i, (context, name, fields) in enumerate(zip(contexts, names, own, strict=True)):
        try:
            rows[i] = features.vectors(context, {name: fields})
        except ArgumentError as error:
            head, _, rest = error.argument.partition("[")
            argument = {"context": "contexts"}.get(head, head)
            raise error.rename(f"{argument}[{i}]" + (f"[{rest}" if rest else "")) from None
    return rows


def _column(name: str, values: Any, count: int, low: float, high: float) -> Array:
    """A number within [low, high] for every row."""
    found = np.array(check_real_array(name, values, "a list of numbers"))
    if found.shape != (count,):
        got = f"an array of shape {found.shape}"
        raise ArgumentError(name, values, f"a list with a number for each of the {count} rows", got=got)
    bad = ~((found >= low) & (found <= high))  # written this way so that NaN is rejected
    if bad.any():
        row = int(np.argmax(bad))
        raise ArgumentError(f"{name}[{row}]", float(found[row]), f"a number in [{low:g}, {high:g}]")
    return found


def _times(agent: Agent, times: Any, count: int, now: float | None) -> Array | None:
    if times is None:
        if agent.by_clock:
            raise ArgumentError("times", times, "given for each row, because this agent forgets by the clock")
        return None
    found = np.array([moment(f"times[{i}]", one) for i, one in enumerate(sequence("times", times))])
    if found.shape != (count,):
        raise ArgumentError("times", times, f"{count} times, one for each row", got=str(len(found)))
    if not count or now is None:
        return found
    first, last = float(found.min()), float(found.max())
    if last > now:
        raise ArgumentError(f"times[{int(np.argmax(found))}]", last, f"at most the time now, {now!r}")
    if first < agent.clock.last:
        hint = "" if agent.by_clock else "give history first, or omit `times`: the rows then count as the latest"
        expected = f"at least {agent.clock.last!r}, the time of the last decision or row"
        raise ArgumentError(f"times[{int(np.argmin(found))}]", first, expected, hint=hint)
    return found
