"""Specs: what is read, what is refused and where, what is written, what a fingerprint covers, what is built."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import tomllib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.refusals import rejects
from windvane import theory
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS, BallArms, Rotation, SphereArms
from windvane.lab.spec.example import EXAMPLE, wobble
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError
from windvane.lab.spec.spec_errors import rendered
from windvane.lab.spec.toml_text import LARGEST_FILE, Lines
from windvane.links import CustomLink, Logistic
from windvane.policies.bvd_glm_ucb import BVDGLMUCB
from windvane.policies.linear import DLinUCB
from windvane.policies.registry import POLICIES

BASE = """\
title = "two worlds"
runs = 50
horizon = 300
seed = 0

[[environments]]
name = "turning"
dim = 2
link = "logistic"
drift = { kind = "rotation" }
arms = { kind = "ball", count = 10 }

[[environments]]
name = "waving"
S = 2.0
[environments.drift]
kind = "sinusoid"
period = 100
[environments.arms]
kind = "fixed"
arms = [
  [1.0, 0.0],
  [0.0, 1.0],
]

[[policies]]
policy = "BVD-GLM-UCB"
label = "BVD, half the bonus"
bonus_scale = 0.5

[[policies]]
policy = "D-LinUCB"
lam = 1.0
sweep.gamma = [
  0.9,
  0.99,
]
"""


# --- objects that specs below name as test_spec:... -------------------------------------------------------------------


class Mine(DLinUCB):
    """A policy of one's own with a setting of its own."""

    def __init__(self, dim, *, gamma, boldness, greedy=False, lanes=1, seed=0):
        super().__init__(dim, gamma=gamma, lanes=lanes, seed=seed)
        self.boldness, self.greedy = boldness, greedy


class Anything(DLinUCB):
    """A policy that takes whatever it is given."""

    def __init__(self, **settings):
        self.given = dict(settings)
        super().__init__(settings["dim"], gamma=settings["gamma"], lanes=settings["lanes"], seed=settings["seed"])


class Breaks(DLinUCB):
    def __init__(self, dim, lanes=1, seed=0):
        raise TypeError("no\nluck")


class NoPolicy:
    pass


def half_turn(t):
    return [np.cos(t / 100), np.sin(t / 100)]


def breaks_late(t):
    return [1.0, 0.0] if t < 200 else "nothing"


def make_link(slope=0.1):
    return CustomLink("slow", lambda z: 0.5 + slope * z, lambda z: slope + 0.0 * z)


def flat_mean(z):
    return 0.5 + 0.1 * z


FLAT = CustomLink("flat", flat_mean, lambda z: 0.1 + 0.0 * z)


def rotation(**fields):
    return DRIFTS["rotation"](**fields)


def a_spec(**changes):
    values = {
        "environments": [EnvironmentSpec("a", rotation(), ARM_LAWS["ball"]())],
        "policies": [PolicySpec("D-LinUCB")],
        "horizon": 300,
    }
    return Spec(**{**values, **changes})


def with_environment(**changes):
    return a_spec(environments=[dataclasses.replace(a_spec().environments[0], **changes)])


def with_policy(policy="D-LinUCB", **changes):
    return a_spec(policies=[PolicySpec(policy, **changes)])


# --- errors, with their lines -----------------------------------------------------------------------------------------

