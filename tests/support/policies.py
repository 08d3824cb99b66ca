"""The one place where tests of policies read what is not part of the public contract.

Everything else is read through ``policy.info()``. Arrays have a leading axis of lanes.
"""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
from policy_skeleton import Skeleton

from windvane.policies.base import FORMAT

__all__ = ["FORMAT", "Skeleton"]

ESTIMATES = ("theta_hat", "theta_tilde", "metric", "squared_metric", "b")


def decision(policy: Any) -> Any:
    """How the last decision was made; reading it costs no computation."""
    return policy.info(estimates=False).decision


def scores(policy: Any) -> np.ndarray:
    return decision(policy).scores


def known(record: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if value is not None}


def radius(policy: Any) -> np.ndarray:
    """The confidence radius of the coming decision: a copy makes the estimate."""
    twin = copy.deepcopy(policy)
    twin.estimate()
    return twin.decision.beta


def same_estimates(policy: Any, other: Any) -> bool:
    one, two = policy.info(), other.info()
    return all(np.array_equal(getattr(one, name), getattr(two, name)) for name in ESTIMATES)


# --- parts of policies ------------------------------------------------------------------------------------------------


def forget_observations(policy: Any) -> None:
    """Drop the remembered observations and keep V and b, as a policy with an incomplete state would."""
    record = policy.estimator.record
    record["end"] = record["start"]


def master_lane(policy: Any, lane: int = 0) -> SimpleNamespace:
    kept = policy.policies[lane]
    acting = kept.acting
    chosen = acting.decision
    return SimpleNamespace(
        copies=kept.copies,  # the copies of the base policy that are alive, by order
        starts=kept.starts,  # the decision with which the copy of each order began; -1 without one
        sums=kept.sums,  # of w (f - r) and of w, in the open block
        value=kept.log[(kept.decisions - 1) % len(kept.log), 3],  # f of the last decision, in units of the range
        acting_rewards=kept.rewards[min(kept.copies, default=0)],  # sum of w r during the life of the acting copy
        index=None if chosen is None or chosen.scores is None else chosen.scores.max(),  # in the units of rewards
        multiplier=None if chosen is None else chosen.multiplier,  # of ||x||, in the last decision
        base_bonus=acting.choose_multiplier(),  # factor of ||x|| in the bonus, where bonus_scale is 1
        base_radius=radius(acting)[0],
        rho=kept.rho,
        rho_hat=kept.rho_hat,
    )
