"""Golden trajectories: what every registered policy decided and estimated when they were recorded.

Each policy plays 200 rounds, two lanes and three seeds, in a world that drifts and has late and weighted rewards,
absent arms, pauses, a restart of one lane and a restart from saved state. A rebuilt policy must choose the same arms
and reach the same numbers. Record a policy again only if it is meant to change::

    python tests/support/golden.py --policy NAME
"""

import argparse
import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np

import windvane

FILE = Path(__file__).parent.parent / "data" / "golden.npz"
SEEDS, ROUNDS, LANES, ARMS, DIM = (0, 1, 2), 200, [3, 11], 5, 3
NUMBERS = ("theta_hat", "theta_tilde", "V")
EVERY = 20  # rounds between two records of the numbers

# What theory and the world tell a policy, where its constructor asks for it. A small bonus lets estimates decide, and
# a tight tolerance makes them comparable whatever path a solver takes.
SETTINGS = {
    "horizon": ROUNDS,
    "drift": 4.0,
    "switches": 2.0,
    "bonus_scale": 0.2,
    "posterior_scale": 0.2,
    "tolerance": 1e-10,
    "test_scale": 1e-4,
    "false_alarm": 0.9,
}
# Less regularisation than these recommend, so that their estimates leave the ball too.
LESS_RIDGE = dict.fromkeys(("GLB-WeightUCB", "SCB-WeightUCB", "SC-D-GLUCB", "SC-SW-GLUCB"), 1.0)


def make_policy(name: str, seed: int) -> Any:
    cls = windvane.POLICIES[name]
    accepted = inspect.signature(cls).parameters
    settings: dict[str, Any] = {key: value for key, value in SETTINGS.items() if key in accepted}
    if name in LESS_RIDGE:
        settings["lam"] = LESS_RIDGE[name]
    if "truth" in accepted:
        settings["truth"] = true_means
    return cls(DIM, lanes=LANES, seed=seed, **settings)


def theta_star(t: float) -> np.ndarray:
    """Twice the radius of the admissible ball, so that estimates are projected; it turns by half a circle."""
    angle = np.pi * t / ROUNDS
    return 2.0 * np.array([np.cos(angle), np.sin(angle), 0.3])


def true_means(t: float, arms: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-arms @ theta_star(t)))


def draw_world(seed: int, *, one_hot: bool) -> dict[str, np.ndarray]:
    rng, lanes = np.random.default_rng([seed, 20261116]), len(LANES)
    arms = rng.normal(size=(ROUNDS, lanes, ARMS, DIM))
    arms *= rng.random((ROUNDS, lanes, ARMS, 1)) ** (1 / DIM) / np.linalg.norm(arms, axis=-1, keepdims=True)
    arms = np.eye(DIM)[arms.argmax(axis=-1)] if one_hot else arms
    valid = rng.random((ROUNDS, lanes, ARMS)) < 0.8
    valid[..., 0] |= ~valid.any(axis=-1)
    return {
        "arms": arms,
        "valid": valid,
        "luck": rng.random((ROUNDS, lanes)),
        "delay": rng.choice([0, 0, 1, 7], size=(ROUNDS, lanes)),
        "weight": rng.choice([1.0, 1.0, 1.0, 2.0], size=(ROUNDS, lanes)),
    }


def play(name: str, seed: int) -> dict[str, np.ndarray]:
    policy = make_policy(name, seed)
    world = draw_world(seed, one_hot=policy.needs_one_hot)
    lanes, chosen, numbers = np.arange(len(LANES)), [], {key: [] for key in NUMBERS}
    due: list[tuple[int, int, float, np.ndarray, float, float]] = []  # arrives, lane, round, x, reward, weight
    for step in range(ROUNDS):
        if step % 50 == 30:
            policy.advance(0.5)
        if step == 120:
            policy.restart(np.array([True, False]))
        if step == 150:
            state, policy = policy.state(), make_policy(name, seed)
            policy.load_state(state)
        t, arms = policy.t, world["arms"][step]
        index = policy.select(arms, world["valid"][step] if step % 2 else None)
        chosen.append(index)
        clicks = world["luck"][step] < true_means(t, arms)[lanes, index]
        for lane in lanes:
            arrives, weight = step + world["delay"][step, lane], world["weight"][step, lane]
            due.append((arrives, lane, t, arms[lane, index[lane]], float(clicks[lane]), weight))
        for _, lane, decided, x, reward, weight in [entry for entry in due if entry[0] == step]:
            policy.update(np.tile(x, (len(LANES), 1)), reward, round=decided, weight=weight, mask=lanes == lane)
        if (step + 1) % EVERY == 0:
            for key, values in numbers.items():
                values.append(read(policy, key))
    return {"arms": np.array(chosen, dtype=np.uint8), **{key: np.array(values) for key, values in numbers.items()}}


def read(policy: Any, key: str) -> np.ndarray:
    return np.array(getattr(policy.info(), {"V": "metric"}.get(key, key)))


def record(names: list[str]) -> None:
    kept = dict(np.load(FILE)) if FILE.exists() else {}
    for name in names:
        runs = [play(name, seed) for seed in SEEDS]
        kept |= {f"{name}/{key}": np.stack([run[key] for run in runs]) for key in runs[0]}
    np.savez_compressed(FILE, **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", choices=sorted(windvane.POLICIES), help="may be repeated")
    record(parser.parse_args().policy or sys.exit("name the policies to record with --policy"))
