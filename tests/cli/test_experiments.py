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
from windvane.lab.studies.reproductions import NAMES, read_reproduction


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


def test_reproduce_another_paper(tmp_path: Path) -> None:
    line = "reproduce --paper russac2019 --runs 2 --horizon 60 --jobs 1"
    text = windvane_command(line, tmp_path).stdout
    for heading in ("Where this differs from", "Why it differs", "Known errors of", "Readings assumed"):
        assert f"\n{heading}" in text
    assert "Nothing to compare: only 6000 rounds were published." in text
    assert "Why" not in windvane_command("reproduce --runs 1 --horizon 9 --jobs 1 --out a", tmp_path).stdout
    found = json.loads(windvane_command(f"{line} --json", tmp_path).stdout)
    assert found["folder"] == "reproduction-russac2019-2x60"
    assert found["paper"] == "russac2019"
    assert found["published"] == []
    assert {"known_errors", "reasons", "readings", "left_out"} <= found.keys()
    assert [row["label"] for row in found["policies"]][:2] == ["D-LinUCB, public code", "D-LinUCB"]
    windvane_command("report reproduction-russac2019-2x60", tmp_path)
    page = (tmp_path / "reproduction-russac2019-2x60/report.html").read_text()
    assert "D-LinUCB and its rivals while theta* turns slowly" in page


def test_reproduce_compares_with_the_published_values(tmp_path: Path) -> None:
    text = windvane_command("reproduce --paper russac2019-abrupt --runs 2", tmp_path).stdout
    assert re.search(r"LinUCB-OR .* 160\.0\n", text)
    assert re.search(r"D-LinUCB, public code [\w ]+: [\d./ ]+ against the published 879.0 / 927.0 / 981.0", text)
    assert (tmp_path / "reproduction-russac2019-abrupt-2x6000/figures/regret.png").exists()


def test_reproduce_lists_the_papers(tmp_path: Path) -> None:
    text = windvane_command("reproduce --list", tmp_path).stdout
    found = json.loads(windvane_command("reproduce --list --json", tmp_path).stdout)
    assert [one["name"] for one in found] == list(NAMES)
    for one in found:
        reproduction = read_reproduction(one["name"])
        assert one["label"] == reproduction.label
        assert one["arms"].keys() == reproduction.arms.keys()
        assert one["name"] in text
        assert one["label"] in text
    assert files(tmp_path) == set()


TOLD = """
runs = 3
horizon = 40

[[environments]]
name = "walking"
drift = { kind = "random-walk", step = 0.05 }
arms = { kind = "ball" }

[[policies]]
policy = "AdaptiveGLMUCB"

[[policies]]
policy = "AdaptiveGLMUCB"
label = "learns the scale"
settings = { S = "none" }

[[policies]]
policy = "BVD-GLM-UCB"
"""


def test_the_table_says_what_policies_are_told(tmp_path: Path) -> None:
    """S too, where a policy could learn it; and which numbers are means over runs."""
    (tmp_path / "told.toml").write_text(TOLD)
    assert "AdaptiveGLMUCB is told S, although" in windvane_command("spec check told.toml", tmp_path).stdout
    text = windvane_command("simulate told.toml --jobs 1", tmp_path).stdout
    results = Results.open(tmp_path / "told-results")
    drift = results.entries[0].drift
    assert f"B_T = {drift.mean():.4g} on average ({drift.min():.4g} to {drift.max():.4g})" in text
    rows = {row[0]: row[1:] for line in text.splitlines() if len(row := re.split(r"  +", line.strip())) > 6}
    told, gamma = rows["policy"].index("told"), rows["policy"].index("γ")
    assert [rows[name][told] for name in ("AdaptiveGLMUCB", "learns the scale", "BVD-GLM-UCB")] == ["S", "–", "B_T"]
    assert [rows[name][gamma] for name in ("AdaptiveGLMUCB", "learns the scale")] == ["–", "–"]
    assert float(rows["BVD-GLM-UCB"][gamma]) < 1
    for column in ("regret", "told", "γ", "µs/round", "θ̂ outside", "stages"):
        assert re.search(rf"^{column}: ", text, re.M)
    assert results.summary()["told"].tolist() == ["S", "", "B_T"]
    manifest = json.loads((tmp_path / "told-results" / "manifest.json").read_text())
    assert [policy["told_S"] for policy in manifest["policies"]] == [["walking"], [], []]
    for policy in manifest["policies"]:  # a folder of before
        del policy["told_S"]
    (tmp_path / "told-results" / "manifest.json").write_text(json.dumps(manifest))
    assert Results.open(tmp_path / "told-results").manifest == manifest


def test_reproduce_refuses(tmp_path: Path) -> None:
    fails("reproduce --paper nobody2000", tmp_path, "`paper`", "faury2021, russac2019", "'nobody2000'")
    fails("reproduce --paper russac2019 --arms ball", tmp_path, "`arms`", "cube", "'ball'")
    fails("reproduce --paper cheung2019 --horizon 9", tmp_path, "`horizon`", "omitted for cheung2019")
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