ERRORS = [  # the edit of BASE; the line and the field of the error, and a name that it mentions
    # syntax
    ("runs = 50", "runs =", 2, "", ""),
    ("  0.99,\n]", "  0.99,\n", 36, "", ""),
    ("seed = 0", "runs = 1", 4, "", ""),
    # unknown and missing keys
    ("runs = 50", "runz = 50", 2, "runz", "runs"),
    ("link =", "lnik =", 9, "environments[0].lnik", "link"),
    ("count = 10", "cuont = 10", 11, "environments[0].arms.cuont", "count"),
    ("period", "perid", 18, "environments[1].drift.perid", "period"),
    ('name = "turning"\n', "", 6, "environments[0].name", ""),
    ('drift = { kind = "rotation" }\n', "", 6, "environments[0].drift", ""),
    ("period = 100\n", "", 16, "environments[1].drift.period", ""),
    ('policy = "D-LinUCB"\n', "", 31, "policies[1].policy", ""),
    # types
    ("runs = 50", "runs = true", 2, "runs", ""),
    ("runs = 50", 'runs = "50"', 2, "runs", ""),
    ("runs = 50", "runs = 50.0", 2, "runs", ""),
    ("dim = 2", "dim = 2.0", 8, "environments[0].dim", ""),
    ("S = 2.0", "S = true", 15, "environments[1].S", ""),
    ("S = 2.0", 'S = "2"', 15, "environments[1].S", ""),
    ("S = 2.0", "intercept = true", 15, "environments[1].intercept", ""),
    ("S = 2.0", "intercept = nan", 15, "environments[1].intercept", ""),
    ("period = 100", "period = true", 18, "environments[1].drift.period", ""),
    ("count = 10", "count = true", 11, "environments[0].arms.count", ""),
    ("  [1.0, 0.0]", "  [1.0, false]", 22, "environments[1].arms.arms[0][1]", ""),
    ("bonus_scale = 0.5", "bonus_scale = true", 29, "policies[0].bonus_scale", ""),
    ("seed = 0", "diagnostics = 1", 4, "diagnostics", ""),
    ("seed = 0", "title_ = 1", 4, "title_", "title"),
    ('"two worlds"', "7", 1, "title", ""),
    ('"turning"', '""', 7, "environments[0].name", ""),
    ('"turning"', '"a\\nb"', 7, "environments[0].name", ""),
    ("lam = 1.0", "label = 3", 33, "policies[1].label", ""),
    ('drift = { kind = "rotation" }', 'drift = "rotation"', 10, "environments[0].drift", ""),
    ('"BVD-GLM-UCB"', "3", 27, "policies[0].policy", ""),
    ("lam = 1.0", "lam = 1979-05-27", 33, "policies[1].lam", ""),
    # kinds and names
    ('"sinusoid"', '"sinusiod"', 17, "environments[1].drift.kind", "sinusoid"),
    ('"sinusoid"', "4", 17, "environments[1].drift.kind", ""),
    ('kind = "fixed"\n', "", 19, "environments[1].arms.kind", ""),
    ('"logistic"', '"logit"', 9, "environments[0].link", ""),
    ('"D-LinUCB"', '"D-LinUBC"', 32, "policies[1].policy", "D-LinUCB"),
    ('"D-LinUCB"', '"x"', 32, "policies[1].policy", ""),
    # sizes
    ("horizon = 300", "horizon = 0", 3, "horizon", ""),
    ("runs = 50", "runs = 4294967297", 2, "runs", ""),
    ("horizon = 300", "horizon = 4503599627370496", 3, "horizon", ""),
    ("seed = 0", "seed = -1", 4, "seed", ""),
    ("seed = 0", "seed = 0x" + "f" * 5000, 4, "seed", ""),
    ("seed = 0", "record = 1001", 4, "record", ""),
    ("seed = 0", "lanes_per_cell = 0", 4, "lanes_per_cell", ""),
    ("period = 100", "period = -3", 18, "environments[1].drift.period", ""),
    # parts that do not fit each other
    ("period = 100", "period = 100\ncentre = [3.0, 0.0]", 19, "environments[1].drift.centre", ""),
    ("  [1.0, 0.0]", "  [1.0, 1.0]", 21, "environments[1].arms.arms", ""),
    ("dim = 2", "dim = 1", 8, "environments[0].dim", ""),
    ("dim = 2", "rewards = { kind = 'poisson', bound = 1 }", 8, "environments[0].rewards.bound", ""),
    ('"logistic"', '"poisson"\nrewards.kind = "bernoulli"', 10, "environments[0].rewards", ""),
    ('"logistic"', '"identity"\nrewards.kind = "gaussian"\nrewards.sd = -1', 11, "environments[0].rewards.sd", ""),
    ("S = 2.0", "S = 2000.0", 26, "policies[0]", "environments[1]"),
    # names used twice
    ('"waving"', '"turning"', 13, "environments[1]", "environments[0]"),
    ('"BVD, half the bonus"', '"D-LinUCB"', 31, "policies[1]", "policies[0]"),
    # settings
    ("lam =", "lamda =", 33, "policies[1].lamda", "lam"),
    ("lam = 1.0", "zzz = 1.0", 33, "policies[1].zzz", ""),
    ("lam = 1.0", "lam = -1.0", 33, "policies[1].lam", ""),
    ("lam = 1.0", 'lam = "a"', 33, "policies[1].lam", ""),
    ("lam = 1.0", "delta = 2", 33, "policies[1].delta", ""),
    ("lam = 1.0", 'confidence = "x"', 33, "policies[1].confidence", ""),
    ("bonus_scale = 0.5", 'arm_geometry = "x"', 29, "policies[0].arm_geometry", ""),
    ("bonus_scale = 0.5", "horizon = 0", 29, "policies[0].horizon", ""),
    ("bonus_scale = 0.5", "gamma = 1\ndrift = 2", 30, "policies[0].drift", ""),
    *(("lam = 1.0", f"{name} = 1", 33, f"policies[1].{name}", "") for name in ("dim", "lanes", "seed")),
    ("lam = 1.0", '"a b" = 1', 31, "policies[1].settings", ""),
    # sweeps
    ("lam = 1.0", "gamma = 0.5", 33, "policies[1].gamma", ""),
    ("lam = 1.0", "drift = 0.5", 33, "policies[1].drift", ""),
    ("  0.99,", "  1.99,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  true,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", '  "a",', 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  inf,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  0.9,", 36, "policies[1].sweep.gamma[1]", ""),
    ("sweep.gamma", "sweep.lam", 34, "policies[1].sweep.lam", ""),
    ("  0.9,\n  0.99,\n", "", 34, "policies[1].sweep.gamma", ""),
    ("bonus_scale = 0.5", "sweep = [1]", 29, "policies[0].sweep", ""),
    ('"BVD-GLM-UCB"', '"OFUL"\nsweep.gamma = [0.5]', 28, "policies[0].sweep.gamma", ""),
    # code of one's own
    ('"BVD-GLM-UCB"', '"nowhere:P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"os:P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '":P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"test_spec:NoPolicy"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"test_spec:Mine"', 29, "policies[0].bonus_scale", ""),
    ('policy = "D-LinUCB"\nlam = 1.0\n', 'policy = "test_spec:Mine"\n', 31, "policies[1].boldness", ""),
    (
        'policy = "D-LinUCB"\nlam = 1.0\nsweep.gamma',
        'policy = "test_spec:Breaks"\nsweep.delta',
        33,
        "policies[1].sweep.delta",
        "",
    ),
    ('"logistic"', '"os:x"', 9, "environments[0].link", ""),
    ('"logistic"', '"test_spec:a_spec"', 9, "environments[0].link", ""),
    ("bonus_scale = 0.5", 'link = "os:x"', 29, "policies[0].link", ""),
]


@contextmanager
def refused(field, where="", mention=""):
    """Expect a :class:`SpecError` at ``field`` (as ``rendered`` writes a path) and ``where``."""
    with rejects(error=SpecError, where=where) as caught:
        yield caught
    assert rendered(caught.value.path) == field, caught.value
    assert mention in caught.value.problem


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "mention"), ERRORS, ids=[f"{i}-{case[1][:20]}" for i, case in enumerate(ERRORS)]
)
def test_errors_name_the_line_and_the_field(tmp_path, old, new, line, field, mention):
    assert BASE.count(old) == 1, "the edit must be unambiguous"
    path = tmp_path / "my spec.toml"
    path.write_text(BASE.replace(old, new))
    with refused(field, f"{path}:{line}", mention) as caught:
        Spec.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: {field}")
    assert message.endswith(caught.value.problem)


