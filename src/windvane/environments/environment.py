"""A simulated world on lanes: a drift, an arm law and a reward law, combined freely.

>>> from windvane.environments import BallArms, Environment, Rotation
>>> world = Environment(Rotation(), BallArms(count=10), horizon=3000, lanes=2)
>>> offer = world.round(1)
>>> offer.arms.shape
(2, 10, 2)
>>> reward = world.reward(1, offer.means[:, 0])          # of playing arm 0 in both lanes
>>> regret = offer.best - offer.means[:, 0]

Random numbers depend on (seed, lane id, round) and on what they are for, never on which lanes are together or in which
order rounds are asked for. All policies that are run on one environment see the same arms and the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane.arguments import Array, check_array, check_lanes, check_number, check_positive, check_whole
from windvane.environments._fields import LATEST
from windvane.environments.arms import ArmLaw
from windvane.environments.delays import DelayLaw, Delays
from windvane.environments.drift import Drift
from windvane.environments.rewards import RewardLaw, natural_rewards
from windvane.estimation import ROUNDING
from windvane.links import Link, get_link


class Round(NamedTuple):
    """What a round is: to a policy ``arms`` and ``valid``; the rest is the truth."""

    t: int
    arms: Array  # [lanes, K, dim]
    valid: npt.NDArray[np.bool_] | None  # [lanes, K], or None where all arms are there
    theta: Array  # theta*_t, [lanes, dim]
    means: Array  # mu(<x, theta*_t>), [lanes, K]; of absent arms too
    best: Array  # the largest mean among the arms that are there, [lanes]


class Environment:
    """Lanes of one simulated world. ``rewards=None`` is the natural law of the link.

    ``dim``, ``S``, ``L``, ``sigma``, ``link``, ``lane_ids`` and ``seed`` are what a policy must be told.
    With an ``intercept`` b, arms get a last feature 1 and theta* a last entry b; then dim is one more,
    L = sqrt(L^2 + 1) and S = sqrt(S^2 + b^2).
    """

    def __init__(
        self,
        drift: Drift,
        arms: ArmLaw,
        rewards: RewardLaw | None = None,
        *,
        dim: int = 2,
        link: str | Link = "logistic",
        S: float = 1.0,
        L: float = 1.0,
        intercept: float | None = None,
        delay: DelayLaw | None = None,
        horizon: int,
        lanes: int | Sequence[int] = 1,
        seed: int = 0,
    ) -> None:
        for name, value, wanted in (
            ("drift", drift, Drift),
            ("arms", arms, ArmLaw),
            ("rewards", rewards, RewardLaw | None),
            ("delay", delay, DelayLaw | None),
        ):
            if not isinstance(value, wanted):
                raise ValueError(f"{name}={value!r}: must be a {name} of windvane.environments")
        self.drift, self.arms, self.delay = drift, arms, delay
        self.link = get_link(link)
        self.horizon = check_whole("horizon", horizon, 1, LATEST)
        self.lane_ids = check_lanes(lanes)
        self.lanes = len(self.lane_ids)
        self.seed = check_whole("seed", seed, 0, 2**64 - 1)
        dim, S, L = check_whole("dim", dim, 1), check_positive("S", S), check_positive("L", L)
        self.path = drift.path(horizon=self.horizon, dim=dim, S=S, lane_ids=self.lane_ids, seed=self.seed)
        self._stream = arms.bind(dim=dim, L=L, lane_ids=self.lane_ids, seed=self.seed)
        self.intercept = None
        self.dim, self.S, self.L, self.orthogonal = dim, S, L, arms.orthogonal
        if intercept is not None:
            self.intercept = check_number("intercept", intercept, "within [-1e100, 1e100]", lambda v: abs(v) <= 1e100)
            self.dim, self.orthogonal = dim + 1, False
            self.S, self.L = math.hypot(S, self.intercept), math.hypot(L, 1.0)
        largest_z = self.S * self.L
        self.rewards = natural_rewards(self.link, largest_z) if rewards is None else rewards
        self._rewards = self.rewards.bind(self.link, largest_z)
        self.sigma = self._rewards.sigma
        self._everything = np.ones((self.lanes, arms.count), dtype=bool)
        self._k = kernels.load(self.link)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_k"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._k = kernels.load(self.link)

    def __repr__(self) -> str:
        return (
            f"Environment({self.drift!r}, {self.arms!r}, {self.rewards!r}, dim={self.dim}, link={self.link.name!r}, "
            f"horizon={self.horizon}, lanes={self.lanes})"
        )

    @property
    def variation(self) -> Array:
        """B_T = sum over t < T of ||theta*_{t+1} - theta*_t||, [lanes]."""
        return self.path.variation

    @property
    def switches(self) -> npt.NDArray[np.int64]:
        """How many t < T have theta*_{t+1} != theta*_t, [lanes]."""
        return self.path.switches

    def round(self, t: int) -> Round:
        """Round t, 1 <= t <= horizon, in any order."""
        theta = self.path.at(t)
        arms, valid = self._stream.at(t)
        if self.intercept is not None:
            theta = _with_last(theta, self.intercept)
            arms = _with_last(arms, 1.0)
        means, best = self._means(theta, arms), np.empty(self.lanes)
        self._k.best_means(means, self._everything if valid is None else valid, best)
        return Round(t, arms, valid, theta, means, best)

    def means(self, t: float, arms: npt.ArrayLike) -> Array:
        """mu(<x, theta*_t>) of ``arms[lanes, K, dim]`` at the whole round t: the truth, for who may know it."""
        theta = self.path.at(int(check_number("t", t, "that is whole", float.is_integer)))
        if self.intercept is not None:
            theta = _with_last(theta, self.intercept)
        return self._means(theta, check_array("arms", arms, (self.lanes, None, self.dim)))

    def _means(self, theta: Array, arms: Array) -> Array:
        means = np.empty(arms.shape[:2])
        self._k.predict_lanes(0, self.lanes, self.link.code, arms, theta, means)
        return means

    def reward(self, t: int, means: npt.ArrayLike) -> Array:
        """The rewards of round t for arms of these means, [lanes], from the one uniform of each lane and round."""
        means = check_array("means", means, (self.lanes,))
        low, high = self._rewards.low, self._rewards.high
        slack = high * (ROUNDING - 1.0)  # arms may be that much longer than L
        lane = self._k.first_outside(means, low - slack, high + slack)
        if lane >= 0:
            raise ValueError(f"means={float(means[lane])!r} in lane {lane}: must be in [{low:g}, {high:g}]")
        return self._rewards.draw(self._uniforms(t, self._k.REWARDS), means)

    def delays(self, t: int) -> Delays | None:
        """How many rounds late the rewards of round t arrive, [lanes]; None without a delay law."""
        return None if self.delay is None else self.delay.draw(self._uniforms(t, self._k.DELAYS))

    def _uniforms(self, t: int, stream: int) -> Array:
        u = np.empty(self.lanes)
        t = check_whole("t", t, 1, self.horizon)
        self._k.draw_uniforms(np.uint64(self.seed), self.lane_ids, t, stream, u)
        return u


def _with_last(points: Array, last: float) -> Array:
    """``points`` with one more coordinate, the same for all."""
    longer = np.empty((*points.shape[:-1], points.shape[-1] + 1))
    longer[..., :-1] = points
    longer[..., -1] = last
    return longer
