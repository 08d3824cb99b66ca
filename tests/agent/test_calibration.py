"""Calibration: the means are those of the outcomes, to the last digit, and the alarm tells an error from noise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents import NOON
from windvane import AdaptiveGLMUCB, Agent, CustomLink, Identity, Logistic, Poisson
from windvane.agent import calibration
from windvane.agent.calibration import BLOCK, BLOCKS, CalibrationMonitor
from windvane.records import CalibrationMeans

SHARE = (0.0, 1.0)
Outcome = tuple[Any, float, float]  # arm, prediction, reward


def fill(monitor: CalibrationMonitor, outcomes: Sequence[Outcome]) -> CalibrationMonitor:
    for outcome in outcomes:
        monitor.add(*outcome)
    return monitor


def assert_means(means: CalibrationMeans, outcomes: Sequence[Outcome]) -> None:
    """Compare with the formulas of the module, for rewards in [0, 1]."""
    assert means.settled == len(outcomes)
    if not outcomes:
        assert (means.mean_prediction, means.mean_reward, means.standard_error, means.z) == (None,) * 4
        return
    p, r = np.array([outcome[1:] for outcome in outcomes]).T
    error = math.sqrt(max(((r - p) ** 2).sum(), (p * (1 - p)).sum())) / len(p)
    assert means.mean_prediction == pytest.approx(p.mean())
    assert means.mean_reward == pytest.approx(r.mean())
    assert means.standard_error == pytest.approx(error)
    assert means.z == pytest.approx((r.mean() - p.mean()) / error if error else 0.0, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1), st.floats(0, 1)), max_size=80), st.integers(1, 80))
def test_means_are_those_of_the_outcomes(outcomes: list[Outcome], cut: int) -> None:
    """With small blocks and few arms; a monitor that is restored in between goes on to the last bit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "BLOCK", 5)
        patch.setattr(calibration, "MOST_ARMS", 3)
        monitor = fill(CalibrationMonitor(Logistic(), SHARE), outcomes)
        seen = monitor.describe()
        assert_means(seen.overall, outcomes)
        size = min(len(outcomes), 5 * BLOCKS + len(outcomes) % 5)
        assert_means(seen.recent, outcomes[len(outcomes) - size :])
        last: dict[int, list[Outcome]] = {}  # by arm, since it was listed; the one settled last at the end
        others: list[Outcome] = []
        for outcome in outcomes:
            own = last.pop(outcome[0], [])
            if not own and len(last) == 3:
                others += last.pop(next(iter(last)))
            last[outcome[0]] = [*own, outcome]
        assert_means(seen.others, others)
        assert {means.arm for means in seen.by_arm} == set(last)
        for means in seen.by_arm:
            assert_means(means, last[means.arm])
        counts = [means.settled for means in seen.by_arm]
        assert counts == sorted(counts, reverse=True)
        again = CalibrationMonitor(Logistic(), SHARE)
        again.restore(fill(CalibrationMonitor(Logistic(), SHARE), outcomes[:cut]).to_plain())
        assert fill(again, outcomes[cut:]).to_plain() == monitor.to_plain()


