"""A Sphinx extension: pages that are derived from the code, and links to what is outside the site."""

from __future__ import annotations

import contextlib
import importlib
import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accessible_pages
import bibliography_reference
import cli_reference
import error_reference
import route_reference
from docutils import nodes
from numpy.typing import ArrayLike
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation

from windvane.arguments import Array, Index, Mask

REPOSITORY = Path(__file__).parents[2]
WRITERS: dict[str, Callable[[], str]] = {
    "commands": cli_reference.write_commands,
    "routes": route_reference.write_routes,
    "schemas": route_reference.write_schemas,
    "exceptions": error_reference.write_exceptions,
    "problems": error_reference.write_problems,
    "causes": error_reference.write_causes,
    "bibliography": bibliography_reference.write_bibliography,
}
"""What stands in place of a line ``<!-- generated: NAME -->``, by name."""
COPIES = {"CONTRIBUTING.md": "docs/developing/contributing.md", "CHANGELOG.md": "docs/changelog.md"}
"""Files of the repository that pages of the site show, in place of a line ``<!-- copy: FILE -->``."""
GENERATED = re.compile(r"^<!-- (generated|copy): ([\w.]+) -->$", re.M)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")  # of Markdown, to a file
ATTRIBUTE, TYPE = re.compile(r"\.\. attribute:: "), re.compile(r"   :type: ")
ALIASES = {
    stringify_annotation(alias, "smart"): name
    for name, alias in {"ArrayLike": ArrayLike, "Array": Array, "Index": Index, "Mask": Mask}.items()
}
"""Names of types, by what Sphinx shows instead."""
PLACEHOLDER = re.compile(r"TypeAliasForwardRef\('(?:npt\.)?(\w+)'\)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what follows with the events of a build."""
    app.connect("source-read", complete_page)
    app.connect("missing-reference", resolve_name)
    app.connect("autodoc-process-docstring", join_types, priority=900)
    app.connect("autodoc-process-signature", name_aliases, priority=900)
    app.connect("build-finished", mend_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def complete_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Insert what is generated or copied, and let links to copied files lead to their pages."""
    source[0] = complete_text(source[0], f"docs/{app.env.doc2path(page, base=False)}")


def complete_text(text: str, page: str) -> str:
    """Return the whole text of a page, which is given from the root of the repository."""
    whole = GENERATED.sub(lambda match: WRITERS[match[2]]() if match[1] == "generated" else copy(match[2]), text)
    return lead_to_copies(whole, page)


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


def resolve_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find what a docstring names as the code does: by the module that defines it, or within that module.

    Names that are not in the reference are shown without a link, because docstrings are also written for those who read
    the code. Names that do not exist are warned about.
    """
    if node.get("refdomain") != "py":
        return None
    target, scopes = str(node["reftarget"]), [node.get("py:module"), node.get("py:class")]
    for name in [target, *(f"{scope}.{target}" for scope in scopes if scope)]:
        if name.startswith("windvane.") and (found := find_object(name)) is not None:
            place = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}"
            entry = env.domains.python_domain.objects.get(place)
            if entry is None:
                return content
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, place)
    return None


def find_object(name: str) -> object | None:
    """Return a module, or what can be reached from one by its attributes; None if there is no such thing."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            found: object | None = importlib.import_module(".".join(parts[:length]))
            for part in parts[length:]:
                found = getattr(found, part, None)
            return found
    return None


def mend_pages(app: Sphinx, error: Exception | None) -> None:
    """Mend the accessibility of all pages that were built."""
    for path in Path(app.outdir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        path.write_text(accessible_pages.mend(html), encoding="utf-8")


def join_types(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Show the type of an attribute beside its name; napoleon has written it below the text."""
    start = 0
    for place, line in enumerate(lines):
        if ATTRIBUTE.match(line):
            start = place + 1
        elif TYPE.match(line):
            lines.insert(start, lines.pop(place))


def name_aliases(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, result: str | None
) -> tuple[str | None, str | None]:
    """Show the names of types such as ``ArrayLike`` where Sphinx shows what they stand for, or its placeholder."""
    return _name_aliases(arguments), _name_aliases(result)


def _name_aliases(signature: str | None) -> str | None:
    if signature is None:
        return None
    for expanded, name in ALIASES.items():
        signature = signature.replace(expanded, name)
    return PLACEHOLDER.sub(r"\1", signature)
