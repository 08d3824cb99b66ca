"""``windvane bound`` through the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import windvane
from support.commands import fails, windvane_command
from windvane.lab.results.results import Results
from windvane.theory import Problem, regret_bound


def test_bound(bench: Path) -> None:
    constants = "--horizon 3000 --drift 1.5708 --dim 2"
    text = windvane_command(f"bound {constants}", bench).stdout
    assert "Theorem 1, orthogonal arms" in text
    assert "larger than the trivial bound" in text
    line = f"bound {constants} --link logistic --S 1 --L 1 --sigma 0.5 --lam 1 --delta 0.05 --gamma 0.99 --json"
    (found,) = json.loads(windvane_command(line, bench).stdout)
    k = windvane.get_link("logistic").constants(1, 1)
    problem = Problem(horizon=3000, drift=1.5708, dim=2, k_mu=k.k_mu, c_mu=k.c_mu, S=1, L=1, lam=1, sigma=0.5)
    wanted = regret_bound(problem, gamma=0.99, delta=0.05)
    assert found["bounds"]["orthogonal"]["total"] == pytest.approx(wanted.total)
    assert found["bounds"]["trivial"] == 3000
    beside = windvane_command("bound results", bench).stdout
    assert beside.count("measured") == 2
    (first, _) = json.loads(windvane_command("bound results --delta 0.1 --json", bench).stdout)
    assert first["measured"][0]["mean"] == pytest.approx(Results.open(bench / "results").entries[0].final.mean())
    assert first["bounds"]["constants"]["delta"] == 0.1
    fails("bound --horizon 10", bench, "`--drift`")
    fails("bound results --dim 2", bench, "`--dim`", "results")
    fails(f"bound {constants} --S -1", bench, "`S`", "-1.0")
    fails(f"bound {constants} --link tanh", bench, "link", "'tanh'")
