"""The part of the report of ``windvane drift`` about detectors of river."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from windvane.logs.drift.answers import format_time
from windvane.logs.log import LogSchema
from windvane.logs.report.pages import DataTable, Section

if TYPE_CHECKING:
    from windvane.logs.drift.detectors import DetectorAlarms

MOST_SHOWN = 10  # alarms of a detector
INPUT = (
    "Each detector reads the error of a model that never forgets, with river's default settings. The detectors have no "
    "common level: compare the alarms with those “by chance”, which the same errors in a random order raise. If "
    "there are about as many, the detector has found nothing."
)
READING = {
    "adwin": "adwin: the mean error changed at some time before the row. It raises few alarms by chance.",
    "page-hinkley": "page-hinkley: the error has grown for a while; a smaller error raises no alarm.",
    "kswin": (
        "kswin: the last 30 errors differ from earlier ones. It tests at every row, so a long log has many alarms by "
        "chance, and only a cluster of them means something."
    ),
}


def describe_detectors(alarms: Sequence[DetectorAlarms], schema: LogSchema) -> Iterator[Section]:
    """Return a section with the alarms of each detector, if there are detectors."""
    if not alarms:
        return
    rows = []
    for found in alarms:
        more = ["..."] if len(found.rows) > MOST_SHOWN else []
        shown = [*(f"{row:,}" for row in found.rows[:MOST_SHOWN]), *more]
        first = format_time(found.times[0], schema) if found.times else ""
        rows.append([found.detector, str(len(found.rows)), str(found.by_chance), "; ".join(shown), first])
    columns = ["detector", "alarms", "by chance", f"after {schema.place}", "first (UTC)"]
    lines = [INPUT, *(READING[found.detector] for found in alarms)]
    yield Section("Detectors of river", lines, DataTable(columns, rows, left=1))
