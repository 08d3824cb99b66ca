"""Agent: the policy behind it, time, late rewards, priors, scaling, random play, bulk history, hostile callers."""

from __future__ import annotations

import inspect
import math
import threading
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windvane
from windvane import (
    POLICIES,
    Agent,
    ConflictingRewardError,
    CustomLink,
    DecisionError,
    DLinUCB,
    ExpiredDecisionError,
    Logistic,
    Policy,
    UnknownDecisionError,
    theory,
)
from windvane.agent.waiting import REMEMBERED
from windvane.agent.times import TICK, seconds
from windvane.policies._skeleton import Skeleton
from worlds import ball

NAN, INF = float("nan"), float("inf")
NOON = 1_700_000_000.0
RED = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}
LIVE = {name: cls for name, cls in POLICIES.items() if not cls.needs_truth}
ANEW = [
    LIVE[name] for name in ("BOB", "BOB-BVD-GLM-UCB", "MASTER-OFUL", "MASTER-GLM-UCB")
]  # they begin again by themselves


def needed(cls: type[Policy]) -> dict:
    """What a policy must be told, and no more."""
    taken = inspect.signature(cls).parameters
    told = {"horizon": 100} if "horizon" in taken else {}
    return told | {name: 1.0 for name in ("drift", "switches") if name in taken}


def as_policy(cls: type[Policy], **given) -> Policy:
    """``cls`` as an agent builds it."""
    taken = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in given.items() if name in taken})


def arm_sets(seed: int, rounds: int, K: int = 4, dim: int = 2) -> np.ndarray:
    return ball(np.random.default_rng(seed), (rounds, K), dim)


def refuses(agent: Agent, match: str, call, error: type[Exception] = ValueError) -> None:
    """``call`` raises one line that begins like ``match``, and nothing of the agent has changed."""
    before = agent.to_bytes()
    with pytest.raises(error, match=rf"^{match}") as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert agent.to_bytes() == before


# --- the agent is the policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIVE)
def test_choices_are_those_of_the_policy_driven_by_hand(name: str) -> None:
    """Choices and state, bit for bit, with every other reward one decision late."""
    told = needed(LIVE[name]) | {"S": 1.5, "seed": 5}
    agent, policy = Agent(dim=2, policy=name, **told), as_policy(LIVE[name], dim=2, L=1.0, sigma=0.5, **told)
    rng = np.random.default_rng(1)
    late = None
    for arms in arm_sets(0, 40):
        decision = agent.decide({f"arm {i}": x for i, x in enumerate(arms)})
        round_, index = policy.t, int(policy.select(arms[None])[0])
        assert (decision.index, decision.arm) == (index, f"arm {index}")
        reward = float(rng.random() < 0.5)
        if late is None:
            late = (decision, arms[index], round_, reward)
            continue
        agent.reward(decision, reward)
        policy.update(arms[None, index], reward, round=round_)
        agent.reward(late[0].id, late[3])
        policy.update(late[1][None], late[3], round=late[2])
        late = None
    mine, his = agent.policy.state(), policy.state()
    assert mine.keys() == his.keys()
    for entry in mine:
        assert mine[entry].tobytes() == his[entry].tobytes(), entry


def test_the_default_is_the_adaptive_policy() -> None:
    agent = Agent(dim=3)
    assert agent.policy.name == "AdaptiveGLMUCB"
    assert agent.policy.S == 5.0
    assert agent.policy.link.name == "logistic"
    assert Agent(dim=3, policy="GLM-UCB").policy.S == 1.0


def test_a_class_of_ones_own_and_its_settings() -> None:
    agent = Agent(dim=2, policy=Skeleton, gamma=0.9, bonus_scale=0.5)
    assert isinstance(agent.policy, Skeleton)
    assert agent.policy.bonus_scale.tolist() == [0.5]


def test_a_constructor_with_any_keywords() -> None:
    class Open(DLinUCB):
        def __init__(self, dim: int, **settings) -> None:
            super().__init__(dim, gamma=0.9, **settings)

    assert Agent(dim=2, policy=Open, delta=0.5).policy.delta.tolist() == [0.5]


def test_seeds_decide_all_that_is_random() -> None:
    """Ties and random play; not the ids."""
    arms = np.zeros((5, 2))

    def played(seed: int) -> list[int]:
        agent = Agent(dim=2, policy="OFUL", randomize=0.5, seed=seed)
        return [agent.decide(arms).index for _ in range(60)]

    assert played(1) == played(1)
    assert played(1) != played(2)


# --- forgetting ----------------------------------------------------------------------------------------------------


