"""The extension that completes pages and resolves names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import windvane_site
from sphinx.util.inspect import signature as read_signature
from sphinx.util.inspect import stringify_signature

import windvane

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def test_a_marker_is_replaced_by_what_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(windvane_site.WRITERS, "causes", lambda: "| cause |")
    text = windvane_site.complete_text("before\n\n<!-- generated: causes -->\n\nafter\n", "docs/reference/x.md")
    assert text == "before\n\n| cause |\n\nafter\n"
    with pytest.raises(KeyError, match="unheard"):
        windvane_site.complete_text("<!-- generated: unheard -->\n", "docs/reference/x.md")


def test_copied_links_are_right_where_the_page_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CONTRIBUTING.md").write_text(
        "[a](docs/howto/a.md#b) [s](src/x.py) [c](CHANGELOG.md) [w](https://x.org)"
    )
    monkeypatch.setattr(windvane_site, "REPOSITORY", tmp_path)
    page = "docs/developing/contributing.md"
    text = windvane_site.complete_text("<!-- copy: CONTRIBUTING.md -->", page)
    assert text == "[a](../howto/a.md#b) [s](../../src/x.py) [c](../changelog.md) [w](https://x.org)"


def test_links_to_copied_files_lead_to_their_pages() -> None:
    text = "[contribute](../../CONTRIBUTING.md#house-rules), [read](../../README.md), [stay](#here)"
    expected = "[contribute](../developing/contributing.md#house-rules), [read](../index.md), [stay](#here)"
    assert windvane_site.complete_text(text, "docs/howto/a.md") == expected


def test_names_are_found_by_their_path() -> None:
    assert windvane_site.find_object("windvane.records.Decision") is windvane.Decision
    assert windvane_site.find_object("windvane.Agent.decide") is windvane.Agent.decide
    assert windvane_site.find_object("windvane.agent.delays") is not None
    for name in ("windvane.Nobody", "windvane.agent.nothing", "windvane.Agent.sing.loudly", "nothing"):
        assert windvane_site.find_object(name) is None


def test_types_of_attributes_move_to_their_names() -> None:
    lines = [".. attribute:: id", "", "   The id.", "", "   :type: str", "", ".. attribute:: arm", "", "   The arm."]
    windvane_site.join_types(None, "class", "", None, None, lines)  # type: ignore[arg-type]
    assert lines == [".. attribute:: id", "   :type: str", "", "   The id.", "", "", *lines[6:]]
    assert lines[6:] == [".. attribute:: arm", "", "   The arm."]


def test_placeholders_of_types_are_their_names() -> None:
    signature = "(x: TypeAliasForwardRef('npt.ArrayLike') | None, y: int)"
    result = windvane_site.name_aliases(None, "", "", None, None, signature, None)  # type: ignore[arg-type]
    assert result == ("(x: ArrayLike | None, y: int)", None)


def test_types_have_their_names() -> None:
    """Without them, the signature of ``radius`` would be half a page."""
    signature = stringify_signature(read_signature(windvane.theory.radius), unqualified_typehints=True)
    shown, _ = windvane_site.name_aliases(None, "", "", None, None, signature, None)  # type: ignore[arg-type]
    assert shown is not None
    assert shown.startswith("(t: ArrayLike, *, dim: int, gamma: ArrayLike, S: float")


def test_every_page_is_in_one_table_of_contents() -> None:
    """Otherwise a reader does not find it."""
    entries = []
    for page in PAGES:
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            entries += [(page.parent / f"{name}.md").resolve() for name in names]
    assert len(entries) == len(set(entries))
    assert set(entries) == set(PAGES) - {DOCS / "index.md"}
