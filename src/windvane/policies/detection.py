"""DetectGLMUCB: GLM-UCB that restarts when its predictions fail. A baseline of our own.

It is the simplest policy of this kind whose false alarms can be bounded. It is not one of the published policies that
detect changes, such as dLinUCB (Wu, Iyer and Wang, SIGIR 2018), because we could not check their rules in the papers.

Each reward is predicted before it is learned. Its standardised prediction error is

    z = (r - mu(<x, theta_hat>)) / (sigma sqrt(1 + R_mu^2 ||x||^2_{V^-1}))

For linear rewards (R_mu = 1) with a constant theta* that has a Gaussian prior of covariance (sigma^2 / lam) I, and with
Gaussian noise of standard deviation sigma, the z are independent standard normal numbers, whatever arms were chosen:
the recursive residuals of Brown, Durbin and Evans (1975). For each shift a in ``SHIFTS`` and each sign, the
Shiryaev-Roberts statistic, which sums likelihood ratios over all possible times of the change, follows

    R <- (1 + R) exp(a z - a^2 / 2)                                 (-z for the other sign)

When the mean of all R reaches ``run_length``, the lane restarts: the estimate and all R are reset.

False alarms: while theta* is constant, the expected mean of R after n rewards is n. By Doob's inequality, an alarm
within n rewards has probability at most n / ``run_length``, and the mean time to one is at least ``run_length``. By
default this is ``horizon`` / ``false_alarm``, so a stationary run has no alarm with probability at least 1 -
``false_alarm``. This is proven for the linear Gaussian case above. Otherwise it is a calibration: rewards in [0, 2
sigma] have noise with E exp(a noise / sigma) <= exp(a^2 / 2), but the square root covers the error of theta_hat only
approximately. In simulations of logistic worlds the false alarms stay below the stated rate.

Not covered: a theta* far in the tail of the prior, whose first rewards cause large errors; a wrong link, which causes
errors at every reward.

Detection: if the rewards of the played arms shift by s sigma, and s is close to one of the shifts, the alarm comes
after about 2 log(8 run_length) / s^2 rewards. A change that affects no played arm is not detected, because the policy
does not explore to look for changes. No regret bound is claimed. A reward of a decision before a restart is not
learned. A reward of weight w enters as the mean of w equal rewards. Alarms depend on the order of the rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array, Index, Mask, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.policies.base import Card
from windvane.policies.glm import GLMUCB
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback

SHIFTS = np.array([0.125, 0.25, 0.5, 1.0])  # shifts of the mean reward to test for, in units of sigma
STEEPEST = 100.0  # largest exponent: e^100 exceeds every run_length, and its product with one is finite


@dataclass(frozen=True)
class DetectionInfo(PolicyInfo):
    """The diagnostics of DetectGLMUCB."""

    evidence: Array | None = None  # the mean of all R since the last restart
    alarms: Index | None = None  # number of alarms so far


class DetectGLMUCB(GLMUCB):
    """GLM-UCB whose lanes restart on an alarm. Pass ``horizon`` or ``run_length``.

    Parameters
    ----------
    false_alarm
        Upper bound on the probability of an alarm within ``horizon`` rounds if nothing changes. Not used with
        ``run_length``.
    run_length
        Lower bound on the mean time to a false alarm. Default: ``horizon / false_alarm``.
    """

    false_alarm: float = 0.05
    run_length: float | None = None
    example = "dim=2, horizon=1000"
    name = "DetectGLMUCB"
    card = Card("generalized linear", "detection", "T", "none", "ours", "O((K + t) d^2), t since the last alarm")
    stored: ClassVar[tuple[str, ...]] = (*GLMUCB.stored, "sums", "alarms")
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

    def learn(self, feedback: Feedback) -> None:
        """Update the evidence, learn checked rewards, and restart lanes with an alarm."""
        mask = self.mask_restarted(feedback) & (feedback.weight > 0.0)
        x = np.where(mask[:, None], feedback.x, 0.0)
        reward, weight = np.where(mask, [feedback.reward, feedback.weight], 0.0)
        z = self.measure_surprise(x, reward, weight)
        super().learn(feedback._replace(mask=mask))
        self.sums = np.where(mask[:, None, None], accumulate(self.sums, z), self.sums)
        if (is_alarmed := average(self.sums) >= self.alarm_level).any():
            self.alarms += is_alarmed
            self.restart(is_alarmed)

    def measure_surprise(self, x: Array, reward: Array, weight: Array) -> Array:
        """Return z of each lane, which is approximately standard normal while nothing changes."""
        arms = x[:, None, :]
        mean = self.predict(arms, self.estimator.theta_hat)[:, 0]
        spread = 1.0 + weight * (self.constants.R_mu * self.bonus(arms, np.ones(self.lane_count))[:, 0]) ** 2
        return np.asarray(np.sqrt(weight) * (reward - mean) / (self.sigma * np.sqrt(spread)))

    def forget(self, mask: Mask) -> None:
        super().forget(mask)
        self.sums[mask] = 0.0

    def info(self, *, estimates: bool = True) -> DetectionInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        return DetectionInfo(**known, evidence=average(self.sums), alarms=self.alarms.copy())


def accumulate(sums: Array, z: Array) -> Array:
    """Return R after one more prediction error ``z[lanes]``, from ``sums[lanes, 2, shifts]``."""
    signed = np.stack([z, -z], axis=1)[:, :, None]
    steps = np.minimum(SHIFTS * signed - 0.5 * SHIFTS**2, STEEPEST)
    return np.asarray((1.0 + sums) * np.exp(steps))


def average(sums: Array) -> Array:
    """Return the mean of all R, [lanes]. The order of the sum does not depend on the number of lanes."""
    return np.asarray(np.cumsum(sums.reshape(len(sums), -1), axis=1)[:, -1] / sums[0].size)
