"""One policy object a lane, on the lanes contract: for what cannot be batched sensibly.

A policy whose lanes take different paths through its program (MASTER starts, pauses and drops whole policies at random)
is written for a single lane, and ``PerLane`` puts as many of them side by side as there are lanes. By the contract, k
lanes together are k policies alone, so nothing changes but the speed: a round costs one call of Python a lane.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_lanes, check_mask, check_real_array
from windvane.arms import ArmSet
from windvane.policies._saving import State, check_unchanged, checked_header, part_of, saved
from windvane.policies._wrapping import Wrapping
from windvane.policies.base import Index, Policy


class PerLane(Wrapping):
    """``factory(dim=, lanes=[id], seed=)``, called once a lane.

    ``varying``: further arguments of the factory, each one number or one per lane, of which a lane is given its own.
    """

    name = "per lane"

    def __init__(
        self,
        factory: Callable[..., Policy],
        *,
        dim: int,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
        **varying: npt.ArrayLike,
    ) -> None:
        ids = check_lanes(lanes)
        values = {name: _one_each(name, value, len(ids)) for name, value in varying.items()}
        self.policies = [
            factory(dim=dim, lanes=[int(lane)], seed=seed, **{name: v[i] for name, v in values.items()})
            for i, lane in enumerate(ids)
        ]
        first = self.policies[0]
        for name in ("L", "sigma"):
            if any(getattr(policy, name) != getattr(first, name) for policy in self.policies):
                raise ValueError(f"{name}: must be the same in all lanes")
        self._set_up(first.dim, first.link, first.L, first.sigma, ids, seed)
        self.config = {"policy": self.name, "lanes": [policy.config for policy in self.policies]}

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        chosen = [policy.select(arms[i, None], present[i, None]) for i, policy in enumerate(self.policies)]
        self._end_round()
        return np.concatenate(chosen)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        played = [policy.select_from(arm_set) for policy in self.policies]
        self._end_round()
        return np.concatenate(played)

    def _end_round(self) -> None:
        super()._end_round()
        self.last = _together([policy.last for policy in self.policies])

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Learn one reward per lane (where ``mask``)."""
        points, rewards, rounds, weights, chosen = self._checked_feedback(x, reward, round, weight, mask)
        for i in np.flatnonzero(chosen):
            self.policies[i].update(points[i, None], rewards[i, None], round=rounds[i], weight=weights[i])

    def advance(self, n: float = 1.0) -> None:
        """Let ``n`` rounds pass (at least 0, need not be whole) without a decision."""
        n = self._checked_gap(n)
        for policy in self.policies:
            policy.advance(n)
        self.t += n

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything, in the lanes of ``mask``."""
        for i in np.flatnonzero(check_mask(mask, self.lanes)):
            self.policies[i].restart()

    def info(self) -> dict[str, Any]:
        """Diagnostics: arrays of all lanes, one after the other; single values are those of the first lane."""
        return _together([policy.info() for policy in self.policies])

    def _within(self) -> Policy:
        return self.policies[0]

    def _read(self, name: str) -> Array:
        return np.concatenate([getattr(policy, name) for policy in self.policies])

    def state(self) -> State:
        """Everything that decides the future: the states of all lanes, prefixed."""
        return saved(self, **{f"lane{i}": policy.state() for i, policy in enumerate(self.policies)})

    def load_state(self, state: State) -> None:
        """Continue from ``state()`` of a policy built alike. Everything is checked before anything changes."""
        parts = [f"lane{i}" for i in range(self.lanes)]
        header = checked_header(self, state, *parts)
        policies = copy.deepcopy(self.policies)
        for policy, part in zip(policies, parts, strict=True):
            policy.load_state(part_of(state, part))
            if (policy.t, policy._decisions) != (header.t, header.decisions):
                raise ValueError(f"state['t']={header.t!r}: does not fit the time of {part}")
        check_unchanged(state)
        self.policies = policies
        self._take_header(header)


def _one_each(name: str, value: npt.ArrayLike, lanes: int) -> list[float]:
    given = check_real_array(name, value, "a number, or one per lane")
    if given.shape not in ((), (lanes,)):
        raise ValueError(f"{name} has shape {given.shape}: must be a single number or have shape ({lanes},)")
    return [float(v) for v in np.broadcast_to(given, (lanes,))]


def _together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Dictionaries of single lanes as one of all: arrays one after the other, anything else that of the first."""
    return {
        name: np.concatenate([part[name] for part in parts]) if isinstance(value, np.ndarray) else value
        for name, value in parts[0].items()
    }
