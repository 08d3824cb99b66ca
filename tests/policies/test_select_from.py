"""Policies over a ball or a sphere of arms. Those of the linear relatives are compared in ``test_linear_policies``."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import naive
from support.cases import GLM_SETTINGS
from support.infinite_arms import HIGHEST, NEUTRAL, SETS, Index, assert_best, rotation
from support.policies import Skeleton, decision
from support.refusals import refuses_unchanged
from support.worlds import SIGMA, ball, teach, train
from windvane import BVDGLMUCB, DGLMTS, GLMUCB, OFUL, AdaptiveGLMUCB, Ball, DLinUCB, Policy, Sphere
from windvane.environments import BallArms, Environment, Static

SCALES = [1.0, 0.0, 1e-4, 0.1, 1e3, 1e6]
LANES = 18  # every state below with three of the scales
FACTORIES: dict[str, Any] = {
    **{link: partial(BVDGLMUCB, link=link, gamma=0.9, sigma=SIGMA[link]) for link in SIGMA},
    "D-LinUCB": partial(DLinUCB, gamma=0.9),
    "OFUL": OFUL,
    "GLM-UCB": GLMUCB,
    "skeleton": partial(Skeleton, gamma=0.9),
}
POLICIES = ["logistic", "poisson", "probit", "identity", "D-LinUCB", "OFUL", "GLM-UCB", "skeleton"]
by_name = pytest.mark.parametrize("name", POLICIES)


def into_states(policy: Policy, rng: np.random.Generator) -> None:
    """Put each lane into a state of its own: empty, tiny theta, at the border, ill-conditioned, symmetric, generic."""
    lanes, d, link = policy.lane_count, policy.dim, policy.reward_link.name
    kind = np.arange(lanes) % 6
    tiny, border, narrow, even = (kind == k for k in (1, 2, 3, 4))
    axis = policy.L * np.stack([rotation(rng, d) for _ in range(lanes)])  # rows: an orthogonal basis for each lane
    for k in range(30):
        x = ball(rng, (lanes,), d, policy.L)
        reward, weight = NEUTRAL[link] + rng.uniform(-0.4, 0.4, lanes), np.ones(lanes)
        reward[tiny] = NEUTRAL[link] + 1e-9
        x[border], reward[border] = axis[border, 0], HIGHEST[link]
        x[narrow], weight[narrow] = axis[narrow, k % d], 10.0 ** (-6 + 12 * (k % d) / max(d - 1, 1))
        x[even] = axis[even, k % d]
        policy.update(x, reward, round=0.0, weight=weight, mask=kind != 0)
    policy.advance(0.5)


def build(name: str, d: int, lanes: int | list[int] = LANES, **kw) -> Policy:
    count = lanes if isinstance(lanes, int) else len(lanes)
    scale = [SCALES[(i + i // 6) % 6] for i in range(count)]
    return FACTORIES[name](d, **{"bonus_scale": scale, "lam": 0.1, "lanes": lanes} | kw)


def index_of(policy: Policy, lane: int, V: np.ndarray, V_tilde: np.ndarray) -> Index:
    chosen, link = decision(policy), policy.reward_link.name
    inverse = np.linalg.inv(V[lane])
    theta, factor = chosen.theta_tilde[lane], policy.bonus_scales[lane] * chosen.beta[lane]
    if policy.name == "D-LinUCB":
        return Index(link, theta, inverse @ V_tilde[lane] @ inverse, factor)
    if policy.name in ("BVD-GLM-UCB", "GLM-UCB"):
        factor *= 2 * naive.constants(naive.LINKS[link], policy.S, policy.L)[2]
    return Index(link, theta, inverse, factor)


@by_name
@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_the_arm_played_is_the_best(name: str, d: int) -> None:
    """In any state, for any size of bonus: within 1e-6 of the best score over the set, and never outside it."""
    rng = np.random.default_rng([d, POLICIES.index(name)])
    policy = build(name, d, L=1.5)
    into_states(policy, rng)
    before = policy.info()
    arm_set = SETS[(d + POLICIES.index(name)) % 2](1.5 if d % 2 else 0.7)
    played = policy.select_from(arm_set)
    assert played.shape == (LANES, d)
    assert policy.t == before.t + 1
    assert policy.info().decisions == 1
    for lane in range(LANES) if d < 10 else range(0, LANES, 2):
        assert_best(index_of(policy, lane, before.metric, before.squared_metric), played[lane], arm_set, rng)
    if name in ("logistic", "poisson", "probit"):  # the states are what they are meant to be
        lengths = np.linalg.norm(decision(policy).theta_tilde, axis=1)
        assert (lengths[::6] == 0).all()
        assert ((lengths[1::6] > 0) & (lengths[1::6] < 1e-6)).all()
        np.testing.assert_allclose(lengths[2::6], 1.0, rtol=1e-6)
        if d > 1:
            assert (np.linalg.cond(before.metric[3::6]) > 1e5).all()


@by_name
@pytest.mark.parametrize("cls", SETS)
def test_a_whole_run_over_an_infinite_set(name: str, cls) -> None:
    """Arms of the sphere of radius L are taken back by update, to rounding; the round and the score are right."""
    rng, policy = np.random.default_rng(0), build(name, 3, lanes=2, L=2.0, bonus_scale=0.3)
    for t in range(1, 9):
        before = policy.info()
        x = policy.select_from(cls(2.0))
        assert policy.t == t + 1
        for lane in range(2):
            assert_best(index_of(policy, lane, before.metric, before.squared_metric), x[lane], cls(2.0), rng)
        policy.update(x, (rng.random(2) < 0.5).astype(float))


OPTIMISTIC = [cls for cls in GLM_SETTINGS if cls not in (DGLMTS, AdaptiveGLMUCB)]


@pytest.mark.parametrize("arm_set", [Ball(0.8), Sphere(1.0)])
@pytest.mark.parametrize("cls", OPTIMISTIC, ids=lambda cls: cls.name)
def test_the_relatives(cls, arm_set) -> None:
    rng, policy = np.random.default_rng(5), cls(dim=3, lanes=2, bonus_scale=0.2, **GLM_SETTINGS[cls])
    teach([policy], rng, 20, 3.0)
    before = policy.info()
    played, chosen = policy.select_from(arm_set), decision(policy)
    np.testing.assert_array_equal(chosen.theta_tilde, before.theta_tilde)
    for lane in range(2):
        factor = policy.bonus_factors[lane] * chosen.beta[lane]
        index = Index("logistic", chosen.theta_tilde[lane], np.linalg.inv(before.metric[lane]), factor)
        assert_best(index, played[lane], arm_set, rng, tolerance=5e-8)


def test_adaptive_glm_ucb_in_a_ball() -> None:
    """The best arm by the index before mu."""
    policy = train(AdaptiveGLMUCB(2, lanes=2), Environment(Static(), BallArms(), horizon=40, lanes=2))
    info, rng = policy.info(), np.random.default_rng(0)
    inverse, x = np.linalg.inv(info.metric), policy.select_from(Ball(1.0))
    for lane in range(2):
        index = Index("identity", info.theta_hat[lane], inverse[lane], 1.0)
        assert_best(index, x[lane], Ball(1.0), rng, tolerance=5e-10)


@by_name
@pytest.mark.parametrize("d", [1, 3])
def test_the_seed_decides_between_mirror_images(name: str, d: int) -> None:
    """With nothing known x and -x are equal: both are played, about equally often, and the seed settles it."""
    policies = (build(name, d, lanes=200, bonus_scale=1.0, seed=seed) for seed in (3, 3, 4))
    x, same, different = (policy.select_from(Sphere(1.0)) for policy in policies)
    assert (x == same).all()
    assert (x != different).any()
    side = np.sign(x[:, np.argmax(np.abs(x[0]))])
    assert abs(side.sum()) < 6 * np.sqrt(200)  # six standard deviations


@by_name
def test_what_is_not_a_set_within_reach_is_refused(name: str) -> None:
    policy = build(name, 2, lanes=2, L=0.5)
    policy.update(np.full((2, 2), 0.3), 1.0, round=0.0)
    beyond = Ball(0.6), Sphere(0.6), Ball(0.5 * (1 + 1e-6))
    for arm_set in (*beyond, 0.5, None, "ball", np.zeros((1, 1, 2)), Ball, (Ball(0.5),)):
        refuses_unchanged(policy, "arm_set", partial(policy.select_from, arm_set))
    policy.select_from(Sphere(0.5 * (1 + 1e-12)))
    assert policy.t == 2.0
