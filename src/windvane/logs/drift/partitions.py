"""Partitions of the rows of a log into groups that may drift while others do not: arms, and cells of arm and category.

A group is known when a decision is made, so one theta for all rows is also one theta for the rows of each group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from windvane.arguments import Index, Mask
from windvane.logs.drift.coding import group_rows
from windvane.logs.drift.rows import RewardedRows

MOST_GROUPS = 64  # of a partition, which bounds its time
ALL, ARMS, CELLS = "all rows", "arms", "cells"
WEIGHTS = {ALL: 0.5, ARMS: 0.25, CELLS: 0.25}  # of the partitions in the evidence, fixed beforehand; they sum to 1


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The group of each row, and the names of the groups."""

    name: str
    group: Index
    labels: tuple[str, ...]


def list_partitions(rows: RewardedRows) -> Iterator[Partition]:
    """Yield the partitions of a log into at least two groups.

    Parameters
    ----------
    rows
        The rows of the log.

    Yields
    ------
    Partition
        By arm, if arms have names; and by cell: rows of the same arm whose vectors have the same entries other than 0,
        such as those of one arm on phones. A partition into more than 64 groups is left out, and cells that are arms.
    """
    arms, first_of_arm = group_rows(rows.arm[:, None])
    if 1 < len(first_of_arm) <= MOST_GROUPS:
        labels = tuple(rows.schema.arms[rows.arm[row]] for row in first_of_arm)
        yield Partition(name=ARMS, group=arms, labels=labels)
    is_used = rows.x != 0.0
    patterns, _ = group_rows(is_used)
    cells, first = group_rows(np.stack([rows.arm, patterns], axis=1))
    if max(1, len(first_of_arm)) < len(first) <= MOST_GROUPS:
        labels = _distinguish([_name_cell(rows, int(row)) for row in first], rows, is_used[first])
        yield Partition(name=CELLS, group=cells, labels=labels)


def _distinguish(labels: list[str], rows: RewardedRows, is_used: Mask) -> tuple[str, ...]:
    """Return labels that differ: cells with the same name differ in the numbers that are 0."""
    names = []
    for label, used in zip(labels, is_used, strict=True):
        alike = is_used[[other == label for other in labels]]
        arm = label.partition(": ")[0]
        zeros = [rows.schema.names[j].removeprefix(f"{arm}: ") for j in np.flatnonzero(alike.any(axis=0) & ~used)]
        names.append(", ".join([label, *(f"{name} encoded as 0" for name in zeros)]))
    return tuple(names)


def _name_cell(rows: RewardedRows, row: int) -> str:
    """Return the arm and the categories of a row."""
    names, arms = rows.schema.names, rows.schema.arms
    values = [names[j] for j in np.flatnonzero(rows.x[row]) if " = " in names[j]]
    arm = f"{arms[rows.arm[row]]}: " if arms else ""
    texts = [value.removeprefix(arm) for value in values]
    return (arm + ", ".join(texts)).removesuffix(": ") or f"vectors like {np.array2string(rows.x[row], precision=2)}"
