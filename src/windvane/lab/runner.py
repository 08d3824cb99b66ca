"""Run an experiment's cells on all cores, or on a Dask cluster, and store each as it finishes.

Cells are independent and every random number depends on (seed, run, round) alone, so that where and in which order
they run cannot change a result. A run that was stopped goes on with the cells that are missing.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from windvane.arguments import check_whole
from windvane.errors import WindvaneError
from windvane.kernels.threads import MOST_THREADS, available_cores, get_threads, set_threads
from windvane.lab.cells import Cell
from windvane.lab.engine import CellResult, run_cell
from windvane.lab.folder import versions
from windvane.lab.progress import Counters, Progress, Silent, Teller
from windvane.lab.results import Results
from windvane.lab.store import Store

if TYPE_CHECKING:
    from windvane.lab.spec import Spec


class CellError(WindvaneError, RuntimeError):
    """A cell failed: ``policy`` in ``environment``, where they are known. The error of the cell is ``__cause__``."""

    def __init__(self, message: str, policy: str | None = None, environment: str | None = None) -> None:
        self.policy, self.environment = policy, environment
        super().__init__(message)


def run(
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
    watcher = progress or Silent()
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
        with Counters(store.folder / ".progress", len(store.cells), earlier, watcher) as counters:
            threads = max(1, jobs // len(missing))
            work = _Work(spec, missing, str(counters.path), threads, raises=failures is None)
            with closing(_finished_cells(work, jobs, cluster)) as finished:
                for index, cell, result in finished:
                    if isinstance(result, CellResult):
                        work.learn(cell, result.seconds)
                        store.write(cell, result)
                    elif failures is not None:
                        failures.append(result)
                    counters.finish(index, size(cell))
    finally:
        watcher.end()


def compile_kernels(spec: Spec, cells: Iterable[Cell]) -> None:
    """Compile the kernels that ``cells`` need, so that their workers find them in the cache.

    A policy on the user's own class is built with its settings and plays a few rounds too, if the class derives from
    ``Policy``: other classes use no kernels. Nothing is raised here. If a policy fails, so does its cell, and that
    error names both.
    """
    from windvane.policies.base import Policy
    from windvane.warmup import compile_projections_in_background, warm_up

    pairs = {cell.policy: cell.environment for cell in cells}  # kernels do not depend on the pairing
    worlds, built = {}, []
    for number, place in pairs.items():
        with suppress(Exception, SystemExit):
            named = spec.policies[number]
            if place not in worlds:
                worlds[place] = spec.environments[place].build(horizon=spec.horizon, lanes=[0], seed=spec.seed)
            if issubclass(named.resolve(), Policy):
                built.append(named.build(worlds[place], variants=named.variants[:1]))
    policies = compile_projections_in_background(built)
    for world in worlds.values():
        with suppress(Exception):
            warm_up([], [world])
    for policy in policies:
        with suppress(Exception, SystemExit):
            warm_up([policy])


Finished = tuple[int, Cell, CellResult | CellError]


class _Work:
    """The cells still to be run, handed out so that what takes longest starts first."""

    def __init__(
        self, spec: Spec, missing: list[tuple[int, Cell]], counters: str, threads: int, *, raises: bool
    ) -> None:
        self._common = counters, threads, raises
        self.spec = spec
        self.count = len(missing)
        self._left: dict[tuple[int, int], deque[tuple[int, Cell]]] = defaultdict(deque)
        for index, cell in missing:
            self._left[cell.environment, cell.policy].append((index, cell))
        self._seconds: dict[tuple[int, int], float] = {}

    def learn(self, cell: Cell, seconds: float) -> None:
        """A lane of this policy in this environment takes that long: its other cells are planned by it."""
        self._seconds[cell.environment, cell.policy] = seconds / (cell.last - cell.first)

    def tasks(self) -> Iterator[tuple[Spec, int, Cell, str, int, bool]]:
        """The arguments of :func:`_compute` for each cell; the next one is chosen when it is asked for."""
        while self._left:  # what is unknown first, the costliest of the known next
            dearest = max(self._left, key=lambda kind: self._seconds.get(kind, float("inf")))
            yield self.spec, *self._left[dearest].popleft(), *self._common
            if not self._left[dearest]:
                del self._left[dearest]


def _finished_cells(work: _Work, jobs: int, cluster: str | None) -> Generator[Finished]:
    if cluster is not None:
        return _on_cluster(work, jobs, cluster)
    jobs = min(jobs, work.count)
    return _in_processes(work, jobs) if jobs > 1 else _here(work)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = get_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def _compute(spec: Spec, index: int, cell: Cell, counters: str | None, threads: int, raises: bool) -> Finished:
    """What a worker does: one cell, with the failure, if any, named, and raised or returned."""
    with _threads(threads):
        try:
            result = run_cell(spec, cell, Teller(counters, index, cell.last - cell.first))
        except (Exception, SystemExit) as error:
            policy, environment = spec.policies[cell.policy].name, spec.environments[cell.environment].name
            text = f"{policy} in {environment!r} failed: {type(error).__name__}: {error}"
            failure = CellError(text, policy, environment)
            if not raises:
                return index, cell, failure
            raise failure from error
    result.versions = versions()
    return index, cell, result


def _begin_worker(parent: int) -> None:
    """In a new worker: Ctrl-C is the parent's to handle; and once the parent is gone, however it went, so is this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _here(work: _Work) -> Generator[Finished]:
    for task in work.tasks():
        yield _compute(*task)


def _in_processes(work: _Work, jobs: int) -> Generator[Finished]:
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    os.environ.setdefault("PYTHONSAFEPATH", "1")  # or a worker would import whatever lies in the current folder first
    compute = joblib.delayed(_compute)
    # one task per worker is handed out at a time, so that the next one is chosen with what is known by then
    pool = joblib.Parallel(
        n_jobs=jobs,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=jobs,
        initializer=_begin_worker,
        initargs=(os.getpid(),),
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*tasks which were still being processed by the workers.*")
            yield from pool(compute(*task) for task in work.tasks())
    except BaseException as error:
        get_reusable_executor().shutdown(kill_workers=True, wait=True)
        if isinstance(error, TerminatedWorkerError):
            raise CellError("a worker process died (killed, or out of memory?); finished cells are kept") from None
        raise


def _on_cluster(work: _Work, jobs: int, address: str) -> Generator[Finished]:
    from windvane.lab.cluster import on_cluster

    here = versions()
    for index, cell, result in on_cluster(_compute, list(work.tasks()), workers=jobs, address=address):
        found = result.versions if isinstance(result, CellResult) else here
        if different := [name for name, version in here.items() if found.get(name) != version]:
            raise CellError(f"a worker of the cluster has another version of {', '.join(different)} than this process")
        yield index, cell, result
