"""Forgetting rules: how the weight of an observation depends on the age of its decision.

==============  =========================================================================================
rule            weight of an observation decided ``age`` rounds ago
==============  =========================================================================================
``Discount``    gamma^age
``Window``      1 while age < length, then 0
``Restart``     1 since the last restart, 0 before; a restart every ``every`` decisions
``Never``       1
==============  =========================================================================================

A rule holds one number, or one per lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, SMALLEST, Array, check_discount, check_per_lane
from windvane.theory import discount, window_length


def tune_per_lane(rule: Callable[[float], float], name: str, amount: npt.ArrayLike) -> float | Array:
    """Apply ``rule`` to an amount of drift, or to one per lane."""
    amounts = check_per_lane(name, amount, np.size(amount), "at least 0", lambda b: b >= 0).tolist()
    values = {b: rule(b) for b in set(amounts)}
    return values[amounts[0]] if np.ndim(amount) == 0 else np.array([values[b] for b in amounts])


@dataclass(frozen=True)
class Discount:
    """Exponential weights.

    Parameters
    ----------
    gamma
        Discount in (0, 1], one number or one per lane.

    Examples
    --------
    >>> Discount(0.99).memory(1)
    array([100.])
    """

    gamma: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike, dim: int, arm_geometry: str = "orthogonal") -> Discount:
        """Return the discount that theory recommends for ``horizon`` rounds and a total drift (or one per lane).

        Examples
        --------
        >>> Discount.tuned(horizon=3000, drift=2.0, dim=2)
        Discount(gamma=0.9951...)
        """
        rule = lambda B: discount(horizon=horizon, drift=B, dim=dim, kind=arm_geometry)  # noqa: E731
        return cls(tune_per_lane(rule, "drift", drift))

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane."""
        return check_discount(self.gamma, lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane: infinite."""
        return np.full(lanes, math.inf)

    def memory(self, lanes: int) -> Array:
        """Return how many rounds effectively count, 1 / (1 - gamma), per lane."""
        gammas = self.gammas(lanes)
        return np.where(gammas < 1.0, 1.0 / np.maximum(1.0 - gammas, 1e-300), math.inf)


@dataclass(frozen=True)
class Window:
    """Equal weights for the decisions of the last ``length`` rounds.

    Parameters
    ----------
    length
        Rounds, above 0; one number or one per lane.

    Examples
    --------
    >>> Window(500).memory(1)
    array([500.])
    """

    length: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike | None, dim: int, arm_geometry: str = "orthogonal") -> Window:
        """Return the window that theory recommends for ``horizon`` rounds and a total drift, known or not.

        Examples
        --------
        >>> Window.tuned(horizon=3000, drift=2.0, dim=2)
        Window(length=208.0)
        """
        if drift is None:
            return cls(float(window_length(horizon=horizon, drift=None, dim=dim, kind=arm_geometry)))
        rule = lambda B: float(window_length(horizon=horizon, drift=B, dim=dim, kind=arm_geometry))  # noqa: E731
        return cls(tune_per_lane(rule, "drift", drift))

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane: 1."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane."""
        expected = "above 0 (within [1e-100, 1e100])"
        return check_per_lane("window", self.length, lanes, expected, lambda w: (w >= SMALLEST) & (w <= LARGEST))

    def memory(self, lanes: int) -> Array:
        """Return the window of each lane."""
        return self.windows(lanes)


@dataclass(frozen=True)
class Never:
    """No forgetting.

    Examples
    --------
    >>> Never().memory(1)
    array([inf])
    """

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane: 1."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane: infinite."""
        return np.full(lanes, math.inf)

    def memory(self, lanes: int) -> Array:
        """Return how many rounds count: infinitely many."""
        return np.full(lanes, math.inf)


@dataclass(frozen=True)
class Restart(Never):
    """Start again every ``every`` decisions; between two restarts nothing is forgotten.

    Parameters
    ----------
    every
        Whole number of decisions, at least 1; one number or one per lane.

    Examples
    --------
    >>> Restart(200).memory(1)
    array([200.])
    """

    every: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike, dim: int) -> Restart:
        """Return the period that theory recommends for ``horizon`` rounds and a total drift (or one per lane).

        Examples
        --------
        >>> Restart.tuned(horizon=3000, drift=2.0, dim=2)
        Restart(every=208.0)
        """
        return cls(Window.tuned(horizon=horizon, drift=drift, dim=dim).length)

    def periods(self, lanes: int) -> Array:
        """Return the number of decisions between two restarts of each lane."""
        expected = "that is whole, at least 1"
        return check_per_lane("restart_every", self.every, lanes, expected, lambda n: (n >= 1) & (n == np.floor(n)))

    def memory(self, lanes: int) -> Array:
        """Return the number of decisions between two restarts."""
        return self.periods(lanes)


Forgetting = Discount | Window | Restart | Never
