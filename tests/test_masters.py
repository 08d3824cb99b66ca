"""Masters over policies (BOB, MASTER), the per-lane adapter, and the policy that detects changes."""

from __future__ import annotations

import functools
import math
import pickle

import numpy as np
import pytest

import naive
from windvane import (
    BOB,
    BOBBVDGLMUCB,
    BVDGLMUCB,
    OFUL,
    BanditOverBandits,
    DetectGLMUCB,
    DLinUCB,
    MasterGLMUCB,
    MasterOFUL,
    PerLane,
    Policy,
    Sphere,
    checks,
    get_policy,
    kernels,
    theory,
)
from windvane.links import Identity
from windvane.policies.detection import SHIFTS, accumulated
from worlds import ball

K = kernels.load(Identity())


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
EVERY = FACTORIES | {f"{name}, short": factory for name, factory in SHORT.items()}
every = pytest.mark.parametrize("factory", EVERY.values(), ids=EVERY)


@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
def test_conformance(factory, check) -> None:
    check(factory)


# A reward that comes after its block is not learnt; and how many rewards are in decides when MASTER's tests fail.
LEFT_OUT = {"MASTER-OFUL": {checks.check_late_rewards, checks.check_weights_and_masks}}
ACROSS = [
    (n, check) for n in SHORT for check in checks.CHECKS if check not in LEFT_OUT.get(n, {checks.check_late_rewards})
]


@pytest.mark.parametrize(("name", "check"), ACROSS, ids=[f"{n}-{check.__name__[6:]}" for n, check in ACROSS])
def test_conformance_across_blocks(name: str, check) -> None:
    check(SHORT[name])


def test_registry() -> None:
    for cls in (BOB, BOBBVDGLMUCB, MasterOFUL, MasterGLMUCB, DetectGLMUCB):
        assert get_policy(cls.name) is cls
        assert all(cls.card)


class World:
    """Arms in the ball and clicks, a function of (lane id, round)."""

    def __init__(self, ids: list[int], dim: int, arms: int = 5) -> None:
        self.ids, self.dim, self.K = ids, dim, arms

    def arms(self, t: int) -> np.ndarray:
        return np.stack([ball(np.random.default_rng([7, lane, t]), (self.K,), self.dim) for lane in self.ids])

    def rewards(self, x: np.ndarray, t: int) -> np.ndarray:
        theta = np.zeros(self.dim)
        theta[:2] = np.cos(t / 40), np.sin(t / 40)
        coins = np.array([np.random.default_rng([8, lane, t]).random() for lane in self.ids])
        return (coins < 1 / (1 + np.exp(-4 * x @ theta))).astype(float)


def play(policy: Policy, world: World, rounds: range) -> np.ndarray:
    choices = []
    for t in rounds:
        arms = world.arms(t)
        index = policy.select(arms)
        x = arms[np.arange(len(index)), index]
        policy.update(x, world.rewards(x, t))
        choices.append(index)
    return np.array(choices)


def same_state(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(one[n], other[n], equal_nan=one[n].dtype.kind == "f") for n in one
    )


@every
def test_a_pickled_policy_goes_on_alike(factory) -> None:
    world = World([0, 1], 3)
    policy = factory(dim=3, lanes=2, seed=2)
    play(policy, world, range(27))
    again = pickle.loads(pickle.dumps(policy))
    assert np.array_equal(play(policy, world, range(27, 70)), play(again, world, range(27, 70)))
    assert same_state(policy.state(), again.state())


