"""Generated blocks of files: what stands between a line that begins them and a line that ends them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
POLICY_PAGES = ROOT / "docs" / "reference" / "policies"


def markdown_markers(block: str) -> tuple[str, str]:
    """Return the lines of a page before and after a block."""
    return f"<!-- {block}:begin -->\n", f"<!-- {block}:end -->\n"


def replace_block(text: str, begin: str, end: str, content: str) -> str:
    """Return ``text`` with what stands between the lines ``begin`` and ``end`` replaced by ``content``."""
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"there must be one line {begin.strip()!r} and, after it, one line {end.strip()!r}")
    return text[: text.index(begin)] + begin + content + text[text.index(end) :]


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first row is its heading."""
    heading, *others = rows
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, ["---"] * len(heading), *others))
