"""Passes over a log that write their results to files, so that memory does not grow with the log.

A *track* records what one lane of a policy does in every row: the set of arms that it prefers, and whether the row
counts for it. The track of the reward model holds its predictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.logs.evaluation.contenders import build_contender, list_assumptions
from windvane.logs.evaluation.log_walk import LogWalk, find_preferred, read_batches, read_means, read_order
from windvane.logs.evaluation.survey import Survey
from windvane.logs.evaluation.thinning import Coins, iterate_passes
from windvane.logs.log import Log, LogSchema

if TYPE_CHECKING:
    from windvane.lab.spec.policy_spec import PolicySpec


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """What to replay: the first lane learns all rewards if ``learns_all`` is 1; there is a lane for every share."""

    survey: Survey
    learns_all: int
    shares: tuple[float, ...]
    seed: int

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return self.learns_all + len(self.shares)


@dataclass(frozen=True, kw_only=True)
class ModelFit:
    """The memory (correlation time) and the scale of the reward model whose predictions were best.

    ``effective_memory`` is the number of rows over which a filter with this memory and scale averages. It is shorter
    than the correlation time, because rewards correct the belief long before theta* is expected to return to 0.
    """

    memory: float
    scale: float
    effective_memory: float


def create_array(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return a new array in a file."""
    array: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    return array


def replay_policy(log: Log, spec: PolicySpec, plan: ReplayPlan, folder: Path, name: str) -> dict[str, Any]:
    """Run a policy through the log, and return its assumed settings.

    The files ``name-preferred.npy`` [rows, lanes, K] and ``name-counted.npy`` [rows, lanes] hold its tracks.
    """
    survey = plan.survey
    policy = build_contender(spec, log.schema, survey.rows, lanes=plan.lanes, seed=plan.seed)
    shape = (survey.rows, plan.lanes)
    preferred = create_array(folder / f"{name}-preferred.npy", np.bool_, (*shape, survey.most_arms))
    counted = create_array(folder / f"{name}-counted.npy", np.bool_, shape)
    walk, row = LogWalk(policy, plan.lanes, plan.learns_all, read_order), 0
    coins = Coins(plan.seed, plan.shares, survey.largest_weight)
    batches = read_batches(log, plan.lanes, survey.most_arms)
    for batch, passes in iterate_passes(batches, coins, plan.learns_all):
        stop, K = row + len(batch), batch.valid.shape[1]
        choices, counted[row:stop], order = walk.add(batch, passes)
        preferred[row:stop, :, :K] = find_preferred(order, choices, batch.valid)
        row = stop
    return list_assumptions(spec, policy)


def fit_rewards(log: Log, survey: Survey, folder: Path, seed: int) -> ModelFit:
    """Predict the rewards of all arms in every row from the rewards that had arrived.

    The predictions are written to the file ``q.npy`` [rows, K]. The model is the bank of filters of AdaptiveGLMUCB
    with its acting expert, which needs no settings.
    """
    policy = build_reward_model(log.schema, seed)
    q, row = create_array(folder / "q.npy", np.float32, (survey.rows, survey.most_arms)), 0
    walk = LogWalk(policy, 1, 1, read_means)
    for batch in read_batches(log, 1, survey.most_arms):
        stop, K = row + len(batch), batch.valid.shape[1]
        means = walk.add(batch, np.ones((len(batch), 1), dtype=bool))[2]
        assert means is not None  # this policy records its predictions
        q[row:stop, :K] = np.where(batch.valid, means[:, 0], 0.0)
        row = stop
    best = int(policy.bank.beliefs["run_loss"][0].argmin())
    memory, scale = divmod(best, len(policy.bank.scales))
    return ModelFit(
        memory=float(policy.bank.memories[memory]), scale=float(policy.bank.scales[scale]),
        effective_memory=float(policy.bank.effective_memories()[0, best]),
    )  # fmt: skip


def build_reward_model(schema: LogSchema, seed: int) -> Any:
    """Return the policy whose predictions are the reward model."""
    from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB

    return AdaptiveGLMUCB(dim=schema.dim, L=schema.L, seed=seed)


class Tracks:
    """The tracks of a policy, read back from its files.

    Parameters
    ----------
    folder, name
        Where :func:`replay_policy` wrote them.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._preferred = np.load(folder / f"{name}-preferred.npy", mmap_mode="r")
        self._counted = np.load(folder / f"{name}-counted.npy", mmap_mode="r")

    def read_probabilities(self, lane: int, rows: slice, arms: int, epsilon: float, valid: Any) -> Array:
        """Return the probabilities of one lane, mixed with ``epsilon`` of uniform exploration, [n, K]."""
        preferred = self._preferred[rows, lane, :arms].astype(float)
        pi = preferred / preferred.sum(axis=1, keepdims=True)
        if epsilon:
            pi = (1.0 - epsilon) * pi + epsilon * valid / valid.sum(axis=1, keepdims=True)
        return np.asarray(pi)

    def read_counted(self, lane: int, rows: slice) -> npt.NDArray[np.bool_]:
        """Return the rows that count for one lane, [n]."""
        return np.asarray(self._counted[rows, lane])
