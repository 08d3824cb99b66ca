"""What masters over policies have in common, and the adapter that runs one policy per lane."""

import numpy as np
import pytest

import windvane as wv
from support.cases import MASTERS, SHORT_BLOCKS, OnePolicyPerLane
from support.policies import known
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state

any_master = pytest.mark.parametrize(
    "factory", [*MASTERS.values(), *SHORT_BLOCKS.values()], ids=[*MASTERS, *SHORT_BLOCKS]
)


@any_master
def test_arms_from_a_sphere(factory) -> None:
    """Lanes together equal lanes alone there too."""
    policies = [factory(dim=3, lanes=lanes, seed=1) for lanes in ([5, 2], [5], [2])]
    for t in range(25):
        both, first, second = (policy.select_from(wv.Sphere(0.5 * policy.L)) for policy in policies)
        assert np.array_equal(both, np.concatenate([first, second]))
        assert np.linalg.norm(both, axis=1) == pytest.approx(0.5 * policies[0].L)
        for policy, x in zip(policies, (both, first, second), strict=True):
            policy.update(x, (x[:, 0] + 0.1 * np.sin(t) > 0).astype(float))


@any_master
def test_restart_forgets(factory) -> None:
    world, policy = LaneWorld([0, 1], 3), factory(dim=3, lanes=2)
    play(policy, world, range(20))
    policy.restart()
    assert not policy.info().b.any()
    assert not policy.info().theta_hat.any()
    play(policy, world, range(20, 40))


@pytest.mark.parametrize(
    ("policy", "S"),
    [
        (wv.BOB(2, horizon=50, S=2.0), 2.0),
        (wv.MasterOFUL(2, horizon=50, S=2.0), 2.0),
    ],
    ids=["BOB", "MASTER-OFUL"],
)
def test_a_master_has_the_norm_bound_of_the_policies_within(policy: wv.Policy, S: float) -> None:
    assert policy.S == S


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: wv.BOB(2, horizon=0), "horizon"),
        (lambda: wv.BOB(2, horizon=10, block=0), "block"),
        (lambda: wv.BOB(2, horizon=10, windows=[]), "windows"),
        (lambda: wv.BOB(2, horizon=10, windows=[0.0]), "windows"),
        (lambda: wv.BOBBVDGLMUCB(2, horizon=10, discounts=[1.5]), "discounts"),
        (lambda: wv.MasterOFUL(2, horizon=10, first_order=-1), "first_order"),
        (lambda: wv.MasterOFUL(2, horizon=10, test_scale=-1.0), "test_scale"),
        (lambda: wv.MasterGLMUCB(2, horizon=10, delta=0.0), "delta"),
    ],
)
def test_bad_settings_of_masters(make, name: str) -> None:
    with refuses(name):
        make()


@pytest.mark.parametrize("cls", [wv.BVDGLMUCB, wv.DLinUCB])
def test_per_lane_is_the_batched_policy_bit_for_bit(cls) -> None:
    """Choices, readings, late and masked rewards, weights, gaps in time."""
    ids, gammas = [3, 0, 8], [0.9, 0.95, 1.0]
    world = LaneWorld(ids, 3)
    one = OnePolicyPerLane(3, base=cls.name, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    other = cls(3, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    assert np.array_equal(play(one, world, range(40)), play(other, world, range(40)))
    for policy in (one, other):
        policy.advance(1.5)
        policy.update(
            world.arms(0)[:, 0], [1.0, 0.0, 0.5], round=[3, 4, 5], weight=[1, 2, 0.5], mask=[True, True, False]
        )
    assert np.array_equal(play(one, world, range(40, 60)), play(other, world, range(40, 60)))
    assert np.array_equal(one.select_from(wv.Sphere(1.0)), other.select_from(wv.Sphere(1.0)))
    alone, together = one.info(), other.info()
    assert known(alone).keys() == known(together).keys()
    for name in known(alone).keys() - {"decision"}:
        assert np.array_equal(getattr(alone, name), getattr(together, name))
    assert known(alone.decision).keys() == known(together.decision).keys()
    for name in known(alone.decision).keys() - {"projection"}:
        assert np.array_equal(getattr(alone.decision, name), getattr(together.decision, name))
    if cls is wv.BVDGLMUCB:
        assert np.array_equal(alone.decision.projection.report, together.decision.projection.report)


def test_a_bad_lane_leaves_the_others_alone() -> None:
    policy, world = OnePolicyPerLane(3, lanes=2, gamma=0.95), LaneWorld([0, 1], 3)
    play(policy, world, range(5))
    before = policy.state()
    with refuses("reward", where="lane 1"):
        policy.update(np.zeros((2, 3)), [1.0, 5.0])
    arms = world.arms(9)
    arms[1, 2] = 7.0
    with refuses("arms", where="lane 1, arm 2"):
        policy.select(arms)
    with refuses("state"):
        policy.load_state(before | {"lane1.estimator.dense": before["lane1.estimator.dense"] + 1.0})
    assert same_state(policy.state(), before)
    with refuses("gamma"):
        OnePolicyPerLane(2, lanes=2, gamma=[0.9, 0.9, 0.9])
