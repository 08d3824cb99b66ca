"""A simulated world on lanes: a drift, an arm law and a reward law, combined freely.

Random numbers depend on (seed, lane id, round, purpose) only, never on which lanes are simulated together or in which
order rounds are evaluated. All policies that run on one environment see the same arms and the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, NORM_SLACK, Array, Index, check_array, check_number, check_whole
from windvane.documentation import documented
from windvane.environments.arms import ArmLaw
from windvane.environments.drift import Drift
from windvane.environments.protocol import Outcome, Round
from windvane.environments.rewards import DelayLaw, RewardLaw, natural_rewards
from windvane.errors import ArgumentError
from windvane.links import Link, get_link


@documented
class Environment:
    """Lanes of one simulated world.

    To build a policy, use the attributes ``dim``, ``S``, ``L``, ``sigma``, ``link``, ``lane_ids`` and ``seed``.

    Parameters
    ----------
    drift, arms
        How theta* moves, and which arms are offered.
    rewards, delay
        How rewards are drawn (default: the usual law of the link), and how late they arrive (default: at once).
    intercept
        If it is a number b, arms get a last feature 1 and theta* a last entry b. Then dim grows by one, L becomes
        sqrt(L^2 + 1) and S becomes sqrt(S^2 + b^2).

    >>> from windvane.environments import BallArms, Rotation
    >>> world = Environment(Rotation(), BallArms(count=10), horizon=3000, lanes=2)
    >>> offer = world.round(1)
    >>> outcome = world.play(offer, [0, 4])  # arm 0 in one lane, arm 4 in the other
    >>> reward, regret = outcome.reward, offer.best - outcome.mean
    >>> world.variation.round(4)
    array([1.5708, 1.5708])
    """

    has_theta: ClassVar[bool] = True  # there is a true parameter, unlike in a labelled data stream

    def __init__(
        self, drift: Drift, arms: ArmLaw, rewards: RewardLaw | None = None, *, dim: int = 2,
        link: str | Link = "logistic", S: float = 1.0, L: float = 1.0, intercept: float | None = None,
        delay: DelayLaw | None = None, horizon: int, lanes: int | Sequence[int] = 1, seed: int = 0,
    ) -> None:  # fmt: skip
        from windvane.environments.simulation import LaneDraws

        bases = {"drift": Drift, "arms": ArmLaw, "rewards": RewardLaw, "delay": DelayLaw}
        for (name, base), part in zip(bases.items(), (drift, arms, rewards, delay), strict=True):
            if not isinstance(part, base) and (part is not None or name in ("drift", "arms")):
                raise ArgumentError(name, part, f"a {base.__name__} of windvane.environments")
        self.drift, self.arms, self.delay, self.link = drift, arms, delay, get_link(link)
        self._settings: dict[str, Any] = {
            "drift": drift, "arms": arms, "rewards": rewards, "dim": dim, "link": link, "S": S, "L": L,
            "intercept": intercept, "delay": delay, "horizon": horizon,
        }  # fmt: skip
        self.path = drift.path(horizon=horizon, dim=dim, S=S, lane_ids=lanes, seed=seed)
        self._stream = arms.bind(dim=dim, L=L, lane_ids=lanes, seed=seed)
        self.lane_ids, self.lanes, self.horizon = self.path.lane_ids, self.path.lanes, self.path.horizon
        self.dim, self.S, self.L, self.seed = self.path.dim, float(S), float(L), int(seed)
        self.orthogonal, self.has_fixed_arms = arms.orthogonal or self.dim == 1, arms.is_fixed
        self.intercept = None
        if intercept is not None:
            self.intercept = check_number("intercept", intercept, "within [-1e100, 1e100]", lambda v: abs(v) <= LARGEST)
            self.dim, self.orthogonal = self.dim + 1, False
            self.S, self.L = math.hypot(S, self.intercept), math.hypot(L, 1.0)
        self.rewards = natural_rewards(self.link, self.S * self.L) if rewards is None else rewards
        self._rewards = self.rewards.bind(self.link, self.S * self.L)
        self.sigma, self.reward_range = self._rewards.sigma, self.link.reward_range(self._rewards.sigma)
        self._all_valid = np.ones((self.lanes, arms.count), dtype=bool)
        self._draws = LaneDraws(self.link, self.lane_ids, self.seed)

    def __repr__(self) -> str:
        return (
            f"Environment({self.drift!r}, {self.arms!r}, {self.rewards!r}, dim={self.dim}, link={self.link.name!r}, "
            f"horizon={self.horizon}, lanes={self.lanes})"
        )

    def with_lanes(self, lanes: int | Sequence[int], *, seed: int | None = None) -> Environment:
        """Return the same world with other lanes, and with another seed if one is given."""
        return Environment(**self._settings, lanes=lanes, seed=self.seed if seed is None else seed)

    @property
    def variation(self) -> Array:
        """B_T = sum over t < T of ||theta*_{t+1} - theta*_t||, [lanes]."""
        return self.path.variation

    @property
    def switches(self) -> Index:
        """The number of t < T with theta*_{t+1} != theta*_t, [lanes]."""
        return self.path.switches

    def round(self, t: int) -> Round:
        """Return round ``t``, 1 <= t <= horizon; rounds may be evaluated in any order."""
        theta = self._theta(t)
        arms, valid = self._stream.at(t)
        if self.intercept is not None:
            arms = _append(arms, 1.0)
        means = self._draws.predict(arms, theta)
        best = self._draws.find_best(means, self._all_valid if valid is None else valid)
        return Round(t, arms, valid, theta, means, best)

    def means(self, t: float, arms: npt.ArrayLike) -> Array:
        """Return the true means mu(<x, theta*_t>) of ``arms[lanes, K, dim]`` at the whole round ``t``."""
        theta = self._theta(int(check_number("t", t, "that is whole", float.is_integer)))
        return self._draws.predict(check_array("arms", arms, (self.lanes, None, self.dim)), theta)

    def _theta(self, t: int) -> Array:
        theta = self.path.at(t)
        return theta if self.intercept is None else _append(theta, self.intercept)

    def play(self, offer: Round, choice: npt.ArrayLike) -> Outcome:
        """Return the rewards of the arms ``choice[lanes]`` of a round, and their means; rounds come in any order."""
        mean = offer.means[np.arange(self.lanes), offer.check_choice(choice)]
        return Outcome(self.reward(offer.t, mean), mean)

    def reward(self, t: int, means: npt.ArrayLike) -> Array:
        """Return the rewards of round ``t`` for arms with these means, [lanes], from one uniform per lane."""
        means = check_array("means", means, (self.lanes,))
        low, high = self._rewards.low, self._rewards.high
        slack = high * (NORM_SLACK - 1.0)  # arms may be longer than L by this factor
        if (lane := self._draws.find_outside(means, low - slack, high + slack)) >= 0:
            raise ArgumentError("means", float(means[lane]), f"in [{low:g}, {high:g}]", where=f"lane {lane}")
        t = check_whole("t", t, 1, self.horizon)
        return self._rewards.draw(self._draws.uniforms(t, self._draws.REWARDS), means)

    def delays(self, t: int) -> Index | None:
        """Return how many rounds late the rewards of round ``t`` arrive, [lanes]; None without a delay law."""
        if self.delay is None:
            return None
        return self.delay.draw(self._draws.uniforms(check_whole("t", t, 1, self.horizon), self._draws.DELAYS))


def _append(points: Array, last: float) -> Array:
    """Return ``points`` with one more coordinate, the same for all."""
    return np.concatenate([points, np.full((*points.shape[:-1], 1), last)], axis=-1)
