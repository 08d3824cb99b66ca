"""The cases of the conformance loop: every registered policy, in settings that reach every branch of the contract."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import windvane as wv
from support.policies import Skeleton
from support.worlds import BENT
from windvane import checks

Factory = Callable[..., wv.Policy]


@dataclass(frozen=True)
class Case:
    """How to build a policy, and checks that do, or do not, hold in this setting although they do not in others."""

    factory: Factory  # factory(dim=, lanes=, seed=)
    without: tuple[Callable[[Factory], None], ...] = ()
    besides: tuple[Callable[[Factory], None], ...] = ()


def by_lane(cls: Factory, **tables: list[float]) -> Factory:
    """A factory whose array settings are a function of the lane id, so that lanes can be compared alone."""

    def build(*, lanes: int | list[int], **kw: Any) -> wv.Policy:
        ids = range(lanes) if isinstance(lanes, int) else lanes
        arrays = {name: [table[i % len(table)] for i in ids] for name, table in tables.items()}
        return cls(lanes=lanes, **arrays, **kw)

    return build


# One plain way to build each of the paper's policies, and the template of CONTRIBUTING.md.
PLAIN: dict[str, tuple[Any, dict[str, Any]]] = {
    "BVD-GLM-UCB": (wv.BVDGLMUCB, {"gamma": 0.95}),
    "GLM-UCB": (wv.GLMUCB, {}),
    "D-LinUCB": (wv.DLinUCB, {"gamma": 0.95}),
    "OFUL": (wv.OFUL, {}),
    "skeleton": (Skeleton, {"gamma": 0.95}),
}
every_policy = pytest.mark.parametrize(("cls", "settings"), PLAIN.values(), ids=PLAIN)

POISSON: dict[str, Any] = {"link": "poisson", "sigma": 5.0, "S": 0.5, "L": 2.0}
CONTRACT: dict[str, Factory] = {
    "bvd": partial(wv.BVDGLMUCB, gamma=0.95),
    "bvd gamma 1": partial(wv.BVDGLMUCB, gamma=1.0),
    "bvd poisson": partial(wv.BVDGLMUCB, **POISSON, gamma=0.9),
    "bvd probit": partial(wv.BVDGLMUCB, link="probit", gamma=0.9, lam=0.1),
    "bvd identity": partial(wv.BVDGLMUCB, link="identity", gamma=0.98, L=0.5),
    "bvd custom": partial(wv.BVDGLMUCB, link=BENT, gamma=0.95),
    "bvd tight ball": partial(wv.BVDGLMUCB, gamma=0.99, S=0.05, lam=0.01, delta=1.0),
    "bvd from drift": partial(wv.BVDGLMUCB, horizon=500, drift=2.0, arm_geometry="general", confidence="horizon"),
    "bvd gamma lanes": by_lane(wv.BVDGLMUCB, gamma=[0.8, 0.95, 1.0]),
    "bvd all lanes": by_lane(wv.BVDGLMUCB, gamma=[0.9, 1.0], delta=[0.01, 0.5, 1.0], bonus_scale=[0.0, 0.3, 1.0]),
    "glm": wv.GLMUCB,
    "glm probit anytime": partial(wv.GLMUCB, link="probit", confidence="anytime", S=0.3),
    "glm custom": partial(wv.GLMUCB, link=BENT),
    "glm lanes": by_lane(wv.GLMUCB, delta=[0.01, 1.0], bonus_scale=[0.1, 0.5, 1.0]),
    "dlin": partial(wv.DLinUCB, gamma=0.95),
    "BOF-UCB": partial(wv.BOFUCB, gamma=0.95),
    "BOF-UCB lanes": by_lane(partial(wv.BOFUCB, S=2.0, L=1.5, lam=0.3, confidence="anytime"), gamma=[0.9, 1.0]),
    "dlin gamma 1": partial(wv.DLinUCB, gamma=1.0, L=3.0, confidence="anytime"),
    "dlin lanes": by_lane(wv.DLinUCB, gamma=[0.5, 0.9, 1.0], delta=[0.1, 0.2], bonus_scale=[1.0, 2.0]),
    "oful": wv.OFUL,
    "oful scaled": partial(wv.OFUL, S=2.0, L=0.3, lam=0.1, sigma=0.1),
    "oful lanes": by_lane(wv.OFUL, delta=[0.1, 1.0], bonus_scale=[0.5, 1.0, 2.0]),
    "logistic ucb 1": partial(wv.LogisticUCB1, horizon=100),
    "logistic ucb 1 tight ball": partial(wv.LogisticUCB1, lam=0.1, S=0.05, is_sharp=True, bonus_scale=0.1),
    "logistic ucb 1 lanes": by_lane(
        partial(wv.LogisticUCB1, lam=1.0, L=2.0), delta=[0.01, 1.0], bonus_scale=[0.1, 1.0]
    ),
    "ucb-glm past phase 1": partial(wv.UCBGLM, horizon=100, longest_phase=0, bonus_scale=0.3),
    "ucb-glm custom": partial(wv.UCBGLM, link=BENT, horizon=100, longest_phase=0, lam=0.1),
    "ofuglb-e": wv.OFUGLBe,
    "ofuglb-e counts": partial(wv.OFUGLBe, **POISSON, bonus_scale=0.3),
    "ofuglb-e linear": partial(wv.OFUGLBe, link="identity", lam=0.1, lipschitz="data"),
    "skeleton": partial(Skeleton, gamma=0.95),
    "skeleton poisson gamma 1": partial(Skeleton, link="poisson", gamma=1.0, sigma=2.0),
}

# The relatives: the generalized-linear ones are run with every link.
GLM_SETTINGS: dict[Any, dict[str, Any]] = {
    wv.SWBVDGLMUCB: {"window": 15.0},
    wv.DGLUCB: {"gamma": 0.95},
    wv.SWGLUCB: {"window": 15.0},
    wv.RestartGLB: {"restart_every": 15},
    wv.GLBWeightUCB: {"gamma": 0.95},
    wv.SCBWeightUCB: {"gamma": 0.95, "lam": 0.5},
    wv.SCDGLUCB: {"gamma": 0.95, "horizon": 100},
    wv.SCSWGLUCB: {"window": 15.0, "horizon": 100},
    wv.DGLMTS: {"gamma": 0.95},
    wv.OnePassGLM: {"gamma": 0.95},
    wv.AdaptiveGLMUCB: {},
}
LINK_SETTINGS: dict[str, dict[str, Any]] = {
    "logistic": {},
    "poisson": {"link": "poisson", "sigma": 2.0, "S": 0.5, "L": 1.5},
    "probit": {"link": "probit", "S": 0.2},
    "identity": {"link": "identity"},
}
LINEAR_SETTINGS: dict[Any, dict[str, Any]] = {
    wv.SWLinUCB: {"window": 40},
    wv.RestartUCB: {"restart_every": 30},
    wv.LBWeightUCB: {"gamma": 0.95},
    wv.DLinTS: {"gamma": 0.97},
    wv.DRandLinUCB: {"gamma": 0.9},
}


class OverDLinUCB(wv.BanditOverBandits):
    """A bandit over bandits of one's own, as a user would write it."""

    grid_values: tuple[float, ...] = (0.9, 0.99)
    sigma: float = 0.5
    bonus_scale: float = 1.0

    def choose_block(self) -> int:
        return 10

    def choose_grid(self) -> tuple[float, ...]:
        return self.grid_values

    def build_worker(self, values: np.ndarray) -> wv.DLinUCB:
        shared = {"L": self.L, "sigma": self.sigma, "bonus_scale": self.bonus_scale}
        return wv.DLinUCB(self.dim, gamma=values, lanes=self.lanes, seed=self.seed, **shared)


