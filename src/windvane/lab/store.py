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
import io
import json
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import windvane
from windvane._validation import shown
from windvane.lab.cells import Cell, cells_of
from windvane.lab.engine import STAGES, CellResult

if TYPE_CHECKING:
    import pyarrow

    from windvane.lab.spec import Spec

FORMAT = 1
_TELLING_ONLY = ("cli",)  # packages that show results and compute none
_COMPUTING = (  # of this package
    "cells.py", "diagnostics.py", "engine.py", "environment_spec.py", "objects.py", "policy_spec.py", "post.py",
    "store.py",
)  # fmt: skip
FIGURES = ("regret", "projection", "diagnostics", "tuning")  # how the names of figures begin
TABLES = ("curves", "lanes", "paths")


class FolderError(ValueError):
    """The folder cannot be used as asked; the message says why and what to do."""


def versions() -> dict[str, str]:
    """What can change the last bit of a result: the versions of the code and of what it computes with."""
    from windvane.kernels._jit import host_processor

    return {
        "windvane": windvane.__version__,
        "code": _code_hash(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "numba", "pyarrow")},
        "processor": host_processor(),
    }


@cache
def _code_hash() -> str:
    """A fingerprint of every source file that a number can depend on."""
    root = Path(windvane.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] not in _TELLING_ONLY and (inside.parts[0] != "lab" or inside.name in _COMPUTING):
            digest.update(f"{inside.as_posix()}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def write_atomically(path: Path, content: bytes) -> None:
    """All of ``content`` under ``path``, or nothing: aside, flushed, renamed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # where a folder can be opened, make the new name durable too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class Store:
    """The writing side: one experiment in one folder."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder, self.spec = folder, spec
        self.cells = cells_of(spec)

    def begin(self, *, restart: bool = False, command: str = "") -> None:
        """Check that the folder is empty or holds this very experiment; ``restart`` clears an experiment in it."""
        manifest = self.folder / "manifest.json"
        anew = not manifest.exists()
        if restart and not anew:
            self._clear()
            anew = True
        elif not anew:
            self._check_same(read_manifest(self.folder))
        elif foreign := sorted(p.name for p in self.folder.iterdir() if not _is_ours(p)):
            raise FolderError(f"{self.folder}: holds no experiment, but {shown(foreign[0])}; name another folder")
        self._tidy()
        for name in (*TABLES, "cells"):
            (self.folder / name).mkdir(exist_ok=True)
        if anew:
            write_atomically(self.folder / "spec.toml", self.spec.to_toml().encode())
            write_atomically(manifest, _json(self._manifest(command)))

    def _clear(self) -> None:
        """Remove what an experiment wrote here, and nothing else; but its manifest, which the next one replaces."""
        known = [("cells", "*.json"), *((table, "*.parquet") for table in TABLES)]
        known += [("figures", f"{name}*.{kind}") for name in FIGURES for kind in ("png", "pdf", "svg")]
        known += [(".", "report.html"), (".", "spec.toml")]
        for inside, pattern in known:
            for path in (self.folder / inside).glob(pattern):
                if path.is_file():
                    path.unlink()

    def _tidy(self) -> None:
        """Remove what a killed run left half-written, and notes of cells that belong to no manifest."""
        orphans = [] if (self.folder / "manifest.json").exists() else [("cells", "*.json")]
        for inside, pattern in [*((name, ".*.part") for name in (".", "cells", *TABLES)), *orphans]:
            for path in (self.folder / inside).glob(pattern):
                path.unlink(missing_ok=True)

    def _check_same(self, manifest: dict[str, Any]) -> None:
        again = "name another folder, or start over with --restart"
        if manifest["fingerprint"] != self.spec.fingerprint():
            raise FolderError(f"{self.folder}: holds another experiment; {again}")
        now = versions()
        changed = [f"{k} {v} (now {now.get(k)})" for k, v in manifest["versions"].items() if now.get(k) != v]
        if changed:
            raise FolderError(f"{self.folder}: was made with {', '.join(changed)}; {again}")

    def _manifest(self, command: str) -> dict[str, Any]:
        spec = self.spec
        return {
            "format": FORMAT,
            "title": spec.title,
            "fingerprint": spec.fingerprint(),
            "seed": spec.seed,
            "runs": spec.runs,
            "horizon": spec.horizon,
            "environments": [environment.name for environment in spec.environments],
            "policies": [{"name": policy.name, "variants": policy.variants} for policy in spec.policies],
            "cells": [[cell.environment, cell.policy, cell.first, cell.last] for cell in self.cells],
            "versions": versions(),
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
        }

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Create the folder and keep others from writing to it; the lock goes with the process, however it ends."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".lock").open("w")
        except (FileExistsError, NotADirectoryError):
            raise FolderError(f"{self.folder}: is a file; name a folder") from None
        except OSError as error:
            raise FolderError(f"{self.folder}: cannot be written to ({error.strerror})") from None
        with lock:
            try:
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # not on this platform: nothing keeps two runs apart
                pass
            except BlockingIOError:
                raise FolderError(f"{self.folder}: another run is writing here; wait for it, or stop it") from None
            except OSError as error:
                raise FolderError(f"{self.folder}: cannot be locked ({error.strerror})") from None
            yield

    def finished(self) -> set[Cell]:
        """The cells whose files are all there and whole."""
        experiment = experiment_id(self.spec.fingerprint(), versions())
        return {cell for cell in self.cells if cell_note(self.folder, cell, experiment) is not None}

    def write(self, cell: Cell, result: CellResult) -> None:
        """Store a finished cell."""
        hashes = {}
        for name, table in tables(self.spec, cell, result).items():
            content = parquet_bytes(table)
            write_atomically(self.folder / name / f"{cell.name}.parquet", content)
            hashes[name] = hashlib.sha256(content).hexdigest()
        lane_rounds = (cell.last - cell.first) * self.spec.horizon
        note = {
            "experiment": experiment_id(self.spec.fingerprint(), versions()),
            "files": hashes,
            "seconds": result.seconds,
            "lane_rounds": lane_rounds,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomically(self.folder / "cells" / f"{cell.name}.json", _json(note))


def _is_ours(path: Path) -> bool:
    """Whether an experiment that was stopped while it began may have left this behind."""
    return path.name in (".lock", ".progress", "spec.toml", "cells", *TABLES) or path.suffix == ".part"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an experiment's folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        what = "holds no experiment (no manifest.json)" if folder.is_dir() else "is not a folder"
        raise FolderError(f"{folder}: {what}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{path}: cannot be read ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FolderError(f"{path}: is not of format {FORMAT}, which this version reads")
    return manifest


def experiment_id(fingerprint: str, made_with: dict[str, str]) -> str:
    """What two cells must share to belong together: the spec and everything that can change a bit of its results."""
    return hashlib.sha256(json.dumps([fingerprint, made_with], sort_keys=True).encode()).hexdigest()


def cell_note(folder: Path, cell: Cell, experiment: str) -> dict[str, Any] | None:
    """What was noted when the cell was finished; None if it was not, if a file of it is damaged, or is not of here."""
    try:
        note: dict[str, Any] = json.loads((folder / "cells" / f"{cell.name}.json").read_text(encoding="utf-8"))
        if note["experiment"] != experiment or not {"curves", "lanes"} <= note["files"].keys():
            return None
        for name, digest in note["files"].items():
            content = (folder / name / f"{cell.name}.parquet").read_bytes()
            if hashlib.sha256(content).hexdigest() != digest:
                return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return note


def parquet_bytes(table: pyarrow.Table) -> bytes:
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def tables(spec: Spec, cell: Cell, result: CellResult) -> dict[str, pyarrow.Table]:
    """A cell's result as tables that need nothing else to be understood: names are in every row (as a dictionary)."""
    import pyarrow as pa

    names = spec.environments[cell.environment].name, spec.policies[cell.policy].name

    def table(columns: dict[str, Any]) -> pyarrow.Table:
        rows = len(next(iter(columns.values())))
        same = pa.array(np.zeros(rows, dtype=np.int32))
        constant = {
            name: pa.DictionaryArray.from_arrays(same, pa.array([value]))
            for name, value in zip(("environment", "policy"), names, strict=True)
        }
        return pa.table({**constant, **columns})

    n, R = result.regret.shape
    swept = spec.policies[cell.policy].variants
    curves = {
        "variant": np.repeat(result.variants, R),
        "run": np.repeat(result.lanes, R),
        "round": np.tile(result.rounds, n),
        "regret": result.regret.ravel(),
        **{name: values.ravel() for name, values in result.diagnostics.items()},
    }
    lanes = {
        "variant": result.variants,
        "run": result.lanes,
        **{f"sweep_{key}": np.array([swept[v][key] for v in result.variants]) for key in swept[0]},
        "final_regret": result.regret[:, -1],
        "total_reward": result.reward,
        "drift": result.drift,
        "switches": result.switches,
        "gamma": result.gamma,
        "outside": result.outside,
        **{f"stage_{i}": result.stages[:, i] for i in range(STAGES)},
    }
    found = {"curves": table(curves), "lanes": table(lanes)}
    if result.paths:
        paths = [(variant, path) for variant, path in result.paths.items()]
        found["paths"] = table(
            {
                "variant": np.repeat([variant for variant, _ in paths], R),
                "round": np.tile(result.rounds, len(paths)),
                **{
                    name: pa.array([row for _, path in paths for row in getattr(path, name).tolist()])
                    for name in ("theta_star", "theta_hat", "theta_tilde")
                },
                "S": np.repeat([path.S for _, path in paths], R),
            }
        )
    return found