def by_hand(x: np.ndarray, rewards: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """lam I + sum w x x', and sum w r x."""
    return np.eye(x.shape[1]) + (x * weights[:, None]).T @ x, (x * weights[:, None]).T @ rewards


@pytest.mark.parametrize(("half_life", "scale"), [("10s", 10.0), ("2d", 172_800.0), ("1h30m", 5400.0)])
def test_forgetting_by_the_clock_is_a_weighted_sum(half_life: str, scale: float) -> None:
    """V = lam I + sum 2^(-age/half_life) x x', whatever the gaps, and in whatever order the rewards come."""
    rng = np.random.default_rng(3)
    x = ball(rng, (30,), 3)
    times = NOON + np.cumsum(rng.exponential(0.4 * scale, 30))
    rewards = rng.normal(size=30)
    agent = Agent(dim=3, policy="D-LinUCB", half_life=half_life)
    ids = [agent.decide(row[None], now=at).id for row, at in zip(x, times, strict=True)]
    for i in rng.permutation(30):
        agent.reward(ids[i], rewards[i])
    V, b = by_hand(x, rewards, 0.5 ** ((times[-1] - times) / scale))
    np.testing.assert_allclose(agent.policy.V[0], V, rtol=1e-5)
    np.testing.assert_allclose(agent.policy.b[0], b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(agent.theta, np.linalg.solve(V, b), rtol=1e-4, atol=1e-5)
    assert agent.memory == pytest.approx(scale / math.log(2), rel=1e-5)


def test_many_decisions_within_a_moment_hold_the_clock_up_by_ticks_only() -> None:
    """1000 decisions at one time are as if made within 1000 ticks; an hour later that is made up for."""
    agent = Agent(dim=1, policy="D-LinUCB", half_life="1h")
    first = agent.decide([[1.0]], now=NOON)
    for _ in range(999):
        agent.decide([[1.0]], now=NOON)
    agent.decide([[0.0]], now=NOON + 3600)
    agent.reward(first, 1.0)
    assert agent.policy.b[0, 0] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("told", [{"half_life": 7.0}, {"gamma": 0.5 ** (1 / 7)}])
def test_forgetting_by_decisions_is_a_weighted_sum(told: dict) -> None:
    rng = np.random.default_rng(4)
    x, rewards = ball(rng, (40,), 2), rng.normal(size=40)
    agent = Agent(dim=2, policy="D-LinUCB", **told)
    ids = [agent.decide(row[None]).id for row in x]  # many decisions before any reward
    for i in rng.permutation(40):
        agent.reward(ids[i], rewards[i])
    V, b = by_hand(x, rewards, 0.5 ** (np.arange(40)[::-1] / 7.0))
    np.testing.assert_allclose(agent.policy.V[0], V, rtol=1e-12)
    np.testing.assert_allclose(agent.policy.b[0], b, rtol=1e-11, atol=1e-13)


def test_the_time_of_a_reward_does_not_count() -> None:
    """The clock is the decision's: a reward told a year later, or at no time at all, is no older."""
    agents = [Agent(dim=1, policy="D-LinUCB", half_life="1h") for _ in range(3)]
    for agent, now in zip(agents, (NOON, NOON + 3e7, None), strict=True):
        first = agent.decide([[1.0]], now=NOON)
        agent.reward(first, 1.0, now=now)
        agent.decide([[1.0]], now=NOON + 3600)
        assert agent.policy.b[0, 0] == pytest.approx(0.5, rel=1e-6)


def test_drift_and_horizon_give_the_discount_of_theory() -> None:
    gamma = theory.discount(horizon=1000, drift=2.0, dim=2)
    assert Agent(dim=2, policy="D-LinUCB", drift=2.0, horizon=1000).policy.gamma[0] == gamma
    adaptive = Agent(dim=2, drift=2.0, horizon=1000)  # takes neither: a memory of its own
    assert adaptive.policy.gamma[0] == pytest.approx(gamma)
    assert adaptive.drift_estimate() is None


def test_the_adaptive_policy_keeps_to_a_memory_it_is_told() -> None:
    told, free = Agent(dim=2, half_life=10), Agent(dim=2)
    assert told.policy.gamma[0] == pytest.approx(0.5**0.1)
    assert told.memory == pytest.approx(1 / (1 - 0.5**0.1))
    assert told.drift_estimate() is None
    drift = free.drift_estimate()
    assert drift is not None
    assert drift.verdict == "too little data to tell"


def test_memory_of_windows_and_of_those_that_never_forget() -> None:
    assert Agent(dim=2, policy="SW-LinUCB", window=30).memory == 30.0
    assert Agent(dim=2, policy="OFUL").memory == math.inf


@pytest.mark.parametrize(
    ("text", "length"),
    [("2d", 172_800.0), ("36h", 129_600.0), ("1h30m", 5400.0), ("250 ms", 0.25), ("1w 2d", 777_600.0), ("1.5s", 1.5)],
)
def test_durations(text: str, length: float) -> None:
    assert seconds("wait", text) == pytest.approx(length, rel=1e-15)


@pytest.mark.parametrize("text", ["", "d", "2", "2 days", "-1d", "1e3s", "0s", "1d!", "9" * 400 + "d", "0.001ms"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    for argument in ("half_life", "wait"):
        with pytest.raises(ValueError, match=rf"^{argument}="):
            Agent(dim=2, **{argument: text})


def test_datetimes_and_seconds_are_the_same_time() -> None:
    at = datetime(2024, 5, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    agent = Agent(dim=2)
    assert agent.decide(RED, now=at).time == at.timestamp() == 1714557600.0


def test_a_clock_that_goes_back_stands_still() -> None:
    agent = Agent(dim=1, policy="D-LinUCB", half_life="1h")
    agent.reward(agent.decide([[1.0]], now=NOON), 1.0)
    back = agent.decide([[1.0]], now=NOON - 5000.0)
    assert back.time == NOON
    assert agent.policy.b[0, 0] == pytest.approx(1.0, rel=1e-6)


# --- late rewards, and none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB", "SW-LinUCB"])
def test_the_order_of_rewards_does_not_matter(name: str) -> None:
    """For policies whose estimate is a function of the weighted sums; one arm at a time, so that choices agree."""
    told = needed(LIVE[name])
    rng = np.random.default_rng(6)
    x, rewards = ball(rng, (60,), 2), rng.integers(0, 2, 60).astype(float)
    prompt, late = Agent(dim=2, policy=name, **told), Agent(dim=2, policy=name, **told)
    waiting = []
    for i in range(60):
        prompt.reward(prompt.decide(x[i, None]).id, rewards[i])
        waiting.append(late.decide(x[i, None]).id)
    for i in rng.permutation(60):
        assert late.reward(waiting[i], rewards[i])
    np.testing.assert_allclose(late.theta, prompt.theta, rtol=1e-6, atol=1e-7)
    assert late.rewards == prompt.rewards == 60
    assert late.reward_total == prompt.reward_total


def test_rewards_that_repeat_contradict_or_belong_nowhere() -> None:
    agent = Agent(dim=2)
    decision = agent.decide(RED)
    assert agent.waits(decision.id)
    assert agent.reward(decision.id, 1.0) is True
    assert not agent.waits(decision.id)
    before = agent.to_bytes()
    assert agent.reward(decision.id, 1) is False
    assert agent.to_bytes() == before
    refuses(agent, "decision=", lambda: agent.reward(decision.id, 0.0), ConflictingRewardError)
    refuses(agent, "decision=", lambda: agent.reward("nobody", 0.0), UnknownDecisionError)
    assert issubclass(ConflictingRewardError, DecisionError)
    assert issubclass(DecisionError, ValueError)


def test_closed_decisions_are_known_for_a_while() -> None:
    agent = Agent(dim=2, policy="UniformRandom")
    for i in range(REMEMBERED + 1):
        agent.decide([[0.1, 0.1]], id=f"d{i}", now=NOON)
        agent.reward(f"d{i}", 1.0)
    assert agent.reward("d1", 1.0) is False
    refuses(agent, "decision='d0'", lambda: agent.reward("d0", 1.0), UnknownDecisionError)


def test_wait_in_decisions_to_the_boundary() -> None:
    """wait=2: the reward may come until two more decisions have been made, not three."""
    for more, in_time in ((2, True), (3, False)):
        agent = Agent(dim=2, wait=2)
        first = agent.decide(RED, id="first")
        for _ in range(more):
            agent.decide(RED)
        if in_time:
            assert agent.reward(first, 1.0)
        else:
            refuses(agent, "decision='first'", lambda: agent.reward("first", 1.0), ExpiredDecisionError)
            assert agent.expire() == ["first"]
            assert agent.expired == 1
            refuses(agent, "decision='first'", lambda: agent.reward("first", 1.0), ExpiredDecisionError)


def test_wait_by_the_clock_to_the_boundary() -> None:
    agent = Agent(dim=2, wait="1m")
    agent.decide(RED, now=NOON, id="a")
    agent.decide(RED, now=NOON + 0.5, id="b")
    assert agent.expire(NOON + 60) == []
    assert agent.reward("a", 1.0, now=NOON + 60)
    refuses(agent, "decision='b'", lambda: agent.reward("b", 1.0, now=NOON + 60.75), ExpiredDecisionError)
    assert agent.expire(NOON + 60.75) == ["b"]
    assert agent.waiting == 0


def test_no_wait_means_for_ever() -> None:
    agent = Agent(dim=2)
    agent.decide(RED, now=0.0, id="old")
    agent.decide(RED, now=1e10)
    assert agent.reward("old", 1.0, now=1e10)


@pytest.mark.parametrize(("wait", "after"), [(3, 5), ("4s", 5), ("3.5s", 4)])
def test_a_missing_reward_counts_as_the_default(wait: object, after: int) -> None:
    """As a hand-driven policy that is told the default when the wait is over, before the decision that notices."""
    agent, policy = Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait=wait, missing=0.25), DLinUCB(2, gamma=0.9)
    played: list[tuple[np.ndarray, float]] = []
    for i, arms in enumerate(arm_sets(2, 12)):
        decision = agent.decide(arms, now=NOON + i)
        if i >= after:
            x, round_ = played[i - after]
            policy.update(x, 0.25, round=round_)
        round_, index = policy.t, int(policy.select(arms[None])[0])
        assert decision.index == index
        played.append((arms[None, index], round_))
    np.testing.assert_array_equal(agent.policy.b, policy.b)
    assert agent.expired == 12 - after
    assert agent.waiting == after
    assert agent.rewards == 0  # a default is no reward that came


def test_a_forgotten_decision_only_ages_the_past() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait=1)
    for _ in range(10):
        agent.decide(RED)
    np.testing.assert_array_equal(agent.policy.V[0], np.eye(2))
    assert agent.expired == 7  # as of when the last decision was asked for
    assert len(agent.expire()) == 1


def test_no_more_than_max_pending_wait() -> None:
    agent = Agent(dim=2, max_pending=3, missing=0.0)
    for i in range(10):
        agent.decide(RED, id=f"d{i}")
        assert agent.waiting <= 3
    assert [decision.id for decision in agent.pending] == ["d7", "d8", "d9"]
    assert agent.expired == 7
    assert agent.expire() == []
    assert agent.expire(room=2) == ["d7", "d8"]
    one = Agent(dim=2, max_pending=1)
    assert one.reward(one.decide(RED), 1.0)


def test_a_wait_may_change_while_it_runs() -> None:
    agent = Agent(dim=2)
    for i in range(6):
        agent.decide(RED, id=f"d{i}")
    agent.configure(max_pending=4, wait=4, missing=0.5)
    assert agent.configuration == {"wait": 4, "missing": 0.5, "max_pending": 4, "randomize": 0.0}
    assert agent.reward("d1", 1.0)  # d0 has waited for five decisions
    assert agent.expired == 1
    refuses(agent, "missing", lambda: agent.configure(randomize=0.5, missing=2.0))
    refuses(agent, "seed", lambda: agent.configure(seed=1))
    assert Agent.from_bytes(agent.to_bytes()).configuration == agent.configuration


# --- prior ---------------------------------------------------------------------------------------------------------


def test_a_prior_of_a_linear_model_in_closed_form() -> None:
    """theta = prior g^n (w L^2 + lam) / (w g^n L^2 + lam): observations of weight w at L e_i, n rounds ago, whose
    rewards make up for the ridge at first."""
    prior, L, w, g = np.array([0.5, -0.3, 0.2]), 2.0, 7.0, 0.9
    agent = Agent(dim=3, policy="D-LinUCB", gamma=g, L=L, prior=prior, prior_weight=w)
    np.testing.assert_allclose(agent.theta, prior, rtol=1e-12)
    for n in range(30):
        np.testing.assert_allclose(agent.theta, prior * g**n * (w * L**2 + 1.0) / (w * g**n * L**2 + 1.0), rtol=1e-12)
        agent.decide(np.zeros((1, 3)))


@pytest.mark.parametrize("name", sorted(name for name, cls in LIVE.items() if cls not in ANEW))
@pytest.mark.parametrize("weight", [0.1, 10.0])
def test_a_prior_is_where_the_estimate_begins(name: str, weight: float) -> None:
    """Whatever the ridge: also of a rate near 0, where the rewards that say so would lie below 0."""
    prior = [0.4, -0.9]
    agent = Agent(dim=2, policy=name, prior=prior, prior_weight=weight, **needed(LIVE[name]))
    np.testing.assert_allclose(agent.theta, prior, atol=1e-7)


def test_a_rare_click_as_a_prior() -> None:
    agent = Agent(dim=4, intercept=True, prior=[0, 0, 0, 0, -3])
    assert agent.decide([[0.0] * 4]).prediction == pytest.approx(1 / (1 + math.exp(3)), abs=1e-9)


def test_a_prior_beyond_the_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^prior: expects rewards of 2\.718.*larger sigma"):
        Agent(dim=2, link="poisson", prior=[1, -0.5], S=2)
    np.testing.assert_allclose(Agent(dim=2, link="poisson", prior=[1, -0.5], S=2, sigma=2).theta, [1, -0.5], atol=1e-9)


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "GLM-UCB", "BVD-GLM-UCB", "OnePassGLM", "DetectGLMUCB", "OFUL"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_prior_decides_at_first_and_fades(name: str, intercept: bool) -> None:
    told = needed(LIVE[name]) | ({"gamma": 0.9} if "gamma" in inspect.signature(LIVE[name]).parameters else {})
    told = {key: value for key, value in told.items() if key == "gamma" or "gamma" not in told}
    prior = [0.8, -0.4, *[0.2] * intercept]
    x = np.array([0.6, 0.3])
    agent = Agent(dim=2, policy=name, intercept=intercept, prior=prior, prior_weight=2000.0, **told)
    z = float(x @ prior[:2]) + (0.2 if intercept else 0.0)
    expected = z if name == "OFUL" else 1.0 / (1.0 + math.exp(-z))
    first = agent.decide([x])
    assert first.prediction == pytest.approx(expected, abs=0.02)
    if "gamma" in told or name == "AdaptiveGLMUCB":  # where the past fades, rewards of 0 soon win
        agent.reward(first, 0.0)
        for _ in range(400):
            agent.reward(agent.decide([x]), 0.0)
        assert agent.decide([x]).prediction < expected - 0.1


@pytest.mark.parametrize("prior", [[0.1], [[0.1, 0.2]], [NAN, 0.0], [4.0, 4.0], "ab", ["a", "b"], [None, 1.0], 1.0])
def test_a_wrong_prior_is_named(prior: object) -> None:
    with pytest.raises(ValueError, match=r"^prior\b"):
        Agent(dim=2, prior=prior)


def test_policies_that_would_lose_a_prior_refuse_it() -> None:
    for name in (cls.name for cls in ANEW):
        with pytest.raises(ValueError, match=r"^prior: "):
            Agent(dim=2, policy=name, horizon=100, prior=[0.1, 0.1])
    with pytest.raises(ValueError, match=r"^prior_weight="):
        Agent(dim=2, prior=[0.1, 0.1], prior_weight=0.0)


# --- scaling -------------------------------------------------------------------------------------------------------


def test_scaling_is_fitted_on_the_first_history_and_then_frozen() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal([5.0, -300.0, 0.1], [2.0, 100.0, 0.0], (50, 3))  # the last does not vary
    X[:, 2] = 0.1
    agent = Agent(dim=3, policy="D-LinUCB", gamma=0.99, scaling="fit", intercept=True)
    refuses(agent, 'scaling="fit"', lambda: agent.decide(X[:2]))
    rewards = rng.normal(size=50)
    assert agent.update_many(X, rewards) == 50
    deviation = np.array([X[:, 0].std(), X[:, 1].std(), 1.0])
    z = (X - X.mean(axis=0)) / deviation
    z /= 1.25 * np.linalg.norm(z, axis=1).max()
    by_policy = DLinUCB(4, gamma=0.99, L=math.hypot(1.0, 1.0))
    for row, reward in zip(z, rewards, strict=True):
        round_ = by_policy.t
        by_policy.advance(1.0)
        by_policy.update([[*row, 1.0]], reward, round=round_)
    np.testing.assert_allclose(agent.theta, by_policy.theta_hat[0], rtol=1e-9, atol=1e-12)
    center = agent._scaling.center.copy()
    agent.update_many(X[:10] + 1.0, rewards[:10])
    np.testing.assert_array_equal(agent._scaling.center, center)
    agent.decide(X[:4])
    refuses(agent, r"arms\[1\]: its features have norm .* L=1; .*clip=True", lambda: agent.decide([X[0], X[0] * 100]))


def test_declared_scaling_intercept_and_clip() -> None:
    center, spread = [1.0, 2.0], [2.0, 4.0]
    agent = Agent(dim=2, policy="OFUL", scaling=(center, spread), intercept=True, clip=True)
    for raw, seen in (([2.0, 2.0], [0.5, 0.0, 1.0]), ([1.0, 10.0], [0.0, 1.0, 1.0])):  # the second was twice as long
        decision = agent.decide([raw])
        np.testing.assert_allclose(agent._waiting.pending[decision.id].x, seen, rtol=1e-12)
    assert agent.feature_names == ["x0", "x1", "1"]
    assert pytest.approx(math.sqrt(2.0)) == agent.policy.L
    same = Agent(dim=2, scaling={"center": center, "spread": spread})
    assert same._scaling.center.tolist() == center


@pytest.mark.parametrize(
    "scaling",
    ["fix", (1, 2), ([0.0, 0.0],), ([0.0, 0.0], [1.0, 0.0]), ([NAN, 0.0], [1.0, 1.0]), 5, {"center": 1}, [[1], [1]]],
)
def test_a_wrong_scaling_is_named(scaling: object) -> None:
    with pytest.raises(ValueError, match=r"^scaling"):
        Agent(dim=2, scaling=scaling)


@pytest.mark.parametrize("X", [[[0.1, 0.1]], [[0.1, 0.1]] * 3, [[NAN, 1.0], [1.0, 1.0]], [[1e308, -1e308]] * 2])
def test_what_cannot_be_fitted_on_is_refused(X: list) -> None:
    agent = Agent(dim=2, scaling="fit")
    refuses(agent, "X", lambda: agent.update_many(X, [0.5] * len(X)))
    assert agent._scaling.to_fit


def test_a_vector_that_is_too_long_says_what_to_do() -> None:
    agent = Agent(dim=2)
    refuses(agent, r"arms\['red'\]: .*larger L", lambda: agent.decide({"blue": [0.1, 0.1], "red": [1.0, 1.0]}))
    for huge in (1e200, 1e308, INF, -INF, NAN):
        refuses(agent, r"arms\['red'\]: .*finite", lambda huge=huge: agent.decide({"red": [huge, 0.1]}))
    shorter = Agent(dim=2, clip=True).decide({"red": [300.0, 400.0]})
    assert shorter.arm == "red"


# --- randomized play and off-policy evaluation ---------------------------------------------------------------------


def test_the_log_of_a_randomized_agent_can_be_evaluated_off_policy() -> None:
    """Inverse propensity scoring is unbiased: each arm's value, and 1 for rewards of 1, to four standard errors."""
    arms, truth, n = np.array([[0.9, 0.0], [0.0, 0.9], [-0.6, 0.0]]), np.array([0.8, 0.3, 0.1]), 4000
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.99, randomize=0.3, seed=11)
    rng = np.random.default_rng(12)
    index, propensity, reward, explored, preferred = [], [], [], [], []
    for _ in range(n):
        decision = agent.decide(arms)
        reward.append(float(rng.random() < truth[decision.index]))
        agent.reward(decision, reward[-1])
        index.append(decision.index)
        propensity.append(decision.propensity)
        explored.append(decision.explored)
        preferred.append(decision.preferred)
    index, propensity, reward = np.array(index), np.array(propensity), np.array(reward)
    explored, preferred = np.array(explored), np.array(preferred)
    np.testing.assert_allclose(propensity, np.where(index == preferred, 0.8, 0.1))
    for arm in range(3):
        weight = (index == arm) / propensity
        for what, value in ((weight * reward, truth[arm]), (weight, 1.0)):
            assert abs(what.mean() - value) < 4 * what.std(ddof=1) / math.sqrt(n)
    assert abs(explored.mean() - 0.3) < 4 * math.sqrt(0.21 / n)
    counts = np.bincount(index[explored], minlength=3)
    expected = counts.sum() / 3
    assert ((counts - expected) ** 2 / expected).sum() < 13.8  # chi-square, 2 degrees of freedom, 0.1 %
    assert (index[~explored] == preferred[~explored]).all()


def test_playing_at_random_does_not_hide_the_reward() -> None:
    """What is learnt is the arm that was played, not the one preferred."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=1.0, randomize=1.0)
    V = np.eye(2)
    for _ in range(30):
        decision = agent.decide(RED)
        assert decision.propensity == 0.5
        assert decision.explored
        x = np.array(RED[decision.arm])
        V += np.outer(x, x)
        agent.reward(decision, 0.5)
    np.testing.assert_allclose(agent.policy.V[0], V, rtol=1e-12)


def test_without_randomizing_there_is_no_propensity() -> None:
    decision = Agent(dim=2).decide(RED)
    assert decision.propensity is None
    assert not decision.explored
    assert Agent(dim=2, randomize=0.2).decide({"only": [0.1, 0.1]}).propensity == pytest.approx(1.0)


# --- why -----------------------------------------------------------------------------------------------------------


def test_an_explanation_is_the_arithmetic_of_the_policy() -> None:
    """D-LinUCB's prediction and bonus, computed from its sums before the decision."""
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.95)
    for arms in arm_sets(4, 30):
        V, G, theta = agent.policy.V[0], agent.policy.V_tilde[0], agent.theta
        beta = float(agent.policy.radius()[0])
        A = np.linalg.inv(V) @ G @ np.linalg.inv(V)
        means, bonus = arms @ theta, beta * np.sqrt(np.einsum("ki,ij,kj->k", arms, A, arms))
        decision = agent.decide(arms)
        why = agent.explain(decision)
        i = decision.index
        assert why.prediction == pytest.approx(means[i], abs=1e-12)
        assert why.bonus == pytest.approx(bonus[i], rel=1e-9)
        assert why.score == pytest.approx((means + bonus).max(), rel=1e-12)
        rivals = np.delete(means + bonus, i)
        assert why.rival_score == pytest.approx(rivals.max(), rel=1e-12)
        assert why.rival == int(np.argsort(means + bonus)[-2])
        assert why.projected is None
        assert agent.explain(decision.id) == why
        agent.reward(decision, float(arms[i, 0] > 0))
    refuses(agent, "decision=", lambda: agent.explain(decision.id), UnknownDecisionError)
    text = str(why)
    assert repr(why.rival) in text
    assert f"{why.prediction:.4g}" in text


@pytest.mark.parametrize("name", ["BVD-GLM-UCB", "GLM-UCB", "AdaptiveGLMUCB"])
def test_an_explanation_tells_whether_the_estimate_was_projected(name: str) -> None:
    """Never while theta_hat is 0, and soon once all rewards are 1 and S is small."""
    agent = Agent(dim=2, policy=name, S=0.1, **needed(LIVE[name]))
    assert agent.explain(agent.decide(RED)).projected is False
    for _ in range(300):
        agent.reward(agent.decide(RED), 1.0)
    last = agent.decide(RED)
    if name != "AdaptiveGLMUCB":
        assert np.linalg.norm(agent.theta) > 0.1
    assert last.projected is True
    assert "projected" in str(agent.explain(last))
    assert 0.0 < agent.info()["projected_share"] < 1.0


def test_an_explanation_of_random_play_says_so() -> None:
    agent = Agent(dim=2, randomize=1.0)
    assert "was played at random; the policy preferred" in str(agent.explain(agent.decide(RED)))


@pytest.mark.parametrize("name", LIVE)
def test_every_policy_can_be_explained_and_read(name: str) -> None:
    agent = Agent(dim=2, policy=name, **needed(LIVE[name]))
    for i in range(3):
        decision = agent.decide(RED)
        why = agent.explain(decision)
        assert math.isfinite(why.prediction)
        assert math.isfinite(why.bonus)
        assert str(why)
        agent.reward(decision, float(i == 1))
    info = agent.info()
    assert info["rewards"] == 3
    assert info["mean_reward"] == pytest.approx(1 / 3)
    assert list(info["theta"]) == ["x0", "x1"]
    assert name in repr(agent)


# --- bulk history --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinUCB", "BVD-GLM-UCB"])
def test_history_in_bulk_is_history_one_by_one(name: str) -> None:
    rng = np.random.default_rng(9)
    X, rewards, weights = ball(rng, (40,), 2), rng.random(40), rng.uniform(0.5, 2.0, 40)
    told = needed(LIVE[name]) | {"S": 1.0}
    bulk, single = Agent(dim=2, policy=name, **told), Agent(dim=2, policy=name, **told)
    assert bulk.update_many(X, rewards, weights=weights) == 40
    for i in range(40):
        assert single.update_many(X[i, None], rewards[i, None], weights=weights[i, None]) == 1
    assert bulk.to_bytes() == single.to_bytes()
    policy = as_policy(LIVE[name], dim=2, L=1.0, sigma=0.5, seed=0, **told)
    for x, reward, weight in zip(X, rewards, weights, strict=True):
        round_ = policy.t
        policy.advance(1.0)
        policy.update(x[None], reward, round=round_, weight=weight)
    np.testing.assert_array_equal(bulk.theta, policy.theta_hat[0])
    assert (bulk.decisions, bulk.rewards, bulk.history, bulk.mean_reward) == (0, 0, 40, None)


def test_a_history_with_one_bad_row_is_not_learnt_at_all() -> None:
    rng = np.random.default_rng(10)
    X, rewards, times = ball(rng, (100,), 2), rng.random(100), NOON + np.arange(100.0)
    agent = Agent(dim=2, half_life="1h")
    agent.update_many(X[:5], rewards[:5], times=times[:5] - 100)
    for argument, bad in (
        ("X", NAN),
        ("X", 3.0),
        ("rewards", 1.5),
        ("rewards", NAN),
        ("weights", -1.0),
        ("times", NAN),
    ):
        given = {"X": X.copy(), "rewards": rewards.copy(), "times": times.copy(), "weights": np.ones(100)}
        given[argument][57] = bad
        refuses(agent, rf"{argument}\[57\]", lambda given=given: agent.update_many(**given))
    assert agent.update_many(X, rewards, times=times) == 100


def test_a_history_that_is_interrupted_is_not_learnt_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(dim=2, policy="GLM-UCB")
    agent.decide(RED)
    before, calls, update = agent.to_bytes(), [0], Policy.update

    def interrupted(self, *arguments, **keywords):
        calls[0] += 1
        if calls[0] == 20:
            raise KeyboardInterrupt
        return update(self, *arguments, **keywords)

    monkeypatch.setattr(Policy, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.update_many(np.full((50, 2), 0.3), np.ones(50))
    monkeypatch.undo()
    assert agent.to_bytes() == before


def test_history_by_the_clock_counts_by_its_age() -> None:
    """Rows in any order; then a live decision, an hour after the last of them."""
    rng = np.random.default_rng(13)
    X, rewards = ball(rng, (30,), 2), rng.normal(size=30)
    times = NOON + rng.uniform(0, 36_000, 30)
    agent = Agent(dim=2, policy="D-LinUCB", half_life="2h")
    refuses(agent, "times=None", lambda: agent.update_many(X, rewards))
    assert agent.expire() == []  # asking for the time must not make the history old
    agent.update_many(X, rewards, times=[datetime.fromtimestamp(at, UTC) for at in times])
    agent.decide(X[:1], now=times.max() + 3600)
    V, b = by_hand(X, rewards, 0.5 ** ((times.max() + 3600 - times) / 7200))
    np.testing.assert_allclose(agent.policy.V[0], V, rtol=1e-5)
    np.testing.assert_allclose(agent.policy.b[0], b, rtol=1e-5, atol=1e-6)
    refuses(agent, r"times\[0\]", lambda: agent.update_many(X[:1], rewards[:1], times=times[:1]))


def test_times_put_history_in_order_where_decisions_count() -> None:
    rng = np.random.default_rng(14)
    X, rewards = ball(rng, (20,), 2), rng.random(20)
    shuffled = rng.permutation(20)
    ordered, mixed = Agent(dim=2, gamma=0.9), Agent(dim=2, gamma=0.9)
    ordered.update_many(X, rewards)
    mixed.update_many(X[shuffled], rewards[shuffled], times=NOON + shuffled)
    np.testing.assert_array_equal(ordered.theta, mixed.theta)


@pytest.mark.parametrize("told", [{"wait": "1h"}, {"half_life": "1h"}], ids=str)
def test_history_must_not_come_after_what_it_was_before(told: dict) -> None:
    """It would count as newer than the decisions that followed it."""
    agent = Agent(dim=2, **told)
    agent.decide(RED, now=NOON, id="first")
    before = agent.to_bytes()
    with pytest.raises(ValueError, match=r"^times\[1\]=.*must not lie before what the agent has seen"):
        agent.update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=[NOON + 1, NOON - 1e5])
    assert agent.to_bytes() == before
    assert agent.decide(RED, now=NOON - 10).time == NOON


@pytest.mark.parametrize("told", [{"wait": "1h"}, {"half_life": "1h"}], ids=str)
def test_history_of_the_future_is_refused(told: dict) -> None:
    """Time never goes back: a row from the year 2255 would stop it for good."""
    agent = Agent(dim=2, **told)
    before = agent.to_bytes()
    with pytest.raises(ValueError, match=r"^times\[1\]=9000000000\.0: lies in the future"):
        agent.update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=[1.0, 9e9])
    with pytest.raises(ValueError, match=r"^times\[0\]=.*lies in the future; it is 1000\.0 now"):
        agent.update_many([[0.1, 0.1]], [1.0], times=[1000.5], now=1000.0)
    assert agent.to_bytes() == before
    assert agent.update_many([[0.1, 0.1]], [1.0], times=[9e9], now=9e9) == 1


