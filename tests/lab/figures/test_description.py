"""The parts that descriptions share: ticks of logarithmic axes, rows of names, cells that need light text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windvane.lab.figures.description import HeatMap, key_line, log_ticks, row_axis


@given(st.floats(1e-6, 1e6), st.floats(1.05, 1e9), st.integers(4, 10))
def test_log_ticks_ascend_and_are_few(low, ratio, most):
    places, texts = log_ticks(low, low * ratio, most)
    assert len(places) <= most + 2
    assert len(places) == len(texts) == len(set(texts))
    assert (np.diff(places) > 0).all()


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.9, 3.3, ["1", "1.2", "1.5", "2", "3"]),
        (0.9, 20.0, ["1", "1.5", "2", "3", "5", "7", "10", "15", "20"]),
        (0.5, 200.0, ["0.5", "1", "2", "5", "10", "20", "50", "100", "200"]),
    ],
)
def test_log_ticks_are_round_numbers(low, high, texts):
    assert log_ticks(low, high, 9).texts == texts


def test_log_ticks_over_many_decades_are_powers_of_ten():
    places, texts = log_ticks(1e-6, 1e6, 5)
    np.testing.assert_allclose(np.log10(places) % 1, 0, atol=1e-9)
    assert texts[0] == "10⁻⁶"


def test_rows_go_from_the_top():
    axis = row_axis(["a", "b"])
    assert axis.low > 1 > 0 > axis.high
    assert list(axis.ticks.places) == [0, 1]


def test_large_values_are_dark_and_unknown_ones_are_not():
    cells = HeatMap(np.arange(4), np.arange(2), np.array([[1.0, 9.0, np.nan]]), "", (0, 0))
    assert cells.is_dark.tolist() == [[False, True, False]]


def test_a_key_has_a_name_and_no_points():
    line = key_line("published", "dashed")
    assert (line.name, line.dash, len(line.x)) == ("published", "dashed", 0)
