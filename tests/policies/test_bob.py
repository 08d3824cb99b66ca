"""BOB: the papers' rules, blocks, late rewards, and what they learn."""

from functools import partial

import numpy as np
import pytest

import naive
from support.cases import OverDLinUCB
from support.draws import master_uniform
from support.policies import decision, same_estimates
from support.refusals import refuses
from support.worlds import LaneWorld, ball, play, same_state
from windvane import BOB, BOBBVDGLMUCB, BVDGLMUCB


@pytest.mark.parametrize("sigma", [0.5, 0.8])
@pytest.mark.parametrize(
    ("cls", "literal"), [(BOBBVDGLMUCB, naive.NaiveBOBBVDGLMUCB), (BOB, naive.NaiveBOB)], ids=["BOB-BVD-GLM-UCB", "BOB"]
)
def test_bob_is_the_papers_algorithm(cls, literal, sigma: float) -> None:
    ids = [0, 3]
    world, policy = LaneWorld(ids, 2), cls(2, horizon=300, sigma=sigma, lanes=ids, seed=5)
    choices = play(policy, world, range(1, 301))
    policy.select(world.arms(301))  # closes the last block
    info = policy.info()
    for place, lane in enumerate(ids):
        alone, paper = LaneWorld([lane], 2), literal(2, 300, sigma, partial(master_uniform, 5, lane))
        expected = paper.run(lambda t: alone.arms(t)[0], lambda x, t: float(alone.rewards(x[None], t)[0]))
        assert np.array_equal(choices[:, place], expected)
        n = len(paper.laws)
        assert np.array_equal(info.history_block, np.arange(n + 1))
        assert np.allclose(info.history_probabilities[:n, place], paper.laws, rtol=0, atol=1e-12)
        assert np.allclose(info.history_chosen[:n, place], paper.drawn, rtol=0, atol=1e-15)
        assert np.allclose(info.draw_probabilities[place], paper.p(), rtol=0, atol=1e-12)  # a short block counts too
    assert len(set(info.history_chosen.ravel())) > 3


def test_blocks_end_with_the_horizon_and_go_on_after_it() -> None:
    policy = BOBBVDGLMUCB(2, horizon=25, block=10)
    assert [policy.block_of(n) for n in range(46)] == [0] * 10 + [1] * 10 + [2] * 5 + [3] * 10 + [4] * 10 + [5]
    play(policy, LaneWorld([0], 2), range(46))
    assert policy.info().block == 5


@pytest.mark.parametrize(
    ("cls", "settings", "width"),
    [
        (BOBBVDGLMUCB, {"sigma": 0.2}, 0.4),  # 2 sigma where the link bounds rewards
        (OverDLinUCB, {"sigma": 3.0}, 6.0),
        (OverDLinUCB, {"sigma": 0.1}, 1.0),  # at least 1: sigma is the noise alone
        (OverDLinUCB, {"sigma": 3.0, "reward_range": 7.0}, 7.0),  # as given
    ],
)
def test_the_gain_of_a_block_is_its_mean_reward_in_units_of_the_range(cls, settings, width: float) -> None:
    policy = cls(2, horizon=100, **settings)
    assert policy.width_of_rewards == width
    if width == 1.0:
        assert policy.compute_gain(np.array([5.0])) == 0.5  # ten rewards of mean 1/2


def test_masked_garbage_reaches_no_gain() -> None:
    policy = BOBBVDGLMUCB(2, horizon=100, lanes=2)
    policy.select(np.full((2, 1, 2), 0.5))
    policy.update(np.full((2, 2), 0.5), [1.0, np.inf], weight=[1.0, 0.0], mask=np.array([True, False]))
    assert policy.earned.tolist() == [1.0, 0.0]


def test_a_block_that_was_restarted_is_not_judged() -> None:
    world, policy = LaneWorld([0, 1], 2), BOBBVDGLMUCB(2, horizon=400, block=10, lanes=2)
    play(policy, world, range(14))
    policy.restart([True, False])
    play(policy, world, range(14, 21))  # into the third block
    assert (policy.exp3.log_weights[0] == 0.0).all()
    assert (policy.exp3.log_weights[1] > 0.0).any()
    play(policy, world, range(21, 31))
    assert (policy.exp3.log_weights[0] > 0.0).any()


