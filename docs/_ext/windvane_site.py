"""A Sphinx extension: pages that are derived from the code, and links to what is outside the site."""

from __future__ import annotations

import importlib
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cli_reference
import error_reference
import route_reference
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

REPOSITORY = Path(__file__).parents[2]
WRITERS: dict[str, Callable[[], str]] = {
    "commands": cli_reference.write_commands,
    "routes": route_reference.write_routes,
    "schemas": route_reference.write_schemas,
    "exceptions": error_reference.write_exceptions,
    "problems": error_reference.write_problems,
    "causes": error_reference.write_causes,
}
"""What stands in place of a line ``<!-- generated: NAME -->``, by name."""
COPIES = {"CONTRIBUTING.md": "docs/developing/contributing.md", "CHANGELOG.md": "docs/changelog.md"}
"""Files of the repository that pages of the site show, in place of a line ``<!-- copy: FILE -->``."""
GENERATED = re.compile(r"^<!-- (generated|copy): ([\w.]+) -->$", re.M)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")  # of Markdown, to a file
ALIAS = re.compile(r"TypeAliasForwardRef\('([\w.]+)'\)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what follows with the events of a build."""
    app.connect("source-read", complete_page)
    app.connect("missing-reference", accept_internal_name)
    app.connect("autodoc-process-signature", name_aliases, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Insert what is generated or copied, and let links to copied files lead to their pages."""
    file = app.env.doc2path(page, base=False)
    text = GENERATED.sub(lambda match: WRITERS[match[2]]() if match[1] == "generated" else copy(match[2]), source[0])
    source[0] = lead_to_copies(text, f"docs/{file}")


def copy(file: str) -> str:
    """Return a file of the repository as the text of its page."""
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    return LINK.sub(lambda match: relative(match[1], COPIES[file]), text)


def lead_to_copies(text: str, page: str) -> str:
    """Return the text of a page whose links to files of :data:`COPIES` lead to their pages."""
    pages = {"README.md": "docs/index.md", **COPIES}

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))
        return relative(pages[target], page) if target in pages else match[1]

    return LINK.sub(lead, text)


def relative(target: str, page: str) -> str:
    """Return the link from a page to a file, both given from the root of the repository."""
    return posixpath.relpath(target, posixpath.dirname(page))


def accept_internal_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Show a name of the package that is not in the reference without a link. Names that do not exist are warned about.

    Docstrings are also written for those who read the code.
    """
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    scopes = [node.get("py:module"), node.get("py:class"), None]
    names = [target, *(f"{scope}.{target}" for scope in scopes if scope)]
    return content if any(name.startswith("windvane.") and exists(name) for name in names) else None


def exists(name: str) -> bool:
    """Whether ``name`` is a module, or can be reached from one by its attributes."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def name_aliases(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Show the names of types such as ``npt.ArrayLike`` where Sphinx shows its placeholder."""
    return tuple(None if text is None else ALIAS.sub(r"\1", text) for text in (arguments, result))  # type: ignore[return-value]