class OnePolicyPerLane(wv.PerLane):
    """BVD-GLM-UCB, or D-LinUCB, with one object per lane."""

    gamma: Any = 0.9
    sigma: float = 0.5
    delta: Any = 0.05
    base: str = "BVD-GLM-UCB"

    def build_lane(self, place: int) -> wv.Policy:
        picked = {name: self.pick(name, place) for name in ("gamma", "delta")}
        own = {"sigma": self.sigma, "L": self.L, "lanes": [int(self.lane_ids[place])], "seed": self.seed}
        return wv.get_policy(self.base)(self.dim, **picked, **own)


# Blocks longer than a check, so that no reward comes after its block ...
MASTERS: dict[str, Factory] = {
    "BOB-BVD-GLM-UCB": partial(wv.BOBBVDGLMUCB, horizon=1000),
    "BOB-BVD-GLM-UCB poisson": partial(wv.BOBBVDGLMUCB, **POISSON, horizon=1000, bonus_scale=0.1),
    "BOB": partial(wv.BOB, horizon=5000),
    "over D-LinUCB": partial(OverDLinUCB, horizon=500, block=90, grid_values=(0.9, 0.99, 1.0), sigma=0.4),
    "MASTER-OFUL": partial(wv.MasterOFUL, horizon=1000),
    "MASTER-GLM-UCB": partial(wv.MasterGLMUCB, horizon=1000, first_order=3),
    "MASTER-Logistic-UCB-1": partial(wv.MasterLogisticUCB1, horizon=1000, first_order=2, bonus_scale=0.1),
    "DetectGLMUCB": partial(wv.DetectGLMUCB, horizon=1000),
    "dLinUCB": wv.DynamicLinUCB,
    "DetectOFUL": partial(wv.DetectOFUL, run_length=1e12),
    "DetectLogisticUCB1": partial(wv.DetectLogisticUCB1, horizon=1000),
    "per lane": partial(OnePolicyPerLane, gamma=0.95),
}
# ... and short ones, where a late reward is not learnt; and MASTER and detection with tests that fail all the time.
SHORT_BLOCKS: dict[str, Factory] = {
    "BOB-BVD-GLM-UCB, short": partial(wv.BOBBVDGLMUCB, horizon=65, block=9),
    "BOB, short": partial(wv.BOB, horizon=65, block=9),
    "MASTER-OFUL, short": partial(wv.MasterOFUL, horizon=100, test_scale=1e-5, bonus_scale=0.05),
    "DetectOFUL, short": partial(wv.DetectOFUL, run_length=1.5),
}


