"""What is mended on built pages: landmarks without names, parts that scroll, lists without terms."""

from __future__ import annotations

import accessible_pages

SIGNATURE = '<dt class="sig sig-object py">f(<dl>\n<dd>x: int,</dd>\n<dd>y,</dd>\n</dl>\n)</dt>'
LIST = "<dl><dt>term</dt><dd>meaning</dd></dl>"


def test_landmarks_have_names() -> None:
    html = accessible_pages.mend('<aside class="sidebar-drawer"></aside><aside class="toc-drawer no-toc"></aside>')
    assert '<aside class="sidebar-drawer" aria-label="All pages">' in html
    assert '<aside class="toc-drawer no-toc" aria-label="This page">' in html


def test_what_scrolls_can_have_the_focus() -> None:
    other = '<div class="other"></div>'
    html = accessible_pages.mend('<pre id="a">x</pre><div class="table-wrapper docutils"></div>' + other)
    assert html == '<pre tabindex="0" id="a">x</pre><div tabindex="0" class="table-wrapper docutils"></div>' + other


def test_empty_cells_are_no_heads() -> None:
    html = accessible_pages.mend('<tr><th class="head"><p></p></th><th class="head"><p>new</p></th></tr>')
    assert html == '<tr><td></td><th class="head"><p>new</p></th></tr>'


def test_signatures_are_no_lists() -> None:
    html = accessible_pages.mend(SIGNATURE + LIST)
    assert html.endswith(LIST)
    assert html.count("<dl>") == 1
    assert html.count('<span class="sig-line">') == 2
    assert html.count("<span") == html.count("</span>")


def test_mending_twice_changes_nothing() -> None:
    once = accessible_pages.mend(f'<aside class="toc-drawer"><pre>x</pre>{SIGNATURE}{LIST}</aside>')
    assert accessible_pages.mend(once) == once
