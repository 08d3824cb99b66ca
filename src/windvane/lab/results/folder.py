"""Read an experiment's folder: its manifest, and which of its cells are finished.

A cell is finished if its note says so, the note belongs to the experiment of the manifest (spec, versions, names and
sizes), and the files of the cell have the hashes in the note. Everything else counts as not done.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windvane.errors import ArgumentError, WindvaneError
from windvane.lab.run.cells import Cell, list_cells
from windvane.lab.run.own_code import hash_own_modules
from windvane.lab.run.versions import list_versions

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec

FORMAT = 2
TABLES = ("curves", "runs", "paths")
MOST_PARTS = 5  # sub-folders that an error names, so that it stays a line
_CORE = ("fingerprint", "seed", "runs", "horizon", "environments", "policies", "cells", "versions")

Recipe = Mapping[str, Any]
"""What made the spec of an experiment: {"name": "paper", "arms": "ball", ...}. All values are JSON values."""


class FolderError(WindvaneError, ValueError):
    """A folder, or a file in it, cannot be used as asked.

    ``path`` is the folder or file, ``problem`` says what is wrong and what to do. ``code`` is one of "no_experiment",
    "not_a_folder", "not_a_file", "format", "damaged", "changed", "other_content", "other_experiment",
    "other_versions", "other_spec", "unwritable", "locked", "unfinished" and "not_a_sweep". ``fields`` are the fields of
    the spec, or the modules, in which the experiment in the folder differs.
    """

    def __init__(self, path: Path, code: str, problem: str, fields: Iterable[str] = ()) -> None:
        self.path, self.code, self.problem, self.fields = path, code, problem, tuple(fields)
        super().__init__(f"{path}: {problem}")


@contextmanager
def name_unwritable(folder: Path) -> Iterator[None]:
    """Turn an ``OSError`` raised inside into an error that names ``folder``, into which files were to be written."""
    try:
        yield
    except OSError as error:
        raise FolderError(folder, "unwritable", f"cannot be written to ({error.strerror or error})") from error


def check_recipe(recipe: Recipe | None) -> dict[str, Any] | None:
    """Return a copy of ``recipe`` as it is read back from JSON; it must have a "name" and hold JSON values only."""
    if recipe is None:
        return None
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("name"), str):
        raise ArgumentError("recipe", recipe, 'a mapping with the text "name"')
    try:
        copy = json.loads(json.dumps(dict(recipe), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError("recipe", recipe, "made of JSON values", hint=str(error)) from None
    if copy != _replace_tuples(dict(recipe)):  # JSON would turn a key that is not text into a text
        raise ArgumentError("recipe", recipe, "made of JSON values, with texts as keys")
    return dict(copy)


def _replace_tuples(value: Any) -> Any:
    """Return ``value`` with lists in place of tuples, as JSON has them."""
    if isinstance(value, dict):
        return {name: _replace_tuples(item) for name, item in value.items()}
    return [_replace_tuples(item) for item in value] if isinstance(value, list | tuple) else value


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an experiment's folder, after a check of the parts that others rely on."""
    path = folder / "manifest.json"
    if not path.is_file():
        if not folder.is_dir():
            raise FolderError(folder, "not_a_folder", "is not a folder")
        parts = sorted(manifest.parent.name for manifest in folder.glob("*/manifest.json"))[:MOST_PARTS]
        hint = f"; name one of its parts: {', '.join(parts)}" if parts else ""
        raise FolderError(folder, "no_experiment", f"holds no experiment (no manifest.json){hint}")
    again = "start over with --restart, or name another folder"
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        is_readable = manifest["format"] == FORMAT
        is_sound = not is_readable or _is_sound(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise FolderError(path, "damaged", f"is damaged; {again}")
    if not is_readable:
        problem = f"has format {manifest['format']!s:.20}, but this version of windvane reads format {FORMAT}"
        raise FolderError(path, "format", f"{problem}; {again}")
    return manifest


def _is_sound(manifest: dict[str, Any]) -> bool:
    """Return whether all parts have the right types; a part that is missing or has another type may also raise."""
    cells = [Cell(*map(int, numbers)) for numbers in manifest["cells"]]
    environments, policies = manifest["environments"], manifest["policies"]
    texts = [*environments, *(text for policy in policies for text in (policy["name"], *policy["told"]))]
    check_recipe(manifest["recipe"])
    return (
        all(isinstance(manifest[key], int) for key in ("seed", "runs", "horizon"))
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(point, dict) for policy in policies for point in policy["variants"])
        and all(isinstance(policy.get("told_S", []), list) for policy in policies)  # an older folder has none
        and all(0 <= c.environment < len(environments) and 0 <= c.policy < len(policies) for c in cells)
        and isinstance(manifest["versions"], dict)
        and isinstance(manifest.get("own_modules", {}), dict)  # an older folder has none
        and {"title", "fingerprint", "begun", "command"} <= manifest.keys()
    )


