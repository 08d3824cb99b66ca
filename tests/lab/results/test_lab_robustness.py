"""What careless and hostile hands do to folders, specs, policies and streams: refused in one line, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.commands import windvane_command
from support.refusals import rejects
from windvane import OFUL
from windvane.environments import BallArms, ComeAndGo, Rotation, Static
from windvane.lab.experiment import simulate
from windvane.lab.report.presentation import present
from windvane.lab.results.folder import FolderError, make_slugs
from windvane.lab.results.results import Results
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError

WORLD = EnvironmentSpec(name="a", drift=Rotation(), arms=BallArms(count=3))


def tiny(**changes) -> Spec:
    settings = {"environments": (WORLD,), "policies": (PolicySpec("OFUL"), PolicySpec("D-LinUCB")), "runs": 2}
    return Spec(**(settings | {"horizon": 20} | changes))


def windvane(line: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "windvane.cli", *line]
    settings = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=settings, check=False)


# --- folders -------------------------------------------------------------------------------------------------------


def test_a_restart_deletes_only_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    simulate(tiny(), folder, jobs=1)
    (folder / "figures").mkdir()
    theirs = ["notes.txt", "figures/thesis.pdf", "cells/notes.json", "curves/mine.parquet", "figures/regretful.png"]
    for name in theirs:
        (folder / name).write_text("precious")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "e000-p000-00000000.parquet").write_text("theirs")
    for path in (folder / "paths").iterdir():
        path.unlink()
    (folder / "paths").rmdir()
    (folder / "paths").symlink_to(elsewhere)
    (folder / "figures" / "regret.png").write_text("ours")
    assert simulate(tiny(seed=3), folder, jobs=1, restart=True).complete
    assert all((folder / name).read_text() == "precious" for name in theirs)
    assert not (folder / "figures" / "regret.png").exists()


def test_a_spec_of_the_users_own_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("# my precious comments\n" + tiny().to_toml())
    with rejects(error=FolderError, path=tmp_path, code="other_content") as caught:
        simulate(tiny(), tmp_path, jobs=1)
    assert "spec.toml" in caught.value.problem
    assert (tmp_path / "spec.toml").read_text().startswith("# my precious comments")


def test_the_lock_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to(tmp_path / "victim")
    with rejects(error=FolderError, path=tmp_path / "out", code="unwritable"):
        simulate(tiny(), tmp_path / "out", jobs=1)
    assert (tmp_path / "victim").read_text() == "precious"
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / ".lock")
    with rejects(error=FolderError, path=tmp_path / "other" / ".lock", code="not_a_file"):
        simulate(tiny(), tmp_path / "other", jobs=1)


def test_an_edited_manifest_is_not_believed(tmp_path: Path) -> None:
    """Names swapped, cells dropped, another horizon: the cells no longer belong to it."""
    simulate(tiny(), tmp_path, jobs=1)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    for change in (
        {"policies": manifest["policies"][::-1]},
        {"cells": manifest["cells"][:1]},
        {"horizon": 5000},
        {"seed": 9},
    ):
        path.write_text(json.dumps({**manifest, **change}))
        assert not Results.open(tmp_path).entries
        with rejects(error=FolderError, path=path, code="changed"):
            simulate(tiny(), tmp_path, jobs=1)
    path.write_text(json.dumps(manifest))
    assert Results.open(tmp_path).complete


@pytest.mark.parametrize(
    "change",
    [
        {"versions": None},
        {"own_modules": None},
        {"policies": ["OFUL"]},
        {"cells": [[5, 0, 0, 2]]},
        {"fingerprint": None, "format": 7},
        {"runs": "x"},
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, change: dict) -> None:
    simulate(tiny(), tmp_path, jobs=1)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with rejects(error=FolderError, path=path, code="format" if "format" in change else "damaged"):
        Results.open(tmp_path)


@pytest.mark.parametrize(
    "change", [{"seconds": "x"}, {"lane_rounds": 0}, {"files": {}}, {"cell": "e000-p001-00000000"}]
)
def test_a_damaged_note_is_a_cell_not_done(tmp_path: Path, change: dict) -> None:
    simulate(tiny(), tmp_path, jobs=1)
    path = tmp_path / "cells" / "e000-p000-00000000.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert Results.open(tmp_path).finished == 1
    assert simulate(tiny(), tmp_path, jobs=1).complete


def test_another_spec_in_the_folder_is_not_believed(tmp_path: Path) -> None:
    simulate(tiny(), tmp_path, jobs=1)
    (tmp_path / "spec.toml").write_text(tiny(seed=4).to_toml())
    with rejects(error=FolderError, path=tmp_path / "spec.toml", code="other_spec"):
        _ = Results.open(tmp_path).spec


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(tiny(horizon=2000, runs=20).to_toml())
    limited = f"ulimit -f 40; {sys.executable} -m windvane.cli simulate s.toml --out out --jobs 2"
    found = subprocess.run(["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("windvane: error: out: ")
    assert "File too large" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert simulate(tiny(horizon=2000, runs=20), tmp_path / "out", jobs=1).complete


# --- code of the user's own ----------------------------------------------------------------------------------------


class Wrong(OFUL):
    name = "wrong"
    answer = staticmethod(lambda arms: -np.ones(len(arms), dtype=int))

    def select(self, arms, valid=None):
        super().select(arms, valid)
        return self.answer(arms)


@pytest.mark.parametrize(
    "answer",
    [
        lambda arms: -np.ones(len(arms), dtype=int),
        lambda arms: np.full(len(arms), 99),
        lambda _arms: 0,
        lambda arms: np.zeros(len(arms)),
        lambda arms: np.zeros((len(arms), 2), dtype=int),
        lambda arms: np.argmax(arms[:, :, 0], axis=1),  # whether it is offered or not
        lambda _arms: sys.exit(0),
    ],
)
def test_a_policy_that_answers_nonsense_is_named(tmp_path: Path, answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wrong, "answer", staticmethod(answer))
    world = EnvironmentSpec(name="shop", drift=Static(), arms=ComeAndGo(presence=0.2))
    spec = tiny(environments=(world,), policies=(PolicySpec(Wrong),), horizon=200)
    with rejects(error=CellError, policy="Wrong", environment="shop") as caught:
        simulate(spec, tmp_path / "out", jobs=1)
    cause = caught.value.__cause__
    assert isinstance(cause, SystemExit) or cause.argument == "select(arms)"


def test_a_module_that_exits_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "s.toml").write_text(tiny().to_toml().replace('"OFUL"', '"leaving:Policy"'))
    found = windvane_command("simulate s.toml", tmp_path, code=2)
    assert "policies[0].policy" in found.stderr
    assert "'leaving:Policy'" in found.stderr
    assert "SystemExit" in found.stderr


def test_an_edited_policy_is_another_experiment(tmp_path: Path) -> None:
    source = "from windvane import OFUL\n\n\nclass Mine(OFUL):\n    pass\n"
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "s.toml").write_text(tiny().to_toml().replace('"OFUL"', '"mine:Mine"'))
    assert windvane(["simulate", "s.toml", "--jobs", "1"], tmp_path).returncode == 0
    (tmp_path / "mine.py").write_text(source + "    bonus = 2\n")
    found = windvane(["simulate", "s.toml", "--jobs", "1"], tmp_path)
    assert found.returncode == 2
    assert "--restart" in found.stderr
    assert f"the module mine ({tmp_path / 'mine.py'})" in found.stderr


def test_a_module_in_the_current_folder_does_not_shadow_the_librarys(tmp_path: Path) -> None:
    """A user's ``random.py`` is found neither by the command nor by its workers."""
    (tmp_path / "random.py").write_text("raise RuntimeError('not me')")
    (tmp_path / "s.toml").write_text(tiny().to_toml())
    script = Path(sys.executable).with_name("windvane")
    found = subprocess.run(
        [script, "simulate", "s.toml", "--jobs", "2"], cwd=tmp_path, capture_output=True, check=False
    )
    assert found.returncode == 0, found.stderr


