"""The runner: the same bytes whatever happens on the way, and nothing half-written."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.gated import GATE, waiting
from support.refusals import rejects
from windvane import BVDGLMUCB
from windvane.environments import BallArms, Environment, GeometricDelay, RandomWalk, Rotation
from windvane.lab.experiment import simulate
from windvane.lab.results.folder import FolderError
from windvane.lab.results.folder_writer import FolderWriter
from windvane.lab.results.results import Results
from windvane.lab.run.cells import choose_recorded_rounds, list_cells
from windvane.lab.run.cluster import ClusterError
from windvane.lab.run.play import play_cell
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec

TESTS = Path(__file__).parents[1]

WORLDS = (
    EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms(count=5)),
    EnvironmentSpec(name="walking, late", drift=RandomWalk(step=0.05), arms=BallArms(), delay=GeometricDelay(mean=7)),
)
POLICIES = (PolicySpec("OFUL"), PolicySpec("BVD-GLM-UCB"), PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99]}))


def small(**changes) -> Spec:
    settings = {"environments": WORLDS, "policies": POLICIES, "runs": 5, "horizon": 60, "lanes_per_cell": 3, "seed": 4}
    return Spec(**(settings | changes))


def contents(folder: Path) -> dict[str, str]:
    """Every Parquet file by name, hashed: what must be bit-identical."""
    paths = folder.rglob("*.parquet")
    found = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert found
    return found


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small experiment, run in this process without a break."""
    folder = tmp_path_factory.mktemp("reference") / "out"
    assert simulate(small(), folder, jobs=1).complete
    return folder


def test_regret_is_what_a_plain_loop_gives(reference: Path) -> None:
    """One policy in one environment, by hand, with the lanes in another order."""
    spec = small()
    ids = [4, 2, 0, 1, 3]
    world = Environment(Rotation(), BallArms(count=5), horizon=60, lanes=ids, seed=4)
    policy = BVDGLMUCB(dim=2, horizon=60, drift=float(world.variation[0]), lanes=ids, seed=4)
    lanes, regret = np.arange(5), np.zeros((5, 60))
    for t in range(1, 61):
        offer = world.round(t)
        choice = policy.select(offer.arms)
        mean = offer.means[lanes, choice]
        policy.update(offer.arms[lanes, choice], world.reward(t, mean))
        regret[ids, t - 1] = offer.means.max(axis=1) - mean
    entry = next(e for e in Results.open(reference).entries if (e.environment, e.policy) == ("turning", "BVD-GLM-UCB"))
    assert entry.lanes.tolist() == [0, 1, 2, 3, 4]
    assert entry.rounds.tolist() == list(range(1, 61))
    np.testing.assert_array_equal(entry.regret, regret.cumsum(axis=1))
    assert spec.horizon == entry.horizon


def test_late_rewards_are_learnt_when_they_arrive() -> None:
    """The engine's deliveries against a list of all rewards under way, searched through every round."""
    spec = small(environments=WORLDS[1:], policies=(PolicySpec("BVD-GLM-UCB", settings={"gamma": 0.9}),))
    found = play_cell(list_cells(spec)[0].select_from(spec))
    ids = [0, 1, 2]
    world = Environment(RandomWalk(step=0.05), BallArms(), delay=GeometricDelay(mean=7), horizon=60, lanes=ids, seed=4)
    policy = BVDGLMUCB(dim=2, gamma=0.9, lanes=ids, seed=4)
    under_way: list[tuple[int, int, int, np.ndarray, float]] = []  # due, lane, decided, x, reward
    lost, late = np.zeros(3), 0
    for t in range(1, 61):
        offer = world.round(t)
        choice = policy.select(offer.arms)
        mean = offer.means[ids, choice]
        reward, delay = world.reward(t, mean), world.delays(t)
        under_way += [(t + int(delay[i]), i, t, offer.arms[i, choice[i]], reward[i]) for i in ids]
        late += int(delay.max() > 0)
        for _, lane, decided, x, r in sorted((u for u in under_way if u[0] == t), key=lambda u: (u[1], u[2])):
            mask = np.arange(3) == lane
            policy.update(np.where(mask[:, None], x, 0.0), np.where(mask, r, 0.0), round=float(decided), mask=mask)
        lost += offer.best - mean
    assert late > 30
    np.testing.assert_allclose(found.regret[:, -1], lost, rtol=1e-12)


