"""The pages of the documentation, read and followed as a reader would follow them."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import windvane_command
from support.server import CommandResult

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LIBRARY_HOWTOS = [
    "choose-link-and-bounds", "choose-forgetting", "contexts-and-features", "late-rewards", "changing-arms",
    "revenue-and-counts", "priors-from-history", "explain-and-watch", "save-load-upgrade", "arrays-and-lanes",
    "compile-and-threads", "custom-links", "write-a-policy",
]  # fmt: skip
"""Pages of docs/howto whose snippets tests/docs/test_library_howtos.py runs."""
# A snippet of Python and, if a block of text follows directly, what the page says that it prints.
_SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.M | re.S)


@dataclass(frozen=True)
class PageRun:
    """A page whose snippets were run in one namespace: its ``names``, and what each snippet showed and printed."""

    names: dict[str, Any]
    shown: list[str]
    printed: list[str]


def read_blocks(page: Path, language: str) -> list[str]:
    """Return the code in the fences of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def read_commands(page: Path) -> list[str]:
    """Return the commands ``windvane ...`` that a page shows, without the name of the program and the comments."""
    text = re.sub(r" *\\\n *", " ", "".join(read_blocks(page, "console")))  # a backslash continues a line
    return re.findall(r"^(?:sudo -u windvane )?windvane (.*?)(?: +#.*)?$", text, flags=re.M)


def run_page(page: Path) -> PageRun:
    """Run all snippets of a page in their order, and keep what they print."""
    names: dict[str, Any] = {}
    shown, printed = [], []
    for number, (code, text) in enumerate(_SNIPPET.findall(page.read_text(encoding="utf-8")), start=1):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            _run_snippet(page, number, code, names)
        shown.append(text)
        printed.append(output.getvalue())
    return PageRun(names, shown, printed)


def run_snippets(page: Path, folder: Path) -> dict[str, Any]:
    """Run all snippets of a page in ``folder``, where they may write files, and return their names."""
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        for number, code in enumerate(read_blocks(page, "python"), start=1):
            _run_snippet(page, number, code, names)
    return names


def _run_snippet(page: Path, number: int, code: str, names: dict[str, Any]) -> None:
    exec(compile(code, f"{page.name}, snippet {number}", "exec"), names)


def run_shown(page: Path, command: str, folder: Path, more: str = "", code: int = 0) -> CommandResult:
    """Run a command that the page shows, with ``more`` options that make it small."""
    assert command in read_commands(page), f"{page.name} does not show: windvane {command}"
    return windvane_command(f"{command} {more}", folder, code)
