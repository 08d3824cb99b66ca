"""What is done to a raw vector before a policy sees it: shift and scale, the length limit, the intercept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windvane._validation import Array, floats
from windvane.agent.features import Name

FIT_MARGIN = 1.25  # how much longer than any of the history a vector may be
_ROUNDING = 1.0 + 1e-9


class Scaling:
    """(x - center) / spread, then length at most ``L``, then, if ``intercept``, a last coordinate of 1."""

    def __init__(self, dim: int, L: float, *, scaling: Any, intercept: bool, clip: bool) -> None:
        self.raw_dim, self.L, self.intercept, self.clip = dim, L, intercept, clip
        self.to_fit = isinstance(scaling, str) and scaling == "fit"
        self.center, self.spread = np.zeros(dim), np.ones(dim)
        if isinstance(scaling, str) and not self.to_fit:
            raise ValueError(f'scaling={scaling!r}: must be None, "fit", or (center, spread)')
        if scaling is not None and not self.to_fit:
            try:
                center, spread = scaling
            except (TypeError, ValueError):
                raise ValueError('scaling: must be None, "fit", or a pair (center, spread)') from None
            self.set(floats("scaling center", center, (dim,)), floats("scaling spread", spread, (dim,)))

    @property
    def dim(self) -> int:
        return self.raw_dim + self.intercept

    @property
    def longest(self) -> float:
        """The bound on the norm of what comes out."""
        return math.hypot(self.L, 1.0) if self.intercept else self.L

    def set(self, center: Array, spread: Array) -> None:
        if not (np.isfinite(center).all() and np.isfinite(spread).all() and (spread > 0.0).all()):
            raise ValueError("scaling: center must be finite and spread positive")
        self.center, self.spread, self.to_fit = center.copy(), spread.copy(), False

    def fitted(self, rows: Array) -> tuple[Array, Array]:
        """Center and spread under which the history has mean 0, equal variances, and lengths below L by a margin."""
        center, deviation = rows.mean(axis=0), rows.std(axis=0)
        deviation = np.where(deviation > 0.0, deviation, 1.0)
        longest = float(np.sqrt(np.square((rows - center) / deviation).sum(axis=1)).max())
        return center, deviation * max(longest, 1e-12) * FIT_MARGIN / self.L

    def apply(self, rows: Array, names: Sequence[Name] | None = None) -> Array:
        """``names``: what an error calls the rows."""
        if self.to_fit:
            raise ValueError('scaling="fit": give history to update_many first, to fit the scaling on')
        scaled = (rows - self.center) / self.spread
        norms = np.sqrt(np.square(scaled).sum(axis=1))
        if not (norms <= self.L * _ROUNDING).all():
            scaled = self._shortened(scaled, norms, names)
        return np.column_stack((scaled, np.ones(len(scaled)))) if self.intercept else scaled

    def _shortened(self, scaled: Array, norms: Array, names: Sequence[Name] | None) -> Array:
        finite = np.isfinite(norms)
        if not self.clip or not finite.all():
            row = int(np.argmax(~finite if not finite.all() else norms > self.L * _ROUNDING))
            where = f"row {row}" if names is None else f"arms[{names[row]!r}]"
            if not finite[row]:
                raise ValueError(f"{where}: its features must be finite")
            remedy = 'give a larger L, scaling="fit" with history, or clip=True'
            raise ValueError(
                f"{where}: its features have norm {norms[row]:.6g}: must be at most L={self.L:g}; {remedy}"
            )
        return np.asarray(scaled * np.minimum(1.0, self.L / np.maximum(norms, 1e-300))[:, None])
