"""What a fingerprint covers."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from pathlib import Path

import numpy as np

from support.spec_objects import (
    BASE,
    FLAT,
    Anything,
    LongArms,
    a_spec,
    breaks_late,
    half_turn,
    make_link,
    refused,
    rotation,
    with_environment,
    with_policy,
)
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS, BallArms
from windvane.lab.spec.example import wobble
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec

CHANGES = [
    {"runs": 51},
    {"horizon": 301},
    {"seed": 1},
    {"record": 999},
    {"lanes_per_cell": 24},
    {"diagnostics": True},
]
ENVIRONMENT_CHANGES = [
    {"name": "b"},
    {"drift": rotation(angle=1.0)},
    {"drift": DRIFTS["static"]()},
    {"drift": DRIFTS["function"](half_turn)},
    {"drift": DRIFTS["function"](wobble)},
    {"arms": ARM_LAWS["ball"](count=9)},
    {"arms": ARM_LAWS["sphere"]()},
    {"rewards": REWARD_LAWS["bernoulli"]()},
    {"dim": 3},
    {"link": "probit"},
    {"link": FLAT},
    {"link": make_link(0.2)},
    {"S": 0.5},
    {"L": 0.5},
    {"intercept": 0.0},
    {"delay": DELAYS["fixed"](rounds=1)},
]
POLICY_CHANGES = [
    {"label": "mine"},
    {"settings": {"lam": 2.0}},
    {"settings": {"lam": 3.0}},
    {"settings": {"delta": 0.1}},
    {"sweep": {"gamma": [0.9, 0.99]}},
    {"sweep": {"gamma": [0.99, 0.9]}},
    {"sweep": {"delta": [0.1]}},
    {"policy": "BVD-GLM-UCB"},
    {"policy": "BVD-GLM-UCB", "settings": {"link": "probit"}},
    {"policy": "BVD-GLM-UCB", "settings": {"link": FLAT}},
    {"policy": Anything},
    {"policy": Anything, "settings": {"name": "Anything"}},
]


def test_the_fingerprint_changes_with_whatever_decides_a_result():
    changed = [a_spec(), *(a_spec(**change) for change in CHANGES)]
    changed += [with_environment(**change) for change in ENVIRONMENT_CHANGES]
    changed += [with_policy(**change) for change in POLICY_CHANGES]
    changed.append(a_spec(policies=[PolicySpec("D-LinUCB"), PolicySpec("OFUL")]))
    changed.append(a_spec(policies=[PolicySpec("OFUL"), PolicySpec("D-LinUCB")]))
    assert len({spec.fingerprint() for spec in changed}) == len(changed)
    every = {field.name for field in dataclasses.fields(Spec) if field.init} - {"title", "environments", "policies"}
    assert {name for change in CHANGES for name in change} == every
    every = {field.name for field in dataclasses.fields(EnvironmentSpec)} - {"kind"}  # it has one value
    assert {name for change in ENVIRONMENT_CHANGES for name in change} == every


def test_the_fingerprint_does_not_change_otherwise():
    same = a_spec().fingerprint()
    assert re.fullmatch("[0-9a-f]{64}", same)
    assert a_spec(title="other").fingerprint() == same
    assert a_spec(title="other") != a_spec()
    assert with_environment(S=1).fingerprint() == same
    assert Spec.parse(a_spec().to_toml()).fingerprint() == same
    one, other = ({"lam": 1, "delta": 0.1}, {"delta": 0.1, "lam": 1.0})
    assert with_policy(settings=one) == with_policy(settings=other)
    assert with_policy(settings=one).fingerprint() == with_policy(settings=other).fingerprint()
    swept = [{"gamma": [0.9], "delta": [0.1, 0.2]}, {"delta": (0.1, 0.2), "gamma": np.array([0.9])}]
    assert with_policy(sweep=swept[0]).fingerprint() == with_policy(sweep=swept[1]).fingerprint()


def test_the_fingerprint_covers_functions_and_links_by_their_values():
    def circle(speed):
        return with_environment(
            drift=DRIFTS["function"](lambda t: [np.cos(t / speed), np.sin(t / speed)])
        ).fingerprint()

    assert circle(100) == circle(100) != circle(101)
    assert circle(100) == with_environment(drift=DRIFTS["function"](half_turn)).fingerprint()
    slow = with_environment(link=make_link(0.1)).fingerprint()
    assert (
        slow
        == with_environment(link=make_link(0.1)).fingerprint()
        != with_environment(link=make_link(0.11)).fingerprint()
    )


def test_a_fingerprint_that_cannot_be_taken_names_the_field():
    for spec, path in (
        (with_environment(link="nowhere:x"), "environments[0].link"),
        (with_policy("BVD-GLM-UCB", settings={"link": "nowhere:x"}), "policies[0].settings.link"),
    ):
        with refused(path, mention="nowhere:x"):
            spec.fingerprint()


def test_a_check_follows_a_function_to_the_end():
    spec = with_environment(drift=DRIFTS["function"](breaks_late))
    for work in (spec.check, spec.fingerprint):
        with refused("environments[0].drift.function", mention="200"):
            work()
    missing = with_environment(drift=DRIFTS["function"]("nowhere:f"))
    for work in (missing.check, missing.fingerprint):
        with refused("environments[0].drift.function", mention="nowhere:f"):
            work()
    broken = with_environment(drift=DRIFTS["function"](lambda t: [1 / (t - 9), 0.0]))
    with refused("environments[0].drift.function", mention="ZeroDivisionError: division by zero"):
        broken.check()


def test_specs_are_paths_or_texts_alike(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(BASE)
    assert Spec.read(path) == Spec.read(str(path)) == Spec.parse(Path(path).read_text())


def test_a_function_counts_in_every_round() -> None:
    """Two functions that differ in a single round, at a horizon far beyond what is recorded, are told apart."""

    def still(t: int) -> list[float]:
        return [1.0, 0.0]

    def jump(t: int) -> list[float]:
        return [0.0, 1.0] if t == 4321 else [1.0, 0.0]

    one, other = (
        dataclasses.replace(with_environment(drift=DRIFTS["function"](f)), horizon=5000) for f in (still, jump)
    )
    assert one.fingerprint() != other.fingerprint()


def test_a_law_of_ones_own_is_not_taken_for_its_base() -> None:
    plain, own = with_environment(arms=BallArms()), with_environment(arms=LongArms())
    assert plain.fingerprint() != own.fingerprint()
    assert own.fingerprint() == with_environment(arms=LongArms()).fingerprint()
    assert "# arms: " in own.to_toml()
    assert 'kind = "ball"' not in own.to_toml()


# --- code of the user -------------------------------------------------------------------------------------------------


def policy_of(function):
    return with_policy(Anything, settings={"hook": function}).fingerprint()


def make_hook(scale):
    return lambda x: scale * x


def test_functions_that_differ_are_told_apart():
    assert policy_of(lambda: 1) != policy_of(lambda: 2)
    assert policy_of(make_hook(1)) != policy_of(make_hook(2))
    assert policy_of(make_hook(1)) == policy_of(make_hook(1))


def test_a_class_from_a_prompt_has_a_fingerprint():
    """It has no source file; its code counts."""

    def define(factor):
        names = {"__name__": "prompt", "Base": Anything}
        exec(f"class Prompt(Base):\n    def scale(self):\n        return {factor}\n", names)
        return names["Prompt"]

    first, same, other = (with_policy(define(factor)).fingerprint() for factor in (1, 1, 2))
    assert first == same != other


MODULE = "from support.spec_objects import Anything\nclass Base(Anything):\n    factor = {}\n"


def test_files_of_base_classes_count_and_changes_after_the_import_are_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_base.py").write_text(MODULE.format(1))
    (tmp_path / "own_policy.py").write_text("import own_base\nclass Mine(own_base.Base):\n    pass\n")
    before = with_policy("own_policy:Mine").fingerprint()
    (tmp_path / "own_base.py").write_text(MODULE.format(22))
    with refused("policies[0]", mention="own_base"):
        with_policy("own_policy:Mine").fingerprint()
    importlib.reload(sys.modules["own_base"])
    importlib.reload(sys.modules["own_policy"])
    assert with_policy("own_policy:Mine").fingerprint() != before
