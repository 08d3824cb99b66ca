"""Missing values in a context, of Python and of pandas: they are refused, say what to do, and change nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from support.agents import refuses
from support.refusals import rejects
from windvane import Agent
from windvane.agent.feature_fields import MISSING_CATEGORY, MISSING_NUMBER
from windvane.errors import ArgumentError

FIELDS = {"shared": {"age": (0.0, 100.0), "member": ["yes", "no"]}, "arms": ["red", "blue"]}
SOUND = {"age": 1, "member": "no"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("age", value) for value in (None, float("nan"), np.float32("nan"), pd.NA, pd.NaT)),
        *(("member", value) for value in (None, float("nan"), np.float32("nan"), pd.NA)),
    ],
)
def test_missing_values_are_named_with_their_remedy(field: str, value: object) -> None:
    agent = Agent(features=FIELDS, reward_timeout=1)
    for _ in range(3):
        agent.decide(context=SOUND)
    error = refuses(agent, None, lambda: agent.decide(context={**SOUND, field: value}), pointer=f"#/context/{field}")
    assert error.value is value
    assert error.hint == {"age": MISSING_NUMBER, "member": MISSING_CATEGORY}[field]


def test_a_field_that_is_left_out_has_the_same_remedy() -> None:
    agent = Agent(features=FIELDS)
    for field, hint in (("age", MISSING_NUMBER), ("member", MISSING_CATEGORY)):
        context = {name: value for name, value in SOUND.items() if name != field}
        error = refuses(
            agent, None, lambda context=context: agent.decide(context=context), pointer=f"#/context/{field}"
        )
        assert (error.got, error.hint) == ("nothing", hint)


def test_other_values_have_no_such_remedy() -> None:
    agent = Agent(features=FIELDS)
    for field, value in (("age", 101), ("age", "x"), ("member", "maybe"), ("member", 3), ("member", np.zeros(2))):
        error = refuses(agent, None, lambda f=field, v=value: agent.decide(context={**SOUND, f: v}))
        assert error.hint in ("", "declare a wider range, or clip=True")


def test_none_is_no_value_to_declare() -> None:
    """Two entries, one of them a string, are not taken for a range."""
    for wrong, hint in ((["new", None], MISSING_CATEGORY), (["new", float("nan")], MISSING_CATEGORY), (["new", 3], "")):
        with rejects(error=ArgumentError, pointer="#/features/shared/kind") as caught:
            Agent(features={"shared": {"kind": wrong}})
        assert caught.value.expected == "a list of strings only, or a range (low, high) of numbers"
        assert caught.value.hint == hint