def first_feature(t: float, arms: np.ndarray) -> np.ndarray:
    return arms[..., 0]


def _glm_case(cls: Any, link: str) -> Case:
    settings = GLM_SETTINGS[cls] | LINK_SETTINGS[link]
    if cls is wv.AdaptiveGLMUCB and link == "identity":
        settings["sigma"] = 0.3  # its scale of the loss is sigma^2
    # AdaptiveGLMUCB weighs its memories by losses: even with the identity link the order of rewards matters.
    return Case(
        partial(cls, **settings), besides=LATE_OR_WEIGHTED if (cls, link) == (wv.OnePassGLM, "identity") else ()
    )


# Arms without features. A reward of Rexp3 or EXP3.S that is late has another effect: the draws until then differ.
INDEXED: dict[str, Case] = {
    "D-UCB": Case(partial(wv.DUCB, gamma=0.97)),
    "D-UCB gamma 1": Case(partial(wv.DUCB, gamma=1.0, xi=2.0)),
    "D-UCB lanes": Case(by_lane(wv.DUCB, gamma=[0.6, 0.9, 1.0])),
    "D-UCB tuned by lane": Case(by_lane(partial(wv.DUCB, horizon=60), switches=[0.0, 9.0, 2.0])),
    "SW-UCB": Case(partial(wv.SWUCB, window=15)),
    "SW-UCB tuned by lane": Case(by_lane(partial(wv.SWUCB, horizon=60), switches=[0.0, 2.0, 1.0])),
    # Arms that have left the window tie.
    "SW-UCB short": Case(partial(wv.SWUCB, window=3.5)),
    "Rexp3": Case(partial(wv.Rexp3, restart_every=100, sigma=1.0), without=(checks.check_late_rewards,)),
    "Rexp3 short": Case(partial(wv.Rexp3, restart_every=7, rate=0.5), without=(checks.check_late_rewards,)),
    "Rexp3 tuned by lane": Case(
        by_lane(partial(wv.Rexp3, horizon=60), drift=[0.0, 9.0, 0.1]), without=(checks.check_late_rewards,)
    ),
    "EXP3.S": Case(partial(wv.EXP3S, horizon=200), without=(checks.check_late_rewards,)),
    "EXP3.S tuned by lane": Case(
        by_lane(partial(wv.EXP3S, horizon=60, log_length=9), switches=[0.0, 9.0]), without=(checks.check_late_rewards,)
    ),
}

