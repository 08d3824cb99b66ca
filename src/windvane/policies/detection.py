"""Stationary policies that restart when their predictions fail: baselines of our own, over any optimistic base.

DetectGLMUCB, DetectOFUL and DetectLogisticUCB1 are the simplest policies of this kind whose false alarms can be
bounded. For a published policy that detects changes, see dLinUCB (:mod:`windvane.policies.dynamic_lin_ucb`).

Each reward is predicted before it is learned, by an estimate theta_hat with the metric V (the *predictor*). Its
standardised prediction error is

    z = (r - mu(<x, theta_hat>)) / (sigma sqrt(1 + R_mu^2 ||x||^2_{V^-1}))

For linear rewards (R_mu = 1) with a constant theta* that has a Gaussian prior of covariance (sigma^2 / lam) I, and with
Gaussian noise of standard deviation sigma, the z are independent standard normal numbers, whatever arms were chosen:
the recursive residuals of Brown, Durbin and Evans (1975). For each shift a in ``SHIFTS`` and each sign, the
Shiryaev-Roberts statistic, which sums likelihood ratios over all possible times of the change, follows

    R <- (1 + R) exp(a z - a^2 / 2)                                 (-z for the other sign)

When the mean of all R reaches ``run_length``, the lane restarts: the estimate and all R are reset.

The predictor is the estimate of the base. Logistic-UCB-1 is the exception: its ridge of d log T keeps predictions near
mu(0) for hundreds of rounds. If all arms have a feature in common, these errors have the same sign and add up. In a
stationary world with such arms, S = 3 and 500 rounds, every run had a false alarm. So DetectLogisticUCB1 has a
predictor of its own, the estimate of GLM-UCB at lam = L^2, which is 1 for the arms x / L.

False alarms: while theta* is constant, the expected mean of R after n rewards is n. By Doob's inequality, an alarm
within n rewards has probability at most n / ``run_length``, and the mean time to one is at least ``run_length``. By
default this is ``horizon`` / ``false_alarm``, so a stationary run has no alarm with probability at least 1 -
``false_alarm``. This is proven for the linear Gaussian case above. Otherwise it is a calibration: rewards in [0, 2
sigma] have noise with E exp(a noise / sigma) <= exp(a^2 / 2), but the square root covers the error of theta_hat only
approximately. In simulations of linear and logistic worlds the false alarms stay below the stated rate.

Not covered: a theta* far in the tail of the prior, whose first rewards cause large errors; a wrong link, which causes
errors at every reward.

Detection: if the rewards of the played arms shift by s sigma, and s is close to one of the shifts, the alarm comes
after about 2 log(8 run_length) / s^2 rewards. A change that affects no played arm is not detected, because the policy
does not explore to look for changes. No regret bound is claimed. A reward of a decision before a restart is not
learned. A reward of weight w enters as the mean of w equal rewards. Alarms depend on the order of the rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array, Index, Mask, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.estimation import Estimator, MaximumLikelihoodEstimator
from windvane.policies.base import Card, Policy
from windvane.policies.glm import GLMUCB
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.linear import OFUL
from windvane.policies.logistic_ucb_1 import LogisticUCB1
from windvane.policies.optimism import OptimisticPolicy
from windvane.state import Stateful

SHIFTS = np.array([0.125, 0.25, 0.5, 1.0])  # shifts of the mean reward to test for, in units of sigma
STEEPEST = 100.0  # largest exponent: e^100 exceeds every run_length, and its product with one is finite


@dataclass(frozen=True)
class DetectionInfo(PolicyInfo):
    """The diagnostics of a policy that detects changes."""

    evidence: Array | None = None  # the mean of all R since the last restart
    alarms: Index | None = None  # number of alarms so far


class DetectingPolicy(OptimisticPolicy):
    """A policy whose lanes restart on an alarm. A subclass derives from this class and from a stationary policy.

    Pass ``horizon`` or ``run_length``.

    Parameters
    ----------
    false_alarm
        Upper bound on the probability of an alarm within ``horizon`` rounds if nothing changes. Not used with
        ``run_length``.
    run_length
        Lower bound on the mean time to a false alarm. Default: ``horizon / false_alarm``.
    """

    horizon: int | None = None
    false_alarm: float = 0.05
    run_length: float | None = None
    predictor: Estimator = field(init=False)
    example = "dim=2, horizon=1000"
    stored: ClassVar[tuple[str, ...]] = (*Policy.stored, "sums", "alarms")
    invariant: ClassVar[tuple[str, ...]] = stored

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = check_number("false_alarm", self.false_alarm, "in (0, 1)", lambda a: 0 < a < 1)
        run_length = self.run_length
        if run_length is None:
            if self.horizon is None:
                raise ArgumentError("run_length", None, "given, or `horizon`")
            run_length = check_whole("horizon", self.horizon, 1) / rate
        self.alarm_level = check_number("run_length", run_length, "in [1, 1e15]", lambda n: 1 <= n <= 1e15)
        self.sums = np.zeros((self.lane_count, 2, len(SHIFTS)))  # R for both signs
        self.alarms = np.zeros(self.lane_count, dtype=np.int64)
        self.predictor = self.build_predictor()

    def build_predictor(self) -> Estimator:
        """Return the estimator of the predictions: that of the policy."""
        return self.estimator

    @property
    def has_own_predictor(self) -> bool:
        """Whether the predictor is an estimator of its own."""
        return self.predictor is not self.estimator

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), **({"predictor": self.predictor} if self.has_own_predictor else {})}

    def pass_time(self, rounds: float) -> None:
        super().pass_time(rounds)
        if self.has_own_predictor:
            self.predictor.age(rounds)

    def learn(self, feedback: Feedback) -> None:
        """Update the evidence, learn checked rewards, and restart lanes with an alarm."""
        mask = self.mask_restarted(feedback) & (feedback.weight > 0.0)
        x = np.where(mask[:, None], feedback.x, 0.0)
        reward, weight = np.where(mask, [feedback.reward, feedback.weight], 0.0)
        z = self.measure_surprise(x, reward, weight)
        super().learn(feedback._replace(mask=mask))
        if self.has_own_predictor:
            self.predictor.absorb(feedback.x, feedback.reward, feedback.age, feedback.weight, mask)
        self.sums = np.where(mask[:, None, None], accumulate(self.sums, z), self.sums)
        if (is_alarmed := average(self.sums) >= self.alarm_level).any():
            self.alarms += is_alarmed
            self.restart(is_alarmed)

    def measure_surprise(self, x: Array, reward: Array, weight: Array) -> Array:
        """Return z of each lane, which is approximately standard normal while nothing changes."""
        arms, e = x[:, None, :], self.predictor
        theta_hat = e.solve() if self.has_own_predictor else e.theta_hat
        width = e.measure_width(arms, np.ones(self.lane_count), is_sandwich=False)[:, 0]
        spread = 1.0 + weight * (self.constants.R_mu * width) ** 2
        error = reward - e.predict(arms, theta_hat)[:, 0]
        return np.asarray(np.sqrt(weight) * error / (self.sigma * np.sqrt(spread)))

    def forget(self, mask: Mask) -> None:
        super().forget(mask)
        self.sums[mask] = 0.0
        if self.has_own_predictor:
            self.predictor.reset(mask)

    def info(self, *, estimates: bool = True) -> DetectionInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        return DetectionInfo(**known, evidence=average(self.sums), alarms=self.alarms.copy())


class DetectGLMUCB(DetectingPolicy, GLMUCB):
    """GLM-UCB whose lanes restart on an alarm. Pass ``horizon`` or ``run_length``."""

    name = "DetectGLMUCB"
    card = Card("generalized linear", "detection", "T", "none", "windvane", "O((K + t) d^2), t since the last alarm")


class DetectOFUL(DetectingPolicy, OFUL):
    """OFUL whose lanes restart on an alarm. Pass ``horizon`` or ``run_length``."""

    takes_prior: ClassVar[bool] = False  # what it would learn can be far from its predictions
    name = "DetectOFUL"
    card = DetectGLMUCB.card._replace(rewards="linear", cost=OFUL.card.cost)


class DetectLogisticUCB1(DetectingPolicy, LogisticUCB1):
    """Logistic-UCB-1 whose lanes restart on an alarm. Pass ``horizon``; or ``run_length`` and ``lam``."""

    lam: float | None = None
    takes_prior: ClassVar[bool] = False  # likewise
    name = "DetectLogisticUCB1"
    card = DetectGLMUCB.card

    def build_predictor(self) -> Estimator:
        return MaximumLikelihoodEstimator(
            self.dim, self.link, S=self.S, L=self.L, lam=self.L**2, lanes=self.lane_count, tolerance=self.tolerance
        )


def accumulate(sums: Array, z: Array) -> Array:
    """Return R after one more prediction error ``z[lanes]``, from ``sums[lanes, 2, shifts]``."""
    signed = np.stack([z, -z], axis=1)[:, :, None]
    steps = np.minimum(SHIFTS * signed - 0.5 * SHIFTS**2, STEEPEST)
    return np.asarray((1.0 + sums) * np.exp(steps))


def average(sums: Array) -> Array:
    """Return the mean of all R, [lanes]. The order of the sum does not depend on the number of lanes."""
    return np.asarray(np.cumsum(sums.reshape(len(sums), -1), axis=1)[:, -1] / sums[0].size)
