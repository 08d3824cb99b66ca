"""Generalized linear rewards: one index, and a table of what each policy puts into it.

At round t, from rewards of the rounds s < t with weights w_s,

    theta_hat_t   = the root of g_t(theta) = b_t                       (weighted maximum likelihood)
    theta_tilde_t = theta_hat_t, or where it leaves the ball ||theta|| <= S its projection        (Step 1)
    x_t           = argmax over the arms of mu(<x, theta_tilde_t>) + bonus_scale factor beta_t ||x||_{V_t^-1}   (Step 2)

==============  ======================  =================  ======================  =====================================
policy          weight w_s              projection         factor                  beta_t
==============  ======================  =================  ======================  =====================================
GLM-UCB         1                       P0 in V^-1         2 R_mu                  Radius, gamma = 1
BVD-GLM-UCB     gamma^(t-1-s)           P2                 2 R_mu                  Radius
SW-BVD-GLM-UCB  1 in the last w rounds  P2                 2 R_mu                  Radius, window
D-GLUCB         gamma^(t-1-s)           P0 in V_tilde^-1   2 R_mu                  Radius
SW-GLUCB        1 in the last w rounds  P0 in V_tilde^-1   2 R_mu                  Radius, window
RestartGLB      1 since the restart     none               R_mu                    Radius, gamma = 1, t from the restart
GLB-WeightUCB   gamma^(t-1-s)           P0 in V^-1         2 R_mu                  Radius, lam = d / c_mu^2
SCB-WeightUCB   gamma^(t-1-s)           P0 in H^-1(theta)  2 sqrt(1 + 2 S) k_mu /  WeightedSelfConcordantRadius
                                                           sqrt(c_mu)
SC-D-GLUCB      gamma^(t-1-s)           none               1 / sqrt(c_mu)          SelfConcordantRadius
SC-SW-GLUCB     1 in the last w rounds  none               1 / sqrt(c_mu)          SelfConcordantRadius, window
OnePassGLM      gamma^(t-1-s)           none               k_mu / sqrt(c_mu)       Radius; V and theta_hat by one pass
==============  ======================  =================  ======================  =====================================

The radii are those of :mod:`windvane.theory`; V_tilde = V in a window. With ||x||_{V^-1} all of them have the closed
best arm of a ball or a sphere, see :mod:`windvane.arms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.arms import ArmSet
from windvane.estimation import DiscountedEstimator
from windvane.local_projection import project_local
from windvane.policies.base import Index, Policy
from windvane.projection import LaneProjections, project
from windvane.theory import Radius


class GLMIndex(Policy):
    """A weighted maximum-likelihood estimate, projected or not, used with a bonus.

    A subclass names its ``program`` and sets ``beta`` (or overrides :meth:`_radius`).
    """

    program: ClassVar[str]  # of Step 1: "none", one of windvane.projection.PROGRAMS, or "P0 in H"
    beta: Callable[[Array], Array]  # the radius as a function of t

    def _assemble(self, estimator: DiscountedEstimator, lane_ids: npt.NDArray[np.int64], **settings: Any) -> None:
        self.constants = estimator.constants
        self._begin(estimator, lane_ids, **settings)

    def _plain_radius(
        self, confidence: str = "pointwise", horizon: int | None = None, lam: float | None = None
    ) -> Radius:
        """The radius of BVD-GLM-UCB, or with a window that of its sliding-window form."""
        e = self.estimator
        return Radius(
            dim=e.dim,
            gamma=e.gamma,
            S=e.S,
            L=e.L,
            lam=e.lam if lam is None else lam,
            sigma=self.sigma,
            delta=self.delta,
            c_mu=self.constants.c_mu,
            confidence=confidence,
            horizon=horizon,
            window=e.window,
        )

    def factor(self) -> float:
        """What beta_t ||x||_{V_t^-1} is multiplied by in the bonus: 2 R_mu, unless a subclass says otherwise."""
        return 2.0 * self.constants.R_mu

    def radius(self) -> Array:
        """beta_t of the coming decision, per lane."""
        return self._radius(self.theta_hat)

    def _radius(self, theta_hat: Array) -> Array:
        return self.beta(self.local_t)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, present = self._checked_arms(arms, valid)
        theta_tilde, beta = self._step_1()
        bonus = self._step_2(beta)[:, None] * self._widths(arms)
        means = self._means(arms, theta_tilde)
        self.last["means"] = means
        return self._play(means + bonus, present)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self._checked_set(arm_set)
        theta_tilde, beta = self._step_1()
        return self._play_from(arm_set, theta_tilde, self._step_2(beta))

    def _step_1(self) -> tuple[Array, Array]:
        """theta_hat_t, the root of g_t(theta) = b_t, and from it the theta_tilde_t that predictions are made with."""
        theta_hat = self.estimator.solve()
        beta = self._radius(theta_hat)
        projected = self._projected(theta_hat, beta)
        self.last = {"theta_hat": theta_hat.copy(), "theta_tilde": theta_hat.copy(), "beta": beta}
        if projected is None:
            return theta_hat, beta
        self.last |= {
            "theta_tilde": projected.theta,
            "stage": projected.stage,
            "value": projected.value,
            "residual": projected.residual,
        }
        return projected.theta, beta

    def _step_2(self, beta: Array) -> Array:
        """What ||x||_{V_t^-1} is multiplied by in the exploration bonus."""
        return self.factor() * self.bonus_scale * beta

    def _projected(self, theta_hat: Array, beta: Array) -> LaneProjections | None:
        """None where the estimate is used as it is."""
        if self.program == "none":
            return None
        if self.program == "P0 in H":
            return project_local(self.estimator, theta_hat, self.estimator.S)
        return project(self.estimator, self.program, theta_hat, beta, self.estimator.S)

    @property
    def theta_tilde(self) -> Array:
        """The parameter that a decision made now would use."""
        theta_hat = self.theta_hat
        projected = self._projected(theta_hat, self._radius(theta_hat))
        return theta_hat if projected is None else projected.theta
