"""Policies by the name their paper gives them."""

from __future__ import annotations

from windvane.policies.base import Policy
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.d_lin_ucb import DLinUCB
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.oful import OFUL

POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (OFUL, DLinUCB, GLMUCB, BVDGLMUCB)}


def get_policy(name: str) -> type[Policy]:
    """The policy class registered under ``name``."""
    if name not in POLICIES:
        raise ValueError(f"name={name!r}: must be one of {', '.join(POLICIES)}")
    return POLICIES[name]
