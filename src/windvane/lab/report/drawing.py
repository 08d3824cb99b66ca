"""Draw many files one after the other, and tell how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from windvane.lab.figures.description import Figure
from windvane.lab.figures.matplotlib_renderer import KINDS, save

Plan = dict[str, Callable[[], Figure]]
"""Figures by the name of their files, each described when its turn comes."""
FilesDrawn = Callable[[int, int], None]
"""Called with the number of files written so far and of all files."""


def draw_all(
    plan: Mapping[str, Callable[[], Figure]],
    folder: Path,
    write_page: Callable[[], Path] | None = None,
    progress: FilesDrawn | None = None,
) -> list[Path]:
    """Draw the figures into ``folder``, then write the page; returns the files written."""
    written: list[Path] = []
    total = len(KINDS) * len(plan) + (write_page is not None)
    for name, describe in plan.items():
        written += save(describe(), folder, name)
        if progress is not None:
            progress(len(written), total)
    if write_page is not None:
        written.append(write_page())
        if progress is not None:
            progress(len(written), total)
    return written
