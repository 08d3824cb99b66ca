"""``draw_uniforms``, for randomised policies of one's own: what its numbers depend on, and what they do not."""

import numpy as np
import pytest
from scipy import stats

import windvane as wv
from support.refusals import refuses
from windvane.kernels import random as random_kernels

UNLIKELY = 1e-6  # a p-value below it is taken as a failure
ARM = [[[1.0, 0.0]]]


def decide(policy: wv.Policy, times: int) -> wv.Policy:
    for _ in range(times):
        policy.select(np.repeat(ARM, policy.lane_count, axis=0))
    return policy


def test_numbers_depend_on_seed_lane_decision_and_purpose_only() -> None:
    together = decide(wv.OFUL(2, lanes=[7, 3, 9], seed=4), 2)
    for place, lane in enumerate([7, 3, 9]):
        alone = decide(wv.OFUL(2, lanes=[lane], seed=4, S=3.0), 2)
        assert alone.draw_uniforms(5)[0] == together.draw_uniforms(5)[place]
    first = together.draw_uniforms(5, 9)
    assert np.array_equal(together.draw_uniforms(5, 9), first)  # again, until the decision is made
    assert np.array_equal(together.draw_uniforms(5, 4), first[:, :4])
    assert np.array_equal(together.draw_uniforms(5), first[:, 0])
    others = [together.draw_uniforms(6, 9), wv.OFUL(2, lanes=[7, 3, 9], seed=5).draw_uniforms(5, 9)]
    others.append(decide(together, 1).draw_uniforms(5, 9))
    assert not any(np.isin(first, other).any() for other in others)


def test_the_largest_purpose_and_count_are_in_the_range_of_the_generator() -> None:
    policy = wv.OFUL(2)
    last = policy.draw_uniforms(255, 65_536)
    assert len(np.unique(last)) == 65_536
    assert not np.isin(policy.draw_uniforms(254, 65_536), last).any()
    for purpose in (-1, 256, 0.5):
        with refuses("purpose", value=purpose):
            policy.draw_uniforms(purpose)
    for count in (0, 65_537):
        with refuses("count", value=count):
            policy.draw_uniforms(0, count)


def test_numbers_are_uniform_and_independent_over_lanes_decisions_and_purposes() -> None:
    policy = wv.UniformRandom(2, lanes=1000, seed=1)
    draws = np.array([[decide(policy, 1).draw_uniforms(p, 3) for p in (0, 1)] for _ in range(20)])
    assert stats.kstest(draws.ravel(), "uniform").pvalue > UNLIKELY
    pairs = [(draws[:-1], draws[1:]), (draws[:, 0], draws[:, 1]), (draws[..., 0], draws[..., 1])]
    pairs.append((draws[:, :, :-1], draws[:, :, 1:]))
    for one, other in pairs:
        assert stats.pearsonr(one.ravel(), other.ravel()).pvalue > UNLIKELY


def test_no_purpose_of_windvane_is_that_of_policies_of_ones_own() -> None:
    """The last word of a counter holds the purpose: numbers for different purposes have different counters."""
    purposes = {name: value for name, value in vars(random_kernels).items() if name.isupper() and type(value) is int}
    del purposes["LARGEST_BLOCK"]
    own = purposes.pop("OWN")
    assert len(set(purposes.values())) == len(purposes)
    assert max(purposes.values()) < own <= 255


@pytest.mark.parametrize("cls", [wv.DLinTS, wv.BVDGLMUCB])
def test_drawing_changes_no_decision(cls) -> None:
    quiet, drawing = (cls(2, gamma=0.9, lanes=50) for _ in range(2))
    arms = np.repeat([[[0.6, 0.3], [0.6, 0.3], [0.1, -0.9]]], 50, axis=0)
    for _ in range(5):
        drawing.draw_uniforms(0, 7)
        assert np.array_equal(quiet.select(arms), drawing.select(arms))
