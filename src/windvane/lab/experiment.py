"""Run an experiment in a folder: compute the missing cells, store each one, and read all results."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from windvane.arguments import check_whole
from windvane.kernels.threads import MOST_THREADS, available_cores
from windvane.lab.results.folder import Recipe, check_recipe
from windvane.lab.results.folder_writer import FolderWriter
from windvane.lab.results.results import Results
from windvane.lab.run.play import CellResult
from windvane.lab.run.progress import Progress, ProgressReader, SilentProgress
from windvane.lab.run.workers import CellError, Finished, Work, compile_kernels, compute_cells

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec


def simulate(
    spec: Spec,
    folder: str | Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    restart: bool = False,
    progress: Progress | None = None,
    command: str = "",
    failures: list[CellError] | None = None,
    recipe: Recipe | None = None,
) -> Results:
    """Run the cells of ``spec`` that are missing in ``folder``, and return all results in it.

    Parameters
    ----------
    spec
        The experiment.
    folder
        Where results are stored. A run that was stopped continues if it is started again with the same folder.
    jobs
        The number of processes. Default: one per core.
    cluster
        The address of a Dask scheduler ("tcp://host:8786"), or "local" to start one here with ``jobs`` workers.
    restart
        Discard an experiment that is already in the folder.
    progress
        Shows how many rounds are done.
    command
        The command line, stored in the manifest.
    failures
        Without this list, the first cell that fails ends the run with its :class:`CellError`. With it, errors are
        added to the list and the other cells go on; failed cells are tried again by the next run.
    recipe
        Where the spec comes from, for the manifest: a mapping with a "name" and JSON values. None keeps the stored one.

    Returns
    -------
    Results
        All finished cells.

    Examples
    --------
    >>> from windvane.lab import paper_spec
    >>> results = simulate(paper_spec(runs=5, horizon=300), "results")           # doctest: +SKIP
    """
    check_recipe(recipe)
    spec.check(policies=failures is None)
    spec = spec.pin()
    jobs = available_cores() if jobs is None else check_whole("jobs", jobs, 1, MOST_THREADS)
    watcher = progress or SilentProgress()
    writer = FolderWriter(Path(folder), spec)
    with writer.lock():
        writer.prepare(restart=restart, command=command, recipe=recipe)
        done = writer.read_finished()
        missing = [(index, cell) for index, cell in enumerate(writer.cells) if cell not in done]
        if missing:
            compile_kernels(spec, [cell for _, cell in missing], watcher.compile)
            earlier = sum(cell.count_rounds(spec.horizon) for cell in done)
            watcher.begin(sum(cell.count_rounds(spec.horizon) for cell in writer.cells), earlier)
            try:
                with ProgressReader(writer.folder / ".progress", len(writer.cells), earlier, watcher) as counters:
                    work = Work(
                        spec, missing, str(counters.path), max(1, jobs // len(missing)), raises=failures is None
                    )
                    _write_cells(writer, work, compute_cells(work, jobs, cluster), counters, failures)
            finally:
                watcher.end()
    return Results.open(folder)


def _write_cells(
    writer: FolderWriter,
    work: Work,
    finished: Generator[Finished],
    counters: ProgressReader,
    failures: list[CellError] | None,
) -> None:
    """Store cells as they are finished; add those that fail to ``failures``."""
    with closing(finished):
        for index, cell, result in finished:
            if isinstance(result, CellResult):
                work.note_duration(cell, result.seconds)
                writer.write(cell, result)
            elif failures is not None:
                failures.append(result)
            counters.finish(index, cell.count_rounds(work.spec.horizon))


def open(folder: str | PathLike[str]) -> Results:  # noqa: A001
    """Read the finished results in an experiment's folder.

    Parameters
    ----------
    folder
        A folder that :func:`simulate` or a command wrote. The experiment need not be complete.

    Returns
    -------
    Results
        With ``frame("runs")``, a data frame of pandas or polars with a row per run; ``table``, the same with pyarrow;
        ``summary()``; and ``entries``, the results as arrays.

    Examples
    --------
    >>> import windvane.lab
    >>> results = windvane.lab.open("results")                                   # doctest: +SKIP
    >>> results.summary()[["policy", "mean", "se"]]                              # doctest: +SKIP
    """
    return Results.open(Path(folder))
