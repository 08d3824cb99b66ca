"""The bibliography: an independent reader agrees, every key and every entry is used, and all that shows it agrees."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pybtex.database import Entry, parse_file, parse_string
from pybtex.richtext import Text

import windvane
from windvane.bibliography import (
    NONE,
    Reference,
    decode_latex,
    find_references,
    label_references,
    parse_bibtex,
    read_bibliography,
)
from windvane.documentation import add_references
from windvane.policies.registry import POLICIES

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src" / "windvane" / "bibliography.bib"
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PAPERS = [reference for reference in read_bibliography().values() if reference.kind != "software"]


@pytest.fixture(scope="module")
def parsed() -> dict[str, Entry]:
    """The entries as pybtex reads them."""
    return dict(parse_file(str(FILE)).entries)


# --- reading ----------------------------------------------------------------------------------------------------------


def plain(latex: str) -> str:
    """What pybtex makes of a value."""
    return str(Text.from_latex(latex))


def test_an_independent_reader_finds_the_same(parsed: dict[str, Entry]) -> None:
    assert list(parsed) == list(read_bibliography())
    for key, reference in read_bibliography().items():
        entry = parsed[key]
        assert reference.kind == entry.type
        people = [
            (plain(" ".join(person.last_names)), plain(" ".join(person.first_names + person.middle_names)))
            for person in entry.persons["author"]
        ]
        assert reference.authors == people
        values = {name: plain(value) for name, value in entry.fields.items()}
        assert {name: reference.read(name) for name in reference.fields if name != "author"} == values


def test_an_entry_is_kept_as_it_is_written() -> None:
    """So that what the command prints can be pasted into a file."""
    for key, reference in read_bibliography().items():
        assert list(parse_string(reference.bibtex, "bibtex").entries) == [key]
        assert reference.bibtex in FILE.read_text(encoding="utf-8")


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
nested = st.recursive(
    words, lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda x: "{" + " ".join(x) + "}")
)


@given(st.dictionaries(words, st.dictionaries(words.map(str.lower), nested, min_size=1, max_size=4), max_size=4))
def test_entries_come_back_from_text(entries: dict[str, dict[str, str]]) -> None:
    def write(key: str, fields: dict[str, str]) -> str:
        return f"@misc{{{key},\n" + ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items()) + "\n}"

    text = "a comment\n" + "\n\n".join(write(*item) for item in entries.items())
    assert {key: dict(reference.fields) for key, reference in parse_bibtex(text).items()} == entries


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@misc{a, title = {x}}\n@misc{a, title = {y}}", "a: a second entry"),
        ("@misc{a, title = {x}, title = {y}}", "a: two fields title"),
        ('@misc{a, title = "x"}', "a: not an entry with values in braces"),
        ("@misc{a, title = {x} year = {y", "no brace closes 'y'"),
        ("@misc{a, title = {{x}", "no brace closes"),
    ],
)
def test_a_mistake_in_the_file_is_reported(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_bibtex(text)


# --- the file ---------------------------------------------------------------------------------------------------------


def test_labels_and_keys_are_unique_and_in_order() -> None:
    labels = [reference.label for reference in read_bibliography().values()]
    assert len(labels) == len(set(labels))
    assert list(read_bibliography()) == sorted(read_bibliography())


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.key)
def test_a_key_says_who_and_when(paper: Reference) -> None:
    family = decode_latex(paper.authors[0][0]).split("-")[0].lower()
    assert paper.key == f"{family}{paper.read('year')}"


@pytest.mark.parametrize("reference", read_bibliography().values(), ids=lambda reference: reference.key)
def test_every_entry_has_what_its_type_needs_and_can_be_printed(reference: Reference) -> None:
    required = {
        "article": {"author", "title", "journal", "year"},
        "inproceedings": {"author", "title", "booktitle", "year"},
        "misc": {"author", "title", "year", "eprint", "archiveprefix"},
        "software": {"author", "title", "version"},
    }
    assert required[reference.kind] <= set(reference.fields)
    for value in (reference.text, reference.label, *map(reference.read, reference.fields)):
        assert value
        assert not set(value) & set("{}\\"), value
    if "pages" in reference.fields:
        first, last = map(int, reference.fields["pages"].split("--"))
        assert first < last


def test_every_entry_is_used() -> None:
    """By a card, by a study, or cited on a page or in a docstring by its label."""
    sources = [path for path in ROOT.rglob("src/windvane/**/*") if path.suffix in (".py", ".toml")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*sources, *ROOT.rglob("docs/**/*.md")])
    text = re.sub(r"\s+", " ", text)
    unused = set()
    for reference in PAPERS:
        names, year = reference.label.rsplit(" ", 1)
        cited = f'"{reference.key}"', f"{names} {year}", f"{names} ({year}"
        if not any(form in text for form in cited):
            unused.add(reference.key)
    assert unused == set()


@pytest.mark.parametrize("name", POLICIES)
def test_the_references_of_every_policy_are_known(name: str) -> None:
    keys = POLICIES[name].card.reference
    if keys != NONE:
        assert [reference.key for reference in find_references(keys)] == keys.split(", ")


# --- what shows it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_docstrings_name_the_papers(name: str) -> None:
    """In numpydoc's order: after the parameters and before the examples."""
    policy = POLICIES[name]
    docstring = inspect.getdoc(policy) or ""
    papers = [paper for paper in find_references(policy.card.reference) if paper.kind != "software"]
    assert docstring.count("References\n----------\n") == bool(papers)
    if papers:
        parameters, section = docstring.split("References\n----------\n")
        section, _, examples = section.partition("Examples\n--------\n")
        assert "Parameters\n----------\n" in parameters
        assert ">>> " in examples
        assert " ".join(section.split()) == " ".join(paper.text for paper in papers)


def test_references_come_before_the_examples_of_a_docstring() -> None:
    section = "References\n----------\n"
    assert add_references("Do.\n\nExamples\n--------\n>>> 1\n", "kim2020").index(section) < 10
    assert add_references("Do.\n", "kim2020").startswith(f"Do.\n\n{section}Baekjin Kim and Ambuj Tewari.")
    for keys in ("-", "windvane", "a blog post"):
        assert add_references("Do.\n", keys) == "Do.\n"


def test_a_reference_that_is_no_key_stands_for_itself() -> None:
    assert label_references("practice") == "practice"
    assert label_references("-") == "-"
    assert find_references("practice") == []


def test_the_citation_file_agrees() -> None:
    """It is generated; read with a YAML reader it names the same papers, and windvane as the bibliography does."""
    own = read_bibliography()["windvane"]
    assert own.read("title") == CITATION["title"]
    assert [family for family, _ in own.authors] == [author["name"] for author in CITATION["authors"]]
    assert own.read("version") == CITATION["version"] == windvane.__version__
    assert own.read("license") == CITATION["license"]
    assert len(CITATION["references"]) == len(PAPERS)
    for paper, cited in zip(PAPERS, CITATION["references"], strict=True):
        assert (cited["title"], cited["year"]) == (paper.read("title"), int(paper.read("year")))
        assert [(one["family-names"], one["given-names"]) for one in cited["authors"]] == paper.authors
        assert cited.get("doi", "") == paper.read("doi")
        assert cited.get("collection-title", cited.get("journal", "")) == (
            paper.read("booktitle") or paper.read("journal")
        )
        assert cited.get("volume", "") == paper.read("volume")
        pages = f"{cited['start']}\N{EN DASH}{cited['end']}" if "start" in cited else ""
        assert pages == paper.read("pages")
        assert cited.get("url", "").removeprefix("https://arxiv.org/abs/") == paper.read("eprint")
