"""Write what is derived from the registry of policies, leaderboards and bibliography: stubs, tables, and citations.

The stubs and the table in the documentation list the policies; CITATION.cff lists the papers. Another table in the
documentation says which policy is best for what, by the leaderboards of both benchmarks.

``make generate`` runs it. ``python tools/generate.py --check`` writes nothing and fails if a file is out of date.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

from blocks import POLICY_PAGES, ROOT, markdown_markers, replace_block
from choices import choices_table

from windvane.bibliography import Reference, read_bibliography
from windvane.lab.studies.catalogue import markdown_table
from windvane.policies.registry import REGISTERED

PACKAGE = ROOT / "src" / "windvane"
LONGEST_LINE = 120


def policies_stub_lines() -> list[str]:
    """Return the lines of ``windvane/policies/__init__.pyi`` that name the registered policies."""
    names: dict[str, list[str]] = {}
    for module, name in sorted(place.split(".") for place in REGISTERED):
        names.setdefault(module, []).append(f"{name} as {name}")
    return [line for module, imported in names.items() for line in import_lines(module, imported)]


def import_lines(module: str, imported: list[str]) -> list[str]:
    """Return the import of some names, in lines that are not too long."""
    line = f"from .{module} import {', '.join(imported)}"
    if len(line) <= LONGEST_LINE:
        return [line]
    half = len(imported) // 2
    return [*import_lines(module, imported[:half]), *import_lines(module, imported[half:])]


def package_stub_lines() -> list[str]:
    """Return the lines of ``windvane/__init__.pyi`` that name the registered policies."""
    names = [f"{name} as {name}" for name in sorted(place.split(".")[1] for place in REGISTERED)]
    return [f"from .policies import {', '.join(names[i : i + 3])}" for i in range(0, len(names), 3)]


def citation_lines() -> list[str]:
    """Return the lines of ``CITATION.cff`` about the papers of the bibliography, in the Citation File Format 1.2."""
    papers = [reference for reference in read_bibliography().values() if reference.kind != "software"]
    return ["references:", *(line for paper in papers for line in paper_lines(paper))]


def paper_lines(paper: Reference) -> list[str]:
    """Return the lines of one paper; values are JSON, which is YAML too."""
    quote = functools.partial(json.dumps, ensure_ascii=False)
    names = {"booktitle": "collection-title", "journal": "journal", "volume": "volume", "number": "issue", "doi": "doi"}
    kinds = {"inproceedings": "conference-paper", "article": "article", "misc": "article"}
    lines = [f"type: {kinds[paper.kind]}", f"title: {quote(paper.read('title'))}", "authors:"]
    lines += [f"  - {{family-names: {quote(family)}, given-names: {quote(given)}}}" for family, given in paper.authors]
    lines += [f"{names[field]}: {quote(paper.read(field))}" for field in names if field in paper.fields]
    if "pages" in paper.fields:
        start, end = paper.read("pages").split("\N{EN DASH}")
        lines += [f"start: {start}", f"end: {end}"]
    if "publisher" in paper.fields:
        lines.append(f"publisher: {{name: {quote(paper.read('publisher'))}}}")
    lines.append(f"year: {paper.read('year')}")
    if "eprint" in paper.fields:
        lines.append(f"url: {quote('https://arxiv.org/abs/' + paper.read('eprint'))}")
    return [f"  {'-' if place == 0 else ' '} {line}" for place, line in enumerate(lines)]


def generated_blocks() -> list[tuple[Path, str, str, str]]:
    """Return each generated block: its file, the lines before and after it, and what belongs between them."""
    python = ("# policies:begin\n", "# policies:end\n")
    note = "# Generated from registry.py by `make generate`.\n"
    return [
        (PACKAGE / "policies" / "__init__.pyi", *python, note + "\n".join(policies_stub_lines()) + "\n"),
        (PACKAGE / "__init__.pyi", *python, note + "\n".join(package_stub_lines()) + "\n"),
        (POLICY_PAGES / "index.md", *markdown_markers("policies"), markdown_table()),
        (POLICY_PAGES / "index.md", *markdown_markers("choices"), choices_table()),
        (ROOT / "CITATION.cff", "# references:begin\n", "# references:end\n", "\n".join(citation_lines()) + "\n"),
    ]


def stale_files() -> dict[Path, str]:
    """Return the files that are out of date, with what they should contain."""
    wanted: dict[Path, str] = {}
    for path, begin, end, content in generated_blocks():
        text = wanted.get(path) or path.read_text(encoding="utf-8")
        wanted[path] = replace_block(text, begin, end, content)
    return {path: text for path, text in wanted.items() if text != path.read_text(encoding="utf-8")}


def main(arguments: list[str]) -> int:
    stale = stale_files()
    for path, wanted in stale.items():
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is out of date; run `make generate`", file=sys.stderr)
        else:
            path.write_text(wanted, encoding="utf-8")
            print(f"{path.relative_to(ROOT)} written")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
