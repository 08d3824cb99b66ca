"""Reference policies for comparisons: random play, the truth, and the estimate without exploration.

===============  ====================================================  ================================================
policy           plays                                                 its regret is
===============  ====================================================  ================================================
UniformRandom    every arm with the same probability                   the cost of knowing nothing
Oracle           argmax of mu(<x, theta*_t>), which it knows           zero, the best possible
Greedy           argmax of mu(<x, theta_tilde_t>)                      the cost of estimation without a bonus
===============  ====================================================  ================================================

Greedy uses the estimate theta_hat_t and the projection theta_tilde_t of BVD-GLM-UCB
(:mod:`windvane.policies.bvd_glm_ucb`) without the bonus. With the identity link this is discounted ridge regression,
projected. If new arms are drawn in every round, their variety provides exploration, and Greedy is hard to beat.
With fixed arms it may never notice that an arm it does not play has become the best. Its regret then grows like T.
Neither UniformRandom nor Greedy has a guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, check_array
from windvane.arms import ArmSet, Ball
from windvane.errors import ArgumentError
from windvane.kernels.drawing import BALL, SPHERE
from windvane.kernels.projection import P2
from windvane.kernels.sampling import draw_points
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import GLMPolicy
from windvane.policies.optimism import EstimatingPolicy
from windvane.projection import Projection


class ReferencePolicy(EstimatingPolicy):
    """A policy that does not use what it learns. Its ridge regression is only for ``info()``."""

    S: float = field(default=1.0, init=False)
    lam: float | None = field(default=1.0, init=False)
    sigma: float = field(default=1.0, init=False)


class UniformRandom(ReferencePolicy):
    """Play each valid arm with the same probability. In a ball or a sphere, play a uniform point.

    >>> UniformRandom(dim=2).probabilities([[[1.0, 0.0], [0.0, 1.0]]])
    array([[0.5, 0.5]])
    """

    uses_rewards: ClassVar[bool] = False
    name = "UniformRandom"
    card = Card("any", "none", "nothing", "none", "-", "O(K)")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        return self.play(np.zeros(arms.shape[:2]), valid)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        self.begin_decision()
        law, played = BALL if isinstance(arm_set, Ball) else SPHERE, np.empty((self.lane_count, self.dim))
        draw_points(law, arm_set.radius, self.key, self.lane_ids, self.decisions, played)
        self.end_round()
        return played


class Oracle(ReferencePolicy):
    """Play the best arm.

    Parameters
    ----------
    truth
        Function such that ``truth(t, arms)`` is the mean reward of every arm at round t, [lanes, K].

    >>> Oracle(2, lambda t, arms: arms[..., 0]).select([[[0.0, 1.0], [1.0, 0.0]]])
    array([1])
    """

    truth: Callable[[float, Array], npt.ArrayLike] = field(kw_only=False)
    name = "Oracle"
    card = Card("any", "none", "the truth", "0", "-", "O(K d)")
    needs_truth: ClassVar[bool] = True
    uses_rewards: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.truth):
            raise ArgumentError("truth", self.truth, "a function of (t, arms[lanes, K, dim])")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        means = check_array("truth(t, arms)", self.truth(self.t, arms), arms.shape[:2])
        if not np.isfinite(means[valid]).all():
            raise ArgumentError("truth(t, arms)", means, "finite", where=f"round {self.t:g}")
        return self.play(means, valid, means)

    def select_from(self, arm_set: ArmSet) -> Array:
        raise ArgumentError("arm_set", arm_set, "a finite set of arms, because the oracle needs the mean of each")


class Greedy(GLMPolicy, DiscountedPolicy):
    """Play the arm with the best predicted mean. Use ``link="identity"`` for a linear model."""

    bonus_scale: npt.ArrayLike = field(default=0.0, init=False)
    name = "Greedy"
    card = Card("generalized linear", "discount", "T, B_T", "none", "-", "O(K d + memory d^2)")

    def project(self, beta: Array) -> Projection:
        return self.estimator.project(P2, beta)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        means = self.predict(arms, self.estimate()[0])
        return self.play(means, valid, means)
