"""Forgetting rules: the weight of an observation as a function of the age of its decision.

==============  =========================================================================================
rule            weight of an observation whose decision is ``age`` rounds old
==============  =========================================================================================
``Discount``    gamma^age
``Window``      1 if age < length, else 0
``Restart``     1 since the last restart, else 0; the policy restarts every ``every`` decisions
``Never``       1
==============  =========================================================================================

A rule holds one number for all lanes, or one number per lane.
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
    """Apply ``rule`` to an amount of drift, or to one amount per lane."""
    amounts = check_per_lane(name, amount, np.size(amount), "at least 0", lambda b: b >= 0).tolist()
    values = {b: rule(b) for b in set(amounts)}
    return values[amounts[0]] if np.ndim(amount) == 0 else np.array([values[b] for b in amounts])


@dataclass(frozen=True)
class Discount:
    """Exponential weights: an observation of age a has weight gamma^a.

    Parameters
    ----------
    gamma
        Discount in (0, 1]: one number, or one per lane.

    Examples
    --------
    >>> Discount(0.99).memory(1)
    array([100.])
    """

    gamma: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike, dim: int, arm_geometry: str = "orthogonal") -> Discount:
        """Return the discount that theory recommends.

        Parameters
        ----------
        horizon
            Number of rounds T.
        drift
            Total drift B_T: one number, or one per lane.
        dim
            Number of features.
        arm_geometry
            "orthogonal" or "general": the arm sets for which the discount is recommended.

        Returns
        -------
        Discount
            The rule. See :func:`windvane.theory.discount` for the formulas.

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
        """Return the window of each lane, which is infinite."""
        return np.full(lanes, math.inf)

    def memory(self, lanes: int) -> Array:
        """Return how many past rounds effectively count in each lane, 1 / (1 - gamma)."""
        gammas = self.gammas(lanes)
        return np.where(gammas < 1.0, 1.0 / np.maximum(1.0 - gammas, 1e-300), math.inf)


@dataclass(frozen=True)
class Window:
    """Equal weights for the decisions of the last ``length`` rounds, and none for older ones.

    Parameters
    ----------
    length
        Number of rounds, above 0: one number, or one per lane.

    Examples
    --------
    >>> Window(500).memory(1)
    array([500.])
    """

    length: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike | None, dim: int, arm_geometry: str = "orthogonal") -> Window:
        """Return the window that theory recommends.

        Parameters
        ----------
        horizon
            Number of rounds T.
        drift
            Total drift B_T: one number, one per lane, or None if it is unknown.
        dim
            Number of features.
        arm_geometry
            "orthogonal" or "general": the arm sets for which the window is recommended.

        Returns
        -------
        Window
            The rule. See :func:`windvane.theory.window_length` for the formulas.

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
        """Return the discount of each lane, which is 1."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane."""
        expected = "above 0 (within [1e-100, 1e100])"
        return check_per_lane("window", self.length, lanes, expected, lambda w: (w >= SMALLEST) & (w <= LARGEST))

    def memory(self, lanes: int) -> Array:
        """Return how many past rounds count in each lane: the window."""
        return self.windows(lanes)


@dataclass(frozen=True)
class Never:
    """No forgetting: every observation has weight 1.

    Examples
    --------
    >>> Never().memory(1)
    array([inf])
    """

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane, which is 1."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane, which is infinite."""
        return np.full(lanes, math.inf)

    def memory(self, lanes: int) -> Array:
        """Return how many past rounds count in each lane, which is infinite."""
        return np.full(lanes, math.inf)


@dataclass(frozen=True)
class Restart:
    """Restart every ``every`` decisions. Nothing is forgotten between two restarts.

    Parameters
    ----------
    every
        Number of decisions, a whole number of at least 1: one number, or one per lane.

    Examples
    --------
    >>> Restart(200).memory(1)
    array([200.])
    """

    every: npt.ArrayLike

    @classmethod
    def tuned(cls, *, horizon: int, drift: npt.ArrayLike, dim: int) -> Restart:
        """Return the period that theory recommends.

        Parameters
        ----------
        horizon
            Number of rounds T.
        drift
            Total drift B_T: one number, or one per lane.
        dim
            Number of features.

        Returns
        -------
        Restart
            The rule. The period is the window that :func:`windvane.theory.window_length` recommends.

        Examples
        --------
        >>> Restart.tuned(horizon=3000, drift=2.0, dim=2)
        Restart(every=208.0)
        """
        return cls(Window.tuned(horizon=horizon, drift=drift, dim=dim).length)

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane, which is 1."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane, which is infinite."""
        return np.full(lanes, math.inf)

    def periods(self, lanes: int) -> Array:
        """Return the number of decisions between two restarts of each lane."""
        expected = "that is whole, at least 1"
        return check_per_lane("restart_every", self.every, lanes, expected, lambda n: (n >= 1) & (n == np.floor(n)))

    def memory(self, lanes: int) -> Array:
        """Return the number of decisions between two restarts of each lane."""
        return self.periods(lanes)


Forgetting = Discount | Window | Restart | Never
