"""Your own policies and worlds in benchmarks: which policies take part, the checks, the leaderboard and the report."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from support.commands import fails, windvane_command
from support.refusals import rejects
from windvane import OFUL
from windvane.environments import BallArms, Rotation, Sinusoid
from windvane.lab import (
    EnvironmentSpec,
    LabelledStreamSpec,
    PolicySpec,
    Results,
    Spec,
    own_benchmark,
    rank_policies,
    simulate,
)
from windvane.lab.report.presentation import present, present_benchmark
from windvane.lab.results.folder import Recipe
from windvane.lab.run.workers import CellError
from windvane.lab.studies.benchmarks import REFERENCES, check_own_policies, choose_policies, ranked_entries
from windvane.lab.studies.tuned_benchmark import OWN, held_back_spec, read_benchmark, run_benchmark
from windvane.policies.registry import POLICIES

WORLDS = (
    EnvironmentSpec(name="turning", drift=Rotation(), arms=BallArms(count=3)),
    EnvironmentSpec(name="season", drift=Sinusoid(period=20), arms=BallArms(count=3), dim=3),
)


class Mine(OFUL):
    """A policy of the user's own."""


class Plain:
    """A policy on the lanes contract that is no Policy and has no bonus."""

    L = 1.0

    def __init__(self, dim: int, lanes: object = 1, seed: int = 0) -> None:
        self.policy = OFUL(dim=dim, lanes=lanes, seed=seed)

    def select(self, arms, valid=None):
        return self.policy.select(arms, valid)

    def update(self, x, reward, **others):
        self.policy.update(x, reward, **others)


class Broken(OFUL):
    """A policy that takes the first arm."""

    def select(self, arms, valid=None):
        return np.zeros_like(super().select(arms, valid))


class Failing(OFUL):
    """A policy that fails in one of the worlds."""

    def update(self, x, reward, **others):
        if self.dim == 3:
            raise RuntimeError("lost")
        super().update(x, reward, **others)


BASELINES = ("OFUL", "GLM-UCB", "UniformRandom", "Oracle")
VECTORS = [  # those that run in worlds that move, with other arms in every round
    name
    for name, cls in POLICIES.items()
    if not cls.needs_one_hot and (cls.card.forgetting != "none" or name in BASELINES)
]
MINE, PLAIN, BROKEN, FAILING = (f"{__name__}:{cls.__name__}" for cls in (Mine, Plain, Broken, Failing))


def spec_of(*policies: PolicySpec, **changes: object) -> Spec:
    settings = {"runs": 3, "horizon": 30, "seed": 2, "title": "two worlds", "lanes_per_cell": 50}
    return Spec(environments=WORLDS, policies=policies or [PolicySpec("OFUL")], **(settings | changes))


def conduct(failures: list[CellError] | None = None):
    def run(spec: Spec, folder: Path, _text: str, recipe: Recipe) -> Results:
        return simulate(spec, folder, jobs=1, recipe=recipe, failures=failures)

    return run


# --- which policies ---------------------------------------------------------------------------------------------------


def test_names_and_classes_are_chosen() -> None:
    worlds = spec_of().environments
    chosen = choose_policies(["OFUL", MINE], worlds, horizon=100)
    assert [(policy.name, policy.policy) for policy in chosen] == [("OFUL", "OFUL"), ("Mine", MINE)]
    for names in ([MINE, "OFUL", MINE], ["OFUL", "OFUL"], ["Mine"], ["Oracle"], []):
        with rejects("policies"):
            choose_policies(names, worlds, horizon=100)


def test_the_policies_of_the_spec_take_part() -> None:
    half = PolicySpec("BVD-GLM-UCB", settings={"bonus_scale": 0.5})
    labelled = PolicySpec("D-LinUCB", label="mine", settings={"gamma": 0.9})
    spec = own_benchmark(spec_of(half, labelled))
    assert [policy.name for policy in spec.policies] == [*VECTORS, "mine"]
    assert half in spec.policies  # in place of the registered one
    assert (spec.environments, spec.runs, spec.horizon, spec.seed) == (WORLDS, 3, 30, 2)
    assert spec.title == "Benchmark: two worlds"
    few = own_benchmark(spec_of(half, labelled), ["mine", "OFUL", MINE])
    assert [policy.name for policy in few.policies] == ["mine", "OFUL", "Mine"]
    for name, hint in (("nobody", "`windvane policies` lists them"), ("mien", "did you mean 'mine'?")):
        with rejects("policies", value=name) as caught:
            own_benchmark(spec_of(labelled), [name])
        assert caught.value.hint == hint