@settings(max_examples=40)
@given(data=st.data(), learn=st.sampled_from(["on_arrival", "at_timeout", "early"]), seed=st.integers(0, 100))
def test_an_agent_counts_every_outcome_of_an_informed_decision_once(data: st.DataObject, learn: str, seed: int) -> None:
    """Random lives: rewards at once, late or never, some decisions dropped; saved and loaded on the way. A decision is
    informed if something was learned before it: its prediction is then not that of the prior."""
    agent = Agent(
        features={"arms": ["a", "b", "c"]}, reward_timeout=6, default_reward=0.0, learn=learn, max_pending=8, seed=seed
    )
    decisions, settled, informed = [], [], set[str]()
    steps = data.draw(st.lists(st.sampled_from(["decide", "reward", "save"]), max_size=60))
    for i, step in enumerate(steps):
        closed = agent.core.expire(now=NOON + i, room=step == "decide")  # as a decision would, but with what was closed
        settled += [(each.id, each.learned) for each in closed if each.learned is not None]
        if step == "decide":
            informed |= {f"d{i}"} if settled else set()
            decisions.append(agent.decide(now=NOON + i, id=f"d{i}"))
        elif step == "reward" and agent.pending():
            key, value = data.draw(st.sampled_from(agent.pending())).id, data.draw(st.sampled_from([0.0, 0.5, 1.0]))
            agent.reward(key, value, now=NOON + i)
            settled += [(key, value)] * (learn == "on_arrival")
        elif step == "save":
            agent = Agent.from_bytes(agent.to_bytes())
    by_id = {decision.id: decision for decision in decisions}
    outcomes = [(by_id[key].arm, by_id[key].prediction, value) for key, value in settled if key in informed]
    seen = agent.info().calibration
    assert_means(seen.overall, outcomes)
    assert seen.recent == seen.overall
    for means in seen.by_arm:
        assert_means(means, [outcome for outcome in outcomes if outcome[0] == means.arm])
    assert len(settled) == agent.info().counts.settled


def test_decisions_before_anything_was_learned_do_not_count() -> None:
    """Of a first day whose rewards wait for their timeout. History counts as learned, and so does an early look."""
    settings: dict[str, Any] = {"features": {"arms": ["a"]}, "reward_timeout": 3, "default_reward": 0.0}
    agent, informed = Agent(**settings), Agent(**settings)
    informed.history([1.0, 0.0], arms=["a", "a"])
    for each in (agent, informed):
        predictions = [each.decide(now=NOON).prediction for _ in range(14)]
        assert each.info().counts.settled == 9
        first = 5 if each is agent else 0  # the outcome of decision 0 is learned before decision 5 is made
        assert_means(each.info().calibration.overall, [("a", p, 0.0) for p in predictions[first:9]])
        assert (predictions[0] == 0.5) == (each is agent)


def test_the_first_day_raises_no_alarm() -> None:
    """The setting that the documentation recommends, with more decisions than the alarm leaves out at its start."""
    rng, agent = np.random.default_rng(0), Agent(
        features={"by_arm": {"device": ["phone", "desktop"]}, "arms": ["a", "b", "c"]},
        reward_timeout="1d", default_reward=0.0,
    )  # fmt: skip
    rates, waiting = {"a": 0.03, "b": 0.05, "c": 0.04}, deque[Any]()
    for i in range(9000):  # 3,000 a day
        now = NOON + 28.8 * i
        decision = agent.decide(context={"device": "phone" if rng.random() < 0.6 else "desktop"}, now=now)
        if rng.random() < rates[decision.arm]:
            waiting.append((i + 40, decision.id))
        if waiting and waiting[0][0] <= i:
            agent.reward(waiting.popleft()[1], 1.0, now=now)
        if i % 100 == 0:
            assert agent.alerts == []
    assert agent.info().counts.settled > 5900
    assert 2900 < agent.info().calibration.overall.settled < 3100  # those of the second day


def test_an_alert_does_not_propose_what_is_on() -> None:
    """Rewards fall and the policy never forgets, with an intercept of any kind and without."""
    settings: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        ({"features": {"arms": ["a"], "intercept": False}}, {}, False),  # the arm has one of its own
        ({"features": {"shared": {"x": (0, 1)}, "arms": ["a"]}}, {"context": {"x": 1}}, False),
        ({"features": {"per_arm": {"x": (0, 1)}, "intercept": False}}, {"arms": {"a": {"x": 1}}}, True),
        ({"dim": 1, "intercept": True}, {"arms": [[0.5]]}, False),
        ({"dim": 1}, {"arms": [[0.5]]}, True),
    ]
    for arguments, offer, is_proposed in settings:
        agent = Agent(policy="OnePassGLM", gamma=1.0, S=3.0, **arguments)
        for i in range(3100):
            agent.reward(agent.decide(**offer, now=NOON), float(i % 3 > 0 and i < 2000))
        (alert,) = (alert for alert in agent.alerts if alert.code == "miscalibrated")
        assert ("; add an intercept or features that explain them" in alert.message) == is_proposed
        assert ("; add features that explain them" in alert.message) != is_proposed


