"""Mend what Sphinx and its theme write that a keyboard or a screen reader cannot use; axe-core finds it."""

from __future__ import annotations

import re

LABELS = {
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="This page">',
    '<aside class="toc-drawer no-toc">': '<aside class="toc-drawer no-toc" aria-label="This page">',
}
"""Names for the landmarks of the theme."""
CELLS = {'<th class="head"><p></p></th>': "<td></td>"}
"""An empty cell is no head of a column."""
SCROLLED = re.compile(r'<(?=pre[ >]|div class="table-wrapper)(\w+)\b(?! tabindex)')
"""What may be wider than its column, and then scrolls: with the keyboard only if it can have the focus."""
SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.S)
LINES = {
    "<dl>": '<span class="sig-params">',
    "</dl>": "</span>",
    "<dd>": '<span class="sig-line">',
    "</dd>": "</span>",
}
"""A signature of several lines is a list of descriptions without terms, which is no valid list."""


def mend(html: str) -> str:
    """Return a page with named landmarks, scrolled parts that can have the focus, and valid signatures.

    Examples
    --------
    >>> mend('<pre>x</pre>')
    '<pre tabindex="0">x</pre>'
    """
    for plain, better in (LABELS | CELLS).items():
        html = html.replace(plain, better)
    html = SCROLLED.sub(r'<\1 tabindex="0"', html)
    return SIGNATURE.sub(lambda match: _replace_lists(match[0]), html)


def _replace_lists(signature: str) -> str:
    for tag, replacement in LINES.items():
        signature = signature.replace(tag, replacement)
    return signature
