"""Learning before the timeout: the weights are right in expectation at every look, and the estimates they need are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_clicks import AT_TIMEOUT, EARLY, Rates, fast, simulate, static

from support.agents import LIVE, NOON, arm_sets, assert_same_policy, build_agent, required_settings
from windvane import Agent
from windvane.agent import delays
from windvane.agent.delays import DelayModel

TIMEOUT = 100


def build(learn: str = "early", **more) -> Agent:
    timeout = {"reward_timeout": TIMEOUT, "default_reward": 0.0, "learn": learn}
    return Agent(**{"features": {"arms": ["a", "b"]}} | timeout | more)


def live(agent: Agent, rounds: range, rate: float = 0.5, seed: int = 0) -> list:
    """Rewards of 1 with probability ``rate``, after delays that are uniform over the first half of the timeout."""
    luck = np.random.default_rng(seed)
    clicked, late, decisions = luck.random(2000) < rate, luck.integers(TIMEOUT // 2, size=2000), []
    for i in rounds:
        for j in range(max(0, i - TIMEOUT), i):
            if clicked[j] and i - 1 - j == late[j] and agent.core.is_pending(str(j)):
                agent.reward(str(j), 1.0, now=NOON + i - 0.5)
        decisions.append(agent.decide(id=str(i), now=NOON + i))
    return decisions


@settings(max_examples=200)
@given(
    p=st.floats(0.01, 0.95),
    shares=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8, unique=True).map(sorted),
)
def test_the_expected_score_is_zero_at_every_look(p: float, shares: list[float]) -> None:
    """At the true mean p of 0-1 rewards a reward scores 1 - p and a miss of weight n scores -n p. Rounding: 1e-12."""
    model = DelayModel()
    model.rate = lambda _: p  # type: ignore[method-assign]
    total = before = 0.0
    for arrived in [*shares, 1.0]:
        chance = p * (arrived - before) / (1.0 - p * before)  # of a reward since the look before
        weight = model.miss_weight("a", arrived, before)
        assert chance * (1.0 - p) == pytest.approx((1.0 - chance) * p * weight, rel=1e-9, abs=1e-12)
        total, before = total + weight, arrived
    assert total <= 1.0 + 1e-12
    assert weight == pytest.approx(1.0 - (shares[-1] if shares[-1] < 1.0 else 1.0), abs=1e-12)


@settings(max_examples=100)
@given(late=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=60), ages=st.lists(st.floats(0.0, 1.0), min_size=2))
def test_the_share_of_rewards_that_have_come_is_the_empirical_one(late: list[float], ages: list[float]) -> None:
    """Exact at the edges of cells but for fading, of at most 1 - (1 - 1/300)^60 = 0.18; increasing; 1 at the end."""
    model = DelayModel()
    for delay in late:
        model.add("a", delay)
    shares = [model.arrived("a", age) for age in sorted(ages)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(shares))
    assert model.arrived("a", 1.0) == pytest.approx(1.0)
    for edge in 2.0 ** (-0.5 * np.arange(0, delays.CELLS, 3)):
        assert model.arrived("a", edge) == pytest.approx(np.mean(np.array(late) <= edge), abs=0.19)


def test_looks_are_where_eighths_of_the_rewards_have_come() -> None:
    model = DelayModel()
    for _ in range(delays.LOOKS):
        for i in range(100):
            model.add("a", (i + 0.5) / 100)
        model.add("b", None)
    assert len(model.ages) == delays.LOOKS - 1
    assert model.ages == sorted(model.ages)
    for look, age in enumerate(model.ages, 1):
        assert model.arrived("new", age) >= look / delays.LOOKS * (1 - 1e-9)  # as for all arms together
    assert model.rate("b") < model.rate("new") < model.rate("a")


@pytest.mark.parametrize("policy", ["AdaptiveGLMUCB", "BVD-GLM-UCB", "D-LinUCB"])
def test_until_delays_are_known_it_is_learning_at_the_timeout(policy: str) -> None:
    agents = [build(learn, policy=policy, **required_settings(policy)) for learn in ("early", "at_timeout")]
    lives = [live(agent, range(TIMEOUT + 20)) for agent in agents]
    assert lives[0] == lives[1]
    assert_same_policy(*agents)


def test_predictions_are_right_while_rewards_are_on_their_way() -> None:
    """With a memory of 50 decisions and a timeout of 100, nearly all that counts is of open decisions."""
    truth, predicted = 0.3, {}
    for learn in ("early", "on_arrival"):
        agent = build(learn, policy="OnePassGLM", gamma=0.98, S=6.0)
        predicted[learn] = np.mean([decision.prediction for decision in live(agent, range(1500), truth)[600:]])
    assert predicted["early"] == pytest.approx(truth, rel=0.05)
    assert predicted["on_arrival"] > 2 * truth  # clicks are learned first


def test_it_goes_on_from_a_file_bit_for_bit() -> None:
    agent = build(epsilon=0.2, half_life=80)
    live(agent, range(400))
    assert len(agent.core.early.model.ages) == delays.LOOKS - 1
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.to_bytes() == agent.to_bytes()
    assert live(loaded, range(400, 700)) == live(agent, range(400, 700))
    assert loaded.to_bytes() == agent.to_bytes()


def test_a_reward_that_is_the_default_is_silence() -> None:
    silent, explicit = build(), build()
    for i in range(300):
        for agent in (silent, explicit):
            agent.decide(["a"], id=str(i), now=NOON + i)
            if i % 2:
                agent.reward(str(i), 1.0)
        if i % 4 == 0:
            explicit.reward(str(i), 0.0)
    assert_same_policy(silent, explicit)
    assert explicit.info().counts.rewards == silent.info().counts.rewards + 75


def test_dropped_decisions_say_nothing_about_delays() -> None:
    agent = build(max_pending=10)
    live(agent, range(200))
    assert agent.info().counts.dropped > 150
    assert not agent.core.early.model.table.any()


def test_a_changed_timeout_starts_the_estimates_again_and_other_ways_end_them() -> None:
    agent, start = build(), 400
    live(agent, range(start))
    early = agent.core.early
    agent.configure(epsilon=0.1)
    assert agent.core.early is early
    agent.configure(reward_timeout=TIMEOUT // 2)
    assert agent.core.early is not early
    for learn in ("at_timeout", "on_arrival", "early"):
        agent.configure(learn=learn)
        assert (agent.core.early is None) == (learn != "early")
        live(agent, range(start, start + 200))
        start += 200
    counts = agent.info().counts
    assert counts.settled + counts.pending + counts.held == counts.decisions


def test_rewards_that_always_come_are_no_certainty() -> None:
    """Then p is close to 1 and F is 1 long before the timeout; when rewards stop, a miss still has a weight."""
    agent = build()
    for i in range(600):
        decision = agent.decide(id=str(i), now=NOON + i)
        if i < 300:
            agent.reward(decision, 1.0)
        if i == 300:
            assert 0.9 < agent.core.early.model.rate("a") < 1.0
    assert agent.info().mean_reward == pytest.approx(300 / agent.info().counts.settled)
    assert agent.decide(id="last", now=NOON + 600).prediction < 0.5


def test_closed_decisions_do_not_pile_up_where_no_reward_ever_comes() -> None:
    agent = build(reward_timeout=10)
    live(agent, range(500), rate=0.0)
    assert sum(map(len, agent.core.early._queues)) <= 12


def test_a_changed_default_is_no_second_outcome() -> None:
    """A reward that was the default when it came is learned once in all, and as what it is."""
    agent = build(policy="D-LinUCB", gamma=1.0)
    for i in range(300):
        agent.reward(agent.decide(["a"], id=str(i), now=NOON + i), float(i % 2))
    agent.configure(default_reward=0.75)
    for i in range(300, 600):
        agent.decide(["b"], id=str(i), now=NOON + i)
    arm = agent.feature_names.index("a: 1")
    weight = 2.0 * (agent.policy.info().metric[0][arm, arm] - 1.0)  # x has 1/sqrt(2) for its arm; the ridge is 1
    assert 250 < weight <= 300 + 1e-6
    learned = np.sqrt(2.0) * agent.policy.info().b[0][arm]
    assert learned == pytest.approx(150)  # the rewards of 1, and nothing of the new default


def test_after_a_pause_looks_are_spread_over_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "MOST_LOOKS", 5)
    agent = build(reward_timeout="100s")
    live(agent, range(400))
    before = {pending.number: pending.looks for pending in agent.core.decisions}
    agent.decide(id="late", now=NOON + 470)
    after = {pending.number: pending.looks for pending in agent.core.decisions}
    assert 0 < sum(before.get(number, looks) != looks for number, looks in after.items()) <= 5


@pytest.mark.parametrize("name", LIVE)
def test_every_policy_takes_partial_misses(name: str) -> None:
    agent = build_agent(name, reward_timeout=10, default_reward=0.0, learn="early")
    for i, arms in enumerate(arm_sets(1, 90)):
        if i > 2 and i % 2:
            agent.reward(str(i - 2), 1.0)
        agent.decide(arms, id=str(i), now=NOON + i)
    assert np.isfinite(agent.theta).all()
    assert agent.info().counts.settled > 50


def measure_gain(world: Rates, seeds: int) -> tuple[float, float]:
    """Mean and standard error, over seeds, of the rate that early learning plays minus that of learning at the timeout.

    Runs with one seed share their luck, so differences are taken seed by seed, over the second half of 16 hours.
    """
    played = {
        way: np.array([simulate(way, world, 16.0, seed).played[12_000:].mean() for seed in range(seeds)])
        for way in (AT_TIMEOUT, EARLY)
    }
    gains = played[EARLY] - played[AT_TIMEOUT]
    return float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(seeds))


@pytest.mark.slow
def test_early_learning_wins_where_rates_change_every_two_timeouts() -> None:
    """Clicks come within minutes. At the timeout, an hour, the outcomes of an hour after a change are all of before.

    A learner that always plays the best arm it can know therefore plays 0.06 instead of 0.08 in every other hour, as
    the rates move on by one arm, and gains 0.01 of 0.07 by learning early. A real policy explores and takes time: the
    rates 0.06 and 0.08 differ by one standard error, sqrt(2 * 0.07 * 0.93 / n), after n = 325 plays of both, of 1,500
    decisions in an hour. So this says nothing about how much a policy gains, and only the sign is tested: a paired
    t-test at 1 % (3 degrees of freedom).
    """
    gain, se = measure_gain(fast, seeds=4)
    assert gain > 4.54 * se


@pytest.mark.slow
def test_early_learning_loses_nothing_where_rates_stay() -> None:
    """It learns the same outcomes sooner; no worse by a paired t-test at 1 % (2 degrees of freedom), and within 2 %."""
    gain, se = measure_gain(static, seeds=3)
    assert gain > -6.96 * se
    assert gain > -0.02 * 0.08
