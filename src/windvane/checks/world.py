"""The small drifting world in which policies are checked, and what the checks of it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array

ROUNDS = 40
TIES_EVERY = 5  # in every fifth round all arms are equal, so that each check meets ties
ESTIMATES = ("theta_hat", "theta_tilde", "metric", "squared_metric", "b")  # fields of info() that are compared

State = dict[str, npt.NDArray[Any]]


class LanesPolicy(Protocol):
    """The part of the contract that the checks use; see :mod:`windvane.policies.base`."""

    L: float

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
        """See :class:`windvane.Policy`."""
        ...

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        """See :class:`windvane.Policy`."""
        ...

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """See :class:`windvane.Policy`."""
        ...

    def advance(self, n: float = 1.0) -> None:
        """See :class:`windvane.Policy`."""
        ...

    def info(self) -> Any:
        """See :class:`windvane.Policy`."""
        ...

    def get_params(self) -> dict[str, Any]:
        """See :class:`windvane.Policy`."""
        ...

    def state(self) -> State:
        """See :class:`windvane.Policy`."""
        ...

    def load_state(self, state: State) -> None:
        """See :class:`windvane.Policy`."""
        ...


Factory = Callable[..., LanesPolicy]


class World:
    """Arms and rewards that depend on (lane id, round) only, so that lanes can be compared alone and together."""

    def __init__(self, ids: list[int], dim: int, K: int, L: float, repeated: bool = False) -> None:
        self.ids, self.dim, self.K, self.L, self.repeated = ids, dim, K, L, repeated

    def arms(self, t: int) -> Array:
        """Return the arms of round t, [lanes, K, dim]."""
        return np.stack([self._draw_arms(lane, t) for lane in self.ids])

    def _draw_arms(self, lane: int, t: int) -> Array:
        rng = np.random.default_rng([1, lane, t])
        arms = rng.normal(size=(self.K, self.dim))
        arms *= self.L * rng.uniform(0.2, 1.0, (self.K, 1)) / np.linalg.norm(arms, axis=1, keepdims=True)
        is_tied = self.repeated or t % TIES_EVERY == TIES_EVERY - 1
        return np.asarray(np.repeat(arms[:1], self.K, axis=0) if is_tied else arms)

    def rewards(self, x: Array, t: int) -> Array:
        """Return the rewards of the arms played in round t, [lanes]."""
        draws = np.array([np.random.default_rng([2, lane, t]).random() for lane in self.ids])
        return (draws < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0] / self.L))).astype(float)


def build_world(factory: Factory, ids: list[int], dim: int = 3, K: int = 5, **kw: Any) -> World:
    """Return the world of some lanes, with arms as long as the policy allows."""
    return World(ids, dim, K, factory(dim=dim, lanes=1, seed=0).L, **kw)


def run_rounds(policy: LanesPolicy, world: World, rounds: range) -> npt.NDArray[np.int64]:
    """Play some rounds; return the choices, [rounds, lanes]."""
    choices = []
    for t in rounds:
        arms = world.arms(t)
        index = policy.select(arms)
        x = arms[np.arange(len(index)), index]
        policy.update(x, world.rewards(x, t))
        choices.append(index)
    return np.array(choices)


def read_estimates(policy: LanesPolicy) -> dict[str, Array]:
    """Return the estimates that ``info()`` tells."""
    info = policy.info()
    values = {name: getattr(info, name, None) for name in ESTIMATES}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def is_same(state: State, other: State) -> bool:
    """Return whether two states are equal, bit for bit."""
    return set(state) == set(other) and all(
        np.array_equal(state[name], other[name], equal_nan=state[name].dtype.kind == "f") for name in state
    )
