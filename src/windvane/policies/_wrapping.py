"""Policies that are made of other policies, and have no estimator of their own."""

from __future__ import annotations

import math
from typing import Any

from windvane.arguments import Array, check_positive
from windvane.links import Link
from windvane.policies.base import Policy


def reward_width(link: Link, sigma: float, told: float | None) -> float:
    """How wide the range of rewards is, by which masters bring them to [0, 1]: as ``told``, else 2 sigma.

    Where any reward goes (identity), sigma is the noise alone, and the means are supposed to need 1 at least.
    """
    if told is not None:
        return check_positive("reward_range", told)
    return max(1.0, 2.0 * sigma) if math.isinf(link.reward_range(sigma)[1]) else 2.0 * sigma


def _reader(name: str) -> Any:
    return property(lambda self: self._read(name), doc=f"``{name}`` of whichever policies act now.")


class Wrapping(Policy):
    """What can be read of the policies within, and the time outside them. A subclass says how it reads: ``_read``."""

    theta_hat, theta_tilde = _reader("theta_hat"), _reader("theta_tilde")
    V, V_tilde, b, gamma = _reader("V"), _reader("V_tilde"), _reader("b"), _reader("gamma")

    @property
    def S(self) -> float:
        return float(self._within().S)

    def _within(self) -> Policy:
        """One of the policies within: they all have the same world."""
        raise NotImplementedError

    def _read(self, name: str) -> Array:
        raise NotImplementedError

    def _end_round(self) -> None:
        self._last_rounds.fill(self.t)
        self._decisions += 1
        self.t += 1.0

    def _start(self, worker: Policy) -> Policy:
        """Put a fresh ``worker`` on this policy's clock: rounds and random numbers are then the same for both."""
        worker.t, worker._decisions = self.t, self._decisions
        worker._born.fill(self.t)
        worker._last_rounds[:] = self._last_rounds[: worker.lanes]
        return worker
