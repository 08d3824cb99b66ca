"""Runs of rows, and arms, whose rewards were probably not recorded: they are found, and sound logs are not doubted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE
from windvane.arguments import Array
from windvane.logs import CheckLine, check, from_arrays
from windvane.logs.soundness.missing_rewards import LEVEL

K, N = 3, 6000
RUNS, ARMS = "Are there rewards of each kind throughout?", "Do the rewards of each arm differ?"


def ask(question: str, played: Array, rewards: Array, *, has_times: bool = True) -> CheckLine:
    n = len(played)
    arms = np.broadcast_to(np.eye(K), (n, K, K))
    log = from_arrays(arms, played, rewards, time=1.8e9 + 60.0 * np.arange(n) if has_times else None)
    (line,) = [line for line in check(log).lines if line.question == question]
    return line


def draw(seed: int, rate: Array, n: int = N) -> tuple[Array, Array]:
    """Arms at random and clicks with this rate, [n] or [n, K]."""
    rng = np.random.default_rng(seed)
    played = rng.integers(K, size=n)
    chance = rate if np.ndim(rate) < 2 else rate[np.arange(n), played]
    return played, (rng.random(n) < chance).astype(float)


@pytest.mark.parametrize("has_times", [False, True])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_a_run_of_rows_with_the_same_reward_is_a_warning(reward: float, has_times: bool) -> None:
    played, rewards = draw(0, np.full(N, 0.2 if reward == 0.0 else 0.8))
    rewards[3000:3800] = reward
    line = ask(RUNS, played, rewards, has_times=has_times)
    assert line.verdict == "warning"
    assert f"have the reward {reward:g} (from row " in line.finding
    assert ("UTC" in line.finding) == has_times
    assert line.advice.startswith("were rewards recorded at that time?")


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_an_arm_whose_rewards_are_all_equal_is_a_warning(reward: float) -> None:
    played, rewards = draw(1, np.full(N, 0.2 if reward == 0.0 else 0.8))
    rewards[played == 2] = reward
    line = ask(ARMS, played, rewards)
    assert line.verdict == "warning"
    assert f"not those of arm 3 (all {(played == 2).sum():,} are {reward:g}, but " in line.finding
    assert ask(RUNS, played, rewards).verdict == "ok"


LINE = np.linspace(0.0, 1.0, N)
SOUND: dict[str, Callable[[], Array]] = {
    "constant": lambda: np.full(N, 0.2),
    "rare": lambda: np.full(N, 0.02),
    "falls to nothing": lambda: 0.3 * (1.0 - LINE),
    "jumps": lambda: np.where(LINE < 0.5, 0.005, 0.3),
    "dips to half": lambda: np.where(np.abs(LINE - 0.5) < 0.1, 0.1, 0.2),
    "goes round": lambda: 1.0 / (1.0 + np.exp(0.5 - 2.0 * np.cos(2.0 * np.pi * (LINE[:, None] + np.arange(K) / K)))),
    "a bad arm": lambda: np.tile([0.2, 0.25, 0.03], (N, 1)),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("question", [RUNS, ARMS])
def test_sound_logs_are_rarely_doubted_though_they_drift(question: str, name: str) -> None:
    logs = 60
    alarms = sum(ask(question, *draw(seed, SOUND[name]())).verdict != "ok" for seed in range(logs))
    assert stats.binomtest(alarms, logs, LEVEL, alternative="greater").pvalue > SURE


def test_rows_at_an_end_of_the_log_cannot_be_told_from_drift() -> None:
    played, rewards = draw(2, np.full(N, 0.2))
    for missing in (slice(0, 800), slice(N - 800, N)):
        some = rewards.copy()
        some[missing] = 0.0
        assert ask(RUNS, played, some).verdict == "ok"
