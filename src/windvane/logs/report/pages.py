"""An analysis as people read it: an answer, sections with texts, tables and figures; and the page that shows them.

The commands print the same description without its figures. The page needs no network: see
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
    """A table of texts. The first ``left`` columns are aligned to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    left: int = 1


@dataclass(frozen=True)
class Picture:
    """A figure, one chart per panel; ``spoken`` describes it to those who cannot see it."""

    figure: Figure
    spoken: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page. ``is_printed``: whether the command prints it, too. ``code`` can be copied."""

    title: str
    lines: Sequence[str] = ()
    table: DataTable | None = None
    pictures: Sequence[Picture] = ()
    code: str = ""
    is_printed: bool = True


@dataclass(frozen=True)
class LogPage:
    """A whole analysis. ``facts``: how it was made, by name."""

    heading: str
    answer: str
    tone: Tone
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)


def write_page(page: LogPage, target: Path) -> Path:
    """Write the page to ``target``, in one step."""
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
    write_atomically(target, text.encode())
    return target
