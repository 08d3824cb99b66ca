"""Tables of the report: what their cells say and how they are sorted."""

from __future__ import annotations

import math

import pytest

from support import sample_results as samples
from windvane.lab.report import report_tables


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.000"), (1234.5678, "1,235"), (12.345, "12.35"), (-0.01234, "-0.012"), (math.nan, "–")]
)
def test_amounts(value, text):
    assert report_tables.amount_text(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(89.123, 1.26, "89.1 ± 1.3"), (89.1, math.nan, "89.10"), (89.1, 0.0, "89.10"), (math.inf, 1.0, "–")],
)
def test_a_value_has_the_digits_that_its_error_supports(value, error, text):
    assert report_tables.with_error(value, error) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0 %"), (0.0001, "< 0.1 %"), (0.4567, "45.7 %"), (math.nan, "–")])
def test_shares(value, text):
    assert report_tables.share_text(value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(("value", "key"), [(None, None), (math.nan, ""), (1.5, "1.5"), (math.inf, "")])
def test_keys_of_sorting(value, key):
    assert report_tables.sort_key(value) == key


def test_the_table_of_results_has_a_row_per_entry():
    entries = samples.four(runs=4)
    vars(entries[1])["told"] = ("drift",)
    table = report_tables.results_table("rotation", entries, samples.published())
    assert [name for name, _ in table.rows] == [entry.label for entry in entries]
    for (_, cells), entry in zip(table.rows, entries, strict=True):
        assert len(cells) == len(table.heads) - 1
        assert cells[0][0] == entry.final.mean()
    place = table.heads.index("Told") - 1
    assert [cells[place] for _, cells in table.rows] == [(None, "–"), (None, "B_T"), (None, "–"), (None, "–")]
    assert [cells[-1][1] for _, cells in table.rows] == ["220.5", "105.4", "138.0", "59.10"]
    assert "Published" not in report_tables.results_table("rotation", entries, None).heads


def test_the_table_of_differences():
    table = report_tables.differences_table(samples.differences(1))
    ((name, cells),) = table.rows
    assert name == "BVD-GLM-UCB"
    assert [text for _, text in cells] == ["GLM-UCB", "rotation", "-60.00", "-65.00 to -55.00", "50"]


def test_counts_are_singular_or_plural():
    assert report_tables.count_text(1, "run", "runs") == "1 run"
    assert report_tables.count_text(2000, "run", "runs") == "2,000 runs"