def test_two_processes_and_other_cells_give_the_same_numbers(reference: Path, tmp_path: Path) -> None:
    simulate(small(), tmp_path / "two", jobs=2)
    assert contents(tmp_path / "two") == contents(reference)
    whole = simulate(small(lanes_per_cell=100), tmp_path / "whole", jobs=1)
    for one, other in zip(whole.entries, Results.open(reference).entries, strict=True):
        assert one.label == other.label
        np.testing.assert_array_equal(one.regret, other.regret)
        np.testing.assert_array_equal(one.stages, other.stages)


def started(spec: Spec, folder: Path, gate: Path | None, *more: str) -> subprocess.Popen:
    """A real ``windvane simulate`` in a session of its own; cells of ``support.gated:Gated`` wait for the gate."""
    source = folder.with_suffix(".toml")
    source.write_text(spec.to_toml())
    command = [sys.executable, "-m", "windvane.cli", "simulate", str(source), "--out", str(folder), *more]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
    if gate is not None:
        environment[GATE] = str(gate)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stderr=pipe, stdout=pipe, text=True, start_new_session=True, env=environment)


def wait_until(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


# quick cells, and others that wait at the gate: once all workers wait, whatever happens is in the middle of a run
GATED = small(environments=WORLDS[:1], policies=(PolicySpec("OFUL"), PolicySpec("support.gated:Gated")), runs=10)
ALL = 8


def finished(folder: Path) -> int:
    return len(list(folder.glob("cells/*.json")))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("unbroken") / "out"
    assert simulate(GATED, folder, jobs=2).total == ALL
    return contents(folder)


def children(process: int) -> list[int]:
    """The worker processes of a run."""
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False).stdout.split()
    names = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found if Path(f"/proc/{pid}").exists()}
    return [pid for pid, name in names.items() if b"popen_loky" in name]