# --- names and streams ---------------------------------------------------------------------------------------------


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    """Markup for terminals is text, and names that look alike in a file name stay apart."""
    names = ["x[/]", "[red]x[/red]", "a b", "a-b", "🎲", "🎯"]
    worlds = tuple(EnvironmentSpec(name=name, drift=Static(), arms=BallArms(count=2)) for name in names)
    (tmp_path / "s.toml").write_text(tiny(environments=worlds, title="a [/] b").to_toml())
    found = windvane_command("simulate s.toml --jobs 1", tmp_path)
    assert all(name in found.stdout for name in names)
    windvane_command("compare s-results", tmp_path)
    written = present(Results.open(tmp_path / "s-results"))
    assert len(set(written)) == len(written) == 3 * len(names) + 1
    assert make_slugs(["a b", "a-b", "A B", "?", "!"]) == {
        "a b": "a-b", "a-b": "a-b-2", "A B": "a-b-3", "?": "unnamed", "!": "unnamed-2",
    }  # fmt: skip


def test_a_stream_that_knows_no_greek(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(tiny().to_toml())
    found = windvane(["simulate", "s.toml", "--jobs", "1"], tmp_path, PYTHONIOENCODING="ascii")
    assert found.returncode == 0
    assert "\\u03b3" in found.stdout


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(tiny().to_toml() + '"\\u001b[2J" = 3\n')
    found = windvane_command("simulate s.toml", tmp_path, code=2)
    assert "\x1b" not in found.stderr
    assert "\\x1b" in found.stderr


def test_settings_of_the_surroundings(tmp_path: Path) -> None:
    found = windvane(["doctor"], tmp_path, WINDVANE_THREADS="x")
    assert found.returncode == 2
    assert found.stderr.startswith("windvane: error: `WINDVANE_THREADS` must be a whole number")
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone}; rmdir {gone}; {Path(sys.executable).with_name('windvane')} --version"
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=False).returncode == 0


def test_delays_beyond_the_horizon_cost_nothing(tmp_path: Path) -> None:
    from windvane.environments import FixedDelay

    world = EnvironmentSpec(name="never", drift=Static(), arms=BallArms(), delay=FixedDelay(rounds=10**9))
    assert simulate(tiny(environments=(world,)), tmp_path / "out", jobs=1).complete


def test_huge_experiments_are_refused_at_once() -> None:
    with rejects(error=SpecError, path=("runs",)):
        tiny(runs=2**32)
