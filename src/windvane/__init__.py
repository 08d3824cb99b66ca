"""windvane: contextual bandits with generalized-linear rewards whose world drifts.

>>> import numpy as np, windvane
>>> policy = windvane.BVDGLMUCB(dim=2, gamma=0.99)
>>> arms = np.array([[[1.0, 0.0], [0.0, 1.0]]])          # [lanes, arms, features]
>>> choice = policy.select(arms)
>>> policy.update(arms[[0], choice], reward=[1.0])

Names below are imported on first use, so that ``import windvane`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "BVDGLMUCB": "windvane.policies.bvd_glm_ucb",
    "GLMUCB": "windvane.policies.glm_ucb",
    "DLinUCB": "windvane.policies.d_lin_ucb",
    "OFUL": "windvane.policies.oful",
    "UniformRandom": "windvane.policies.references",
    "Oracle": "windvane.policies.references",
    "Greedy": "windvane.policies.references",
    "SWLinUCB": "windvane.policies.sw_lin_ucb",
    "RestartUCB": "windvane.policies.restart_ucb",
    "LBWeightUCB": "windvane.policies.lb_weight_ucb",
    "DLinTS": "windvane.policies.d_lin_ts",
    "DRandLinUCB": "windvane.policies.d_rand_lin_ucb",
    "BOB": "windvane.policies.bob",
    "BOBBVDGLMUCB": "windvane.policies.bob_bvd_glm_ucb",
    "BanditOverBandits": "windvane.policies.bandit_over_bandits",
    "DetectGLMUCB": "windvane.policies.detection",
    "MasterOFUL": "windvane.policies.master",
    "MasterGLMUCB": "windvane.policies.master",
    "PerLane": "windvane.policies.per_lane",
    "EXP3": "windvane.policies.exp3",
    "SWBVDGLMUCB": "windvane.policies.sw_bvd_glm_ucb",
    "DGLUCB": "windvane.policies.d_glucb",
    "SWGLUCB": "windvane.policies.d_glucb",
    "RestartGLB": "windvane.policies.restart_glb",
    "GLBWeightUCB": "windvane.policies.glm_weight_ucb",
    "SCBWeightUCB": "windvane.policies.glm_weight_ucb",
    "SCDGLUCB": "windvane.policies.sc_glucb",
    "SCSWGLUCB": "windvane.policies.sc_glucb",
    "DGLMTS": "windvane.policies.d_glm_ts",
    "OnePassGLM": "windvane.policies.one_pass_glm",
    "AdaptiveGLMUCB": "windvane.policies.adaptive_glm_ucb",
    "Policy": "windvane.policies.base",
    "POLICIES": "windvane.policies.registry",
    "get_policy": "windvane.policies.registry",
    "Ball": "windvane.arms",
    "Sphere": "windvane.arms",
    "Discount": "windvane.estimation",
    "Never": "windvane.estimation",
    "Restart": "windvane.estimation",
    "Window": "windvane.estimation",
    "MaximumLikelihoodEstimator": "windvane.estimation",
    "OnePassEstimator": "windvane.estimation",
    "RidgeEstimator": "windvane.estimation",
    "Projection": "windvane.projection",
    "p0": "windvane.projection",
    "p2": "windvane.projection",
    "Link": "windvane.links",
    "Identity": "windvane.links",
    "Logistic": "windvane.links",
    "Poisson": "windvane.links",
    "Probit": "windvane.links",
    "CustomLink": "windvane.links",
    "get_link": "windvane.links",
    "Agent": "windvane.agent",
    "BatchError": "windvane.client",
    "Client": "windvane.client",
    "ClientError": "windvane.client",
    "ConflictingRewardError": "windvane.agent",
    "Decision": "windvane.agent",
    "DecisionError": "windvane.agent",
    "ExpiredDecisionError": "windvane.agent",
    "Explanation": "windvane.agent",
    "Features": "windvane.agent",
    "UnknownDecisionError": "windvane.agent",
    "Environment": "windvane.environments",
    "check_policy": "windvane.checks",
    "set_threads": "windvane.kernels.threads",
    "warm_up": "windvane.warmup",
    "get_threads": "windvane.kernels.threads",
}

__all__ = [
    "BOB",
    "BOBBVDGLMUCB",
    "BVDGLMUCB",
    "DGLMTS",
    "DGLUCB",
    "EXP3",
    "GLMUCB",
    "OFUL",
    "POLICIES",
    "SCDGLUCB",
    "SCSWGLUCB",
    "SWBVDGLMUCB",
    "SWGLUCB",
    "AdaptiveGLMUCB",
    "Agent",
    "Ball",
    "BanditOverBandits",
    "BatchError",
    "Client",
    "ClientError",
    "ConflictingRewardError",
    "CustomLink",
    "DLinTS",
    "DLinUCB",
    "DRandLinUCB",
    "Decision",
    "DecisionError",
    "DetectGLMUCB",
    "Environment",
    "ExpiredDecisionError",
    "Explanation",
    "Features",
    "GLBWeightUCB",
    "Greedy",
    "Identity",
    "LBWeightUCB",
    "Link",
    "Logistic",
    "MasterGLMUCB",
    "MasterOFUL",
    "OnePassGLM",
    "Oracle",
    "PerLane",
    "Poisson",
    "Policy",
    "Probit",
    "Projection",
    "RestartGLB",
    "RestartUCB",
    "SCBWeightUCB",
    "SWLinUCB",
    "Sphere",
    "UniformRandom",
    "UnknownDecisionError",
    "__version__",
    "check_policy",
    "get_link",
    "get_policy",
    "get_threads",
    "p0",
    "p2",
    "set_threads",
    "warm_up",
]

if TYPE_CHECKING:
    from windvane.agent import (
        Agent,
        ConflictingRewardError,
        Decision,
        DecisionError,
        ExpiredDecisionError,
        Explanation,
        Features,
        UnknownDecisionError,
    )
    from windvane.arms import Ball, Sphere
    from windvane.checks import check_policy
    from windvane.client import BatchError, Client, ClientError
    from windvane.environments import Environment
    from windvane.estimation import (
        Discount,
        MaximumLikelihoodEstimator,
        Never,
        OnePassEstimator,
        Restart,
        RidgeEstimator,
        Window,
    )
    from windvane.kernels.threads import get_threads, set_threads
    from windvane.links import CustomLink, Identity, Link, Logistic, Poisson, Probit, get_link
    from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
    from windvane.policies.bandit_over_bandits import BanditOverBandits
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
    from windvane.policies.exp3 import EXP3
    from windvane.policies.glm_ucb import GLMUCB
    from windvane.policies.glm_weight_ucb import GLBWeightUCB, SCBWeightUCB
    from windvane.policies.lb_weight_ucb import LBWeightUCB
    from windvane.policies.master import MasterGLMUCB, MasterOFUL
    from windvane.policies.oful import OFUL
    from windvane.policies.one_pass_glm import OnePassGLM
    from windvane.policies.per_lane import PerLane
    from windvane.policies.references import Greedy, Oracle, UniformRandom
    from windvane.policies.registry import POLICIES, get_policy
    from windvane.policies.restart_glb import RestartGLB
    from windvane.policies.restart_ucb import RestartUCB
    from windvane.policies.sc_glucb import SCDGLUCB, SCSWGLUCB
    from windvane.policies.sw_bvd_glm_ucb import SWBVDGLMUCB
    from windvane.policies.sw_lin_ucb import SWLinUCB
    from windvane.projection import Projection, p0, p2
    from windvane.warmup import warm_up


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windvane' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
