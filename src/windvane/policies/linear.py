"""Linear rewards: one class, and a table of what each policy puts into it.

At round t, from rewards r_s = <x_s, theta*_s> + noise of the rounds s < t with weights w_s,

    V_t = sum w_s x_s x_s' + lam I,   V_tilde_t = sum w_s^2 x_s x_s' + lam I,   b_t = sum w_s r_s x_s
    theta_hat_t = V_t^-1 b_t
    x_t         = argmax over the arms of <x, theta_hat_t> + bonus_scale beta_t ||x||_M

=============  ==================================  ============================================  =====================
policy         weight w_s                          beta_t                                        M
=============  ==================================  ============================================  =====================
OFUL           1                                   from log det V_t                              V^-1
D-LinUCB       gamma^(t-1-s)                       :class:`windvane.theory.Radius`, c_mu = 1     V^-1 V_tilde V^-1
LB-WeightUCB   gamma^(t-1-s)                       as D-LinUCB                                   V^-1
SW-LinUCB      1 in the last w rounds              a constant of w, see its file                 V^-1
RestartUCB     1 since the last restart            as D-LinUCB, gamma = 1, t from the restart    V^-1
D-RandLinUCB   gamma^(t-1-s)                       that of D-LinUCB times a half-normal number   V^-1 V_tilde V^-1
D-LinTS        gamma^(t-1-s)                       0; theta_hat_t is perturbed instead
=============  ==================================  ============================================  =====================

Rewards may be any finite numbers; sigma is the noise's sub-Gaussian scale (1/2 for rewards in [0, 1]). No guarantee of
any of them covers generalized linear rewards, where the model is misspecified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from windvane.arguments import Array, check_lanes
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.policies._tuning import level_per_lane
from windvane.policies.base import Index, Policy
from windvane.theory import Radius


class LinearUCB(Policy):
    """Ridge regression that forgets by ``gamma``, ``window`` or ``restart_every``, used with a bonus.

    A subclass gives :meth:`radius` and the metric of the widths.
    """

    sandwich: ClassVar[bool] = False  # widths in the metric V^-1 V_tilde V^-1 instead of V^-1

    def __init__(
        self,
        dim: int,
        *,
        gamma: npt.ArrayLike = 1.0,
        window: npt.ArrayLike | None = None,
        restart_every: npt.ArrayLike | None = None,
        S: float,
        L: float,
        lam: float,
        sigma: float,
        delta: npt.ArrayLike,
        bonus_scale: npt.ArrayLike,
        lanes: int | Sequence[int],
        seed: int,
        **config: Any,
    ) -> None:
        ids = check_lanes(lanes)
        n, keep = len(ids), window is not None  # what leaves a window is subtracted, so it must be remembered
        estimator = DiscountedEstimator(
            dim, "identity", gamma=gamma, window=window, S=S, L=L, lam=lam, lanes=n, remember=keep
        )
        delta = level_per_lane(delta, n)
        self._begin(
            estimator,
            ids,
            seed=seed,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            restart_every=restart_every,
            **config,
        )

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        theta_hat, beta = self._estimate()
        bonus = (self.bonus_scale * beta)[:, None] * self._widths(arms, sandwich=self.sandwich)
        means = self._means(arms, theta_hat)
        self.last["means"] = means
        return self._play(means + bonus, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        theta_hat, beta = self._estimate()
        return self._play_from(arm_set, theta_hat, self.bonus_scale * beta, sandwich=self.sandwich)

    def _estimate(self) -> tuple[Array, Array]:
        theta_hat, beta = self.estimator.solve(), self.radius()
        self.last = {"theta_hat": theta_hat.copy(), "theta_tilde": theta_hat.copy(), "beta": beta}
        return theta_hat, beta

    def radius(self) -> Array:
        """beta_t(delta) of the coming decision, per lane."""
        raise NotImplementedError

    def _discounted_radius(self, confidence: str = "pointwise", horizon: int | None = None) -> Radius:
        """The radius of D-LinUCB as a function of t."""
        e = self.estimator
        return Radius(
            dim=e.dim,
            gamma=e.gamma,
            S=e.S,
            L=e.L,
            lam=e.lam,
            sigma=self.sigma,
            delta=self.delta,
            c_mu=1.0,
            confidence=confidence,
            horizon=horizon,
        )

    @property
    def theta_tilde(self) -> Array:
        """theta_hat itself: a linear model is used as estimated."""
        return self.theta_hat
