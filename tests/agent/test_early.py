"""Learning before the timeout: the weights are right in expectation at every look, and the estimates they need are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_clicks import AT_TIMEOUT, EARLY, fast, simulate

from support.agents import LIVE, NOON, arm_sets, needed, refuses
from support.refusals import rejects
from windvane import Agent
from windvane.agent import early
from windvane.agent.early import DelayModel

WAIT = 100


def build(learn: str = "early", **more) -> Agent:
    return Agent(**{"features": {"arms": ["a", "b"]}, "wait": WAIT, "missing": 0.0, "learn": learn} | more)


def live(agent: Agent, rounds: range, rate: float = 0.5, seed: int = 0) -> list:
    """Rewards of 1 with probability ``rate``, after delays that are uniform over the first half of the wait."""
    decisions = []
    for i in rounds:
        for j in range(max(0, i - WAIT), i):
            rng = np.random.default_rng([seed, j])
            if rng.random() < rate and i - 1 - j == rng.integers(WAIT // 2) and agent.waits(str(j)):
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
@given(delays=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=60), ages=st.lists(st.floats(0.0, 1.0), min_size=2))
def test_the_share_of_rewards_that_have_come_is_the_empirical_one(delays: list[float], ages: list[float]) -> None:
    """Exact at the edges of cells but for fading, of at most 1 - (1 - 1/300)^60 = 0.18; increasing; 1 at the end."""
    model = DelayModel()
    for delay in delays:
        model.add("a", delay)
    shares = [model.arrived("a", age) for age in sorted(ages)]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(shares))
    assert model.arrived("a", 1.0) == pytest.approx(1.0)
    for edge in 2.0 ** (-0.5 * np.arange(0, early.CELLS, 3)):
        assert model.arrived("a", edge) == pytest.approx(np.mean(np.array(delays) <= edge), abs=0.19)


def test_looks_are_where_eighths_of_the_rewards_have_come() -> None:
    model = DelayModel()
    for _ in range(early.LOOKS):
        for i in range(100):
            model.add("a", (i + 0.5) / 100)
        model.add("b", None)
    assert len(model.ages) == early.LOOKS - 1
    assert model.ages == sorted(model.ages)
    for look, age in enumerate(model.ages, 1):
        assert model.common.arrived(age) / model.common.known >= look / early.LOOKS * (1 - 1e-9)
    assert model.rate("b") < model.rate("new") < model.rate("a")


@pytest.mark.parametrize("policy", ["AdaptiveGLMUCB", "BVD-GLM-UCB", "D-LinUCB"])
def test_until_delays_are_known_it_is_learning_at_the_timeout(policy: str) -> None:
    both = [build(learn, policy=policy, **needed(LIVE[policy])) for learn in ("early", "at_timeout")]
    rounds = range(WAIT + 20)
    assert live(both[0], rounds) == live(both[1], rounds)
    states = [agent.policy.state() for agent in both]
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])


def test_predictions_are_right_while_rewards_are_on_their_way() -> None:
    """With a memory of 50 decisions and a wait of 100, nearly all that counts is of decisions that are still open."""
    truth = 0.3
    predicted = {}
    for learn in ("early", "on_arrival"):
        agent = build(learn, policy="OnePassGLM", gamma=0.98, S=6.0)
        predicted[learn] = np.mean([decision.prediction for decision in live(agent, range(1500), truth)[600:]])
    assert predicted["early"] == pytest.approx(truth, rel=0.05)
    assert predicted["on_arrival"] > 2 * truth  # clicks are learned first


def test_it_goes_on_from_a_file_bit_for_bit() -> None:
    agent = build(randomize=0.2, half_life=80)
    live(agent, range(400))
    assert agent.early is not None
    assert len(agent.early.model.ages) == early.LOOKS - 1
    loaded = Agent.from_bytes(agent.to_bytes())
    assert loaded.to_bytes() == agent.to_bytes()
    assert live(loaded, range(400, 700)) == live(agent, range(400, 700))
    assert loaded.to_bytes() == agent.to_bytes()


def test_a_reward_that_is_the_default_is_silence() -> None:
    silent, told = build(), build()
    for i in range(300):
        for agent in (silent, told):
            agent.decide(["a"], id=str(i), now=NOON + i)
            if i % 2:
                agent.reward(str(i), 1.0)
        if i % 4 == 0:
            told.reward(str(i), 0.0)
    for name, array in silent.policy.state().items():
        np.testing.assert_array_equal(array, told.policy.state()[name])
    assert told.rewards == silent.rewards + 75


def test_dropped_decisions_say_nothing_about_delays() -> None:
    agent = build(max_pending=10)
    live(agent, range(200))
    assert agent.dropped > 150
    assert agent.early is not None
    assert agent.early.model.common.counts.tolist() == [0.0, 0.0]


def test_a_changed_wait_starts_the_estimates_again_and_other_ways_end_them() -> None:
    agent = build()
    live(agent, range(400))
    before = agent.early
    agent.configure(randomize=0.1)
    assert agent.early is before
    agent.configure(wait=WAIT // 2)
    assert agent.early is not before
    agent.configure(learn="at_timeout")
    assert agent.early is None
    live(agent, range(400, 600))
    agent.configure(learn="on_arrival")
    live(agent, range(600, 700))
    agent.configure(learn="early")
    live(agent, range(700, 900))
    assert agent.settled + agent.waiting + agent.held == agent.decisions


def test_rewards_that_always_come_are_no_certainty() -> None:
    """Then p is close to 1 and F is 1 long before the timeout; when rewards stop, a miss still has a weight."""
    agent = build()
    for i in range(300):
        agent.reward(agent.decide(id=str(i), now=NOON + i), 1.0)
    assert agent.early is not None
    assert 0.9 < agent.early.model.rate("a") < 1.0
    for i in range(300, 600):
        agent.decide(id=str(i), now=NOON + i)
    assert agent.mean_reward == pytest.approx(300 / agent.settled)
    assert agent.decide(id="last", now=NOON + 600).prediction < 0.5


def test_closed_decisions_do_not_pile_up_where_no_reward_ever_comes() -> None:
    agent = build(wait=10)
    live(agent, range(500), rate=0.0)
    assert agent.early is not None
    assert sum(map(len, agent.early._queues)) <= 12


def test_a_changed_default_is_no_second_outcome() -> None:
    """A reward that was the default when it came is learned once in all, and as what it is."""
    agent = build(policy="D-LinUCB", gamma=1.0)
    for i in range(300):
        decision = agent.decide(["a"], id=str(i), now=NOON + i)
        agent.reward(decision, float(i % 2))
    agent.configure(missing=0.75)
    for i in range(300, 600):
        agent.decide(["b"], id=str(i), now=NOON + i)
    arm = agent.feature_names.index("a: 1")
    weight = 2.0 * (agent.policy.info().metric[0][arm, arm] - 1.0)  # x has 1/sqrt(2) for its arm; the ridge is 1
    learned = np.sqrt(2.0) * agent.policy.info().b[0][arm]
    assert 250 < weight <= 300 + 1e-6
    assert learned == pytest.approx(150)  # the rewards of 1, and nothing of the new default


def test_after_a_pause_looks_are_spread_over_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "MOST_LOOKS", 5)
    agent = build(wait="100s")
    live(agent, range(400))
    pending = [one.looks for one in agent.open_decisions]
    agent.decide(id="late", now=NOON + 470)
    changed = sum(
        one.looks != looks
        for one, looks in zip(agent.open_decisions, pending[-len(agent.open_decisions) :], strict=False)
    )
    assert changed <= 5


@pytest.mark.parametrize("settings", [{"missing": None}, {"wait": None, "missing": None}, {"wait": 0}])
def test_it_needs_a_default_and_a_wait(settings: dict) -> None:
    with rejects("learn", value="early"):
        build(**settings)
    agent = Agent(dim=2)
    refuses(agent, "learn", lambda: agent.configure(learn="early", **settings), value="early")


@pytest.mark.parametrize("name", LIVE)
def test_every_policy_takes_partial_misses(name: str) -> None:
    agent = Agent(dim=2, policy=name, wait=10, missing=0.0, learn="early", **needed(LIVE[name]))
    for i, arms in enumerate(arm_sets(1, 90)):
        if i > 2 and i % 2:
            agent.reward(str(i - 2), 1.0)
        agent.decide(arms, id=str(i), now=NOON + i)
    assert np.isfinite(agent.theta).all()
    assert agent.settled > 50


@pytest.mark.slow
def test_early_learning_wins_where_the_timeout_is_longer_than_the_memory() -> None:
    """The rates change every two hours, clicks come within minutes, and the timeout is an hour: by a tenth at least."""
    played = {
        way: np.mean([simulate(way, fast, 16.0, seed).played[12_000:].mean() for seed in range(3)])
        for way in (AT_TIMEOUT, EARLY)
    }
    assert played[EARLY] > 1.1 * played[AT_TIMEOUT]