def test_a_block_of_bob_is_a_fresh_worker() -> None:
    """Between two draws the policy is the worker itself, bit for bit, but for the numbers that break ties."""
    world, policy = LaneWorld([2], 3), BOBBVDGLMUCB(3, horizon=400, block=20, lanes=[2])
    play(policy, world, range(20))
    policy.select(world.arms(20))
    worker = BVDGLMUCB(3, gamma=policy.chosen, delta=1 / 400, lanes=[2])
    worker.select(world.arms(20))
    x = world.arms(20)[:, 0]
    for p in (policy, worker):
        p.update(x, [1.0])
    assert np.array_equal(play(policy, world, range(21, 40)), play(worker, world, range(21, 40)))
    assert same_estimates(policy, worker)
    assert policy.info().gamma == policy.chosen == decision(policy).chosen


def test_late_rewards_are_recorded_and_not_learnt() -> None:
    world = LaneWorld([0, 1], 2)
    told, silent = (BOBBVDGLMUCB(2, horizon=100, block=10, lanes=2) for _ in range(2))
    for policy in (told, silent):
        play(policy, world, range(9))
        policy.select(world.arms(9))  # round 10, whose reward is late
    x = world.arms(9)[:, 0]
    on_time = told.state()
    told.update(x, [1.0, 1.0], mask=[True, False])  # the block is still open
    assert told.earned[0] == on_time["earned"][0] + 1
    for policy in (told, silent):
        policy.load_state(on_time)
        policy.select(world.arms(10))
    told.update(x, [1.0, 0.5], round=10.0, weight=[2.0, 1.0])
    told.update(x, [1.0, 1.0], round=3.0, mask=[False, True])
    assert told.info().late.tolist() == [1, 2]
    assert told.info().late_sum.tolist() == [2.0, 1.5]
    learnt, ignored = (
        {name: array for name, array in policy.state().items() if name not in ("late", "late_sum", "checksum")}
        for policy in (told, silent)
    )
    assert same_state(learnt, ignored)


def test_the_history_stays_short() -> None:
    policy = BOB(1, horizon=1500, block=1, windows=[1.0, 2.0])
    arms = np.full((1, 2, 1), 0.5)
    for _ in range(1500):
        policy.select(arms)
    blocks = policy.info().history_block
    assert len(blocks) <= 256
    assert blocks[0] == 0
    assert len(set(np.diff(blocks))) == 1  # evenly thinned
    assert blocks[-1] > 1400


def test_bob_learns_which_discount_is_right() -> None:
    """theta* turns its sign every 20 rounds: a worker that never forgets within a block of 40 earns less."""
    T, lanes = 8000, 10
    policy = OverDLinUCB(2, horizon=T, block=40, grid_values=(0.5, 1.0), bonus_scale=0.1, lanes=lanes)
    rng = np.random.default_rng(0)
    for t in range(T):
        arms = ball(rng, (lanes, 5), 2)
        x = arms[np.arange(lanes), policy.select(arms)]
        policy.update(x, 0.5 + 0.5 * x[:, 0] * (-1) ** (t // 20))
    assert policy.info().draw_probabilities[:, 0].mean() > 0.6


def test_an_error_about_another_setting_names_that_setting() -> None:
    for name, bad in {"S": -1.0, "delta": 5.0, "lam": -5.0}.items():
        with refuses(name):
            BOB(2, horizon=100, **{name: bad})
    with refuses("windows", where="place 1"):
        BOB(2, horizon=100, windows=[10.0, -1.0])
    with pytest.raises(TypeError, match="reward_range"):
        BOB(2, horizon=100, reward_range=3.0)


def test_a_reward_from_before_the_first_round_is_learned_and_not_late() -> None:
    policy = BOB(2, horizon=100)
    policy.update([[0.5, 0.0]], 1.0, round=0.0)
    assert policy.info().late.tolist() == [0.0]
    assert policy.info().b.any()
