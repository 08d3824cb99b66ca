"""Pages of the documentation and their snippets, run as a reader would run them."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
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


def run_page(page: Path) -> PageRun:
    """Run all snippets of a page in their order."""
    names: dict[str, Any] = {}
    shown, printed = [], []
    for number, (code, text) in enumerate(_SNIPPET.findall(page.read_text(encoding="utf-8")), start=1):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, f"{page.name}, snippet {number}", "exec"), names)
        shown.append(text)
        printed.append(output.getvalue())
    return PageRun(names, shown, printed)
