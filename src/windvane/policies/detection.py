"""DetectGLMUCB: stationary optimism (GLM-UCB) that starts anew when its predictions go wrong. A baseline of our own.

Policies that detect changes are a family (dLinUCB of Wu, Iyer and Wang, SIGIR 2018, is one); this is none of the
published ones, since we could not check their rules at the source. It is the simplest whose false alarms can be stated.
With ``link="identity"`` it is a linear policy.

Before a reward is learnt it is predicted. Its standardised surprise is

    z = (r - mu(<x, theta_hat>)) / (sigma sqrt(1 + R_mu^2 ||x||^2_{V^-1}))

For linear rewards (R_mu = 1), under a Gaussian prior of covariance (sigma^2 / lam) I on a theta* that stays, and
Gaussian noise of standard deviation sigma, the z are independent standard normal numbers, however the arms were chosen:
they are the recursive residuals of Brown, Durbin and Evans (1975). For each shift a in ``SHIFTS`` and each sign the sum
over all possible beginnings of a likelihood ratio (Shiryaev and Roberts) follows

    R <- (1 + R) exp(a z - a^2 / 2)                                 (-z for the other sign)

and when the mean of all these R reaches ``run_length`` the lane is restarted: estimate and R begin anew.

False alarms: while theta* stays, E[mean of R] after n rewards is n, so by Doob's inequality an alarm comes within n
rewards with probability at most n / ``run_length``, and the mean time to it is at least ``run_length``. By default
``run_length`` = ``horizon`` / ``false_alarm``: no alarm at all in a stationary run, with probability at least 1 -
``false_alarm``. That is a proof for the linear Gaussian case above. Elsewhere it is a calibration: rewards in [0, 2
sigma] have noise for which E exp(a noise / sigma) <= exp(a^2 / 2), but the error of theta_hat, covered by the root
only roughly, comes on top; simulated false alarms of logistic worlds stay below the stated rate. Not covered: a theta*
far out in the prior's tail, whose first rewards surprise; a wrong link, which makes every reward surprise.

A shift of the rewards of the arms played by s sigma is noticed after about 2 log(8 run_length) / s^2 rewards where s
is near one of the shifts. A change that no played arm shows is not noticed at all: nothing is played to look for
changes. No regret bound is claimed. A reward decided before a restart is not learnt; a weight w makes z that of the
mean of w equal rewards. Alarms depend on the order in which rewards come, so late ones may change them.

Cost per round and lane: that of GLM-UCB, with a history since the last restart: O((K + t) d^2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array, Index, Mask, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.policies.base import Card, Feedback
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.info import PolicyInfo

SHIFTS = np.array([0.125, 0.25, 0.5, 1.0])  # of the mean reward, in units of sigma
STEEPEST = 100.0  # exp of it is beyond any run_length, and the product with one is still finite


@dataclass(frozen=True)
class DetectionInfo(PolicyInfo):
    """Where DetectGLMUCB stands: also the ``evidence`` of a change since the last restart, and ``alarms`` so far."""

    evidence: Array | None = None
    alarms: Index | None = None


class DetectGLMUCB(GLMUCB):
    """GLM-UCB, restarted lane by lane on an alarm. Give ``horizon``, or ``run_length`` itself.

    Parameters
    ----------
    false_alarm
        Probability of an alarm within ``horizon`` rounds while nothing changes.
    run_length
        Mean time to a false alarm; by default ``horizon / false_alarm``.

    Examples
    --------
    >>> DetectGLMUCB(dim=2, horizon=1000).select([[[1.0, 0.0]]])
    array([0])
    """

    false_alarm: float = 0.05
    run_length: float | None = None

    name = "DetectGLMUCB"
    card = Card("generalized linear", "detection", "T", "none", "ours", "O((K + t) d^2), t since the last alarm")
    stored: ClassVar[tuple[str, ...]] = (*GLMUCB.stored, "sums", "alarms")

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = check_number("false_alarm", self.false_alarm, "in (0, 1)", lambda a: 0 < a < 1)
        run_length = self.run_length
        if run_length is None:
            if self.horizon is None:
                raise ArgumentError("run_length", None, "given, or `horizon`")
            run_length = check_whole("horizon", self.horizon, 1) / rate
        self.alarm_level = check_number("run_length", run_length, "in [1, 1e15]", lambda n: 1 <= n <= 1e15)
        self.sums = np.zeros((self.lane_count, 2, len(SHIFTS)))  # R, for both signs
        self.alarms = np.zeros(self.lane_count, dtype=np.int64)

    def learn(self, feedback: Feedback) -> None:
        """Weigh the surprise of checked rewards, then learn them, or start again."""
        mask = feedback.mask & (feedback.round >= self.born)
        x = np.where(mask[:, None], feedback.x, 0.0)
        reward, weight = np.where(mask, [feedback.reward, feedback.weight], 0.0)
        z = self.measure_surprise(x, reward, weight)
        self.sums = np.where(mask[:, None, None], accumulate(self.sums, z), self.sums)
        super().learn(feedback._replace(mask=mask))
        if (is_alarmed := self.evidence >= self.alarm_level).any():
            self.alarms += is_alarmed
            self.restart(is_alarmed)

    def measure_surprise(self, x: Array, reward: Array, weight: Array) -> Array:
        """Return z of each lane: about standard normal while nothing changes."""
        arms = x[:, None, :]
        means = np.empty(arms.shape[:2])
        self.estimator.kernels.predict_lanes(self.estimator.link.code, arms, self.estimator.theta_hat, means)
        spread = 1.0 + weight * (self.constants.R_mu * self.width(arms)[:, 0]) ** 2
        return np.asarray(np.sqrt(weight) * (reward - means[:, 0]) / (self.sigma * np.sqrt(spread)))

    def forget(self, mask: Mask) -> None:
        """Reset the estimator and the evidence in the lanes of ``mask``."""
        super().forget(mask)
        self.sums[mask] = 0.0

    @property
    def evidence(self) -> Array:
        """The mean of all R, per lane: there is an alarm when it reaches the run length."""
        return np.asarray(np.cumsum(self.sums.reshape(self.lane_count, -1), axis=1)[:, -1] / self.sums[0].size)

    def info(self, *, estimates: bool = True) -> DetectionInfo:
        """Return where GLM-UCB stands, the evidence of a change and the alarms so far."""
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        return DetectionInfo(**known, evidence=self.evidence, alarms=self.alarms.copy())


def accumulate(sums: Array, z: Array) -> Array:
    """Return R after one more surprise ``z[lanes]``, from ``sums[lanes, 2, shifts]``."""
    signed = np.stack([z, -z], axis=1)[:, :, None]
    steps = np.minimum(SHIFTS * signed - 0.5 * SHIFTS**2, STEEPEST)
    return np.asarray((1.0 + sums) * np.exp(steps))
