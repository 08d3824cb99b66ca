"""Tables of the report: what their cells say and how they are sorted."""

from __future__ import annotations

import math
import re

import pytest

from support import sample_results as samples
from windvane.lab.report import report
from windvane.lab.results.summary import format_told


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.000"), (1234.5678, "1,235"), (12.345, "12.35"), (-0.01234, "-0.012"), (math.nan, "–")]
)
def test_amounts(value, text):
    assert report.amount_text(value) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(89.123, 1.26, "89.1 ± 1.3"), (89.1, math.nan, "89.10"), (89.1, 0.0, "89.10"), (math.inf, 1.0, "–")],
)
def test_a_value_has_the_digits_that_its_error_supports(value, error, text):
    assert report.with_error(value, error) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0 %"), (0.0001, "< 0.1 %"), (0.4567, "45.7 %"), (math.nan, "–")])
def test_shares(value, text):
    assert report.share_text(value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(("told", "text"), [((), ""), (("drift",), "B_T"), (("drift", "switches"), "B_T, changes")])
def test_what_a_policy_was_told(told, text):
    entry = samples.entry()
    vars(entry)["told"] = told
    assert format_told(entry.told) == text


def tables(folder, entries, **settings):
    """The tables of a page: the texts of the cells, row by row, the heads first."""
    page = report.write_report(samples.results(entries), folder / "page.html", heading="Tables", **settings)
    found = re.findall(r"<table.*?</table>", page.read_text(encoding="utf-8"), re.DOTALL)
    rows = [re.findall(r"<tr>.*?</tr>", table, re.DOTALL) for table in found]
    return [[re.findall(r"<t[hd][^>]*>(?:<button[^>]*>)?(.*?)<", row) for row in table] for table in rows]


def test_the_table_of_results_has_a_row_per_entry(tmp_path):
    entries = samples.four(runs=4)
    vars(entries[1])["told"] = ("drift",)
    ((heads, *rows),) = tables(tmp_path, entries, published=samples.published())
    assert [row[0] for row in rows] == [entry.label for entry in entries]
    assert {len(row) for row in rows} == {len(heads)}
    for row, entry in zip(rows, entries, strict=True):
        assert float(row[1].split()[0]) == pytest.approx(entry.final.mean(), rel=0.02)
    assert [row[heads.index("Told")] for row in rows] == ["–", "B_T", "–", "–"]
    assert [row[heads.index("Published")] for row in rows] == ["220.5", "105.4", "138.0", "59.10"]
    ((heads, *_),) = tables(tmp_path, entries)
    assert "Published" not in heads


def test_the_table_of_differences(tmp_path):
    _, (_, row) = tables(tmp_path, samples.four(runs=4), differences=samples.differences(1))
    interval, rest = "-65.00 to -55.00", ["0.02", "50.0\N{NO-BREAK SPACE}%", "50", "better"]
    assert row == ["BVD-GLM-UCB", "GLM-UCB", "rotation", "-60.00", interval, *rest]
