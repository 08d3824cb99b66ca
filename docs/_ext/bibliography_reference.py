"""The page of the papers that windvane cites, from ``bibliography.bib`` and the cards of the policies."""

from __future__ import annotations

import markdown_text

from windvane.bibliography import find_references, read_bibliography
from windvane.policies.registry import POLICIES


def write_bibliography() -> str:
    """Return a section for each entry: its text, the policies that come from it, and its BibTeX."""
    policies: dict[str, list[str]] = {key: [] for key in read_bibliography()}
    for name, policy in POLICIES.items():
        for reference in find_references(policy.card.reference):
            policies[reference.key].append(name)
    sections = []
    for reference in sorted(read_bibliography().values(), key=lambda entry: entry.label):
        names = ", ".join(policies[reference.key])
        lines = [f"## {reference.label}", markdown_text.escape(reference.text)]
        lines += [f"Policies: {names}"] if names else []
        sections.append("\n\n".join([*lines, f"```text\n{reference.bibtex}\n```\n"]))
    return "\n".join(sections)
