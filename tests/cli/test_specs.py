"""``windvane new`` through the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path

from support.commands import fails, windvane_command
from windvane.lab.spec.experiment_spec import Spec


def test_new_writes_what_simulate_runs(tmp_path: Path) -> None:
    assert "spec.toml written" in windvane_command("new", tmp_path).stdout
    fails("new", tmp_path, "spec.toml: ", "--replace")
    (tmp_path / "spec.toml").write_text("")
    windvane_command("new spec.toml --replace", tmp_path)
    assert json.loads(windvane_command("new other.toml --json", tmp_path).stdout) == {"file": "other.toml"}
    fails("new nowhere/spec.toml", tmp_path, "nowhere/spec.toml: ", "No such file or directory")
    example = Spec.read(tmp_path / "spec.toml")
    short = re.sub(r"^horizon = \d+", "horizon = 30", (tmp_path / "spec.toml").read_text(), flags=re.MULTILINE)
    (tmp_path / "spec.toml").write_text(re.sub(r"^runs = \d+", "runs = 2", short, flags=re.MULTILINE))
    found = json.loads(windvane_command("simulate spec.toml --json", tmp_path).stdout)
    assert found["complete"]
    assert {row["environment"] for row in found["policies"]} == {world.name for world in example.environments}
