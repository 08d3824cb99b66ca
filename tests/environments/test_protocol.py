"""What all environments have in common: ``play`` is ``reward`` of the chosen means, and choices are checked."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.laws import ARMS, DRIFTS, REWARDS
from support.refusals import rejects
from windvane import warm_up
from windvane.environments import AnyEnvironment, Environment, LabelledStream, Outcome

MEMBERS = [name for name in vars(AnyEnvironment) if not name.startswith("_")]


def make_stream(lanes: Any = 2) -> LabelledStream:
    return LabelledStream([[0.0], [5.0], [10.0]], ["low", "low", "high"], lanes=lanes)


def choose(offer: Any, coin: int) -> np.ndarray:
    """An arm on offer in every lane, arbitrary otherwise."""
    valid = np.ones(offer.means.shape, dtype=bool) if offer.valid is None else offer.valid
    return np.array([np.flatnonzero(lane)[coin % lane.sum()] for lane in valid])


laws = [st.sampled_from(sorted(kinds)) for kinds in (DRIFTS, ARMS, REWARDS)]


@given(*laws, st.integers(1, 24), st.integers(0, 2**64 - 1), st.integers(0, 99))
def test_play_draws_the_rewards_of_the_chosen_means(
    drift: str, arms: str, rewards: str, t: int, seed: int, coin: int
) -> None:
    law, link = REWARDS[rewards]
    world = Environment(DRIFTS[drift], ARMS[arms], law, link=link, horizon=24, lanes=[7, 0, 7], seed=seed)
    offer = world.round(t)
    choice = choose(offer, coin)
    reward, mean = outcome = world.play(offer, choice)
    np.testing.assert_array_equal(mean, offer.means[[0, 1, 2], choice])
    np.testing.assert_array_equal(reward, world.reward(t, mean))
    assert isinstance(outcome, Outcome)
    np.testing.assert_array_equal(world.play(offer, choice.tolist()).reward, reward)  # nothing moves


def test_play_of_a_labelled_stream_is_right_or_wrong() -> None:
    stream = make_stream()
    for t, label in enumerate((1, 1, 0), start=1):
        offer = stream.round(t)
        reward, mean = stream.play(offer, [label, 1 - label])
        assert reward.tolist() == mean.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("choice", [0, [0], [0, 0, 0], [0.0, 1.0], [True, False], [-1, 0], [0, 2], ["a", "b"], None])
def test_choices_are_checked(choice: Any) -> None:
    world = Environment(DRIFTS["static"], ARMS["fixed"], horizon=3, lanes=2)
    for environment, wrong in ((world, choice), (make_stream(), choice)):
        if wrong != [0, 2] or environment is not world:  # the world has three arms
            with rejects("choice"):
                environment.play(environment.round(1), wrong)
    with rejects("select(arms)"):
        world.round(1).check_choice([5, 0], "select(arms)")


def test_absent_arms_cannot_be_played() -> None:
    world = Environment(DRIFTS["static"], ARMS["come-and-go"], horizon=9, lanes=4)
    for t in range(1, 10):
        offer = world.round(t)
        assert offer.valid is not None
        absent = np.argwhere(~offer.valid)
        assert len(absent)
        lane, arm = absent[0]
        choice = offer.valid.argmax(axis=1)
        world.play(offer, choice)
        choice[lane] = arm
        with rejects("choice"):
            world.play(offer, choice)


@pytest.mark.parametrize("environment", [Environment(DRIFTS["arc"], ARMS["ball"], horizon=3, lanes=2), make_stream()])
def test_environments_have_every_member_of_the_protocol(environment: Any) -> None:
    for name in MEMBERS:
        assert hasattr(environment, name), name
    for name in ("round", "play", "means", "delays"):
        ours, theirs = (inspect.signature(getattr(owner, name)) for owner in (AnyEnvironment, type(environment)))
        assert list(ours.parameters) == list(theirs.parameters)
    assert environment.variation.shape == environment.switches.shape == (environment.lanes,)


def test_warm_up_plays_a_round_of_arms_on_offer() -> None:
    world = Environment(DRIFTS["static"], ARMS["come-and-go"], horizon=2, lanes=20)
    assert warm_up([], [world, make_stream()]) >= 0
