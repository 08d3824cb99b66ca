"""The part of a report that says why a log is not sound, above the results that rely on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from windvane.logs.report.pages import Section
from windvane.logs.soundness.verdicts import CheckLine

HEADING = "The log is not sound, so do not trust the values below"


def describe_errors(errors: Sequence[CheckLine]) -> Iterator[Section]:
    """Return a section that lists the errors of a log, if there are any."""
    if errors:
        lines = [f"{line.question} {line.finding}: {line.advice}" for line in errors]
        yield Section(HEADING, lines)


def warn_unsound(answer: str, errors: Sequence[CheckLine]) -> str:
    """Return an answer that begins with the first error of the log, if there is one."""
    return f"The log is not sound: {errors[0].phrase()}. {answer}" if errors else answer
