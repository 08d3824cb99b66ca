"""Splitting lanes over threads."""

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from support import access
from support.numerics import positive_definite
from support.refusals import refuses
from support.worlds import ball
from windvane.kernels import threads
from windvane.kernels.lanes import VECTORS, dense_rows
from windvane.kernels.scoring import log_det_lanes


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = threads.get_threads()
    yield
    threads.set_threads(before)


MUCH = 10.0 * threads.WORTH_SPLITTING


def over_lanes(kernel: Callable[[np.ndarray], None], cost: float = MUCH, lanes: int = 9) -> None:
    threads.over_lanes(kernel, cost, (), (np.arange(lanes),), lambda _: ())


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("lanes", [1, 2, 5, 9, 64])
def test_over_lanes_covers_every_lane_once(count: int, lanes: int) -> None:
    threads.set_threads(count)
    assert threads.get_threads() == count
    visits, lock = np.zeros(lanes, dtype=int), threading.Lock()

    def kernel(step: int, rows: np.ndarray, scratch: list[int]) -> None:
        with lock:
            rows += step
            scratch.append(threading.get_ident())

    scratches: dict[int, list[int]] = {}
    threads.over_lanes(kernel, MUCH, (1,), (visits,), lambda number: (scratches.setdefault(number, []),))
    assert all(len(set(users)) <= 1 for users in scratches.values()), "two threads had the same workspace"
    np.testing.assert_array_equal(visits, 1)


def test_small_work_stays_on_the_calling_thread() -> None:
    calls = []
    threads.set_threads(3)
    over_lanes(lambda rows: calls.append((len(rows), threading.get_ident())), cost=1.0)
    assert calls == [(9, threading.get_ident())]


def run_estimator(lanes: int) -> list[np.ndarray]:
    """A run whose ageing and solving are both worth splitting: 17 lanes of unequal length in ten dimensions."""
    rng = np.random.default_rng(5)
    estimator = access.make_estimator(10, gamma=np.linspace(0.9, 1.0, lanes), lanes=lanes)
    for _ in range(300):
        estimator.observe(ball(rng, (lanes,), 10), (rng.random(lanes) < 0.5) * 1.0, mask=rng.random(lanes) < 0.8)
        estimator.advance()
    assert estimator.pass_cost > threads.WORTH_SPLITTING
    return [estimator.solve().copy(), estimator.metric(), estimator.root_error, estimator.root_passes]


def test_threads_do_not_change_a_result() -> None:
    """Bit for bit with 1, 2 and 3 threads, through the estimator and through a kernel called directly."""
    dense = np.zeros((31, dense_rows(6, linearised=False), 6))
    dense[:, VECTORS : VECTORS + 6] = [positive_definite(np.random.default_rng(lane), 6) for lane in range(31)]

    def log_det(rows: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
        log_det_lanes(rows, 0.5, work, out)

    results = []
    for count in (1, 2, 3):
        threads.set_threads(count)
        log_dets = np.full(31, np.nan)
        threads.over_lanes(log_det, MUCH, (), (dense, log_dets), lambda _: (np.empty((1, 6, 6)),))
        results.append([log_dets, *run_estimator(17)])
    for one, two, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("bad", [0, 4, 8])
def test_an_exception_in_any_lane_reaches_the_caller(count: int, bad: int) -> None:
    threads.set_threads(count)

    def kernel(rows: np.ndarray) -> None:
        if bad in rows:
            raise ArithmeticError("lane trouble")

    with pytest.raises(ArithmeticError, match="lane trouble"):
        over_lanes(kernel)
    done = []
    over_lanes(lambda rows: done.append(len(rows)))  # and the pool still works
    assert sum(done) == 9


def test_no_thread_is_still_at_work_when_an_exception_arrives() -> None:
    """The caller may free or reuse its arrays then. The wait below only gives a straggler time to be caught."""
    threads.set_threads(2)
    caller, started, release, running = threading.get_ident(), threading.Event(), threading.Event(), []

    def kernel(rows: np.ndarray) -> None:
        if threading.get_ident() == caller:
            started.wait()
            raise ArithmeticError("the caller's own chunk")
        running.append(rows[0])
        started.set()
        release.wait(0.3)
        running.remove(rows[0])

    with pytest.raises(ArithmeticError):
        over_lanes(kernel, lanes=2)
    still_running = list(running)
    release.set()
    assert still_running == []


def test_the_thread_count_is_that_of_the_environment_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("0", "-1", "two", "1.5", " 2", "1e3", "²"):
        monkeypatch.setenv("WINDVANE_THREADS", text)
        with refuses("WINDVANE_THREADS"):
            access.threads_from_environment()
    monkeypatch.setenv("WINDVANE_THREADS", "5")
    assert access.threads_from_environment() == 5
    monkeypatch.setenv("WINDVANE_THREADS", "")
    assert access.threads_from_environment() == threads.available_cores() >= 1
    monkeypatch.delenv("WINDVANE_THREADS")
    assert access.threads_from_environment() == threads.available_cores()
    before = threads.get_threads()
    for count in (0, -1):
        with refuses("count"):
            threads.set_threads(count)
    assert threads.get_threads() == before
