"""An experiment cut into cells: one environment, one policy, a few lanes.

A cell is what a worker computes and what is stored at once. Which cells there are depends on the spec alone, never on
the machine, so that a run may be continued with other cores, or on a cluster. The lanes of a policy are its variants
(the points of its sweep) times the runs; lane ``i`` is run ``i % runs`` of variant ``i // runs``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec


@dataclass(frozen=True)
class Cell:
    """Lanes ``first`` to ``last`` (exclusive) of policy number ``policy`` in environment number ``environment``."""

    environment: int
    policy: int
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"e{self.environment:03d}-p{self.policy:03d}-{self.first:08d}"

    def lanes(self, runs: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(run id, variant) of each lane."""
        index = np.arange(self.first, self.last)
        return index % runs, index // runs


def cells_of(spec: Spec) -> list[Cell]:
    """All cells of the experiment, in the order of the spec."""
    found = []
    for e in range(len(spec.environments)):
        for p, policy in enumerate(spec.policies):
            lanes = spec.runs * len(policy.variants)
            for first in range(0, lanes, spec.lanes_per_cell):
                found.append(Cell(e, p, first, min(first + spec.lanes_per_cell, lanes)))
    return found


def recorded_rounds(horizon: int, most: int) -> npt.NDArray[np.int64]:
    """At most ``most`` rounds, spread over 1..horizon; the last one is the horizon, and the thirds are among them."""
    if horizon <= most:
        return np.arange(1, horizon + 1)
    marks = [horizon, horizon // 3, 2 * horizon // 3][:most]
    spread = np.linspace(1, horizon, most - len(marks) + 1)[:-1]
    return np.unique(np.rint([*spread, *marks]).astype(np.int64))
