"""Sweep a policy over discounts and bonus scales, and find the best point of the grid.

All points of the grid are lanes of one policy and share their random numbers, so each is compared with the best one run
by run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_number, check_whole
from windvane.errors import ArgumentError
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import group_by_environment
from windvane.lab.results.summary import compare_pair, measure_spread
from windvane.lab.spec.policy_spec import SCALES, PolicySpec

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry, Results
    from windvane.lab.spec.experiment_spec import Spec
    from windvane.policies.base import Policy

AXES = ("gamma", *SCALES)  # what a sweep can be drawn over
_SHORTEST = 10.0  # rounds of memory that the smallest default discount keeps, where the horizon is long enough


@dataclass(frozen=True)
class SweepGrid:
    """Mean final regret over the grid; an axis that was not swept has the single value nan.

    ``close`` marks the points whose paired t interval against the best one reaches 0. The intervals are not corrected
    for their number: of many points a few differ by chance, and the mean at the best point, a minimum, is too low.
    """

    environment: str
    policy: str
    runs: int
    gammas: Array  # [G], ascending
    scales: Array  # [B], ascending
    mean: Array  # [G, B]; nan where a point is not finished
    se: Array  # [G, B]
    best: tuple[int, int]
    close: npt.NDArray[np.bool_]  # [G, B]; true at the best point

    @property
    def best_gamma(self) -> float:
        """The discount of the best point."""
        return float(self.gammas[self.best[0]])

    @property
    def best_scale(self) -> float:
        """The bonus scale of the best point."""
        return float(self.scales[self.best[1]])


def default_gammas(horizon: int, n: int, recommended: float | None = None) -> Array:
    """Return ``n`` ascending discounts whose memories 1 / (1 - gamma) are log-spaced from 10 rounds to the horizon.

    Horizons below 100 start from their square root. ``recommended`` is one more discount.
    """
    T, count = check_whole("horizon", horizon, 2), check_whole("n", n, 1)
    least = min(_SHORTEST, math.sqrt(T))
    memories = np.geomspace(least, T, count) if count > 1 else np.array([math.sqrt(least * T)])
    gammas = 1.0 - 1.0 / memories
    if recommended is not None:
        gammas = np.append(gammas, check_number("recommended", recommended, "in (0, 1]", lambda g: 0 < g <= 1))
    return np.unique(gammas)


def tune_spec(
    base: Spec,
    policy: str | type[Policy] | PolicySpec,
    gammas: Sequence[float] | Array | None,
    scales: Sequence[float] | Array | None = None,
) -> Spec:
    """Return ``base`` with one policy, swept over the product of ``gammas`` and ``scales`` (None: not swept).

    ``policy`` may be the name of one of the policies of ``base``, whose other settings are then kept.
    """
    if not isinstance(policy, PolicySpec):
        policy = next((known for known in base.policies if known.name == policy), None) or PolicySpec(policy)
    axes = {"gamma": gammas, policy.scale or SCALES[0]: scales}
    sweep = {name: [float(v) for v in values] for name, values in axes.items() if values is not None}
    if not sweep:
        raise ArgumentError("gammas", None, "given unless `scales` is")
    replaced = {*sweep, "drift"} if gammas is not None else {*sweep}  # drift chooses a gamma
    settings = {name: value for name, value in policy.settings.items() if name not in replaced}
    return replace(base, policies=(replace(policy, settings=settings, sweep=sweep),))


def read_sweep(results: Results, environment: str | None = None, confidence: float = 0.95) -> SweepGrid:
    """Return the grid of a sweep in one ``environment`` (default: the only one).

    The sweep need not be complete. Points with fewer runs than the others count as not finished.
    """
    entries, names = _points(results, environment)
    runs = max(len(entry.lanes) for entry in entries)
    finished = [entry for entry in entries if len(entry.lanes) == runs]
    axes = [np.unique([entry.variant.get(name, math.nan) for entry in entries]) for name in names]
    shape = len(axes[0]), len(axes[1])
    mean, se, close = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    best = min(finished, key=lambda entry: float(entry.final.mean()))
    for entry in finished:
        at = _place(entry, names, axes)
        mean[at], (se[at], _) = float(entry.final.mean()), measure_spread(entry.final)
        close[at] = entry is best or not compare_pair(entry, best, confidence).low > 0.0  # low is nan for one run
    place, (gammas, scales) = _place(best, names, axes), axes
    return SweepGrid(best.environment, best.policy, runs, gammas, scales, mean, se, place, close)


def _points(results: Results, environment: str | None) -> tuple[list[Entry], tuple[str, str]]:
    """Return the entries of the sweep in one environment, and the settings that are its two axes."""
    groups = group_by_environment(results.entries)
    if not groups:
        raise FolderError(results.folder, "unfinished", "holds no finished results")
    if environment not in groups and (environment is not None or len(groups) > 1):
        raise ArgumentError("environment", environment, f"one of {', '.join(groups)}")
    entries = groups[environment or next(iter(groups))]
    policies = list(dict.fromkeys(entry.policy for entry in entries))
    swept = {name for entry in entries for name in entry.variant}
    axes = "gamma", next((name for name in SCALES if name in swept), SCALES[0])
    problem = ""
    if len(policies) > 1:
        problem = f"must hold a sweep of one policy, not of {', '.join(policies)}"
    elif not swept or not swept <= {*axes}:
        problem = f"must sweep gamma, {' or '.join(SCALES)}, or both, not {sorted(swept) or 'nothing'}"
    if problem:
        raise FolderError(results.folder, "not_a_sweep", problem)
    return entries, axes


def _place(entry: Entry, names: tuple[str, str], axes: Sequence[Array]) -> tuple[int, int]:
    """Return the row and column of the entry; an axis that was not swept has one value, nan."""
    row, column = (int(np.searchsorted(axes[i], entry.variant.get(names[i], math.nan))) for i in range(2))
    return row, column
