"""Missing values of pandas in a context: they are refused, as None and NaN are, and change nothing."""

from __future__ import annotations

import pandas as pd
import pytest

from support.agents import refuses
from windvane import Agent

FIELDS = {"shared": {"age": (0.0, 100.0), "member": ["yes", "no"]}, "arms": ["red", "blue"]}
SOUND = {"age": 1, "member": "no"}


@pytest.mark.parametrize(("field", "value"), [("age", pd.NA), ("age", pd.NaT), ("member", pd.NA)])
def test_missing_values_are_named(field: str, value: object) -> None:
    agent = Agent(features=FIELDS, reward_timeout=1)
    for _ in range(3):
        agent.decide(context=SOUND)
    error = refuses(agent, None, lambda: agent.decide(context={**SOUND, field: value}), pointer=f"#/context/{field}")
    assert error.value is value