def test_what_a_missing_reward_counts_as_is_in_the_mean() -> None:
    """10 clicks of 100 decisions, told when there is one: a rate of 10 %, not of 100 %."""
    agent = Agent(dim=2, wait=1, missing=0.0)
    for i in range(103):
        decision = agent.decide(RED)
        if i % 10 == 0 and i < 100:
            agent.reward(decision, 1.0)
    assert (agent.rewards, agent.defaulted, agent.waiting) == (10, 90, 3)
    assert agent.mean_reward == agent.info()["mean_reward"] == pytest.approx(0.1)
    agent.update_many([[0.1, 0.1]] * 50, [1.0] * 50)
    assert agent.mean_reward == pytest.approx(0.1)  # history was decided by others


def test_expiring_in_parts_is_expiring() -> None:
    whole, parts = (Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait="1h", missing=0.5) for _ in range(2))
    for agent in (whole, parts):
        for i in range(10):
            agent.decide(RED, now=NOON + i, id=str(i))
    gone = whole.expire(now=NOON + 3606.5)
    assert gone == [str(i) for i in range(7)]
    slices = [parts.expire(now=NOON + 3606.5, most=3) for _ in range(4)]
    assert slices == [gone[:3], gone[3:6], gone[6:], []]
    assert whole.to_bytes() == parts.to_bytes()
    with pytest.raises(ValueError, match=r"^most\b"):
        parts.expire(most=0)


