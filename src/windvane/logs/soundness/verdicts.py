"""The lines of a check: verdicts on questions about a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LONGEST_NAME = 60  # characters of a name in a sentence
Verdict = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class CheckLine:
    """The answer to one question: a verdict, the finding, and the advice (empty if it is ok)."""

    question: str
    verdict: Verdict
    finding: str
    advice: str = ""

    def phrase(self) -> str:
        """Return the question and its finding as a sentence, without the full stop."""
        return f"{self.question} {self.finding[:1].upper()}{self.finding[1:]}"


@dataclass(frozen=True, kw_only=True)
class ArmCheck:
    """One arm: how often it was on offer and played, and mean(1{a_t = a} / p_t) with an interval; NaN if unknown."""

    arm: str
    offered: int
    played: int
    mean_weight: float
    low: float
    high: float


def list_names(names: Sequence[str], most: int = 5) -> str:
    """Return a comma-separated list of the first few names."""
    short = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..." for name in names[:most]]
    return ", ".join(short) + (f" and {len(names) - most} more" if len(names) > most else "")


def count(number: int, singular: str, plural: str = "") -> str:
    """Return "1 row" or "2 rows"."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