@every
@pytest.mark.parametrize("saved_after", [0, 8, 9, 26, 27])
def test_a_loaded_policy_goes_on_alike(factory, saved_after: int) -> None:
    """Also where a block has just ended, and with time that is not whole."""
    world = World([4, 1], 3)
    policy, again = (factory(dim=3, lanes=[4, 1], seed=2) for _ in range(2))
    play(policy, world, range(saved_after))
    policy.advance(0.7)
    again.load_state(policy.state())
    assert same_state(policy.state(), again.state())
    assert np.array_equal(play(policy, world, range(27, 60)), play(again, world, range(27, 60)))
    assert same_state(policy.state(), again.state())
    with pytest.raises(ValueError, match="other settings"):
        factory(dim=3, lanes=[4, 1], seed=3).load_state(policy.state())
    with pytest.raises(ValueError, match="dict of arrays"):
        policy.load_state([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown entries"):
        policy.load_state(policy.state() | {"surplus": np.zeros(1)})


@every
def test_arms_from_a_sphere(factory) -> None:
    """Lanes together equal lanes alone there too."""
    policies = [factory(dim=3, lanes=lanes, seed=1) for lanes in ([5, 2], [5], [2])]
    for t in range(25):
        both, first, second = (policy.select_from(Sphere(0.5 * policy.L)) for policy in policies)
        assert np.array_equal(both, np.concatenate([first, second]))
        assert np.linalg.norm(both, axis=1) == pytest.approx(0.5 * policies[0].L)
        for policy, x in zip(policies, (both, first, second), strict=True):
            policy.update(x, (x[:, 0] + 0.1 * np.sin(t) > 0).astype(float))


@every
def test_restart_forgets(factory) -> None:
    world, policy = World([0, 1], 3), factory(dim=3, lanes=2)
    play(policy, world, range(20))
    policy.restart()
    assert not np.asarray(policy.b).any()
    assert not np.asarray(policy.theta_hat).any()
    play(policy, world, range(20, 40))


# --- BOB --------------------------------------------------------------------------------------------------------------


class LiteralBOB:
    """Algorithm 2 (appendix) of Faury et al. 2021, line by line, one lane. Draws are given."""

    def __init__(self, dim: int, T: int, S: float, sigma: float, coins) -> None:
        self.T, self.sigma, self.coins = T, sigma, coins
        self.H = min(T, math.floor(dim * math.sqrt(T)))
        self.N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
        mus = [0.5 * 2 ** (i - 1) / (dim ** (2 / 3) * T * (2 * S) ** (2 / 3)) for i in range(1, self.N + 1)]
        self.grid = [max(0.5, 1 - mu) for mu in mus]
        blocks = math.ceil(T / self.H)
        self.alpha = min(1.0, math.sqrt(self.N * math.log(self.N) / ((math.e - 1) * blocks)))
        self.s = [1.0] * self.N
        self.make = lambda gamma: naive.NaiveBVDGLMUCB(dim, gamma=gamma, S=S, sigma=sigma, delta=1 / T)

    def p(self) -> list[float]:
        return [(1 - self.alpha) * s / sum(self.s) + self.alpha / self.N for s in self.s]

    def gain(self, rewards: list[float]) -> float:
        return sum(rewards) / (2 * self.sigma * self.H)

    def run(self, arms_of, reward_of) -> list[int]:
        choices = []
        self.laws, self.drawn = [], []
        for i in range(1, math.ceil(self.T / self.H) + 1):
            p = self.p()
            j = int(np.searchsorted(np.cumsum(p), self.coins(i - 1), side="right"))
            self.laws.append(p)
            self.drawn.append(self.grid[j])
            worker, rewards = self.make(self.grid[j]), []
            for t in range((i - 1) * self.H + 1, min(i * self.H, self.T) + 1):
                arms = arms_of(t)
                k = worker.select(arms)
                rewards.append(reward_of(arms[k], t))
                worker.update(arms[k], rewards[-1])
                choices.append(k)
            self.s[j] *= math.exp(self.alpha / (self.N * p[j]) * self.gain(rewards))
        return choices


class NaiveSWLinUCB:
    """Ridge on the last w rounds, radius R sqrt(d log((1 + w L^2/lam)/delta)) + sqrt(lam) S (Cheung et al. 2019)."""

    def __init__(self, dim: int, window: int, R: float, delta: float) -> None:
        self.dim, self.w, self.X, self.r = dim, window, [], []
        self.radius = R * math.sqrt(dim * math.log((1 + window) / delta)) + 1

    def select(self, arms: np.ndarray) -> int:
        X, r = np.array(self.X[-self.w :]).reshape(-1, self.dim), np.array(self.r[-self.w :])
        V = np.eye(self.dim) + X.T @ X
        theta = np.linalg.solve(V, X.T @ r)
        return int(np.argmax([x @ theta + self.radius * math.sqrt(x @ np.linalg.solve(V, x)) for x in arms]))

    def update(self, x: np.ndarray, r: float) -> None:
        self.X.append(x)
        self.r.append(r)


class LiteralCheungBOB(LiteralBOB):
    """Section 6 of Cheung et al. 2019, line by line, one lane."""

    def __init__(self, dim: int, T: int, R: float, coins) -> None:
        self.T, self.R, self.coins = T, R, coins
        self.H = math.floor(dim ** (2 / 3) * math.sqrt(T))
        delta = math.ceil(math.log(self.H))
        self.N = delta + 1
        self.grid = [math.floor(self.H ** (j / delta) + 1e-12) for j in range(self.N)]
        self.alpha = min(1.0, math.sqrt(self.N * math.log(self.N) / ((math.e - 1) * math.ceil(T / self.H))))
        self.s = [1.0] * self.N
        self.make = lambda w: NaiveSWLinUCB(dim, w, R, 1 / T)

    def gain(self, rewards: list[float]) -> float:
        return 0.5 + sum(rewards) / (2 * self.H + 4 * self.R * math.sqrt(self.H * math.log(self.T / math.sqrt(self.H))))


def literal_bvd(lane: int, sigma: float) -> LiteralBOB:
    return LiteralBOB(2, 300, 1.0, sigma, lambda turn: K.uniform(np.uint64(5), lane, turn, K.MASTER))


def literal_cheung(lane: int, sigma: float) -> LiteralBOB:
    return LiteralCheungBOB(2, 300, sigma, lambda turn: K.uniform(np.uint64(5), lane, turn, K.MASTER))


@pytest.mark.parametrize("sigma", [0.5, 0.8])
@pytest.mark.parametrize(
    ("cls", "literal"), [(BOBBVDGLMUCB, literal_bvd), (BOB, literal_cheung)], ids=["BOB-BVD-GLM-UCB", "BOB"]
)
def test_bob_is_the_papers_algorithm(cls, literal, sigma: float) -> None:
    """The same draws lead to the same discounts or windows, the same laws and the same choices in every round."""
    ids = [0, 3]
    world, policy = World(ids, 2), cls(2, horizon=300, sigma=sigma, lanes=ids, seed=5)
    choices = play(policy, world, range(1, 301))
    policy.select(world.arms(301))  # closes the last block
    info = policy.info()
    for place, lane in enumerate(ids):
        alone, paper = World([lane], 2), literal(lane, sigma)
        expected = paper.run(lambda t: alone.arms(t)[0], lambda x, t: float(alone.rewards(x[None], t)[0]))
        assert np.array_equal(choices[:, place], expected)
        n = len(paper.laws)
        assert np.array_equal(info["history_block"], np.arange(n + 1))
        assert np.allclose(info["history_probabilities"][:n, place], paper.laws, rtol=0, atol=1e-12)
        assert np.allclose(info["history_chosen"][:n, place], paper.drawn, rtol=0, atol=1e-15)
        assert np.allclose(info["probabilities"][place], paper.p(), rtol=0, atol=1e-12)  # a short block counts too
    assert len(set(info["history_chosen"].ravel())) > 3


def test_blocks_end_with_the_horizon_and_go_on_after_it() -> None:
    policy = BOBBVDGLMUCB(2, horizon=25, block=10)
    assert [policy.turn_of(n) for n in range(46)] == [0] * 10 + [1] * 10 + [2] * 5 + [3] * 10 + [4] * 10 + [5]
    play(policy, World([0], 2), range(46))
    assert policy.info()["block"] == 5


def test_the_range_of_rewards() -> None:
    """2 sigma where the link bounds rewards; with the identity link sigma is the noise alone, and 1 is the least."""
    grid = {"horizon": 100, "block": 10, "grid": [0.9, 0.99], "dim": 2}
    told = {
        (): BOBBVDGLMUCB(2, horizon=100, sigma=0.2).reward_range,
        (0.1,): BanditOverBandits(functools.partial(DLinUCB, sigma=0.1), **grid).reward_range,
        (3.0,): BanditOverBandits(functools.partial(DLinUCB, sigma=3.0), **grid).reward_range,
        (7.0,): BanditOverBandits(functools.partial(DLinUCB, sigma=3.0), reward_range=7.0, **grid).reward_range,
    }
    assert list(told.values()) == [0.4, 1.0, 6.0, 7.0]
    narrow = BanditOverBandits(functools.partial(DLinUCB, sigma=0.1), **grid)
    assert narrow.gain(np.array([5.0])) == 0.5  # ten rewards of mean 1/2
    with pytest.raises(ValueError, match=r"^reward_range"):
        BanditOverBandits(DLinUCB, reward_range=0.0, **grid)


def test_every_value_of_the_grid_is_checked_at_once() -> None:
    with pytest.raises(ValueError, match=r"^discounts: value 9 is refused: gamma=5.0"):
        BOBBVDGLMUCB(2, horizon=100, discounts=[0.9] * 9 + [5.0])
    with pytest.raises(ValueError, match=r"^windows: value 1 is refused: window=-5"):
        BOB(2, horizon=100, windows=[10, -5])
    with pytest.raises(ValueError, match=r"^factory: must make policies"):
        BanditOverBandits(functools.partial(PerLane, DLinUCB), dim=2, horizon=60, block=5, grid=[0.9])


def test_lanes_apart_share_their_world() -> None:
    with pytest.raises(ValueError, match=r"^L: must be the same in all lanes"):
        PerLane(functools.partial(DLinUCB, gamma=0.9), dim=2, lanes=2, L=[1.0, 0.1])


def test_masked_garbage_reaches_no_gain() -> None:
    policy = BOBBVDGLMUCB(2, horizon=100, lanes=2)
    policy.select(np.full((2, 1, 2), 0.5))
    policy.update(np.full((2, 2), 0.5), [1.0, np.inf], weight=[1.0, 0.0], mask=np.array([True, False]))
    assert policy._earned.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("cls", [MasterOFUL, MasterGLMUCB])
def test_master_with_extreme_levels(cls) -> None:
    with pytest.raises(ValueError, match=r"^delta=1.0: must be below 1 where horizon=1"):
        cls(2, horizon=1, delta=1.0)
    cls(2, horizon=100, delta=1e-320).select(np.full((1, 2, 2), 0.3))


def test_a_block_that_was_restarted_is_not_judged() -> None:
    """Its draw was made by weights that are forgotten."""
    world, policy = World([0, 1], 2), BOBBVDGLMUCB(2, horizon=400, block=10, lanes=2)
    play(policy, world, range(14))
    policy.restart([True, False])
    play(policy, world, range(14, 21))  # into the third block
    assert (policy.exp3.log_weights[0] == 0.0).all()
    assert (policy.exp3.log_weights[1] > 0.0).any()
    play(policy, world, range(21, 31))
    assert (policy.exp3.log_weights[0] > 0.0).any()


def test_masters_tell_the_bound_of_their_policies() -> None:
    for policy in (BOB(2, horizon=50, S=2.0), MasterOFUL(2, horizon=50, S=2.0), PerLane(BVDGLMUCB, dim=2, gamma=0.9)):
        assert (1.0 if isinstance(policy, PerLane) and not isinstance(policy, MasterOFUL) else 2.0) == policy.S


def test_a_block_of_bob_is_a_fresh_worker() -> None:
    """Between two draws the policy is the worker itself, bit for bit, but for the numbers that break ties."""
    world, policy = World([2], 3), BOBBVDGLMUCB(3, horizon=400, block=20, lanes=[2])
    play(policy, world, range(20))
    policy.select(world.arms(20))
    worker = BVDGLMUCB(3, gamma=policy.chosen, delta=1 / 400, lanes=[2])
    worker.select(world.arms(20))
    x = world.arms(20)[:, 0]
    for p in (policy, worker):
        p.update(x, [1.0])
    assert np.array_equal(play(policy, world, range(21, 40)), play(worker, world, range(21, 40)))
    for name in checks.READABLE:
        assert np.array_equal(getattr(policy, name), getattr(worker, name))
    assert policy.gamma == policy.chosen == policy.last["gamma"]


def test_late_rewards_are_recorded_and_not_learnt() -> None:
    world = World([0, 1], 2)
    told, silent = (BOBBVDGLMUCB(2, horizon=100, block=10, lanes=2) for _ in range(2))
    for policy in (told, silent):
        play(policy, world, range(9))
        policy.select(world.arms(9))  # round 10, whose reward is late
    x = world.arms(9)[:, 0]
    on_time = told.state()
    told.update(x, [1.0, 1.0], mask=[True, False])  # the block is still open
    assert told._earned[0] == on_time["earned"][0] + 1
    for policy in (told, silent):
        policy.load_state(on_time)
        policy.select(world.arms(10))
    told.update(x, [1.0, 0.5], round=10.0, weight=[2.0, 1.0])
    told.update(x, [1.0, 1.0], round=3.0, mask=[False, True])
    assert told.info()["late"].tolist() == [1, 2]
    assert told.info()["late_sum"].tolist() == [2.0, 1.5]
    assert same_state(
        {n: a for n, a in told.state().items() if n not in ("late", "late_sum", "checksum")},
        {n: a for n, a in silent.state().items() if n not in ("late", "late_sum", "checksum")},
    )


def test_the_history_stays_short() -> None:
    policy = BOB(1, horizon=1500, block=1, windows=[1.0, 2.0])
    arms = np.full((1, 2, 1), 0.5)
    for _ in range(1500):
        policy.select(arms)
    blocks = policy.info()["history_block"]
    assert len(blocks) <= 256
    assert blocks[0] == 0
    assert len(set(np.diff(blocks))) == 1  # evenly thinned
    assert blocks[-1] > 1400


def test_bob_learns_which_discount_is_right() -> None:
    """theta* turns its sign every 20 rounds: a worker that never forgets within a block of 40 earns less."""
    T, lanes = 8000, 10
    policy = BanditOverBandits(
        functools.partial(DLinUCB, bonus_scale=0.1), dim=2, horizon=T, block=40, grid=[0.5, 1.0], lanes=lanes
    )
    rng = np.random.default_rng(0)
    for t in range(T):
        arms = ball(rng, (lanes, 5), 2)
        x = arms[np.arange(lanes), policy.select(arms)]
        policy.update(x, 0.5 + 0.5 * x[:, 0] * (-1) ** (t // 20))
    assert policy.info()["probabilities"][:, 0].mean() > 0.6


def test_window_grid() -> None:
    assert theory.window_grid(300, 2)[0] == math.floor(2 ** (2 / 3) * math.sqrt(300))
    H, windows = theory.window_grid(64, 1)
    assert H == 8
    assert windows.tolist() == [1, 2, 4, 8]  # log 8 = 2.08: three steps
    assert theory.window_grid(2, 1)[1].tolist() == [1]
    assert theory.window_grid(9, 1)[1].tolist() == [1, 1, 3]
    assert theory.window_grid(3, 50)[0] == 3


# --- the per-lane adapter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
def test_per_lane_is_the_batched_policy_bit_for_bit(cls) -> None:
    """Choices, readings, late and masked rewards, weights, gaps in time."""
    ids, gammas = [3, 0, 8], [0.9, 0.95, 1.0]
    world = World(ids, 3)
    one = PerLane(functools.partial(cls, sigma=0.6), dim=3, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    other = cls(3, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    assert np.array_equal(play(one, world, range(40)), play(other, world, range(40)))
    for policy in (one, other):
        policy.advance(1.5)
        policy.update(
            world.arms(0)[:, 0], [1.0, 0.0, 0.5], round=[3, 4, 5], weight=[1, 2, 0.5], mask=[True, True, False]
        )
    assert np.array_equal(play(one, world, range(40, 60)), play(other, world, range(40, 60)))
    assert np.array_equal(one.select_from(Sphere(1.0)), other.select_from(Sphere(1.0)))
    for name in ("gamma", *checks.READABLE):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.last.keys() == other.last.keys()
    assert all(np.array_equal(one.last[name], other.last[name]) for name in one.last)
    alone, together = one.info(), other.info()
    assert all(np.array_equal(alone[name], together[name]) for name in together)


def test_a_bad_lane_leaves_the_others_alone() -> None:
    policy, world = bvd_per_lane(dim=3, lanes=2), World([0, 1], 3)
    play(policy, world, range(5))
    before = policy.state()
    with pytest.raises(ValueError, match="lane 1"):
        policy.update(np.zeros((2, 3)), [1.0, 5.0])
    arms = world.arms(9)
    arms[1, 2] = 7.0
    with pytest.raises(ValueError, match="lane 1, arm 2"):
        policy.select(arms)
    spoilt = before | {"lane1.estimator.b": before["lane1.estimator.b"] + 1.0}
    with pytest.raises(ValueError, match="checksum"):
        policy.load_state(spoilt)
    assert same_state(policy.state(), before)
    with pytest.raises(ValueError, match=r"^gamma has shape"):
        PerLane(BVDGLMUCB, dim=2, lanes=2, gamma=[0.9, 0.9, 0.9])


# --- MASTER -----------------------------------------------------------------------------------------------------------


def literal_schedule(seed: int, lane: int, first_order: int, rounds: int) -> list[tuple[int, int, list[int]]]:
    """Per round: the block's order, the order that acts, and all orders alive; no restarts."""
    rows, n, begin, alive = [], first_order, 0, {}
    for t in range(rounds):
        if t - begin == 2**n:
            n, begin, alive = n + 1, t, {}
        alive = {m: end for m, end in alive.items() if end > t}
        for m in range(n + 1):
            coin = K.uniform_pair(np.uint64(seed), lane, t, K.MASTER, m)[0]
            if (t - begin) % 2**m == 0 and coin < math.sqrt(2**m / 2**n):
                alive[m] = t + 2**m
        rows.append((n, min(alive), sorted(alive)))
    return rows


@pytest.mark.parametrize("first_order", [0, 4])
@pytest.mark.parametrize("cls", [MasterOFUL, MasterGLMUCB])
def test_master_schedule(cls, first_order: int) -> None:
    """Which copies live, and that the shortest acts, round by round."""
    ids = [0, 6]
    policy, world = cls(dim=2, horizon=500, first_order=first_order, lanes=ids, seed=9), World(ids, 2)
    schedules = [literal_schedule(9, lane, first_order, 150) for lane in ids]
    for t in range(150):
        play(policy, world, range(t, t + 1))
        info = policy.info()
        for place, rows in enumerate(schedules):
            order, acting, alive = rows[t]
            assert (info["block_order"][place], info["acting_order"][place]) == (order, acting)
            assert sorted(policy.policies[place]._copies) == alive
    assert not info["restarts"].any()


def test_copies_of_order_m_start_with_their_probability() -> None:
    """In a block of order 6, at every multiple of 2^m, with probability sqrt(2^m / 2^6)."""
    lanes, n = 200, 6
    policy = MasterOFUL(1, horizon=1000, first_order=n, lanes=lanes)
    started = np.zeros(n + 1)
    for t in range(2**n):
        policy.select(np.full((lanes, 1, 1), 0.5))
        started += sum((lane._starts[: n + 1] == t).astype(float) for lane in policy.policies)
    for m in range(n + 1):
        trials, p = lanes * 2 ** (n - m), math.sqrt(2.0 ** (m - n))
        assert abs(started[m] - trials * p) <= 4.5 * math.sqrt(trials * p * (1 - p))
    assert started[n] == lanes


def test_a_copy_learns_only_what_it_decided() -> None:
    """Each copy of a block holds as many observations as decisions it made, the others having paused it."""
    policy, world = MasterGLMUCB(2, horizon=500, first_order=6, seed=3), World([0], 2)
    lane, decided = policy.policies[0], {}
    for t in range(64):
        play(policy, world, range(t, t + 1))
        order = min(lane._copies)
        key = (order, int(lane._starts[order]))
        decided[key] = decided.get(key, 0) + 1
        for m, copy in lane._copies.items():
            assert copy.estimator.remembered.tolist() == [decided.get((m, int(lane._starts[m])), 0)]
    assert len(decided) > 5


def sensible_master(cls, bonus: float, margin: float, first_order: int = 10, **settings) -> Policy:
    """MASTER with bonus ||x||_{V^-1} and 3 rho_hat(t) = margin / sqrt(t), in place of 46 and 3e5."""
    settings |= {"dim": 3, "horizon": 3000, "first_order": first_order, "seed": 1}
    probe = cls(lanes=1, **settings).policies[0]
    scales = {"test_scale": margin / (3 * probe.rho_hat(1)), "bonus_scale": bonus / (2 * probe._acting.base_beta)}
    return cls(lanes=8, **scales, **settings)


def restarts(policy: Policy, mean, rounds: int) -> np.ndarray:
    """Clicks with probability mean(t, cos), ten fixed arms (1, cos, sin) / sqrt(2); restarts of each lane after t."""
    rng, lanes = np.random.default_rng(0), policy.lanes
    angles = 2 * np.pi * np.arange(10) / 10
    arms = np.stack([np.ones(10), np.cos(angles), np.sin(angles)], axis=1) / math.sqrt(2)
    counts = []
    for t in range(rounds):
        index = policy.select(np.repeat(arms[None], lanes, axis=0))
        policy.update(arms[index], (rng.random(lanes) < mean(t, np.cos(angles[index]))).astype(float))
        counts.append([lane._counts[0] for lane in policy.policies])
    return np.array(counts)


JUMPS = {
    "MASTER-OFUL": (MasterOFUL, {}, lambda level, cos: 0.5 + 0.45 * level + 0.02 * cos),
    "MASTER-GLM-UCB": (MasterGLMUCB, {"S": 3.0}, lambda level, cos: 1 / (1 + np.exp(-2 * level - 0.1 * cos))),
}


@pytest.mark.parametrize(("cls", "settings", "mean"), JUMPS.values(), ids=JUMPS)
def test_master_restarts_after_a_huge_jump_and_not_without(cls, settings, mean) -> None:
    """Test 2: a world whose rewards break away fails it in every lane, a stationary one in none.

    With a bonus of ||x|| copies are optimistic from the start, as MASTER asks of them. Rewards near 0.9 leave f - r at
    most 0.1, that is 3.2 / sqrt(t) after 1000 rounds; rewards near 0.1 leave several times as much. The margin is 6.
    """
    for jump in (math.inf, 300):
        policy = sensible_master(cls, 1.0, 6.0, **settings)
        found = restarts(policy, lambda t, cos: mean(0.9 if t < jump else -0.9, cos), 1000)
        assert not found[: int(min(jump, 999)) + 1].any()
        assert (found[-1] >= (jump == 300)).all()


def test_master_restarts_when_the_world_gets_better() -> None:
    """Test 1: U_t remembers a poor world, and a copy that lived in a rich one did better than it allows.

    9 rho_hat(2^m) = 21 / 2^(m/2) is below 1 for m >= 9, and the copy of the block itself ends after 2^12 rounds.
    """
    policy = sensible_master(MasterOFUL, 0.3, 7.0, first_order=12)
    better = restarts(policy, lambda t, cos: (0.1 if t < 300 else 0.95) + 0.0 * cos, 2**12 + 1)
    assert not better[: 300 + 2**8].any()
    assert (better[-1] >= 1).all()


@pytest.mark.parametrize("sigma", [0.5, 0.9])
@pytest.mark.parametrize(("cls", "mean_at_0"), [(MasterOFUL, 0.0), (MasterGLMUCB, 0.5)])
def test_the_bases_have_the_stated_bonus(cls, mean_at_0: float, sigma: float) -> None:
    """Before any reward the index of an arm is mu(0) + 2 beta ||x|| / sqrt(lam), times 2 sigma."""
    T, delta, lam, d = 500, 0.1, 2.0, 3
    policy = cls(d, horizon=T, delta=delta, lam=lam, sigma=sigma)
    arms = np.array([[[0.5, 0.0, 0.0], [0.1, 0.1, 0.0]]])
    assert policy.select(arms)[0] == 0
    c, R = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1:]
    beta = 4 * math.sqrt(d * math.log(T / delta))
    if cls is MasterGLMUCB:
        beta = 4 * R * (math.sqrt(d * math.log(c * T / (lam * delta))) + c * math.sqrt(lam))
    lane = policy.policies[0]
    bonus = 2 * sigma * 2 * beta * 0.5 / math.sqrt(lam)
    assert lane._acting.optimistic == pytest.approx(mean_at_0 + bonus, rel=1e-6)
    assert lane.rho(7) == pytest.approx(beta * math.sqrt(d * math.log(T / delta) / 7), rel=1e-6)
    assert lane.rho_hat(7) == pytest.approx(6 * (math.log2(T) + 1) * math.log(T / delta) * lane.rho(7))
    ball_policy = cls(d, horizon=T, delta=delta, lam=lam, sigma=sigma)
    ball_policy.select_from(Sphere(0.5))
    assert ball_policy.policies[0]._acting.optimistic == pytest.approx(lane._acting.optimistic, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_masters_tests_see_rewards_between_0_and_1(sigma: float) -> None:
    """Sums of w (f - r) and of w r in units of the range: 2 sigma, and with MASTER-OFUL, told the noise alone, 1."""
    for cls, width in ((MasterOFUL, max(1.0, 2 * sigma)), (MasterGLMUCB, 2 * sigma)):
        policy = cls(1, horizon=100, sigma=sigma, first_order=4)
        policy.select(np.full((1, 1, 1), 0.5))
        policy.update(np.full((1, 1), 0.5), 0.16, weight=2.0)
        lane = policy.policies[0]
        value = lane._log[0, 3]
        assert lane._sums == pytest.approx([2 * (value - 0.16 / width), 2.0])
        assert lane._rewards[min(lane._copies)] == pytest.approx(2 * 0.16 / width)
        assert value == pytest.approx(min(1.0, lane._acting.optimistic / width))


def test_a_stationary_linear_world_with_little_noise_does_not_restart() -> None:
    rng = np.random.default_rng(0)
    policy = sensible_master(MasterOFUL, 1.0, 6.0, sigma=0.1)
    arms = np.repeat(np.array([[[1.0, 0.0, 0.0]]]), policy.lanes, axis=0)
    for _ in range(600):
        policy.select(arms)
        policy.update(arms[:, 0], 0.8 + 0.1 * rng.standard_normal(policy.lanes))
    assert not policy.info()["restarts"].any()


def test_a_reward_between_two_decisions_of_master() -> None:
    """It belongs to the decision before it, and is learnt as of then."""
    arms = np.full((1, 1, 2), 0.4)
    policies = []
    for round_ in (2.2, 1.0):
        policy = MasterGLMUCB(2, horizon=100, first_order=3)
        policy.select(arms)
        policy.advance(1.5)
        policy.select(arms)
        policy.update(arms[:, 0], 1.0, round=round_)
        policies.append(policy)
    assert same_state(policies[0].state(), policies[1].state())


def test_master_with_the_printed_constants_cannot_restart() -> None:
    lane = MasterOFUL(2, horizon=3000).policies[0]
    assert 3 * lane.rho_hat(4e10) > 1
    assert lane._acting.radius()[0] == pytest.approx(2 * 4 * math.sqrt(2 * math.log(60_000)))


# --- detection --------------------------------------------------------------------------------------------------------


def test_evidence_is_the_shiryaev_roberts_sum() -> None:
    """Against the sum over all beginnings, written out, for a linear policy and its recursive residuals."""
    rng, sigma = np.random.default_rng(0), 0.3
    policy = DetectGLMUCB(2, "identity", sigma=sigma, lam=0.5, run_length=1e12)
    X, rewards, zs = np.zeros((0, 2)), np.zeros(0), []
    for _ in range(30):
        arms = ball(rng, (1, 4), 2)
        x = arms[0, policy.select(arms)[0]]
        reward = float(x[0] + sigma * rng.normal())
        V = 0.5 * np.eye(2) + X.T @ X
        predicted, q = x @ np.linalg.solve(V, X.T @ rewards), x @ np.linalg.solve(V, x)
        zs.append((reward - predicted) / (sigma * math.sqrt(1 + q)))
        policy.update(x[None], [reward])
        X, rewards = np.vstack([X, x]), np.append(rewards, reward)
        ratios = [
            math.exp(sum(a * sign * z - a * a / 2 for z in zs[begin:]))
            for a in SHIFTS
            for sign in (1, -1)
            for begin in range(len(zs))
        ]
        assert policy.evidence[0] == pytest.approx(sum(ratios) / 8, rel=1e-9)
        assert policy.info()["evidence"][0] == policy.evidence[0]


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_the_surprise_of_a_click(weight: float) -> None:
    """(r - mu) / (sigma sqrt(1/w + R_mu^2 |x|^2 in V^-1)): that of the mean of w equal rewards."""
    policy = DetectGLMUCB(2, S=2.0, sigma=0.4, lam=0.7, run_length=1e12)
    x, theta_hat = np.array([0.6, -0.3]), np.zeros(2)
    R = naive.constants(naive.LINKS["logistic"], 2.0, 1.0)[2]
    z = (0.8 - 1 / (1 + math.exp(-x @ theta_hat))) / (0.4 * math.sqrt(1 / weight + R**2 * x @ x / 0.7))
    policy.select(x[None, None])
    policy.update(x[None], 0.8, weight=weight)
    expected = np.mean([math.exp(a * s * z - a * a / 2) for a in SHIFTS for s in (1, -1)])
    assert policy.evidence[0] == pytest.approx(expected, rel=1e-9)


def test_false_alarms_of_the_test_itself() -> None:
    """Independent normal surprises: at most the stated share of runs has an alarm, and the bound is not idle."""
    rng, runs, T, rate = np.random.default_rng(0), 10_000, 500, 0.1
    evidence, alarmed = np.zeros((runs, 2, len(SHIFTS))), np.zeros(runs, dtype=bool)
    for _ in range(T):
        evidence = accumulated(evidence, rng.normal(size=runs))
        alarmed |= evidence.mean(axis=(1, 2)) >= T / rate
    assert rate / 4 < alarmed.mean() <= rate


def drifting(link: str, lanes: int, rounds: int, jump: float, *, prior: bool, dim: int = 2, **settings):
    """Rounds of the first alarm of each lane (inf: none), in a world whose theta* changes its sign at ``jump``."""
    rng, first = np.random.default_rng(3), np.full(lanes, np.inf)
    policy = DetectGLMUCB(dim, link, horizon=rounds, lanes=lanes, **settings)
    theta = 0.5 * rng.normal(size=(lanes, dim))  # the prior of covariance (sigma^2 / lam) I
    if not prior:
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    for t in range(rounds):
        arms = ball(rng, (lanes, 6), dim)
        x = arms[np.arange(lanes), policy.select(arms)]
        z = (1.0 if t < jump else -1.0) * np.einsum("ij,ij->i", x, theta)
        noisy = z + 0.5 * rng.normal(size=lanes)
        reward = noisy if link == "identity" else (rng.random(lanes) < 1 / (1 + np.exp(-z))).astype(float)
        policy.update(x, reward)
        first = np.where(np.isinf(first) & (policy.info()["alarms"] > 0), float(t), first)
    return first


@pytest.mark.parametrize(("link", "prior"), [("identity", True), ("identity", False), ("logistic", False)])
def test_false_alarms_of_the_policy(link: str, prior: bool) -> None:
    """A stationary world: at most the stated share of runs (5 %) has an alarm, 1000 runs of 250 rounds."""
    first = drifting(link, 1000, 250, math.inf, prior=prior)
    assert np.isfinite(first).mean() <= 0.05


@pytest.mark.parametrize(("link", "within"), [("identity", 60), ("logistic", 200)])
def test_a_reversal_is_noticed(link: str, within: int) -> None:
    """theta* changes its sign once it is well known: all but a few lanes restart soon after, and few before."""
    first = drifting(link, 60, 800 + within, 800, prior=False)
    assert np.isfinite(first).mean() >= 0.95
    assert (first < 800).mean() <= 0.1


def test_an_alarm_restarts_its_lane_alone() -> None:
    policy = DetectGLMUCB(2, run_length=50.0, lanes=2)
    x = np.array([[0.8, 0.0], [0.8, 0.0]])
    for _ in range(40):
        policy.select(x[:, None, :])
        policy.update(x, [1.0, 1.0])
    rounds = policy.t
    while not policy.info()["alarms"].any():
        policy.select(x[:, None, :])
        policy.update(x, [0.0, 1.0])
    assert policy.t - rounds < 30
    assert policy.info()["alarms"].tolist() == [1, 0]
    assert policy.info()["remembered"][0] == 0
    assert policy.info()["remembered"][1] > 40
    policy.update(x, [0.0, 1.0], round=policy.t - 1)  # decided before the alarm
    assert policy.info()["remembered"][0] == 0
    assert policy.evidence[0] == 0.0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "run_length"),
        ({"run_length": 0.5}, "run_length"),
        ({"horizon": 10, "false_alarm": 0.0}, "false_alarm"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_bad_settings_of_detection(settings: dict, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}"):
        DetectGLMUCB(2, **settings)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: BOB(2, horizon=0), "horizon"),
        (lambda: BOB(2, horizon=10, block=0), "block"),
        (lambda: BOB(2, horizon=10, windows=[]), "windows"),
        (lambda: BOB(2, horizon=10, windows=[0.0]), "window"),
        (lambda: BOBBVDGLMUCB(2, horizon=10, discounts=[1.5]), "gamma"),
        (lambda: BanditOverBandits(OFUL, dim=2, horizon=10, block=5, grid=[1.0], parameter="lam"), "parameter"),
        (lambda: MasterOFUL(2, horizon=10, first_order=-1), "first_order"),
        (lambda: MasterOFUL(2, horizon=10, test_scale=-1.0), "test_scale"),
        (lambda: MasterGLMUCB(2, horizon=10, delta=0.0), "delta"),
    ],
)
def test_bad_settings_of_masters(make, name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}"):
        make()
