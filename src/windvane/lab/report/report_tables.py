"""Tables of the report, and how they write numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from windvane.lab.figures.curves import PublishedCurves, published_final
from windvane.lab.results.summary import row_of, told_text

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry
    from windvane.lab.results.summary import Difference

UNKNOWN = "–"


class Listing(NamedTuple):
    """A table: in every row a name and then cells: a number to sort by (or None, to sort by the text) and a text."""

    title: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[float | None, str]]]]


def results_table(name: str, entries: Sequence[Entry], published: PublishedCurves | None) -> Listing:
    known = [published_final(entry, published) for entry in entries]
    has_published = not all(map(math.isnan, known))
    heads = ["Policy", "Final regret (mean ± SE)", "sd", "µs a round", "Told", "θ̂ outside Θ", "Projection stages"]
    rows = []
    for entry, value in zip(entries, known, strict=True):
        row = row_of(entry)
        stages = [(f"stage {i}" if i else "none", share) for i, share in enumerate(row.stages) if share > 0]
        shares = ", ".join(f"{stage} {share_text(share)}" for stage, share in stages)
        cells = [
            (row.mean, with_error(row.mean, row.se)),
            (row.sd, amount_text(row.sd)),
            (row.microseconds, amount_text(row.microseconds)),
            (None, told_text(entry.told) or UNKNOWN),
            (row.outside, share_text(row.outside)),
            (sum(row.stages[2:]), shares or UNKNOWN),
        ]
        rows.append((row.label, [*cells, *[(value, amount_text(value))] * has_published]))
    caption = f"After {entries[0].horizon:,} rounds in {name}. Click a heading to sort."
    return Listing(name, caption, [*heads, *["Published"] * has_published], rows)


def differences_table(differences: Sequence[Difference]) -> Listing:
    rows = []
    for row in differences:
        interval = f"{amount_text(row.low)} to {amount_text(row.high)}"
        numbers = [
            (row.mean, amount_text(row.mean)),
            (row.low, interval),
            (row.n, f"{row.n:,}"),
        ]
        rows.append((row.label, [(None, row.baseline), (None, row.environment), *numbers]))
    caption = "Final regret of the policy minus that of its baseline, run by run: below 0 the policy is better."
    heads = ["Policy", "Baseline", "Environment", "Difference", "Interval", "Runs"]
    return Listing("Paired differences", caption, heads, rows)


def sort_key(value: float | None) -> str | None:
    """The number that the page sorts a cell by: "" if it is unknown, None if the cell has a text only."""
    return None if value is None else f"{value:.9g}" if math.isfinite(value) else ""


def amount_text(value: float) -> str:
    """Four digits, at most three of them decimals."""
    if not math.isfinite(value):
        return UNKNOWN
    size = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{min(max(3 - size, 0), 3)}f}"


def with_error(value: float, error: float) -> str:
    """As many digits as the error supports: two of its own."""
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return amount_text(value)
    digits = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def share_text(value: float) -> str:
    if not math.isfinite(value):
        return UNKNOWN
    text = f"{100 * value:.1f} %" if value == 0 or value >= 0.0005 else "< 0.1 %"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def count_text(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
