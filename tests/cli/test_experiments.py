"""``windvane reproduce`` and ``windvane simulate`` through the real command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from support.commands import fails, files, windvane_command, windvane_process
from windvane.lab.results.results import Results


def test_reproduce(tmp_path: Path) -> None:
    line = "reproduce --runs 3 --horizon 90 --arms cube --bonus-scale 0.5 --seed 7 --jobs 2 --out new/folder"
    found = windvane_process(f"{line} --diagnostics", tmp_path)
    assert found.stderr == ""
    for text in ("OFUL", "D-LinUCB", "GLM-UCB", "BVD-GLM-UCB", "B_T = 1.57", "cube [-1, 1]^2", "multiplied by 0.5"):
        assert text in found.stdout
    assert "Theorem 1, general arms" in found.stdout  # the bound beside the regret, with the diagnostics
    assert "Nothing to compare" in found.stdout  # another horizon than the published one
    written = files(tmp_path / "new/folder")
    for name in ("regret", "projection", "diagnostics-bvd-glm-ucb"):
        assert {f"figures/{name}.{kind}" for kind in ("png", "pdf", "svg")} <= written
    assert {"report.html", "spec.toml", "manifest.json"} <= written
    entries = Results.open(tmp_path / "new/folder").entries
    assert [len(entry.final) for entry in entries] == [3] * 6
    assert {"learning", "tracking", "lemma_2_slack"} <= {e.policy: e for e in entries}["BVD-GLM-UCB"].diagnostics.keys()
    # the same again does nothing, says the same, and as JSON
    again = json.loads(windvane_command(f"{line} --diagnostics --json", tmp_path).stdout)
    assert again["bounds"][0]["bounds"]["general"]["total"] > again["bounds"][0]["measured"][3]["mean"]
    assert [row["mean"] for row in again["policies"]] == pytest.approx([e.final.mean() for e in entries])
    fails(line.replace("--seed 7", "--seed 8"), tmp_path, "new/folder: ", "--restart")  # settings do not mix


def test_reproduce_at_the_published_horizon(tmp_path: Path) -> None:
    found = json.loads(windvane_command("reproduce --runs 2 --jobs 1 --json", tmp_path).stdout)
    published = {one["policy"]: one for one in found["published"]}
    assert published["BVD-GLM-UCB"]["published"] == pytest.approx([19.87, 43.57, 59.14])
    assert published["OFUL"]["rounds"] == [1000, 2000, 3000]
    assert len(found["readings"]) == 8
    assert (tmp_path / "reproduction-2x3000/report.html").exists()
    rows = {row["policy"]: row for row in found["policies"]}
    assert rows["BVD-GLM-UCB"]["gamma"] == pytest.approx(0.995908, abs=1e-6)
    assert sum(rows["BVD-GLM-UCB"]["stages"]) == pytest.approx(1.0)
    text = windvane_command("reproduce --runs 2", tmp_path).stdout
    assert re.search(r"BVD-GLM-UCB differs: [\d./ ]+ against the published 19.9 / 43.6 / 59.1", text)
    page = (tmp_path / "reproduction-2x3000/report.html").read_text()
    windvane_command("report reproduction-2x3000", tmp_path)  # draws the same again, with the published curves
    assert (tmp_path / "reproduction-2x3000/report.html").read_text() == page
    assert re.search(r"OFUL .* 220\.5\n", text)


def test_reproduce_refuses(tmp_path: Path) -> None:
    fails("reproduce --arms torus", tmp_path, "`arms`", "ball, sphere, cube", "'torus'")
    fails("reproduce --runs 0", tmp_path, "--runs")
    fails("reproduce --horizon two", tmp_path, "--horizon")
    fails(
        "reproduce --bonus-scale nan --runs 1 --horizon 3",
        tmp_path,
        "'--bonus-scale'",
    )
    fails("reproduce --seed -1", tmp_path, "--seed")
    fails("reproduce --runz 3", tmp_path, "--runz")
    assert files(tmp_path) == set()


def test_simulate(bench: Path, tmp_path: Path) -> None:
    reference = Results.open(bench / "results")
    source = shlex.quote(str(bench / "two.toml"))
    out = json.loads(
        windvane_process(f"simulate {source} --diagnostics --cluster local --jobs 2 --json", tmp_path).stdout
    )
    assert out["folder"] == "two-results"
    found = Results.open(tmp_path / "two-results")
    for one, other in zip(found.entries, reference.entries, strict=True):
        np.testing.assert_array_equal(one.regret, other.regret)
        assert one.diagnostics
        assert not other.diagnostics
    fails(f"simulate {source}", tmp_path, "two-results: ", "--restart")
    windvane_command(f"simulate {source} --jobs 1 --restart", tmp_path)
    assert not Results.open(tmp_path / "two-results").entries[0].diagnostics


def test_simulate_refuses(bench: Path, tmp_path: Path) -> None:
    fails("simulate", tmp_path, "'spec'")
    fails("simulate nowhere.toml", tmp_path, "nowhere.toml")
    bad = (bench / "two.toml").read_text().replace("horizon = 60", "horizon = -60")
    (tmp_path / "bad.toml").write_text(bad)
    line = bad.splitlines().index("horizon = -60") + 1
    fails("simulate bad.toml", tmp_path, f"bad.toml:{line}: horizon: ", "-60")
    fails(f"simulate {bench / 'two.toml'} --out bad.toml", tmp_path, "bad.toml: ")
    fails(f"simulate {bench / 'two.toml'} --cluster nonsense", tmp_path, "'nonsense'", code=1)
