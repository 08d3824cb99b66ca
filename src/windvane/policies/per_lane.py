"""One policy object a lane, on the lanes contract: for what cannot be batched sensibly.

A policy whose lanes take different paths through its program (MASTER starts, pauses and drops whole policies at random)
is written for a single lane, and ``PerLane`` puts as many of them side by side as there are lanes. By the contract, k
lanes together are k policies alone, so nothing changes but the speed: a round costs one call of Python a lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, broadcast_lanes, check_real_array
from windvane.arms import ArmSet
from windvane.policies.base import Feedback, Policy
from windvane.policies.info import PolicyInfo, join_lanes
from windvane.state import Stateful


class PerLane(Policy):
    """Single-lane policies side by side. A subclass implements ``build_lane``."""

    name = "per lane"

    def build_lane(self, place: int) -> Policy:
        """Return the policy of the lane at this place, with one lane of the id ``self.lane_ids[place]``."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        super().__post_init__()
        self.policies = [self.build_lane(place) for place in range(self.lane_count)]

    def pick(self, name: str, place: int) -> float:
        """Return the value, for the lane at this place, of a setting that is one number or one per lane."""
        given = check_real_array(name, getattr(self, name), "a number, or one per lane")
        return float(broadcast_lanes(name, given, self.lane_count)[place])

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t, lane by lane."""
        arms, present = self.check_arms(arms, valid)
        chosen = [policy.select(arms[i, None], present[i, None]) for i, policy in enumerate(self.policies)]
        self.end_round()
        return np.concatenate(chosen)

    def select_from(self, arm_set: ArmSet) -> Array:
        """Decide round t among all arms of a ball or a sphere, lane by lane."""
        arm_set = self.check_arm_set(arm_set)
        played = [policy.select_from(arm_set) for policy in self.policies]
        self.end_round()
        return np.concatenate(played)

    def end_round(self) -> None:
        """Count the decision; the policies have let its round pass."""
        self.count_decision()
        self.decision = join_lanes([policy.decision for policy in self.policies])

    def learn(self, feedback: Feedback) -> None:
        """Give checked rewards to the policies of their lanes."""
        for i in np.flatnonzero(feedback.mask):
            rows: Any = (array[i, None] for array in feedback)
            self.policies[i].learn(Feedback(*rows))

    def pass_time(self, rounds: float) -> None:
        """Let time pass in every policy."""
        for policy in self.policies:
            policy.advance(rounds)

    def forget(self, mask: Mask) -> None:
        """Restart the policies of the lanes of ``mask``."""
        for i in np.flatnonzero(mask):
            self.policies[i].restart()

    def info(self, *, estimates: bool = True) -> PolicyInfo:
        """Return the infos of all lanes as one; single values are those of the first lane."""
        joined: Any = join_lanes([policy.info(estimates=estimates) for policy in self.policies])
        return joined  # type: ignore[no-any-return]

    def parts(self) -> Mapping[str, Stateful]:
        """Return the policies."""
        return {f"lane{place}": policy for place, policy in enumerate(self.policies)}
