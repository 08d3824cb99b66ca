"""The value of a policy in a simulation of a model that is fitted to the log.

The model is mu(<x, theta_t>), logistic, where theta_t follows a stationary Ornstein-Uhlenbeck process. Its memory and
scale are those that predicted the rewards best (:func:`windvane.logs.evaluation.tracks.fit_rewards`). theta_t is
estimated from the rewards before *and* after row t: one filter runs forward, one backward, and since the process looks
the same in both directions,

    P^-1 = P_f^-1 + P_b^-1 - I / q,     theta = P (P_f^-1 theta_f + P_b^-1 theta_b)

combines their beliefs (the two-filter smoother; exact if the filters were linear). It is computed at points that are a
quarter of the effective memory apart, with straight lines between them. The simulation offers the arms of the log and
draws rewards of 0 or 1 with the fitted means, which arrive at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from windvane.arguments import Array
from windvane.estimation.filters import FilterBank
from windvane.links import get_link
from windvane.logs.evaluation.contenders import build_contender
from windvane.logs.evaluation.estimates import Estimate, ModelResult
from windvane.logs.evaluation.log_walk import ask, check_choices, read_batches
from windvane.logs.evaluation.survey import Survey
from windvane.logs.evaluation.tracks import ModelFit, create_array
from windvane.logs.log import Log, LogSchema

if TYPE_CHECKING:
    from windvane.lab.spec.policy_spec import PolicySpec

LANES = 3  # runs of a policy in the simulation; their means are averaged
POINTS_PER_MEMORY = 4
LARGEST_PATH = 2**24  # entries of the matrices at all points, 128 MiB
REWARDS = 0x73696D75  # the purpose of the rewards in the key of their generator
ESTIMAND = "mean reward per decision in a simulation of the model that was fitted to the log"
CAVEAT = "valid if the model is right; the error of the fit is not included, and rewards arrive at once"
NO_INTERVAL = "no interval, because the error of the model is unknown"


@dataclass(frozen=True, kw_only=True)
class FittedPath:
    """The estimates ``thetas`` of theta* at the ``rows``; on straight lines between them."""

    rows: Array
    thetas: Array
    fit: ModelFit

    def at(self, start: int, stop: int) -> Array:
        """Return theta at some consecutive rows, [n, dim]."""
        t = np.arange(start, stop, dtype=float)
        return np.stack([np.interp(t, self.rows, coordinate) for coordinate in self.thetas.T], axis=1)

    @property
    def length(self) -> float:
        """The length of the path, B_T."""
        return float(np.sqrt(np.square(np.diff(self.thetas, axis=0)).sum(axis=1)).sum())


def fit_path(log: Log, survey: Survey, fit: ModelFit, folder: Path) -> FittedPath:
    """Fit theta* to all rewards of the log.

    Parameters
    ----------
    log, survey
        The log and its survey.
    fit
        The memory and the scale.
    folder
        A folder for the vectors of the arms that were played, which are read in both directions.

    Returns
    -------
    FittedPath
        The path.
    """
    n, dim = survey.rows, log.schema.dim
    x = create_array(folder / "x.npy", np.float32, (n, dim))
    rewards, weights, row = np.empty(n), np.empty(n), 0
    for batch in log.batches():
        stop = row + len(batch)
        is_known = np.isfinite(batch.reward_time) & batch.is_learned
        x[row:stop], weights[row:stop] = batch.x, batch.weight
        rewards[row:stop] = np.where(is_known, batch.reward, np.nan)
        row = stop
    points = _choose_points(n, fit.effective_memory, dim)
    bank = FilterBank(
        dim, get_link("logistic"), memories=np.array([fit.memory]), scales=np.array([fit.scale]), dispersion=1.0,
        lanes=2, L=log.schema.L,
    )  # fmt: skip
    thetas, inverses = _filter_both(bank, x, rewards, weights, points)
    prior = np.eye(dim) / float(bank.beliefs["q"][0, 0])
    precision = inverses.sum(axis=0) - prior
    pulls = np.einsum("bgij,bgj->gi", inverses, thetas)
    return FittedPath(rows=points.astype(float), thetas=np.linalg.solve(precision, pulls[..., None])[..., 0], fit=fit)


def _choose_points(n: int, memory: float, dim: int) -> Array:
    """Return the rows at which theta* is estimated."""
    count = 2.0 if math.isinf(memory) else POINTS_PER_MEMORY * n / memory
    most = max(2, LARGEST_PATH // (2 * dim * dim))
    return np.unique(np.linspace(0, n - 1, int(min(max(count, 2), most, n))).astype(np.int64))


def _filter_both(bank: FilterBank, x: Array, rewards: Array, weights: Array, points: Array) -> tuple[Array, Array]:
    """Filter forward in lane 0 and backward in lane 1. Return theta and P^-1 at the points, [2, points, ...].

    At row t the forward filter knows the rows before t, and the backward one those from t on.
    """
    n, dim = x.shape
    place = {int(row): index for index, row in enumerate(points)}
    thetas, inverses = np.empty((2, len(points), dim)), np.empty((2, len(points), dim, dim))
    experts, age, pair = np.zeros(2, dtype=np.int64), np.zeros(2), np.empty((2, dim))

    def keep(lane: int, index: int) -> None:
        thetas[lane, index] = bank.theta[lane, 0]
        inverses[lane, index] = np.linalg.inv(bank.covariance(experts)[lane])

    for t in range(n):
        back = n - 1 - t
        if (index := place.get(t)) is not None:
            keep(0, index)
        pair[0], pair[1] = x[t], x[back]
        reward = np.array([rewards[t], rewards[back]], dtype=float)
        is_known = ~np.isnan(reward)
        if is_known.any():
            weight = np.array([weights[t], weights[back]], dtype=float)
            bank.absorb(pair, np.where(is_known, reward, 0.0), age, weight, is_known)
        if (index := place.get(back)) is not None:
            keep(1, index)
        bank.age(1.0)
    return thetas, inverses


def simulate_policy(log: Log, survey: Survey, spec: PolicySpec, path: FittedPath, seed: int) -> tuple[float, float]:
    """Return the mean reward of a policy in the fitted model, and that of the logged arms, both in [0, 1].

    Parameters
    ----------
    log, survey
        The log and its survey.
    spec, path, seed
        The policy, the model and the seed.

    Returns
    -------
    tuple of float
        The means of the fitted mean rewards of the chosen arms and of the logged arms.
    """
    policy = build_contender(spec, log.schema, survey.rows, lanes=LANES, seed=seed)
    generator = np.random.Generator(np.random.Philox(key=[seed, REWARDS]))
    link, lanes, row = get_link("logistic"), np.arange(LANES), 0
    total = logged = weight = 0.0
    for batch in read_batches(log, LANES, survey.most_arms):
        n = len(batch)
        means = link.mean(np.einsum("nkd,nd->nk", batch.arms, path.at(row, row + n)))
        draws, row = generator.random((n, LANES)), row + n
        arms = np.repeat(batch.arms[:, None], LANES, axis=1)
        valid = None if batch.valid.all() else np.repeat(batch.valid[:, None], LANES, axis=1)
        earned = np.empty((n, LANES))
        for i in range(n):
            choice = ask(policy, arms[i], None if valid is None else valid[i])
            check_choices(choice[None], batch.valid[[i]])
            earned[i] = mean = means[i, choice]
            policy.update(arms[i, lanes, choice], (draws[i] < mean).astype(float))
        weight += float(batch.weight.sum())
        total += float(batch.weight @ earned.mean(axis=1))
        logged += float(batch.weight @ means[np.arange(n), batch.played])
    return total / weight, logged / weight


def present_model(schema: LogSchema, means: tuple[float, float], path: FittedPath) -> ModelResult:
    """Return the result of a simulation in the unit of the log."""
    value = schema.to_reward(means[0])
    return ModelResult(
        value=Estimate(value=value, estimand=ESTIMAND, caveat=CAVEAT, reason=NO_INTERVAL),
        log_value=schema.to_reward(means[1]), lanes=LANES, scale=path.fit.scale, drift=path.length,
        memory=None if math.isinf(path.fit.effective_memory) else path.fit.effective_memory,
    )  # fmt: skip
