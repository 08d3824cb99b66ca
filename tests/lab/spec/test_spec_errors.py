"""What specs refuse, with the line and the field."""

from __future__ import annotations

import os
import pickle

import pytest

from support.spec_objects import (
    BASE,
    Mine,
    NoPolicy,
    a_spec,
    refused,
    with_environment,
    with_policy,
)
from windvane.environments import BallArms, Rotation
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError
from windvane.lab.spec.toml_text import LARGEST_FILE

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
    ("bonus_scale = 0.5", "bonus_scale = true", 29, "policies[0].settings.bonus_scale", ""),
    ("seed = 0", "diagnostics = 1", 4, "diagnostics", ""),
    ("seed = 0", "title_ = 1", 4, "title_", "title"),
    ('"two worlds"', "7", 1, "title", ""),
    ('"turning"', '""', 7, "environments[0].name", ""),
    ('"turning"', '"a\\nb"', 7, "environments[0].name", ""),
    ("settings.lam = 1.0", "label = 3", 33, "policies[1].label", ""),
    ('drift = { kind = "rotation" }', 'drift = "rotation"', 10, "environments[0].drift", ""),
    ('"BVD-GLM-UCB"', "3", 27, "policies[0].policy", ""),
    ("lam = 1.0", "lam = 1979-05-27", 33, "policies[1].settings.lam", ""),
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
    ("lam =", "lamda =", 33, "policies[1].settings.lamda", "lam"),
    ("lam = 1.0", "zzz = 1.0", 33, "policies[1].settings.zzz", ""),
    ("lam = 1.0", "lam = -1.0", 33, "policies[1].settings.lam", ""),
    ("lam = 1.0", 'lam = "a"', 33, "policies[1].settings.lam", ""),
    ("lam = 1.0", "delta = 2", 33, "policies[1].settings.delta", ""),
    ("lam = 1.0", 'confidence = "x"', 33, "policies[1].settings.confidence", ""),
    ("bonus_scale = 0.5", 'arm_geometry = "x"', 29, "policies[0].settings.arm_geometry", ""),
    ("bonus_scale = 0.5", "horizon = 0", 29, "policies[0].settings.horizon", ""),
    ("bonus_scale = 0.5", "gamma = 1\nsettings.drift = 2", 30, "policies[0].settings.drift", ""),
    *(("lam = 1.0", f"{name} = 1", 33, f"policies[1].settings.{name}", "") for name in ("dim", "lanes", "seed")),
    ("lam = 1.0", '"a b" = 1', 33, "policies[1].settings", ""),
    # sweeps
    ("lam = 1.0", "gamma = 0.5", 33, "policies[1].settings.gamma", ""),
    ("lam = 1.0", "drift = 0.5", 33, "policies[1].settings.drift", ""),
    ("  0.99,", "  1.99,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  true,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", '  "a",', 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  inf,", 36, "policies[1].sweep.gamma[1]", ""),
    ("  0.99,", "  0.9,", 36, "policies[1].sweep.gamma[1]", ""),
    ("sweep.gamma", "sweep.lamda", 34, "policies[1].sweep.lamda", "lam"),
    ("  0.9,\n  0.99,\n", "", 34, "policies[1].sweep.gamma", ""),
    ("settings.bonus_scale = 0.5", "sweep = [1]", 29, "policies[0].sweep", ""),
    ('"BVD-GLM-UCB"', '"OFUL"\nsweep.gamma = [0.5]', 28, "policies[0].sweep.gamma", ""),
    # what policies are told
    ("lam = 1.0", 'lam = 1.0\ntold = "drift"', 34, "policies[1].told", "both or neither"),
    ("lam = 1.0", 'lam = 1.0\ntold = ["S"]', 34, "policies[1].told", "both or neither"),
    ("lam = 1.0", "lam = 1.0\ntold = 5", 34, "policies[1].told", "both or neither"),
    ("lam = 1.0", "lam = 1.0\nspec = 5", 34, "policies[1].spec", "settings"),
    ("lam = 1.0", 'lam = 1.0\nsweep.link = ["logistic", "tanh"]', 34, "policies[1].sweep.link[1]", "probit"),
    ("lam = 1.0", "lam = 1.0\nsweep.bonus_scale = [true]", 34, "policies[1].sweep.bonus_scale[0]", ""),
    ("lam = 1.0", 'lam = 1.0\ntold = ["drift"]', 34, "policies[1].told", "gamma"),
    ("bonus_scale = 0.5", 'bonus_scale = 0.5\ntold = ["switches"]', 30, "policies[0].told", "switches"),
    # kinds of environments
    ("dim = 2", 'kind = "labelled"', 8, "environments[0].kind", "labelled-stream"),
    ("dim = 2", "kind = 3", 8, "environments[0].kind", "simulated"),
    ("dim = 2", 'kind = "labelled-stream"', 9, "environments[0].link", ""),
    # code of one's own
    ('"BVD-GLM-UCB"', '"nowhere:P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"os:P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '":P"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"support.spec_objects:NoPolicy"', 27, "policies[0].policy", ""),
    ('"BVD-GLM-UCB"', '"support.spec_objects:Mine"', 29, "policies[0].settings.bonus_scale", ""),
    (
        'policy = "D-LinUCB"\nsettings.lam = 1.0\n',
        'policy = "support.spec_objects:Mine"\n',
        31,
        "policies[1].settings.boldness",
        "",
    ),
    (
        'policy = "D-LinUCB"\nsettings.lam = 1.0\nsweep.gamma',
        'policy = "support.spec_objects:Breaks"\nsweep.delta',
        33,
        "policies[1].sweep.delta",
        "",
    ),
    ('"logistic"', '"os:x"', 9, "environments[0].link", ""),
    ('"logistic"', '"support.spec_objects:a_spec"', 9, "environments[0].link", ""),
    ("bonus_scale = 0.5", 'link = "os:x"', 29, "policies[0].settings.link", ""),
]


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
    path.write_text(
        BASE.replace('"BVD-GLM-UCB"', '"support.spec_objects:Breaks"').replace("settings.bonus_scale = 0.5", "")
    )
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
        (lambda: PolicySpec("OFUL", settings={"label": 3}), "settings.label"),
        (lambda: PolicySpec("OFUL", settings={3: 3}), "settings"),
        (lambda: PolicySpec(NoPolicy), "policy"),
        (lambda: PolicySpec(Mine), "settings.boldness"),
        (lambda: with_policy(settings={"lam": 0}).check(), "policies[0].settings.lam"),
        (lambda: with_policy(sweep={"delta": [0.1, 3.0]}).check(), "policies[0].sweep.delta[1]"),
        (lambda: with_policy(settings={"lam": object()}), "settings.lam"),
        (lambda: with_policy(settings={"lam": float("nan")}), "settings.lam"),
        (lambda: with_policy(settings={"lam": "\ud800"}), "settings.lam"),
        (lambda: PolicySpec("support.spec_objects:Anything", settings={"a": {1: 2}}), "settings.a"),
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