def test_history_may_come_between_decisions() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9)
    first = agent.decide(RED)
    agent.update_many([[0.1, 0.1]] * 4, [0.0] * 4)
    agent.reward(first, 1.0)
    np.testing.assert_allclose(agent.policy.b[0], 0.9**4 * np.array(RED[first.arm]), rtol=1e-12)


@pytest.mark.parametrize(
    ("match", "given"),
    [
        ("X", {}),
        ("X", {"X": [[0.1, 0.1]], "rewards": [1.0], "arms": ["a"]}),
        ("X", {"X": [[0.1]], "rewards": [1.0]}),
        ("X", {"X": "ab", "rewards": [1.0]}),
        ("X", {"X": [["0.1", "0.2"]], "rewards": [1.0]}),
        ("X", {"X": [], "rewards": []}),
        ("X", {"X": np.array([["0.1", 0.2]], dtype=object), "rewards": [1.0]}),
        ("rewards", {"X": [[0.1, 0.1]]}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": 1.0}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": ["1"]}),
        ("rewards", {"X": [[0.1, 0.1]], "rewards": None}),
        ("weights", {"X": [[0.1, 0.1]], "rewards": [1.0], "weights": [1.0, 2.0]}),
        ("weights", {"X": [[0.1, 0.1]], "rewards": [1.0], "weights": [1e10]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": 5}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": [1.0, 2.0]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": ["noon"]}),
        ("times", {"X": [[0.1, 0.1]], "rewards": [1.0], "times": [datetime(2024, 1, 1)]}),
    ],
)
def test_wrong_history_is_named(match: str, given: dict) -> None:
    agent = Agent(dim=2)
    refuses(agent, match, lambda: agent.update_many(**given))


# --- frames --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library: str) -> None:
    frames = pytest.importorskip(library)
    agent, plain = Agent(dim=2, policy="OFUL"), Agent(dim=2, policy="OFUL")
    columns = {"arm": ["red", "blue"], "size": [0.6, 0.2], "price": [0.1, 0.7]}
    for _ in range(5):
        decision = agent.decide(frames.DataFrame(columns))
        assert decision.arm == plain.decide(RED, id=decision.id).arm
        agent.reward(decision, 1.0)
        plain.reward(decision.id, 1.0)
    assert agent.decide(frames.DataFrame({"size": [0.9, 0.0], "price": [0.0, 0.0]})).arm == 0
    X = frames.DataFrame({"size": [0.1, 0.2], "price": [0.3, 0.4]})
    agent.update_many(X, frames.Series([1.0, 0.0]))
    plain.decide([[0.9, 0.0], [0.0, 0.0]])
    plain.update_many([[0.1, 0.3], [0.2, 0.4]], [1.0, 0.0])
    np.testing.assert_array_equal(agent.theta, plain.theta)
    twice = frames.DataFrame({"arm": ["red", "red"], "a": [0.1, 0.2], "b": [0.1, 0.2]})
    refuses(agent, "arms: 'red' is there twice", lambda: agent.decide(twice))
    refuses(agent, "arms", lambda: agent.decide(frames.DataFrame({"arm": ["red"], "a": [0.1]})))
    refuses(agent, "arms", lambda: agent.decide(frames.DataFrame({"arm": ["red"], "a": [0.1], "b": ["x"]})))
    refuses(agent, r"arms", lambda: agent.decide(frames.DataFrame({"a": [0.1, None], "b": [0.1, 0.2]})))
    refuses(agent, "arms: must offer", lambda: agent.decide(frames.DataFrame({"arm": [], "a": [], "b": []})))


def test_frames_of_pandas_with_an_index_or_numbered_columns() -> None:
    pandas = pytest.importorskip("pandas")
    agent = Agent(dim=2, policy="OFUL")
    assert agent.decide(pandas.DataFrame(RED).T).arm in ("red", "blue")  # columns 0 and 1
    agent.update_many(pandas.DataFrame([[0.1, 0.2]]), [1.0])
    double = pandas.DataFrame([[0.1, 0.2]], columns=["a", "a"])
    refuses(agent, "arms: has the column 'a' twice", lambda: agent.decide(double))
    stamps = pandas.Series(pandas.to_datetime(["2024-01-01", "2024-01-02"], utc=True))
    assert Agent(dim=2, half_life="1d").update_many([[0.1, 0.1]] * 2, [1.0, 0.0], times=stamps) == 2


# --- threads -------------------------------------------------------------------------------------------------------


def test_threads_take_turns() -> None:
    """8 threads decide and reward; others read, save and give history. Counts add up, and nothing raises."""
    agent = Agent(dim=2, policy="GLM-UCB", wait=10_000, missing=0.0)
    failures: list[BaseException] = []
    done = threading.Event()

    def decide(seed: int) -> None:
        rng, mine = np.random.default_rng(seed), []
        for _ in range(50):
            mine.append(agent.decide(ball(rng, (3,), 2)))
            if rng.random() < 0.8:
                agent.reward(mine.pop(int(rng.integers(len(mine)))), float(rng.integers(2)))

    def read() -> None:
        while not done.is_set():
            info = agent.info()
            assert info["rewards"] <= info["decisions"]
            assert len(agent.pending) >= 0
            Agent.from_bytes(agent.to_bytes())

    def teach() -> None:
        for _ in range(3):
            agent.update_many([[0.1, 0.2]] * 10, [1.0] * 10)

    def caught(work, *arguments) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=caught, args=(decide, seed)) for seed in range(8)]
    workers += [threading.Thread(target=caught, args=(teach,))]
    reader = threading.Thread(target=caught, args=(read,))
    for thread in (*workers, reader):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    reader.join()
    assert not failures
    assert agent.decisions == 400
    assert agent.rewards + agent.waiting == 400
    assert agent.history == 30
    assert agent.policy.t == 1 + 400 + 30
    assert int(agent.policy.estimator.remembered[0]) == agent.rewards + agent.history
    assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


