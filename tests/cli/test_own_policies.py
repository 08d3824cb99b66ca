"""Policies of the user's own, "module:Class" in the current folder, in the commands that may name them."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from support.commands import fails, windvane_command
from support.server import run_command
from windvane.cli.commands import COMMANDS

MODULE = """
import windvane


class Fine(windvane.OFUL):
    pass


class Failing(windvane.OFUL):
    def update(self, *arguments, **more):
        raise RuntimeError("on purpose")


class Broken(windvane.OFUL):
    def select(self, arms, valid=None):
        return super().select(arms, valid) * 0 - 1
"""


@pytest.fixture
def folder(bench: Path, tmp_path: Path) -> Path:
    """A folder with the spec ``two.toml`` and the module ``own.py``."""
    shutil.copy(bench / "two.toml", tmp_path)
    (tmp_path / "own.py").write_text(MODULE)
    return tmp_path


def benchmark(policies: str, folder: Path, code: int = 0) -> dict:
    line = f"benchmark spec two.toml --policies {policies} --runs 2 --horizon 20 --jobs 1 --out out --json"
    done = windvane_command(line, folder, code)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_policy_of_your_own_is_on_the_leaderboard(folder: Path) -> None:
    document = benchmark("OFUL,own:Fine,UniformRandom", folder)
    assert {row["label"]: row["rank"] for row in document["leaderboard"]}.keys() == {"OFUL", "Fine", "UniformRandom"}
    assert [world["environment"] for world in document["environments"]] == ["turning", "still"]
    assert (document["runs"], document["horizon"], document["failures"]) == (2, 20, [])
    for world in document["environments"]:
        regret = {row["policy"]: row["regret"] for row in world["policies"]}
        assert regret["Fine"] == regret["OFUL"]
    stored = json.loads((folder / "out" / "leaderboard.json").read_text())
    assert stored == {key: value for key, value in document.items() if key != "files"}
    assert all((folder / file).exists() for file in document["files"])


def test_a_policy_that_fails_is_reported_and_not_ranked(folder: Path) -> None:
    document = benchmark("OFUL,own:Failing", folder, code=1)
    assert [row["label"] for row in document["leaderboard"]] == ["OFUL"]
    assert {(e["policy"], e["environment"]) for e in document["failures"]} == {
        ("Failing", "turning"),
        ("Failing", "still"),
    }
    assert "on purpose" in document["failures"][0]["error"]
    line = "benchmark spec two.toml --policies OFUL,own:Failing --runs 2 --horizon 20 --jobs 1 --out out"
    text = windvane_command(line, folder, code=1).stdout
    assert "Leaderboard over 2 environments" in text
    assert len(re.findall(r"^failed: Failing in '(?:turning|still)'", text, re.M)) == 2
    fails(line.replace("OFUL,", "") + "2", folder, "on purpose", code=1)  # nobody is left to rank


@pytest.mark.parametrize("command", ["simulate own.toml", "spec check own.toml", "benchmark spec own.toml"])
def test_a_policy_that_breaks_the_rules_is_refused_by_name(folder: Path, command: str) -> None:
    text = (folder / "two.toml").read_text()
    (folder / "own.toml").write_text(text.replace('"OFUL"', '"own:Broken"'))
    fails(f"{command} --check-policies", folder, "`policies`", "windvane.checks", "Broken", "check_")
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"two.toml", "own.toml", "own.py"}


def test_a_policy_that_keeps_the_rules_passes(folder: Path) -> None:
    text = (folder / "two.toml").read_text()
    (folder / "own.toml").write_text(text.replace('"OFUL"', '"own:Fine"'))
    assert "valid; 2 policies" in windvane_command("spec check own.toml --check-policies", folder).stdout


def test_a_randomised_policy_of_your_own_passes(folder: Path) -> None:
    """With probabilities that are estimates."""
    (folder / "own.py").write_text("import windvane\n\n\nclass Sampled(windvane.DLinTS):\n    lam: float = 2.0\n")
    text = (folder / "two.toml").read_text()
    (folder / "own.toml").write_text(text.replace('"OFUL"', '"own:Sampled"'))
    assert "valid; 2 policies" in windvane_command("spec check own.toml --check-policies", folder).stdout


def simulate_own(folder: Path, out: str) -> None:
    windvane_command(f"simulate own.toml --jobs 1 --out {out}", folder)


def test_folders_are_compared_without_the_code_of_the_policies(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With a policy of one's own: after it was changed, and where its module is not to be found."""
    text = (folder / "two.toml").read_text()
    (folder / "own.toml").write_text(text.replace('"OFUL"', '"own:Fine"'))
    simulate_own(folder, "before")
    (folder / "own.py").write_text(MODULE.replace("pass", "bonus_scale: float = 0.1"))
    sys.modules.pop("own", None)
    simulate_own(folder, "after")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for place, names in ((folder, "before after"), (elsewhere, f"{folder / 'before'} {folder / 'after'}")):
        sys.modules.pop("own", None)
        found = json.loads(windvane_command(f"compare {names} --json", place).stdout)["differences"]
        gaps = {(d["environment"], d["label"]): d["mean"] for d in found}
        assert gaps["turning", "after/Fine"] != 0
        assert gaps["turning", "before/BVD-GLM-UCB"] == gaps["turning", "after/BVD-GLM-UCB"]


def test_folders_whose_world_is_other_code_are_not_compared(folder: Path) -> None:
    drift = "def tide(t):\n    return [0.5, 0.0]\n"
    text = (folder / "two.toml").read_text()
    (folder / "own.toml").write_text(
        text.replace('{ kind = "static" }', '{ kind = "function", function = "tides:tide" }')
    )
    (folder / "tides.py").write_text(drift)
    simulate_own(folder, "before")
    (folder / "tides.py").write_text(drift.replace("0.5, 0.0", "0.0, 0.5"))
    sys.modules.pop("tides", None)
    simulate_own(folder, "after")
    fails("compare before after", folder, "still", "different code in the module tides")


def test_only_commands_that_may_name_a_class_import_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stray module must not break the others: an optional import of a library would find it."""
    monkeypatch.chdir(tmp_path)
    seen: dict[str, bool] = {}
    for command in COMMANDS:
        monkeypatch.setattr("windvane.cli._run", lambda _, name: seen.setdefault(name, str(tmp_path) in sys.path) and 0)
        run_command(command)
    assert {name for name, has_folder in seen.items() if has_folder} == {
        "spec",
        "simulate",
        "tune",
        "bound",
        "benchmark",
        "replay",
    }
