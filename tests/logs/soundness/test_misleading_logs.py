"""Logs whose faults would mislead: the check names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE
from windvane.logs import LogCheck, check, from_arrays, read
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


SORTED, ONCE = "Are rewards in the order of decisions?", "Is every row recorded once?"
CONTEXTS = "Are propensities right in each context?"


def test_rewards_that_are_sorted_are_an_error() -> None:
    rewards = (np.random.default_rng(3).random(N) < 0.4).astype(float)
    assert find(build(reward=rewards), SORTED)[0] == "ok"
    verdict, finding = find(build(reward=np.sort(rewards)[::-1]), SORTED)
    assert verdict == "error"
    assert "sorted by reward: 1 change " in finding
    drifting = (np.random.default_rng(4).random(N) < np.where(np.arange(N) < N / 2, 0.05, 0.95)).astype(float)
    assert find(build(reward=drifting), SORTED)[0] == "ok"
    assert find(build(reward=np.random.default_rng(5).random(N)), SORTED) == ("", "")  # no kinds


def test_a_file_that_is_sorted_by_reward_but_has_times_is_a_warning(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    rows = [(60 * t, "ab"[rng.integers(2)], int(rng.random() < 0.3)) for t in range(N)]
    rows.sort(key=lambda row: -row[2])
    text = "".join(f"{time},{arm},{reward}\n" for time, arm, reward in rows)
    (tmp_path / "log.csv").write_text("time,arm,reward\n" + text)
    verdict, finding = find(check(read(tmp_path / "log.csv")), SORTED)
    assert verdict == "warning"
    assert finding.endswith("sorted by time, they are not")
    advice = [line.advice for line in check(read(tmp_path / "log.csv")).lines if line.verdict == "warning"]
    assert all("drift and replay sort the rows by time" in each for each in advice[:2])


def test_rows_without_a_propensity_are_one_warning_that_says_what_they_are_used_for(tmp_path: Path) -> None:
    lines = [f"{60 * i},{'ab'[i % 2]},{i * 7 % 3 % 2},{'0.5' if i % 3 else ''}" for i in range(N)]
    (tmp_path / "log.csv").write_text("\n".join(["time,arm,reward,propensity", *lines]))
    found = [(line.question, line.finding) for line in check(read(tmp_path / "log.csv")).lines if line.verdict != "ok"]
    assert found == [("Are propensities recorded?", "missing in 200 rows: used for drift, not for evaluating policies")]


def test_a_log_without_ids_is_advised_to_have_them() -> None:
    rewards = (np.random.default_rng(9).random(N) < 0.4).astype(float)
    (line,) = [line for line in build(reward=rewards, context=np.arange(N)[:, None]).lines if line.question == ONCE]
    assert (line.verdict, line.finding) == ("ok", "no exact repeats")
    assert line.advice.startswith("log an id with each decision")


@pytest.mark.parametrize("resolution", [1.0, 60.0, 1000.0])
def test_rows_that_are_repeated_are_an_error_but_rows_that_are_alike_are_not(resolution: float) -> None:
    """With coarse times, many rows are equal in all fields although they are different decisions."""
    rng = np.random.default_rng(7)
    index, again = np.arange(N), np.sort(np.concatenate([np.arange(N), np.arange(0, N, 6)]))
    context, rewards, played = rng.integers(2, size=(N, 1)), rng.random(N) < 0.4, rng.integers(2, size=N)
    for rows in (index, again):
        log = from_arrays(
            np.broadcast_to(np.eye(2), (len(rows), 2, 2)), played[rows], rewards[rows].astype(float),
            context=context[rows], time=np.floor(20.0 * rows / resolution) * resolution,
        )  # fmt: skip
        verdict, finding = find(check(log), ONCE)
        if rows is index or resolution > 60.0:
            assert (verdict, finding) in (("ok", "no exact repeats"), ("", ""))
        elif resolution < 20.0:
            assert verdict == "error"
            assert "no: 100 rows equal to an earlier one" in finding


@pytest.mark.parametrize("field", ["category", "number"])
def test_propensities_that_are_right_only_on_average_are_found(tmp_path: Path, field: str) -> None:
    """Phones see "a" and desktops "b" in 70 % of the rows, but the log says 50 %."""
    rng, n = np.random.default_rng(8), 2000
    for claimed, verdict in ((None, "ok"), (0.5, "error")):
        lines = ["arm,reward,propensity,device,noise"]
        for _ in range(n):
            device, is_first = int(rng.integers(2)), bool(rng.random() < 0.7)
            p = claimed or (0.7 if is_first else 0.3)
            name = ("phone", "desktop")[device] if field == "category" else device
            lines.append(f"{'ab'[device if is_first else 1 - device]},{rng.integers(2)},{p},{name},{rng.random()}")
        (tmp_path / "log.csv").write_text("\n".join(lines))
        result = check(read(tmp_path / "log.csv"))
        assert find(result, "Are propensities right for each arm?")[0] == "ok"
        found = find(result, CONTEXTS)
        assert found[0] == verdict
        if verdict == "error":
            assert found[1].count("where device = ") == 3
            assert found[1].endswith(" and 1 more")
            assert "mean weight 1.4" in found[1]


def test_right_propensities_are_rarely_doubted_in_contexts() -> None:
    """With offers that differ, and a level of 1 % for all contexts and arms together."""
    alarms, logs = 0, 200
    for seed in range(logs):
        rng, n = np.random.default_rng(seed), 2500
        context, valid = rng.integers(3, size=(n, 2)).astype(float), np.ones((n, 3), dtype=bool)
        valid[:, 2] = rng.random(n) < 0.7
        chances = np.where(valid, 0.3 + 0.3 * (np.arange(3) == context[:, :1]), 0.0)
        chances /= chances.sum(axis=1, keepdims=True)
        played = (rng.random((n, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
        log = from_arrays(
            np.broadcast_to(np.eye(3), (n, 3, 3)), played, np.zeros(n), valid=valid, context=context,
            propensity=chances[np.arange(n), played],
        )  # fmt: skip
        verdict, finding = find(check(log), CONTEXTS)
        assert "18 pairs" in finding or verdict == "error"
        alarms += verdict == "error"
    assert stats.binomtest(alarms, logs, 0.01, alternative="greater").pvalue > SURE