def test_the_standard_error_neither_trusts_silence_nor_confidence() -> None:
    silent = fill(CalibrationMonitor(Logistic(), SHARE), [("a", 0.01, 0.0)] * 1000).recent
    assert silent.z == pytest.approx(-10.0 / math.sqrt(9.9))  # not -31: no reward has no empirical variance
    confident = fill(CalibrationMonitor(Logistic(), SHARE), [("a", 1e-9, 0.0)] * 999 + [("a", 1e-9, 1.0)]).recent
    assert confident.z == pytest.approx(1.0, rel=1e-3)  # not 1000
    own = CustomLink("own", Logistic().mean, Logistic().slope)
    worlds: Any = [(own, SHARE, 0.21), (Identity(), SHARE, 0.21), (Poisson(), (0, 9), 0.3), (Identity(), (-9, 9), 0.09)]
    for link, reward_range, variance in worlds:
        monitor = fill(CalibrationMonitor(link, reward_range), [("a", 0.3, 0.0)] * 4)
        assert monitor.recent.standard_error == pytest.approx(math.sqrt(4 * max(variance, 0.09)) / 4)


def test_numbers_that_overflow_are_unknown() -> None:
    means = fill(CalibrationMonitor(Poisson(), (0.0, 9.0)), [("a", 1e200, 1.0), ("a", 0.5, 1.0)]).recent
    assert (means.standard_error, means.settled) == (None, 2)
    assert means.mean_prediction == 5e199


