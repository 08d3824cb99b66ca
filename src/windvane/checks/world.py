"""The small drifting world in which policies are checked, and helpers that the checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.policies.base import Policy

ROUNDS = 40
TIES_EVERY = 5  # in every fifth round all arms are equal, so that each check covers ties
ESTIMATES = ("theta_hat", "theta_tilde", "metric", "squared_metric", "b")  # fields of info() that are compared

State = dict[str, npt.NDArray[Any]]
Factory = Callable[..., Any]  # returns a Policy, or an object with the same methods


class World:
    """Arms and rewards that depend on (lane id, round) only, so that lanes can be compared alone and together.

    Arms are as long as the policies of the factory allow, or unit vectors if these need them. Then some arms are listed
    several times in a round.
    """

    def __init__(self, factory: Factory, ids: list[int], dim: int = 3, K: int = 5, repeated: bool = False) -> None:
        self.ids, self.dim, self.K, self.repeated = ids, dim, K, repeated
        policy = factory(dim=dim, lanes=1, seed=0)
        self.L, self.largest, self.needs_one_hot = policy.L, 1.0, False
        if isinstance(policy, Policy):
            self.largest, self.needs_one_hot = min(1.0, policy.accepted_rewards[1]), policy.needs_one_hot

    def arms(self, t: int) -> Array:
        """Return the arms of round t, [lanes, K, dim]."""
        return np.stack([self._draw_arms(lane, t) for lane in self.ids])

    def rounds(self) -> Iterator[tuple[int, Array]]:
        """Yield the first rounds and their arms."""
        return ((t, self.arms(t)) for t in range(ROUNDS))

    def _draw_arms(self, lane: int, t: int) -> Array:
        rng = np.random.default_rng([1, lane, t])
        if self.needs_one_hot:
            arms = np.eye(self.dim)[rng.integers(self.dim, size=self.K)]
        else:
            arms = rng.normal(size=(self.K, self.dim))
            arms *= self.L * rng.uniform(0.2, 1.0, (self.K, 1)) / np.linalg.norm(arms, axis=1, keepdims=True)
        return np.asarray(np.repeat(arms[:1], self.K, axis=0) if self.repeated or is_tied(t) else arms)

    def pairs(self, t: int) -> Array:
        """Return two equally uncertain arms with opposite features, or with different indices, [lanes, 2, dim]."""
        if self.needs_one_hot:
            return np.tile(np.eye(self.dim)[:2], (len(self.ids), 1, 1))
        arms = self.arms(t)[:, :1]
        return np.concatenate([arms, -arms], axis=1)

    def equal_arms(self) -> Array:
        """Return four arms in which nothing can be learned about the others: zeros, or the same arm four times."""
        arms = np.zeros((len(self.ids), 4, self.dim))
        arms[:, :, 0] = float(self.needs_one_hot)
        return arms

    def hide_arms(self, t: int, share: float) -> tuple[Array, npt.NDArray[np.bool_]]:
        """Return the arms of round t, and a mask with about this share of them on offer."""
        arms, valid = self.arms(t), np.random.default_rng([4, t]).random((len(self.ids), self.K)) < share
        valid[:, t % self.K] = True
        arms[~valid] = np.nan
        return arms, valid

    def rewards(self, x: Array, t: int) -> Array:
        """Return the rewards of the arms played in round t, [lanes]."""
        draws = np.array([np.random.default_rng([2, lane, t]).random() for lane in self.ids])
        return np.asarray(self.largest * (draws < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0] / self.L))))

    def teach(self, policy: Policy, t: int, arms: Array, index: npt.NDArray[np.int64]) -> None:
        """Update the policy with the rewards of its choices in round t."""
        x = arms[np.arange(len(index)), index]
        policy.update(x, self.rewards(x, t))


def is_tied(t: int) -> bool:
    """Return whether all arms of round t are equal."""
    return t % TIES_EVERY == TIES_EVERY - 1


def start(factory: Factory, count: int) -> tuple[World, list[Any]]:
    """Return the world of two lanes and this many equal policies."""
    return World(factory, [0, 1]), [factory(dim=3, lanes=2, seed=0) for _ in range(count)]


def run_rounds(policy: Policy, world: World, rounds: range = range(ROUNDS)) -> npt.NDArray[np.int64]:
    """Play some rounds; return the choices, [rounds, lanes]."""
    choices = []
    for t in rounds:
        arms = world.arms(t)
        choices.append(policy.select(arms))
        world.teach(policy, t, arms, choices[-1])
    return np.array(choices)


def read_estimates(policy: Policy) -> dict[str, Array]:
    """Return the estimates in ``info()``."""
    info = policy.info()
    values = {name: getattr(info, name, None) for name in ESTIMATES}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def is_same(state: State, other: State) -> bool:
    """Return whether two states are equal, bit for bit."""
    return set(state) == set(other) and all(
        np.array_equal(state[name], other[name], equal_nan=state[name].dtype.kind == "f") for name in state
    )