def describe_experiment(spec: Spec) -> dict[str, Any]:
    """Return the part of the manifest that follows from the spec and the versions."""
    parts = [*spec.policies, *spec.environments]
    simulated = [environment.name for environment in spec.environments if environment.kind == "simulated"]
    policies = [
        {
            "name": policy.name,
            "variants": policy.variants,
            "told": list(policy.told or ()),
            "told_S": simulated if policy.has_optional_S else [],  # the environments in which it is
        }
        for policy in spec.policies
    ]
    return {
        "format": FORMAT,
        "fingerprint": spec.fingerprint(),
        **{size: getattr(spec, size) for size in ("seed", "runs", "horizon")},
        "environments": [environment.name for environment in spec.environments],
        "policies": policies,
        "cells": [list(astuple(cell)) for cell in list_cells(spec)],
        "versions": list_versions(parts),
        "own_modules": hash_own_modules(parts),
    }


def hash_experiment(manifest: dict[str, Any]) -> str:
    """Return a hash of what cells of one experiment share: spec, versions, names and sizes."""
    core = {key: manifest[key] for key in _CORE}
    return hashlib.sha256(json.dumps(core, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class FinishedCell:
    """A finished cell in a folder: the hashes of its files by table, and what it took to compute."""

    folder: Path
    cell: Cell
    hashes: dict[str, str]
    seconds: float
    lane_rounds: int

    def read(self, table: str) -> bytes:
        """Return the content of one of its Parquet files; an error if it changed since the cell was finished."""
        path = self.folder / table / f"{self.cell.name}.parquet"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise FolderError(path, "changed", f"cannot be read ({error.strerror})") from None
        if hashlib.sha256(content).hexdigest() != self.hashes[table]:
            raise FolderError(path, "changed", "has changed since it was written")
        return content


def read_cell(folder: Path, cell: Cell, experiment: str) -> tuple[FinishedCell, dict[str, bytes]] | None:
    """Return a finished cell and its files by table; None if it is not finished, damaged, or of another experiment."""
    try:
        note = json.loads((folder / "cells" / f"{cell.name}.json").read_text(encoding="utf-8"))
        finished = FinishedCell(folder, cell, note["files"], note["seconds"], note["lane_rounds"])
        is_known = note["experiment"] == experiment and note["cell"] == cell.name
        if not is_known or not {"curves", "runs"} <= finished.hashes.keys() <= set(TABLES):
            return None
        if not (math.isfinite(finished.seconds) and finished.lane_rounds > 0):
            return None
        return finished, {table: finished.read(table) for table in finished.hashes}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None


def make_slugs(texts: Iterable[str]) -> dict[str, str]:
    """Return texts as parts of file names: letters and digits of any script, numbered where two would be equal."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text in dict.fromkeys(texts):
        plain = re.sub(r"\W+", "-", text).strip("-").lower()[:60] or "unnamed"
        numbered = (f"{plain}-{i}" if i > 1 else plain for i in itertools.count(1))
        names[text] = next(name for name in numbered if name not in taken)
        taken.add(names[text])
    return names