# --- refused at construction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "given"),
    [
        ("dim", {"dim": None}),
        ("dim", {"dim": 0}),
        ("dim", {"dim": 2.0}),
        ("dim", {"dim": True}),
        ("dim", {"dim": "2"}),
        ("dim", {"features": {"shared": ["a"]}}),
        ("intercept", {"dim": None, "features": {"shared": ["a"]}, "clip": True}),
        ("features", {"dim": None, "features": 5}),
        ("features", {"dim": None, "features": {"fields": []}}),
        ("intercept", {"intercept": "yes"}),
        ("clip", {"clip": 1}),
        ("link", {"link": "logit"}),
        ("link", {"link": 3}),
        ("link", {"link": "poisson", "policy": "OFUL"}),
        ("link", {"link": "nonsense", "policy": "OFUL"}),
        ("policy", {"policy": "LinUCB"}),
        ("policy", {"policy": 3}),
        ("policy", {"policy": int}),
        ("policy", {"policy": Policy}),
        ("policy", {"policy": "Oracle"}),
        ("S", {"S": -1.0}),
        ("S", {"S": "x", "policy": "UniformRandom"}),
        ("L", {"L": 0.0}),
        ("sigma", {"sigma": NAN}),
        ("sigma", {"sigma": None, "policy": "UniformRandom"}),
        ("seed", {"seed": -1}),
        ("lanes", {"lanes": 2}),
        ("truth", {"truth": 2}),
        ("nonsense", {"nonsense": 2}),
        ("memories", {"memories": [10.0], "half_life": 5}),
        ("half_life=5 and gamma=0.9", {"half_life": 5, "gamma": 0.9}),
        ("half_life", {"half_life": 0}),
        ("half_life", {"half_life": 1e-9}),
        ("half_life", {"half_life": NAN}),
        ("half_life", {"half_life": timedelta(days=2)}),
        ("half_life", {"half_life": "2d", "policy": "OFUL"}),
        ("half_life", {"half_life": 9, "policy": "SW-LinUCB", "window": 5}),
        ("gamma", {"gamma": 1.5}),
        ("gamma", {"gamma": 0.0}),
        ("drift", {"drift": 1.0}),
        ("horizon", {"horizon": 100}),
        ("horizon", {"policy": "BOB"}),
        ("gamma", {"policy": "BVD-GLM-UCB"}),
        ("prior_weight", {"prior_weight": {}}),
        ("prior", {"prior": (None, np.ma.masked)}),
        ("wait", {"wait": -1}),
        ("wait", {"wait": []}),
        ("missing", {"missing": 1.5}),
        ("missing", {"missing": NAN}),
        ("max_pending", {"max_pending": 0}),
        ("randomize", {"randomize": 1.5}),
        ("randomize", {"randomize": [0.1]}),
        ("randomize", {"randomize": np.array([0.1])}),
    ],
)
def test_wrong_settings_are_named(match: str, given: dict) -> None:
    with pytest.raises(ValueError, match=rf"^{match}\b") as caught:
        Agent(**{"dim": 2} | given)
    assert "\n" not in str(caught.value)


