"""What the benchmarks share: the worlds they run in, how a policy is timed, and how a figure is printed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

# The oracle's matrices are small: BLAS threads would only get in each other's way, and flatter the ratios.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # naive/, the oracle that ratios are taken against


def say(what: str, figure: str, target: str, met: bool) -> None:
    """Print a figure beside its target."""
    print(f"{'ok  ' if met else 'MISS'}  {what:<66} {figure:<34} (target {target})", flush=True)


def read_processor_seconds(process: int) -> float:
    """Return the processor time of a process so far; 0 where the system does not tell (not Linux)."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def arms_and_luck(rng: np.random.Generator, lanes: int, K: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Arms uniform in the unit ball, and one uniform per lane for its reward."""
    arms = rng.normal(size=(lanes, K, dim))
    arms *= rng.random((lanes, K, 1)) ** (1 / dim) / np.linalg.norm(arms, axis=2, keepdims=True)
    return arms, rng.random(lanes)


def theta_star(t: int, horizon: int, dim: int) -> np.ndarray:
    """(1, 0, ...) turning to (0, 1, 0, ...) in the middle third."""
    angle = np.pi / 2 * np.clip(3 * t / horizon - 1, 0, 1)
    theta = np.zeros(dim)
    theta[0] = np.cos(angle)
    if dim > 1:
        theta[1] = np.sin(angle)
    return theta


def drive(policy: Any, horizon: int, K: int, seed: int, first: int = 1, last: int | None = None) -> np.ndarray:
    """Play rounds first..last of a world of length ``horizon``; seconds per round of select and update together."""
    rng = np.random.default_rng([seed, first])
    lanes = np.arange(policy.lane_count)
    seconds = []
    for t in range(first, (last or horizon) + 1):
        arms, luck = arms_and_luck(rng, policy.lane_count, K, policy.dim)
        click = 1 / (1 + np.exp(-arms @ theta_star(t, horizon, policy.dim)))
        began = time.perf_counter()
        choice = policy.select(arms)
        policy.update(arms[lanes, choice], (luck < click[lanes, choice]).astype(float))
        seconds.append(time.perf_counter() - began)
    return np.array(seconds)


def drive_in_turn(policies: dict[str, Any], horizon: int, K: int, seed: int, chunk: int = 200) -> dict[str, np.ndarray]:
    """Let several policies play the same world, in turns of one chunk, so that noise affects all of them.

    Return the seconds per round, as :func:`drive` does, by the name of the policy.
    """
    seconds: dict[str, list[np.ndarray]] = {name: [] for name in policies}
    for first in range(1, horizon + 1, chunk):
        for name, policy in policies.items():
            seconds[name].append(drive(policy, horizon, K, seed, first, min(first + chunk - 1, horizon)))
    return {name: np.concatenate(parts) for name, parts in seconds.items()}


def drive_naive(policy: Any, horizon: int, K: int, dim: int, seed: int, checkpoints: int) -> float:
    """Mean seconds per round of the oracle over a run of ``horizon`` rounds, from ``checkpoints`` evenly spaced ones.

    Its cost grows with t, so every stretch of the run must be sampled; between the checkpoints its history is filled
    without deciding (arms in turn), which leaves the cost of a decision at round t what it is.
    """
    rng = np.random.default_rng([seed, 1])
    timed = set(np.linspace(1, horizon, checkpoints).astype(int).tolist())
    seconds = []
    for t in range(1, horizon + 1):
        arms, luck = arms_and_luck(rng, 1, K, dim)
        click = 1 / (1 + np.exp(-arms[0] @ theta_star(t, horizon, dim)))
        began = time.perf_counter()
        if t in timed:
            k = policy.select(arms[0])
        else:
            k = int(np.argmax(click + 0.1 * rng.random(K)))
            policy.advance(1)
        policy.update(arms[0, k], float(luck[0] < click[k]))
        if t in timed:
            seconds.append(time.perf_counter() - began)
    return float(np.mean(seconds))
