"""The page about reproducing papers: a section and a command for every experiment, and the published values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windvane.lab.studies.reproductions import DEFAULT, NAMES, Reproduction, read_reproduction

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "reproducing.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"^`windvane reproduce(?: --paper ([\w-]+))?`", re.M)
LARGEST_GAP = 0.006  # relative: tables have fewer digits


def read_tables(name: str) -> list[list[list[str]]]:
    """The rows of the tables that follow the command of an experiment, up to the next command or section."""
    commands = {match[1] or DEFAULT: match.end() for match in COMMAND.finditer(PAGE)}
    text = re.split(r"^(?:## |`windvane reproduce)", PAGE[commands[name] :], maxsplit=1, flags=re.M)[0]
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()] for table in tables]


def find_published(reproduction: Reproduction, head: str, label: str) -> float:
    """The last published value of a policy; ``head`` names the environment, if there are several."""
    if head == "T":  # the horizons of one policy
        return float(reproduction.curves[f"T = {label}", "SW-LinUCB"].mean[-1])
    columns = {policy.get("label", policy["policy"]): policy for policy in reproduction.policies}
    column = columns[label].get("published", label)
    place = head if any(environment for environment, _ in reproduction.curves) else ""
    return float(reproduction.curves[place, column].mean[-1])


def test_every_experiment_is_in_the_overview_and_has_a_command() -> None:
    listed = re.findall(r"^\| \[([\w-]+)\]\(#([\w-]+)\) \|", PAGE, re.M)
    assert [name for name, _ in listed] == list(NAMES)
    assert {match[1] or DEFAULT for match in COMMAND.finditer(PAGE)} == set(NAMES)
    for name, heading in listed:
        label = read_reproduction(name).label
        assert heading == re.sub(r"[^\w ]", "", label).lower().replace(" ", "-")


@pytest.mark.parametrize("name", NAMES)
def test_published_values_are_those_of_the_data(name: str) -> None:
    reproduction, compared = read_reproduction(name), set()
    for head, _, *rows in read_tables(name):
        if "published" not in head[2:3]:
            continue
        for label, _, published, *_ in rows:
            if published != "–":
                expected = find_published(reproduction, head[0], label)
                assert float(published.replace(",", "")) == pytest.approx(expected, rel=LARGEST_GAP)
                compared.add(label)
    assert compared


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_that_is_run_has_a_row(name: str) -> None:
    reproduction = read_reproduction(name)
    if len(reproduction.horizons) > 1:
        return  # its rows are horizons
    labels = {row[0] for table in read_tables(name) for row in table[2:]}
    assert {policy.name for spec in reproduction.build_specs() for policy in spec.policies} <= labels
