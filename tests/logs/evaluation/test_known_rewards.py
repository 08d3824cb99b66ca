"""Labelled data streams turned into bandits: the reward of every arm is known, and so is the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from windvane.environments import LabelledStream
from windvane.logs import ArrayLog, evaluate, from_arrays
from windvane.logs.evaluation.contenders import build_contender, list_contenders

SHARED = next(
    (p / "shared" / "data" for p in Path(__file__).resolve().parents if (p / "shared" / "data").is_dir()), None
)
ALPHA = 0.1


def read_stream(name: str, rows: int) -> LabelledStream:
    if SHARED is None or not (SHARED / name).exists():
        pytest.skip(f"shared/data/{name} is not here")
    return LabelledStream.read(SHARED / name, rows=rows)


def make_stream(rows: int) -> LabelledStream:
    """Two features; the label is the sector of their direction, which turns with time."""
    rng = np.random.default_rng(30)
    fields = rng.normal(size=(rows, 2))
    angle = np.arctan2(fields[:, 1], fields[:, 0]) + np.arange(rows) / rows * np.pi + rng.normal(0, 0.3, rows)
    return LabelledStream(fields, (np.floor(angle / (2 * np.pi / 3)) % 3).astype(int))


def read_table(stream: LabelledStream) -> tuple[np.ndarray, np.ndarray]:
    """The arms and the rewards of all rows."""
    rounds = [stream.round(t) for t in range(1, stream.horizon + 1)]
    return np.concatenate([offer.arms for offer in rounds]), np.concatenate([offer.means for offer in rounds])


def write_log(arms: np.ndarray, rewards: np.ndarray, seed: int, *, is_late: bool) -> ArrayLog:
    """A log by a policy that prefers arms by the direction of the first field, and explores with 0.4."""
    rng, (n, K, _) = np.random.default_rng([31, seed]), arms.shape
    p = np.full((n, K), 0.4 / K)
    p[np.arange(n), (arms[:, 0, 1:].argmax(axis=1) + seed) % K] += 0.6
    played = np.minimum((p.cumsum(axis=1) <= rng.random((n, 1))).sum(axis=1), K - 1)
    time = np.arange(1.0, n + 1.0)
    late = time + rng.integers(0, 50, n) if is_late else time
    reward = rewards[np.arange(n), played]
    return from_arrays(arms, played, reward, probabilities=p, time=time, reward_time=late, floor=0.4 / K)


def find_truth(log: ArrayLog, rewards: np.ndarray, name: str) -> float:
    """What the recommendations would have earned, row by row, with ``probabilities`` before every decision."""
    rows, total, pending = log.rows, 0.0, []
    policy = build_contender(list_contenders(name)[0].spec, log.schema, len(rows), lanes=1, seed=0)
    for t in range(len(rows)):
        for s in sorted(
            (s for s in pending if rows.reward_time[s] <= rows.time[t]), key=lambda s: (rows.reward_time[s], s)
        ):
            policy.update(rows.arms[[s], rows.played[s]], float(rows.reward[s]), round=s + 1.0)
            pending.remove(s)
        total += float(policy.probabilities(rows.arms[[t]])[0] @ rewards[t])
        policy.select(rows.arms[[t]])
        pending.append(t)
    return total / len(rows)


def count_missed(stream: LabelledStream, name: str, logs: int, *, is_late: bool) -> None:
    arms, rewards = read_table(stream)
    missed, errors = np.zeros(2, dtype=int), []
    for seed in range(logs):
        log = write_log(arms, rewards, seed, is_late=is_late)
        found = evaluate(log, name, estimands=["recommendations"], alpha=ALPHA, seed=seed).policies[0].recommendations
        truth = find_truth(log, rewards, name)
        logged = (log.rows.probabilities * rewards).sum(axis=1).mean()
        to_log = found.difference_to_log
        missed += not found.value.low <= truth <= found.value.high, not to_log.low <= truth - logged <= to_log.high
        errors.append(found.variants["dr"].value - truth)
    assert (stats.binom.sf(missed - 1, logs, ALPHA) >= 0.001).all()
    assert abs(np.mean(errors)) < 4.0 * np.std(errors, ddof=1) / np.sqrt(logs)


@pytest.mark.parametrize("is_late", [False, True])
def test_made_up_stream(is_late: bool) -> None:
    count_missed(make_stream(1200), "OFUL", 8, is_late=is_late)


def test_electricity() -> None:
    count_missed(read_stream("elec.csv", 1500), "AdaptiveGLMUCB", 6, is_late=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinUCB(gamma=0.99)"])
@pytest.mark.parametrize("source", ["elec.csv", "weather.csv", "made up"])
def test_many_logs_of_streams(source: str, name: str) -> None:
    stream = make_stream(2000) if source == "made up" else read_stream(source, 2000)
    count_missed(stream, name, 40, is_late=source == "weather.csv")
