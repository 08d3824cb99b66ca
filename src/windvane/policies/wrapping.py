"""Helpers for policies that contain other policies."""

from __future__ import annotations

import math
from typing import TypeVar

from windvane.arguments import check_positive
from windvane.links import Link
from windvane.policies.base import Policy

P = TypeVar("P", bound=Policy)


def choose_reward_range(link: Link, sigma: float, given: float | None) -> float:
    """Return the width of the range of rewards, by which masters scale them to [0, 1].

    It is the given value, or 2 sigma. With the identity link sigma describes only the noise, so the default is at least
    1.
    """
    if given is not None:
        return check_positive("reward_range", given)
    return max(1.0, 2.0 * sigma) if math.isinf(link.reward_range(sigma)[1]) else 2.0 * sigma


def join_clock(worker: P, master: Policy) -> P:
    """Set the clock of a new ``worker`` to that of ``master``, so that both use the same rounds and random numbers."""
    worker.t, worker.decisions, worker.last_round = master.t, master.decisions, master.last_round
    worker.born.fill(master.t)
    worker.has_restarted = master.t > 1.0
    return worker
