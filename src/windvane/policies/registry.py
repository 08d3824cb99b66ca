"""Policies by the name their paper gives them."""

from __future__ import annotations

from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.bob import BOB
from windvane.policies.bob_bvd_glm_ucb import BOBBVDGLMUCB
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.d_glm_ts import DGLMTS
from windvane.policies.d_glucb import DGLUCB, SWGLUCB
from windvane.policies.d_lin_ts import DLinTS
from windvane.policies.d_lin_ucb import DLinUCB
from windvane.policies.d_rand_lin_ucb import DRandLinUCB
from windvane.policies.detection import DetectGLMUCB
from windvane.policies.glm_ucb import GLMUCB
from windvane.policies.glm_weight_ucb import GLBWeightUCB, SCBWeightUCB
from windvane.policies.lb_weight_ucb import LBWeightUCB
from windvane.policies.master import MasterGLMUCB, MasterOFUL
from windvane.policies.oful import OFUL
from windvane.policies.one_pass_glm import OnePassGLM
from windvane.policies.references import Greedy, Oracle, UniformRandom
from windvane.policies.restart_glb import RestartGLB
from windvane.policies.restart_ucb import RestartUCB
from windvane.policies.sc_glucb import SCDGLUCB, SCSWGLUCB
from windvane.policies.sw_bvd_glm_ucb import SWBVDGLMUCB
from windvane.policies.sw_lin_ucb import SWLinUCB

_REGISTERED: tuple[type[Policy], ...] = (
    OFUL,
    DLinUCB,
    GLMUCB,
    BVDGLMUCB,
    UniformRandom,
    Oracle,
    Greedy,
    SWLinUCB,
    RestartUCB,
    LBWeightUCB,
    DLinTS,
    DRandLinUCB,
    BOBBVDGLMUCB,
    BOB,
    MasterOFUL,
    MasterGLMUCB,
    DetectGLMUCB,
    SWBVDGLMUCB,
    DGLUCB,
    SWGLUCB,
    RestartGLB,
    GLBWeightUCB,
    SCBWeightUCB,
    SCDGLUCB,
    SCSWGLUCB,
    DGLMTS,
    OnePassGLM,
    AdaptiveGLMUCB,
)
POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in _REGISTERED}


def get_policy(name: str) -> type[Policy]:
    """The policy class registered under ``name``."""
    if name not in POLICIES:
        raise ValueError(f"name={name!r}: must be one of {', '.join(POLICIES)}")
    return POLICIES[name]
