"""NAME: what it does, in a line. Copy this file, rename it, and make every line true (see CONTRIBUTING.md).

Authors, "Title" (venue, year), Algorithm n.

At round t:

    theta_hat_t = ...                                             (the estimate)
    x_t         = argmax over the arms of mu(<x, theta_hat_t>) + bonus_scale ||x||_{V_t^-1}

===========  ================  =========================================================
symbol       here              meaning
===========  ================  =========================================================
gamma        ``gamma``         discount; where not given, the recommended one for T and B_T
T, B_T       ``horizon``,      rounds; total drift, the sum of ||theta*_t+1 - theta*_t||
             ``drift``
===========  ================  =========================================================

Guarantee: the theorem, under which assumptions; and what it does not cover.

Cost per round and lane: O(...).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.links import Link
from windvane.policies._tuning import choose_discount
from windvane.policies.base import Card, Index, Policy


class Skeleton(Policy):
    """A discounted estimate and a bonus of fixed size. Give ``gamma``, or ``horizon`` and ``drift``."""

    name = "skeleton"
    card = Card("generalized linear", "discount", "T, B_T", "none", "Authors year", "O((K + memory) d^2)")

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
        bonus_scale: npt.ArrayLike = 1.0,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        ids = check_lanes(lanes)
        gamma = choose_discount(gamma, horizon, drift, discount, dim, len(ids))
        estimator = DiscountedEstimator(dim, link, gamma=gamma, S=S, L=L, lam=lam, lanes=len(ids))
        self._begin(estimator, ids, seed=seed, sigma=sigma, delta=1.0, bonus_scale=bonus_scale)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        theta_hat = self._estimate()
        bonus = self.bonus_scale[:, None] * self._widths(arms)
        means = self._means(arms, theta_hat)
        self.last["means"] = means
        return self._play(means + bonus, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        return self._play_from(arm_set, self._estimate(), self.bonus_scale)

    def _estimate(self) -> Array:
        theta_hat = self.estimator.solve()
        self.last = {"theta_hat": theta_hat.copy()}  # info() shows this about the last decision
        return theta_hat
