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
    "Policy": "windvane.policies.base",
    "POLICIES": "windvane.policies.registry",
    "get_policy": "windvane.policies.registry",
    "Ball": "windvane.arms",
    "Sphere": "windvane.arms",
    "DiscountedEstimator": "windvane.estimation",
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
    "Environment": "windvane.environments",
    "check_policy": "windvane.checks",
    "set_threads": "windvane.kernels.threads",
    "warm_up": "windvane.warmup",
    "get_threads": "windvane.kernels.threads",
}

__all__ = [
    "BVDGLMUCB",
    "GLMUCB",
    "OFUL",
    "POLICIES",
    "Ball",
    "CustomLink",
    "DLinUCB",
    "DiscountedEstimator",
    "Environment",
    "Identity",
    "Link",
    "Logistic",
    "Poisson",
    "Policy",
    "Probit",
    "Projection",
    "Sphere",
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
    from windvane.arms import Ball, Sphere
    from windvane.checks import check_policy
    from windvane.environments import Environment
    from windvane.estimation import DiscountedEstimator
    from windvane.kernels.threads import get_threads, set_threads
    from windvane.links import CustomLink, Identity, Link, Logistic, Poisson, Probit, get_link
    from windvane.policies.base import Policy
    from windvane.policies.bvd_glm_ucb import BVDGLMUCB
    from windvane.policies.d_lin_ucb import DLinUCB
    from windvane.policies.glm_ucb import GLMUCB
    from windvane.policies.oful import OFUL
    from windvane.policies.registry import POLICIES, get_policy
    from windvane.projection import Projection, p0, p2
    from windvane.warmup import warm_up


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'windvane' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
