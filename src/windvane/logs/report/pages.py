"""The description of a report (an answer, and sections with text, tables and figures), and its HTML page.

The commands print the same description without figures. The page is self-contained: see
:mod:`windvane.lab.report.assets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from windvane._files import write_atomically
from windvane.lab.figures.description import Figure

Tone = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class DataTable:
    """A table of strings. The first ``left`` columns are left-aligned."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    left: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure, one chart per panel. ``spoken`` is its description for screen readers."""

    figure: Figure
    spoken: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a report. ``is_printed``: whether the command prints it as well. ``code`` is text to copy."""

    title: str
    lines: Sequence[str] = ()
    table: DataTable | None = None
    pictures: Sequence[Picture] = ()
    code: str = ""
    is_printed: bool = True


@dataclass(frozen=True)
class LogPage:
    """A whole report. ``facts`` say how it was computed, by name."""

    heading: str
    answer: str
    tone: Tone
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)


def write_page(page: LogPage, target: Path) -> Path:
    """Write the page to ``target`` atomically, and return ``target``."""
    from windvane.lab.figures.plotly_renderer import render
    from windvane.lab.report.assets import load_templates, page_scripts, read_asset, security_policy

    charts = {}
    for i, section in enumerate(page.sections):
        for j, picture in enumerate(section.pictures):
            for k, chart in enumerate(render(picture.figure)):
                charts[f"chart-{i}-{j}-{k}"] = chart
    scripts = page_scripts()
    template = load_templates("windvane.logs.report", "windvane.lab.report").get_template("log.html")
    text = template.render(
        page=page,
        charts=charts,
        scripts=scripts,
        security_policy=security_policy(scripts),
        style=read_asset("report.css"),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode(errors="backslashreplace"))  # a JSON log may hold lone surrogates
    return target