@pytest.mark.parametrize(
    ("text", "where", "field"),
    [
        ("", "s:1", "environments"),
        ("environments = []", "s:1", "policies"),
        ("environments = []\n\npolicies = []", "s:1", "environments"),
        ("\n[environments]\nname = 'x'", "s:2", "environments"),
        ("\nenvironments = [\n{},\n3]", "s:3", "environments[0].name"),
        ("x = " + "[" * 100_000, "s", ""),
    ],
)
def test_errors_of_whole_documents(text, where, field):
    with refused(field, where):
        Spec.parse(text, "s")


def test_a_user_policy_that_breaks_is_reported_in_one_line(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(BASE.replace('"BVD-GLM-UCB"', '"test_spec:Breaks"').replace("bonus_scale = 0.5", ""))
    with refused("policies[0]", f"{path}:26", mention="in environments[0]: TypeError: no luck") as caught:
        Spec.read(path)
    assert isinstance(caught.value.__cause__, TypeError)


def test_files_that_are_no_specs_are_refused_in_one_line(tmp_path):
    (tmp_path / "latin.toml").write_bytes('title = "é"'.encode("latin-1"))
    (tmp_path / "large.toml").write_bytes(b"#" * (LARGEST_FILE + 1))
    os.mkfifo(tmp_path / "pipe")
    for path in (".", "none.toml", "latin.toml", "large.toml", "pipe", "n" * 300):
        with refused("", str(tmp_path / path)):
            Spec.read(tmp_path / path)
    with refused("", "a\0b"):
        Spec.read("a\0b")


def test_a_file_may_have_a_byte_order_mark_and_windows_lines(tmp_path):
    path = tmp_path / "s.toml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert Spec.read(path) == Spec.parse(BASE)
    path.write_bytes(BASE.replace("period = 100", "period = -1").replace("\n", "\r\n").encode())
    with refused("environments[1].drift.period", f"{path}:18"):
        Spec.read(path)


def test_reading_without_a_check_imports_and_builds_nothing(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(BASE.replace('"D-LinUCB"', '"nowhere:P"').replace("lam = 1.0", "lam = -1.0"))
    spec = Spec.read(path, check=False)
    assert [policy.name for policy in spec.policies] == ["BVD, half the bonus", "P"]
    with refused("policies[1].policy", f"{path}:32", mention="nowhere:P"):
        spec.check()


# --- the same checks for Python objects -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: a_spec(runs=0), "runs"),
        (lambda: a_spec(environments=[]), "environments"),
        (lambda: a_spec(environments=3), "environments"),
        (lambda: a_spec(policies="OFUL"), "policies"),
        (lambda: a_spec(policies=["OFUL"]), "policies[0]"),
        (lambda: a_spec(policies=[PolicySpec("OFUL"), PolicySpec("OFUL")]), "policies[1]"),
        (lambda: with_environment(drift="static"), "drift"),
        (lambda: with_environment(arms=None), "arms"),
        (lambda: with_environment(S=-1), "S"),
        (lambda: PolicySpec("OFUL", settings=3), "settings"),
        (lambda: PolicySpec("OFUL", settings={"label": 3}), "settings"),
        (lambda: PolicySpec("OFUL", settings={3: 3}), "settings"),
        (lambda: PolicySpec(NoPolicy), "policy"),
        (lambda: PolicySpec(Mine), "boldness"),
        (lambda: with_policy(settings={"lam": 0}).check(), "policies[0].lam"),
        (lambda: with_policy(sweep={"delta": [0.1, 3.0]}).check(), "policies[0].sweep.delta[1]"),
        (lambda: with_policy(settings={"lam": object()}), "lam"),
        (lambda: with_policy(settings={"lam": float("nan")}), "lam"),
        (lambda: with_policy(settings={"lam": "\ud800"}), "lam"),
        (lambda: PolicySpec("test_spec:Anything", settings={"a": {1: 2}}), "a"),
    ],
)
def test_python_objects_go_through_the_same_checks(make, field):
    with refused(field):
        make()


