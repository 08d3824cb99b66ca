"""Logs whose faults would mislead: the check names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from windvane.logs import LogCheck, check, from_arrays
from windvane.logs.soundness.verdicts import list_names

N = 600


def build(**changes: Any) -> LogCheck:
    rng = np.random.default_rng(0)
    played = rng.integers(2, size=N)
    fields: dict[str, Any] = {
        "reward": (rng.random(N) < 0.4).astype(float),
        "propensity": np.full(N, 0.5),
        "time": np.arange(N) * 60.0,
    }
    fields |= changes
    arms = np.broadcast_to(np.eye(2), (N, 2, 2))
    return check(from_arrays(arms, played, fields.pop("reward"), **fields))


def find(result: LogCheck, question: str) -> tuple[str, str]:
    return next(((line.verdict, line.finding) for line in result.lines if line.question == question), ("", ""))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("p", [1e-6, 1e-300, 5e-324])
def test_a_probability_that_is_nearly_zero_is_an_error(p: float) -> None:
    """Its weight widens the interval of the mean weight so much that the interval holds 1; Markov's bound does not."""
    propensity = np.full(N, 0.5)
    propensity[7] = p
    result = build(propensity=propensity)
    assert find(result, "Are propensities right on average?")[0] == "error"
    assert "error" in find(result, "Are propensities right for each arm?")
    assert 1.0 <= result.effective_sample_size < 1.1


def test_one_outlier_among_the_rewards_is_a_warning() -> None:
    question, rewards = "Are rewards of a similar size?", 1e-3 * np.random.default_rng(1).random(N)
    assert find(build(reward=rewards), question) == ("", "")
    rewards[5] = 1.0
    assert find(build(reward=rewards), question)[0] == "warning"
    purchases = np.where(np.arange(N) % 300 == 0, 0.2 + 1e-3 * np.arange(N), 0.0)  # rare, but no outliers
    assert find(build(reward=purchases), question) == ("", "")


def test_rewards_that_were_recorded_only_if_they_are_1_are_an_error() -> None:
    clicks = np.where(np.arange(N) % 3 == 0, np.nan, 1.0)
    verdict, finding = find(build(reward=clicks), "Does every decision have a reward?")
    assert verdict == "error"
    assert finding.endswith("and each of these is 1")


@pytest.mark.parametrize(("wait", "verdict"), [(20_000.0, "warning"), (60.0, "")])
def test_clicks_that_arrive_first_are_a_warning(wait: float, verdict: str) -> None:
    rewards, time = (np.random.default_rng(2).random(N) < 0.4).astype(float), np.arange(N) * 60.0
    result = build(reward=rewards, reward_time=time + np.where(rewards == 1.0, 5.0, wait))
    assert find(result, "Does the delay depend on the reward?")[0] == verdict


@pytest.mark.parametrize(("start", "shown"), [(0.0, ""), (20_260_301.0, "from 1970-08-23"), (1.8e9, "from 2027-01-15")])
def test_a_wrong_unit_of_time_shows_as_a_wrong_date(start: float, shown: str) -> None:
    assert shown in find(build(time=start + np.arange(N)), "Are rows in time order?")[1]
    assert ("from" in find(build(time=start + np.arange(N)), "Are rows in time order?")[1]) == bool(shown)


def test_the_answer_repeats_the_question() -> None:
    result = build(propensity=np.full(N, 0.2))
    assert result.answer.startswith("The log is not sound. Are propensities right for each arm? Not for arm ")


def test_long_names_do_not_drown_the_answer() -> None:
    assert list_names(["x" * 50_000, "b"]) == "x" * 60 + "..., b"


@pytest.mark.parametrize("is_right", [False, True])
def test_one_small_propensity_does_not_hide_that_the_others_are_wrong(is_right: bool) -> None:
    """The normal approximation of the usual test fails because of the one row, and so the test is not made."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        played = (rng.random(3000) < (0.5 if is_right else 0.65)).astype(int)
        propensity = np.full(3000, 0.5)
        propensity[5] = 1e-3
        arms = np.broadcast_to(np.eye(2), (3000, 2, 2))
        result = check(from_arrays(arms, played, rng.integers(2, size=3000), propensity=propensity))
        alarms += find(result, "Are propensities right for each arm?")[0] == "error"
    assert alarms <= 2 if is_right else alarms == 20
