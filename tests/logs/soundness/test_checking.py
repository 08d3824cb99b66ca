"""The checks of a log: right on sound logs, and each fault is found and named."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from windvane.logs import ArrayLog, check, from_arrays, read
from windvane.logs.soundness.checking import LogCheck
from windvane.logs.soundness.propensity_questions import FEWEST_EXPECTED, LEVEL

K = 4


def simulate(seed: int, n: int = 2000, *, adaptive: bool = True, **changes: Any) -> ArrayLog:
    """A log of a policy whose probabilities follow the rewards so far, or do not."""
    rng = np.random.default_rng(seed)
    scores, played, rewards, chances = np.zeros(K), [], [], []
    for _ in range(n):
        p = np.exp(scores) / np.exp(scores).sum() * 0.8 + 0.2 / K
        arm = int(rng.choice(K, p=p))
        reward = float(rng.random() < 0.2 + 0.1 * arm)
        if adaptive:
            scores[arm] += 0.02 * (reward - 0.3)
        played.append(arm)
        rewards.append(reward)
        chances.append(p[arm])
    arms = np.broadcast_to(np.eye(K), (n, K, K))
    fields: dict[str, Any] = {"propensity": np.array(chances), "time": np.arange(n) * 60.0} | changes
    return from_arrays(arms, played, rewards, **fields)


def verdict_of(result: LogCheck, question: str) -> str:
    (line,) = [line for line in result.lines if line.question == question]
    return line.verdict


def test_a_sound_log_is_sound() -> None:
    result = check(simulate(0))
    assert result.verdict == "ok", [line for line in result.lines if line.verdict != "ok"]
    assert (result.rows, len(result.arms)) == (2000, K)
    assert all(arm.low <= 1.0 <= arm.high for arm in result.arms)


@pytest.mark.parametrize("question", ["Are propensities right on average?", "Are propensities right for each arm?"])
def test_right_propensities_are_rarely_doubted_though_the_policy_learns(question: str) -> None:
    """The tests hold their level on adaptive logs: the number of false alarms is binomial with at most that rate."""
    logs = 150  # of 700 rows, with a smallest propensity of 0.05 or more
    alarms = sum(verdict_of(check(simulate(seed, 700)), question) != "ok" for seed in range(logs))
    assert binom.sf(alarms - 1, logs, LEVEL) > 0.001, alarms


def test_wrong_propensities_are_found() -> None:
    right = np.concatenate([batch.propensity for batch in simulate(3).batches()])
    result = check(simulate(3, propensity=np.clip(1.3 * right, 0.0, 1.0)))
    assert verdict_of(result, "Are propensities right on average?") == "error"
    assert result.verdict == "error"


def test_rows_that_were_lost_depending_on_the_arm_are_found() -> None:
    rows = simulate(4).rows
    kept = (rows.played != 2) | (np.arange(len(rows)) % 2 == 0)
    some = rows.select(kept)
    result = check(from_arrays(some.arms, some.played, some.reward, propensity=some.propensity, time=some.time))
    line = next(line for line in result.lines if line.question == "Are propensities right for each arm?")
    assert line.verdict == "error"
    assert "arm 3" in line.finding


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=50))
def test_weights_are_those_of_the_uniform_policy(chances: list[float]) -> None:
    n = len(chances)
    log = from_arrays(np.broadcast_to(np.eye(2), (n, 2, 2)), [0] * n, [1.0] * n, propensity=chances)
    w = np.array([0.5 / p for p in chances])
    result = check(log)
    assert result.effective_sample_size == pytest.approx(w.sum() ** 2 / (w * w).sum())
    assert result.largest_weight == pytest.approx(w.max())
    assert result.top_share == pytest.approx(w.max() / w.sum())


def test_the_interval_of_an_arm_is_that_of_its_mean() -> None:
    log = simulate(5)
    z = norm.ppf(1 - LEVEL / K / 2)
    rows = log.rows
    for arm in check(log).arms:
        index = int(arm.arm.split()[1]) - 1
        terms = (rows.played == index) / rows.propensity
        half = z * terms.std() / math.sqrt(len(terms))
        assert (arm.mean_weight, arm.low, arm.high) == pytest.approx(
            (terms.mean(), terms.mean() - half, terms.mean() + half)
        )


@pytest.mark.parametrize("is_long", [False, True])
def test_arms_are_tested_if_they_are_expected_often_enough(is_long: bool) -> None:
    n = 2 * int(2 * FEWEST_EXPECTED / 2) if is_long else 2 * int(FEWEST_EXPECTED) - 2
    log = from_arrays(np.broadcast_to(np.eye(2), (n, 2, 2)), [0, 1] * (n // 2), [0.0] * n, propensity=[0.5] * n)
    assert [math.isnan(arm.low) for arm in check(log).arms] == [not is_long] * 2


def test_rare_exploration_of_many_arms_gives_no_false_alarm() -> None:
    """Weights of 80 and of 1.1: the log of a greedy policy with epsilon 0.1 and 8 arms, of length 3000."""
    alarms, logs, rng = 0, 100, np.random.default_rng(8)
    p = np.full(8, 0.0125)
    p[0] += 0.9
    arms = np.broadcast_to(np.eye(8), (3000, 8, 8))
    for _ in range(logs):
        played = rng.choice(8, size=3000, p=p)
        log = from_arrays(arms, played, rng.random(3000) < 0.3, propensity=p[played])
        alarms += any(line.verdict == "error" for line in check(log).lines)
    assert binom.sf(alarms - 1, logs, 2 * LEVEL) > 0.001, alarms


@pytest.mark.parametrize(
    ("changes", "question", "verdict"),
    [
        ({"time": None}, "Are rows in time order?", "warning"),
        ({"propensity": None}, "Are propensities recorded?", "warning"),
        ({"propensity": np.ones(2000)}, "Are propensities recorded?", "error"),
        ({"propensity": np.r_[np.nan, np.full(1999, 0.25)]}, "Are propensities recorded?", "warning"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], question: str, verdict: str) -> None:
    assert verdict_of(check(simulate(6, **changes)), question) == verdict


def test_rewards_before_their_decisions_are_found(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("time,reward_time,arm,reward\n" + "100,99,a,1\n200,201,b,0\n")
    assert verdict_of(check(read(file)), "How late are rewards?") == "error"


def test_unknown_rewards_are_counted() -> None:
    rows = simulate(7).rows
    reward = np.where(np.arange(len(rows)) % 3 == 0, np.nan, rows.reward)
    result = check(from_arrays(rows.arms, rows.played, reward, propensity=rows.propensity, time=rows.time))
    assert verdict_of(result, "Does every decision have a reward?") == "warning"
    assert result.mean_reward == pytest.approx(np.nanmean(reward))


def test_probabilities_that_do_not_add_up_are_found() -> None:
    n = 100
    arms = np.broadcast_to(np.eye(2), (n, 2, 2))
    wrong = np.full((n, 2), 0.5)
    wrong[7] = 0.6
    result = check(from_arrays(arms, [0, 1] * (n // 2), [0.0, 1.0] * (n // 2), probabilities=wrong))
    assert verdict_of(result, "Do the probabilities of all arms add up to 1?") == "error"


def test_a_file_is_checked_row_by_row(tmp_path: Path) -> None:
    """A bad value, repeated ids and a row in the wrong place are seen, though reading repairs some of it."""
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "arm", "reward", "propensity", "id"])
        for i in range(300):
            late = 1_700_000_000 + (i if i != 150 else 0)
            writer.writerow(
                [
                    late,
                    "red" if i % 2 else "blue",
                    int(i % 3 == 0),
                    0.5 if i != 20 else 1.5,
                    f"d{i // 2 if i < 4 else i}",
                ]
            )
    result = check(read(path))
    found = [(line.question, line.verdict) for line in result.lines if line.verdict != "ok"]
    assert found == [
        ("Can every row be read?", "warning"),
        ("Are rows in time order?", "warning"),
        ("Is every id unique?", "error"),
    ]
    places = {problem.kind: problem.examples[0].place for problem in result.problems}
    assert places == {"invalid probability": 22, "repeated id": 3, "not in time order": 152}


def test_offers_that_differ_from_row_to_row_count_by_row(tmp_path: Path) -> None:
    """K is the number of arms on offer in a row, and an arm is only expected where it is on offer."""
    rng, lines, expected = np.random.default_rng(0), [], []
    for i in range(600):
        count = 2 + i % 2
        arm = int(rng.integers(count))
        p = [1.0 / count] * count
        multi = [{"_tag": name, "f": {"x": 1}} for name in ("a", "b", "c")[:count]]
        lines.append(
            {"_label_cost": -float(rng.random() < 0.3), "_label_probability": p[arm], "_label_Action": arm + 1,
             "_labelIndex": arm, "EventId": str(i), "a": list(range(1, count + 1)), "p": p, "c": {"_multi": multi}}
        )  # fmt: skip
        expected.append(1.0)
    path = tmp_path / "log.json"
    path.write_text("\n".join(map(json.dumps, lines)))
    result = check(read(path))
    assert {arm.arm: arm.offered for arm in result.arms} == {"a": 600, "b": 600, "c": 300}
    assert result.effective_sample_size == pytest.approx(600.0)


def test_rows_without_a_propensity_do_not_hide_wrong_ones() -> None:
    rng, n = np.random.default_rng(0), 1000
    played = (rng.random(n) < 0.9).astype(int)
    chance = np.full(n, 0.5)  # both arms, although the second is played in 90 % of the rows
    chance[[int(np.argmax(played == 0)), int(np.argmax(played == 1))]] = math.nan
    log = from_arrays(np.broadcast_to(np.eye(2), (n, 2, 2)), played, rng.integers(2, size=n), propensity=chance)
    result = check(log)
    assert result.verdict == "error"
    assert [(arm.offered, arm.low > 1.0 or arm.high < 1.0) for arm in result.arms] == [(n, True)] * 2


def test_rows_with_and_without_offers_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "log.vw"
    lines = ["1:0:0.5 2 | x", "2:-1:0.5 1 | x"] * 30 + ["3:-1:0.25 | x", "1:0:0.25 | x"] * 30
    file.write_text("\n".join(lines))
    assert {arm.arm: arm.offered for arm in check(read(file)).arms} == {"1": 120, "2": 120, "3": 60}


@pytest.mark.parametrize(("late", "expected"), [(1.0, "100 rewards of the rarer kind"), (0.5, None)])
def test_kinds_of_rewards_are_those_of_all_rows(late: float, expected: str | None) -> None:
    n = 110_000
    rewards = np.zeros(n)
    rewards[-100:], rewards[-1] = late, 1.0
    log = from_arrays(np.ones((n, 1, 1)), np.zeros(n, dtype=int), rewards)
    lines = [line.finding for line in check(log).lines if line.question == "Are there enough rewards of each kind?"]
    assert [line.partition(" (")[0] for line in lines] == ([expected] if expected else [])
