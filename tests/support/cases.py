"""The policies of the registry and the settings to test them with."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np
import pytest

from support.access import Skeleton
from support.cases import FORGETTING
from support.worlds import BENT
from windvane import (
    BOB,
    BOBBVDGLMUCB,
    BVDGLMUCB,
    DGLMTS,
    DGLUCB,
    GLMUCB,
    OFUL,
    SCDGLUCB,
    SCSWGLUCB,
    SWBVDGLMUCB,
    SWGLUCB,
    BanditOverBandits,
    DetectGLMUCB,
    DLinUCB,
    GLBWeightUCB,
    Greedy,
    MasterGLMUCB,
    MasterOFUL,
    OnePassGLMUCB,
    Oracle,
    PerLane,
    Policy,
    RestartGLB,
    RestartUCB,
    SCBWeightUCB,
    SWLinUCB,
    UniformRandom,
    checks,
)

# One plain way to build each, for the tests that every policy must pass.
PLAIN = {
    "BVD-GLM-UCB": (BVDGLMUCB, {"gamma": 0.95}),
    "GLM-UCB": (GLMUCB, {}),
    "D-LinUCB": (DLinUCB, {"gamma": 0.95}),
    "OFUL": (OFUL, {}),
    "skeleton": (Skeleton, {"gamma": 0.95}),
}
every_policy = pytest.mark.parametrize(("cls", "settings"), PLAIN.values(), ids=PLAIN)


def id_list(lanes: int | list[int]) -> list[int]:
    return list(range(lanes)) if isinstance(lanes, int) else list(lanes)


def by_lane(cls: type[Policy], **tables: list[float]):
    """A factory whose array settings are a function of the lane id, so that lanes can be compared alone."""

    def build(*, lanes: int | list[int], **kw) -> Policy:
        arrays = {name: [table[i % len(table)] for i in id_list(lanes)] for name, table in tables.items()}
        return cls(lanes=lanes, **arrays, **kw)

    return build


FACTORIES = {
    "bvd": lambda **kw: BVDGLMUCB(gamma=0.95, **kw),
    "bvd gamma 1": lambda **kw: BVDGLMUCB(gamma=1.0, **kw),
    "bvd poisson": lambda **kw: BVDGLMUCB(link="poisson", gamma=0.9, sigma=5.0, S=0.5, L=2.0, **kw),
    "bvd probit": lambda **kw: BVDGLMUCB(link="probit", gamma=0.9, lam=0.1, **kw),
    "bvd identity": lambda **kw: BVDGLMUCB(link="identity", gamma=0.98, L=0.5, **kw),
    "bvd custom": lambda **kw: BVDGLMUCB(link=BENT, gamma=0.95, **kw),
    "bvd tight ball": lambda **kw: BVDGLMUCB(gamma=0.99, S=0.05, lam=0.01, delta=1.0, **kw),
    "bvd from drift": lambda **kw: BVDGLMUCB(horizon=500, drift=2.0, discount="general", confidence="horizon", **kw),
    "bvd gamma lanes": by_lane(BVDGLMUCB, gamma=[0.8, 0.95, 1.0]),
    "bvd all lanes": by_lane(BVDGLMUCB, gamma=[0.9, 1.0], delta=[0.01, 0.5, 1.0], bonus_scale=[0.0, 0.3, 1.0]),
    "glm": GLMUCB,
    "glm probit anytime": lambda **kw: GLMUCB(link="probit", confidence="anytime", S=0.3, **kw),
    "glm custom": lambda **kw: GLMUCB(link=BENT, **kw),
    "glm lanes": by_lane(GLMUCB, delta=[0.01, 1.0], bonus_scale=[0.1, 0.5, 1.0]),
    "dlin": lambda **kw: DLinUCB(gamma=0.95, **kw),
    "dlin gamma 1": lambda **kw: DLinUCB(gamma=1.0, L=3.0, confidence="anytime", **kw),
    "dlin lanes": by_lane(DLinUCB, gamma=[0.5, 0.9, 1.0], delta=[0.1, 0.2], bonus_scale=[1.0, 2.0]),
    "oful": OFUL,
    "oful scaled": lambda **kw: OFUL(S=2.0, L=0.3, lam=0.1, sigma=0.1, **kw),
    "oful lanes": by_lane(OFUL, delta=[0.1, 1.0], bonus_scale=[0.5, 1.0, 2.0]),
    "skeleton": lambda **kw: Skeleton(gamma=0.95, **kw),
    "skeleton poisson gamma 1": lambda **kw: Skeleton(link="poisson", gamma=1.0, sigma=2.0, **kw),
}
PLAIN: dict[type[Policy], dict[str, Any]] = {
    SWBVDGLMUCB: {"window": 15.0},
    DGLUCB: {"gamma": 0.95},
    SWGLUCB: {"window": 15.0},
    RestartGLB: {"restart_every": 15},
    GLBWeightUCB: {"gamma": 0.95},
    SCBWeightUCB: {"gamma": 0.95, "lam": 0.5},
    SCDGLUCB: {"gamma": 0.95, "horizon": 100},
    SCSWGLUCB: {"window": 15.0, "horizon": 100},
    DGLMTS: {"gamma": 0.95},
    OnePassGLMUCB: {"gamma": 0.95},
}
LINK_SETTINGS: list[dict[str, Any]] = [
    {},
    {"link": "poisson", "sigma": 2.0, "S": 0.5, "L": 1.5},
    {"link": "probit", "S": 0.2},
    {"link": "identity"},
]


def first_feature(t: float, arms: np.ndarray) -> np.ndarray:
    return arms[..., 0]


EVERY: dict[str, tuple[Any, dict[str, bool]]] = {
    **{kind.name: (partial(kind, **tuned), {}) for kind, tuned in FORGETTING.items()},  # type: ignore[arg-type]
    "SW-LinUCB short": (partial(SWLinUCB, window=3), {}),
    "RestartUCB short": (partial(RestartUCB, restart_every=2), {}),
    "UniformRandom": (UniformRandom, {"learns": False}),
    "Oracle": (partial(Oracle, truth=first_feature), {"learns": False}),
    "Greedy": (partial(Greedy, gamma=0.9), {}),
    "Greedy linear": (partial(Greedy, link="identity", gamma=0.9), {}),
}


def over_d_lin_ucb(**kw) -> Policy:
    """A master over a policy that no paper puts it over."""
    return BanditOverBandits(functools.partial(DLinUCB, sigma=0.4), horizon=500, block=90, grid=[0.9, 0.99, 1.0], **kw)


def bvd_per_lane(**kw) -> Policy:
    return PerLane(functools.partial(BVDGLMUCB, gamma=0.95), **kw)


# Blocks longer than a check, so that no reward comes after its block ...
FACTORIES = {
    "BOB-BVD-GLM-UCB": functools.partial(BOBBVDGLMUCB, horizon=1000),
    "BOB-BVD-GLM-UCB poisson": functools.partial(
        BOBBVDGLMUCB, link="poisson", horizon=1000, sigma=5.0, S=0.5, L=2.0, bonus_scale=0.1
    ),
    "BOB": functools.partial(BOB, horizon=5000),
    "over D-LinUCB": over_d_lin_ucb,
    "MASTER-OFUL": functools.partial(MasterOFUL, horizon=1000),
    "MASTER-GLM-UCB": functools.partial(MasterGLMUCB, horizon=1000, first_order=3),
    "DetectGLMUCB": functools.partial(DetectGLMUCB, horizon=1000),
    "per lane": bvd_per_lane,
}
# ... and short ones, for all checks but that of late rewards; and MASTER with tests that fail all the time.
SHORT = {
    "BOB-BVD-GLM-UCB": functools.partial(BOBBVDGLMUCB, horizon=65, block=9),
    "BOB": functools.partial(BOB, horizon=65, block=9),
    "MASTER-OFUL": functools.partial(MasterOFUL, horizon=100, test_scale=1e-5, bonus_scale=0.05),
}
# A reward that comes after its block is not learnt; and how many rewards are in decides when MASTER's tests fail.
LEFT_OUT = {"MASTER-OFUL": {checks.check_late_rewards, checks.check_weights_and_masks}}
ACROSS = [
    (n, check) for n in SHORT for check in checks.CHECKS if check not in LEFT_OUT.get(n, {checks.check_late_rewards})
]
