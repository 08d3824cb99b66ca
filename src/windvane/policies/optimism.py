"""Optimistic policies: an estimate plus a bonus for uncertainty.

    x_t = argmax over the arms of mu(<x, theta_t>) + multiplier_t ||x||_M

Such a policy is built from parts: an estimator with a forgetting rule, an optional projection, a radius, and the metric
M of the widths, V^-1 or V^-1 V_tilde V^-1. ``docs/reference/policies`` compares the parts of all policies.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_per_lane, check_positive, check_scale
from windvane.arms import ArmSet, Function
from windvane.estimation import Estimator, MaximumLikelihoodEstimator, Never, Restart, RidgeEstimator
from windvane.linalg import apply_with_ridge
from windvane.links import LinkConstants
from windvane.policies.base import Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.projection import Projection
from windvane.state import Stateful
from windvane.theory import Radius


class EstimatingPolicy(Policy):
    """A policy with an estimator.

    Parameters
    ----------
    lam
        Regularisation: V starts as lam I. A policy whose default is None uses the value that theory recommends.
    """

    S: float = 1.0
    lam: float | None = 1.0
    sigma: float = 0.5
    estimator: Estimator = field(init=False)
    estimator_type: ClassVar[type[Estimator]] = RidgeEstimator
    takes_prior: ClassVar[bool] = True
    is_sandwich: ClassVar[bool] = False  # widths in the metric V^-1 V_tilde V^-1 instead of V^-1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = self.build_estimator()

    @functools.cached_property
    def constants(self) -> LinkConstants:
        """The constants k_mu, c_mu and R_mu of the link over ||theta|| <= S, ||x|| <= L."""
        return self.reward_link.constants(self.S, self.L)

    def recommend_lam(self) -> float | None:
        """Return the regularisation that theory recommends, if it recommends one."""
        return None

    def given_lam(self) -> float:
        """Return ``lam``, or the recommended value if it is None."""
        return check_positive("lam", self.recommend_lam() if self.lam is None else self.lam)

    def choose_lam(self) -> float:
        """Return the regularisation of the estimator."""
        return self.given_lam()

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        """Return a ``lam`` for which the ridge lam c_mu weighs as much beside the rewards as before."""
        if scale == 1.0 and self.lam is not None:
            return {}
        slope = self.reward_link.constants(self.S if S is None else S, self.L).c_mu
        return {"lam": scale**2 * self.given_lam() * self.constants.c_mu / slope}

    def build_estimator(self) -> Estimator:
        """Return an estimator with the settings of the policy."""
        rule, settings = self.choose_forgetting(), self.pick_settings("dim", "link", "S", "L", "tolerance")
        rule = Never() if isinstance(rule, Restart) else rule  # the policy restarts the estimator
        return self.estimator_type(forgetting=rule, lam=self.choose_lam(), lanes=self.lane_count, **settings)

    def parts(self) -> Mapping[str, Stateful]:
        return {"estimator": self.estimator}

    def pass_time(self, rounds: float) -> None:
        self.estimator.age(rounds)

    def forget(self, mask: Mask) -> None:
        self.estimator.reset(mask)

    def learn(self, feedback: Feedback) -> None:
        """Learn checked rewards, except those of decisions before the last restart of the lane."""
        mask = self.mask_restarted(feedback)
        self.estimator.absorb(feedback.x, feedback.reward, feedback.age, feedback.weight, mask)

    def estimate(self) -> tuple[Array, Array]:
        """Return the parameter of the next decision, [lanes, dim], and the factor of ||x|| in its bonus, [lanes].

        A random parameter is the same in repeated calls.
        """
        return self.estimator.solve(), np.zeros(self.lane_count)

    def predict(self, arms: Array, theta: Array) -> Array:
        """Return the predicted mean reward mu(<x, theta>) of every arm, [lanes, K]."""
        return self.estimator.predict(arms, theta)

    def bonus(self, arms: Array, multiplier: Array) -> Array:
        """Return multiplier ||x|| in the metric of the policy for every arm, [lanes, K]."""
        return self.estimator.measure_width(arms, multiplier, is_sandwich=self.is_sandwich)

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        return self.play_best(arm_set, *self.estimate())

    def play_best(self, arm_set: ArmSet, theta: Array, multiplier: Array) -> Array:
        """Play the arms of an infinite set that maximise mu(<x, theta>) + multiplier ||x||, and end the round."""
        e = self.estimator
        metrics = np.array([apply_with_ridge(np.linalg.inv, V) for V in self.measure_metric()])
        if self.is_sandwich:
            metrics = metrics @ e.V_tilde @ metrics
        return self.play_from(arm_set, theta, metrics, multiplier, self.choose_index_mean())

    def measure_metric(self) -> Array:
        """Return the matrices M such that ||x|| in the bonus is in the metric M^-1: V."""
        return self.estimator.V

    def choose_index_mean(self) -> Function:
        """Return the function of <x, theta> to which a bonus is added: mu."""
        return self.estimator.link.mean

    def read_theta(self) -> Array:
        """Return the current estimate theta_hat, [lanes, dim]. Nothing changes."""
        return self.estimator.theta_hat

    def info(self, *, estimates: bool = True) -> PolicyInfo:
        known = self.describe_estimates() if estimates else {}
        return PolicyInfo(t=self.t, decisions=self.decisions, decision=self.decision, **known)

    def describe_estimates(self) -> dict[str, Any]:
        """Return the fields of ``info()`` that are computed from the estimator."""
        twin, last = copy.copy(self), self.estimator
        with last.borrow() as e:
            twin.estimator = e
            known: dict[str, Any] = {"theta_tilde": twin.estimate()[0], "theta_hat": twin.read_theta()}
            known |= {"metric": e.metric(), "squared_metric": e.V_tilde.copy(), "b": e.b}
            known |= {"gamma": e.gamma, "memory": e.memory}
            if isinstance(e, MaximumLikelihoodEstimator) and isinstance(last, MaximumLikelihoodEstimator):
                known |= {"remembered": e.remembered, "truncation_error": e.truncation_error}
                known |= {"root_passes": last.root_passes, "root_error": last.root_error}
        return known


class OptimisticPolicy(EstimatingPolicy):
    """An estimate with an exploration bonus.

    A subclass may override how its parts are chosen and built, ``compute_beta`` and ``project``.

    Parameters
    ----------
    delta
        Probability that the confidence set misses the parameter: one number, or one per lane.
    """

    delta: npt.ArrayLike = 0.05
    bonus_scale: npt.ArrayLike = 1.0
    radius: Any = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.levels = check_per_lane("delta", self.delta, self.lane_count, "in (0, 1]", lambda d: (d > 0) & (d <= 1))
        self.bonus_scales = check_scale("bonus_scale", self.bonus_scale, self.lane_count)
        self.radius = self.build_radius()
        self.bonus_factors = self.bonus_scales * self.choose_factor()

    def build_radius(self) -> Any:
        """Return the radius of BVD-GLM-UCB (of D-LinUCB if rewards are linear), or of its sliding-window form."""
        e, settings = self.estimator, self.pick_settings("dim", "S", "L", "sigma", "confidence", "horizon")
        return Radius(gamma=e.gamma, window=e.window, lam=e.lam, c_mu=e.constants.c_mu, delta=self.levels, **settings)

    def choose_factor(self) -> float:
        """Return the factor of beta ||x|| in the bonus."""
        return 1.0

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the radius of the next decision, [lanes]."""
        beta: Array = self.radius.since(self.born, self.t)
        return beta

    def project(self, beta: Array) -> Projection | None:
        """Return the projection of theta_hat, or None if theta_hat is used directly."""
        return None

    def estimate(self) -> tuple[Array, Array]:
        theta_hat = self.estimator.solve()
        beta = self.compute_beta(theta_hat)
        return self.record(theta_hat, beta, self.bonus_factors * beta, self.project(beta))

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta, multiplier = self.estimate()
        means = self.predict(arms, theta)
        return self.play(means + self.bonus(arms, multiplier), valid, means)

    def record(
        self, theta_hat: Array, beta: Array, multiplier: Array, projection: Projection | None = None
    ) -> tuple[Array, Array]:
        """Record how the decision is made, for ``info()``. Return the parameter for predictions and the multiplier."""
        theta_tilde = theta_hat if projection is None else projection.theta
        decision = self.begin_decision()
        decision.theta_hat, decision.theta_tilde, decision.beta = theta_hat, theta_tilde, beta
        decision.projection, decision.multiplier = projection, multiplier
        return theta_tilde, multiplier


class LinearIndexPolicy(OptimisticPolicy):
    """An optimistic policy whose bonus is added to <x, theta>, not to its mean mu(<x, theta>)."""

    def choose_index_mean(self) -> Function:
        return np.asarray

    def bound_predictor(self, arms: Array, theta: Array, multiplier: Array) -> Array:
        """Return the index <x, theta> + multiplier ||x|| of every arm, [lanes, K]."""
        return self.estimator.predict_linearly(arms, theta) + self.bonus(arms, multiplier)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta, multiplier = self.estimate()
        upper = self.bound_predictor(arms, theta, multiplier)
        return self.play_highest(upper, valid, self.predict(arms, theta))
