"""Policies that cannot be batched: one policy object per lane.

Some policies take a different path in every lane: MASTER, for example, starts, pauses and drops whole policies at
random. Such a policy is written for a single lane, and ``PerLane`` runs one copy per lane. By the contract, k lanes
together behave like k policies alone, so only the speed differs: a round takes one Python call per lane.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, broadcast_lanes, check_real_array
from windvane.arms import ArmSet
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.state import Stateful


class PerLane(Policy):
    """Single-lane policies side by side. A subclass implements ``build_lane``.

    >>> import windvane
    >>> class SideBySide(windvane.PerLane):
    ...     def build_lane(self, place):
    ...         return self.derive(windvane.OFUL, lanes=[int(self.lane_ids[place])])
    >>> SideBySide(dim=2, lanes=3).select([[[1.0, 0.0]]] * 3)
    array([0, 0, 0])
    """

    name = "per lane"

    def build_lane(self, place: int) -> Policy:
        """Return the policy of one lane, whose only lane has the id ``self.lane_ids[place]``."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        self.policies = [self.build_lane(place) for place in range(self.lane_count)]
        self.prepare_checks(self.policies[0].accepted_rewards)  # rewards are checked here, once for all lanes

    def pick(self, name: str, place: int) -> float:
        """Return the value of a setting for the lane at index ``place``. The setting is one number, or one per lane."""
        values = check_real_array(name, getattr(self, name), "a number, or one per lane")
        return float(broadcast_lanes(name, values, self.lane_count)[place])

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        chosen = [policy.select(arms[i, None], valid[i, None]) for i, policy in enumerate(self.policies)]
        self.end_round()
        return np.concatenate(chosen)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        played = [policy.select_from(arm_set) for policy in self.policies]
        self.end_round()
        return np.concatenate(played)

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array:
        arms, valid = self.check_arms(arms, valid)
        lanes = enumerate(self.policies)
        return np.concatenate([policy.probabilities(arms[i, None], valid[i, None]) for i, policy in lanes])

    def end_round(self) -> None:
        """End the round, with the clock and the decisions of the lanes' policies."""
        self.follow_clock(self.policies[-1])  # it decides after all others
        self.decision = join_lanes([policy.decision for policy in self.policies])

    def learn(self, feedback: Feedback) -> None:
        for i in np.flatnonzero(feedback.mask):
            self.policies[i].receive(Feedback._make(array[i, None] for array in feedback))

    def pass_time(self, rounds: float) -> None:
        for policy in self.policies:
            policy.advance(rounds)

    def forget(self, mask: Mask) -> None:
        for i in np.flatnonzero(mask):
            self.policies[i].restart()

    def info(self, *, estimates: bool = True) -> PolicyInfo:
        joined: PolicyInfo = join_lanes([policy.info(estimates=estimates) for policy in self.policies])
        return joined

    def parts(self) -> Mapping[str, Stateful]:
        return {f"lane{place}": policy for place, policy in enumerate(self.policies)}


def join_lanes(infos: list[Any]) -> Any:
    """Join the diagnostics of single lanes. Arrays are concatenated; other values are those of the first lane."""
    result = object.__new__(type(infos[0]))
    for name, first in vars(infos[0]).items():
        values = [getattr(info, name) for info in infos]
        if isinstance(first, np.ndarray):
            first = np.concatenate(values)
        elif dataclasses.is_dataclass(first):
            first = join_lanes(values)
        vars(result)[name] = first
    return result
