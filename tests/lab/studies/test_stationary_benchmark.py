"""The stationary benchmark: worlds as described, what policies are told, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from support.commands import windvane_command
from support.refusals import rejects
from windvane.environments import Environment
from windvane.lab import benchmark_spec
from windvane.lab.studies.stationary_benchmark import STATIONARY, WORLDS

T = 60


def worlds(lanes: int = 30) -> dict[str, Environment]:
    """Every environment of the benchmark, by name."""
    spec = benchmark_spec(benchmark="stationary", horizon=T, policies=["OFUL"])
    return {e.name: e.build(horizon=T, lanes=lanes, seed=3) for e in spec.environments}


def test_nothing_moves_and_parameters_have_the_norm_that_policies_are_told() -> None:
    found = worlds()
    assert len(found) == 2 * len(WORLDS) + 3
    for name, world in found.items():
        offers = [world.round(t) for t in (1, T)]
        np.testing.assert_array_equal(offers[0].theta, offers[1].theta)
        assert (world.variation == 0).all()
        assert (world.switches == 0).all()
        S = 1.0 if name.startswith("f") else 5.0
        features = offers[0].theta[:, : world.dim - 1] if "clicks" in name else offers[0].theta
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), S)
        same = np.array_equal(offers[0].arms, offers[1].arms)
        assert same == ("fixed arms" in name)


def test_fixed_arms_differ_from_run_to_run_and_are_the_same_for_all_policies() -> None:
    first, again = (worlds()["fixed arms, d = 10"].round(1).arms for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first[:, 0, 0])) == len(first)


@pytest.mark.parametrize("dim", [2, 10])
def test_clicks_are_rare(dim: int) -> None:
    found = worlds(lanes=400)[f"clicks, d = {dim}"]
    rates = np.concatenate([found.round(t).means for t in range(1, T, 5)])
    assert 0.01 < rates.mean() < 0.04
    assert (rates.max(axis=1) > 1.2 * rates.mean(axis=1)).mean() > 0.5  # there is something to learn


def test_sizes_and_refusals() -> None:
    quick, whole = (benchmark_spec(q, benchmark="stationary") for q in (True, False))
    assert quick.runs * quick.horizon < whole.runs * whole.horizon
    assert {e.dim for e in whole.environments} == {2, 10, 50}
    few = benchmark_spec(benchmark="stationary", worlds=["clicks"], policies=["OFUL", "Oracle"], runs=2, seed=5)
    assert [e.name for e in few.environments] == ["clicks, d = 2", "clicks, d = 10"]
    assert (few.runs, few.seed, few.title) == (2, 5, STATIONARY.title)
    with rejects("worlds"):
        benchmark_spec(benchmark="stationary", worlds=["rotation"])
    with rejects("benchmark"):
        benchmark_spec(benchmark="still")


def test_the_command_and_what_forgetting_costs_where_nothing_moves(tmp_path: Path) -> None:
    """A policy that is told that nothing moves never forgets. Greedy shows the price of forgetting: it has no bonus."""
    policies = "OFUL,D-LinUCB,Greedy,Greedy expecting drift,UniformRandom"
    line = f'benchmark stationary --worlds "fresh arms" --policies "{policies}"'
    answer = windvane_command(f"{line} --runs 20 --horizon 400 --jobs 1 --json --out still", tmp_path).stdout
    document = json.loads(answer)
    sections = {section["environment"]: section for section in document["environments"]}
    assert list(sections) == [f"fresh arms, d = {dim}" for dim in (2, 10, 50)]
    for section in sections.values():
        regret = {row["policy"]: row["regret"] for row in section["policies"]}
        assert section["B_T"] == section["switches"] == 0
        # told B_T = 0, D-LinUCB has gamma = 1: it differs from OFUL only in its radius
        assert regret["D-LinUCB"] == pytest.approx(regret["OFUL"], rel=0.1)
        assert regret["OFUL"] < regret["UniformRandom"]
        if "d = 50" not in section["environment"]:  # there, the memory is longer than the horizon
            assert regret["Greedy"] < regret["Greedy expecting drift"]
    report = (tmp_path / "still" / "report.html").read_text(encoding="utf-8")
    assert "Nothing moves in these environments" in report
    assert "AdaptiveGLMUCB was developed in these environments" not in report
