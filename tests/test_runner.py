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
from pathlib import Path

import numpy as np
import pytest

from windvane import BVDGLMUCB
from windvane.environments import BallArms, Environment, GeometricDelay, RandomWalk, Rotation
from windvane.lab.cells import cells_of, recorded_rounds
from windvane.lab.cluster import ClusterError
from windvane.lab.engine import run_cell
from windvane.lab.results import Results
from windvane.lab.runner import CellError, run
from windvane.lab.spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.store import FolderError, Store

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
    assert run(small(), folder, jobs=1).complete
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
    found = run_cell(spec, cells_of(spec)[0])
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
    run(small(), tmp_path / "two", jobs=2)
    assert contents(tmp_path / "two") == contents(reference)
    whole = run(small(lanes_per_cell=100), tmp_path / "whole", jobs=1)
    for one, other in zip(whole.entries, Results.open(reference).entries, strict=True):
        assert one.label == other.label
        np.testing.assert_array_equal(one.regret, other.regret)
        np.testing.assert_array_equal(one.stages, other.stages)


def started(spec: Spec, folder: Path, tmp_path: Path, *more: str) -> subprocess.Popen:
    """A real ``windvane simulate`` in a session of its own."""
    source = tmp_path / "spec.toml"
    source.write_text(spec.to_toml())
    command = [sys.executable, "-m", "windvane.cli", "simulate", str(source), "--out", str(folder), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_cells(process: subprocess.Popen, folder: Path, count: int) -> None:
    while len(list(folder.glob("cells/*.json"))) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


LONG = {"horizon": 1500, "runs": 12, "environments": WORLDS[:1]}  # 4 cells of the costly policy, 12 in all


def test_killed_and_started_again_it_ends_with_the_same_bytes(tmp_path: Path) -> None:
    spec, folder = small(**LONG), tmp_path / "out"
    run(spec, tmp_path / "unbroken", jobs=2)
    process = started(spec, folder, tmp_path, "--jobs", "2")
    wait_for_cells(process, folder, 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    half = Results.open(folder)
    assert 3 <= half.finished < half.total
    assert half.entries  # what is finished can be read
    noted = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}
    process = started(spec, folder, tmp_path, "--jobs", "2", "--json")
    out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["complete"]
    assert contents(folder) == contents(tmp_path / "unbroken")
    assert all(path.stat().st_mtime_ns == when for path, when in noted.items())  # finished cells were not run again
    assert not list(folder.rglob("*.part"))


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_leaves_finished_cells_usable(tmp_path: Path, jobs: str) -> None:
    spec, folder = small(**LONG), tmp_path / "out"
    process = started(spec, folder, tmp_path, "--jobs", jobs)
    wait_for_cells(process, folder, 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everybody
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1].startswith("windvane: interrupted; ")
    found = Results.open(folder)
    assert 2 <= found.finished < found.total
    assert all(np.isfinite(entry.final).all() for entry in found.entries)
    assert run(spec, folder, jobs=2).complete


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(tmp_path: Path) -> None:
    """A real cluster with two workers, reached by its address; one is killed while it works."""
    from distributed import LocalCluster

    spec, folder = small(**LONG), tmp_path / "out"
    run(spec, tmp_path / "unbroken", jobs=2)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        process = started(spec, folder, tmp_path, "--cluster", cluster.scheduler_address)
        wait_for_cells(process, folder, 2)
        os.kill(cluster.workers[0].pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert contents(folder) == contents(tmp_path / "unbroken")


def test_a_local_cluster(reference: Path, tmp_path: Path) -> None:
    assert run(small(), tmp_path / "out", jobs=2, cluster="local").complete
    assert contents(tmp_path / "out") == contents(reference)


def test_no_cluster_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windvane.lab.cluster.PATIENCE", 0.2)
    with pytest.raises(ClusterError, match=r"cluster='tcp://127.0.0.1:9': no scheduler answers there"):
        run(small(), tmp_path / "out", cluster="tcp://127.0.0.1:9")


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "note"])
def test_a_damaged_cell_is_run_again(reference: Path, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "out"
    run(small(), folder, jobs=1)
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
    assert run(small(), folder, jobs=1).complete
    assert contents(folder) == contents(reference)


def test_a_folder_with_something_else_is_left_alone(reference: Path, tmp_path: Path) -> None:
    before = contents(reference)
    with pytest.raises(FolderError, match="holds another experiment; name another folder, or start over"):
        run(small(seed=5), reference, jobs=1)
    assert contents(reference) == before
    (tmp_path / "thesis.tex").write_text("precious")
    for restart in (False, True):
        with pytest.raises(FolderError, match=r"holds no experiment, but 'thesis.tex'; name another folder"):
            run(small(), tmp_path, jobs=1, restart=restart)
    assert (tmp_path / "thesis.tex").read_text() == "precious"
    with pytest.raises(FolderError, match="is a file; name a folder"):
        run(small(), tmp_path / "thesis.tex", jobs=1)
    with pytest.raises(FolderError, match="holds no experiment"):
        Results.open(tmp_path)
    with pytest.raises(FolderError, match="is not a folder"):
        Results.open(tmp_path / "nowhere")


def test_results_of_other_code_are_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(small(), tmp_path / "out", jobs=1)
    monkeypatch.setattr("windvane.lab.store._code_hash", lambda: "0123")
    with pytest.raises(FolderError, match=r"was made with code \w+ \(now 0123\); name another folder, or start over"):
        run(small(), tmp_path / "out", jobs=1)
    assert run(small(), tmp_path / "out", jobs=1, restart=True).complete


def test_only_one_run_writes_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "out", small())
    with store.alone(), pytest.raises(FolderError, match="another run is writing here"):
        run(small(), tmp_path / "out", jobs=1)
    assert run(small(), tmp_path / "out", jobs=1).complete


