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

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_mask, check_number, check_whole
from windvane.links import Link
from windvane.policies.base import Card
from windvane.policies.glm_ucb import GLMUCB

SHIFTS = np.array([0.125, 0.25, 0.5, 1.0])  # of the mean reward, in units of sigma
_STEEPEST = 100.0  # exp of it is beyond any run_length, and the product with one still a number


class DetectGLMUCB(GLMUCB):
    """GLM-UCB, restarted lane by lane on an alarm. Give ``horizon``, or ``run_length`` itself."""

    name = "DetectGLMUCB"
    card = Card("generalized linear", "detection", "T", "none", "ours", "O((K + t) d^2), t since the last alarm")
    kept = ("evidence", "alarms")

    def __init__(
        self,
        dim: int,
        link: str | Link = "logistic",
        *,
        horizon: int | None = None,
        false_alarm: float = 0.05,
        run_length: float | None = None,
        S: float = 1.0,
        L: float = 1.0,
        lam: float = 1.0,
        sigma: float = 0.5,
        delta: npt.ArrayLike = 0.05,
        bonus_scale: npt.ArrayLike = 1.0,
        tolerance: float = 1e-6,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        rate = check_number("false_alarm", false_alarm, "in (0, 1)", lambda a: 0 < a < 1)
        if run_length is None:
            if horizon is None:
                raise ValueError("run_length=None: give run_length, or horizon")
            run_length = check_whole("horizon", horizon, 1) / rate
        self.run_length = check_number("run_length", run_length, "in [1, 1e15]", lambda n: 1 <= n <= 1e15)
        super().__init__(
            dim,
            link,
            S=S,
            L=L,
            lam=lam,
            sigma=sigma,
            delta=delta,
            bonus_scale=bonus_scale,
            tolerance=tolerance,
            lanes=lanes,
            seed=seed,
        )
        self.config["run_length"] = self.run_length
        self._evidence = np.zeros((self.lanes, 2, len(SHIFTS)))  # R, for both signs
        self._alarms = np.zeros(self.lanes, dtype=np.int64)

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Weigh the surprise of one reward per lane (where ``mask``), then learn it, or start anew."""
        points, rewards, rounds, weights, chosen = self._checked_feedback(x, reward, round, weight, mask)
        chosen = chosen & (rounds >= self._born)
        seen, heard = np.where(chosen[:, None], points, 0.0), np.where(chosen, [rewards, weights], 0.0)
        z = self._surprise(seen, *heard)
        self._evidence = np.where(chosen[:, None, None], accumulated(self._evidence, z), self._evidence)
        super().update(points, rewards, round=rounds, weight=weights, mask=chosen)
        if (alarm := self.evidence >= self.run_length).any():
            self._alarms += alarm
            self.restart(alarm)

    def _surprise(self, x: Array, reward: Array, weight: Array) -> Array:
        """z of each lane: about standard normal while nothing changes."""
        arms = x[:, None, :]
        error = reward - self._means(arms, self.estimator.theta_hat)[:, 0]
        spread = 1.0 + weight * (self.constants.R_mu * self._widths(arms)[:, 0]) ** 2
        return np.asarray(np.sqrt(weight) * error / (self.sigma * np.sqrt(spread)))

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything, in the lanes of ``mask``; rewards decided before now are no longer learnt from there."""
        super().restart(mask)
        self._evidence[check_mask(mask, self.lanes)] = 0.0

    @property
    def evidence(self) -> Array:
        """The mean of all R, per lane: there is an alarm when it reaches ``run_length``."""
        return np.asarray(np.cumsum(self._evidence.reshape(self.lanes, -1), axis=1)[:, -1] / self._evidence[0].size)

    def info(self) -> dict[str, Any]:
        """GLM-UCB's diagnostics, the ``evidence`` of a change since the last restart, and the ``alarms`` so far."""
        return {**super().info(), "evidence": self.evidence, "alarms": self._alarms.copy()}


def accumulated(evidence: Array, z: Array) -> Array:
    """R after one more surprise ``z[lanes]``, from ``evidence[lanes, 2, shifts]``."""
    signed = np.stack([z, -z], axis=1)[:, :, None]
    steps = np.minimum(SHIFTS * signed - 0.5 * SHIFTS**2, _STEEPEST)
    return np.asarray((1.0 + evidence) * np.exp(steps))
