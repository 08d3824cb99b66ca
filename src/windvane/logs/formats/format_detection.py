"""Detect the format of a log from its content, and open the reader for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import get_args

from windvane.errors import ArgumentError
from windvane.logs.formats.dsjson import DsjsonReader
from windvane.logs.formats.event_log import EventReader
from windvane.logs.formats.open_bandit import build_open_bandit_reader, is_open_bandit
from windvane.logs.formats.reader import Reader, open_file, read_lines
from windvane.logs.formats.tables import ROLES, TableReader, is_parquet, read_names
from windvane.logs.formats.vw_text import VWTextReader
from windvane.logs.log import Format
from windvane.logs.row_problems import Problems

FORMATS: tuple[str, ...] = get_args(Format)
LOOK = 50  # lines that are inspected
VW_LINE = re.compile(r"\s*(shared\b[^|]*|[0-9]+:[^|]*|[^|,]*)\|")
EVENT_COLUMNS = {"number", "kind", "decision", "outcome", "request"}
FOREIGN = {  # files that begin like this are no logs, but may hold one
    b"\x1f\x8b": ("a file compressed with gzip", "decompress it first"),
    b"PK\x03\x04": ("a ZIP archive or an Excel workbook", "unpack it, or save the sheet as CSV"),
    b"\x28\xb5\x2f\xfd": ("a file compressed with Zstandard", "decompress it first"),
    b"\xff\xfe": ("a text in UTF-16", "save it in UTF-8"),
    b"\xfe\xff": ("a text in UTF-16", "save it in UTF-8"),
}
DSJSON_KEYS = ("_label_cost", "_labelIndex", "_label_Action", "RewardValue", "EventId")


def detect_format(path: Path) -> str:
    """Return the name of the format of a file, one of :data:`FORMATS`."""
    if is_parquet(path):
        return "windvane" if set(read_names(path)[0]) >= EVENT_COLUMNS else "table"
    skipped = Problems()
    with open_file(path) as file:
        start = file.read(4)
        for magic, (got, hint) in FOREIGN.items():
            if start.startswith(magic):
                raise ArgumentError("path", str(path), "a log", got=got, where=str(path), hint=hint)
        file.seek(0)
        lines = [text for _, text in islice(read_lines(file, skipped), LOOK) if text.strip()]
    if not lines:
        got = "a file that is not text" if len(skipped) else "an empty file"
        raise ArgumentError("path", str(path), "a log", got=got, where=str(path))
    if any("\0" in line for line in lines):
        raise ArgumentError("path", str(path), "a log", got="a binary file", where=str(path))
    if lines[0].lstrip().startswith("{"):
        return _detect_json(path, lines)
    if VW_LINE.match(lines[0]):
        return "vw"
    return "open-bandit" if is_open_bandit(read_names(path)[0]) else "table"


def _detect_json(path: Path, lines: Sequence[str]) -> str:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            if "kind" in record and "number" in record:
                return "windvane"
            if "c" in record or any(key in record for key in DSJSON_KEYS):
                return "dsjson"
    expected = "a log: the NDJSON that windvane exports, or VW dsjson"
    raise ArgumentError("path", str(path), expected, got="other JSON", where=str(path))


def open_reader(
    path: Path,
    format: str | None,
    roles: Mapping[str, str | None],
    fields: Sequence[str] | None,
    arms_from: Path | None,
    arms: Sequence[str] | None,
) -> Reader:
    """Return the reader for a file; ``arms`` are the declared ones, if there are any."""
    if format is not None and format not in FORMATS:
        raise ArgumentError("format", format, f"one of {', '.join(FORMATS)}")
    name = detect_format(path) if format is None else format
    if name in ("table", "open-bandit"):
        if name == "open-bandit":
            return build_open_bandit_reader(path, roles, fields, arms_from)
        return TableReader(path, roles, fields, arms_from)
    for role in ROLES:
        if roles.get(role) is not None:
            raise ArgumentError(role, roles[role], f"omitted for the format {name!r}, whose fields have fixed names")
    if arms_from is not None:
        raise ArgumentError("arms_from", str(arms_from), f"omitted for the format {name!r}")
    return _open_lines(name, path, arms)


def _open_lines(name: str, path: Path, arms: Sequence[str] | None) -> Reader:
    if name == "windvane":
        return EventReader(path, arms)
    return DsjsonReader(path) if name == "dsjson" else VWTextReader(path)
