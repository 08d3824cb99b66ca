"""Policies whose arms are indices: the features of an arm say which arm it is, and nothing else.

Arm k of K is the k-th unit vector in ``dim`` = K dimensions. A round may offer the arms in any order, some of them
only, and an arm several times. Any other vector raises ``ArgumentError``. So these policies take the same calls as all
others, and D-LinUCB, for example, runs on the same vectors. Reading K unit vectors takes O(K^2) per round and lane,
which is more than most of these policies need for the decision itself.

The class attribute ``needs_one_hot`` tells the lab, agents and the conformance suite that a policy is of this kind. An
:class:`windvane.Agent` whose features are ``{"arms": [...]}`` provides unit vectors, and so does the lab where the arms
of an environment are the same in every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.estimation import Never, Restart
from windvane.estimation.arm_means import ArmMeans
from windvane.kernels.scoring import find_unit_vectors
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.state import Stateful

UNIT_VECTOR = "a unit vector: entry k of arm k is 1, and all others are 0"


@dataclass(frozen=True)
class IndexedInfo(PolicyInfo):
    """The diagnostics of a policy whose arms are indices. ``theta_hat`` has the mean reward of every arm."""

    N: Array | None = None  #: weight of the rewards of every arm, the diagonal of ``metric``, [lanes, K]


class IndexedPolicy(Policy):
    """A policy whose arms are indices. A subclass implements ``select`` with :meth:`read_arms`.

    Parameters
    ----------
    dim
        Number of arms K.
    sigma
        Rewards are in [0, 2 sigma].
    """

    L: float = field(default=1.0, init=False)
    sigma: float = 0.5
    arm_means: ArmMeans = field(init=False)
    needs_one_hot: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.largest_reward = 2.0 * self.noise_scale
        rule = self.choose_forgetting()
        rule = Never() if isinstance(rule, Restart) else rule  # the policy restarts the means
        self.arm_means = ArmMeans(self.dim, forgetting=rule, lanes=self.lane_count)

    def read_arms(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None) -> tuple[Index, Mask]:
        """Return the indices of the arms on offer, [lanes, places], -1 where there is none, and the checked mask."""
        vectors, valid = self.check_arms(arms, valid)
        return self._find_indices("arms", vectors, valid), valid

    def _find_indices(self, name: str, vectors: Array, valid: Mask) -> Index:
        indices = np.empty(valid.shape, dtype=np.int64)
        lane, place = find_unit_vectors(vectors, valid, indices)
        if lane >= 0:
            where = f"lane {lane}, arm {place}" if name == "arms" else f"lane {lane}"
            hint = f"{self.name} knows arms by their index, not by features"
            raise ArgumentError(name, vectors[lane, place].tolist(), UNIT_VECTOR, where=where, hint=hint)
        return indices

    def check_feedback(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None,
        weight: npt.ArrayLike,
        mask: npt.ArrayLike | None,
    ) -> Feedback:
        feedback = super().check_feedback(x, reward, round, weight, mask)
        self._find_indices("x", feedback.x[:, None], feedback.mask[:, None])
        return feedback

    def select_from(self, arm_set: ArmSet) -> Array:
        raise ArgumentError("arm_set", arm_set, f"a finite set of arms, because {self.name} knows arms by their index")

    def learn(self, feedback: Feedback) -> None:
        """Learn checked rewards, except those of decisions before the last restart of the lane."""
        arm, mask = feedback.x.argmax(axis=1), self.mask_restarted(feedback)
        self.arm_means.absorb(arm, feedback.reward, feedback.age, feedback.weight, mask)

    def pass_time(self, rounds: float) -> None:
        self.arm_means.age(rounds)

    def forget(self, mask: Mask) -> None:
        self.arm_means.reset(mask)

    def parts(self) -> Mapping[str, Stateful]:
        return {"arm_means": self.arm_means}

    def info(self, *, estimates: bool = True) -> IndexedInfo:
        known = self.describe_means() if estimates else {}
        return IndexedInfo(t=self.t, decisions=self.decisions, decision=self.decision, **known)

    def describe_means(self) -> dict[str, Any]:
        """Return the fields of ``info()`` that are computed from the means."""
        e = self.arm_means
        means, N = e.means, e.N
        metric = N[:, :, None] * np.eye(self.dim)
        known = {"theta_hat": means, "theta_tilde": means.copy(), "metric": metric, "squared_metric": metric.copy()}
        return known | {"N": N, "b": e.b, "gamma": e.gamma, "memory": e.window}


def gather(values: Array, indices: Index) -> Array:
    """Return ``values[lane, k]`` of the arms k at every place of ``indices[lanes, places]``; any value for -1."""
    return np.asarray(values[np.arange(len(values))[:, None], indices])
