"""Read the data files of the studies: ``notes.toml``, texts for readers, and experiments of papers in ``papers``."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any


def read_data(name: str) -> str:
    """Return the text of a file beside this module."""
    return resources.files("windvane.lab.studies").joinpath(name).read_text(encoding="utf-8")


def read_notes(section: str) -> dict[str, Any]:
    """Return a section of ``notes.toml``."""
    section_notes: dict[str, Any] = tomllib.loads(read_data("notes.toml"))[section]
    return section_notes