def test_killed_and_started_again_it_ends_with_the_same_bytes(tmp_path: Path, unbroken: dict[str, str]) -> None:
    folder, gate = tmp_path / "out", tmp_path / "gate"
    process = started(GATED, folder, gate, "--jobs", "2")
    wait_until(process, lambda: waiting(gate) == 2 and any(folder.glob("cells/*.json")))
    workers = children(process.pid)
    assert len(workers) == 2
    os.kill(process.pid, signal.SIGKILL)  # the parent alone: its workers notice
    process.communicate()
    half = Results.open(folder)
    assert 0 < half.finished < half.total == ALL
    assert [entry.policy for entry in half.entries] == ["OFUL"]  # what is finished can be read
    noted = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}
    (folder / "curves" / ".e000-p001-00000000.parquet.123.part").write_bytes(b"half")  # as a kill can leave behind
    gate.touch()
    process = started(GATED, folder, gate, "--jobs", "2", "--json")
    out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["complete"]
    assert contents(folder) == unbroken
    assert all(path.stat().st_mtime_ns == when for path, when in noted.items())  # finished cells were not run again
    assert not list(folder.rglob("*.part"))
    deadline = 100
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and deadline:
        time.sleep(0.1)
        deadline -= 1
    assert deadline, "the workers of the killed run are still there"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_finished_cells_usable(
    tmp_path: Path, jobs: str, sign: signal.Signals, unbroken: dict[str, str]
) -> None:
    folder, gate = tmp_path / "out", tmp_path / "gate"
    process = started(GATED, folder, gate, "--jobs", jobs)
    wait_until(process, lambda: waiting(gate) == int(jobs) and any(folder.glob("cells/*.json")))
    if sign == signal.SIGINT:
        os.killpg(process.pid, sign)  # as a terminal does: to everybody
    else:
        os.kill(process.pid, sign)
    _, errors = process.communicate()
    assert process.returncode == 130
    found = Results.open(folder)
    how_far = f"{found.finished} of 8 cells are finished and usable"
    assert errors == f"windvane: interrupted; {how_far}; repeat the command to continue\n"
    assert 0 < found.finished < ALL
    assert all(np.isfinite(entry.final).all() for entry in found.entries)
    assert simulate(GATED, folder, jobs=2).complete
    assert contents(folder) == unbroken


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(
    tmp_path: Path, unbroken: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real cluster with two workers, reached by its address; one is killed while both are in the middle of a cell."""
    from distributed import LocalCluster

    folder, gate = tmp_path / "out", tmp_path / "gate"
    monkeypatch.setenv(GATE, str(gate))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:
        process = started(GATED, folder, gate, "--cluster", cluster.scheduler_address)
        wait_until(process, lambda: waiting(gate) == 2 and any(folder.glob("cells/*.json")))
        assert finished(folder) < ALL
        lost = cluster.workers[0].pid
        os.kill(lost, signal.SIGKILL)
        wait_until(process, lambda: cluster.workers[0].pid not in (lost, None))  # its nanny starts another
        gate.touch()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert contents(folder) == unbroken


def test_a_worker_that_dies_is_reported(tmp_path: Path, unbroken: dict[str, str]) -> None:
    folder, gate = tmp_path / "out", tmp_path / "gate"
    process = started(GATED, folder, gate, "--jobs", "2")
    wait_until(process, lambda: waiting(gate) == 2 and any(folder.glob("cells/*.json")))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.startswith("windvane: error: a worker process died")
    assert len(errors.splitlines()) == 1
    gate.touch()
    assert simulate(GATED, folder, jobs=2).complete
    assert contents(folder) == unbroken


def test_an_interrupted_restart_mixes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the clearing came, cells of the old experiment are never taken for the new one's."""
    simulate(small(seed=8), tmp_path / "clean", jobs=1)
    for survive in (0, 3, 7, 20):
        folder = tmp_path / f"out{survive}"
        simulate(small(seed=7), folder, jobs=1)
        (folder / "figures" / "mine").mkdir(parents=True)
        (folder / "figures" / "notes.txt").write_text("precious")
        left = [survive]
        unlink = Path.unlink

        def fragile(self: Path, missing_ok: bool = False) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            unlink(self, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", fragile)
            with pytest.raises(KeyboardInterrupt):
                simulate(small(seed=8), folder, jobs=1, restart=True)
        simulate(small(seed=8), folder, jobs=1, restart=True)
        assert contents(folder) == contents(tmp_path / "clean")
        assert (folder / "figures" / "notes.txt").read_text() == "precious"


def test_cells_of_another_experiment_are_not_adopted(tmp_path: Path) -> None:
    """Their files are whole and have the right names, but were made by another spec."""
    simulate(small(seed=7), tmp_path / "seven", jobs=1)
    simulate(small(seed=8), tmp_path / "eight", jobs=1)
    wanted = contents(tmp_path / "eight")
    for name in ("cells", "curves", "runs", "paths"):
        for path in (tmp_path / "seven" / name).iterdir():
            (tmp_path / "eight" / name / path.name).write_bytes(path.read_bytes())
    assert Results.open(tmp_path / "eight").finished == 0
    simulate(small(seed=8), tmp_path / "eight", jobs=1)
    assert contents(tmp_path / "eight") == wanted


def test_theta_is_the_policys_own(tmp_path: Path) -> None:
    """A policy that is told a larger S has a larger Theta: its estimate is outside where it is projected."""
    spec = small(environments=WORLDS[:1], policies=(PolicySpec("BVD-GLM-UCB", settings={"S": 3.0}),))
    (entry,) = simulate(spec, tmp_path / "out", jobs=1).entries
    np.testing.assert_allclose(entry.outside, entry.stages[:, 2:].sum(axis=1), atol=1e-12)
    assert entry.path is not None
    assert entry.path.S == 3.0


def test_a_local_cluster(reference: Path, tmp_path: Path) -> None:
    assert simulate(small(), tmp_path / "out", jobs=2, cluster="local").complete
    assert contents(tmp_path / "out") == contents(reference)


def test_no_cluster_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.lab.run.cluster.PATIENCE", 0.2)
    with rejects(error=ClusterError, address="tcp://127.0.0.1:9"):
        simulate(small(), tmp_path / "out", cluster="tcp://127.0.0.1:9")


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "note"])
def test_a_damaged_cell_is_run_again(reference: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "out"
    simulate(small(), folder, jobs=1)
    victim = sorted(folder.glob("curves/*.parquet"))[1]
    content = victim.read_bytes()
    if damage == "cut":
        victim.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        victim.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
    elif damage == "gone":
        victim.unlink()
    else:
        (folder / "cells" / f"{victim.stem}.json").write_text("{")
    assert not Results.open(folder).complete
    assert simulate(small(), folder, jobs=1).complete
    assert contents(folder) == contents(reference)


def test_a_folder_with_something_else_is_left_alone(reference: Path, tmp_path: Path) -> None:
    before = contents(reference)
    with rejects(error=FolderError, path=reference, code="other_experiment", fields=("seed",)):
        simulate(small(seed=5), reference, jobs=1)
    assert contents(reference) == before
    (tmp_path / "thesis.tex").write_text("precious")
    for restart in (False, True):
        with rejects(error=FolderError, path=tmp_path, code="other_content") as caught:
            simulate(small(), tmp_path, jobs=1, restart=restart)
        assert "thesis.tex" in caught.value.problem
    assert (tmp_path / "thesis.tex").read_text() == "precious"
    with rejects(error=FolderError, path=tmp_path / "thesis.tex", code="not_a_folder"):
        simulate(small(), tmp_path / "thesis.tex", jobs=1)
    with rejects(error=FolderError, path=tmp_path, code="no_experiment"):
        Results.open(tmp_path)
    with rejects(error=FolderError, path=tmp_path / "nowhere", code="not_a_folder"):
        Results.open(tmp_path / "nowhere")


def test_results_of_other_code_are_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(small(), tmp_path / "out", jobs=1)
    monkeypatch.setattr("windvane.lab.run.versions._hash_package", lambda: "0123")
    with rejects(error=FolderError, path=tmp_path / "out", code="other_versions") as caught:
        simulate(small(), tmp_path / "out", jobs=1)
    assert "(now 0123)" in caught.value.problem
    assert simulate(small(), tmp_path / "out", jobs=1, restart=True).complete


def test_only_one_run_writes_at_a_time(tmp_path: Path) -> None:
    writer = FolderWriter(tmp_path / "out", small())
    with writer.lock(), rejects(error=FolderError, path=tmp_path / "out", code="locked"):
        simulate(small(), tmp_path / "out", jobs=1)
    assert simulate(small(), tmp_path / "out", jobs=1).complete


class Failing(BVDGLMUCB):
    name = "failing"

    def select(self, arms, valid=None):
        if self.t > 20:
            raise ArithmeticError("out of luck")
        return super().select(arms, valid)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_policy_that_fails_is_named(tmp_path: Path, jobs: int) -> None:
    spec = small(policies=(PolicySpec("OFUL"), PolicySpec(Failing, settings={"gamma": 0.9})))
    with rejects(error=CellError, policy="Failing") as caught:
        simulate(spec, tmp_path / "out", jobs=jobs)
    assert caught.value.environment in {environment.name for environment in spec.environments}
    assert "ArithmeticError: out of luck" in str(caught.value)
    assert {entry.policy for entry in Results.open(tmp_path / "out").entries} <= {"OFUL"}


def test_recorded_rounds() -> None:
    for horizon in (1, 2, 7, 999, 1000, 1001, 3000, 12345, 10**9):
        rounds = choose_recorded_rounds(horizon, 1000)
        assert min(horizon, 997) <= len(rounds) <= 1000
        assert rounds[-1] == horizon
        assert {max(1, horizon // 3), max(1, 2 * horizon // 3)} <= set(rounds.tolist())
        assert rounds[0] == 1
        assert (np.diff(rounds) >= 1).all()
    assert [choose_recorded_rounds(9, most).tolist() for most in (1, 2, 3, 4)] == [[9], [3, 9], [3, 6, 9], [1, 3, 6, 9]]


def test_memory_does_not_grow_with_the_horizon() -> None:
    """With a discount, so that the policy's own memory is bounded too."""

    def peak(horizon: int) -> int:
        policies = (PolicySpec("BVD-GLM-UCB", settings={"gamma": 0.8}),)
        spec = small(horizon=horizon, record=100, runs=3, policies=policies)
        tracemalloc.start()
        for cell in list_cells(spec):
            play_cell(cell.select_from(spec))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2000)  # imports and caches
    assert peak(16000) < 1.1 * peak(2000)


def test_progress_is_counted_in_rounds(tmp_path: Path) -> None:
    class Watch:
        def __init__(self) -> None:
            self.shown: list[int] = []

        def compile(self, done: int, total: int) -> None:
            self.compiled = done, total

        def begin(self, total: int, done: int) -> None:
            self.total, self.first = total, done

        def show(self, done: int) -> None:
            self.shown.append(done)

        def end(self) -> None:
            self.ended = True

    watch = Watch()
    spec = small()
    simulate(spec, tmp_path / "out", jobs=2, progress=watch)
    lanes = 2 * (5 + 5 + 10)
    assert (watch.total, watch.first, watch.ended) == (lanes * 60, 0, True)
    assert watch.shown == sorted(watch.shown)
    assert watch.shown[-1] == watch.total
    simulate(spec, tmp_path / "out", jobs=1, progress=watch)  # all done: nothing to show
    assert watch.shown[-1] == watch.total
