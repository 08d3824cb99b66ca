"""``windvane bound`` through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import windvane
from support.commands import fails, windvane_command
from support.pages import DOCS, read_blocks
from windvane.lab.results.results import Results
from windvane.theory import Problem, regret_bound


def test_bound(bench: Path) -> None:
    constants = "--horizon 3000 --drift 1.5708 --dim 2"
    text = windvane_command(f"bound {constants}", bench).stdout
    assert "Theorem 1, orthogonal arms" in text
    assert "All of them are larger than the trivial bound" in text
    assert 'with confidence = "horizon" or "anytime"' in text
    line = f"bound {constants} --link logistic --S 1 --L 1 --sigma 0.5 --lam 1 --delta 0.05 --gamma 0.99 --json"
    (found,) = json.loads(windvane_command(line, bench).stdout)
    k = windvane.get_link("logistic").constants(1, 1)
    problem = Problem(horizon=3000, drift=1.5708, dim=2, k_mu=k.k_mu, c_mu=k.c_mu, S=1, L=1, lam=1, sigma=0.5)
    wanted = regret_bound(problem, gamma=0.99, delta=0.05)
    assert found["bounds"]["orthogonal"]["total"] == pytest.approx(wanted.total)
    assert found["bounds"]["trivial"] == 3000
    beside = windvane_command("bound results", bench).stdout
    assert beside.count("measured") == beside.count("Neither theorem covers these runs.") == 2
    assert beside.count('the radius is the printed one, confidence = "pointwise"') == 2
    long = windvane_command("bound --horizon 300000000 --drift 1.5708 --dim 2", bench).stdout
    assert "“Theorem 1, general arms” and “Theorem 2, drift unknown” are larger than the trivial bound" in long
    (first, _) = json.loads(windvane_command("bound results --delta 0.1 --json", bench).stdout)
    assert first["measured"][0]["mean"] == pytest.approx(Results.open(bench / "results").entries[0].final.mean())
    assert first["bounds"]["constants"]["delta"] == 0.1
    assert [row["label"] for row in first["coverage"]] == [row["label"] for row in first["measured"]]
    fails("bound --horizon 10", bench, "`--drift`")
    fails("bound results --dim 2", bench, "`--dim`", "results")
    fails(f"bound {constants} --S -1", bench, "`S`", "-1.0")
    fails(f"bound {constants} --link tanh", bench, "link", "'tanh'")


def test_the_spec_for_the_theorem(tmp_path: Path) -> None:
    """In docs/explanation/guarantees.md."""
    (spec,) = read_blocks(DOCS / "explanation" / "guarantees.md", "toml")
    (tmp_path / "proof.toml").write_text(f"runs = 2\nhorizon = 50\n{spec}")
    windvane_command("simulate proof.toml --jobs 1", tmp_path)
    text = windvane_command("bound proof-results", tmp_path).stdout
    assert "BVD-GLM-UCB: covered by Theorem 1 for general arms, and so is the order of the bound." in text


def test_runs_that_a_theorem_covers(tmp_path: Path) -> None:
    """Each theorem, and a discount for which the order is not proven."""
    (tmp_path / "axes.toml").write_text(AXES)
    windvane_command("simulate axes.toml --jobs 1", tmp_path)
    text = windvane_command("bound axes-results", tmp_path).stdout
    assert "Neither theorem covers" not in text
    assert "The arms are orthogonal" in text
    assert "proof: covered by Theorem 1 for orthogonal arms, and so is the order of the bound." in text
    assert "BOB-BVD-GLM-UCB: covered by Theorem 2, and so is the order of the bound." in text
    assert "fast: covered by Theorem 1 for orthogonal arms; its order is proven for another discount" in text
    assert "OFUL: no theorem here is about it." in text
    rows = {line.split()[0]: line for line in text.splitlines() if " yes " in line}
    assert rows.keys() == {"proof", "fast", "BOB-BVD-GLM-UCB"}
    assert all(line.endswith("(above the trivial one)") for line in rows.values())


AXES = """
runs = 2
horizon = 50
[[environments]]
name = "axes"
drift = { kind = "rotation" }
arms = { kind = "orthogonal", count = 5 }
[[policies]]
policy = "BVD-GLM-UCB"
label = "proof"
settings = { confidence = "horizon" }
[[policies]]
policy = "BVD-GLM-UCB"
label = "fast"
settings = { confidence = "anytime", gamma = 0.9 }
[[policies]]
policy = "BOB-BVD-GLM-UCB"
settings = { confidence = "horizon" }
[[policies]]
policy = "OFUL"
"""
