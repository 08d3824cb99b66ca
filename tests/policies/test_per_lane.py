"""The adapter that runs one policy per lane."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from support import access
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state
from windvane import BVDGLMUCB, DLinUCB, PerLane, Sphere


def test_lanes_apart_share_their_world() -> None:
    with refuses("L"):
        PerLane(partial(DLinUCB, gamma=0.9), dim=2, lanes=2, L=[1.0, 0.1])


@pytest.mark.parametrize("cls", [BVDGLMUCB, DLinUCB])
def test_per_lane_is_the_batched_policy_bit_for_bit(cls) -> None:
    """Choices, readings, late and masked rewards, weights, gaps in time."""
    ids, gammas = [3, 0, 8], [0.9, 0.95, 1.0]
    world = LaneWorld(ids, 3)
    one = PerLane(partial(cls, sigma=0.6), dim=3, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    other = cls(3, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    assert np.array_equal(play(one, world, range(40)), play(other, world, range(40)))
    for policy in (one, other):
        policy.advance(1.5)
        policy.update(
            world.arms(0)[:, 0], [1.0, 0.0, 0.5], round=[3, 4, 5], weight=[1, 2, 0.5], mask=[True, True, False]
        )
    assert np.array_equal(play(one, world, range(40, 60)), play(other, world, range(40, 60)))
    assert np.array_equal(one.select_from(Sphere(1.0)), other.select_from(Sphere(1.0)))
    for name in ("gamma", *access.NUMBERS):
        assert np.array_equal(access.read(one, name), access.read(other, name))
    assert access.decision(one).keys() == access.decision(other).keys()
    assert all(
        np.array_equal(access.decision(one)[name], access.decision(other)[name]) for name in access.decision(one)
    )
    alone, together = access.diagnostics(one), access.diagnostics(other)
    assert all(np.array_equal(alone[name], together[name]) for name in together)


def test_a_bad_lane_leaves_the_others_alone() -> None:
    policy, world = PerLane(BVDGLMUCB, dim=3, lanes=2, gamma=0.95), LaneWorld([0, 1], 3)
    play(policy, world, range(5))
    before = policy.state()
    with refuses("reward", where="lane 1"):
        policy.update(np.zeros((2, 3)), [1.0, 5.0])
    arms = world.arms(9)
    arms[1, 2] = 7.0
    with refuses("arms", where="lane 1, arm 2"):
        policy.select(arms)
    spoilt = before | {"lane1.estimator.b": before["lane1.estimator.b"] + 1.0}
    with refuses("state"):
        policy.load_state(spoilt)
    assert same_state(policy.state(), before)
    with refuses("gamma"):
        PerLane(BVDGLMUCB, dim=2, lanes=2, gamma=[0.9, 0.9, 0.9])
