"""Logs of drifting worlds in which the mean and the reward of every arm are known, many logs ("lanes") at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from support.worlds import ball
from windvane import AdaptiveGLMUCB
from windvane.logs import ArrayLog, from_arrays
from windvane.logs.evaluation.log_walk import find_preferred, read_means, read_order

INTERCEPT = 0.6  # the last feature; arms are within the unit ball
LATEST = 30  # rows after which the last of the late rewards arrive


@dataclass
class WrittenLogs:
    """Arrays are [rows, lanes, ...]; ``rewards`` has that of every arm, ``delay`` is in rows."""

    arms: np.ndarray
    means: np.ndarray
    rewards: np.ndarray
    probabilities: np.ndarray
    played: np.ndarray
    delay: np.ndarray
    floor: float

    @property
    def reward(self) -> np.ndarray:
        return np.take_along_axis(self.rewards, self.played[:, :, None], axis=2)[:, :, 0]

    @property
    def propensity(self) -> np.ndarray:
        return np.take_along_axis(self.probabilities, self.played[:, :, None], axis=2)[:, :, 0]

    @property
    def x(self) -> np.ndarray:
        return np.take_along_axis(self.arms, self.played[:, :, None, None], axis=2)[:, :, 0]

    def log(self, lane: int, *, has_all: bool = True, **changes: Any) -> ArrayLog:
        """The log of one lane."""
        time = np.arange(1.0, len(self.arms) + 1.0)
        chance = {"probabilities": self.probabilities[:, lane]} if has_all else {"propensity": self.propensity[:, lane]}
        fields: dict[str, Any] = {
            "time": time, "reward_time": time + self.delay[:, lane], "floor": self.floor, **chance, **changes,
        }  # fmt: skip
        return from_arrays(self.arms[:, lane], self.played[:, lane], self.reward[:, lane], **fields)


class Learner:
    """Lanes of a policy that learn logged rewards when they arrive, written independently of the package."""

    def __init__(self, policy: Any, rows: int) -> None:
        self.policy, self.due = policy, [[] for _ in range(rows + LATEST + 1)]
        self.row = 0

    def decide(self, arms: np.ndarray) -> np.ndarray:
        for x, reward, row, lanes in self.due[self.row]:
            self.policy.update(x, reward, round=row + 1.0, mask=lanes)
        self.due[self.row] = []
        return self.policy.select(np.ascontiguousarray(arms))

    def learn(self, x: np.ndarray, reward: np.ndarray, delay: np.ndarray) -> None:
        if (now := delay == 0).any():
            self.policy.update(x, reward, mask=now)
        for late in np.unique(delay[delay > 0]):
            self.due[self.row + late].append((x.copy(), reward.copy(), self.row, delay == late))
        self.row += 1


def draw_arms(rng: np.random.Generator, rows: int, lanes: int, K: int, dim: int) -> np.ndarray:
    arms = np.empty((rows, lanes, K, dim))
    arms[..., :-1] = ball(rng, (rows, lanes, K), dim - 1, np.sqrt(1.0 - INTERCEPT**2))
    arms[..., -1] = INTERCEPT
    return arms


def draw_means(rng: np.random.Generator, arms: np.ndarray, level: float) -> np.ndarray:
    """theta* turns, at another pace in every lane, and jumps half-way."""
    rows, lanes, _, dim = arms.shape
    t = np.arange(rows)[:, None]
    angle = rng.uniform(0, 2 * np.pi, lanes) + t / rows * rng.uniform(0, 4 * np.pi, lanes) + 2.0 * (t > rows / 2)
    theta = np.zeros((rows, lanes, dim))
    theta[..., 0], theta[..., 1] = 2.5 * np.cos(angle), 2.5 * np.sin(angle)
    theta[..., -1] = level / INTERCEPT
    return 1 / (1 + np.exp(-np.einsum("nlkd,nld->nlk", arms, theta)))


def write_logs(
    *, lanes: int, rows: int, epsilon: float, logger: str = "adaptive", K: int = 4, dim: int = 3, late: bool = False,
    level: float = -0.5, seed: int = 0,
) -> WrittenLogs:  # fmt: skip
    """Logs by a policy that plays a uniform arm with probability epsilon.

    Otherwise "adaptive" plays what AdaptiveGLMUCB chooses, which learns, and "fixed" the arm whose first feature is
    largest.
    """
    rng = np.random.default_rng([seed, lanes, rows])
    arms = draw_arms(rng, rows, lanes, K, dim)
    means = draw_means(rng, arms, level)
    rewards = (rng.random((rows, lanes, 1)) < means).astype(float)
    delay = np.minimum(rng.geometric(0.2, (rows, lanes)) - 1, LATEST) if late else np.zeros((rows, lanes), dtype=int)
    coins = rng.random((rows, lanes))
    p, played = np.empty((rows, lanes, K)), np.empty((rows, lanes), dtype=np.int64)
    learner, every = Learner(AdaptiveGLMUCB(dim=dim, lanes=lanes, seed=5), rows), np.arange(lanes)
    for t in range(rows):
        choice = learner.decide(arms[t]) if logger == "adaptive" else arms[t, :, :, 0].argmax(axis=1)
        p[t] = epsilon / K
        p[t, every, choice] += 1 - epsilon
        played[t] = np.minimum((p[t].cumsum(axis=1) <= coins[t][:, None]).sum(axis=1), K - 1)
        if logger == "adaptive":
            learner.learn(arms[t, every, played[t]], rewards[t, every, played[t]], delay[t])
    return WrittenLogs(arms, means, rewards, p, played, delay, epsilon / K)


def follow(logs: WrittenLogs, policy: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """What lanes of a policy that learns the logged rewards do and predict: pi and q, [rows, lanes, K]."""
    learner, pi, q = Learner(policy, len(logs.arms)), [], []
    x, reward = logs.x, logs.reward
    for t in range(len(logs.arms)):
        choice = learner.decide(logs.arms[t])
        order = read_order(policy.decision)[:, None]
        preferred = find_preferred(order, choice[:, None], np.ones(order.shape[::2], dtype=bool))[:, 0]
        pi.append(preferred / preferred.sum(axis=1, keepdims=True))
        q.append(read_means(policy.decision))
        learner.learn(x[t], reward[t], logs.delay[t])
    return np.array(pi), None if q[0] is None else np.array(q)
