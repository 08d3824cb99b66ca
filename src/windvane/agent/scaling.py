"""Scaling of raw vectors: shift and scale, the length limit, the intercept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windvane.agent.features import CONSTANT, check_flag
from windvane.arguments import NORM_SLACK, Array, check_array
from windvane.errors import ArgumentError
from windvane.records import Name

FIT_MARGIN = 1.25  # how much longer than any of the history a vector may be
REMEDY = 'give a larger L, scaling="fit" with history, or clip=True'


class Scaling:
    """(x - center) / spread, then length at most ``L``, then, if ``intercept``, a last coordinate of 1.

    ``remedy``: what to do about a vector that is too long.
    """

    def __init__(self, dim: int, L: float, *, scaling: Any, intercept: bool, clip: bool, remedy: str = REMEDY) -> None:
        self.raw_dim, self.L, self.remedy = dim, L, remedy
        self.intercept, self.clip = check_flag("intercept", intercept), check_flag("clip", clip)
        self.to_fit = isinstance(scaling, str) and scaling == "fit"
        self.center, self.spread, self.is_identity = np.zeros(dim), np.ones(dim), True
        if scaling is not None and not self.to_fit:
            center, spread = _pair(scaling)
            self.set(
                check_array(("scaling", "center"), center, (dim,)), check_array(("scaling", "spread"), spread, (dim,))
            )

    @property
    def dim(self) -> int:
        return self.raw_dim + self.intercept

    @property
    def longest(self) -> float:
        """The bound on the norm of what comes out."""
        return math.hypot(self.L, 1.0) if self.intercept else self.L

    def set(self, center: Array, spread: Array) -> None:
        if not (np.isfinite(center).all() and np.isfinite(spread).all() and (spread > 0.0).all()):
            pair = center.tolist(), spread.tolist()
            raise ArgumentError("scaling", pair, "a finite center and a finite, positive spread")
        self.center, self.spread, self.to_fit = center.copy(), spread.copy(), False
        self.is_identity = not center.any() and bool((spread == 1.0).all())

    def declaration(self) -> dict[str, list[float]]:
        """Return plain data that makes the same scaling again."""
        return {"center": self.center.tolist(), "spread": self.spread.tolist()}

    def fit(self, rows: Array) -> Scaling:
        """Return the same, with the center and spread under which ``rows``, finite, have mean 0, equal variances (where
        they vary), and lengths below L by a margin."""
        if len(rows) < 2:
            raise ArgumentError("vectors", rows, 'two or more rows for scaling="fit"', got=str(len(rows)))
        with np.errstate(over="ignore", invalid="ignore"):
            center, deviation = rows.mean(axis=0), rows.std(axis=0)
            varies = deviation > CONSTANT * np.abs(rows).max(axis=0)  # less is the rounding of the mean
            if not varies.any():
                raise ArgumentError("vectors", rows, 'rows that vary, for scaling="fit"', got="equal rows")
            deviation = np.where(varies, deviation, 1.0)
            longest = float(np.sqrt(np.square((rows - center) / deviation).sum(axis=1)).max())
            pair = center, deviation * (longest * FIT_MARGIN / self.L)
        if not np.isfinite(pair).all():
            got = f"values up to {np.abs(rows).max():g}"
            raise ArgumentError("vectors", rows, 'numbers whose squares are finite, for scaling="fit"', got=got)
        return Scaling(self.raw_dim, self.L, scaling=pair, intercept=self.intercept, clip=self.clip, remedy=self.remedy)

    def apply(
        self, rows: Array, argument: str, names: Sequence[Name] | None = None, *, longest: float = math.inf
    ) -> Array:
        """Return scaled ``rows``, which may be the same array. ``argument`` and ``names`` are for
        errors; ``longest`` is a bound on the norms of ``rows``, where one is known."""
        if self.to_fit:
            raise ArgumentError("scaling", "fit", "fitted first", hint="give history first")
        if self.is_identity and longest <= self.L:
            scaled = rows
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = (rows - self.center) / self.spread
                norms = np.sqrt(np.square(scaled).sum(axis=1))
            if not (norms <= self.L * NORM_SLACK).all():
                scaled = self._shorten(scaled, norms, argument, names)
        return np.column_stack((scaled, np.ones(len(scaled)))) if self.intercept else scaled

    def _shorten(self, scaled: Array, norms: Array, argument: str, names: Sequence[Name] | None) -> Array:
        finite = np.isfinite(norms)
        if not self.clip or not finite.all():
            row = int(np.argmax(~finite if not finite.all() else norms > self.L * NORM_SLACK))
            where = (argument, row if names is None else names[row])
            if not finite[row]:
                raise ArgumentError(where, scaled[row].tolist(), "a vector whose features and norm are finite")
            expected, got = f"a vector of norm at most L = {self.L:g}", f"a norm of {norms[row]:.6g}"
            raise ArgumentError(where, scaled[row].tolist(), expected, got=got, hint=self.remedy)
        return np.asarray(scaled * np.minimum(1.0, self.L / np.maximum(norms, 1e-300))[:, None])


def _pair(scaling: Any) -> tuple[Any, Any]:
    if isinstance(scaling, Mapping) and set(scaling) == {"center", "spread"}:
        return scaling["center"], scaling["spread"]
    if isinstance(scaling, list | tuple | np.ndarray) and len(scaling) == 2:
        return scaling[0], scaling[1]
    raise ArgumentError("scaling", scaling, 'None, "fit", or a pair (center, spread)')
