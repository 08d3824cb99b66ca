"""The recipe in the manifest: stored, kept, replaced and checked; the format of the folder; what policies are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.refusals import rejects
from windvane.environments import BallArms, Rotation
from windvane.lab import EnvironmentSpec, PolicySpec, Results, Spec, simulate
from windvane.lab.report.presentation import present
from windvane.lab.results.folder import FolderError
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.reproductions import write_recipe

WORLD = EnvironmentSpec(name="a", drift=Rotation(), arms=BallArms(count=3))
SPEC = Spec(environments=[WORLD], policies=[PolicySpec("OFUL"), PolicySpec("D-LinUCB")], runs=2, horizon=20)


def test_a_recipe_is_stored_and_kept(tmp_path: Path) -> None:
    assert simulate(SPEC, tmp_path, jobs=1).recipe == {}
    notes = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    recipe = {"name": "mine", "sizes": (1, 2.5), "deep": {"is": [None, True, "x"]}}
    stored = {**recipe, "sizes": [1, 2.5]}
    begun = Results.open(tmp_path).manifest["begun"]
    assert simulate(SPEC, tmp_path, jobs=1, recipe=recipe).recipe == stored
    assert simulate(SPEC, tmp_path, jobs=1).recipe == stored  # without a recipe, the stored one stays
    assert simulate(SPEC, tmp_path, jobs=1, recipe={"name": "other"}).recipe == {"name": "other"}
    results = Results.open(tmp_path)
    assert results.complete
    assert results.manifest["begun"] == begun
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()} == notes  # nothing ran again


@pytest.mark.parametrize(
    "recipe",
    [
        "paper",
        {},
        {"name": 3},
        {"name": "a", "x": float("nan")},
        {"name": "a", "x": Path()},
        {"name": "a", "x": {1: 2}},
    ],
)
def test_a_recipe_is_json(tmp_path: Path, recipe: object) -> None:
    with rejects("recipe"):
        simulate(SPEC, tmp_path / "out", jobs=1, recipe=recipe)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("recipe", ["paper", {"arms": "ball"}, {"name": 3}])
def test_a_manifest_with_a_bad_recipe_is_damaged(tmp_path: Path, recipe: object) -> None:
    simulate(SPEC, tmp_path, jobs=1)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "recipe": recipe}))
    with rejects(error=FolderError, path=path, code="damaged"):
        Results.open(tmp_path)


def test_a_folder_of_format_1_is_refused_and_can_be_restarted(tmp_path: Path) -> None:
    simulate(SPEC, tmp_path, jobs=1)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))
    (tmp_path / "runs").rename(tmp_path / "lanes")  # as that format called it
    for use in (Results.open, lambda folder: simulate(SPEC, folder, jobs=1)):
        with rejects(error=FolderError, path=path, code="format") as caught:
            use(tmp_path)
        assert "format 1" in caught.value.problem
        assert "--restart" in caught.value.problem
    assert simulate(SPEC, tmp_path, jobs=1, restart=True).complete
    assert not list((tmp_path / "lanes").iterdir())


def test_the_report_goes_by_the_recipe(tmp_path: Path) -> None:
    spec = paper_spec(runs=2, horizon=30, arms="sphere")
    plain = simulate(spec, tmp_path, jobs=1)
    present(plain)
    assert "Readings assumed" not in (tmp_path / "report.html").read_text()
    present(simulate(spec, tmp_path, recipe=write_recipe("faury2021", "sphere", 1.0)))
    assert "uniform on the unit sphere" in (tmp_path / "report.html").read_text()


def test_what_a_policy_was_told_is_stored(tmp_path: Path) -> None:
    results = simulate(SPEC, tmp_path, jobs=1)
    assert [(entry.policy, entry.told) for entry in results.entries] == [("OFUL", ()), ("D-LinUCB", ("drift",))]
    assert [policy["told"] for policy in results.manifest["policies"]] == [[], ["drift"]]
    assert results.summary().told.tolist() == ["", "B_T"]
