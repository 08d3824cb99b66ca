"""Reading an experiment's folder back: one :class:`Entry` per policy variant and environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.lab.results.folder import FolderError, cell_note, experiment_id, read_manifest
from windvane.lab.run.cells import Cell
from windvane.lab.run.play import STAGES, ThetaPath
from windvane.lab.spec.policy_spec import label_variant

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec

_KNOWN = {"environment", "policy", "variant", "run", "round", "regret"}  # other columns of curves are diagnostics


@dataclass(frozen=True)
class Entry:
    """One policy variant in one environment over n runs, at R recorded rounds."""

    environment: str
    policy: str
    variant: dict[str, float]
    horizon: int
    lanes: npt.NDArray[np.int64]  # run ids, ascending
    rounds: npt.NDArray[np.int64]
    regret: Array  # [n, R], cumulative pseudo-regret
    reward: Array  # [n]
    drift: Array  # [n], B_T
    switches: npt.NDArray[np.int64]
    gamma: Array  # [n]
    outside: Array  # [n]
    stages: Array  # [n, STAGES]
    microseconds: float  # per run and round, select and update together
    path: ThetaPath | None = None
    diagnostics: dict[str, Array] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The policy's name, with what tells the variant from its siblings."""
        return label_variant(self.policy, self.variant)

    @property
    def final(self) -> Array:
        """[n], the regret after the last round."""
        return self.regret[:, -1]


@dataclass
class Results:
    """All finished cells of an experiment's folder."""

    folder: Path
    manifest: dict[str, Any]
    entries: list[Entry]
    finished: int
    total: int

    @property
    def complete(self) -> bool:
        return self.finished == self.total

    @cached_property
    def spec(self) -> Spec:
        """The spec, read from the folder; not possible if it held Python objects that a file cannot name."""
        from windvane.lab.spec.experiment_spec import Spec

        found = Spec.read(self.folder / "spec.toml", check=False)
        if found.fingerprint() != self.manifest["fingerprint"]:
            problem = "is not the spec that these results were made from"
            raise FolderError(self.folder / "spec.toml", "other_spec", problem)
        return found

    @classmethod
    def open(cls, folder: str | Path) -> Results:
        """Read a folder; unfinished cells are left out. Runs that not every table knows are never mixed in."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        cells = [Cell(*numbers) for numbers in manifest["cells"]]
        names = manifest["environments"], manifest["policies"]
        experiment = experiment_id(manifest)
        notes = {cell: cell_note(folder, cell, experiment) for cell in cells}
        entries: list[Entry] = []
        for e, environment in enumerate(names[0]):
            for p, policy in enumerate(names[1]):
                done = [(c, n) for c, n in notes.items() if n is not None and (c.environment, c.policy) == (e, p)]
                if done:
                    entries += _entries(folder, manifest, environment, policy, done)
        finished = sum(note is not None for note in notes.values())
        return cls(folder, manifest, entries, finished, len(cells))


def _entries(
    folder: Path,
    manifest: dict[str, Any],
    environment: str,
    policy: dict[str, Any],
    done: list[tuple[Cell, dict[str, Any]]],
) -> list[Entry]:
    """The variants of one policy in one environment, from its finished cells."""
    curves, lanes, paths = (_columns(folder, table, done) for table in ("curves", "lanes", "paths"))
    spent = sum(note["seconds"] for _, note in done)
    microseconds = 1e6 * spent / sum(note["lane_rounds"] for _, note in done)
    rounds = np.unique(curves["round"])
    R, found = len(rounds), []
    for v, variant in enumerate(policy["variants"]):
        rows = np.flatnonzero(lanes["variant"] == v)  # cells are in the order of lanes, so runs ascend
        if not len(rows):
            continue
        in_curves = curves["variant"] == v
        found.append(
            Entry(
                environment=environment,
                policy=policy["name"],
                variant=variant,
                horizon=manifest["horizon"],
                lanes=lanes["run"][rows],
                rounds=rounds,
                regret=curves["regret"][in_curves].reshape(-1, R),
                reward=lanes["total_reward"][rows],
                drift=lanes["drift"][rows],
                switches=lanes["switches"][rows],
                gamma=lanes["gamma"][rows],
                outside=lanes["outside"][rows],
                stages=np.stack([lanes[f"stage_{i}"][rows] for i in range(STAGES)], axis=1),
                microseconds=microseconds,
                path=_path(paths, v),
                diagnostics={n: c[in_curves].reshape(-1, R) for n, c in curves.items() if n not in _KNOWN},
            )
        )
    return found


def _columns(folder: Path, table: str, done: list[tuple[Cell, dict[str, Any]]]) -> dict[str, npt.NDArray[Any]]:
    """The columns of one table over all finished cells that have it, names left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = [folder / table / f"{cell.name}.parquet" for cell, note in done if table in note["files"]]
    if not paths:
        return {}
    # one cell after the other: a folder opened as one data set would be read in the order of its file names
    whole = pa.concat_tables([pq.ParquetFile(path).read() for path in paths], promote_options="default")
    columns = {name: whole[name] for name in whole.column_names if name not in ("environment", "policy")}
    return {
        name: np.array(column.to_pylist()) if pa.types.is_list(column.type) else column.to_numpy()
        for name, column in columns.items()
    }


def _path(paths: dict[str, npt.NDArray[Any]], variant: int) -> ThetaPath | None:
    rows = paths["variant"] == variant if paths else np.zeros(0, dtype=bool)
    if not rows.any():
        return None
    star, hat, tilde = (paths[name][rows] for name in ("theta_star", "theta_hat", "theta_tilde"))
    return ThetaPath(paths["round"][rows], star, hat, tilde, S=float(paths["S"][rows][0]))
