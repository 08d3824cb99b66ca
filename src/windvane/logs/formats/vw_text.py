"""Vowpal Wabbit's text format for contextual bandits.

Either a line per decision, ``action:cost:probability |namespace feature:value ...``; or, with features of each arm
("ADF"), a block of lines per decision: an optional line ``shared | ...`` with the context, a line for each arm, of
which the chosen one begins with ``0:cost:probability``, and an empty line. The reward is -cost. Features are named
``namespace|feature``, and have the value 1 unless they say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from windvane.logs.formats.conversions import parse_number
from windvane.logs.formats.reader import CHUNK, Reader, Report, open_file, read_lines
from windvane.logs.raw import RawRows
from windvane.logs.row_builder import Row, RowBuilder, RowOffer
from windvane.logs.row_problems import Problems, Verbatim

LOOK = 1000  # lines that are inspected to detect blocks
MOST_LINES = 10_000  # of a block
REPORT_EVERY = 1000
LABEL = "action:cost:probability"


class _Line(NamedTuple):
    place: int
    labels: list[str]
    tag: str
    features: dict[str, float]
    is_shared: bool = False


class VWTextReader(Reader):
    """Read a file in VW's text format."""

    format = "vw"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.has_blocks = _has_blocks(path)

    def read(self, problems: Problems, report: Report) -> Iterator[RawRows]:
        """Yield all decisions in file order."""
        builder = RowBuilder(self.texts, self.arm_texts, problems)
        rows = self._read_blocks(problems, report) if self.has_blocks else self._read_rows(problems, report)
        has_offers = self.has_blocks
        for row in rows:
            is_other = (row.offers is not None) != has_offers and not self.has_blocks
            if len(builder) and (len(builder) >= CHUNK or is_other):  # rows without offers had all arms
                yield builder.take()
            has_offers = row.offers is not None
            builder.append(row)
        if len(builder):
            yield builder.take()

    def _read_rows(self, problems: Problems, report: Report) -> Iterator[Row]:
        with open_file(self.path) as file:
            for place, text in read_lines(file, problems):
                if place % REPORT_EVERY == 0:
                    report(file.tell())
                if text.strip():
                    line = _parse_line(place, text, problems)
                    yield Row(place, None, is_bad=True) if line is None else _to_row(line, problems)

    def _read_blocks(self, problems: Problems, report: Report) -> Iterator[Row]:
        block: list[_Line | None] = []  # None: a malformed line
        start = 0
        with open_file(self.path) as file:
            for place, text in read_lines(file, problems):
                if place % REPORT_EVERY == 0:
                    report(file.tell())
                line = _parse_line(place, text, problems) if text.strip() else None
                if block and (not text.strip() or (line is not None and line.is_shared) or len(block) >= MOST_LINES):
                    yield _to_block_row(start, block, problems)
                    block = []
                if text.strip():
                    start = start if block else place
                    block.append(line)
        if block:
            yield _to_block_row(start, block, problems)


def _has_blocks(path: Path) -> bool:
    """Return whether decisions are blocks: there is a shared line, an empty line in between, or an action 0."""
    with open_file(path) as file:
        lines = [text.strip() for _, text in islice(read_lines(file, Problems()), LOOK)]
    while lines and not lines[-1]:
        lines.pop()
    return any(not line or line.startswith(("shared", "0:")) for line in lines)


def _parse_line(place: int, text: str, problems: Problems) -> _Line | None:
    """Parse a line; return None, and add a problem, if it is malformed."""
    head, bar, rest = text.rstrip("\r\n").partition("|")
    if not bar:
        problems.add("malformed line", place, "line", text, "a label, `|` and features")
        return None
    tokens = head.split()
    is_shared = bool(tokens) and tokens[0] == "shared"
    tag = ""
    if tokens and not is_shared and (tokens[-1].startswith("'") or not (head[-1].isspace() or ":" in tokens[-1])):
        tag = tokens.pop().lstrip("'")
    features = _parse_features(rest)
    if features is None:
        problems.add("malformed line", place, "features", text, "feature or feature:number, separated by spaces")
        return None
    return _Line(place, [] if is_shared else tokens, tag, features, is_shared)


def _parse_features(text: str) -> dict[str, float] | None:
    """Parse features by name; return None if one is malformed."""
    features: dict[str, float] = {}
    for part in text.split("|"):
        tokens = part.split()
        namespace, scale = "", 1.0
        if tokens and not part[0].isspace():
            namespace, _, factor = tokens.pop(0).partition(":")
            scale = parse_number(factor) if factor else 1.0
        for token in tokens:
            name, colon, number = token.rpartition(":")
            if not colon:
                name, value = token, scale
            else:
                value = parse_number(number) * scale
            if not name or not math.isfinite(value):
                return None
            name = f"{namespace}|{name}" if namespace else name
            features[name] = features.get(name, 0.0) + value
    return features


def _read_label(row: Row, label: str, problems: Problems) -> str:
    """Set reward and probability from a label, and return its action."""
    action, *numbers = label.split(":")
    values = [parse_number(number) for number in numbers]
    if len(values) != 2 or not action or not all(math.isfinite(value) for value in values):
        row.is_bad = True
        problems.add("malformed label", row.place, "label", label, LABEL)
    else:
        row.reward, row.probability = -values[0], values[1]
    return action


def _to_row(line: _Line, problems: Problems) -> Row:
    row = Row(line.place, None, context=line.features, id=line.tag or None)
    labels = [label for label in line.labels if ":" in label]
    if len(labels) != 1:
        row.is_bad = True
        value = Verbatim(f"{len(labels)} labels")
        problems.add("no label" if not labels else "malformed label", line.place, "label", value, f"one {LABEL}")
        return row
    row.arm = _read_label(row, labels[0], problems)
    if len(line.labels) > 1:  # the other actions of the line were also on offer
        row.offers = [RowOffer(name) for name in dict.fromkeys(label.split(":")[0] for label in line.labels)]
    return row


def _to_block_row(start: int, block: Sequence[_Line | None], problems: Problems) -> Row:
    row = Row(start, None)
    lines = [line for line in block if line is not None]
    shared = [line for line in lines if line.is_shared]
    arms = [line for line in lines if not line.is_shared]
    chosen = [place for place, line in enumerate(arms) if line.labels]
    row.is_bad = len(lines) < len(block)
    tags = [line.tag for line in arms]
    names = tags if all(tags) and len(set(tags)) == len(tags) else [str(i + 1) for i in range(len(arms))]
    row.context = shared[0].features if shared else {}
    row.offers = [RowOffer(name, fields=line.features) for name, line in zip(names, arms, strict=True)]
    if row.is_bad:
        return row
    if len(chosen) == 1 and len(arms[chosen[0]].labels) == 1:
        row.arm = names[chosen[0]]
        _read_label(row, arms[chosen[0]].labels[0], problems)
    else:
        row.is_bad = True
        value = Verbatim(f"{len(chosen)} arms with a label")
        problems.add("no label" if not chosen else "malformed label", start, "label", value, f"one arm with {LABEL}")
    return row
