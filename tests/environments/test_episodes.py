"""Gymnasium environments of other people as lanes: rewards by hand, episodes, seeds, and errors with their place."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from mypy import api

from support.refusals import rejects
from windvane import POLICIES, AdaptiveGLMUCB
from windvane.environments import AnyEnvironment
from windvane.environments.gymnasium import GymnasiumEnvironment

ROOT = Path(__file__).parents[2]
FEATURES = np.array([[0.6, 0.8], [-0.6, 0.8], [0.0, 0.5]])


class Signals(gymnasium.Env):
    """Actions 5, 6, 7. Action 5 + s earns 1 where s is the signal, the others 0.25; after 3 steps an episode ends.

    The first signal of an episode is drawn, and the signal then goes 0, 1, 2, 0, 1, ... The observation is the signal.
    """

    action_space, observation_space = spaces.Discrete(3, start=5), spaces.Discrete(3)

    def __init__(self, **changes: Any) -> None:
        self.changes, self.is_closed = changes, False  # values that take the place of the right ones

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.signal, self.steps = int(self.np_random.integers(3)), 0
        return self.observe()

    def observe(self) -> tuple[Any, dict[str, Any]]:
        return self.changes.get("observation", self.signal), self.changes.get("info", {})

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        reward = 1.0 if action == 5 + self.signal else 0.25
        self.signal, self.steps = (self.signal + 1) % 3, self.steps + 1
        observation, info = self.observe()
        return observation, self.changes.get("reward", reward), self.steps == 3, False, info

    def close(self) -> None:
        self.is_closed = True


def arms_of(signal: int) -> np.ndarray:
    """The features of the arms, which depend on the signal."""
    return np.roll(FEATURES, signal, axis=0)


def make_game(make: Any = Signals, **changes: Any) -> GymnasiumEnvironment:
    return GymnasiumEnvironment(make, **{"horizon": 9, "arms": arms_of} | changes)


def first_signals(seed: int, count: int) -> list[int]:
    """The first signals of the episodes of an environment with this seed, drawn as Gymnasium does."""
    rng, _ = gymnasium.utils.seeding.np_random(seed)
    return [int(rng.integers(3)) for _ in range(count)]


def test_rewards_arms_and_episodes_are_those_of_the_environment() -> None:
    ids, seed = [4, 0, 4], 7
    game = make_game(lanes=ids, seed=seed)
    starts = np.array([first_signals(seed * 2**32 + lane, 3) for lane in ids])
    everyone = np.arange(3)
    for t in range(1, 10):
        offer = game.round(t)
        signals = (starts[:, (t - 1) // 3] + (t - 1) % 3) % 3
        np.testing.assert_array_equal(offer.arms, [arms_of(signal) for signal in signals])
        assert (offer.t, offer.valid) == (t, None)
        assert np.isnan(offer.theta).all()
        assert np.isnan(offer.means).all()
        assert offer.best.tolist() == [1.0] * 3
        choice = np.array([t % 3, 0, signals[2]])
        outcome = game.play(offer, choice)
        np.testing.assert_array_equal(outcome.reward, np.where(choice == signals, 1.0, 0.25))
        np.testing.assert_array_equal(outcome.mean, outcome.reward)
        assert offer.arms[everyone, choice].shape == (3, 2)


def test_lanes_together_are_lanes_alone() -> None:
    together = make_game(lanes=[8, 3])
    alone = [make_game(lanes=[lane]) for lane in (8, 3)]
    for t in range(1, 10):
        offer = together.round(t)
        shown = [game.round(t).arms[0] for game in alone]
        rewards = [game.play(game.round(t), [t % 3]).reward[0] for game in alone]
        for place, game in enumerate(alone):
            np.testing.assert_array_equal(shown[place], offer.arms[place])
            assert game.lane_ids.tolist() == [[8], [3]][place]
        np.testing.assert_array_equal(together.play(offer, [t % 3] * 2).reward, rewards)


def test_a_policy_learns_it() -> None:
    """The features of the arm that wins are always the same, so the mean reward nears 1; by chance it is 0.5."""
    game = make_game(horizon=600, lanes=2, link="identity")
    told = {"link": game.link, "S": game.S, "L": game.L, "sigma": game.sigma, "lanes": game.lane_ids}
    policy, total = AdaptiveGLMUCB(game.dim, **told), np.zeros(2)
    for t in range(1, 601):
        offer = game.round(t)
        choice = policy.select(offer.arms, offer.valid)
        reward = game.play(offer, choice).reward
        policy.update(offer.arms[[0, 1], choice], reward)
        total += reward * (t > 300)
    assert (total / 300 > 0.9).all()


@pytest.mark.parametrize(
    ("observation", "info", "valid"),
    [
        (FEATURES, {}, None), (FEATURES.tolist(), {}, None), (FEATURES.astype(np.float32), {}, None),
        ({"arms": FEATURES}, {}, None), ({"arms": FEATURES, "valid": np.ones(3, dtype=np.int8)}, {}, None),
        ({"arms": FEATURES, "valid": np.array([0, 1, 1], dtype=np.int8)}, {}, [0, 1, 1]),
        ({"arms": FEATURES, "action_mask": [True, False, True]}, {"action_mask": [1, 1, 0]}, [1, 0, 1]),
        (FEATURES, {"action_mask": np.array([1.0, 1.0, 0.0])}, [1, 1, 0]),
        ({"arms": np.diag([np.nan, 1, 1]), "valid": [0, 1, 1]}, {}, [0, 1, 1]),  # what is absent may be anything
        ({"arms": [[9, 9, 9], [0, 0, 1], [0, 1, 0]]}, {"action_mask": [0, 1, 1]}, [0, 1, 1]),
    ],
)  # fmt: skip
def test_ways_to_show_arms(observation: Any, info: dict[str, Any], valid: list[int] | None) -> None:
    game = make_game(lambda: Signals(observation=observation, info=info), arms=None)
    offer = game.round(1)
    arms = observation["arms"] if isinstance(observation, dict) else observation
    np.testing.assert_allclose(offer.arms[0], np.asarray(arms, dtype=float), rtol=1e-7)
    assert (None if offer.valid is None else offer.valid[0].astype(int).tolist()) == valid
    if valid is not None:
        with rejects("choice"):
            game.play(offer, [valid.index(0)])
        game.play(offer, [valid.index(1)])


def test_arms_in_single_precision_can_be_played() -> None:
    """Rounded to single precision, a vector of norm 1 may be a little longer."""
    shown = FEATURES.astype(np.float32)
    assert np.linalg.norm(shown.astype(float), axis=1).max() > 1 + 1e-8
    game = make_game(lambda: Signals(observation=shown), arms=None)
    offer = game.round(1)
    np.testing.assert_allclose(np.linalg.norm(offer.arms[0], axis=1), [1, 1, 0.5], rtol=1e-15)
    policy = AdaptiveGLMUCB(2, L=game.L)
    choice = policy.select(offer.arms)
    policy.update(offer.arms[[0], choice], game.play(offer, choice).reward)
    assert (shown == FEATURES.astype(np.float32)).all()


def test_rounds_are_played_in_order() -> None:
    game = make_game()
    first = game.round(1)
    assert game.round(1) is first  # nothing has happened
    for t in (2, 9):
        with rejects("t", value=t, expected="round 1"):
            game.round(t)
    for t in (0, 10, 1.0, None):
        with rejects("t", value=t):
            game.round(t)
    with rejects("choice"):
        game.play(first, [3])
    game.play(first, [0])
    with rejects("offer", value=1, expected="round 2"):
        game.play(first, [0])
    with rejects("t", value=1):
        game.round(1)
    for t in range(2, 10):
        game.play(game.round(t), [0])
    with rejects("t", value=9, expected="no round, because all were played"):
        game.round(9)


@pytest.mark.parametrize(
    ("argument", "where", "changes"),
    [
        ("make", "lane 0, round 1", {"observation": 1}), ("make", "lane 0, round 1", {"observation": {"a": 1}}),
        ("make", "lane 0, round 1", {"observation": FEATURES[:2]}), ("make", "lane 0, round 1", {"observation": "up"}),
        ("make", "lane 0, round 1", {"observation": np.empty((3, 0))}),
        ("make", "lane 0, round 1", {"observation": [[1.0], [1.0, 2.0], [0.0]]}),
        ("L", "lane 0, round 1, arm 1", {"observation": [[0.0], [1.1], [2.0]]}),
        ("L", "lane 0, round 1, arm 2", {"observation": [[0.0], [1.0], [np.nan]]}),
        ("L", "lane 0, round 1, arm 0", {"observation": [[1e200], [1.0], [0.0]]}),
        ("make", "lane 0, round 1", {"observation": {"arms": FEATURES, "valid": [1, 1]}}),
        ("make", "lane 0, round 1", {"observation": FEATURES, "info": {"action_mask": [0, 0, 0]}}),
        ("make", "lane 0, round 1", {"observation": FEATURES, "info": {"action_mask": [2, 0, 1]}}),
        ("make", "lane 0, round 1", {"observation": FEATURES, "info": {"action_mask": "all"}}),
        ("reward_range", "lane 0, round 1", {"observation": FEATURES, "reward": 1.01}),
        ("reward_range", "lane 0, round 1", {"observation": FEATURES, "reward": -0.5}),
        ("reward_range", "lane 0, round 1", {"observation": FEATURES, "reward": np.nan}),
        ("reward_range", "lane 0, round 1", {"observation": FEATURES, "reward": "1"}),
    ],
)  # fmt: skip
def test_wrong_environments_are_refused_with_the_place(argument: str, where: str, changes: dict[str, Any]) -> None:
    made: list[Signals] = []
    with rejects(argument, where=where):
        game = make_game(lambda: made.append(Signals(**changes)) or made[-1], arms=None)
        game.play(game.round(1), [0])
    assert all(env.is_closed for env in made) or argument == "reward_range"


def test_an_error_names_a_later_lane_and_round() -> None:
    def arms(signal: int) -> Any:
        return arms_of(signal) * (2.0 if next(calls) == 4 else 1.0)

    calls = iter(range(99))  # one call to learn dim, then one for each of two lanes in each round
    game = make_game(arms=arms, lanes=2)
    game.play(game.round(1), [0, 0])
    with rejects("L", value=1.0, where="lane 1, round 2, arm 0", got="an arm of norm 2"):
        game.round(2)


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("make", {"make": 3}), ("make", {"make": lambda: 3}), ("arms", {"arms": 3}),
        ("arms", {"arms": lambda _: [[0.0]]}), ("arms", {"arms": lambda _: None}), ("horizon", {"horizon": 0}),
        ("lanes", {"lanes": 0}), ("seed", {"seed": -1}), ("S", {"S": 0}), ("L", {"L": -1}), ("link", {"link": "logit"}),
        ("drift", {"drift": -1}), ("switches", {"switches": 0.5}), ("sigma", {"sigma": 0}),
        ("reward_range", {"reward_range": (1, 0)}), ("reward_range", {"reward_range": 1}),
        ("reward_range", {"reward_range": (0, np.inf)}), ("reward_range", {"reward_range": (0, 2)}),
        ("reward_range", {"reward_range": (-1, 1)}), ("reward_range", {"reward_range": (0, 1), "sigma": 0.25}),
    ],
)  # fmt: skip
def test_refused_arguments_are_named(argument: str, changes: dict[str, Any]) -> None:
    with rejects(argument):
        make_game(**changes)


def test_other_refusals() -> None:
    env = Signals()
    with rejects("make", got="the same one twice", where="lane 1"):
        make_game(lambda: env, lanes=2)
    assert env.is_closed
    wide = Signals()
    wide.action_space = spaces.Discrete(4)
    envs = iter([Signals(), wide])
    with rejects("make", got="4", where="lane 1"):
        make_game(lambda: next(envs), lanes=2)
    wide.action_space = spaces.Box(0.0, 1.0)
    with rejects("make", where="lane 0"):
        make_game(lambda: wide)
    with rejects("truth"):
        POLICIES["Oracle"](2, truth=make_game().means).select(FEATURES[None])


@pytest.mark.parametrize(
    ("given", "sigma", "reward_range"),
    [
        ({}, 0.5, (0, 1)), ({"sigma": 0.4}, 0.4, (0, 0.8)), ({"reward_range": (0.2, 1)}, 0.5, (0.2, 1)),
        ({"link": "identity", "reward_range": (-3, 1)}, 2.0, (-3, 1)),
        ({"link": "identity", "reward_range": (-3, 1), "sigma": 0.1}, 0.1, (-3, 1)),
        ({"link": "poisson", "reward_range": [0, 20]}, 10.0, (0, 20)),
    ],
)  # fmt: skip
def test_what_policies_are_told(given: dict[str, Any], sigma: float, reward_range: tuple[float, float]) -> None:
    game = make_game(**given, S=1.5, lanes=2)
    assert (game.sigma, game.reward_range) == (sigma, reward_range)
    assert game.round(1).best.tolist() == [reward_range[1]] * 2
    assert (game.variation.tolist(), game.switches.tolist()) == ([3.0, 3.0], [1, 1])
    told = make_game(drift=0.7, switches=4)
    assert (told.variation.tolist(), told.switches.tolist()) == ([0.7], [4])
    assert (game.has_theta, game.delay, game.orthogonal, game.delays(1)) == (False, None, False, None)
    assert "Signals" in repr(game)
    for name in (name for name in vars(AnyEnvironment) if not name.startswith("_")):
        assert hasattr(game, name)


def test_a_type_checker_accepts_every_environment(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(
        "from windvane.environments import AnyEnvironment, Environment, LabelledStream\n"
        "from windvane.environments.gymnasium import GymnasiumEnvironment\n"
        "def f(a: Environment, b: LabelledStream, c: GymnasiumEnvironment) -> list[AnyEnvironment]: return [a, b, c]\n"
        "def g(a: AnyEnvironment) -> Environment: return a\n"
    )
    with contextlib.chdir(ROOT):  # where mypy's settings and its cache are
        out, err, _ = api.run([str(user)])
    assert err == ""
    assert [line.split(":")[1] for line in out.splitlines() if ": error: " in line] == ["4"]
