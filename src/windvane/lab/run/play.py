"""Play one cell of an experiment, from the first round to the last.

In every round the environment offers arms, the policy chooses one, its reward is drawn from the one uniform number of
(run, round), and the policy learns it at once or after its delay. At most 1,000 rounds of a run are recorded, so what
is recorded does not grow with the horizon.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.environments import AnyEnvironment, Environment
from windvane.lab.run.build import build_environment, build_policy, close_environment, list_unit_vectors
from windvane.lab.run.cells import CellSpec, choose_recorded_rounds, list_variants
from windvane.lab.run.delayed_rewards import DelayedRewards

if TYPE_CHECKING:
    from windvane.policies.base import Policy

STAGES = 4  # 0: no projection was made; 1: the estimate was admissible; 2 and 3: how it was brought back
QUANTITIES = (
    "learning", "beta", "tracking", "tracking_bound", "lemma_2_slack", "lemma_3_slack", "lemma_4_slack",
)  # fmt: skip
"""The diagnostics of a recorded round, which :mod:`windvane.lab.run.diagnostics` defines."""
Tick = Callable[[int], None]


@dataclass
class ThetaPath:
    """The parameter, the estimate and the projected estimate in run 0 of a cell."""

    rounds: npt.NDArray[np.int64]
    theta_star: Array
    theta_hat: Array
    theta_tilde: Array
    S: float


@dataclass
class CellResult:
    """The result of a cell, lane by lane (n lanes, R recorded rounds)."""

    lanes: npt.NDArray[np.int64]  # run ids
    variants: npt.NDArray[np.int64]
    rounds: npt.NDArray[np.int64]
    regret: Array  # [n, R]
    reward: Array  # [n], the sum of all rewards
    drift: Array  # [n], B_T; nan in a labelled data stream, where no theta* is known
    switches: npt.NDArray[np.int64]
    gamma: Array  # [n]
    outside: Array  # [n], share of rounds with the estimate outside Theta; nan where there is none
    stages: Array  # [n, STAGES], share of rounds by projection stage; nan where there is none
    paths: dict[int, ThetaPath]  # by variant, of run 0
    diagnostics: dict[str, Array]  # QUANTITIES, [n, R] each; empty where they are not recorded
    seconds: float  # in select and update


def play_cell(spec: CellSpec, tick: Tick | None = None) -> CellResult:
    """Compute one cell; ``tick(t)`` is called after every round."""
    ids, variants = spec.list_lanes()
    environment = build_environment(spec.environment, horizon=spec.horizon, lanes=[int(i) for i in ids], seed=spec.seed)
    points = list_variants(spec.policy.sweep)
    policy = build_policy(spec.policy, environment, [points[v] for v in variants])
    try:
        return _play(spec, environment, policy, _Recorder(spec, environment, policy, ids, variants), tick)
    finally:
        close_environment(environment)


def _play(
    spec: CellSpec, environment: AnyEnvironment, policy: Policy, recorder: _Recorder, tick: Tick | None
) -> CellResult:
    """Play all rounds."""
    from windvane.lab.run.diagnostics import Diagnostics, applies  # imports numba, which readers of results do not need

    probe = None
    if spec.diagnostics and isinstance(environment, Environment) and applies(policy):
        probe = Diagnostics(policy, environment)
    unit_vectors = list_unit_vectors(policy, environment)
    dim = environment.dim if unit_vectors is None else unit_vectors.shape[2]
    delayed = None if environment.delay is None else DelayedRewards(spec.horizon, environment.lanes, dim)
    everyone = np.arange(environment.lanes)
    clock, spent = time.perf_counter, 0.0
    for t in range(1, spec.horizon + 1):
        offer = environment.round(t)
        recorded = recorder.is_recorded(t)
        if probe:
            probe.begin_round(offer, recorded)
        arms = offer.arms if unit_vectors is None else unit_vectors
        began = clock()
        choice = policy.select(arms, offer.valid)
        spent += clock() - began
        choice = offer.check_choice(choice, "select(arms)")  # a policy of the user's own may return anything
        if probe:
            probe.measure_decision(offer, choice)
        x = arms[everyone, choice]
        reward, mean = environment.play(offer, choice)
        delay = environment.delays(t)
        if delayed is None or delay is None:
            began = clock()
            policy.update(x, reward)
            spent += clock() - began
            if probe:
                probe.learn(x, mean, np.full(len(x), float(t)), None)
        else:
            delayed.add(t, x, reward, mean, delay)
            for batch in delayed.collect(t):
                began = clock()
                policy.update(batch.x, batch.reward, round=batch.decided, mask=batch.mask)
                spent += clock() - began
                if probe:
                    probe.learn(batch.x, batch.mean, batch.decided, batch.mask)
        recorder.add(t, offer.theta, offer.best - mean, reward, probe.read_row() if probe and recorded else {})
        if tick:
            tick(t)
    return recorder.build_result(spent)


class _Recorder:
    """Collect the fields of a :class:`CellResult`, round by round."""

    def __init__(
        self,
        spec: CellSpec,
        environment: AnyEnvironment,
        policy: Policy,
        ids: npt.NDArray[np.int64],
        variants: npt.NDArray[np.int64],
    ) -> None:
        self._environment, self._policy = environment, policy
        self._ids, self._variants = ids, variants
        self._rounds = choose_recorded_rounds(spec.horizon, spec.record)
        self._next = 0
        n, R, d = len(ids), len(self._rounds), environment.dim
        self._sum, self._reward = np.zeros(n), np.zeros(n)
        self._regret = np.empty((n, R))
        self._outside = np.zeros(n)
        self._stages = np.zeros((n, STAGES))
        self._has_estimate = self._has_stages = False
        self._everyone = np.arange(n)
        S = getattr(policy, "S", None)  # Theta is the policy's, which may have been told another S, or none
        self._S = environment.S if S is None else S
        self._first = np.flatnonzero(ids == 0)  # lanes of run 0: their parameters are kept for the figure
        self._thetas = np.full((3, len(self._first), R, d), np.nan)
        self._diagnostics: dict[str, Array] = {}

    def is_recorded(self, t: int) -> bool:
        return bool(self._rounds[self._next] == t)

    def add(self, t: int, theta: Array, lost: Array, reward: Array, row: dict[str, Array]) -> None:
        self._sum += lost
        self._reward += reward
        decision = getattr(self._policy, "decision", None)  # the class need not be a Policy
        hat, tilde, projection = (getattr(decision, name, None) for name in ("theta_hat", "theta_tilde", "projection"))
        stage = None if projection is None else projection.stage
        if hat is not None:
            self._has_estimate = True
            self._outside += np.sqrt(np.einsum("ij,ij->i", hat, hat)) > self._S * (1.0 + 1e-9)
        if stage is not None:
            self._has_stages = True
            self._stages[self._everyone, stage] += 1.0
        if not self.is_recorded(t):
            return
        at = self._next
        self._regret[:, at] = self._sum
        self._thetas[0, :, at] = theta[self._first]
        for i, estimate in enumerate((hat, tilde), start=1):
            if estimate is not None:
                self._thetas[i, :, at] = estimate[self._first]
        for name, values in row.items():
            self._diagnostics.setdefault(name, np.full(self._regret.shape, np.nan))[:, at] = values
        self._next = min(at + 1, len(self._rounds) - 1)

    def build_result(self, seconds: float) -> CellResult:
        from windvane.policies.base import Policy

        T, n = self._environment.horizon, len(self._ids)
        gamma = self._policy.info().gamma if isinstance(self._policy, Policy) else None
        star, hat, tilde = self._thetas
        return CellResult(
            lanes=self._ids,
            variants=self._variants,
            rounds=self._rounds,
            regret=self._regret,
            reward=self._reward,
            drift=self._environment.variation if self._environment.has_theta else np.full(n, np.nan),
            switches=self._environment.switches,
            gamma=np.full(n, np.nan) if gamma is None else np.broadcast_to(np.asarray(gamma, dtype=float), (n,)),
            outside=self._outside / T if self._has_estimate else np.full(n, np.nan),
            stages=self._stages / T if self._has_stages else np.full((n, STAGES), np.nan),
            paths={
                int(self._variants[lane]): ThetaPath(self._rounds, star[i], hat[i], tilde[i], self._S)
                for i, lane in enumerate(self._first)
            },
            diagnostics=self._diagnostics,
            seconds=seconds,
        )
