"""The part of the report of ``windvane drift`` about detectors of river."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from windvane.logs.log import LogSchema
from windvane.logs.report.pages import DataTable, Section

if TYPE_CHECKING:
    from windvane.logs.drift.detectors import DetectorAlarms

MOST_SHOWN = 10  # alarms of a detector
INPUT = (
    "Each detector reads the error of a model that never forgets, with river's default settings. The detectors have no "
    "common level: an alarm is no test, and a long log can raise false ones."
)


def format_time(time: float, schema: LogSchema) -> str:
    """Return a time in UTC; "" if the log has no times."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S") if schema.has_times else ""


def describe_detectors(alarms: Sequence[DetectorAlarms], schema: LogSchema) -> Iterator[Section]:
    """Return a section with the alarms of each detector, if there are detectors."""
    if not alarms:
        return
    rows = []
    for found in alarms:
        more = ["..."] if len(found.rows) > MOST_SHOWN else []
        shown = [*(f"{row:,}" for row in found.rows[:MOST_SHOWN]), *more]
        first = format_time(found.times[0], schema) if found.times else ""
        rows.append([found.detector, str(len(found.rows)), "; ".join(shown), first])
    table = DataTable(["detector", "alarms", "after rows", "first (UTC)"], rows, left=1)
    yield Section("Detectors of river", [INPUT], table)
