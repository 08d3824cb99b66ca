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
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from windvane.errors import WindvaneError
from windvane.kernels.threads import get_threads, set_threads
from windvane.lab.run.build import build_environment, build_policy, resolve_policy
from windvane.lab.run.cells import Cell, list_variants
from windvane.lab.run.play import CellResult, play_cell
from windvane.lab.run.progress import ProgressWriter
from windvane.lab.run.versions import versions

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec


class CellError(WindvaneError, RuntimeError):
    """A cell failed: ``policy`` in ``environment``, where they are known. The error of the cell is ``__cause__``."""

    def __init__(self, message: str, policy: str | None = None, environment: str | None = None) -> None:
        self.policy, self.environment = policy, environment
        super().__init__(message)


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
                worlds[place] = build_environment(
                    spec.environments[place], horizon=spec.horizon, lanes=[0], seed=spec.seed
                )
            if issubclass(resolve_policy(named.policy), Policy):
                built.append(build_policy(named, worlds[place], list_variants(named.sweep)[:1]))
    policies = compile_projections_in_background(built)
    for world in worlds.values():
        with suppress(Exception):
            warm_up([], [world])
    for policy in policies:
        with suppress(Exception, SystemExit):
            warm_up([policy])


Finished = tuple[int, Cell, CellResult | CellError]


class Work:
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


def finished_cells(work: Work, jobs: int, cluster: str | None) -> Generator[Finished]:
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
            result = play_cell(spec, cell, ProgressWriter(counters, index, cell.last - cell.first))
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


def _here(work: Work) -> Generator[Finished]:
    for task in work.tasks():
        yield _compute(*task)


def _in_processes(work: Work, jobs: int) -> Generator[Finished]:
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


def _on_cluster(work: Work, jobs: int, address: str) -> Generator[Finished]:
    from windvane.lab.run.cluster import on_cluster

    here = versions()
    for index, cell, result in on_cluster(_compute, list(work.tasks()), workers=jobs, address=address):
        found = result.versions if isinstance(result, CellResult) else here
        if different := [name for name, version in here.items() if found.get(name) != version]:
            raise CellError(f"a worker of the cluster has another version of {', '.join(different)} than this process")
        yield index, cell, result