class Failing(BVDGLMUCB):
    name = "failing"

    def select(self, arms, valid=None):
        if self.t > 20:
            raise ArithmeticError("out of luck")
        return super().select(arms, valid)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_policy_that_fails_is_named(tmp_path: Path, jobs: int) -> None:
    spec = small(policies=(PolicySpec("OFUL"), PolicySpec(Failing, settings={"gamma": 0.9})))
    with pytest.raises(CellError, match=r"Failing in '.*' failed: ArithmeticError: out of luck"):
        run(spec, tmp_path / "out", jobs=jobs)
    assert {entry.policy for entry in Results.open(tmp_path / "out").entries} <= {"OFUL"}


def test_recorded_rounds() -> None:
    for horizon in (1, 2, 7, 999, 1000, 1001, 3000, 12345, 10**9):
        rounds = recorded_rounds(horizon, 1000)
        assert len(rounds) == min(horizon, 1000)
        assert rounds[-1] == horizon
        assert rounds[0] == 1
        assert (np.diff(rounds) >= 1).all()


def test_memory_does_not_grow_with_the_horizon() -> None:
    """With a discount, so that the policy's own memory is bounded too."""

    def peak(horizon: int) -> int:
        policies = (PolicySpec("BVD-GLM-UCB", settings={"gamma": 0.8}),)
        spec = small(horizon=horizon, record=100, runs=3, policies=policies)
        tracemalloc.start()
        for cell in cells_of(spec):
            run_cell(spec, cell)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2000)  # imports and caches
    assert peak(16000) < 1.1 * peak(2000)


def test_progress_is_counted_in_rounds(tmp_path: Path) -> None:
    class Watch:
        def __init__(self) -> None:
            self.shown: list[int] = []

        def begin(self, total: int, done: int) -> None:
            self.total, self.first = total, done

        def show(self, done: int) -> None:
            self.shown.append(done)

        def end(self) -> None:
            self.ended = True

    watch = Watch()
    spec = small()
    run(spec, tmp_path / "out", jobs=2, progress=watch)
    lanes = 2 * (5 + 5 + 10)
    assert (watch.total, watch.first, watch.ended) == (lanes * 60, 0, True)
    assert watch.shown == sorted(watch.shown)
    assert watch.shown[-1] == watch.total
    run(spec, tmp_path / "out", jobs=1, progress=watch)  # all done: nothing to show
    assert watch.shown[-1] == watch.total
