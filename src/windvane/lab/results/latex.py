"""The summary of an experiment as a LaTeX table, to be included in a paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

from windvane.lab.results.results import Results
from windvane.lab.results.summary import Row, summarise_entries

MOST_DECIMALS = 4
_ESCAPED = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "γ": r"$\gamma$", "δ": r"$\delta$", "θ": r"$\theta$",
}  # fmt: skip


def write_latex(results: Results) -> str:
    r"""Return a ``tabular`` with a row per policy and a column per environment: mean final regret and standard error.

    The smallest mean of each environment is bold. The table needs the package ``booktabs``. A policy without results in
    an environment has a dash there.
    """
    rows = summarise_entries(results)
    by_place = {(row.label, row.environment): row for row in rows}
    labels, environments = (list(dict.fromkeys(getattr(row, key) for row in rows)) for key in ("label", "environment"))
    best = {name: min(row.mean for row in rows if row.environment == name) for name in environments}
    runs = " to ".join(f"{count:,}" for count in sorted({min(row.runs for row in rows), max(row.runs for row in rows)}))
    lines = [
        f"% Mean final regret and its standard error over {runs} runs of {results.manifest['horizon']:,} rounds.",
        "% The smallest mean of a column is bold, whether or not it differs significantly. \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * len(environments)}}}",
        "\\toprule",
        _join(["policy", *map(escape, environments)]),
        "\\midrule",
    ]
    for label in labels:
        cells = [_describe(by_place.get((label, name)), best[name]) for name in environments]
        lines.append(_join([escape(label), *cells]))
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def escape(text: str) -> str:
    """Return a text that LaTeX shows as it is."""
    return "".join(_ESCAPED.get(character, character) for character in text)


def _describe(row: Row | None, best: float) -> str:
    """Return mean and standard error with as many decimals as the error supports: two digits of its own."""
    if row is None:
        return "--"
    has_error = math.isfinite(row.se) and row.se > 0.0
    decimals = min(max(1 - math.floor(math.log10(row.se)), 0), MOST_DECIMALS) if has_error else 1
    mean, error = f"{row.mean:.{decimals}f}", f" \\pm {row.se:.{decimals}f}" if has_error else ""
    return f"$\\mathbf{{{mean}}}{error}$" if row.mean == best else f"${mean}{error}$"


def _join(cells: Sequence[str]) -> str:
    return " & ".join(cells) + " \\\\"
