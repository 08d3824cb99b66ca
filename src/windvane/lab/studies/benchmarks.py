"""What the benchmarks share: the choice of policies, the function that runs a spec, and the merging of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from windvane.arguments import check_choice
from windvane.errors import ArgumentError
from windvane.lab.figures.curves import by_environment
from windvane.lab.results.results import Results
from windvane.lab.spec.experiment_spec import PolicySpec, Spec

LANES = 30  # lanes per cell, the unit of work of a worker

Conduct = Callable[[Spec, Path, str], Results]
"""``conduct(spec, folder, text)`` runs a spec in a folder; ``text`` describes it on the progress bar."""


def choose_policies(
    names: Sequence[str] | None, allowed: Collection[str], references: Collection[str]
) -> list[PolicySpec]:
    """Return the policies with these names (default: all allowed ones). At least one must not be a reference."""
    if names is not None and set(names) <= set(references):
        raise ArgumentError("policies", list(names), "a list with at least one policy that is not a reference")
    return [
        PolicySpec(check_choice("policies", name, tuple(allowed))) for name in (allowed if names is None else names)
    ]


def merge_results(first: Results, others: Sequence[Results]) -> Results:
    """Return ``first`` with the entries of ``others`` added, grouped by environment."""
    groups = by_environment([*first.entries, *(entry for results in others for entry in results.entries)])
    return dataclasses.replace(
        first,
        entries=[entry for group in groups.values() for entry in group],
        finished=first.finished + sum(results.finished for results in others),
        total=first.total + sum(results.total for results in others),
    )
