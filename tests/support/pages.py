"""The pages of the documentation, followed as a reader would follow them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from support.commands import windvane_command
from support.server import CommandResult

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def read_blocks(page: Path, language: str) -> list[str]:
    """Return the code in the fences of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def read_commands(page: Path) -> list[str]:
    """Return the commands ``windvane ...`` that a page shows, without the name of the program and the comments."""
    text = "".join(read_blocks(page, "console")).replace("\\\n", " ")
    return re.findall(r"^windvane (.*?)(?: +#.*)?$", text, flags=re.M)


def run_snippets(page: Path, folder: Path) -> dict[str, Any]:
    """Run the Python code of a page in one namespace, in ``folder``, and return the namespace."""
    namespace: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for number, code in enumerate(read_blocks(page, "python")):
            exec(compile(code, f"{page.name}, snippet {number + 1}", "exec"), namespace)
    return namespace


def run_shown(page: Path, command: str, folder: Path, more: str = "", code: int = 0) -> CommandResult:
    """Run a command that the page shows, with ``more`` options that make it small."""
    assert command in read_commands(page), f"{page.name} does not show: windvane {command}"
    return windvane_command(f"{command} {more}", folder, code)
