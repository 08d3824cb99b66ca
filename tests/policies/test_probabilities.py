"""``probabilities(arms)``: exact where ties are the only chance, and what ``select`` does over many seeds elsewhere."""

import copy
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import windvane as wv
from support.cases import OverDLinUCB
from support.policies import master_lane, scores
from support.refusals import refuses
from support.worlds import LaneWorld, World, ball, play, same_state

ARMS = np.array([[[0.6, 0.3], [0.1, -0.9], [0.6, 0.3], [-0.5, 0.5], [0.2, 0.7]]])


@pytest.mark.parametrize(
    "cls", [wv.OFUL, wv.GLMUCB, wv.BVDGLMUCB, wv.DLinUCB, wv.Greedy, wv.UniformRandom], ids=lambda cls: cls.name
)
def test_the_best_valid_arms_share_alike(cls) -> None:
    """The arms whose score is the best, up to the ties' tolerance, have 1/n each; the others, and absent ones, 0."""
    policy = cls(2, lanes=3, **({"gamma": 0.95} if hasattr(cls, "gamma") else {}))
    play(policy, World(3, 2), 12)
    arms = np.repeat(ARMS, 3, axis=0)
    valid = np.array([[True] * 5, [False, True, True, True, True], [False, True, False, False, True]])
    p = policy.probabilities(arms, valid)
    policy.select(arms, valid)
    present = np.where(valid, scores(policy), -np.inf)
    is_best = present >= present.max(axis=1, keepdims=True) - 1e-12
    np.testing.assert_array_equal(p, is_best / is_best.sum(axis=1, keepdims=True))
    assert p[0, 0] == p[0, 2]  # equal arms


def train(policy: Any, lanes: int = 1) -> Any:
    """Teach every lane the same 30 rewards."""
    rng = np.random.default_rng(9)
    for _ in range(30):
        x = ball(rng, (1,), 2)
        policy.select(np.repeat(x[None], lanes, axis=0))
        policy.update(np.repeat(x, lanes, axis=0), float(rng.random() < 0.5 + 0.4 * x[0, 0]))
    return policy


RANDOMISED: dict[Any, dict[str, Any]] = {
    wv.DRandLinUCB: {"gamma": 0.95},
    wv.DLinTS: {"gamma": 0.95},
    wv.DGLMTS: {"gamma": 0.95},
    wv.LinTS: {"horizon": 50, "posterior_scale": 0.2},
    wv.GLMTS: {"inflation": "none"},
    wv.GLOCTS: {"posterior_scale": 0.05},
}


@pytest.mark.parametrize("cls", [*RANDOMISED, wv.UniformRandom], ids=lambda cls: cls.name)
@pytest.mark.parametrize("absent", [[], [1, 4]], ids=["all arms", "some arms"])
def test_randomised_policies_choose_as_often_as_they_say(cls, absent: list[int]) -> None:
    """Over 4000 seeds, which are as many lanes: lanes draw by (seed, lane id) and know the same here."""
    n, draws = 4000, 20_000
    settings = RANDOMISED.get(cls, {})
    valid = np.ones((1, 5), dtype=bool)
    valid[:, absent] = False
    one = train(cls(2, **settings))
    p = one.probabilities(ARMS, valid, **({"draws": draws} if settings else {}))[0]
    many = train(cls(2, lanes=n, seed=1, **settings), n)
    chosen = many.select(np.repeat(ARMS, n, axis=0), np.repeat(valid, n, axis=0))
    error = np.sqrt(p * (1 - p) * (1 / n + 1 / draws))
    assert (np.abs(np.bincount(chosen, minlength=5) / n - p) <= 5 * error + 1e-3).all()
    assert np.count_nonzero(p > 0.02) >= 2, p  # else nothing is tested
    assert not p[absent].any()


def test_thompson_sampling_between_an_arm_and_its_opposite() -> None:
    policy = wv.DGLMTS(1, gamma=0.97, seed=4)
    for t in range(40):
        policy.select([[[0.5]]])
        policy.update([[0.5]], float(t % 3 > 0))
    theta_hat = policy.info().theta_hat
    wanted = stats.norm.cdf(theta_hat[0, 0] * math.sqrt(policy.estimator.moments(theta_hat)[1][0, 0, 0]))
    p = policy.probabilities([[[0.5], [-0.5]]], draws=20_000)[0]
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p[0] == pytest.approx(wanted, abs=4 * math.sqrt(wanted * (1 - wanted) / 20_000))


