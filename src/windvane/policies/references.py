"""What to compare a policy with: play at random, play the truth, and play the estimate without exploring.

===============  ====================================================  ================================================
policy           plays                                                 its regret is
===============  ====================================================  ================================================
UniformRandom    every arm alike                                       what knowing nothing costs
Oracle           argmax of mu(<x, theta*_t>), which it is told         zero: the best that can be done
Greedy           argmax of mu(<x, theta_tilde_t>)                      what estimating costs without a bonus
===============  ====================================================  ================================================

Greedy has no bonus: it uses the same discounted estimate theta_hat_t
and projection theta_tilde_t as BVD-GLM-UCB
(:mod:`windvane.policies.bvd_glm_ucb`); with the identity link, discounted ridge regression. With arms that are drawn afresh every
round their variety explores for it and it is hard to beat. With a fixed set of arms it may never again play an arm that
became the best while it was not being played, and its regret then grows like T.

Guarantee: none for UniformRandom and Greedy. Cost per round and lane: O(K), one evaluation of the truth, and that of
BVD-GLM-UCB less O(K d^2).
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
from windvane.estimation import Never
from windvane.kernels.drawing import BALL, SPHERE
from windvane.kernels.sampling import draw_points
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import GLMPolicy
from windvane.policies.linear import build_ridge
from windvane.policies.optimism import EstimatingPolicy
from windvane.projection import LaneProjections, project_p2

Truth = Callable[[float, Array], npt.ArrayLike]


class ReferencePolicy(EstimatingPolicy):
    """A policy that does not act on what it learns: ridge regression is kept for ``info()`` only."""

    S: float = field(default=1.0, init=False)
    lam: float | None = field(default=1.0, init=False)
    sigma: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = build_ridge(self, Never())


class UniformRandom(ReferencePolicy):
    """Plays each arm that is there with the same probability; of a ball or a sphere, a uniform point.

    Examples
    --------
    >>> UniformRandom(dim=2).probabilities([[[1.0, 0.0], [0.0, 1.0]]])
    array([[0.5, 0.5]])
    """

    name = "UniformRandom"
    card = Card("any", "none", "nothing", "none", "-", "O(K)")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t: all arms tie."""
        arms, present = self.check_arms(arms, valid)
        self.begin_decision()
        return self.play(np.zeros(arms.shape[:2]), present)

    def select_from(self, arm_set: ArmSet) -> Array:
        """Return a uniform point of a ball or a sphere, [lanes, dim]."""
        arm_set = self.check_arm_set(arm_set)
        self.begin_decision()
        law, played = BALL if isinstance(arm_set, Ball) else SPHERE, np.empty((self.lane_count, self.dim))
        draw_points(law, arm_set.radius, self.key, self.lane_ids, self.decisions, played)
        self.end_round()
        return played


class Oracle(ReferencePolicy):
    """Plays the best arm.

    Parameters
    ----------
    truth
        ``truth(t, arms)`` returns the mean reward of every arm, [lanes, K], at round t.

    Examples
    --------
    >>> Oracle(2, lambda t, arms: arms[..., 0]).select([[[0.0, 1.0], [1.0, 0.0]]])
    array([1])
    """

    truth: Truth = field(kw_only=False)

    name = "Oracle"
    card = Card("any", "none", "the truth", "0", "-", "O(K d)")
    needs_truth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.truth):
            raise ArgumentError("truth", self.truth, "a function of (t, arms[lanes, K, dim])")

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t by the true means."""
        arms, present = self.check_arms(arms, valid)
        means = check_array("truth(t, arms)", self.truth(self.t, arms), arms.shape[:2])
        if not np.isfinite(means[present]).all():
            raise ArgumentError("truth(t, arms)", means, "finite", where=f"round {self.t:g}")
        self.begin_decision().means = means
        return self.play(means, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        """Raise ``ArgumentError``: the truth is known for a finite number of arms only."""
        raise ArgumentError("arm_set", arm_set, "a finite set of arms: the oracle is told the mean of each")


class Greedy(GLMPolicy, DiscountedPolicy):
    """Plays the best arm of the estimate, without a bonus; ``link="identity"`` for a linear model.

    Examples
    --------
    >>> Greedy(dim=2, gamma=0.99).select([[[1.0, 0.0]]])
    array([0])
    """

    bonus_scale: npt.ArrayLike = field(default=0.0, init=False)

    name = "Greedy"
    card = Card("generalized linear", "discount", "T, B_T", "none", "-", "O(K d + memory d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = self.build_estimator(self.choose_discount())
        self.radius = self.build_radius()
        self.bonus_factors = self.bonus_scales * (0.0)

    def project(self, beta: Array) -> LaneProjections:
        """Project by P2, as BVD-GLM-UCB does."""
        return project_p2(self.estimator, beta)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t by predictions alone."""
        arms, present = self.check_arms(arms, valid)
        theta_tilde, _ = self.estimate()
        return self.play(self.predict(arms, theta_tilde), present)
