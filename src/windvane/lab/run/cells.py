"""Divide an experiment into cells: one environment, one policy, a few lanes.

A cell is what a worker computes and what is stored at once. The cells depend on the spec only, never on the machine, so
that a run can be continued on other cores or on a cluster. The lanes of a policy are its variants (the points of its
sweep) times the runs: lane ``i`` is run ``i % runs`` of variant ``i // runs``. The lanes of a cell share one policy
object, so variants that differ in a setting that is not accepted lane by lane are in different cells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane.arguments import Index
from windvane.lab.run.build import PER_LANE, find_per_lane

if TYPE_CHECKING:
    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.experiment_spec import Spec
    from windvane.lab.spec.policy_spec import PolicySpec


@dataclass(frozen=True)
class Cell:
    """Lanes ``first`` to ``last`` (exclusive) of policy number ``policy`` in environment number ``environment``."""

    environment: int
    policy: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"e{self.environment:03d}-p{self.policy:03d}-{self.first:08d}"

    def count_rounds(self, horizon: int) -> int:
        """Return the number of lane-rounds."""
        return (self.last - self.first) * horizon

    def select_from(self, spec: Spec) -> CellSpec:
        """Return the part of ``spec`` that describes this cell."""
        environment, policy = spec.environments[self.environment], spec.policies[self.policy]
        return CellSpec(self, environment, policy, spec.runs, spec.horizon, spec.seed, spec.record, spec.diagnostics)


@dataclass(frozen=True)
class CellSpec:
    """All that a worker needs to compute a cell."""

    cell: Cell
    environment: AnyEnvironmentSpec
    policy: PolicySpec
    runs: int
    horizon: int
    seed: int
    record: int
    diagnostics: bool

    def list_lanes(self) -> tuple[Index, Index]:
        """Return the run and the variant of each lane."""
        index = np.arange(self.cell.first, self.cell.last)
        return index % self.runs, index // self.runs


def list_variants(sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the swept values, those that share a policy object together; [{}] without a sweep."""
    names = [*sorted(sweep.keys() - set(PER_LANE)), *(name for name in PER_LANE if name in sweep)]
    return [dict(zip(names, point, strict=True)) for point in itertools.product(*(sweep[name] for name in names))]


def count_cells(sweep: Mapping[str, Sequence[Any]], runs: int, lanes_per_cell: int) -> int:
    """Return how many cells a policy with this sweep has at most in an environment."""
    variants = math.prod(len(values) for values in sweep.values())
    return variants * -(-runs // lanes_per_cell)


def list_cells(spec: Spec) -> list[Cell]:
    """Return all cells of the experiment, in the order of the spec."""
    cells = []
    for e in range(len(spec.environments)):
        for p, policy in enumerate(spec.policies):
            variants, per_lane = len(list_variants(policy.sweep)), find_per_lane(policy)
            together = spec.runs * math.prod(len(policy.sweep[name]) for name in per_lane)
            for start in range(0, spec.runs * variants, together):
                stop = start + together
                for first in range(start, stop, spec.lanes_per_cell):
                    cells.append(Cell(e, p, first, min(first + spec.lanes_per_cell, stop)))
    return cells


def choose_recorded_rounds(horizon: int, most: int) -> Index:
    """Return at most ``most`` rounds, spread over 1..horizon, with the horizon and its thirds among them."""
    if horizon <= most:
        return np.arange(1, horizon + 1)
    marks = [horizon, horizon // 3, 2 * horizon // 3][:most]
    spread = np.linspace(1, horizon, most - len(marks) + 1)[:-1]
    return np.unique(np.rint([*spread, *marks]).astype(np.int64))
