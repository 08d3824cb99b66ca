"""Values of fields as numbers: by hand, and whatever type a number has."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.agents import INF, NAN
from support.refusals import rejects
from windvane.agent.feature_fields import Field, encode_fields, encode_past_fields

PLACE = ("context",)
FIELDS = {
    "age": Field("age", 0.0, 100.0),
    "member": Field("member", values=("yes", "no")),
    "visits": Field("visits"),
}


def test_the_encoding_by_hand() -> None:
    values = {"visits": 12, "member": "no", "age": 25}
    assert encode_fields(FIELDS, PLACE, values, clip=False) == [-0.5, 0.0, 1.0, 12.0]
    assert encode_fields(FIELDS, PLACE, MappingProxyType(values), clip=False) == [-0.5, 0.0, 1.0, 12.0]


@given(st.integers(0, 100), st.floats(0.0, 100.0), st.booleans())
def test_the_type_of_a_number_does_not_matter(whole: int, number: float, clip: bool) -> None:
    fields = {"age": FIELDS["age"]}
    wholes = [float(whole), whole, np.int8(whole), Decimal(whole), Fraction(whole)]
    for values in (wholes, [number, np.float64(number)]):
        expected = [2.0 * values[0] / 100.0 - 1.0]
        assert all(encode_fields(fields, PLACE, {"age": value}, clip) == expected for value in values)


@pytest.mark.parametrize(("value", "end"), [(-0.1, -1.0), (100.1, 1.0), (10**6, 1.0), (np.float32(-1), -1.0)])
def test_a_number_out_of_its_range_is_refused_or_clipped(value: float, end: float) -> None:
    fields = {"age": FIELDS["age"]}
    assert encode_fields(fields, PLACE, {"age": value}, clip=True) == [end]
    with rejects("context['age']", hint="declare a wider range, or clip=True"):
        encode_fields(fields, PLACE, {"age": value}, clip=False)


@pytest.mark.parametrize("value", [NAN, INF, "5", b"5", None, [5.0], 10**400, 1j])
@pytest.mark.parametrize("clip", [False, True])
def test_what_is_no_number_is_refused(value: object, clip: bool) -> None:
    for name in ("age", "visits"):
        with rejects(f"context['{name}']"):
            encode_fields({name: FIELDS[name]}, PLACE, {name: value}, clip)


@pytest.mark.parametrize("values", [{"age": 1}, {"age": 1, "member": "no", "visits": 2, "x": 3}, [("age", 1)], None])
def test_values_and_fields_must_have_the_same_names(values: object) -> None:
    with rejects():
        encode_fields(FIELDS, PLACE, values, clip=False)  # type: ignore[arg-type]


def test_past_values_that_cannot_be_encoded_are_zeros() -> None:
    past = {"age": 200, "member": "perhaps", "other": 1}
    assert encode_past_fields(FIELDS, PLACE, past) == [1.0, 0.0, 0.0, 0.0]
    assert encode_past_fields(FIELDS, PLACE, None) == [0.0] * 4
