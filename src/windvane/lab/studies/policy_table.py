"""The table of the registered policies, for ``windvane policies`` and for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.policies.base import Card

COLUMNS: dict[str, str] = {
    "rewards": "rewards",
    "forgetting": "forgets by",
    "needs": "needs",
    "guarantee": "regret proven",
    "reference": "reference",
    "cost": "cost",
}
"""The heading of each field of a card."""


def card_row(card: Card, fields: tuple[str, ...] = tuple(COLUMNS)) -> list[str]:
    """Return the cells of ``card`` for ``fields``."""
    return [str(getattr(card, field)) for field in fields]


def markdown_table() -> str:
    """Return the table of all registered policies in Markdown, a line for each in the order of the registry.

    Examples
    --------
    >>> from windvane.lab.studies.policy_table import markdown_table
    >>> print(markdown_table().splitlines()[0])
    | policy | class | rewards | forgets by | needs | regret proven | reference | cost |
    """
    headings = ["policy", "class", *COLUMNS.values()]
    rows = [[name, f"`{policy.__name__}`", *card_row(policy.card)] for name, policy in POLICIES.items()]
    lines = [headings, ["---"] * len(headings), *([_escape(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape(text: str) -> str:
    """Return ``text`` with what Markdown would read as markup escaped."""
    if text.startswith("`"):
        return text
    for character in "\\*_|":
        text = text.replace(character, f"\\{character}")
    return text
