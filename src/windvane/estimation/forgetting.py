"""Forgetting rules: the weight of an observation as a function of the age of its decision, in rounds.

A rule holds one number for all lanes, or one number per lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import LARGEST, SMALLEST, Array, check_per_lane, check_real_array
from windvane.documentation import documented
from windvane.theory import discount, window_length


def tune_per_lane(rule: Callable[[float], float], name: str, amount: ArrayLike) -> float | Array:
    """Apply ``rule`` to an amount of drift, or to one amount per lane."""
    array = check_real_array(name, amount, "a number at least 0, or one per lane")
    amounts = check_per_lane(name, amount, array.size, "at least 0", lambda b: b >= 0).tolist()
    values = {b: rule(b) for b in set(amounts)}
    return values[amounts[0]] if array.ndim == 0 else np.array([values[b] for b in amounts])


class Forgetting:
    """The base class of forgetting rules. A rule that overrides no method forgets nothing."""

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane; 1 without a discount."""
        return np.ones(lanes)

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane; infinite without a window."""
        return np.full(lanes, math.inf)

    def memory(self, lanes: int) -> Array:
        """Return how many past rounds effectively count in each lane."""
        return self.windows(lanes)


@documented
@dataclass(frozen=True)
class Discount(Forgetting):
    """Exponential weights: an observation of age a has weight gamma^a.

    >>> Discount(0.99).memory(1)
    array([100.])
    >>> Discount.tuned(horizon=3000, drift=2.0, dim=2)
    Discount(gamma=0.9951...)
    """

    gamma: ArrayLike

    @classmethod
    @documented
    def tuned(cls, *, horizon: int, drift: ArrayLike, dim: int, arm_geometry: str = "orthogonal") -> Discount:
        """Return the rule with the discount that theory recommends (:func:`windvane.theory.discount`)."""
        rule = partial(discount, horizon=horizon, dim=dim, arm_geometry=arm_geometry)
        return cls(tune_per_lane(lambda B: rule(drift=B), "drift", drift))

    def gammas(self, lanes: int) -> Array:
        """Return the discount of each lane."""
        return check_per_lane("gamma", self.gamma, lanes, "in (0, 1]", lambda g: (g > 0) & (g <= 1))

    def memory(self, lanes: int) -> Array:
        """Return 1 / (1 - gamma) of each lane."""
        gammas = self.gammas(lanes)
        return np.where(gammas < 1.0, 1.0 / np.maximum(1.0 - gammas, 1e-300), math.inf)


@documented
@dataclass(frozen=True)
class Window(Forgetting):
    """Equal weights for the last ``length`` rounds: weight 1 for an age below ``length``, otherwise 0.

    Parameters
    ----------
    length
        Number of rounds, above 0: one number, or one per lane.

    >>> Window.tuned(horizon=3000, drift=2.0, dim=2)
    Window(length=208.0)
    """

    length: ArrayLike

    @classmethod
    @documented
    def tuned(cls, *, horizon: int, drift: ArrayLike | None, dim: int, arm_geometry: str = "orthogonal") -> Window:
        """Return the rule with the window that theory recommends (:func:`windvane.theory.window_length`).

        Parameters
        ----------
        drift
            Total drift B_T: one number, or one per lane. None, for an unknown drift, counts as 1.
        """
        rule = partial(window_length, horizon=horizon, dim=dim, arm_geometry=arm_geometry)
        return cls(tune_per_lane(lambda B: float(rule(drift=B)), "drift", 1.0 if drift is None else drift))

    def windows(self, lanes: int) -> Array:
        """Return the window of each lane."""
        expected = "above 0 (within [1e-100, 1e100])"
        return check_per_lane("window", self.length, lanes, expected, lambda w: (w >= SMALLEST) & (w <= LARGEST))


@documented
@dataclass(frozen=True)
class Never(Forgetting):
    """No forgetting: every observation has weight 1.

    >>> Never().memory(1)
    array([inf])
    """


NEVER = Never()


@documented
@dataclass(frozen=True)
class Restart(Forgetting):
    """Weight 1 since the last restart, otherwise 0. The policy restarts after every ``every`` decisions.

    Parameters
    ----------
    every
        Number of decisions, a whole number of at least 1: one number, or one per lane.

    >>> Restart.tuned(horizon=3000, drift=2.0, dim=2)
    Restart(every=208.0)
    """

    every: ArrayLike

    @classmethod
    @documented
    def tuned(cls, *, horizon: int, drift: ArrayLike, dim: int) -> Restart:
        """Return the rule whose period is the window that :func:`windvane.theory.window_length` recommends."""
        return cls(Window.tuned(horizon=horizon, drift=drift, dim=dim).length)

    def memory(self, lanes: int) -> Array:
        """Return the number of decisions between two restarts of each lane."""
        expected = "that is whole, at least 1"
        return check_per_lane("restart_every", self.every, lanes, expected, lambda n: (n >= 1) & (n == np.floor(n)))
