"""What is written reads as the same spec."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.refusals import rejects
from support.spec_objects import (
    BASE,
    FLAT,
    Anything,
    a_spec,
    half_turn,
    make_link,
    refused,
    rotation,
)
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS
from windvane.lab import simulate
from windvane.lab.results.folder import FolderError
from windvane.lab.run.build import FILLED_ALWAYS
from windvane.lab.spec import toml_writer
from windvane.lab.spec.example import wobble
from windvane.lab.spec.experiment_spec import (
    EnvironmentSpec,
    GymnasiumSpec,
    LabelledStreamSpec,
    PolicySpec,
    Spec,
    SpecError,
)
from windvane.links import Logistic
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.registry import POLICIES, Signature

NAMED = "support.spec_objects:half_turn"
unit = st.floats(0.01, 1.0)
vector = st.tuples(st.floats(-0.7, 0.7), st.floats(-0.7, 0.7)).map(list)
counts = st.integers(1, 20)
times = st.lists(st.integers(2, 299), min_size=1, max_size=4, unique=True).map(sorted)


def optional(**fields):
    return st.fixed_dictionaries({}, optional=fields)


FIELDS = {
    "drift": {
        "static": optional(theta=vector),
        "rotation": optional(angle=unit, begin=st.floats(0, 0.3), end=st.floats(0.7, 1)),
        "arc": optional(angle=st.floats(-9, 9), start=st.floats(-9, 9)),
        "turns": optional(count=counts, angle=unit, share=unit),
        "switches": times.flatmap(
            lambda t: st.fixed_dictionaries(
                {"times": st.just(t), "thetas": st.lists(vector, min_size=len(t) + 1, max_size=len(t) + 1)}
            )
        ),
        "random-switches": st.fixed_dictionaries({"count": counts}),
        "random-walk": st.fixed_dictionaries({"step": unit}, optional={"start": vector}),
        "sinusoid": st.fixed_dictionaries({"period": st.floats(1, 1e3)}, optional={"phase": unit}),
        "piecewise-linear": times.flatmap(
            lambda t: st.fixed_dictionaries(
                {"times": st.just([1, *t]), "points": st.lists(vector, min_size=len(t) + 1, max_size=len(t) + 1)}
            )
        ),
        "logged": st.fixed_dictionaries({"thetas": st.lists(vector, min_size=1, max_size=5), "stretch": st.booleans()})
        | st.fixed_dictionaries({"file": st.just("theta.csv"), "stretch": st.just(True)}),
        "function": st.fixed_dictionaries({"function": st.sampled_from([half_turn, wobble, NAMED])}),
    },
    "arms": {
        **{kind: optional(count=counts) for kind in ("ball", "sphere", "cube", "orthogonal", "gaussian", "skewed")},
        "fixed": st.fixed_dictionaries({"arms": st.lists(vector, min_size=1, max_size=20)}),
        "drawn-once": optional(law=st.sampled_from(["sphere", "gaussian"]), count=counts),
        "come-and-go": optional(law=st.sampled_from(["ball", "sphere", "cube"]), lifetime=counts, presence=unit),
    },
    "rewards": {
        "bernoulli": optional(),
        "gaussian": st.fixed_dictionaries({"sd": unit, "sigma": st.just(0.5)}),
        "binomial": optional(trials=counts),
        "poisson": optional(bound=counts),
    },
    "delay": {
        "none": optional(),
        "fixed": st.fixed_dictionaries({"rounds": counts}),
        "geometric": st.fixed_dictionaries({"mean": st.floats(1, 50)}, optional={"most": st.integers(60, 90)}),
        "uniform": st.fixed_dictionaries({"least": st.just(0), "most": counts}),
    },
}
REGISTRIES = {"drift": DRIFTS, "arms": ARM_LAWS, "rewards": REWARD_LAWS, "delay": DELAYS}


def part(name):
    return st.sampled_from(sorted(FIELDS[name])).flatmap(
        lambda kind: FIELDS[name][kind].map(lambda fields: REGISTRIES[name][kind](**fields))
    )


printable = st.text(max_size=20).filter(str.isprintable)
names = printable.filter(bool)
anything = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=8,
)
simulated = st.builds(
    EnvironmentSpec,
    name=names,
    drift=part("drift"),
    arms=part("arms"),
    rewards=st.none() | part("rewards"),
    dim=st.integers(1, 9),
    link=st.sampled_from(["logistic", "probit", Logistic(), "support.spec_objects:FLAT", FLAT]),
    S=unit,
    L=unit,
    intercept=st.none() | st.floats(-1, 1),
    delay=st.none() | part("delay"),
)
labelled = st.builds(
    LabelledStreamSpec, names, st.just("data.csv"), missing=st.sampled_from(["refuse", "drop"]), S=unit, switches=counts
)
games = st.builds(
    GymnasiumSpec,
    names,
    st.sampled_from([half_turn, "elsewhere:make"]),
    reward_range=st.none() | st.just((0, 2.5)),
    S=unit,
)
environments = simulated | labelled | games
values = st.lists(unit, min_size=1, max_size=4, unique=True)
sweeps = st.dictionaries(st.sampled_from(["gamma", "bonus_scale", "delta"]), values, max_size=3)
policies = st.one_of(
    st.builds(PolicySpec, st.sampled_from(["BVD-GLM-UCB", BVDGLMUCB, "D-LinUCB"]), names, st.just({"lam": 2}), sweeps),
    st.builds(
        PolicySpec,
        st.sampled_from([Anything, "support.spec_objects:Anything", "elsewhere:A.B"]),
        names,
        st.dictionaries(st.sampled_from(["a", "b_1", "C"]), anything, max_size=3),
        sweeps,
    ),
)
specs = st.builds(
    Spec,
    environments=st.lists(environments, min_size=1, max_size=3, unique_by=lambda e: e.name),
    policies=st.lists(policies, min_size=1, max_size=3, unique_by=lambda p: p.name),
    runs=st.integers(1, 1000),
    horizon=st.integers(1, 2**20),
    seed=st.integers(0, 2**64 - 1),
    title=printable,
    record=st.integers(1, 1000),
    lanes_per_cell=st.integers(1, 2**32),
    diagnostics=st.booleans(),
)


def test_the_tests_know_every_kind():
    assert {name: set(kinds) for name, kinds in FIELDS.items()} == {name: set(r) for name, r in REGISTRIES.items()}


@settings(max_examples=150, deadline=None)
@given(specs)
def test_what_is_written_reads_as_the_same_spec(spec):
    text = spec.to_toml()
    again = Spec.parse(text)
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.to_toml() == text
    assert pickle.loads(pickle.dumps(spec)) == spec


# --- policies of the package, with any of their settings --------------------------------------------------------------

CANDIDATES = [None, "none", 0.5, 1, 2.0, 10, 40, True, "general", "anytime", [0.5, 2.0], [4.0, float("inf")]]
WORLD = EnvironmentSpec("a", rotation(), ARM_LAWS["ball"]())
FIXED_WORLD = EnvironmentSpec("a", rotation(), ARM_LAWS["drawn-once"]())  # the same arms in every round


def choose_world(name):
    """Return a world in which the policy can run."""
    return FIXED_WORLD if POLICIES[name].needs_one_hot else WORLD


def accepts(name, settings_):
    """Whether the policy can be built with these settings."""
    try:
        a_spec(environments=[choose_world(name)], policies=[PolicySpec(name, settings=settings_)]).check()
    except SpecError:
        return False
    return True


@functools.cache
def list_accepted(name):
    """Return the pairs of a setting and a value that the policy accepts, each alone."""
    settings_ = set(Signature(POLICIES[name]).names) - {*FILLED_ALWAYS, "truth"}
    pairs = [(setting, value) for setting in sorted(settings_) for value in CANDIDATES]
    return [pair for pair in pairs if accepts(name, dict([pair]))]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=10)
@given(data=st.data())
def test_a_stored_spec_is_the_same_experiment(name, data):
    """Whatever settings the policy accepts: the text reads as an equal spec that builds an equal policy."""
    chosen = data.draw(st.lists(st.sampled_from(list_accepted(name)), max_size=4, unique_by=lambda pair: pair[0]))
    world = choose_world(name)
    spec = a_spec(environments=[world], policies=[PolicySpec(name, settings=dict(chosen))])
    again = Spec.parse(spec.to_toml())
    assert again == spec
    assert again.fingerprint() == spec.fingerprint()
    if accepts(name, dict(chosen)):
        built = [each.policies[0].build(world.build(horizon=300, lanes=2, seed=1)) for each in (spec, again)]
        assert repr(built[0]) == repr(built[1])


def test_every_policy_accepts_some_settings():
    """And one that learns the scale accepts None for it."""
    assert all(list_accepted(name) for name in POLICIES if name != "UniformRandom")
    assert ("S", None) in list_accepted("AdaptiveGLMUCB")


def test_a_folder_can_be_run_again_from_its_spec(tmp_path):
    policies_ = [PolicySpec("AdaptiveGLMUCB", label=f"S={S}", settings={"S": S}) for S in (None, "none", 0.5)]
    policies_.append(PolicySpec("AdaptiveGLMUCB", settings={"memories": [32, float("inf")]}, sweep={"S": [None, 2.0]}))
    spec = a_spec(environments=[WORLD], policies=policies_, runs=2, horizon=60)
    first = simulate(spec, tmp_path / "first", jobs=1)
    again = simulate(Spec.read(tmp_path / "first" / "spec.toml"), tmp_path / "again", jobs=1)
    for one, other in zip(first.entries, again.entries, strict=True):
        assert one.label == other.label
        assert np.array_equal(one.regret, other.regret)
    by_label = {entry.label: entry for entry in first.entries}
    assert np.array_equal(by_label["S=None"].regret, by_label["S=none"].regret)
    assert not np.array_equal(by_label["S=None"].regret, by_label["S=0.5"].regret)
    assert {"AdaptiveGLMUCB S=none", "AdaptiveGLMUCB S=2"} <= by_label.keys()


def test_what_would_read_as_another_spec_is_not_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(Spec, "to_toml", lambda self: toml_writer.write(dataclasses.replace(self, runs=self.runs + 1)))
    with rejects(error=FolderError, path=tmp_path / "spec.toml", code="other_spec"):
        simulate(a_spec(runs=1, horizon=20), tmp_path, jobs=1)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize("value", [2**64, -(2**64), [1, 2**70]])
def test_integers_that_other_readers_could_not_represent_are_refused(value):
    with rejects(error=SpecError):
        PolicySpec(Anything, settings={"a": value})


def test_none_is_refused_where_a_text_is_needed():
    """The class could mean the text "none"; what it would get is None."""
    with refused("settings.confidence", mention="stands for None"):
        PolicySpec("BVD-GLM-UCB", settings={"confidence": "none"})
    with refused("sweep.confidence[1]", mention="stands for None"):
        PolicySpec("BVD-GLM-UCB", sweep={"confidence": ["anytime", None]})


def test_what_is_written_is_readable():
    spec = Spec.parse(BASE.replace("  [0.0, 1.0],\n", "  [0.0, 1.0],\n" * 9))
    text = spec.to_toml()
    assert text.startswith('title = "two worlds"\nruns = 50\nhorizon = 300\nseed = 0\n')
    assert '\n[[environments]]\nname = "turning"\ndim = 2\nlink = "logistic"\n' in text
    assert '\narms = {kind = "ball", count = 10}\n' in text
    assert "\n    [0.0, 1.0],\n" in text
    assert text.endswith('policy = "D-LinUCB"\nsettings = {lam = 1.0}\nsweep = {gamma = [0.9, 0.99]}\n')
    assert max(map(len, text.splitlines())) <= 120


def test_what_can_be_imported_is_kept_by_name():
    environment = EnvironmentSpec("a", DRIFTS["function"](half_turn), ARM_LAWS["ball"](), link=FLAT)
    assert (environment.drift.function, environment.link) == (
        "support.spec_objects:half_turn",
        "support.spec_objects:FLAT",
    )
    assert EnvironmentSpec("a", rotation(), ARM_LAWS["ball"](), link=Logistic()).link == "logistic"
    assert PolicySpec(BVDGLMUCB).policy == "BVD-GLM-UCB"
    assert PolicySpec(Anything) == PolicySpec("support.spec_objects:Anything")
    assert PolicySpec("BVD-GLM-UCB", settings={"link": FLAT}).settings["link"] == "support.spec_objects:FLAT"


def test_what_cannot_be_imported_is_left_out_and_the_text_is_no_spec():
    """With it, another experiment would run: without a setting, for example."""

    class Local(Anything):
        pass

    drift = DRIFTS["function"](lambda _: [1.0, 0.0])
    environment = EnvironmentSpec("a", drift, ARM_LAWS["ball"](), link=make_link())
    spec = a_spec(environments=[environment], policies=[PolicySpec(Local, settings={"hook": lambda: 1, "none": None})])
    text = spec.to_toml()
    for name in ("drift", "link", "policy", r"settings\.hook"):
        assert re.search(rf"^# {name}: .* cannot be written as TOML; omitted$", text, re.MULTILINE)
    with rejects(error=SpecError, path=("incomplete",), where="spec:1") as caught:
        Spec.parse(text)
    assert "policies[0].settings.hook" in caught.value.problem
    assert spec.policies[0].name == "Local"
    spec.check()
    assert spec.fingerprint() == spec.fingerprint()


def test_a_spec_shares_nothing_that_can_change():
    swept, listed = np.array([0.9, 0.99]), [1, [2]]
    parts = list(a_spec().environments)
    settings_ = {"a": listed}
    policy = PolicySpec(Anything, settings=settings_, sweep={"gamma": swept})
    spec = a_spec(environments=parts, policies=[policy])
    before = spec.fingerprint()
    swept[0], listed[1][0], settings_["b"] = 0.5, 7, 1
    parts.clear()
    assert spec.fingerprint() == before
    assert policy.variants == [{"gamma": 0.9}, {"gamma": 0.99}]
    assert policy.settings == {"a": (1, (2,))}
    policy.variants[0]["gamma"] = 0.1
    assert policy.variants[0] == {"gamma": 0.9}
    with pytest.raises(TypeError):
        policy.settings["a"] = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.runs = 3
