"""Compute cells on all cores, or on a Dask cluster.

Cells are independent, and every random number depends on (seed, run, round) only, so results do not depend on where and
in which order cells run.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from windvane.errors import WindvaneError
from windvane.kernels.threads import get_threads, set_threads
from windvane.lab.run.build import build_environment, build_policy, close_environment, resolve_policy
from windvane.lab.run.cells import Cell, CellSpec, list_variants
from windvane.lab.run.own_code import uses_own_code
from windvane.lab.run.play import CellResult, play_cell
from windvane.lab.run.progress import ProgressWriter
from windvane.lab.run.versions import list_versions

if TYPE_CHECKING:
    from windvane.lab.spec.experiment_spec import Spec


class CellError(WindvaneError, RuntimeError):
    """A cell failed: ``policy`` in ``environment``, where they are known. The error of the cell is ``__cause__``."""

    def __init__(self, message: str, policy: str | None = None, environment: str | None = None) -> None:
        self.policy, self.environment = policy, environment
        super().__init__(message)


def compile_kernels(spec: Spec, cells: Iterable[Cell], report: Callable[[int, int], None] | None = None) -> None:
    """Compile the kernels that ``cells`` need, so that their workers find them in the cache.

    Policies are built with their settings and play a few rounds. Those that do not derive from ``Policy`` use no
    kernels. Nothing is raised here: if a policy fails, its cell fails too, with an error that names both. ``report`` is
    called with the number of policies that are compiled and of all.
    """
    from windvane.policies.base import Policy
    from windvane.warmup import compile_projections_in_background, warm_up

    pairs = {cell.policy: cell.environment for cell in cells}  # kernels do not depend on the pairing
    environments, built = {}, []
    for number, place in pairs.items():
        with suppress(Exception, SystemExit):
            policy_spec = spec.policies[number]
            if place not in environments:
                environments[place] = build_environment(
                    spec.environments[place], horizon=spec.horizon, lanes=[0], seed=spec.seed
                )
            if issubclass(resolve_policy(policy_spec.policy), Policy):
                variants = list_variants(policy_spec.sweep)
                built.append(build_policy(policy_spec, environments[place], variants[:1]))
    policies = compile_projections_in_background(built)
    for environment in environments.values():
        with suppress(Exception):
            warm_up([], [environment])
            close_environment(environment)
    for done, policy in enumerate(policies, start=1):
        with suppress(Exception, SystemExit):
            warm_up([policy])
        if report is not None:
            report(done, len(policies))


Finished = tuple[int, Cell, CellResult | CellError]
Task = tuple[CellSpec, int, str, int, bool]


class Work:
    """The missing cells, ordered so that the slowest start first."""

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

    def note_duration(self, cell: Cell, seconds: float) -> None:
        """Note how long a cell took, to plan the other cells of this policy in this environment."""
        self._seconds[cell.environment, cell.policy] = seconds / (cell.last - cell.first)

    def choose_tasks(self) -> Iterator[Task]:
        """Yield the arguments of :func:`_compute` for each cell; the next cell is chosen when it is needed."""
        while self._left:  # cells of unknown duration first, then the slowest
            slowest = max(self._left, key=lambda kind: self._seconds.get(kind, float("inf")))
            index, cell = self._left[slowest].popleft()
            yield cell.select_from(self.spec), index, *self._common
            if not self._left[slowest]:
                del self._left[slowest]


def compute_cells(work: Work, jobs: int, cluster: str | None) -> Generator[Finished]:
    """Yield every missing cell with its number and its result, as they are finished."""
    if cluster is not None:
        return _run_on_cluster(work, jobs, cluster)
    jobs = min(jobs, work.count)
    return _run_in_processes(work, jobs) if jobs > 1 else _run_here(work)


@contextmanager
def _use_threads(count: int) -> Iterator[None]:
    before = get_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def _compute(spec: CellSpec, index: int, counters: str | None, threads: int, raises: bool) -> Finished:
    """Compute one cell in a worker; a failure names policy and environment, and is raised or returned."""
    cell = spec.cell
    with _use_threads(threads):
        try:
            return index, cell, play_cell(spec, ProgressWriter(counters, index, cell.last - cell.first))
        except (Exception, SystemExit) as error:
            policy, environment = spec.policy.name, spec.environment.name
            text = f"{policy} in {environment!r} failed: {type(error).__name__}: {error}"
            failure = CellError(text, policy, environment)
            if not raises:
                return index, cell, failure
            raise failure from error


def _compute_elsewhere(*task: Any) -> tuple[Finished, dict[str, str]]:
    """Compute one cell on a cluster; also return the versions that this worker has."""
    spec: CellSpec = task[0]
    return _compute(*task), list_versions([spec.environment, spec.policy])


def _begin_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and exit when the parent is gone, whatever ended it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_here(work: Work) -> Generator[Finished]:
    for task in work.choose_tasks():
        yield _compute(*task)


def _run_in_processes(work: Work, jobs: int) -> Generator[Finished]:
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    os.environ.setdefault("PYTHONSAFEPATH", "1")  # or workers would import modules from the current folder first
    compute = joblib.delayed(_compute)
    # Workers get one task at a time, so that the next one is chosen with the durations known by then.
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
            yield from pool(compute(*task) for task in work.choose_tasks())
        parts = [*work.spec.policies, *work.spec.environments]
        if uses_own_code(parts):  # workers keep modules that they have imported, and the user may edit them
            get_reusable_executor().shutdown(wait=True)
    except BaseException as error:
        get_reusable_executor().shutdown(kill_workers=True, wait=True)
        if isinstance(error, TerminatedWorkerError):
            raise CellError("a worker process died (killed, or out of memory?); finished cells are kept") from None
        raise


def _run_on_cluster(work: Work, jobs: int, address: str) -> Generator[Finished]:
    from windvane.lab.run.cluster import run_on_cluster

    here: dict[tuple[int, int], dict[str, str]] = {}  # by environment and policy, whose own code counts
    tasks = list(work.choose_tasks())
    for spec, *_ in tasks:
        if (place := (spec.cell.environment, spec.cell.policy)) not in here:
            here[place] = list_versions([spec.environment, spec.policy])
    for finished, versions in run_on_cluster(_compute_elsewhere, tasks, workers=jobs, address=address):
        _, cell, _ = finished
        expected = here[cell.environment, cell.policy].items()
        if different := [name for name, version in expected if versions.get(name) != version]:
            raise CellError(f"a cluster worker and this process have different versions of {', '.join(different)}")
        yield finished
