"""The contract every policy keeps: many independent bandits ("lanes") advanced in lockstep.

* ``select(arms[lanes, K, dim], valid[lanes, K]=None) -> index[lanes]`` decides round ``t``, then ``t += 1``.
  ``select_from(Ball(r) | Sphere(r)) -> x[lanes, dim]`` does the same for infinite arm sets.
* ``update(x[lanes, dim], reward[lanes], round=None, weight=1, mask=None)`` feeds back a reward. ``round`` is the
  deciding round (default: the last one). It never moves ``t`` and may be called any number of times a round.
* ``advance(n)`` only lets time pass; n need not be whole.
* ``state()`` is a flat dict of array copies, ``load_state`` checks all of it and then swaps.

Lanes never influence each other: k lanes together make the decisions of k policies alone, bit for bit. Random numbers
depend on (seed, lane id, decision number) only. Bad input raises ``ValueError`` and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import kernels
from windvane._linalg import inverse
from windvane.arguments import (
    Array,
    check_array,
    check_mask,
    check_not_negative,
    check_per_lane,
    check_positive,
    check_real_array,
    check_whole,
)
from windvane.arms import ArmSet, Ball, Sphere, best_arm
from windvane.errors import format_value
from windvane.estimation import ROUNDING, DiscountedEstimator
from windvane.links import Link
from windvane.policies._saving import (
    LATEST,
    Header,
    State,
    check_unchanged,
    checked_header,
    part_of,
    saved,
    to_12_digits,
)
from windvane.policies._tuning import level_per_lane, rounds_per_lane

Index = npt.NDArray[np.int64]
OF_ARMS = ("scores", "means")
"""What ``last`` holds of every arm of the last decision, for whoever explains it: their scores, and where a policy
tells it what of them is prediction, not bonus."""


class Card(NamedTuple):
    """A policy in a few words: its row in the table of ``windvane policies``."""

    rewards: str  # "linear", "generalized linear" or "any"
    forgetting: str  # "none", "discount", "window", "restarts", "detection" or "adaptive"
    needs: str  # what it must be told of the world beyond S, L, sigma and the link, such as "T, B_T"
    guarantee: str  # the order of its regret and for which arms, or "none"
    reference: str
    cost: str  # per round and lane


class Policy:
    """Time, randomness, input checks, feedback and state: what policies on a :class:`DiscountedEstimator` share.

    A subclass builds ``self.estimator`` and ``self.config`` in ``__init__`` (through :meth:`_begin`) and implements
    ``select`` and ``select_from`` with :meth:`_checked_arms`, :meth:`_play` and :meth:`_play_from`.
    """

    name: ClassVar[str]
    card: ClassVar[Card]
    needs_truth: ClassVar[bool] = False  # whether it must be given ``truth``, the mean of every arm (an oracle)
    kept: ClassVar[tuple[str, ...]] = ()  # "x" for each array _x, of fixed shape, that a subclass keeps in its state
    estimator: DiscountedEstimator

    def _begin(
        self,
        estimator: DiscountedEstimator,
        lane_ids: npt.NDArray[np.int64],
        *,
        seed: int,
        sigma: float,
        delta: npt.ArrayLike,
        bonus_scale: npt.ArrayLike,
        restart_every: npt.ArrayLike | None = None,
        **config: Any,
    ) -> None:
        self.estimator = estimator
        self._set_up(estimator.dim, estimator.link, estimator.L, sigma, lane_ids, seed)
        self.delta = level_per_lane(delta, self.lanes)
        self.bonus_scale = check_per_lane(
            "bonus_scale", bonus_scale, self.lanes, "in [0, 1e100]", lambda s: (s >= 0) & (s <= 1e100)
        )
        self.restart_every = (
            None if restart_every is None else rounds_per_lane("restart_every", restart_every, self.lanes)
        )
        self.config: dict[str, Any] = {
            "policy": self.name,
            "dim": self.dim,
            "link": self.link.fingerprint(estimator.S * estimator.L),
            "S": estimator.S,
            "L": estimator.L,
            "lam": estimator.lam,
            "sigma": self.sigma,
            "tolerance": estimator.tolerance,
            "window": estimator.window,
            "gamma": estimator.gamma,
            "delta": self.delta,
            "bonus_scale": self.bonus_scale,
            "seed": self.seed,
            "restart_every": self.restart_every,
            **config,
        }

    def _set_up(self, dim: int, link: Link, L: float, sigma: float, lane_ids: npt.NDArray[np.int64], seed: int) -> None:
        """Time, lanes and randomness: what a policy has even without an estimator of its own."""
        self.dim, self.lanes, self.link, self.L = dim, len(lane_ids), link, L
        self.sigma = check_positive("sigma", sigma)
        self.seed = check_whole("seed", seed, 0, 2**64 - 1)
        self.lane_ids = lane_ids
        self.t = 1.0
        self._born = np.ones(self.lanes)  # the round with which each lane's estimator began, or began anew
        self._decisions = 0
        self.last: dict[str, npt.NDArray[Any]] = {}
        self._everyone = np.ones(self.lanes, dtype=bool)
        self._last_rounds = np.full(self.lanes, math.nan)  # of the last decision, one and the same for all lanes
        self._weight_one = np.ones(self.lanes)
        self._k = kernels.load(self.link)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_k"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._k = kernels.load(self.link)

    # --- what can be read ------------------------------------------------------------------------------------------

    @property
    def gamma(self) -> Array:
        return self.estimator.gamma

    @property
    def S(self) -> float:
        return self.estimator.S

    @property
    def theta_hat(self) -> Array:
        return self.estimator.theta_hat

    @property
    def V(self) -> Array:
        return self.estimator.V

    @property
    def V_tilde(self) -> Array:
        return self.estimator.V_tilde

    @property
    def b(self) -> Array:
        return self.estimator.b

    def info(self) -> dict[str, Any]:
        """Diagnostics: of the last decision where there was one, and of the estimator now."""
        e = self.estimator
        return {
            "t": self.t,
            "decisions": self._decisions,
            **{name: value.copy() for name, value in self.last.items() if name not in OF_ARMS},
            "root_passes": e.root_passes,
            "root_error": e.root_error,
            "truncation_error": e.truncation_error,
            "remembered": e.remembered,
            "memory": e.memory,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, link={self.link.name!r}, lanes={self.lanes}, t={self.t:g})"

    # --- deciding --------------------------------------------------------------------------------------------------

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        """Decide round t among ``arms[lanes, K, dim]``; ``valid[lanes, K]`` marks the arms that are really there."""
        raise NotImplementedError

    def select_from(self, arm_set: ArmSet) -> Array:
        """Decide round t among all arms of a ball or a sphere; returns the arms played, [lanes, dim]."""
        raise NotImplementedError

    def _checked_arms(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None) -> tuple[Array, npt.NDArray[np.bool_]]:
        arms = check_array("arms", arms, (self.lanes, None, self.dim))
        K = arms.shape[1]
        if K == 0:
            raise ValueError("arms: must offer at least one arm")
        if valid is None:
            mask = np.ones((self.lanes, K), dtype=bool)  # no arm is absent
        else:
            try:
                mask = np.ascontiguousarray(valid)
            except ValueError:
                raise ValueError(f"valid={format_value(valid)}: must be boolean, shape ({self.lanes}, {K})") from None
            if mask.dtype != bool or mask.shape != (self.lanes, K):
                raise ValueError(
                    f"valid has shape {mask.shape} and type {mask.dtype}: must be boolean, shape ({self.lanes}, {K})"
                )
        wrong, lane, arm = self._k.check_points(arms, mask, self.L * ROUNDING)
        if wrong:
            self._refuse_point("arms", arms[lane, arm], wrong, f"lane {lane}, arm {arm}")
        if valid is not None and not mask.all():
            arms = np.where(mask[:, :, None], arms, 0.0)  # what an absent arm holds must not reach a computation
        return arms, mask

    def _checked_set(self, arm_set: ArmSet) -> ArmSet:
        if not isinstance(arm_set, Ball | Sphere):
            raise ValueError(f"arm_set={arm_set!r}: must be a Ball or a Sphere")
        if arm_set.radius > self.L * ROUNDING:
            raise ValueError(f"arm_set={arm_set!r}: the radius must be at most L={self.L:g}")
        return arm_set

    def _refuse_point(self, name: str, point: Array, wrong: int, where: str) -> None:
        if wrong == self._k.NO_VALID_ARM:
            raise ValueError(f"valid: {where.split(',')[0]} has no valid arm; at least one is needed")
        if wrong == self._k.NOT_FINITE:
            raise ValueError(f"{name}={point.tolist()} in {where}: must be finite, and so must its norm")
        raise ValueError(f"{name}: the norm is {np.linalg.norm(point):.9g} in {where}: must be at most L={self.L:g}")

    def _means(self, arms: Array, theta: Array) -> Array:
        """mu(<x, theta>) for every arm."""
        out = np.empty(arms.shape[:2])
        self._k.predict_lanes(0, self.lanes, self.link.code, arms, theta, out)
        return out

    def _widths(self, arms: Array, *, sandwich: bool = False) -> Array:
        """||x|| in the metric V^{-1} for every arm, or in V^{-1} V_tilde V^{-1} (``sandwich``)."""
        out = np.empty(arms.shape[:2])
        e = self.estimator
        self._k.width_lanes(0, self.lanes, sandwich, arms, e._V, e._V_tilde, out)
        return out

    def _play(self, scores: Array, valid: npt.NDArray[np.bool_]) -> Index:
        """The argmax with seeded ties; the round is then over."""
        self.last["scores"] = scores
        index = np.empty(self.lanes, dtype=np.int64)
        seed = np.uint64(self.seed)
        self._k.choose_lanes(0, self.lanes, scores, valid, seed, self.lane_ids, self._decisions, index)
        self._end_round()
        return index

    def _play_from(self, arm_set: ArmSet, theta: Array, factor: Array, *, sandwich: bool = False) -> Array:
        """The best arm of an infinite set for mu(<x, theta>) + factor ||x||; the round is then over."""
        e = self.estimator
        return self._play_best(arm_set, theta, factor, e._V, e._V_tilde if sandwich else None, self.link.mean)

    def _play_best(
        self, arm_set: ArmSet, theta: Array, factor: Array, V: Array, filling: Array | None, mean: Callable[[Any], Any]
    ) -> Array:
        """... for mean(<x, theta>) + factor ||x|| in the metric V^-1, or V^-1 filling V^-1."""
        played = np.empty((self.lanes, self.dim))
        for lane in range(self.lanes):
            V_inverse = inverse(V[lane])
            metric = V_inverse if filling is None else V_inverse @ filling[lane] @ V_inverse
            coin = self._k.uniform(np.uint64(self.seed), self.lane_ids[lane], self._decisions, self._k.TIES)
            played[lane] = best_arm(arm_set, theta[lane], metric, factor[lane], mean, coin)
        self._end_round()
        return played

    def _end_round(self) -> None:
        self.estimator.advance(1.0)
        self._last_rounds.fill(self.t)
        self._decisions += 1
        self.t += 1.0
        if self.restart_every is not None and (due := self._decisions % self.restart_every == 0).any():
            self.restart(due)

    @property
    def local_t(self) -> Array:
        """t, counted from the last restart of each lane: what a radius must be taken at."""
        return self.t - self._born + 1.0

    def restart(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything, in the lanes of ``mask``; rewards decided before now are no longer learnt from there."""
        chosen = check_mask(mask, self.lanes)
        self.estimator.reset(chosen)
        self._born[chosen] = self.t

    # --- learning --------------------------------------------------------------------------------------------------

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None:
        """Learn one reward per lane (where ``mask``); it enters with the weight of the age of ``round``."""
        self._absorb(*self._checked_feedback(x, reward, round, weight, mask))

    def _absorb(
        self, points: Array, rewards: Array, rounds: Array, weights: Array, chosen: npt.NDArray[np.bool_]
    ) -> None:
        """:meth:`update` for what was checked already."""
        if (self._born > 1.0).any():
            chosen = chosen & (rounds >= self._born)
        self.estimator._take(points, rewards, rounds, self._latest_round(), weights, chosen)

    def _checked_feedback(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None,
        weight: npt.ArrayLike,
        mask: npt.ArrayLike | None,
    ) -> tuple[Array, Array, Array, Array, npt.NDArray[np.bool_]]:
        """Points, rewards, rounds and weights, one per lane, and which lanes they count in."""
        chosen = self._everyone if mask is None else check_mask(mask, self.lanes)
        if round is None and math.isnan(self._last_rounds[0]):
            raise ValueError("round=None: no round has been decided yet; say which one the reward belongs to")
        points = check_array("x", x, (self.lanes, self.dim))
        rewards = self._lane_values("reward", reward)
        rounds = self._last_rounds if round is None else self._lane_values("round", round)
        weights = (
            self._weight_one if isinstance(weight, float) and weight == 1.0 else self._lane_values("weight", weight)
        )
        low, high = self.link.reward_range(self.sigma)
        bound, latest = self.L * ROUNDING, self._latest_round()
        wrong, lane = self._k.check_feedback(points, rewards, rounds, weights, chosen, bound, low, high, latest)
        if wrong:
            self._refuse_feedback(wrong, lane, points, rewards, rounds, weights)
        return points, rewards, rounds, weights, chosen

    def _latest_round(self) -> float:
        """t - 1; but at fractional times (t + 1) - 1 may round below the t of a decision just made."""
        return max(self.t - 1.0, self._last_rounds[0]) if self._decisions else self.t - 1.0

    def _lane_values(self, name: str, value: npt.ArrayLike) -> Array:
        given = check_real_array(name, value, "a number, or one per lane")
        if given.shape == (self.lanes,):
            return np.ascontiguousarray(given)
        if given.shape == ():
            return np.full(self.lanes, given)
        raise ValueError(f"{name} has shape {given.shape}: must be a single number or have shape ({self.lanes},)")

    def _refuse_feedback(self, wrong: int, lane: int, x: Array, reward: Array, rounds: Array, weight: Array) -> None:
        k, where = self._k, f"lane {lane}"
        if wrong in (k.NOT_FINITE, k.TOO_LONG):
            self._refuse_point("x", x[lane], wrong, where)
        if wrong == k.BAD_REWARD:
            low, high = self.link.reward_range(self.sigma)
            bounded = f"in [{low:g}, {high:g}], that is [0, 2 sigma]"
            allowed = f"finite, at most {k.LARGEST_REWARD:g} in size" if math.isinf(high) else bounded
            raise ValueError(f"reward={float(reward[lane])!r} in {where}: must be {allowed}")
        if wrong == k.BAD_ROUND:
            raise ValueError(f"round={float(rounds[lane])!r} in {where}: must be at most {self._latest_round():g}")
        most = k.LARGEST_WEIGHT
        raise ValueError(f"weight={float(weight[lane])!r} in {where}: must be a number in [0, {most:g}]")

    def advance(self, n: float = 1.0) -> None:
        """Let ``n`` rounds pass (at least 0, need not be whole) without a decision."""
        n = self._checked_gap(n)
        self.estimator.advance(n)
        self.t += n

    def _checked_gap(self, n: float) -> float:
        n = check_not_negative("n", n)
        if self.t + n > LATEST:
            raise ValueError(f"n={n!r}: must not take t beyond 2**52")
        return n

    # --- state -----------------------------------------------------------------------------------------------------

    @property
    def config_hash(self) -> str:
        """A fingerprint of everything a policy was built with, except its lanes: states move between equals only.

        Numbers count to 12 digits: exp and its like, and so c_mu, differ in the last ones from processor to processor.
        """
        text = json.dumps(to_12_digits(self.config), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def state(self) -> State:
        """Everything that decides the future, as a flat dict of array copies (safe to store without pickle)."""
        return saved(self, estimator=self.estimator.state())

    def load_state(self, state: State) -> None:
        """Continue from ``state()`` of a policy built alike. Everything is checked before anything changes."""
        header = checked_header(self, state, "estimator")
        checked = self.estimator.checked_state(part_of(state, "estimator"))
        born = np.repeat(header.born, self.estimator.lanes // self.lanes)  # an estimator may have several rows a lane
        if not (np.abs(checked["clock"][:, 0] - (header.t - born)) <= 1e-6 * header.t).all():
            raise ValueError(f"state['t']={header.t!r}: does not fit the clock of the estimator")
        if not (np.abs(checked["gamma"] - self.estimator.gamma) <= 1e-15).all():  # a few roundings: see config_hash
            raise ValueError("state['estimator.gamma']: differs from this policy's discount")
        if self.estimator.windowed and not np.array_equal(checked["window"], self.estimator._window):
            raise ValueError("state['estimator.window']: differs from this policy's window")
        check_unchanged(state)
        self.estimator._swap(checked)
        self._take_header(header)

    def _take_header(self, header: Header) -> None:
        self.t, self._born, self._decisions = header.t, header.born, header.decisions
        self._last_rounds.fill(header.last_round)
        for name, array in header.kept.items():
            setattr(self, f"_{name}", array)
        self.last = {}
