"""JSON that is written quickly: it means the same as what the records write."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane.records import Decision, RewardReceipt, to_dict, to_json
from windvane.service.bodies import write_json

texts = st.text(st.characters(exclude_categories=["Cs"]))  # JSON from outside has no lone surrogates
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | numbers | texts
NOT_FINITE = (math.nan, math.inf, -math.inf)


def describe(value: Any) -> Any:
    """Return a value in a form in which 0.0 and -0.0, 1 and 1.0, 1 and true differ."""
    return {name: repr(entry) for name, entry in value.items()}


@given(st.dictionaries(texts, values))
def test_it_means_the_same(data: dict[str, Any]) -> None:
    assert describe(json.loads(write_json(data))) == describe(json.loads(to_json(data))) == describe(data)


@given(st.dictionaries(texts, values), texts, st.sampled_from(NOT_FINITE))
def test_a_number_that_is_not_finite_is_refused(data: dict[str, Any], name: str, number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json({**data, name: number})


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '"NaN"'])
def test_a_name_may_look_like_such_a_number(text: str) -> None:
    assert json.loads(write_json({"arm": text, text: 1.0})) == {"arm": text, text: 1.0}


@given(arm=texts | st.integers(0, 1000), score=numbers, time=st.datetimes(timezones=st.just(UTC)))
def test_records_are_written_as_ever(arm: str | int, score: float, time: datetime) -> None:
    decision = Decision(
        id="d", arm=arm, index=0, time=time, propensity=None, explored=False, prediction=score, bonus=-score,
        preferred=arm, rival=None, rival_score=None, projected=True,
    )  # fmt: skip
    receipt = RewardReceipt(decision="d", status="recorded", value=score)
    for record in (decision, receipt):
        assert describe(json.loads(write_json(to_dict(record)))) == describe(json.loads(to_json(record)))
