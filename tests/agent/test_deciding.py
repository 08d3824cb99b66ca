"""Agent: the policy behind it, time, late rewards, random play, explanations."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from policy_skeleton import Skeleton

from support.agents import LIVE, NOON, RED, arm_sets, as_policy, by_hand, needed, refuses, refuses_decision
from support.refusals import rejects
from support.worlds import ball
from windvane import (
    Agent,
    ConflictingRewardError,
    DecisionError,
    DLinUCB,
    ExpiredDecisionError,
    UnknownDecisionError,
    theory,
)
from windvane.agent import Closing
from windvane.agent.times import seconds
from windvane.agent.waiting import REMEMBERED

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
    assert agent.policy.S is None  # the scale is learned
    np.testing.assert_array_equal(agent.policy.info().scales, [1.0, 8.0, 64.0])
    assert agent.policy.link.name == "logistic"
    np.testing.assert_array_equal(Agent(dim=3, S=2.0).policy.info().scales, [2.0])
    assert Agent(dim=3, policy="GLM-UCB").policy.S == 1.0


def test_a_class_of_ones_own_and_its_settings() -> None:
    agent = Agent(dim=2, policy=Skeleton, gamma=0.9, bonus_scale=0.5)
    assert isinstance(agent.policy, Skeleton)
    assert agent.policy.bonus_scale == 0.5


def test_a_constructor_with_any_keywords() -> None:
    class Open(DLinUCB):
        def __init__(self, dim: int, **settings) -> None:
            super().__init__(dim, gamma=0.9, **settings)

    assert Agent(dim=2, policy=Open, delta=0.5).policy.delta == 0.5


def test_seeds_decide_all_that_is_random() -> None:
    """Ties and random play; not the ids."""
    arms = np.zeros((5, 2))

    def played(seed: int) -> list[int]:
        agent = Agent(dim=2, policy="OFUL", randomize=0.5, seed=seed)
        return [agent.decide(arms).index for _ in range(60)]

    assert played(1) == played(1)
    assert played(1) != played(2)


# --- forgetting ----------------------------------------------------------------------------------------------------


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
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=1e-5)
    np.testing.assert_allclose(agent.policy.info().b[0], b, rtol=1e-5, atol=1e-5)
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
    assert agent.policy.info().b[0, 0] == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("told", [{"half_life": 7.0}, {"gamma": 0.5 ** (1 / 7)}])
def test_forgetting_by_decisions_is_a_weighted_sum(told: dict) -> None:
    rng = np.random.default_rng(4)
    x, rewards = ball(rng, (40,), 2), rng.normal(size=40)
    agent = Agent(dim=2, policy="D-LinUCB", **told)
    ids = [agent.decide(row[None]).id for row in x]  # many decisions before any reward
    for i in rng.permutation(40):
        agent.reward(ids[i], rewards[i])
    V, b = by_hand(x, rewards, 0.5 ** (np.arange(40)[::-1] / 7.0))
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=1e-12)
    np.testing.assert_allclose(agent.policy.info().b[0], b, rtol=1e-11, atol=1e-13)


def test_the_time_of_a_reward_does_not_count() -> None:
    """The clock is the decision's: a reward told a year later, or at no time at all, is no older."""
    agents = [Agent(dim=1, policy="D-LinUCB", half_life="1h") for _ in range(3)]
    for agent, now in zip(agents, (NOON, NOON + 3e7, None), strict=True):
        first = agent.decide([[1.0]], now=NOON)
        agent.reward(first, 1.0, now=now)
        agent.decide([[1.0]], now=NOON + 3600)
        assert agent.policy.info().b[0, 0] == pytest.approx(0.5, rel=1e-6)


def test_drift_and_horizon_give_the_discount_of_theory() -> None:
    gamma = theory.discount(horizon=1000, drift=2.0, dim=2)
    assert Agent(dim=2, policy="D-LinUCB", drift=2.0, horizon=1000).policy.info().gamma[0] == gamma
    adaptive = Agent(dim=2, drift=2.0, horizon=1000)  # takes neither: a memory of its own
    assert adaptive.policy.info().gamma[0] == pytest.approx(gamma)
    assert adaptive.drift_estimate() is None


def test_the_adaptive_policy_keeps_to_a_memory_it_is_told() -> None:
    told, free = Agent(dim=2, half_life=10), Agent(dim=2)
    assert told.policy.info().gamma[0] == pytest.approx(0.5**0.1)
    assert told.memory == pytest.approx(1 / (1 - 0.5**0.1))
    for agent in (told, free):
        for i, arms in enumerate(arm_sets(9, 60)):
            agent.reward(agent.decide(arms), float(i % 2))
    assert told.policy.info().acting_memory[0] == pytest.approx(1 / (1 - 0.5**0.1))
    assert told.drift_estimate() is None
    assert free.policy.info().memories.size > 1
    drift = free.drift_estimate()
    assert drift is not None
    assert drift.verdict == "too little data to tell"


def test_the_memory_of_the_adaptive_policy_by_the_clock_is_longer_than_the_time_between_decisions() -> None:
    agent = Agent(dim=2, half_life="2d")
    for i in range(300):
        agent.reward(agent.decide(RED, now=NOON + 3600.0 * i), float(i % 2))
    assert 3600.0 < agent.memory < 3 * 86400.0