# --- hostile callers -----------------------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"


NO_ARMS = [
    None, 5, "ab", b"ab", object(), {}, [], np.zeros((0, 2)), [0.1, 0.2], np.zeros(2), np.zeros((1, 3)),
    np.zeros((1, 2, 1)), [["a", "b"]], [[1j, 0.0]], [[0.1, 0.1], [0.1]], [[10**400, 0.1]], iter([[0.1, 0.1]]),
    {"a": [0.1]}, {"a": None}, {"a": "ab"}, {"a": ["0.1", "0.2"]}, {"a": [0.1, NAN]}, {"a": {}}, {"a", "b"},
    {True: [0.1, 0.1]}, {None: [0.1, 0.1]}, {1.5: [0.1, 0.1]}, {(1, 2): [0.1, 0.1]}, {np.bool_(True): [0.1, 0.1]},
    {2**63: [0.1, 0.1]}, {10**5000: [0.1, 0.1]}, {b"a": [0.1, 0.1]}, np.ma.masked_array([[0.1, 0.1]], mask=True),
    {"a": np.ma.masked_array([0.1, 0.1], mask=True)}, {"a": np.array(["0.1", 0.2], object)},
    np.array([["0.1", 0.2]], dtype=object), np.array([["2024-01-01"] * 2], dtype="datetime64[s]"),
]  # fmt: skip