def test_a_setting_is_no_argument_of_a_policy_spec():
    with pytest.raises(TypeError):
        with_policy(lam=1)


def test_an_error_survives_a_pickle():
    with pytest.raises(SpecError) as caught:
        Spec.parse(BASE.replace("runs = 50", "runs = 0"), "s.toml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path, again.where) == (str(caught.value), ("runs",), "s.toml:2")


# --- lines ------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes a tree as TOML in a style drawn at random. Each leaf is a number met once, so that its line is seen."""

    def __init__(self, draw):
        self.draw, self.leaves = draw, 1000

    def choice(self, *styles):
        return self.draw(st.sampled_from(styles))

    def key(self, name):
        return self.choice(name, f'"{name}"', f"'{name}'")

    def leaf(self):
        self.leaves += 1
        return self.choice(f"{self.leaves}", f'"{self.leaves}"', f"'''{self.leaves}'''", f'"""{self.leaves}"#]"""')

    def junk(self):
        return self.choice("", "", "\n", "  # a ] comment, } with = [brackets]\n", "\n# 'quote\n\n")

    def value(self, depth):
        kind = self.choice("leaf", "leaf", "array", "inline") if depth else "leaf"
        names = self.draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=3))
        if kind == "array":
            return (
                "[" + "".join(f"{self.junk()}{self.value(depth - 1)}{self.junk()}," for _ in names) + self.junk() + "]"
            )
        if kind == "inline":
            return "{" + ", ".join(f"{self.key(name)} = {self.value(depth - 1)}" for name in names) + "}"
        return self.leaf()

    def body(self):
        names = self.draw(st.lists(st.sampled_from(["f", "g", "h.i", "h.j", "k . l.m"]), unique=True, max_size=4))
        return "".join(f"{self.junk()}{name} = {self.value(2)}{self.choice('', ' # end')}\n" for name in names)

    def document(self):
        parts = [self.body()]
        for name in self.draw(st.lists(st.sampled_from("stuv"), unique=True, max_size=3)):
            if self.choice(True, False):
                parts.append(f"[{self.key(name)}]\n{self.body()}[{name}.w]\n{self.body()}")
            else:
                for _ in range(self.draw(st.integers(1, 3))):
                    parts.append(f"[[ {self.key(name)} ]]\n{self.body()}[{name}.w.x]\n{self.body()}")
        return "".join(parts)


