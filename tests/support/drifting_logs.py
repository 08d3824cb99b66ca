"""Simulated logs with a known drift, one per lane of an environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from windvane.arguments import Array
from windvane.environments import BallArms, Environment
from windvane.logs import ArrayLog, from_arrays
from windvane.logs.drift.diagnosis import measure_information_per_decision
from windvane.logs.drift.evidence import Evidence, weigh_evidence
from windvane.logs.drift.logistic_fit import fit_logistic
from windvane.logs.drift.replay import Replay, replay_log
from windvane.logs.drift.rows import RewardedRows, read_rows
from windvane.policies.base import Policy

SURE = 0.001  # level of the tests of tests: one in a thousand right programs fails


class Histories(NamedTuple):
    """What was offered, played and earned, [lanes, rounds, ...], and theta*."""

    arms: Array
    played: Array
    reward: Array
    theta: Array

    def log(self, lane: int, **columns: Any) -> ArrayLog:
        return from_arrays(self.arms[lane], self.played[lane], self.reward[lane], **columns)


def simulate(
    drift: Any, *, rounds: int, lanes: int, dim: int = 2, S: float = 2.0, count: int = 4, seed: int = 0,
    intercept: float | None = None, policy: Policy | None = None,
) -> Histories:  # fmt: skip
    """Play an environment at random, or by ``policy``, which learns from each reward at once."""
    world = Environment(
        drift, BallArms(count), dim=dim, S=S, horizon=rounds, lanes=lanes, seed=seed, intercept=intercept
    )
    rng, every = np.random.default_rng(seed), np.arange(lanes)
    arms, played = np.empty((lanes, rounds, count, world.dim)), np.empty((lanes, rounds), dtype=np.int64)
    reward, theta = np.empty((lanes, rounds)), np.empty((lanes, rounds, world.dim))
    for t in range(rounds):
        offer = world.round(t + 1)
        choice = rng.integers(count, size=lanes) if policy is None else policy.select(offer.arms)
        outcome = world.play(offer, choice)
        if policy is not None:
            policy.update(offer.arms[every, choice], outcome.reward)
        arms[:, t], played[:, t], reward[:, t], theta[:, t] = offer.arms, choice, outcome.reward, offer.theta
    return Histories(arms, played, reward, theta)


class Examined(NamedTuple):
    rows: RewardedRows
    replay: Replay
    evidence: Evidence


def examine(log: ArrayLog, alpha: float = 0.05) -> Examined:
    """The rows of a log, its replay and its evidence."""
    rows = read_rows(log)
    theta = fit_logistic(rows.x, rows.reward).theta
    replay = replay_log(rows, measure_information_per_decision(rows, theta))
    return Examined(rows, replay, weigh_evidence(rows, replay, alpha))


def is_plausible(successes: int, trials: int, least: float) -> bool:
    """Whether ``successes`` are not too few for a probability of at least ``least``, by a binomial test."""
    return bool(stats.binomtest(successes, trials, least, alternative="less").pvalue > SURE)


def displacement(theta: Array, span: int) -> float:
    """The root mean square displacement of a path [rounds, d] over ``span`` rounds."""
    return float(np.sqrt(np.square(theta[span:] - theta[:-span]).sum(axis=1).mean()))
