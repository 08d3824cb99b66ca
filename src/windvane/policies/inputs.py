"""Checks of the inputs of each round: arms, arm sets and rewards."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from windvane import arguments
from windvane.arguments import NORM_SLACK, Array, Mask, check_array, check_real_array
from windvane.arms import ArmSet, Ball, Sphere
from windvane.documentation import documented
from windvane.errors import ArgumentError
from windvane.kernels import scoring
from windvane.kernels.scoring import LARGEST_REWARD, LARGEST_WEIGHT

FLOAT64 = np.dtype(np.float64)


class Feedback(NamedTuple):
    """The checked arguments of ``update``, one row per lane. ``age`` is in rounds."""

    x: Array
    reward: Array
    round: Array
    age: Array
    weight: Array
    mask: Mask


class InputChecks:
    """The part of a policy that checks its input. Call ``prepare_checks`` once the settings are known."""

    dim: int
    L: float
    lane_count: int
    t: float
    last_round: float

    def prepare_checks(self, reward_range: tuple[float, float]) -> None:
        """Allocate what the checks of a round reuse."""
        self._reward_range, self._longest = reward_range, self.L * NORM_SLACK
        self._no_mask = np.ones(self.lane_count, dtype=bool)
        self._no_absent_arm = np.ones((self.lane_count, 1), dtype=bool)
        self._unit_weights = np.ones(self.lane_count)
        self._trusted: Array | None = None

    def trust(self, arms: Array) -> Array:
        """Return ``arms[lanes, K, dim]``, whose numbers the next call of ``check_arms`` with them does not check again.

        For an agent, which checks vectors when it encodes them. The array must be one that a kernel can use.
        """
        self._trusted = arms
        return arms

    @documented
    def check_arms(self, arms: ArrayLike, valid: ArrayLike | None) -> tuple[Array, Mask]:
        """Return the checked arguments of ``select``. Features of arms that are not valid are set to 0."""
        trusted, self._trusted = self._trusted, None
        lanes, dim = self.lane_count, self.dim
        is_trusted = trusted is not None and trusted is arms and valid is None
        if not _is_ready(arms, 3) or arms.shape[0] != lanes or arms.shape[2] != dim:
            array = check_real_array("arms", arms, "an array of real numbers")
            hint = "add a leading lanes axis: arms[None]" if array.ndim == 2 else ""
            arms = check_array("arms", array, (lanes, None, dim), hint)
        K = arms.shape[1]
        if K == 0:
            raise ArgumentError("arms", arms, "at least one arm in each lane", got="none")
        if valid is not None:
            present = arguments.check_booleans("valid", valid, (lanes, K))
        else:
            present = self._no_absent_arm
            if present.shape[1] != K:
                present = self._no_absent_arm = np.ones((lanes, K), dtype=bool)
        if is_trusted:
            return arms, present
        problem, lane, arm = scoring.check_points(arms, present, self._longest)
        if problem == scoring.NO_VALID_ARM:
            raise ArgumentError("valid", valid, "true for at least one arm", got="none", where=f"lane {lane}")
        if problem:
            self._refuse_point("arms", arms[lane, arm], problem, f"lane {lane}, arm {arm}")
        if valid is not None and not present.all():
            arms = np.where(present[:, :, None], arms, 0.0)  # features of absent arms can be NaN
        return arms, present

    @documented
    def check_arm_set(self, arm_set: ArmSet) -> ArmSet:
        """Return the argument of ``select_from`` if it is a ball or a sphere within the norm bound."""
        if not isinstance(arm_set, Ball | Sphere):
            raise ArgumentError("arm_set", arm_set, "a Ball or a Sphere")
        if arm_set.radius > self._longest:
            raise ArgumentError("arm_set", arm_set, f"of radius at most L={self.L:g}")
        return arm_set

    def _refuse_point(self, name: str, point: Array, problem: int, where: str) -> NoReturn:
        if problem == scoring.NOT_FINITE:
            raise ArgumentError(name, point.tolist(), "finite, with a finite norm", where=where)
        got = f"norm {np.linalg.norm(point):.9g}"
        raise ArgumentError(name, point.tolist(), f"of norm at most L={self.L:g}", got=got, where=where)

    @property
    def latest_round(self) -> float:
        """The last round whose reward can be learned: t - 1, or the round of the last decision.

        The two are equal, except that (t + 1) - 1 can be rounded to below a fractional t.
        """
        return max(self.t - 1.0, self.last_round)

    def check_feedback(
        self, x: ArrayLike, reward: ArrayLike, round: ArrayLike | None, weight: ArrayLike, mask: ArrayLike | None
    ) -> Feedback:
        """Return the checked arguments of ``update``, one row per lane."""
        lanes = self._no_mask if mask is None else arguments.check_mask(mask, self.lane_count)
        if round is None and self.last_round == 0.0:
            hint = "no round has been decided yet"
            raise ArgumentError("round", round, "the round that the reward belongs to", hint=hint)
        if not _is_ready(x, 2) or x.shape != (self.lane_count, self.dim):
            x = check_array("x", x, (self.lane_count, self.dim))
        rewards = self._per_lane("reward", reward)
        ages = np.empty(self.lane_count)  # not shared: another thread may update too
        if round is None:
            rounds = np.empty(self.lane_count)
            rounds.fill(self.last_round)
        else:
            rounds = self._per_lane("round", round)
        is_unit = isinstance(weight, float) and weight == 1.0
        weights = self._unit_weights if is_unit else self._per_lane("weight", weight)
        problem, lane = scoring.check_feedback(
            x, rewards, rounds, weights, lanes, self._longest, *self._reward_range, self.latest_round, ages
        )
        feedback = Feedback(x, rewards, rounds, ages, weights, lanes)
        if problem:
            self._refuse_feedback(problem, lane, feedback)
        return feedback

    def _per_lane(self, name: str, value: ArrayLike) -> Array:
        if type(value) is float:  # the usual case of an agent: 20 times as fast as what follows
            array = np.empty(self.lane_count)
            array.fill(value)
            return array
        if _is_ready(value, 1) and len(value) == self.lane_count:
            return value
        array = check_real_array(name, value, "a number, or one per lane")
        return arguments.broadcast_lanes(name, array, self.lane_count).copy()  # kernels need writable arrays

    def _refuse_feedback(self, problem: int, lane: int, feedback: Feedback) -> NoReturn:
        if problem in (scoring.NOT_FINITE, scoring.TOO_LONG):
            self._refuse_point("x", feedback.x[lane], problem, f"lane {lane}")
        (low, high), allowed = self._reward_range, f"finite, at most {LARGEST_REWARD:g} in size"
        if math.isfinite(high):
            allowed = f"in [{low:g}, {high:g}], that is [0, 2 sigma]"
        name, expected = {
            scoring.BAD_REWARD: ("reward", allowed),
            scoring.BAD_ROUND: ("round", f"finite, at most {self.latest_round:g}"),
        }.get(problem, ("weight", f"a number in [0, {LARGEST_WEIGHT:g}]"))
        raise ArgumentError(name, float(getattr(feedback, name)[lane]), expected, where=f"lane {lane}")


def _is_ready(value: Any, ndim: int) -> TypeGuard[Array]:
    """Return whether a kernel can use ``value`` without conversion, which is the usual case."""
    return type(value) is np.ndarray and value.dtype is FLOAT64 and value.ndim == ndim and value.flags.carray