@pytest.mark.parametrize("cls", RANDOMISED, ids=lambda cls: cls.name)
def test_draws(cls) -> None:
    """Equal arms share exactly, however few draws; lanes together and alone are the same; 0 draws are refused."""
    arms, valid = np.zeros((2, 3, 2)), np.array([[True, True, False]] * 2)
    arms[:, 2] = np.nan
    two, one = train(cls(2, lanes=2, **RANDOMISED[cls]), 2), train(cls(2, **RANDOMISED[cls]))
    np.testing.assert_array_equal(two.probabilities(arms, valid, draws=7), [[0.5, 0.5, 0.0]] * 2)
    twice = np.repeat(ARMS, 2, axis=0)
    np.testing.assert_array_equal(two.probabilities(twice, draws=50)[:1], one.probabilities(ARMS, draws=50))
    with refuses("draws", value=0):
        two.probabilities(arms, valid, draws=0)


def reseed(policy: Any, seed: int) -> Any:
    """A copy whose coins and ties are those of another seed."""
    twin = copy.deepcopy(policy)
    inner = [lane for each in getattr(twin, "policies", ()) for lane in (each, *each.copies.values())]
    for each in (twin, *inner, *([twin.worker] if hasattr(twin, "worker") else [])):
        each.key = np.uint64(seed)
    if hasattr(twin, "exp3"):
        twin.exp3.seed = seed
    return twin


MASTERS = {
    "MASTER-OFUL": (wv.MasterOFUL, {"horizon": 500, "first_order": 5, "bonus_scale": 0.01}),
    "MASTER-GLM-UCB": (wv.MasterGLMUCB, {"horizon": 500, "first_order": 5, "bonus_scale": 0.01}),
    "MASTER-Logistic-UCB-1": (
        wv.MasterLogisticUCB1,
        {"horizon": 500, "first_order": 5, "lam": 1.0, "bonus_scale": 0.01},
    ),
    "BOB": (wv.BOB, {"horizon": 200, "block": 6, "bonus_scale": 0.1}),
    "BOB-BVD-GLM-UCB": (wv.BOBBVDGLMUCB, {"horizon": 200, "block": 6, "bonus_scale": 0.1}),
    "over D-LinUCB": (OverDLinUCB, {"horizon": 200, "block": 6, "bonus_scale": 0.1}),
}


@pytest.mark.parametrize(("cls", "settings"), MASTERS.values(), ids=MASTERS)
def test_masters_choose_as_often_as_they_say(cls, settings) -> None:
    """Over 300 seeds of the coming round, before copies start and where a block begins; nothing changes by asking."""
    n, world = 300, LaneWorld([0], 2)
    policy, mixed = cls(2, **settings), 0
    for t in range(14):
        play(policy, world, range(t, t + 1))
        before = policy.state()
        p = policy.probabilities(ARMS)[0]
        assert same_state(policy.state(), before)
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        if t in (5, 8, 9, 11, 13):  # blocks of BOB begin after 5 and 11
            counts = np.bincount([reseed(policy, s).select(ARMS)[0] for s in range(n)], minlength=5)
            assert (np.abs(counts / n - p) <= 5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()
            mixed += int((~np.isin(p, [0.0, 0.5, 1.0])).any())  # 1/2: the two equal arms tie
    if cls in (wv.MasterOFUL, wv.MasterGLMUCB, wv.MasterLogisticUCB1):
        assert mixed >= 1
        assert master_lane(policy).copies


@pytest.mark.parametrize("cls", [wv.DLinTS, wv.DGLMTS])
def test_many_equal_arms_share_in_many_dimensions(cls) -> None:
    """Products of equal rows can differ in the last bit, which must not break the tie."""
    arms = np.repeat(np.random.default_rng(0).normal(size=(1, 1, 33)) / 33, 9, axis=1)
    np.testing.assert_allclose(cls(33, gamma=0.99).probabilities(arms, draws=50), 1 / 9, rtol=1e-12)