def test_the_scale_is_learned_where_forgetting_goes_by_the_clock() -> None:
    """2,000 rewards in 2,000 seconds, 2 % of them 1: they refute a scale of 64, as they do by decisions."""
    for half_life in (3600, "1h"):
        agent = Agent(dim=2, half_life=half_life)
        for i in range(2000):
            agent.reward(agent.decide({"a": [1.0, 0.0], "b": [0.0, 1.0]}, now=NOON + i), float(i % 50 == 0))
        assert agent.policy.info().weights[0, 0, 2] < 0.01, half_life


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
        with rejects(argument, value=text):
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
    assert agent.policy.info().b[0, 0] == pytest.approx(1.0, rel=1e-6)


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
    refuses_decision(agent, decision.id, lambda: agent.reward(decision.id, 0.0), ConflictingRewardError)
    refuses_decision(agent, "nobody", lambda: agent.reward("nobody", 0.0), UnknownDecisionError)
    assert issubclass(ConflictingRewardError, DecisionError)
    assert issubclass(DecisionError, ValueError)


def test_closed_decisions_are_known_for_a_while() -> None:
    agent = Agent(dim=2, policy="UniformRandom")
    for i in range(REMEMBERED + 1):
        agent.decide([[0.1, 0.1]], id=f"d{i}", now=NOON)
        agent.reward(f"d{i}", 1.0)
    assert agent.reward("d1", 1.0) is False
    refuses_decision(agent, "d0", lambda: agent.reward("d0", 1.0), UnknownDecisionError)


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
            refuses_decision(agent, "first", lambda: agent.reward("first", 1.0), ExpiredDecisionError)
            assert agent.expire() == [Closing("first", None)]
            assert agent.expired == 1
            refuses_decision(agent, "first", lambda: agent.reward("first", 1.0), ExpiredDecisionError)


def test_wait_by_the_clock_to_the_boundary() -> None:
    agent = Agent(dim=2, wait="1m")
    agent.decide(RED, now=NOON, id="a")
    agent.decide(RED, now=NOON + 0.5, id="b")
    assert agent.expire(NOON + 60) == []
    assert agent.reward("a", 1.0, now=NOON + 60)
    refuses_decision(agent, "b", lambda: agent.reward("b", 1.0, now=NOON + 60.75), ExpiredDecisionError)
    assert [closing.id for closing in agent.expire(NOON + 60.75)] == ["b"]
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
    np.testing.assert_array_equal(agent.policy.info().b, policy.info().b)
    assert agent.expired == 12 - after
    assert agent.waiting == after
    assert agent.rewards == 0  # a default is no reward that came


def test_a_forgotten_decision_only_ages_the_past() -> None:
    agent = Agent(dim=2, policy="D-LinUCB", gamma=0.9, wait=1)
    for _ in range(10):
        agent.decide(RED)
    np.testing.assert_array_equal(agent.policy.info().metric[0], np.eye(2))
    assert agent.expired == 7  # as of when the last decision was asked for
    assert len(agent.expire()) == 1


def test_no_more_than_max_pending_wait() -> None:
    """Beyond, the oldest are dropped and counted; nothing is learned from them, whatever is known of them."""
    agent = Agent(dim=2, max_pending=3, wait=100, missing=0.0)
    for i in range(10):
        agent.decide(RED, id=f"d{i}")
        agent.reward(f"d{i}", 1.0) if i % 2 else None
        assert agent.waiting + agent.held <= 3
    assert [decision.id for decision in agent.pending] == ["d8"]
    assert (agent.held, agent.dropped, agent.expired, agent.defaulted, agent.settled) == (2, 7, 0, 0, 0)
    assert agent.expire() == []
    assert agent.expire(room=2) == [Closing("d7", None, True, True), Closing("d8", None, False, True)]
    np.testing.assert_array_equal(agent.theta, Agent(dim=2).theta)
    one = Agent(dim=2, max_pending=1)
    assert one.reward(one.decide(RED), 1.0)


def test_a_wait_may_change_while_it_runs() -> None:
    agent = Agent(dim=2)
    for i in range(6):
        agent.decide(RED, id=f"d{i}")
    agent.configure(max_pending=4, wait=4, missing=0.5)
    assert agent.configuration == {
        "wait": 4, "missing": 0.5, "learn": None, "max_pending": 4, "randomize": 0.0,
    }  # fmt: skip
    assert agent.reward("d1", 1.0)  # d0 has waited for five decisions
    assert (agent.expired, agent.dropped) == (1, 1)
    refuses(agent, "missing", lambda: agent.configure(randomize=0.5, missing=2.0))
    refuses(agent, "seed", lambda: agent.configure(seed=1))
    assert Agent.from_bytes(agent.to_bytes()).configuration == agent.configuration


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
    np.testing.assert_allclose(agent.policy.info().metric[0], V, rtol=1e-12)


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
        V, G, theta = agent.policy.info().metric[0], agent.policy.info().squared_metric[0], agent.theta
        beta = float(agent.policy.compute_beta(agent.policy.info().theta_hat)[0])
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
    refuses_decision(agent, decision.id, lambda: agent.explain(decision.id), UnknownDecisionError)
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
    assert np.linalg.norm(agent.theta) > 0.1
    assert last.projected is True
    assert "the estimate was outside the ball of radius S" in str(agent.explain(last))
    assert 0.0 < agent.info()["projected_share"] < 1.0


def test_without_a_norm_bound_no_estimate_is_outside_of_it() -> None:
    agent = Agent(dim=2)
    for _ in range(300):
        agent.reward(agent.decide(RED), 1.0)
    last = agent.decide(RED)
    assert np.linalg.norm(agent.theta) > 1.0
    assert last.projected is None
    assert "radius S" not in str(agent.explain(last))
    assert agent.info()["projected_share"] == 0.0


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