def test_the_alarm_has_hysteresis_and_ignores_the_start() -> None:
    """Rewards of 1 and 0 by turns: their mean is known, and there is no luck in it."""
    monitor, turns = CalibrationMonitor(Logistic(), SHARE), [0.0, 1.0] * (BLOCK // 2)

    def live(blocks: int, prediction: float) -> list[bool]:
        return [fill(monitor, [("a", prediction, r) for r in turns]).is_off for _ in range(blocks)]

    assert live(10, 0.9) == [False] * 10  # the beginning
    assert live(9, 0.62) == [False] * 9  # too few since
    assert live(1, 0.62) == [True]  # z = -7.7
    assert live(1, 0.5) == [True]
    states = live(9, 0.5)  # z falls by 0.77 a block
    assert states == [abs(-7.7 + 0.77 * block) >= 3.0 for block in range(2, 11)]
    assert live(4, 0.42) == [False] * 4  # 2.0: below the threshold of an alarm, although above that of its end later on
    assert live(10, 0.53) == [False] * 10  # 1.9, and 6 % of the larger


def test_small_gaps_are_not_material() -> None:
    """z = 5.8, but the means differ by less than a tenth."""
    monitor = fill(CalibrationMonitor(Identity(), (-99.0, 99.0)), [("a", 10.5, 10.0)] * 2500)
    assert abs(monitor.recent.z or 0.0) > 30.0
    assert not monitor.is_off


# --- simulations -----------------------------------------------------------------------------------------------------

WORLDS = 100


def simulate(rates: np.ndarray, rounds: int, *, delay: int = 0, is_informed: bool = True) -> np.ndarray:
    """Return which of :data:`WORLDS` agents ever raised the alarm: lanes of the default policy, as an agent has one.

    Vectors are an intercept and an indicator for each arm; unless ``is_informed``, they are noise, without intercept.
    ``delay``: decisions until an outcome is learned.
    """
    lanes, arms = np.arange(WORLDS), rates.shape[1]
    x = np.repeat((np.hstack([np.ones((arms, 1)), np.eye(arms)]) / math.sqrt(2.0))[None], WORLDS, axis=0)
    policy, luck = AdaptiveGLMUCB(dim=arms + 1, lanes=WORLDS), np.random.default_rng(1)
    monitors = [CalibrationMonitor(Logistic(), SHARE) for _ in lanes]
    was_off, waiting = np.zeros(WORLDS, dtype=bool), deque[Any]()
    for t in range(1, rounds + 1):
        if not is_informed:
            x = luck.choice([-0.5, 0.5], (WORLDS, arms, arms + 1)) / math.sqrt(arms + 1)
        played = policy.select(x)
        assert policy.decision is not None
        assert policy.decision.means is not None
        rewards = (luck.random(WORLDS) < rates[lanes, played]).astype(float)
        waiting.append((t, x[lanes, played], played.tolist(), policy.decision.means[lanes, played].tolist(), rewards))
        if len(waiting) > delay:
            t, vectors, *columns, rewards = waiting.popleft()
            policy.update(vectors, rewards, round=t)
            for i, outcome in enumerate(zip(*columns, rewards.tolist(), strict=True)):
                monitors[i].add(*outcome)
                was_off[i] |= monitors[i].is_off
    return was_off


def test_false_alarms_are_rare_where_the_model_is_right() -> None:
    """Static worlds with rare rewards, where over-prediction by selection is largest."""
    rates = np.random.default_rng(0).uniform(0.02, 0.08, (WORLDS, 5))
    assert simulate(rates, 3000).sum() <= 0.05 * WORLDS


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 300])
@pytest.mark.parametrize(("low", "high"), [(0.02, 0.08), (0.2, 0.8), (0.9, 0.99)])
def test_false_alarms_are_rare_in_long_lives(low: float, high: float, delay: int) -> None:
    rates = np.random.default_rng(0).uniform(low, high, (WORLDS, 5))
    alarms = int(simulate(rates, 8000, delay=delay).sum())
    print(f"rates {low} to {high}, delay {delay}: {alarms} of {WORLDS} worlds")
    assert alarms <= 0.05 * WORLDS


def test_a_model_that_cannot_fit_the_rewards_is_reported() -> None:
    """Rewards do not depend on the vectors, and there is no intercept: the model predicts one half or more."""
    assert simulate(np.full((WORLDS, 2), 0.3), 2000, is_informed=False).all()


def test_the_alert_says_what_was_seen() -> None:
    """Rewards fall from 0.6 to 0.2, and the policy never forgets."""
    agent, luck = Agent(features={"arms": ["a"]}, policy="OnePassGLM", gamma=1.0, S=3.0), np.random.default_rng(3)
    for rounds, rate, expected in ((3001, 0.6, []), (1100, 0.2, ["miscalibrated"])):
        for _ in range(rounds):
            agent.reward(agent.decide(now=NOON), float(luck.random() < rate))
        assert [alert.code for alert in agent.alerts] == expected
    assert [alert.code for alert in Agent.from_bytes(agent.to_bytes()).alerts] == ["miscalibrated"]
    message, recent = agent.alerts[0].message, agent.info().calibration.recent
    assert message.startswith("predictions are too high: over the last 1000 outcomes the mean prediction was 0.")
    assert f"the mean reward {recent.mean_reward:.3g}, {abs(recent.z or 0.0):.1f} standard errors apart" in message


def test_a_policy_that_predicts_nothing_is_not_miscalibrated() -> None:
    agent = Agent(dim=2, policy="UniformRandom")
    for _ in range(2500):
        agent.reward(agent.decide([[0.1, 0.2], [0.2, 0.1]]), 1.0)
    info = agent.info()
    assert (info.counts.settled, info.calibration.overall.settled, info.alerts) == (2500, 0, [])