def test_no_oracle_on_labelled_streams(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,label\n" + "1,yes\n0,no\n" * 20)
    stream = LabelledStreamSpec("data", tmp_path / "data.csv")
    spec = own_benchmark(Spec(environments=[WORLDS[0], stream], policies=[PolicySpec("OFUL")], runs=2, horizon=20))
    assert [policy.name for policy in spec.policies] == [name for name in VECTORS if name != "Oracle"]
    few = own_benchmark(spec, ["OFUL", "UniformRandom"])
    results, _ = run_benchmark(few, tmp_path / "out", conduct(), name=OWN)
    rows, files = present_benchmark(results)
    assert {row.label: row.rank for row in rows} == {"OFUL": 1, "UniformRandom": None}
    assert {"report.html", "leaderboard.png"} <= {path.name for path in files}


# --- checks -----------------------------------------------------------------------------------------------------------


def test_classes_are_checked() -> None:
    check_own_policies(map(PolicySpec, ["OFUL", MINE]))
    with rejects("policies", value=BROKEN) as caught:
        check_own_policies(map(PolicySpec, ["OFUL", BROKEN]))
    assert "check_" in str(caught.value)
    with rejects("policies", value=PLAIN) as caught:  # it has no base class
        check_own_policies([PolicySpec(PLAIN)])
    assert "derives from windvane.Policy" in str(caught.value)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_benchmark_in_own_worlds(tmp_path: Path) -> None:
    spec = own_benchmark(spec_of(), ["OFUL", "Oracle", "UniformRandom", MINE, PLAIN])
    results, scales = run_benchmark(spec, tmp_path, conduct(), tuned=True, name=OWN)
    assert set(scales) == {"turning", "season"}
    assert set(scales["season"]) == {"OFUL", "Mine"}  # the others have no bonus
    rows, _ = present_benchmark(results)
    assert {row.label for row in rows} == {"OFUL", "Mine", "Plain", "UniformRandom", "OFUL tuned", "Mine tuned"}
    assert rows == rank_policies(results.entries, references=REFERENCES)
    page = (tmp_path / "report.html").read_text()
    assert "Benchmark: two worlds" in page
    assert "developed in these environments" not in page
    stored = read_benchmark(Results.open(tmp_path))
    assert stored is not None
    assert {entry.label for entry in stored.entries} == {entry.label for entry in results.entries}
    assert len(stored.table("runs")) == len(results.table("runs")) == 2 * 3 * (5 + 2)
    assert {"leaderboard.png", "regret-season.png"} <= {path.name for path in present(Results.open(tmp_path))}


def test_parts_of_another_benchmark_are_left_out(tmp_path: Path) -> None:
    """Equal names and sizes are not enough: a world that was changed makes another benchmark."""
    base = own_benchmark(spec_of(), ["OFUL", "UniformRandom"])
    run_benchmark(base, tmp_path, conduct(), tuned=True, name=OWN)
    tuned = read_benchmark(Results.open(tmp_path))
    assert tuned is not None
    assert any(entry.label == "OFUL tuned" for entry in tuned.entries)
    changed = EnvironmentSpec(name="season", drift=Sinusoid(period=9), arms=BallArms(count=3), dim=3)
    other = dataclasses.replace(base, environments=[WORLDS[0], changed])
    plain = simulate(other, tmp_path, jobs=1, restart=True, recipe={**tuned.recipe, "spec": other.fingerprint()})
    found = read_benchmark(plain)
    assert found is not None
    assert all(not entry.label.endswith("tuned") for entry in found.entries)
    assert read_benchmark(simulate(other, tmp_path / "plain", jobs=1)) is None


def test_a_policy_that_fails_somewhere_is_not_ranked(tmp_path: Path) -> None:
    failures: list[CellError] = []
    spec = own_benchmark(spec_of(), ["OFUL", FAILING])
    results, _ = run_benchmark(spec, tmp_path, conduct(failures), name=OWN)
    assert [(failure.policy, failure.environment) for failure in failures] == [("Failing", "season")]
    assert {entry.label for entry in ranked_entries(results)} == {"OFUL"}
    rows, _ = present_benchmark(results)
    assert [row.label for row in rows] == ["OFUL"]


def test_a_set_scale_is_tuned_again() -> None:
    spec = spec_of(PolicySpec("BVD-GLM-UCB", settings={"bonus_scale": 0.5, "lam": 2.0}))
    (policy,) = held_back_spec(spec).policies
    assert policy.settings == {"lam": 2.0}
    assert list(policy.sweep) == ["bonus_scale"]
    with rejects("policies"):
        held_back_spec(spec_of(PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99]})))


def test_your_policy_in_the_drift_benchmark(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text("from windvane import OFUL\n\n\nclass MyPolicy(OFUL):\n    pass\n")
    line = "benchmark drift --runs 2 --horizon 20 --worlds rotation --jobs 1 --json --policies OFUL,mymodule:MyPolicy"
    rows = json.loads(windvane_command(line, tmp_path).stdout)["leaderboard"]
    assert {row["label"]: row["score"] for row in rows} == {"OFUL": 1.0, "MyPolicy": 1.0}
    fails(f"{line},other:MyPolicy", tmp_path, "`policies`")


@pytest.mark.parametrize("name", ["nowhere:Policy", f"{__name__}:Nobody"])
def test_a_class_that_cannot_be_imported(name: str) -> None:
    with pytest.raises(ValueError, match="policy"):
        check_own_policies([PolicySpec(name)])
