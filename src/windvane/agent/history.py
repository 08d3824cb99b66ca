"""Bulk history: rows of the past with their rewards, all of them checked before any is learnt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane._validation import Array, real_array, shown
from windvane.agent.features import Features, named
from windvane.agent.offers import is_frame, matrix
from windvane.agent.times import moment

if TYPE_CHECKING:
    from windvane.agent.agent import Agent


@dataclass(frozen=True)
class History:
    """Vectors as the policy sees them, rewards, times and weights; and the scaling or ranges that were fitted."""

    x: Array
    rewards: Array
    times: Array | None
    weights: Array
    features: Features | None
    center: Array | None
    spread: Array | None

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def total(self) -> float:
        return float(self.rewards.sum())

    def rows(self) -> Iterator[tuple[Array, float, float | None, float]]:
        times = [None] * len(self) if self.times is None else self.times.tolist()
        yield from zip(self.x, self.rewards.tolist(), times, self.weights.tolist(), strict=True)

    @classmethod
    def of(
        cls,
        agent: Agent,
        X: Any,
        rewards: npt.ArrayLike,
        contexts: Any,
        arms: Iterable[Any] | None,
        times: Sequence[float | datetime] | None,
        weights: npt.ArrayLike | None,
    ) -> History:
        """What was given to :meth:`Agent.update_many`, checked, the oldest first."""
        features = agent.features
        scaling = agent._scaling
        if features is None:
            if X is None or contexts is not None or arms is not None:
                raise ValueError("X: give the features of every row; contexts and arms belong to declared features")
            raw = matrix("X", X.to_numpy() if is_frame(X) else X, scaling.raw_dim)
        else:
            if X is not None or arms is None:
                raise ValueError("arms: give the arm of every row, and contexts; this agent has declared features")
            names, own = _arms(arms)
            told = _contexts(contexts, len(names))
            if agent._fits_features:
                features = features.fitted(told, own)
            raw = np.concatenate(
                [
                    _row(features, i, context, {name: fields})
                    for i, (context, name, fields) in enumerate(zip(told, names, own, strict=True))
                ]
                or [np.zeros((0, scaling.raw_dim))]
            )
        count = len(raw)
        center = spread = None
        if scaling.to_fit:
            if count < 2:
                raise ValueError(f'X has {count} rows: scaling="fit" needs two or more')
            if not np.isfinite(raw).all():
                raise ValueError(f"X: row {int(np.argmax(~np.isfinite(raw).all(axis=1)))} must be finite")
            center, spread = scaling.fitted(raw)
            fitted = type(scaling)(
                scaling.raw_dim, scaling.L, scaling=(center, spread), intercept=scaling.intercept, clip=scaling.clip
            )
            x = fitted.apply(raw)
        else:
            x = scaling.apply(raw)
        found = _column("rewards", rewards, count)
        low, high = agent.reward_range
        bad = ~(np.isfinite(found) & (found >= low) & (found <= high))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"rewards[{row}]={found[row]!r}: must be a number in [{low:g}, {high:g}]")
        weight = np.ones(count) if weights is None else _column("weights", weights, count)
        if not (np.isfinite(weight) & (weight >= 0.0) & (weight <= 1e9)).all():
            raise ValueError("weights: must be numbers in [0, 1e9]")
        at = _times(agent, times, count)
        order = np.arange(count) if at is None else np.argsort(at, kind="stable")
        return cls(x[order], found[order], None if at is None else at[order], weight[order], features, center, spread)


def _arms(arms: Iterable[Any]) -> tuple[list[Any], list[Mapping[str, Any]]]:
    """The arm played in every row, and its own fields."""
    names, own = [], []
    for i, arm in enumerate(arms):
        if isinstance(arm, Mapping):
            if len(arm) != 1:
                raise ValueError(f"arms[{i}]={shown(arm)}: must be a name, or map one name to its fields")
            ((arm, fields),) = arm.items()
        else:
            fields = {}
        names += named(f"arms[{i}]", [arm])
        own.append(fields)
    return names, own


def _contexts(contexts: Any, count: int) -> list[Mapping[str, Any]]:
    if contexts is None:
        return [{}] * count
    if is_frame(contexts):
        columns = {str(column): list(contexts[column]) for column in contexts.columns}
        contexts = [{name: values[i] for name, values in columns.items()} for i in range(len(contexts))]
    found = list(contexts)
    if len(found) != count:
        raise ValueError(f"contexts has {len(found)} rows: must have {count}, as arms")
    return found


def _row(features: Features, i: int, context: Mapping[str, Any], arm: Mapping[Any, Any]) -> Array:
    try:
        return features.vectors(context, arm)
    except ValueError as error:
        raise ValueError(f"row {i}: {error}") from None


def _column(name: str, values: Any, count: int) -> Array:
    found = np.array(real_array(name, values, "a list of numbers"))
    if found.shape != (count,):
        raise ValueError(f"{name} has shape {found.shape}: must have a number for each of the {count} rows")
    return found


def _times(agent: Agent, times: Sequence[float | datetime] | None, count: int) -> Array | None:
    if times is None:
        if agent.by_clock:
            raise ValueError("times=None: this agent forgets by the clock; say when each row was decided")
        return None
    found = _column("times", [moment(one) for one in times], count)
    if agent.by_clock and agent._first_time is not None and count and found.min() < agent._last_time:
        raise ValueError("times: must not lie before what the agent has seen; give history before the first decision")
    return found
