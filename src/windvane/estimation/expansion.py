"""Settings of the expansion of old observations (:mod:`windvane.kernels.expansion`), and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_whole
from windvane.errors import ArgumentError
from windvane.links import Link

# Degrees of the polynomials by dimension, chosen by measurement: the highest for which an observation takes no more
# than 0.4 microseconds to enter an expansion. In more dimensions that time buys a degree of 2, with which an expansion
# is valid for so few rounds that a pass over the history costs less.
ORDERS = {1: 10, 2: 10, 3: 8, 4: 8, 5: 6, 6: 6, 7: 4, 8: 4, 9: 4, 10: 4}
SMALL = 4  # dimensions up to which an evaluation of the expansion costs no more than about 100 observations
RECENT = 32, 256  # observations that stay exact, in small and in larger dimensions: a pass over them costs about as
# much as an evaluation of the expansion
YOUNG = 4096  # observations of the level that is renewed more often
RATE = 256  # observations that one solve may add


@dataclass(frozen=True)
class Expansion:
    """How the old observations of a lane are expanded.

    Attributes
    ----------
    order
        Degree of the Taylor polynomials, an even number; 0 to sum the whole history in every evaluation.
    recent
        Number of observations that are never expanded. A history is expanded once it is eight times as long.
    young
        About as many older ones have an expansion of their own, which is renewed more often.
    rate
        Number of observations that one solve may add to an expansion.
    """

    order: int = 0
    recent: int = 0
    young: int = 0
    rate: int = 0

    def __post_init__(self) -> None:
        if check_whole("order", self.order, 0) % 2 != 0:  # M, which bounds the error, would be a sum of both signs
            raise ArgumentError("order", self.order, "an even number")
        for name in ("recent", "young", "rate"):
            check_whole(name, getattr(self, name), min(self.order, 1))

    @classmethod
    def choose(cls, dim: int, link: Link, *, has_window: bool) -> Expansion:
        """Return the settings for a dimension. A custom link and a window, whose entries leave, are never expanded."""
        is_large = dim > SMALL
        chosen = cls(ORDERS[dim], RECENT[is_large], YOUNG, RATE) if dim in ORDERS else cls()
        return chosen if chosen.suits(link, has_window=has_window) else cls()

    def suits(self, link: Link, *, has_window: bool) -> bool:
        """Return whether these settings bound the error for this link and forgetting rule."""
        return self.order == 0 or not (has_window or math.isinf(link.remainder(self.order)))

    def record_settings(self, dim: int, link: Link) -> dict[str, Any]:
        """Return the settings in the record of a lane."""
        sums, moments, columns = self._lengths(dim)
        remainder = link.remainder(self.order) if self.order else 0.0
        return {
            "order": self.order, "recent": self.recent, "young": self.young, "rate": self.rate, "remainder": remainder,
            "sums": sums, "moments": moments, "columns": columns,
        }  # fmt: skip

    def _lengths(self, dim: int) -> tuple[int, int, int]:
        p = self.order
        if p == 0:
            return 0, 0, 0
        return math.comb(dim + p + 1, dim) - 1, math.comb(dim + p - 1, p), math.comb(dim + p - 1, dim)

    def stored_width(self, dim: int) -> int:
        """Return the length of the part of a lane's row that is its state."""
        sums, moments, _ = self._lengths(dim)
        return 2 * (dim + sums + moments + 1) if self.order else 0

    def width(self, dim: int) -> int:
        """Return the length of a lane's row."""
        _, moments, columns = self._lengths(dim)
        derived = columns * (dim * (dim + 1) // 2) + moments + 2 * dim
        return self.stored_width(dim) + derived + 3 * columns + moments if self.order else 0

    def count_vectors(self, dim: int) -> int:
        """Return how many vectors of scratch space building an expansion needs."""
        return self._lengths(dim)[2] + self.order + 4 if self.order else 0

    def lay_out(self, expansions: Array, dim: int) -> None:
        """Set what follows from tensors that were loaded, as :func:`windvane.kernels.expansion.refresh` does."""
        table, multiplicity = self.tables(dim)
        (sums, moments, columns), at = self._lengths(dim), self.stored_width(dim)
        matrix, end = multiplicity[:columns] * expansions[..., dim : dim + sums][..., table], at + table.size
        expansions[..., at:end] = matrix.reshape(*expansions.shape[:2], -1)
        expansions[..., end : end + moments] = (
            multiplicity[columns:] * expansions[..., dim + sums : dim + sums + moments]
        )

    def tables(self, dim: int) -> tuple[npt.NDArray[np.int64], Array]:
        """Return the places of the entries of the tensors' matrix, and the multiplicities of all monomials."""
        return _tables(dim, self.order)


@lru_cache
def _tables(dim: int, order: int) -> tuple[npt.NDArray[np.int64], Array]:
    if order == 0:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(0)
    monomials = [m for degree in range(order + 1) for m in _list_monomials(dim, degree)]
    columns = [m for m in monomials if len(m) < order]
    pairs = [(i, j) for i in range(dim) for j in range(i + 1)]
    table = [[_place(dim, tuple(sorted(pair + m, reverse=True))) for m in columns] for pair in pairs]
    return np.array(table, dtype=np.int64), np.array([_count_orders(m) for m in monomials], dtype=float)


def _list_monomials(dim: int, degree: int) -> list[tuple[int, ...]]:
    """Return the monomials as descending indices of their factors, in the order of the kernels."""
    if degree == 0:
        return [()]
    return [(i, *rest) for i in range(dim) for rest in _list_monomials(i + 1, degree - 1)]


def _place(dim: int, monomial: tuple[int, ...]) -> int:
    """Return the place of a monomial in the packed tensors, which begin with degree 1."""
    k = len(monomial)
    return math.comb(dim + k - 1, dim) - 1 + sum(math.comb(i + k - m - 1, k - m) for m, i in enumerate(monomial))


def _count_orders(monomial: tuple[int, ...]) -> float:
    """Return in how many orders the factors of a monomial can be written."""
    repeats = math.prod(math.factorial(monomial.count(i)) for i in set(monomial))
    return math.factorial(len(monomial)) / repeats
