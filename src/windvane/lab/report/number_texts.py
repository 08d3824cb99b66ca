"""How the report writes numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

UNKNOWN = "–"


def sort_key(value: float) -> str:
    """The number that the page sorts a cell by: "" if it is unknown."""
    return f"{value:.9g}" if math.isfinite(value) else ""


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


def stages_text(shares: Sequence[float]) -> str:
    """How often each stage of the projection was reached; stage 0 is no projection."""
    stages = [(f"stage {i}" if i else "none", share) for i, share in enumerate(shares) if share > 0]
    return ", ".join(f"{stage} {share_text(share)}" for stage, share in stages) or UNKNOWN


FORMATS = (sort_key, amount_text, with_error, share_text, count_text, stages_text)
