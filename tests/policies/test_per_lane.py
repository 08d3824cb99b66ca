"""The adapter that runs one policy per lane."""

from __future__ import annotations

import functools
import time
from functools import partial
import numpy as np
import pytest
from support.worlds import play, same_state
from windvane import BVDGLMUCB, DLinUCB, PerLane, Sphere, checks

def test_lanes_apart_share_their_world() -> None:
    with pytest.raises(ValueError, match=r"^L: must be the same in all lanes"):
        PerLane(functools.partial(DLinUCB, gamma=0.9), dim=2, lanes=2, L=[1.0, 0.1])


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
