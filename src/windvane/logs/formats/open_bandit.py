"""Logs of the Open Bandit Dataset: a table with fixed column names.

The arm is ``item_id``, the reward ``click``, and the probability ``propensity_score`` (its documentation says
``action_prob``). The context is ``position`` and what is known about the user. The features of items are in a separate
file, ``item_context.csv``.

References
----------
Saito, Aihara, Matsutani and Narita (2021), "Open Bandit Dataset and Pipeline: Towards Realistic and Reproducible
Off-Policy Evaluation", NeurIPS Datasets and Benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from windvane.logs.formats.tables import TableReader, read_names

COLUMNS = {"timestamp", "item_id", "click"}
PROBABILITIES = ("propensity_score", "action_prob")


def is_open_bandit(names: Sequence[str]) -> bool:
    """Return whether the columns of a table are those of the dataset."""
    return set(names) >= COLUMNS and any(name in names for name in PROBABILITIES)


class OpenBanditReader(TableReader):
    """Read a file of the dataset."""

    format = "open-bandit"


def build_open_bandit_reader(
    path: Path, roles: Mapping[str, str | None], fields: Sequence[str] | None, arms_from: Path | None
) -> OpenBanditReader:
    """Return a reader; ``roles`` and ``fields`` override those of the dataset."""
    names, _ = read_names(path)
    chance = [name for name in PROBABILITIES if name in names]
    fixed = {"time": "timestamp", "arm": "item_id", "reward": "click", "propensity": chance[0] if chance else None}
    if fields is None:
        fields = [name for name in names if name == "position" or name.startswith("user")]
    given = {role: name for role, name in roles.items() if name is not None}
    return OpenBanditReader(path, {**fixed, **given}, fields, arms_from)
