"""Read an experiment's folder: one :class:`Entry` per policy variant and environment, and the stored tables."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_choice
from windvane.lab.results.folder import TABLES, FinishedCell, FolderError, hash_experiment, read_cell, read_manifest
from windvane.lab.results.stored_tables import concat_tables, parse_table, to_frame
from windvane.lab.run.cells import Cell
from windvane.lab.run.play import STAGES, ThetaPath
from windvane.lab.spec.policy_spec import label_variant

if TYPE_CHECKING:
    import pyarrow

    from windvane.lab.spec.environment_spec import AnyEnvironmentSpec
    from windvane.lab.spec.experiment_spec import Spec

# Columns of "curves" that are neither names nor diagnostics. Every stored table may also have columns "sweep_NAME".
_CURVES = {"variant", "run", "round", "regret"}
_SWEEP = "sweep_"
_NAMES = ("environment", "policy")
SUMMARY = "summary"  # the name of the table that is computed, not stored
OTHER_SPEC = "is not the spec that these results were made from"


@dataclass(frozen=True)
class Entry:
    """One policy variant in one environment over n runs, at R recorded rounds."""

    environment: str
    policy: str
    variant: dict[str, Any]  # the swept values, each a JSON value
    horizon: int
    lanes: npt.NDArray[np.int64]  # run ids, ascending
    rounds: npt.NDArray[np.int64]
    regret: Array  # [n, R], cumulative regret: sums of differences of means, not of rewards
    reward: Array  # [n]
    drift: Array  # [n], B_T
    switches: npt.NDArray[np.int64]
    gamma: Array  # [n]
    outside: Array  # [n]
    stages: Array  # [n, STAGES]
    microseconds: float  # per run and round, select and update together
    path: ThetaPath | None = None
    diagnostics: dict[str, Array] = field(default_factory=dict)
    told: tuple[str, ...] = ()  # what the experiment told the policy exactly though it can do without, such as "drift"

    @property
    def label(self) -> str:
        """The policy's name and the swept values."""
        return label_variant(self.policy, self.variant)

    @property
    def final(self) -> Array:
        """[n], the regret after the last round."""
        return self.regret[:, -1]


