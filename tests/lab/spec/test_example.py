"""The commented spec that ``windvane new`` writes."""

from __future__ import annotations

import dataclasses
import re

import pytest

from windvane.environments import FixedArms
from windvane.lab.spec.example import write_example
from windvane.lab.spec.experiment_spec import EnvironmentSpec, Spec
from windvane.lab.spec.field_types import PARTS
from windvane.policies.registry import POLICIES

EXAMPLE = write_example()


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
    for name, registry in PARTS.items():
        for kind in registry:
            assert re.search(rf'^#?{name} = {{ kind = "{kind}"', text, re.MULTILINE), f"{name} {kind}"
    for cls in (Spec, EnvironmentSpec):
        for field in dataclasses.fields(cls):
            if field.name not in ("environments", "policies", "kind"):
                assert re.search(rf"^#?{field.name} = ", text, re.MULTILINE), field.name


def test_the_example_lists_every_registered_policy():
    """Each can be used: the example is valid with it in place of OFUL, with fixed arms if it needs them."""
    text = " ".join(line[2:] for line in EXAMPLE.splitlines() if line.startswith("# "))
    listed = re.search(r"policy is one of (.*?), or a class of yours", text).group(1)
    assert listed.split(", ") == list(POLICIES)
    for name in POLICIES:
        spec = Spec.parse(EXAMPLE.replace('policy = "OFUL"', f'policy = "{name}"\nlabel = "this one"'))
        world = spec.environments[0]
        if POLICIES[name].needs_one_hot:
            world = dataclasses.replace(world, arms=FixedArms([[1, 0], [0, 1]]))
        spec.policies[0].check(world.build(horizon=spec.horizon, lanes=1, seed=0))


def test_the_lines_of_the_example_fit():
    assert max(map(len, EXAMPLE.splitlines())) <= 120