@pytest.mark.parametrize("arms", NO_ARMS, ids=[str(i) for i in range(len(NO_ARMS))])
def test_what_are_no_arms_is_refused(arms: object) -> None:
    agent = Agent(dim=2, half_life="1d", wait=1)
    for _ in range(3):
        agent.decide(RED, now=NOON)
    refuses(agent, "arms", lambda: agent.decide(arms, now=NOON + 1))


@pytest.mark.parametrize("name", ["", "red", "naïve ☃", "\ud800", "a\nb", "x" * 1000, 0, -5, 2**63 - 1, np.int8(3)])
def test_names_of_arms(name: object) -> None:
    agent = Agent(dim=2)
    decision = agent.decide({name: [0.1, 0.1]})
    assert decision.arm == name
    assert type(decision.arm) in (str, int)
    assert Agent.from_bytes(agent.to_bytes()).pending == [decision]


def test_members_of_an_enumeration_are_the_texts_they_hold() -> None:
    agent = Agent(features={"arms": ["red", "blue"]})
    decision = agent.decide([Colour.RED])
    assert type(decision.arm) is str
    assert agent.decide({Colour.RED: {}}).arm == decision.arm == "red"


NO_TIMES = [
    "noon", NAN, INF, 1e11, [NOON], np.array([NOON]), b"1", 1j, {}, np.datetime64("2024-01-01"),
    datetime(2024, 1, 1), datetime.max.replace(tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("now", NO_TIMES, ids=repr)
def test_what_is_no_time_is_refused(now: object) -> None:
    agent = Agent(dim=2, half_life="1d", wait="1d")
    decision = agent.decide(RED, now=NOON)
    refuses(agent, "now", lambda: agent.decide(RED, now=now))
    refuses(agent, "now", lambda: agent.reward(decision, 1.0, now=now))
    refuses(agent, "now", lambda: agent.expire(now))


def test_ids_are_texts_of_one_decision_only() -> None:
    agent = Agent(dim=2, wait=1)
    agent.decide(RED, id="mine")
    for bad in ("mine", "", 5, None.__class__, [], b"mine", 1.5, True):
        refuses(agent, "id=", lambda bad=bad: agent.decide(RED, id=bad))
    agent.reward("mine", 1.0)
    refuses(agent, "id='mine'", lambda: agent.decide(RED, id="mine"))
    for bad in (5, None, [], {}, b"mine", 1.5, object()):
        refuses(agent, "decision=", lambda bad=bad: agent.reward(bad, 1.0))
        refuses(agent, "decision=", lambda bad=bad: agent.explain(bad))


def test_rewards_are_numbers_in_their_range() -> None:
    agent = Agent(dim=2)
    decision = agent.decide(RED)
    for bad in ("1", None, NAN, INF, -0.1, 1.1, 1j, [1.0], np.array([1.0]), b"1", {}, np.ma.masked, 10**400, object()):
        refuses(agent, "value=", lambda bad=bad: agent.reward(decision, bad))
    for good in (True, np.float32(0.5), np.int64(1), np.array(0.5), 0):
        assert agent.reward(agent.decide(RED), good)
    linear = Agent(dim=2, policy="OFUL")
    unbounded = linear.decide(RED)
    for bad in (1e101, -1e101, 1e308):
        refuses(linear, "value=", lambda bad=bad: linear.reward(unbounded, bad))
        refuses(linear, r"rewards\[0\]", lambda bad=bad: linear.update_many([[0.1, 0.1]], [bad]))
    assert linear.reward(unbounded, -1e100)


def test_many_arms() -> None:
    arms = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 2))
    agent = Agent(dim=2, policy="OFUL", randomize=0.5)
    for _ in range(4):
        decision = agent.decide(arms)
        assert 0 <= decision.index < 20_000


