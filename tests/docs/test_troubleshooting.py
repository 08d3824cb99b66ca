"""docs/howto/troubleshooting.md: its causes and codes are those of the service, and it quotes what the service says."""

from __future__ import annotations

import re

from support.pages import ROOT
from support.service_pages import HOWTO, read_rows, read_section
from windvane.service.problems import KINDS
from windvane.service.readiness import CAUSES

PAGE = HOWTO / "troubleshooting.md"
SOURCE = ROOT / "src" / "windvane"
OF_OTHERS = {
    "readonly database",
    "Permission denied",
    "database is locked",
    "read-only transaction",
    "permission denied",
}
"""Quoted from SQLite, the system and PostgreSQL."""


def test_every_cause_has_a_row() -> None:
    cells = [row[0] for row in read_rows(PAGE, "| cause | meaning |")]
    first = {cell.partition(" with ")[0].partition(";")[0].partition(" on ")[0] for cell in cells}
    assert {cause for cell in first for cause in re.findall(r"`(\w+)`", cell)} == CAUSES.keys()


def test_codes_of_verify() -> None:
    rows = read_rows(PAGE, "| list | codes |")
    listed = [code for _, codes in rows for code in re.findall(r"`(\w+)`", codes)]
    source = (SOURCE / "service" / "verification.py").read_text(encoding="utf-8")
    pattern = r'(?:Finding|\.add)\("(\w+)"|^ +"(\w+)": f?"'  # added, or counted in a table
    assert set(listed) == {first or second for first, second in re.findall(pattern, source, flags=re.M)}


def test_problem_codes() -> None:
    cells = re.findall(r"^\| (.*?) \|", read_section(PAGE, "A request is refused"), re.M)
    codes = {code for cell in cells for code in re.findall(r"(?:\d{3}|or) `([a-z-]+)`", cell)}
    assert "read-only-token" in codes
    assert codes - KINDS.keys() == {"unreachable"}  # a cause of `unavailable`


def test_messages_are_quoted_as_they_are_written() -> None:
    """What stands in quotes in the first cell of a row is in the source, but for names, numbers and "..."."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))]
    written = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources)).replace("tokens were %s", "tokens were removed")
    first_cells = re.findall(r"^\| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    quoted = {words for cell in first_cells for words in re.findall(r'"([^"]+)"', cell)} - OF_OTHERS
    assert len(quoted) > 15
    for words in quoted:
        parts = re.split(r"\.\.\.|\(.*?\)|service\.toml|windvane\.db\.mark|\b[A-Z]+\b|, ", words)
        for part in filter(None, (part.strip(" :") for part in parts)):
            assert part in written, (words, part)
