"""``windvane new`` and ``windvane spec`` through the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tomlkit

from support.commands import fails, windvane_command
from support.server import parse_json, run_command
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
    found = json.loads(windvane_command("simulate spec.toml --jobs 1 --json", tmp_path).stdout)
    assert found["complete"]
    assert {row["environment"] for row in found["policies"]} == {world.name for world in example.environments}


def test_check_says_what_a_spec_holds_and_what_policies_are_told(bench: Path) -> None:
    done = run_command("spec", "check", bench / "two.toml")
    told = "BVD-GLM-UCB is told the drift of each run (the exact one, or what the environment assumes)"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{bench / 'two.toml'}: valid; 2 policies in 2 environments, 8 cells\n{told}\n"
    assert parse_json(run_command("spec", "check", bench / "two.toml", "--json").stdout) == {
        "file": str(bench / "two.toml"),
        "environments": ["turning", "still"],
        "told": {"OFUL": [], "BVD-GLM-UCB": ["drift"]},
        "told_S": [],
        "cells": 8,
    }


@pytest.mark.parametrize(
    ("right", "wrong", "mentions"),
    [
        ("horizon = 60", "horizon = -60", ["horizon: ", "-60"]),
        ("lanes_per_cell = 3", "lanes = 3", ["lanes", "unknown"]),
        ('policy = "OFUL"', 'policy = "UFOL"', ["policy", "'UFOL'", "`windvane policies` lists them"]),
        ('policy = "OFUL"', 'policy = "OFUL"\nsettings = { bonus = 1 }', ["bonus"]),
        (
            'policy = "OFUL"',
            'policy = "OFUL"\nsettings = { delta = [0.1] }',
            ["policies[0].settings.delta", "a single number", "[0.1]", "sweep"],
        ),
        ('policy = "OFUL"', 'policy = "nowhere:Policy"', ["nowhere"]),
        ('{ kind = "rotation" }', '{ kind = "rotten" }', ["kind", "'rotten'"]),
    ],
)
def test_check_names_the_line(bench: Path, tmp_path: Path, right: str, wrong: str, mentions: list[str]) -> None:
    text = (bench / "two.toml").read_text().replace(right, wrong)
    (tmp_path / "bad.toml").write_text(text)
    line = text[: text.index(wrong) + len(wrong)].count("\n") + 1
    fails("spec check bad.toml", tmp_path, f"bad.toml:{line}: ", *mentions)


def test_check_refuses_what_is_not_toml(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("runs = \n")
    fails("spec check bad.toml", tmp_path, "bad.toml:1")
    fails("spec check nowhere.toml", tmp_path, "nowhere.toml")


def test_the_schema_describes_a_spec(bench: Path) -> None:
    document = parse_json(run_command("spec", "schema", "--json").stdout)
    assert json.loads(run_command("spec", "schema").stdout) == document
    example = tomlkit.parse((bench / "two.toml").read_text()).unwrap()
    assert example.keys() <= document["properties"].keys()
    assert set(document["required"]) <= example.keys()
