"""warm_up compiles what the named policies need, and nothing else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import ClassVar

import pytest

import windvane
from support.processes import run_python
from support.refusals import refuses
from windvane.environments import BallArms, Rotation
from windvane.lab.run import workers
from windvane.lab.run.cells import Cell
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.service import recovery
from windvane.service.store import SqliteStore

KERNELS = """
import sys, windvane
def kernels():
    return {
        (module, name, signature)
        for module, loaded in list(sys.modules.items())
        if module.startswith("windvane.kernels.")
        for name, kernel in vars(loaded).items()
        if hasattr(kernel, "overloads")
        for signature in kernel.overloads
    }
"""


def python(code: str) -> str:
    return run_python("-c", KERNELS + code, WINDVANE_QUIET="1").stdout


def test_only_the_named_policies_are_compiled() -> None:
    code = """
windvane.warm_up([]); none = kernels()
windvane.warm_up(["UniformRandom"]); random = kernels()
windvane.warm_up([windvane.DLinUCB]); linear = kernels()
windvane.warm_up(["BVD-GLM-UCB", windvane.DLinUCB]); generalized = kernels()
print(len(none), random < linear < generalized)
"""
    assert python(code) == "0 True\n"


def test_afterwards_an_experiment_compiles_nothing() -> None:
    """The policies of ``windvane reproduce`` in their environment."""
    code = """
import dataclasses
from windvane.lab.run import workers
from windvane.lab.run.cells import Cell
from windvane.lab.run.play import play_cell
from windvane.lab.studies.paper import paper_spec
from windvane.lab.run.workers import compile_kernels
spec = paper_spec(horizon=60, runs=2)
cells = [Cell(0, policy, 0, 2) for policy in range(len(spec.policies))]
compile_kernels(spec, cells)
before = kernels()
for cell in cells:
    play_cell(cell.select_from(spec))
print(len(before) > 5, kernels() - before)
"""
    assert python(code) == "True set()\n"


def test_afterwards_no_kind_of_decision_compiles_anything() -> None:
    code = """
policies = [windvane.BVDGLMUCB, windvane.DLinTS, windvane.UniformRandom]
windvane.warm_up(policies)
before = kernels()
for cls in policies:
    policy = cls(2, **({} if cls is windvane.UniformRandom else {"gamma": 0.9}))
    policy.probabilities([[[1.0, 0.0]]])
    policy.select_from(windvane.Sphere(1.0))
print(kernels() - before)
"""
    assert python(code) == "set()\n"


def test_a_first_decision_compiles_only_what_its_policy_needs() -> None:
    code = """
agent = windvane.Agent(dim=2, policy="OnePassGLM", gamma=0.9, epsilon=0.1)
agent.reward(agent.decide([[0.1, 0.2], [0.2, 0.1]]), 1.0)
agent.decide([[0.1, 0.2]])
used = kernels()
windvane.warm_up(["OnePassGLM"])
print(len(used) > 5, used - kernels(), {name for _, name, _ in used if "project" in name or "find" in name})
"""
    assert python(code) == "True set() set()\n"


def test_a_built_policy_plays() -> None:
    policy = windvane.OFUL(dim=3, lanes=2, L=0.1)
    assert windvane.warm_up([policy]) > 0
    assert policy.t > 1


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="Nonsense"):
        windvane.warm_up(["Nonsense"])


class Recording(windvane.OFUL):
    """Remembers with which settings it was built and how often it decided."""

    built: ClassVar[list[float]] = []
    decided = 0

    def __init__(self, dim, own, lanes=1, seed=0):
        Recording.built.append(own)
        super().__init__(dim, lanes=lanes, seed=seed)

    def select(self, arms, valid=None):
        Recording.decided += 1
        return super().select(arms, valid)


class Failing(windvane.OFUL):
    def select(self, arms, valid=None):
        raise RuntimeError("on purpose")


class Foreign:
    """On the lanes contract, but not derived from Policy: it uses no kernels."""

    def __init__(self, dim, lanes, seed):
        raise AssertionError("must not be built")

    def select(self, arms, valid=None): ...

    def update(self, x, reward): ...


def spec_of(*policies: PolicySpec) -> Spec:
    turning = EnvironmentSpec("turning", Rotation(), BallArms())
    return Spec(horizon=20, runs=2, environments=[turning], policies=list(policies))


def test_the_runner_warms_up_classes_of_the_users_own() -> None:
    spec = spec_of(PolicySpec(Recording, settings={"own": 7.0}), PolicySpec(Failing), PolicySpec(Foreign))
    Recording.built.clear()
    workers.compile_kernels(spec, [Cell(0, policy, 0, 1) for policy in range(3)])
    assert Recording.built == [7.0]
    assert Recording.decided > 0


def test_the_runner_warms_up_only_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[str] = []

    def note(policies=None, environments=()):
        warmed.extend(type(policy).__name__ for policy in policies)

    monkeypatch.setattr("windvane.warmup.warm_up", note)
    spec = spec_of(PolicySpec("OFUL"), PolicySpec("D-LinUCB"))
    workers.compile_kernels(spec, [Cell(0, 1, 0, 1)])
    assert warmed == ["DLinUCB"]


def test_the_service_compiles_the_policies_of_its_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warmed: list[set[type]] = []
    monkeypatch.setattr(recovery, "warm_up", warmed.append)
    with contextlib.closing(SqliteStore(tmp_path / "a.db")) as store:
        recovery.recover(store, lambda _: None)
        config = {"title": None, "agent": windvane.Agent(dim=2, policy="OFUL").settings}
        store.add_stream("linear", 0.0, json.dumps(config))
        recovery.recover(store, lambda _: None)
    default = windvane.AdaptiveGLMUCB  # of a new stream
    assert warmed == [{default}, {default, windvane.OFUL}]


def test_every_registered_policy_can_be_built_from_the_example() -> None:
    for name, policy in windvane.POLICIES.items():
        windvane.warm_up([policy])
        assert policy.name == name


def test_rewards_stay_within_a_small_sigma() -> None:
    windvane.warm_up([windvane.BVDGLMUCB(dim=2, gamma=0.9, sigma=0.25)])
    windvane.check_policy(lambda **settings: windvane.DGLUCB(gamma=0.9, sigma=0.25, **settings))


def test_one_name_instead_of_a_list_is_refused() -> None:
    with refuses("policies", value="OFUL"):
        windvane.warm_up("OFUL")
