"""Environments of windvane as Gymnasium environments, and the way back, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import ARMS, DRIFTS, REWARDS
from support.refusals import rejects
from windvane import BVDGLMUCB
from windvane.environments import Environment, FixedDelay, LabelledStream, NoDelay, Rotation
from windvane.environments.gymnasium import BANDIT_ID, BanditEnv, GymnasiumEnvironment

SOURCE = Path(__file__).parents[2] / "src"
T = 24  # rounds
ALWAYS_ALL = [kind for kind in ARMS if kind != "come-and-go"]  # arm laws that offer all arms


def make_world(drift: str = "rotation", arms: str = "ball", rewards: str = "bernoulli", **changes: Any) -> Environment:
    law, link = REWARDS[rewards]
    return Environment(DRIFTS[drift], ARMS[arms], law, **{"link": link, "horizon": T} | changes)


def make_stream(**changes: Any) -> LabelledStream:
    x = np.random.default_rng(3).normal(size=(T, 2))
    return LabelledStream(x, (x[:, 0] > 0).astype(int), **changes)


# --- BanditEnv --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arms", ALWAYS_ALL)
@pytest.mark.parametrize("rewards", REWARDS)
def test_the_checker_of_gymnasium_has_no_objection(arms: str, rewards: str) -> None:
    """Warnings are errors here. Made by name, the environment has a spec, so that nothing is left out."""
    env = gymnasium.make(BANDIT_ID, environment=make_world(arms=arms, rewards=rewards))
    check_env(env.unwrapped)


@pytest.mark.parametrize(
    "world", [make_stream(), make_world(intercept=-0.4), make_world(delay=NoDelay()), make_world("random-walk", seed=9)]
)
def test_the_checker_accepts_other_worlds(world: Any) -> None:
    check_env(gymnasium.make(BANDIT_ID, environment=world).unwrapped)


@given(
    st.sampled_from(sorted(DRIFTS)), st.sampled_from(sorted(ARMS)), st.sampled_from(sorted(REWARDS)),
    st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1),
)  # fmt: skip
@settings(max_examples=30)
def test_an_episode_is_the_run_of_the_lane(drift: str, arms: str, rewards: str, lane: int, seed: int) -> None:
    world = make_world(drift, arms, rewards, seed=seed)
    alone, env = world.with_lanes([lane]), BanditEnv(world)
    observation, info = env.reset(seed=lane)
    assert info["lane"] == lane
    for t in range(1, T + 1):
        assert observation in env.observation_space
        offer = alone.round(t)
        valid = np.ones(offer.means.shape[1], dtype=bool) if offer.valid is None else offer.valid[0]
        np.testing.assert_array_equal(observation["arms"], offer.arms[0])
        np.testing.assert_array_equal(observation["valid"], valid)
        np.testing.assert_array_equal(info["action_mask"], valid)
        action = env.action_space.sample(info["action_mask"])
        outcome = alone.play(offer, [action])
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (outcome.reward[0], False, t == T)
        assert (info["round"], info["mean"], info["best"]) == (t, outcome.mean[0], offer.best[0])
        assert info["regret"] == (offer.best - outcome.mean)[0]
        np.testing.assert_array_equal(info["theta"], offer.theta[0])
    np.testing.assert_array_equal(observation["arms"], offer.arms[0])  # there is no further round to show


def test_seeds_and_runs() -> None:
    def first(env: BanditEnv, **arguments: Any) -> tuple[int, list[float]]:
        observation, info = env.reset(**arguments)
        return info["lane"], observation["arms"].ravel().tolist()

    world = make_world(seed=2**64 - 1)
    env, other = BanditEnv(world), BanditEnv(make_world(seed=2**64 - 1, lanes=[5, 6, 7]))
    assert first(env, seed=4) == first(other, seed=4)
    assert first(env) == first(other)  # drawn from np_random, which the seed has set
    assert first(env)[0] != first(env)[0]
    assert first(env, seed=5) != first(env, seed=4)
    far = BanditEnv(world.with_lanes(1, seed=2))  # a seed beyond the lane ids changes the seed, too
    assert first(env, seed=3 * 2**32 + 8) == first(far, seed=8)
    assert first(BanditEnv(world))[0] != first(BanditEnv(world))[0]  # without any seed: chance
    with pytest.raises(gymnasium.error.Error, match="Seed"):
        env.reset(seed=-1)
    stream = BanditEnv(make_stream())
    assert first(stream, seed=1)[1] == first(stream, seed=2)[1]
    assert "theta" not in stream.step(0)[4]


def test_steps_that_are_refused() -> None:
    env = BanditEnv(make_world(arms="come-and-go"))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    observation, info = env.reset(seed=1)
    for action in (5, -1, 0.5, "a", None, [0]):
        with rejects("action", value=action):
            env.step(action)
    absent = int(np.flatnonzero(observation["valid"] == 0)[0])
    with rejects("action", value=absent, where="round 1"):
        env.step(absent)
    for t in range(1, T + 1):  # the refusals changed nothing
        *_, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
        assert truncated == (t == T)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset()
    env.close()


def test_environments_that_are_refused() -> None:
    late = make_world(delay=FixedDelay(3))
    with rejects("environment", value=late, got="FixedDelay(rounds=3)"):
        BanditEnv(late)
    for environment in (None, Rotation(), "rotation"):
        with rejects("environment", value=environment):
            BanditEnv(environment)


def test_vectors_of_environments() -> None:
    """Gymnasium's own way to many lanes: environment i gets seed + i, and so plays lane seed + i."""
    world = make_world("random-walk")
    vector, lanes = gymnasium.make_vec(BANDIT_ID, num_envs=3, environment=world), world.with_lanes([4, 5, 6])
    observation, _ = vector.reset(seed=4)
    for t in range(1, T):
        offer = lanes.round(t)
        np.testing.assert_array_equal(observation["arms"], offer.arms)
        observation, reward, *_ = vector.step(np.array([t % 5, 0, 1]))
        np.testing.assert_array_equal(reward, lanes.play(offer, [t % 5, 0, 1]).reward)
    vector.close()


