"""Output: tables, JSON, and progress bars that appear only on a terminal and only after a while."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from support.commands import run_on_terminal
from windvane.cli.console import Answer, Note, ProgressBar, Table, count, estimate, number, share
from windvane.plain_data import to_plain


def run_bar(code: str) -> tuple[str, str]:
    """Run Python code with a progress bar; return stdout, and what the terminal showed."""
    code = f"import time\nfrom windvane.cli.console import ProgressBar\n{code}"
    return run_on_terminal([sys.executable, "-c", code])


def test_a_bar_shows_stages_amounts_and_the_time_left() -> None:
    out, shown = run_bar("""
with ProgressBar("copying", "pages", patience=0.1) as report:
    for done in range(5):
        report(done, 8, "replaying [red]shop")
        time.sleep(0.2)
    print("a result")
""")
    assert out == "a result\n"  # results do not go through the bar
    assert re.search(r"replaying \[red\]shop .* 4/8 pages  0:00:01 left", shown), shown


def test_a_bar_without_a_total_shows_the_time() -> None:
    _, shown = run_bar("""
with ProgressBar("drawing figures", "files", patience=0.0) as report:
    time.sleep(1.0)
    report(3)
    time.sleep(0.3)
""")
    assert re.search(r"drawing figures .* 3 files  0:00:01", shown), shown


def test_a_bar_of_a_run_shows_the_rate_without_the_rounds_of_earlier_runs() -> None:
    _, shown = run_bar("""
with ProgressBar("simulating", "rounds", patience=0.0) as progress:
    time.sleep(0.2)
    progress.begin(1000, 900)
    time.sleep(0.5)
    progress.show(950)
    time.sleep(0.3)
    progress.end()
""")
    rates = [float(rate) for rate in re.findall(r"950/1,000 rounds  (\d+) rounds/s", shown)]
    assert rates
    assert max(rates) <= 100


def test_short_work_shows_no_bar() -> None:
    _, shown = run_bar('with ProgressBar("quick") as report: report(1, 2)')
    assert shown == ""


def test_without_a_terminal_there_is_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("copying", "pages", patience=0.0) as report:
        report(1, 2)
        report.begin(10, 5)
        report.show(6)
    assert capfd.readouterr() == ("", "")


def test_tables_are_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    title = "A title that is longer than the table"
    Table(["policy", "regret"], [["a [b]", "1.0"], ["longer", "22.0"]], title).print()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["A title that is longer than the table", "policy  regret", "a [b]      1.0", "longer    22.0"]


def test_an_answer_is_a_document_or_text(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer({"a": 1}, ["x" * 300, Table(["a"], [["1"]]), Note("why")], 1)
    assert answer.print(as_json=True) == 1
    assert capsys.readouterr().out == '{"a": 1}\n'
    assert answer.print(as_json=False) == 1
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == ["x" * 300, "a", "1", "why"]


def test_numbers_as_text() -> None:
    assert (number(1234.56), number(math.nan), number(0.5, 2)) == ("1,234.6", "–", "0.50")
    assert (number(None), number(0.03, None), estimate(1.25, 0.5, 2)) == ("–", "0.03", "1.25 ± 0.50")
    assert (share(0.256), share(math.inf)) == ("26%", "–")
    assert (count(1, "policy", "policies"), count(2000, "stream")) == ("1 policy", "2,000 streams")


def test_json_has_no_nan() -> None:
    value = {1: (math.nan, np.float64(2.0)), "x": np.array([1.0, math.inf])}
    assert to_plain(value) == {"1": [None, 2.0], "x": [1.0, None]}


def test_json_of_records() -> None:
    @dataclass
    class Record:
        table: Table
        folder: Path

    assert to_plain([Record(Table(["a"], []), Path("b"))]) == [
        {"table": {"columns": ["a"], "rows": [], "title": "", "left": 1, "numbers": None}, "folder": "b"}
    ]