def group_by_environment(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Return the entries of each environment, in their order."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.environment, []).append(entry)
    return groups


@dataclass(repr=False)
class Results:
    """All finished cells of an experiment's folder.

    Examples
    --------
    >>> import windvane.lab
    >>> results = windvane.lab.open("results")                                   # doctest: +SKIP
    >>> results.frame("runs").groupby("policy").final_regret.mean()              # doctest: +SKIP
    """

    folder: Path
    manifest: dict[str, Any]
    entries: list[Entry]
    finished: int
    total: int
    cells: tuple[FinishedCell, ...] = field(default=(), repr=False)

    def __repr__(self) -> str:
        return f"Results({str(self.folder)!r}, {len(self.entries)} entries, {self.finished} of {self.total} cells)"

    @property
    def complete(self) -> bool:
        """Whether all cells are finished."""
        return self.finished == self.total

    @property
    def recipe(self) -> dict[str, Any]:
        """What made the spec, such as {"name": "paper", ...}; empty for a spec of the user's own."""
        return self.manifest.get("recipe") or {}

    @cached_property
    def spec(self) -> Spec:
        """The spec, read from the folder; an error if it held Python objects that a file cannot name."""
        from windvane.lab.spec.experiment_spec import Spec

        spec = Spec.read(self.folder / "spec.toml", check=False)
        if spec.fingerprint() != self.manifest["fingerprint"]:
            raise FolderError(self.folder / "spec.toml", "other_spec", OTHER_SPEC)
        return spec

    @cached_property
    def environments(self) -> Sequence[AnyEnvironmentSpec]:
        """The environments as ``spec.toml`` describes them. Nothing is imported or built, in contrast to :attr:`spec`.

        So they can be read where policies of one's own are missing, or have changed since.
        """
        from windvane.lab.spec.experiment_spec import Spec

        path = self.folder / "spec.toml"
        environments = Spec.read(path, check=False).environments
        if [environment.name for environment in environments] != self.manifest["environments"]:
            raise FolderError(path, "other_spec", OTHER_SPEC)
        return environments

    @classmethod
    def open(cls, folder: str | Path) -> Results:
        """Read a folder. Cells that are not finished, or do not match their hashes, are left out."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        experiment, all_cells = hash_experiment(manifest), [Cell(*numbers) for numbers in manifest["cells"]]
        place = operator.attrgetter("environment", "policy")
        ordered = sorted(all_cells, key=operator.attrgetter("environment", "policy", "first"))
        entries, finished = [], []
        for (e, p), cells in itertools.groupby(ordered, key=place):
            read = [item for cell in cells if (item := read_cell(folder, cell, experiment)) is not None]
            if read:
                entries += _make_entries(manifest, manifest["environments"][e], manifest["policies"][p], read)
                finished += [cell for cell, _ in read]
        return cls(folder, manifest, entries, len(finished), len(all_cells), tuple(finished))

    def table(self, name: str = "runs") -> pyarrow.Table:
        """Return a stored table over all finished cells, or the summary.

        Parameters
        ----------
        name
            "runs" has a row per run, "curves" a row per run and recorded round, "paths" the parameters of run 0, and
            "summary" a row per policy variant and environment. ``docs/reference/results-folder.md`` describes the
            columns.

        Returns
        -------
        pyarrow.Table
            Columns that a cell does not have, such as swept values of another policy, are null.

        Raises
        ------
        windvane.lab.results.folder.FolderError
            No cell with this table is finished, or a file has changed since the folder was opened.
        """
        return concat_tables(self.iterate_tables(name))

    def iterate_tables(self, name: str = "runs") -> Iterator[pyarrow.Table]:
        """Return the parts of :meth:`table`, a cell at a time, read when they are asked for."""
        from windvane.lab.results.summary import build_summary_table  # which imports this module

        check_choice("name", name, (*TABLES, SUMMARY))
        if name == SUMMARY and self.entries:
            return iter([build_summary_table(self)])
        cells = [cell for cell in self.cells if name in cell.hashes]
        if not cells:
            raise FolderError(self.folder, "unfinished", f"no cell with the table {name} is finished yet")
        return (parse_table(cell.read(name)) for cell in cells)

    def frame(self, name: str = "runs", library: str | None = None) -> Any:
        """Return :meth:`table` as a data frame of pandas or polars.

        ``library`` is "pandas" or "polars"; by default pandas if it is installed, else polars.
        """
        return to_frame(self.table(name), library)

    def summary(self, library: str | None = None) -> Any:
        """Return the summary as a data frame: a row per policy variant and environment, with means over runs."""
        return self.frame(SUMMARY, library)


def _make_entries(
    manifest: dict[str, Any],
    environment: str,
    policy: dict[str, Any],
    cells: list[tuple[FinishedCell, dict[str, bytes]]],
) -> list[Entry]:
    """Return the variants of one policy in one environment, from the contents of its finished cells."""
    curves, runs, paths = (_read_columns(table, [contents for _, contents in cells]) for table in TABLES)
    seconds, lane_rounds = (sum(getattr(cell, name) for cell, _ in cells) for name in ("seconds", "lane_rounds"))
    rounds = curves["round"][: len(curves["round"]) // len(runs["run"])].copy()  # those of any run are the same
    entries, count = [], len(policy["variants"])
    told = (*policy["told"], *(["S"] if environment in policy.get("told_S", ()) else ()))
    places = zip(*(_find_variants(columns, count) for columns in (curves, runs, paths)), strict=True)
    for variant, (in_curves, in_runs, in_paths) in zip(policy["variants"], places, strict=True):
        by_run: dict[str, Any] = {name: column[in_runs].copy() for name, column in runs.items()}
        if not len(by_run["run"]):
            continue
        by_round = {name: column[in_curves].reshape(-1, len(rounds)).copy() for name, column in curves.items()}
        entry = Entry(
            environment=environment, policy=policy["name"], variant=variant, horizon=manifest["horizon"],
            told=told, microseconds=1e6 * seconds / lane_rounds, path=_make_path(paths, in_paths),
            rounds=rounds, regret=by_round["regret"], lanes=by_run["run"], reward=by_run["total_reward"],
            **{name: by_run[name] for name in ("drift", "switches", "gamma", "outside")},
            stages=np.stack([by_run[f"stage_{i}"] for i in range(STAGES)], axis=1),
            diagnostics={name: values for name, values in by_round.items() if name not in _CURVES},
        )  # fmt: skip
        entries.append(entry)
    return entries


def _read_columns(table: str, contents: list[dict[str, bytes]]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of one table over the cells that have it, without names, swept values and empty columns."""
    import pyarrow as pa

    whole = concat_tables(parse_table(files[table]) for files in contents if table in files)
    names = [name for name in whole.column_names if name not in _NAMES and not name.startswith(_SWEEP)]
    columns = {name: whole[name] for name in names if whole[name].null_count < len(whole)}
    return {
        name: column.combine_chunks().flatten().to_numpy().reshape(len(whole), -1)  # vectors of one dimension
        if pa.types.is_list(column.type)
        else column.to_numpy()
        for name, column in columns.items()
    }


def _find_variants(columns: dict[str, npt.NDArray[Any]], count: int) -> list[slice]:
    """Return where the rows of each variant are: cells are in the order of lanes, so variants and runs ascend."""
    variants = columns.get("variant", np.empty(0, dtype=np.int64))
    return [slice(*ends) for ends in itertools.pairwise(np.searchsorted(variants, np.arange(count + 1)))]


def _make_path(paths: dict[str, npt.NDArray[Any]], rows: slice) -> ThetaPath | None:
    if rows.start == rows.stop:
        return None
    star, hat, tilde = (paths[name][rows] for name in ("theta_star", "theta_hat", "theta_tilde"))
    return ThetaPath(paths["round"][rows], star, hat, tilde, S=float(paths["S"][rows][0]))
