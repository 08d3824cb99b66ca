"""Run an experiment in a folder: what is missing is computed, stored cell by cell, and everything is read back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from windvane.arguments import check_whole
from windvane.kernels.threads import MOST_THREADS, available_cores
from windvane.lab.results.folder_writer import Store
from windvane.lab.results.results import Results
from windvane.lab.run.cells import Cell
from windvane.lab.run.play import CellResult
from windvane.lab.run.progress import Progress, ProgressReader, SilentProgress
from windvane.lab.run.workers import CellError, Work, compile_kernels, compute_cells

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
) -> Results:
    """Run what is missing of ``spec`` in ``folder`` and return everything that is in it.

    ``jobs`` is the number of processes (default: one per core). ``cluster`` is the address of a Dask scheduler
    ("tcp://host:8786") or "local" for one started here with ``jobs`` workers. ``restart`` forgets an experiment that is
    already in the folder.

    A cell that fails ends the run with its :class:`CellError`. If a list of ``failures`` is given, the error is added
    to it instead, and the other cells go on; the cell stays unfinished and is tried again by the next run.
    """
    spec.check(policies=failures is None)
    spec = spec.pin()
    jobs = available_cores() if jobs is None else check_whole("jobs", jobs, 1, MOST_THREADS)
    watcher = progress or SilentProgress()
    store = Store(Path(folder), spec)
    with store.alone():
        store.begin(restart=restart, command=command)
        done = store.finished()
        missing = [(i, cell) for i, cell in enumerate(store.cells) if cell not in done]
        if missing:
            _run_missing(spec, store, missing, done, jobs, cluster, watcher, failures)
    return Results.open(folder)


def _run_missing(
    spec: Spec,
    store: Store,
    missing: list[tuple[int, Cell]],
    done: set[Cell],
    jobs: int,
    cluster: str | None,
    watcher: Progress,
    failures: list[CellError] | None,
) -> None:
    compile_kernels(spec, [cell for _, cell in missing])

    def size(cell: Cell) -> int:
        return (cell.last - cell.first) * spec.horizon

    earlier = sum(size(cell) for cell in done)
    watcher.begin(sum(size(cell) for cell in store.cells), earlier)
    try:
        with ProgressReader(store.folder / ".progress", len(store.cells), earlier, watcher) as counters:
            threads = max(1, jobs // len(missing))
            work = Work(spec, missing, str(counters.path), threads, raises=failures is None)
            with closing(compute_cells(work, jobs, cluster)) as finished:
                for index, cell, result in finished:
                    if isinstance(result, CellResult):
                        work.note_duration(cell, result.seconds)
                        store.write(cell, result)
                    elif failures is not None:
                        failures.append(result)
                    counters.finish(index, size(cell))
    finally:
        watcher.end()
