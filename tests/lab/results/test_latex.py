"""The LaTeX table of a summary: what it shows of names that LaTeX would read as commands, and of missing results."""

from __future__ import annotations

import re

from support.entries import entry, results
from windvane.lab.results.latex import escape, write_latex


def test_names_are_shown_as_they_are() -> None:
    assert escape("50 % of_it & γ=0.9 #1 {a} ~b^c\\d $") == (
        r"50 \% of\_it \& $\gamma$=0.9 \#1 \{a\} \textasciitilde{}b\textasciicircum{}c\textbackslash{}d \$"
    )
    text = write_latex(results([entry("mine", [1.0, 2.0], variant={"gamma": 0.9}, environment="a_b")]))
    assert "policy & a\\_b" in text
    assert "mine $\\gamma$=0.9 & $\\mathbf{1.50} \\pm 0.50$" in text


def test_a_policy_that_is_missing_somewhere_has_a_dash() -> None:
    made = [entry("A", [4.0, 6.0]), entry("B", [1000.0, 1400.0]), entry("A", [3.0, 3.0], environment="arc")]
    rows = {line.partition(" & ")[0]: line for line in write_latex(results(made)).splitlines() if " & " in line}
    assert rows["A"] == r"A & $\mathbf{5.0} \pm 1.0$ & $\mathbf{3.0}$ \\"
    assert rows["B"] == r"B & $1200 \pm 200$ & -- \\"


def test_one_run_has_no_error() -> None:
    text = write_latex(results([entry("A", [3.25])]))
    assert re.search(r"^A & \$\\mathbf\{3.2\}\$ ", text, re.M)
    assert "over 1 runs" in text