def test_other_lanes_of_the_same_world() -> None:
    world = make_world("random-walk", "come-and-go", intercept=0.3, lanes=[2, 9], seed=6, delay=FixedDelay(2))
    twin = world.with_lanes([9])
    assert (twin.dim, twin.S, twin.L, twin.seed, twin.lane_ids.tolist()) == (world.dim, world.S, world.L, 6, [9])
    np.testing.assert_array_equal(twin.round(7).means[0], world.round(7).means[1])
    assert world.with_lanes(1, seed=7).seed == 7
    stream = make_stream(lanes=[3], seed=2)
    wide = stream.with_lanes(4)
    assert (wide.lanes, wide.seed, stream.lanes) == (4, 2, 1)
    for t in (5, 1, 12):
        np.testing.assert_array_equal(wide.round(t).arms, np.repeat(stream.round(t).arms, 4, axis=0))
    with rejects("lanes"):
        stream.with_lanes([-1])


# --- there and back ---------------------------------------------------------------------------------------------------

RANGES = {"bernoulli": (0, 1), "binomial": (0, 1), "poisson": (0, 50), "gaussian": (-9, 9)}


@given(
    st.sampled_from(sorted(DRIFTS)), st.sampled_from(sorted(ARMS)), st.sampled_from(sorted(REWARDS)),
    st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3), st.integers(0, 2**64 - 1), st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=30)
def test_the_round_trip_plays_the_same_rewards(drift, arms, rewards, ids, seed, coin) -> None:
    world = make_world(drift, arms, rewards, lanes=ids, seed=seed)
    bare = world.with_lanes(1, seed=0)
    assumed = {"link": world.link, "S": world.S, "L": world.L, "reward_range": RANGES[rewards], "horizon": T}
    game = GymnasiumEnvironment(lambda: BanditEnv(bare), lanes=ids, seed=seed, **assumed)
    assert (game.dim, game.lane_ids.tolist()) == (world.dim, ids)
    rng, everyone = np.random.default_rng(coin), np.arange(len(ids))
    for t in range(1, T + 1):
        ours, theirs = world.round(t), game.round(t)
        np.testing.assert_array_equal(theirs.arms, ours.arms)
        valid = np.ones(ours.means.shape, dtype=bool) if ours.valid is None else ours.valid
        np.testing.assert_array_equal(np.ones_like(valid) if theirs.valid is None else theirs.valid, valid)
        choice = (rng.random(valid.shape) * valid).argmax(axis=1)
        assert valid[everyone, choice].all()
        expected, outcome = world.play(ours, choice), game.play(theirs, choice)
        np.testing.assert_array_equal(outcome.reward, expected.reward)
        np.testing.assert_array_equal(outcome.mean, expected.reward)


def test_a_policy_chooses_the_same_arms_there_and_back() -> None:
    world = make_world("arc", "come-and-go", horizon=60, lanes=3, seed=4)
    bare = world.with_lanes(1, seed=0)
    game = GymnasiumEnvironment(lambda: BanditEnv(bare), horizon=60, lanes=3, seed=4)
    told = {"S": world.S, "L": world.L, "sigma": world.sigma, "lanes": world.lane_ids, "seed": world.seed}
    one, other = (BVDGLMUCB(world.dim, world.link, gamma=0.95, **told) for _ in range(2))
    for t in range(1, 61):
        choices = []
        for environment, policy in ((world, one), (game, other)):
            offer = environment.round(t)
            choice = policy.select(offer.arms, offer.valid)
            policy.update(offer.arms[[0, 1, 2], choice], environment.play(offer, choice).reward)
            choices.append(choice.tolist())
        assert choices[0] == choices[1]


def test_without_gymnasium_the_extra_is_named() -> None:
    code = "import sys; sys.modules['gymnasium'] = None; import windvane.environments; print('fine')\n"
    for last, name in ((code, ""), (code + "import windvane.environments.gymnasium", "gymnasium")):
        settings_ = {"PYTHONPATH": str(SOURCE), "WINDVANE_QUIET": "1"}
        done = subprocess.run([sys.executable, "-c", last], env=settings_, capture_output=True, text=True, check=False)
        assert done.stdout == "fine\n", done.stderr
        if name:
            message = "ModuleNotFoundError: gymnasium is missing; install it with: pip install 'windvane[gymnasium]'"
            assert done.stderr.splitlines()[-1] == message