def leaves_of(value, path=()):
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield path, str(value)[:4]
    else:
        for part, item in parts:
            yield from leaves_of(item, (*path, part))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_value_is_found_on_its_line(data):
    text = Writer(data.draw).document()
    lines = Lines(text)
    for path, number in leaves_of(tomllib.loads(text)):
        assert lines.of(path) == text[: text.index(number)].count("\n") + 1, (path, text)


def test_what_stands_nowhere_has_the_line_of_what_is_around_it():
    lines = Lines(BASE)
    assert lines.of(("nothing",)) == lines.of(()) == 1
    assert lines.of(("environments",)) == lines.of(("environments", 0, "S")) == 6
    assert lines.of(("environments", 1, "L")) == 13
    assert lines.of(("environments", 1, "drift", "phase")) == 16
    assert lines.of(("environments", 0, "drift", "angle")) == 10
    assert lines.of(("environments", 1, "arms", "arms", 1, 0)) == 23
    assert lines.of(("policies", 1, "sweep", "gamma", 9)) == 34


# --- round trips ------------------------------------------------------------------------------------------------------

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
        "function": st.fixed_dictionaries({"function": st.sampled_from([half_turn, wobble, "test_spec:half_turn"])}),
    },
    "arms": {
        **{kind: optional(count=counts) for kind in ("ball", "sphere", "cube", "orthogonal", "gaussian", "skewed")},
        "fixed": st.fixed_dictionaries({"arms": st.lists(vector, min_size=1, max_size=20)}),
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
environments = st.builds(
    EnvironmentSpec,
    name=names,
    drift=part("drift"),
    arms=part("arms"),
    rewards=st.none() | part("rewards"),
    dim=st.integers(1, 9),
    link=st.sampled_from(["logistic", "probit", Logistic(), "test_spec:FLAT", FLAT]),
    S=unit,
    L=unit,
    intercept=st.none() | st.floats(-1, 1),
    delay=st.none() | part("delay"),
)
values = st.lists(unit, min_size=1, max_size=4, unique=True)
sweeps = st.dictionaries(st.sampled_from(["gamma", "bonus_scale", "delta"]), values, max_size=3)
policies = st.one_of(
    st.builds(PolicySpec, st.sampled_from(["BVD-GLM-UCB", BVDGLMUCB, "D-LinUCB"]), names, st.just({"lam": 2}), sweeps),
    st.builds(
        PolicySpec,
        st.sampled_from([Anything, "test_spec:Anything", "elsewhere:A.B"]),
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


def test_what_is_written_is_readable():
    spec = Spec.parse(BASE.replace("  [0.0, 1.0],\n", "  [0.0, 1.0],\n" * 9))
    text = spec.to_toml()
    assert text.startswith('title = "two worlds"\nruns = 50\nhorizon = 300\nseed = 0\n')
    assert '\n[[environments]]\nname = "turning"\ndim = 2\nlink = "logistic"\n' in text
    assert '\narms = { kind = "ball", count = 10 }\n' in text
    assert "\n  [0.0, 1.0],\n" in text
    assert text.endswith('policy = "D-LinUCB"\nlam = 1.0\nsweep = { gamma = [0.9, 0.99] }\n')
    assert max(map(len, text.splitlines())) <= 120


def test_what_can_be_imported_is_kept_by_name():
    environment = EnvironmentSpec("a", DRIFTS["function"](half_turn), ARM_LAWS["ball"](), link=FLAT)
    assert (environment.drift.function, environment.link) == ("test_spec:half_turn", "test_spec:FLAT")
    assert EnvironmentSpec("a", rotation(), ARM_LAWS["ball"](), link=Logistic()).link == "logistic"
    assert PolicySpec(BVDGLMUCB).policy == "BVD-GLM-UCB"
    assert PolicySpec(Anything) == PolicySpec("test_spec:Anything")
    assert PolicySpec("BVD-GLM-UCB", settings={"link": FLAT}).settings["link"] == "test_spec:FLAT"


def test_what_cannot_be_imported_is_left_out_with_a_comment():
    class Local(Anything):
        pass

    drift = DRIFTS["function"](lambda _: [1.0, 0.0])
    environment = EnvironmentSpec("a", drift, ARM_LAWS["ball"](), link=make_link())
    spec = a_spec(environments=[environment], policies=[PolicySpec(Local, settings={"hook": lambda: 1, "none": None})])
    text = spec.to_toml()
    for name in ("drift", "link", "policy", "hook", "none"):
        assert re.search(rf"^# {name}: .* cannot be imported by a name: left out$", text, re.MULTILINE)
    with rejects(error=SpecError, path=("environments", 0, "drift")):
        Spec.parse(text)
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


# --- fingerprints -----------------------------------------------------------------------------------------------------

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
    every = {field.name for field in dataclasses.fields(EnvironmentSpec)}
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


# --- the example ------------------------------------------------------------------------------------------------------


def key_of(line):
    return line.lstrip("#").partition("=")[0].strip()


def alternatives():
    lines = EXAMPLE.splitlines()
    return [number for number, line in enumerate(lines) if re.match(r"#[^\s#]", line)]


def with_alternative(number):
    """The example with one alternative in force, in place of what sets the same key in its table."""
    lines = EXAMPLE.splitlines()
    first = max((n for n in range(number) if lines[n].startswith("[[")), default=-1)
    last = next((n for n in range(number, len(lines)) if lines[n].startswith("[[")), len(lines))
    for other in range(first + 1, last):
        if not lines[other].startswith(("#", "[")) and key_of(lines[other]) == key_of(lines[number]):
            lines[other] = "#" + lines[other]
    lines[number] = lines[number][1:]
    return "\n".join(lines)


def test_the_example_is_valid(tmp_path):
    path = tmp_path / "example.toml"
    path.write_text(EXAMPLE)
    spec = Spec.read(path)
    assert {policy.policy for policy in spec.policies} <= set(POLICIES)


@pytest.mark.parametrize("number", alternatives(), ids=lambda number: EXAMPLE.splitlines()[number][1:40])
def test_every_alternative_of_the_example_is_valid(number):
    text = with_alternative(number)
    spec = Spec.parse(text)
    assert spec != Spec.parse(EXAMPLE)
    spec.check()


def test_the_example_shows_every_kind_and_key():
    lines = [EXAMPLE.splitlines()[number] for number in alternatives()] + EXAMPLE.splitlines()
    text = "\n".join(lines)
    for name, registry in REGISTRIES.items():
        for kind in registry:
            assert re.search(rf'^#?{name} = {{ kind = "{kind}"', text, re.MULTILINE), f"{name} {kind}"
    for cls in (Spec, EnvironmentSpec):
        for field in dataclasses.fields(cls):
            if field.init and field.name not in ("environments", "policies"):
                assert re.search(rf"^#?{field.name} = ", text, re.MULTILINE), field.name


@pytest.mark.parametrize(
    ("policies", "other"),
    [
        (
            [PolicySpec("OFUL", "X γ=0.9"), PolicySpec("D-LinUCB", "X", sweep={"gamma": [0.9, 0.99]})],
            "policies[0]",
        ),
        ([PolicySpec("D-LinUCB", "X", sweep={"gamma": [0.9, 0.9 + 1e-14]})], "its variants"),
    ],
    ids=["another policy", "12 digits"],
)
def test_two_variants_with_one_label_are_refused(policies, other):
    """``compare`` and the leaderboard would confuse them."""
    with refused(f"policies[{len(policies) - 1}]", mention='"X γ=0.9"') as caught:
        Spec([EnvironmentSpec("a", drift=Rotation(), arms=BallArms())], policies)
    assert other in caught.value.problem


def test_the_example_lists_every_registered_policy():
    """Each can be used: the example is valid with it in place of OFUL."""
    text = " ".join(line[2:] for line in EXAMPLE.splitlines() if line.startswith("# "))
    listed = re.search(r"policy is one of (.*?), or a class of yours", text).group(1)
    assert listed.split(", ") == list(POLICIES)
    for name in POLICIES:
        spec = Spec.parse(EXAMPLE.replace('policy = "OFUL"', f'policy = "{name}"\nlabel = "this one"'))
        spec.policies[0].check(spec.environments[0].build(horizon=spec.horizon, lanes=1, seed=0))


def test_the_lines_of_the_example_fit():
    assert max(map(len, EXAMPLE.splitlines())) <= 120


# --- what is built ----------------------------------------------------------------------------------------------------


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
    expected = [theory.discount(horizon=1000, drift=B, dim=3, kind="general") for B in environment.variation]
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
    mine = PolicySpec("test_spec:Mine", settings={"boldness": 3, "greedy": True}).build(environment)
    assert (mine.boldness, mine.greedy, mine.seed) == (3, True, 7)
    assert mine.info().gamma.tolist() == PolicySpec("D-LinUCB").build(environment).info().gamma.tolist()
    given_ = PolicySpec(Anything, settings={"own": [1, 2]}).build(environment).given
    assert set(given_) == {"dim", "link", "S", "L", "sigma", "horizon", "lanes", "seed", "gamma", "own"}
    assert (given_["own"], given_["horizon"], given_["link"].name) == ((1, 2), 200, "probit")


def test_a_link_of_ones_own_reaches_environment_and_policy():
    spec = with_environment(link="test_spec:FLAT")
    environment = spec.environments[0].build(horizon=50, lanes=1, seed=0)
    assert environment.link is FLAT
    assert PolicySpec("BVD-GLM-UCB").build(environment).link is FLAT
    other = PolicySpec("BVD-GLM-UCB", settings={"link": "test_spec:FLAT"}).build(an_environment())
    assert other.link is FLAT


def test_a_fingerprint_that_cannot_be_taken_names_the_field():
    for spec, path in (
        (with_environment(link="nowhere:x"), "environments[0].link"),
        (with_policy("BVD-GLM-UCB", settings={"link": "nowhere:x"}), "policies[0].link"),
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


class LongArms(BallArms):
    """Arms of a user's own: all as long as they may be."""

    def bind(self, **world):
        return SphereArms(self.count).bind(**world)


def test_a_law_of_ones_own_is_not_taken_for_its_base() -> None:
    plain, own = with_environment(arms=BallArms()), with_environment(arms=LongArms())
    assert plain.fingerprint() != own.fingerprint()
    assert own.fingerprint() == with_environment(arms=LongArms()).fingerprint()
    assert "# arms: " in own.to_toml()
    assert 'kind = "ball"' not in own.to_toml()
