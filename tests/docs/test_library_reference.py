"""The reference and explanation pages of the library agree with the code."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest

import windvane
from support.pages import DOCS, run_page
from windvane.agent import archive
from windvane.lab.studies.catalogue import COLUMNS
from windvane.policies import base
from windvane.policies.registry import POLICIES

FORMATS = (DOCS / "reference" / "file-formats.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", ["reference/file-formats.md", "reference/policies/masters-and-detection.md", "explanation/guarantees.md"]
)
def test_a_page_shows_what_its_snippets_print(page: str) -> None:
    result = run_page(DOCS / page)
    assert result.shown
    assert result.printed == result.shown


def read_first_cells(heading: str) -> list[str]:
    """Return the first cells of the table that begins with this line."""
    table = FORMATS[FORMATS.index(heading) :].partition("\n\n")[0]
    return [line.split("|")[1].strip(" `") for line in table.splitlines()[2:]]


def test_the_entries_of_an_agents_file_are_those_in_the_docs() -> None:
    settings = {"learn": "early", "reward_timeout": 10, "default_reward": 0.0}
    agent = windvane.Agent(features={"arms": ["a", "b"]}, **settings)
    agent.decide()
    with np.load(io.BytesIO(agent.to_bytes().partition(b"\n")[2])) as content:
        entries = {name.partition("/")[0] for name in content.files}
        document = json.loads(content["document"].item())
    assert {name.partition("/")[0] for name in read_first_cells("| entry | meaning |\n|---|---|\n| `policy")} == entries
    assert sorted(read_first_cells("| member of the document |")) == sorted(document)


def test_versions_and_codes_of_files_are_those_in_the_docs() -> None:
    assert f"The VERSION is {archive.VERSION};" in FORMATS
    assert f"the version of the format, {base.FORMAT} |" in FORMATS
    quoted = re.search(r'"format", ("version".*?) or ("state")', " ".join(archive.FileError.__doc__.split()))
    assert quoted is not None
    assert read_first_cells("| code | the file |") == ["format", *re.findall(r'"(\w+)"', quoted[0])[1:]]


def test_policies_said_to_have_no_proven_regret_are_those_whose_card_says_so() -> None:
    text = (DOCS / "explanation" / "guarantees.md").read_text(encoding="utf-8")
    sentence = text[text.index("**The default.**") :].partition("have no regret bound")[0]
    without = {name for name, policy in POLICIES.items() if policy.card.guarantee == "none"}
    assert without - {"UniformRandom"} == {
        name for name in POLICIES if re.search(rf"(?<![\w-]){name}(?![\w-])", sentence)
    }


def test_the_table_of_policies_has_the_columns_that_its_page_explains() -> None:
    text = (DOCS / "reference" / "policies" / "index.md").read_text(encoding="utf-8")
    for explained in re.findall(r"\*([A-Z][a-z ]+)\*:", text):
        assert explained.lower() in COLUMNS.values()
