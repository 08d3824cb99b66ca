"""Markdown from what the code says of itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.M)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns that are empty; nothing without rows."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    kept = [place for place in range(len(heads)) if any(row[place] for row in cells)]
    lines = [[heads[place] for place in kept], ["---"] * len(kept), *([row[place] for place in kept] for row in cells)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n" if cells else ""


def read_docstring(text: str) -> str:
    """Return the prose of a docstring in reStructuredText, without its sections, as Markdown."""
    prose = SECTION.split(inspect.cleandoc(text), maxsplit=1)[0].strip()
    prose = re.sub(r":\w+:`[!~]?(?:[\w.]*\.)?(\w+)`", r"`\1`", prose)
    return escape(prose.replace("``", "`"))


def read_entries(docstring: str, section: str) -> dict[str, str]:
    """Return the entries of the sections with this title of a docstring in the style of numpydoc, by name."""
    entries = {}
    parts = SECTION.split(inspect.cleandoc(docstring))
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        if title == section:
            for entry in re.split(r"\n(?=\S)", body.strip()):
                names, _, text = entry.partition("\n")
                meaning = " ".join(text.split())
                entries.update(dict.fromkeys(re.findall(r"\w+", names.partition(" : ")[0]), meaning))
    return entries


def escape(text: str) -> str:
    """Return text in which the signs that mean something in Markdown stand for themselves, except in code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]|$\\])", r"\\\1", part) for part in parts)
