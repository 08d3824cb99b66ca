"""Policies that are made of other policies, and have no estimator of their own."""

from __future__ import annotations

from typing import Any

from windvane._validation import Array
from windvane.policies.base import Policy


def _reader(name: str) -> Any:
    return property(lambda self: self._read(name), doc=f"``{name}`` of whichever policies act now.")


class Wrapping(Policy):
    """What can be read of the policies within, and the time outside them. A subclass says how it reads: ``_read``."""

    theta_hat, theta_tilde = _reader("theta_hat"), _reader("theta_tilde")
    V, V_tilde, b, gamma = _reader("V"), _reader("V_tilde"), _reader("b"), _reader("gamma")

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
