"""Write an experiment's folder so that a crash at any moment leaves it usable.

    DIR/manifest.json        what was run: recipe, names, sizes, seed, versions, the spec's fingerprint
    DIR/spec.toml            the spec, ready to be run again
    DIR/curves/CELL.parquet  regret (and diagnostics) by run and recorded round
    DIR/runs/CELL.parquet    one row per run: final regret, drift, share of rounds outside Theta, ...
    DIR/paths/CELL.parquet   theta*, theta_hat, theta_tilde of run 0
    DIR/cells/CELL.json      the note, written last: the cell is finished, and its files have these hashes

The Parquet files depend on the spec alone, so a run that is continued after a crash ends with the same bytes; times
and dates are in the JSON files only. Files are written atomically. A cell whose files do not match their hashes counts
as not done. ``docs/reference/results-folder.md`` describes the columns.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from windvane._files import write_atomically
from windvane.errors import WindvaneError, format_value
from windvane.lab.results.folder import (
    TABLES,
    FolderError,
    Recipe,
    check_recipe,
    describe_experiment,
    hash_experiment,
    name_unwritable,
    read_cell,
    read_manifest,
)
from windvane.lab.run.cells import Cell, list_cells
from windvane.lab.run.play import CellResult
from windvane.lab.run.result_tables import build_tables, encode_parquet
from windvane.lab.spec.spec_differences import Differences, list_differences
from windvane.lab.spec.toml_writer import list_unwritable

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec

MOST_DIFFERENCES = 5  # that an error message lists
FIGURES = ("regret", "projection", "diagnostics", "tuning", "leaderboard")  # how the names of figures begin
_CELL = r"e\d{3,}-p\d{3,}-\d{8,}\.(json|parquet)"
_WRITTEN = {  # patterns of the files that an experiment wrote, by folder; the manifest is not among them
    ".": r"report\.html|spec\.toml|leaderboard\.json",
    **dict.fromkeys(("cells", *TABLES, "lanes"), _CELL),  # format 1 had "lanes" in place of "runs"
    "figures": rf"({'|'.join(FIGURES)})(-[^.]*)?\.(png|pdf|svg)",
}


class FolderWriteError(WindvaneError, RuntimeError):
    """A result could not be written; what was written before is complete."""


class FolderWriter:
    """Writes one experiment into one folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder, self.spec, self.cells = folder, spec, list_cells(spec)
        self._core = describe_experiment(spec)
        self._experiment = hash_experiment(self._core)  # computed once: every note carries it

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder and keep other processes from writing to it; the lock ends with the process."""
        path = self.folder / ".lock"
        lock = filelock.FileLock(path, timeout=0, mode=0o666, thread_local=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_symlink() and not path.is_file():  # filelock refuses symlinks itself
                raise FolderError(path, "not_a_file", "is not a plain file; name another folder")
            lock.acquire()
        except (FileExistsError, NotADirectoryError):
            raise FolderError(self.folder, "not_a_folder", "is a file; name a folder") from None
        except filelock.Timeout:
            problem = "another run is writing here; wait for it, or stop it"
            raise FolderError(self.folder, "locked", problem) from None
        except OSError as error:
            raise FolderError(self.folder, "unwritable", f"cannot be written to ({error.strerror})") from None
        try:
            yield
        finally:
            lock.release()

    def prepare(self, *, restart: bool = False, command: str = "", recipe: Recipe | None = None) -> None:
        """Check that the folder is empty or holds this experiment; ``restart`` clears another one.

        ``recipe`` replaces the one in the manifest of a continued experiment, unless it is None.
        """
        path, spec = self.folder / "manifest.json", self.folder / "spec.toml"
        content, own = self._encode_spec(), {"title": self.spec.title, "recipe": check_recipe(recipe)}
        manifest = {**self._core, **own, "command": command, **_stamp("begun")}
        is_new, stored = not path.exists(), None
        if is_new:
            foreign = sorted(p.name for p in self.folder.iterdir() if not _is_ours(p))
            if not foreign and spec.exists() and spec.read_bytes() != content:
                foreign = [spec.name]
            if foreign:
                problem = f"holds other files, such as {format_value(foreign[0])}; choose another folder"
                raise FolderError(self.folder, "other_content", problem)
        elif not restart:
            stored = read_manifest(self.folder)
            self._check_same(stored)
            manifest = {**stored, "recipe": stored["recipe"] if recipe is None else manifest["recipe"]}
        try:
            for name in (*TABLES, "cells"):
                (self.folder / name).mkdir(exist_ok=True)
        except OSError as error:
            problem = f"cannot be created as a folder ({error.strerror})"
            raise FolderError(Path(error.filename), "unwritable", problem) from None
        self._clear(everything=restart and not is_new, notes=is_new)
        with name_unwritable(self.folder):
            if (
                stored is None or not spec.exists() or spec.read_bytes() != content
            ):  # a killed restart may have replaced it
                write_atomically(spec, content)
            if manifest != stored:
                write_atomically(path, _encode_json(manifest))

    def _encode_spec(self) -> bytes:
        """Return the content of spec.toml; an error if it would be read as another spec."""
        text = self.spec.to_toml()
        if not list_unwritable(self.spec) and type(self.spec).parse(text) != self.spec:
            raise FolderError(self.folder / "spec.toml", "other_spec", "would be read as another spec than this one")
        return text.encode()

    def _clear(self, *, everything: bool, notes: bool) -> None:
        """Remove temporary files of a killed run, and nothing else; follow no links.

        With ``notes``, also remove notes that belong to no manifest; with ``everything``, also all that an experiment
        wrote here but its manifest.
        """
        for name, pattern in _WRITTEN.items():
            inside = self.folder / name
            if (name != "." and inside.is_symlink()) or not inside.is_dir():
                continue
            for path in sorted(inside.iterdir()):
                is_temporary = name != "figures" and path.name.startswith(".") and path.suffix == ".part"
                is_stale = (everything or (notes and name == "cells")) and re.fullmatch(pattern, path.name)
                if (is_temporary or is_stale) and (path.is_file() or path.is_symlink()):
                    path.unlink()

    def _check_same(self, manifest: dict[str, Any]) -> None:
        again = "name another folder, or start over with --restart"
        if manifest["fingerprint"] != self._core["fingerprint"]:
            differences = self._list_differences(manifest)
            shown = [*differences.values()][:MOST_DIFFERENCES]
            more = f" and {len(differences) - len(shown)} more" if len(differences) > len(shown) else ""
            problem = f"holds a different experiment, with {', '.join(shown)}{more}; {again}"
            raise FolderError(self.folder, "other_experiment", problem, differences)
        now = self._core["versions"]
        changed = [f"{k} {v} (now {now.get(k)})" for k, v in manifest["versions"].items() if now.get(k) != v]
        if changed:
            raise FolderError(self.folder, "other_versions", f"was made with {', '.join(changed)}; {again}")
        if hash_experiment(manifest) != self._experiment:
            raise FolderError(self.folder / "manifest.json", "changed", f"was changed; {again}")

    def _list_differences(self, manifest: dict[str, Any]) -> Differences:
        """Return in what the experiment of ``manifest`` differs from this one: fields of the spec, or own code."""
        differences: Differences = {}
        with contextlib.suppress(OSError, ValueError):  # without its spec, only code can be compared
            stored = tomllib.loads((self.folder / "spec.toml").read_text(encoding="utf-8"))
            differences = list_differences(stored, tomllib.loads(self.spec.to_toml()))
        before, now = manifest.get("own_modules", {}), self._core["own_modules"]
        for module in dict.fromkeys([*before, *now]):
            if before.get(module) != now.get(module):
                file = getattr(sys.modules.get(module), "__file__", None)
                differences[module] = f"other code in the module {module}{f' ({file})' if file else ''}"
        return differences or {"": "Python objects that are different and that spec.toml cannot hold"}

    def read_finished(self) -> set[Cell]:
        """Return the cells whose files are all there and whole."""
        return {cell for cell in self.cells if read_cell(self.folder, cell, self._experiment) is not None}

    def write(self, cell: Cell, result: CellResult) -> None:
        """Store a finished cell, its note last."""
        contents = {name: encode_parquet(table) for name, table in build_tables(self.spec, cell, result).items()}
        note = {
            "cell": cell.name,
            "experiment": self._experiment,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
            "seconds": result.seconds,
            "lane_rounds": cell.count_rounds(self.spec.horizon),
            **_stamp("finished"),
        }
        try:
            for name, content in contents.items():
                write_atomically(self.folder / name / f"{cell.name}.parquet", content)
            write_atomically(self.folder / "cells" / f"{cell.name}.json", _encode_json(note))
        except OSError as error:
            problem = f"{self.folder}: cannot be written to ({error.strerror}); finished cells are kept"
            raise FolderWriteError(problem) from error


def _is_ours(path: Path) -> bool:
    """Return whether an experiment that was stopped at its start may have left this file behind."""
    return path.name in (".lock", ".progress", "spec.toml", "cells", *TABLES) or path.suffix == ".part"


def _encode_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _stamp(event: str) -> dict[str, str]:
    return {event: datetime.now(UTC).isoformat(timespec="seconds")}