# Policies that choose from finite sets only. At a scale of 1 their sets are the ball, and rewards do not matter.
SETS: dict[str, Factory] = {
    "OFULog-r": partial(wv.OFULogR, bonus_scale=0.05),
    "OFULog-r proved": partial(wv.OFULogR, horizon=100, is_proved=True, bonus_scale=0.1),
    "OFULog-r tight ball": partial(wv.OFULogR, S=0.05, lam=0.01, bonus_scale=1e-6),
    "OFULog-r lanes": by_lane(partial(wv.OFULogR, L=2.0), delta=[0.01, 1.0], bonus_scale=[0.0, 0.1, 0.3]),
    "OFUGLB": partial(wv.OFUGLB, bonus_scale=0.2),
    "OFUGLB data": partial(wv.OFUGLB, bonus_scale=0.2, lipschitz="data"),
    "OFUGLB counts": partial(wv.OFUGLB, **POISSON, bonus_scale=0.1),
    "OFUGLB linear": partial(wv.OFUGLB, link="identity", sigma=0.3, L=0.5, bonus_scale=0.3),
    "OFUGLB lanes": by_lane(wv.OFUGLB, delta=[0.01, 1.0], bonus_scale=[0.0, 0.1, 0.3]),
}
# Online and sampling policies that never forget. What an online estimate learns depends on the order of rewards, and a
# chain on when they arrive.
PRINTED: dict[str, Case] = {
    **{f"GLOC {link}": Case(partial(wv.GLOC, **settings)) for link, settings in LINK_SETTINGS.items()},
    "GLOC custom": Case(partial(wv.GLOC, link=BENT)),
    "GLOC lanes": Case(by_lane(partial(wv.GLOC, S=2.0), delta=[0.01, 1.0], bonus_scale=[0.001, 0.1, 1.0])),
    "GLOC-TS": Case(wv.GLOCTS),
    "GLOC-TS lanes": Case(by_lane(partial(wv.GLOCTS, L=2.0), delta=[0.1, 0.5], posterior_scale=[0.1, 1.0])),
    "ECOLogUCB": Case(wv.ECOLogUCB),
    "ECOLogUCB lanes": Case(by_lane(wv.ECOLogUCB, delta=[0.01, 1.0], bonus_scale=[0.0, 0.1, 1.0])),
    "ECOLogUCB wide": Case(partial(wv.ECOLogUCB, S=4.0, L=2.0, lam=0.1)),
    "ada-OFU-ECOLog": Case(wv.AdaOFUECOLog),
    "ada-OFU-ECOLog proved": Case(partial(wv.AdaOFUECOLog, S=0.5, L=2.0, radius_form="proved")),
    "ada-OFU-ECOLog rejecting": Case(partial(wv.AdaOFUECOLog, S=6.0)),
    "LinTS": Case(partial(wv.LinTS, horizon=100)),
    "LinTS lanes": Case(by_lane(partial(wv.LinTS, horizon=100, lam=0.3), posterior_scale=[0.1, 1.0])),
    "LinTS without inflation": Case(partial(wv.LinTS, inflation="none", L=2.0)),
    **{f"GLM-TS {k}": Case(partial(wv.GLMTS, horizon=100, **LINK_SETTINGS[k])) for k in LINK_SETTINGS},
    "GLM-TS without inflation": Case(partial(wv.GLMTS, inflation="none")),
    "PG-TS": Case(partial(wv.PGTS, sweeps=3)),
    "PG-TS wide": Case(partial(wv.PGTS, sweeps=1, lam=0.01, L=3.0)),
}

LATE, LATE_OR_WEIGHTED = (checks.check_late_rewards,), (checks.check_late_rewards, checks.check_weights_and_masks)
CASES: dict[str, Case] = {
    **{name: Case(factory) for name, factory in (CONTRACT | MASTERS | SETS).items()},
    "UCB-GLM": Case(partial(wv.UCBGLM, horizon=100)),
    "UCB-GLM counts": Case(partial(wv.UCBGLM, **POISSON, horizon=100, least_eigenvalue=3.0)),
    **{f"{cls.name} {link}": _glm_case(cls, link) for cls in GLM_SETTINGS for link in LINK_SETTINGS},
    **{cls.name: Case(partial(cls, **settings)) for cls, settings in LINEAR_SETTINGS.items()},
    **{
        f"{cls.name} tuned by lane": Case(by_lane(partial(cls, horizon=60), drift=[0.1, 9.0, 2.0]))
        for cls in LINEAR_SETTINGS
    },
    **INDEXED,
    **PRINTED,
    "SW-LinUCB short": Case(partial(wv.SWLinUCB, window=3)),
    "RestartUCB short": Case(partial(wv.RestartUCB, restart_every=2)),
    "UniformRandom": Case(wv.UniformRandom),
    "Oracle": Case(partial(wv.Oracle, truth=first_feature)),
    "Greedy": Case(partial(wv.Greedy, gamma=0.9)),
    "Greedy linear": Case(partial(wv.Greedy, link="identity", gamma=0.9)),
    # How many rewards are in decides when the tests of MASTER fail.
    **{name: Case(build, without=LATE if "BOB" in name else LATE_OR_WEIGHTED) for name, build in SHORT_BLOCKS.items()},
}
