"""The papers that windvane cites, from ``bibliography.bib``: labels, texts and BibTeX entries.

The card of a policy names its source by the key of an entry, such as ``"faury2021"``; several keys have commas between
them. ``"windvane"`` stands for a policy of our own, and ``"-"`` for one that needs no source.

>>> from windvane.bibliography import label_references, read_bibliography
>>> label_references("faury2021, kim2020")
'Faury et al. 2021, Kim and Tewari 2020'
>>> read_bibliography()["russac2019"].address
'arXiv:1909.09146'
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

OWN = "windvane"  # the key of the entry about windvane itself
NONE = "-"  # instead of a key: there is no source

_ENTRY = re.compile(r"@(\w+)\s*\{\s*([^\s,{}]+)\s*,")
_FIELD = re.compile(r"\s*(\w+)\s*=\s*\{")
_ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308", "^": "\u0302", "~": "\u0303"}  # combining characters
_ACCENTED = re.compile(r"\{\\(['`\"^~])(\w)\}")


class Reference(NamedTuple):
    """An entry of the bibliography.

    Parameters
    ----------
    key, kind
        The key of the entry, and its type, such as "inproceedings".
    fields
        The fields by name, as BibTeX has them.
    bibtex
        The whole entry as BibTeX.

    Examples
    --------
    >>> from windvane.bibliography import read_bibliography
    >>> read_bibliography()["russac2020"].authors
    [('Russac', 'Yoan'), ('Cappé', 'Olivier'), ('Garivier', 'Aurélien')]
    """

    key: str
    kind: str
    fields: Mapping[str, str]
    bibtex: str

    def read(self, field: str) -> str:
        """Return a field as plain text; empty if the entry does not have it."""
        return decode_latex(self.fields.get(field, ""))

    @property
    def authors(self) -> list[tuple[str, str]]:
        """Family and given name of each author; the given name of an organisation is empty."""
        parts = [decode_latex(person).partition(", ") for person in re.split(r"\s+and\s+", self.fields["author"])]
        return [(family, given) for family, _, given in parts]

    @property
    def label(self) -> str:
        """Authors and year, as texts cite the entry: "Faury et al. 2021". Software is cited by its name."""
        if self.kind == "software":
            return self.read("title").partition(":")[0]
        families = [family for family, _ in self.authors]
        names = f"{families[0]} et al." if len(families) > 2 else " and ".join(families)
        return f"{names} {self.read('year')}"

    @property
    def text(self) -> str:
        """The entry in one line."""
        names = [f"{given} {family}".strip() for family, given in self.authors]
        people = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        read, venue = self.read, self.read("journal") or self.read("booktitle")
        volume = read("volume") + (f" ({read('number')})" if read("number") else "")
        numbered = f"{venue}, {read('series')} {volume}" if read("series") else f"{venue} {volume}"
        pages = f"pp. {read('pages')}" if read("pages") else ""
        version = f"Version {read('version')}" if read("version") else ""
        details = ", ".join(filter(None, [numbered.strip(), pages, version, read("year")]))
        return " ".join(f"{part}." for part in [people, read("title"), details, self.address] if part)

    @property
    def address(self) -> str:
        """Where the entry can be found: its DOI, or its number on arXiv; empty if neither is known."""
        if doi := self.read("doi"):
            return f"doi:{doi}"
        return f"arXiv:{self.read('eprint')}" if self.read("eprint") else ""


def decode_latex(text: str) -> str:
    r"""Return a BibTeX value as plain text: accents as Unicode, without braces and line breaks.

    Parameters
    ----------
    text
        The value of a field, without its outer braces.

    Examples
    --------
    >>> decode_latex(r"Capp{\'e}, {PG-TS}, 71--80")
    'Cappé, PG-TS, 71–80'
    """
    text = _ACCENTED.sub(lambda match: match[2] + _ACCENTS[match[1]], text)
    text = unicodedata.normalize("NFC", text).replace("--", "\N{EN DASH}")
    return " ".join(re.sub(r"[{}]", "", text).split())


@functools.cache
def read_bibliography() -> Mapping[str, Reference]:
    """Return all entries by their keys, in the order of the file.

    Examples
    --------
    >>> read_bibliography()["faury2021"].label
    'Faury et al. 2021'
    """
    text = resources.files("windvane").joinpath("bibliography.bib").read_text(encoding="utf-8")
    return MappingProxyType(parse_bibtex(text))


def parse_bibtex(text: str) -> dict[str, Reference]:
    """Return the entries of a BibTeX text, whose values are in braces; text between entries is ignored.

    Parameters
    ----------
    text
        For example the content of a file.

    Examples
    --------
    >>> parse_bibtex("@misc{a, title = {On {A}}, year = {2020}}")["a"].fields["title"]
    'On {A}'
    """
    references: dict[str, Reference] = {}
    place = 0
    while start := _ENTRY.search(text, place):
        fields: dict[str, str] = {}
        place = start.end()
        while field := _FIELD.match(text, place):
            end = _find_closing(text, field.end())
            if field[1] in fields:
                raise ValueError(f"{start[2]}: two fields {field[1]}")
            fields[field[1]] = text[field.end() : end - 1]
            place = end + (text[end : end + 1] == ",")
        closing = re.compile(r"\s*\}").match(text, place)
        if closing is None or start[2] in references:
            raise ValueError(f"{start[2]}: {'a second entry' if closing else 'not an entry with values in braces'}")
        place = closing.end()
        references[start[2]] = Reference(start[2], start[1].lower(), fields, text[start.start() : place])
    return references


def _find_closing(text: str, start: int) -> int:
    """Return the place after the brace that closes the one before ``start``."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    raise ValueError(f"no brace closes {text[start : start + 40]!r}")


def find_references(keys: str) -> list[Reference]:
    """Return the entries that the keys on a card name. Texts that are no keys are left out.

    Parameters
    ----------
    keys
        Keys with commas between them.

    Examples
    --------
    >>> [reference.read("year") for reference in find_references("russac2019, russac2020")]
    ['2019', '2020']
    """
    known = read_bibliography()
    return [known[key] for key in _split(keys) if key in known]


def label_references(keys: str) -> str:
    """Return the labels of the entries that the keys on a card name. A text that is no key stands for itself.

    Parameters
    ----------
    keys
        Keys with commas between them.

    Examples
    --------
    >>> label_references("faury2021"), label_references("windvane"), label_references("a blog post")
    ('Faury et al. 2021', 'windvane', 'a blog post')
    """
    known = read_bibliography()
    return ", ".join(known[key].label if key in known else key for key in _split(keys))


def _split(keys: str) -> list[str]:
    return [key.strip() for key in keys.split(",")]
