"""The part of an environment that calls compiled code in every round.

It is imported when the first environment is built, so that defining drifts and laws needs no compiler.
"""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array, Index, Mask, check_whole
from windvane.environments.fields import LATEST, Frame
from windvane.errors import ArgumentError
from windvane.kernels import drawing
from windvane.kernels.random import DELAYS, LARGEST_BLOCK, REWARDS
from windvane.kernels.scoring import predict_lanes
from windvane.links import Link


class LaneDraws:
    """Means and uniforms of all lanes."""

    REWARDS, DELAYS = REWARDS, DELAYS  # purposes

    def __init__(self, link: Link, lane_ids: Index, seed: int) -> None:
        self._link, self._lane_ids, self._seed = link, lane_ids, np.uint64(seed)

    def predict(self, arms: Array, theta: Array) -> Array:
        """Return mu(<x, theta>) of ``arms[lanes, K, dim]``."""
        means = np.empty(arms.shape[:2])
        predict_lanes(self._link.code, arms, theta, means)
        if self._link.code >= 0:
            return means
        return self._link.mean(means.ravel()).reshape(means.shape)  # for a custom link, the kernel returns <x, theta>

    def find_best(self, means: Array, valid: Mask) -> Array:
        """Return the largest mean among the valid arms, [lanes]."""
        best = np.empty(len(means))
        drawing.best_means(means, valid, best)
        return best

    find_outside = staticmethod(drawing.first_outside)

    def uniforms(self, t: int, purpose: int) -> Array:
        """Return the uniform of each lane for the reward or the delay of round t."""
        uniforms = np.empty(len(self._lane_ids))
        drawing.draw_uniforms(self._seed, self._lane_ids, t, purpose, uniforms)
        return uniforms


class NewArms:
    """Arms that are drawn again every round."""

    def __init__(self, frame: Frame, kind: str, count: int) -> None:
        most = LARGEST_BLOCK // drawing.blocks_of(frame.dim)  # the counter of the generator has no room for more
        if count > most:
            raise ArgumentError("count", count, f"at most {most} with dim={frame.dim}")
        self._shape = (len(frame.lane_ids), count, frame.dim)
        self._source = getattr(drawing, kind.upper()), frame.radius, np.uint64(frame.seed), frame.lane_ids

    def at(self, t: int) -> tuple[Array, Mask | None]:
        """Return the arms of round t; all of them are on offer."""
        arms = np.empty(self._shape)
        drawing.draw_arms(*self._source, check_whole("t", t, 1, LATEST), arms)
        return arms, None


class PassingArms(NewArms):
    """Arms that stay in their slots for a lifetime, and may be absent."""

    def __init__(self, frame: Frame, kind: str, count: int, lifetime: int, presence: float) -> None:
        super().__init__(frame, kind, count)
        self._lifetime, self._presence = lifetime, presence
        self._arms, self._slots = np.empty(self._shape), np.zeros(self._shape[:2], dtype=drawing.SLOT)
        drawing.draw_phases(np.uint64(frame.seed), frame.lane_ids, lifetime, self._slots)

    def at(self, t: int) -> tuple[Array, Mask | None]:
        """Return the arms in the slots at round t, and which are on offer."""
        t, valid = check_whole("t", t, 1, LATEST), np.empty(self._shape[:2], dtype=bool)
        drawing.draw_items(*self._source, t, self._lifetime, self._presence, self._slots, self._arms, valid)
        return self._arms.copy(), valid
