"""The folder an experiment lives in, written so that a crash at any moment leaves it usable.

    DIR/manifest.json        what was run: names, sizes, seed, versions, the spec's fingerprint
    DIR/spec.toml            the spec, ready to be run again
    DIR/curves/CELL.parquet  regret (and diagnostics) by run and recorded round
    DIR/lanes/CELL.parquet   one row per run: final regret, drift, share of rounds outside Theta, ...
    DIR/paths/CELL.parquet   theta*, theta_hat, theta_tilde of run 0
    DIR/cells/CELL.json      written last: the cell is finished, and these are the hashes of its files

Everything in the Parquet files follows from the spec, so that a run continued after a crash ends with the same bytes;
times and dates are in the JSON files only. A file appears under its name only when it is complete (written aside,
flushed to disk, renamed); a cell whose files do not match their hashes counts as not done.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windvane._files import write_atomically
from windvane.errors import WindvaneError, format_value
from windvane.lab.results.folder import (
    FORMAT,
    TABLES,
    FolderError,
    cell_note,
    experiment_id,
    read_manifest,
)
from windvane.lab.run.cells import Cell, list_cells
from windvane.lab.run.play import CellResult
from windvane.lab.run.result_tables import parquet_bytes, tables
from windvane.lab.run.versions import versions

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec

FIGURES = ("regret", "projection", "diagnostics", "tuning", "leaderboard")  # how the names of figures begin
_CELL = re.compile(r"e\d{3,}-p\d{3,}-\d{8,}\.(json|parquet)")
_FIGURE = re.compile(rf"({'|'.join(FIGURES)})(-[^.]*)?\.(png|pdf|svg)")


class StoreError(WindvaneError, RuntimeError):
    """A result could not be written; what was written before is complete."""


class Store:
    """The writing side: one experiment in one folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder, self.spec = folder, spec
        self.cells = list_cells(spec)

    def begin(self, *, restart: bool = False, command: str = "") -> None:
        """Check that the folder is empty or holds this very experiment; ``restart`` clears an experiment in it."""
        manifest, spec = self.folder / "manifest.json", self.folder / "spec.toml"
        content = self.spec.to_toml().encode()
        anew = not manifest.exists()
        if anew:
            foreign = sorted(p.name for p in self.folder.iterdir() if not _is_ours(p))
            if not foreign and spec.exists() and spec.read_bytes() != content:
                foreign = [spec.name]
            if foreign:
                problem = f"holds no experiment, but {format_value(foreign[0])}; name another folder"
                raise FolderError(self.folder, "other_content", problem)
        elif not restart:
            self._check_same(read_manifest(self.folder))
        try:
            for name in (*TABLES, "cells"):
                (self.folder / name).mkdir(exist_ok=True)
        except OSError as error:
            problem = f"cannot be made a folder ({error.strerror})"
            raise FolderError(Path(error.filename), "unwritable", problem) from None
        self._clear(everything=restart and not anew, notes=anew)
        if anew or restart:
            write_atomically(spec, content)
            write_atomically(
                manifest, _json({**self._core, "title": self.spec.title, "command": command, **_today("begun")})
            )

    def _clear(self, *, everything: bool, notes: bool) -> None:
        """Remove what a killed run left half-written; notes that belong to no manifest; or all that an experiment
        wrote here but its manifest, which the next one replaces. Nothing else, and nothing behind a link."""
        for name in (".", "cells", *TABLES, "figures"):
            inside = self.folder / name
            if (name != "." and inside.is_symlink()) or not inside.is_dir():
                continue
            for path in sorted(inside.iterdir()):
                written = name in ("cells", *TABLES) and _CELL.fullmatch(path.name)
                drawn = name == "figures" and _FIGURE.fullmatch(path.name)
                page = name == "." and path.name in ("report.html", "spec.toml", "leaderboard.json")
                half = name != "figures" and path.name.startswith(".") and path.suffix == ".part"
                ours = half or (everything and (written or drawn or page)) or (notes and written and name == "cells")
                if ours and (path.is_file() or path.is_symlink()):
                    path.unlink()

    def _check_same(self, manifest: dict[str, Any]) -> None:
        again = "name another folder, or start over with --restart"
        if manifest["fingerprint"] != self._core["fingerprint"]:
            raise FolderError(self.folder, "other_experiment", f"holds another experiment; {again}")
        now = self._core["versions"]
        changed = [f"{k} {v} (now {now.get(k)})" for k, v in manifest["versions"].items() if now.get(k) != v]
        if changed:
            raise FolderError(self.folder, "other_versions", f"was made with {', '.join(changed)}; {again}")
        if experiment_id(manifest) != self._experiment:
            raise FolderError(self.folder / "manifest.json", "changed", f"was changed; {again}")

    @cached_property
    def _core(self) -> dict[str, Any]:
        """The part of the manifest that follows from the spec and the versions."""
        spec = self.spec
        return {
            "format": FORMAT,
            "fingerprint": spec.fingerprint(),
            "seed": spec.seed,
            "runs": spec.runs,
            "horizon": spec.horizon,
            "environments": [environment.name for environment in spec.environments],
            "policies": [{"name": policy.name, "variants": policy.variants} for policy in spec.policies],
            "cells": [[cell.environment, cell.policy, cell.first, cell.last] for cell in self.cells],
            "versions": versions(),
        }

    @cached_property
    def _experiment(self) -> str:
        """Taken once: the list of all cells is in it, and every note carries it."""
        return experiment_id(self._core)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Create the folder and keep others from writing to it; the lock goes with the process, however it ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except (FileExistsError, NotADirectoryError):
            raise FolderError(self.folder, "not_a_folder", "is a file; name a folder") from None
        except OSError as error:
            raise FolderError(self.folder, "unwritable", f"cannot be written to ({error.strerror})") from None
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, handle)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise FolderError(self.folder / ".lock", "not_a_file", "is not a plain file; name another folder")
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # not on this platform: nothing keeps two runs apart
                pass
            except BlockingIOError:
                problem = "another run is writing here; wait for it, or stop it"
                raise FolderError(self.folder, "locked", problem) from None
            except OSError as error:
                raise FolderError(self.folder, "unwritable", f"cannot be locked ({error.strerror})") from None
            yield

    def finished(self) -> set[Cell]:
        """The cells whose files are all there and whole."""
        return {cell for cell in self.cells if cell_note(self.folder, cell, self._experiment) is not None}

    def write(self, cell: Cell, result: CellResult) -> None:
        """Store a finished cell, its note last."""
        contents = {name: parquet_bytes(table) for name, table in tables(self.spec, cell, result).items()}
        note = {
            "cell": cell.name,
            "experiment": self._experiment,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
            "seconds": result.seconds,
            "lane_rounds": (cell.last - cell.first) * self.spec.horizon,
            **_today("finished"),
        }
        try:
            for name, content in contents.items():
                write_atomically(self.folder / name / f"{cell.name}.parquet", content)
            write_atomically(self.folder / "cells" / f"{cell.name}.json", _json(note))
        except OSError as error:
            raise StoreError(
                f"{self.folder}: cannot be written to ({error.strerror}); finished cells are kept"
            ) from error


def _is_ours(path: Path) -> bool:
    """Whether an experiment that was stopped while it began may have left this behind."""
    return path.name in (".lock", ".progress", "spec.toml", "cells", *TABLES) or path.suffix == ".part"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _today(what: str) -> dict[str, str]:
    return {what: datetime.now(UTC).isoformat(timespec="seconds")}