def test_what_the_caller_changes_later_changes_nothing() -> None:
    vector = np.array([0.6, 0.1])
    agent = Agent(dim=2, policy="OFUL")
    decision = agent.decide({"a": vector})
    vector[:] = 99.0
    agent.reward(decision, 1.0)
    np.testing.assert_allclose(agent.policy.b[0], [0.6, 0.1])


def test_a_link_that_raises_leaves_the_agent_alone() -> None:
    armed, logistic = [False], Logistic()

    def mean(z: np.ndarray) -> np.ndarray:
        if armed[0]:
            raise ValueError("out of order")
        return logistic.mean(z)

    agent = Agent(dim=2, link=CustomLink("own", mean, logistic.slope), policy="GLM-UCB", wait=1)
    for i in range(3):
        agent.decide(RED, id=f"d{i}")
    armed[0] = True
    refuses(agent, "out of order", lambda: agent.reward("d2", 1.0))
    refuses(agent, "out of order", lambda: agent.update_many([[0.1, 0.1]] * 3, [1.0] * 3))
    armed[0] = False
    assert agent.reward("d2", 1.0)


numbers = st.one_of(
    st.floats(), st.integers(-(10**30), 10**30), st.booleans(), st.sampled_from([np.float32(0.5), np.int8(1), 10**400])
)
odd = st.one_of(
    st.none(),
    numbers,
    st.text(max_size=5),
    st.binary(max_size=3),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([object(), 1j, np.array(["a"]), np.array([[0.1, 0.2]]), np.array([]), np.nan, Ellipsis]),
    st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=2), st.lists(st.floats(-1, 1), min_size=2, max_size=2), max_size=3),
)
garbage = st.recursive(
    odd,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.none(), st.floats()), inner, max_size=3),
    ),
    max_leaves=6,
)
MIXED = {"shared": {"age": (0, 100)}, "per_arm": {"price": [0, 10]}, "by_arm": {"plan": ["a", "b"]}, "arms": ["r", "g"]}


def survives(agent: Agent, call) -> None:
    """It works, or it raises one line of ValueError and nothing has changed."""
    before, refused = agent.to_bytes(), None
    try:
        call()
    except ValueError as error:
        refused = str(error)
    after = agent.to_bytes()
    if refused is not None:
        assert "\n" not in refused
        assert after == before


@pytest.mark.parametrize("told", [{"dim": 2, "half_life": "1d", "wait": 2}, {"features": MIXED, "wait": "1d"}])
@settings(max_examples=100)
@given(data=st.data())
def test_garbage_works_or_is_refused(told: dict, data: st.DataObject) -> None:
    agent = Agent(**told)
    fields = {"context": {"age": 3, "plan": "a"}} if agent.features else {}
    arms = {"r": {"price": 1}, "g": {"price": 2}} if agent.features else RED
    for i in range(4):
        agent.decide(arms, now=NOON, id=f"d{i}", **fields)
    draw = data.draw
    survives(agent, lambda: agent.decide(draw(garbage), **fields))
    survives(agent, lambda: agent.decide(arms, context=draw(garbage), id=draw(garbage)))
    survives(agent, lambda: agent.decide(arms, now=draw(odd), **fields))
    survives(agent, lambda: agent.decide({"r": draw(garbage)}, **fields))
    survives(agent, lambda: agent.reward(draw(st.one_of(st.just("d3"), garbage)), draw(garbage), now=draw(odd)))
    survives(agent, lambda: agent.explain(draw(garbage)))
    survives(agent, lambda: agent.expire(draw(odd), room=draw(st.one_of(st.just(0), odd))))
    history = draw(
        st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("X", "rewards", "contexts", "arms", "times", "weights"), garbage),
        )
    )
    survives(agent, lambda: agent.update_many(**history))
    survives(agent, lambda: agent.configure(**draw(st.dictionaries(st.sampled_from(["wait", "missing", "x"]), odd))))


SETTINGS = [
    *("link", "policy", "half_life", "gamma", "horizon", "drift", "S", "L", "sigma", "prior", "prior_weight", "wait"),
    *("missing", "max_pending", "scaling", "intercept", "clip", "randomize", "seed", "features", "memories", "lam"),
]


@settings(max_examples=200)
@given(told=st.dictionaries(st.sampled_from(SETTINGS), garbage, max_size=2))
def test_garbage_as_settings_works_or_is_refused(told: dict) -> None:
    try:
        agent = Agent(dim=2, **told)
    except ValueError as error:
        agent, refused = None, str(error)
    if agent is None:
        assert "\n" not in refused
    else:
        assert Agent.from_bytes(agent.to_bytes()).to_bytes() == agent.to_bytes()


def test_ticks_are_what_the_documentation_says() -> None:
    assert TICK == 1e-5
    assert windvane.Agent is Agent
