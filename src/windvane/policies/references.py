"""What to compare a policy with: play at random, play the truth, and play the estimate without exploring.

===============  ====================================================  ================================================
policy           plays                                                 its regret is
===============  ====================================================  ================================================
UniformRandom    every arm alike                                       what knowing nothing costs
Oracle           argmax of mu(<x, theta*_t>), which it is told         zero: the best that can be done
Greedy           argmax of mu(<x, theta_tilde_t>)                      what estimating costs without a bonus
===============  ====================================================  ================================================

Greedy is BVD-GLM-UCB (:mod:`windvane.policies.bvd_glm_ucb`) without its bonus: the same discounted estimate theta_hat_t
and projection theta_tilde_t; with the identity link, discounted ridge regression. With arms that are drawn afresh every
round their variety explores for it and it is hard to beat. With a fixed set of arms it may never again play an arm that
became the best while it was not being played, and its regret then grows like T.

Guarantee: none for UniformRandom and Greedy. Cost per round and lane: O(K), one evaluation of the truth, and that of
BVD-GLM-UCB less O(K d^2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_array, check_lanes
from windvane.arms import ArmSet, Ball
from windvane.errors import format_value
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies.base import Card, Index, Policy
from windvane.policies.bvd_glm_ucb import BVDGLMUCB

Truth = Callable[[float, Array], npt.ArrayLike]


class _Ignorant(Policy):
    """Learns nothing that it uses: the sums it keeps are those of the contract."""

    def _start(self, dim: int, L: float, lanes: int | Sequence[int], seed: int) -> None:
        ids = check_lanes(lanes)
        estimator = DiscountedEstimator(dim, "identity", L=L, lanes=len(ids), remember=False)
        self._begin(estimator, ids, seed=seed, sigma=1.0, delta=1.0, bonus_scale=0.0)


class UniformRandom(_Ignorant):
    """Each arm that is there with the same probability; of a ball or a sphere, a uniform point."""

    name = "UniformRandom"
    card = Card("any", "none", "nothing", "none", "-", "O(K)")

    def __init__(self, dim: int, *, L: float = 1.0, lanes: int | Sequence[int] = 1, seed: int = 0) -> None:
        self._start(dim, L, lanes, seed)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        return self._play(np.zeros(arms.shape[:2]), present)  # all arms tie

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        law = self._k.BALL if isinstance(arm_set, Ball) else self._k.SPHERE
        played = np.empty((self.lanes, self.dim))
        self._k.draw_points(law, arm_set.radius, np.uint64(self.seed), self.lane_ids, self._decisions, played)
        self._end_round()
        return played


class Oracle(_Ignorant):
    """Plays the best arm: ``truth(t, arms)`` gives the mean reward of every arm, [lanes, K], at round t."""

    name = "Oracle"
    card = Card("any", "none", "the truth", "0", "-", "O(K d)")
    needs_truth: ClassVar[bool] = True

    def __init__(
        self, dim: int, truth: Truth, *, L: float = 1.0, lanes: int | Sequence[int] = 1, seed: int = 0
    ) -> None:
        if not callable(truth):
            raise ValueError(f"truth={format_value(truth)}: must be a function of (t, arms[lanes, K, dim])")
        self.truth = truth
        self._start(dim, L, lanes, seed)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        means = check_array("truth(t, arms)", self.truth(self.t, arms), arms.shape[:2])
        if not np.isfinite(means[present]).all():
            raise ValueError(f"truth(t, arms) at t={self.t:g}: must be finite")
        self.last["means"] = means
        return self._play(means, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        raise ValueError(
            f"arm_set={arm_set!r}: the oracle is told the mean of each arm, so they must be a finite number"
        )


class Greedy(BVDGLMUCB):
    """The estimate and projection of BVD-GLM-UCB with no bonus; ``link="identity"`` for a linear model."""

    name = "Greedy"
    card = Card("generalized linear", "discount", "T, B_T", "none", "-", "O(K d + memory d^2)")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        gamma: npt.ArrayLike | None = None,
        horizon: int | None = None,
        drift: npt.ArrayLike | None = None,
        discount: str = "orthogonal",
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dim,
            link,
            gamma=gamma,
            horizon=horizon,
            drift=drift,
            discount=discount,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=0.0,
            tolerance=tolerance,
            lanes=lanes,
            seed=seed,
        )

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        theta_tilde, _ = self._step_1()
        means = self._means(arms, theta_tilde)
        self.last["means"] = means
        return self._play(means, present)
