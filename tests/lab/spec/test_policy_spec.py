"""What is built from a spec."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.refusals import rejects
from support.spec_objects import BASE, FLAT, Anything, a_spec, refused, with_environment, with_policy
from windvane import theory
from windvane.environments import DELAYS, DRIFTS
from windvane.lab import simulate
from windvane.lab.run.build import FILLED_ALWAYS
from windvane.lab.run.cells import list_cells
from windvane.lab.spec.experiment_spec import PolicySpec, Spec, SpecError
from windvane.lab.spec.policy_spec import label_variant
from windvane.policies.registry import POLICIES, Signature


def an_environment(lanes=3, **changes):
    values = {"drift": DRIFTS["random-walk"](step=0.05), "link": "probit", "S": 2.0, "L": 0.5, **changes}
    return with_environment(**values).environments[0].build(horizon=200, lanes=lanes, seed=7)


def test_an_environment_is_built_as_the_spec_says():
    environment = an_environment(lanes=[4, 9], dim=3, intercept=0.5, delay=DELAYS["fixed"](rounds=3))
    assert environment.lane_ids.tolist() == [4, 9]
    assert (environment.dim, environment.horizon, environment.seed) == (4, 200, 7)
    assert environment.link.name == "probit"
    assert environment.delays(1).tolist() == [3, 3]


def test_a_policy_is_given_what_the_environment_knows():
    environment = an_environment()
    policy = PolicySpec("BVD-GLM-UCB").build(environment)
    assert policy.lane_ids.tolist() == [0, 1, 2]
    assert (policy.dim, policy.L, policy.sigma, policy.seed) == (2, 0.5, environment.sigma, 7)
    assert (policy.estimator.S, policy.link.name) == (2.0, "probit")
    expected = [theory.discount(horizon=200, drift=B, dim=2) for B in environment.variation]
    assert len(set(expected)) == 3
    assert policy.info().gamma.tolist() == expected


def test_the_recommended_discount_follows_the_settings():
    environment = an_environment(intercept=0.5)
    policy = PolicySpec("D-LinUCB", settings={"arm_geometry": "general", "horizon": 1000}).build(environment)
    expected = [theory.discount(horizon=1000, drift=B, dim=3, arm_geometry="general") for B in environment.variation]
    assert policy.info().gamma.tolist() == expected
    guessed = PolicySpec("D-LinUCB", settings={"drift": 2.0}).build(environment)
    assert guessed.info().gamma.tolist() == [theory.discount(horizon=200, drift=2.0, dim=3)] * 3


def test_settings_go_before_what_the_environment_knows():
    settings_ = {"S": 3.0, "L": 1.0, "link": "logistic", "sigma": 1.0, "gamma": 0.9, "delta": 0.2}
    policy = PolicySpec("BVD-GLM-UCB", settings=settings_).build(an_environment())
    assert (policy.estimator.S, policy.L, policy.link.name, policy.sigma) == (3.0, 1.0, "logistic", 1.0)
    assert (policy.gamma, policy.delta) == (0.9, 0.2)


def test_a_sweep_is_the_product_of_its_lists_and_is_built_lane_by_lane():
    spec = PolicySpec("D-LinUCB", sweep={"bonus_scale": [0.5, 1.0], "gamma": [0.9, 0.99]})
    assert spec.variants == [
        {"gamma": 0.9, "bonus_scale": 0.5},
        {"gamma": 0.9, "bonus_scale": 1.0},
        {"gamma": 0.99, "bonus_scale": 0.5},
        {"gamma": 0.99, "bonus_scale": 1.0},
    ]
    json.dumps(spec.variants)
    policy = spec.build(an_environment(lanes=[0, 1, 1]), variants=[spec.variants[i] for i in (3, 0, 1)])
    assert policy.gamma.tolist() == [0.99, 0.9, 0.9]
    assert policy.bonus_scale.tolist() == [1.0, 0.5, 1.0]
    without = PolicySpec("D-LinUCB")
    assert without.variants == [{}]
    assert without.build(an_environment(), variants=[{}] * 3).lane_count == 3
    half = PolicySpec("D-LinUCB", sweep={"bonus_scale": [0.5]})
    environment = an_environment()
    built = half.build(environment, variants=half.variants * 3)
    assert built.info().gamma.tolist() == without.build(environment).info().gamma.tolist()
    for variants in (None, half.variants, [{}] * 3, [{"gamma": 0.5}] * 3):
        with rejects("variants", value=variants):
            half.build(environment, variants=variants)


def test_a_policy_of_ones_own_is_given_what_it_takes():
    environment = an_environment()
    mine = PolicySpec("support.spec_objects:Mine", settings={"boldness": 3, "greedy": True}).build(environment)
    assert (mine.boldness, mine.greedy, mine.seed) == (3, True, 7)
    assert mine.info().gamma.tolist() == PolicySpec("D-LinUCB").build(environment).info().gamma.tolist()
    given_ = PolicySpec(Anything, settings={"own": [1, 2]}).build(environment).given
    assert set(given_) == {"dim", "link", "S", "L", "sigma", "horizon", "lanes", "seed", "gamma", "own"}
    assert (given_["own"], given_["horizon"], given_["link"].name) == ((1, 2), 200, "probit")


def test_a_link_of_ones_own_reaches_environment_and_policy():
    spec = with_environment(link="support.spec_objects:FLAT")
    environment = spec.environments[0].build(horizon=50, lanes=1, seed=0)
    assert environment.link is FLAT
    assert PolicySpec("BVD-GLM-UCB").build(environment).link is FLAT
    other = PolicySpec("BVD-GLM-UCB", settings={"link": "support.spec_objects:FLAT"}).build(an_environment())
    assert other.link is FLAT


# --- sweeps over any setting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_list_that_can_be_built_with_one_lane_can_be_built_with_three(name):
    """A spec is checked with one lane; a list with one value per lane, which would fail in the run, is refused."""
    alone, three = an_environment(lanes=1), an_environment()
    for setting in set(Signature(POLICIES[name]).names) - {*FILLED_ALWAYS, "truth"}:
        for value in (0.5, 2.0, 10):
            try:
                spec = PolicySpec(name, settings={setting: [value]})
                spec.build(alone)
            except ValueError:
                continue
            assert spec.build(three).lane_count == 3


def test_a_list_with_a_value_per_lane_is_refused():
    for settings in ({"gamma": [0.9]}, {"delta": np.array([0.1])}, {"drift": (1.0, 2.0)}):
        with refused(f"settings.{next(iter(settings))}", mention="a single number"):
            PolicySpec("D-LinUCB", settings=settings)
    assert PolicySpec("AdaptiveGLMUCB", settings={"memories": [50, 500]}).build(an_environment()).lane_count == 3
    assert PolicySpec(Loner, settings={"gamma": [0.5, 0.6]}).build(an_environment()).gamma == (0.5, 0.6)


class Loner:
    """A class that is no ``Policy``: what its lists mean is its own affair."""

    def __init__(self, dim, lanes, seed, gamma=()):
        self.gamma = gamma

    def select(self, arms, valid=None): ...

    def update(self, x, reward): ...


def test_variants_that_share_a_policy_object_are_together():
    spec = PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99], "lam": [1, 2], "confidence": ["anytime", "horizon"]})
    assert [tuple(variant.values()) for variant in spec.variants[:3]] == [
        ("anytime", 1, 0.9),
        ("anytime", 1, 0.99),
        ("anytime", 2, 0.9),
    ]
    assert list(spec.variants[0]) == ["confidence", "lam", "gamma"]
    assert label_variant("D", spec.variants[-1]) == "D confidence=horizon lam=2 γ=0.99"
    experiment = a_spec(policies=[spec], runs=3, lanes_per_cell=4)
    cells = list_cells(experiment)
    assert sum(cell.last - cell.first for cell in cells) == 3 * 8
    for cell in cells:  # of a cell, all lanes have the same lam and confidence
        _, variants = cell.select_from(experiment).list_lanes()
        assert len({(spec.variants[v]["lam"], spec.variants[v]["confidence"]) for v in variants}) == 1
        assert cell.last - cell.first <= 4
    environment = an_environment(lanes=2)
    with rejects("variants"):
        spec.build(environment, variants=[spec.variants[0], spec.variants[2]])
    built = spec.build(environment, variants=spec.variants[2:4])
    assert (built.lam, built.confidence, built.gamma.tolist()) == (2, "anytime", [0.9, 0.99])


def test_values_of_a_sweep_keep_their_types():
    spec = PolicySpec("SW-LinUCB", sweep={"window": [100, 200], "delta": [1, 0.5]})
    assert [type(variant["window"]) for variant in spec.variants] == [int] * 4
    assert [type(variant["delta"]) for variant in spec.variants] == [float] * 4
    flags = PolicySpec("support.spec_objects:Mine", settings={"boldness": 1}, sweep={"greedy": [True, False]})
    assert [variant["greedy"] for variant in flags.variants] == [True, False]
    with refused("sweep.greedy[0]"):
        PolicySpec("elsewhere:P", sweep={"greedy": [object]})


class Plain:
    """A policy that does not derive from ours, and knows nothing of one value per lane."""

    def __init__(self, dim, lanes=1, seed=0, gamma=0.9):
        assert isinstance(gamma, float)

    def select(self, arms, valid=None):
        return np.zeros(len(arms), dtype=int)

    def update(self, x, reward, **others): ...


def test_a_class_of_ones_own_gets_one_value_of_a_sweep(tmp_path):
    spec = a_spec(policies=[PolicySpec(Plain, sweep={"gamma": [0.5, 0.9]})], runs=3, horizon=5)
    assert [(cell.first, cell.last) for cell in list_cells(spec)] == [(0, 3), (3, 6)]
    assert simulate(spec, tmp_path, jobs=1).complete


def test_links_can_be_swept():
    spec = PolicySpec("BVD-GLM-UCB", sweep={"link": ["logistic", FLAT]})
    assert [variant["link"] for variant in spec.variants] == ["logistic", "support.spec_objects:FLAT"]
    with_policy("BVD-GLM-UCB", sweep={"link": ["logistic", FLAT]}).check()
    with refused("sweep.link[1]", mention="probit"):
        PolicySpec("BVD-GLM-UCB", sweep={"link": ["logistic", "tanh"]})


def test_errors_name_the_line_after_a_change(tmp_path):
    (tmp_path / "s.toml").write_text(BASE.replace("settings.lam = 1.0", "settings.lam = -1.0"))
    spec = Spec.read(tmp_path / "s.toml", check=False).replace(runs=2, diagnostics=True)
    with refused("policies[1].settings.lam", f"{tmp_path / 's.toml'}:33"):
        spec.check()


# --- what policies are told -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "settings", "told"),
    [
        ("OFUL", {}, ()),
        ("BVD-GLM-UCB", {}, ("drift",)),
        ("BVD-GLM-UCB", {"gamma": 0.9}, ()),
        ("BVD-GLM-UCB", {"drift": 2.0}, ()),
        ("SW-GLUCB", {}, ("switches",)),
        ("AdaptiveGLMUCB", {}, ()),
        ("support.spec_objects:Anything", {}, ("drift",)),
        ("support.spec_objects:Mine", {"boldness": 1}, ("drift",)),
    ],
)
def test_the_pinned_spec_says_what_a_policy_is_told(policy, settings, told):
    spec = with_policy(policy, settings=settings)
    assert spec.policies[0].told is None
    (pinned,) = spec.pin().policies
    assert pinned.told == told
    assert spec.pin().fingerprint() == spec.fingerprint()
    assert f"told = {json.dumps(list(told))}" in spec.pin().to_toml()
    assert Spec.parse(spec.pin().to_toml()) == spec.pin()


def test_a_policy_that_must_not_be_told_is_not():
    environment = an_environment(lanes=1)
    mine = PolicySpec("support.spec_objects:Anything", settings={"gamma": 0.9}, told=[]).build(environment)
    assert mine.given["gamma"] == 0.9
    with pytest.raises(SpecError, match="gamma"):
        a_spec(policies=[PolicySpec("BVD-GLM-UCB", told=[])]).check()
