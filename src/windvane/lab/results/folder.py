"""What is known of an experiment's folder: its manifest, which of its cells are finished, and what made them.

A cell counts as finished if its note says so, if the note belongs to the experiment of the manifest (its spec, its
versions, the names and sizes in it), and if the cell's files have the hashes noted. Whatever does not fit is not
trusted: it counts as not done.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from windvane.errors import WindvaneError
from windvane.lab.run.cells import Cell

FORMAT = 1
TABLES = ("curves", "lanes", "paths")
_CORE = ("fingerprint", "seed", "runs", "horizon", "environments", "policies", "cells", "versions")


class FolderError(WindvaneError, ValueError):
    """A folder, or a file in it, cannot be used as asked.

    ``path`` is the folder or file, ``problem`` says what is wrong and what to do. ``code`` is one of "no_experiment",
    "not_a_folder", "not_a_file", "format", "damaged", "changed", "other_content", "other_experiment",
    "other_versions", "other_spec", "unwritable", "locked", "unfinished" and "not_a_sweep".
    """

    def __init__(self, path: Path, code: str, problem: str) -> None:
        self.path, self.code, self.problem = path, code, problem
        super().__init__(f"{path}: {problem}")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an experiment's folder, its parts checked for what others rely on."""
    path = folder / "manifest.json"
    if not path.is_file():
        if not folder.is_dir():
            raise FolderError(folder, "not_a_folder", "is not a folder")
        raise FolderError(folder, "no_experiment", "holds no experiment (no manifest.json)")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise FolderError(path, "format", f"is not of format {FORMAT}, which this version reads")
        cells = [Cell(*map(int, numbers)) for numbers in manifest["cells"]]
        names = [str(name) for name in manifest["environments"]]
        variants = [[dict(point) for point in policy["variants"]] for policy in manifest["policies"]]
        sound = (
            all(isinstance(manifest[key], int) for key in ("seed", "runs", "horizon"))
            and all(isinstance(policy["name"], str) for policy in manifest["policies"])
            and all(0 <= c.environment < len(names) and 0 <= c.policy < len(variants) for c in cells)
            and isinstance(manifest["versions"], dict)
            and {"title", "fingerprint", "begun", "command"} <= manifest.keys()
        )
    except FolderError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise FolderError(path, "damaged", "is damaged; start over with --restart, or name another folder")
    return manifest  # type: ignore[no-any-return]


def experiment_id(manifest: dict[str, Any]) -> str:
    """What cells must share to belong together: the spec, what can change a bit of its results, names and sizes."""
    core = {key: manifest[key] for key in _CORE}
    return hashlib.sha256(json.dumps(core, sort_keys=True).encode()).hexdigest()


def cell_note(folder: Path, cell: Cell, experiment: str) -> dict[str, Any] | None:
    """What was noted when the cell was finished; None if it was not, if it is damaged, or if it belongs elsewhere."""
    try:
        note: dict[str, Any] = json.loads((folder / "cells" / f"{cell.name}.json").read_text(encoding="utf-8"))
        here = note["experiment"] == experiment and note["cell"] == cell.name
        if not here or not {"curves", "lanes"} <= note["files"].keys() <= set(TABLES):
            return None
        if not (math.isfinite(note["seconds"]) and note["lane_rounds"] > 0):
            return None
        for name, digest in note["files"].items():
            content = (folder / name / f"{cell.name}.parquet").read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return note


def slugs(texts: Iterable[str]) -> dict[str, str]:
    """Texts as parts of file names: letters and digits of any script, the rest dashes; numbered where they agree."""
    found: dict[str, str] = {}
    for text in texts:
        plain = re.sub(r"\W+", "-", text).strip("-").lower()[:60] or "unnamed"
        numbered = (f"{plain}-{i}" if i > 1 else plain for i in itertools.count(1))
        found[text] = next(name for name in numbered if name not in found.values())
    return found
