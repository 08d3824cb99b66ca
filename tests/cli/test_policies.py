"""``windvane policies`` through the real command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.commands import SCRIPT, fails, run_on_terminal, windvane_command
from windvane.bibliography import label_references, parse_bibtex, read_bibliography
from windvane.policies.registry import POLICIES

REWARDS = {"linear", "generalized linear", "a mean per arm", "any"}
FORGETTING = {"none", "discount", "window", "restarts", "detection", "adaptive"}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_a_card(name: str) -> None:
    card = POLICIES[name].card
    assert card.rewards in REWARDS
    assert card.forgetting in FORGETTING
    for text in card:
        assert text
        assert text == text.strip()
        assert "\n" not in text


def test_the_table_lists_every_policy_with_its_cost(tmp_path: Path) -> None:
    found = windvane_command("policies", tmp_path)
    assert found.stderr == ""  # nobody watches: no progress
    lines = found.stdout.splitlines()
    assert lines[0].split()[0] == "policy"
    assert len(lines) == 1 + len(POLICIES) + 1
    for line, (name, policy) in zip(lines[1:], POLICIES.items(), strict=False):
        assert line.startswith(f"{name}  ")
        for text in (*policy.card[:4], label_references(policy.card.reference)):
            assert text in line
        alone, together = (float(word.replace(",", "")) for word in line.split()[-2:])
        assert alone > 0
        assert together > 0


def test_json_on_stdout_and_progress_on_a_terminal() -> None:
    """On a fast machine it takes less than two seconds, and no bar is shown."""
    out, shown = run_on_terminal([str(SCRIPT), "policies", "--json"])
    if "measuring" in shown:
        assert re.search(r"measuring .*/[\d,]+ rounds", shown), shown
    document = json.loads(out)
    assert document["lanes"] == [1, 50]
    assert [row["name"] for row in document["policies"]] == list(POLICIES)
    for row in document["policies"]:
        card = POLICIES[row["name"]].card
        assert {field: row[field] for field in card._fields} == card._asdict()
        assert row["cited_as"] == label_references(card.reference)
        assert row["us_alone"] > 0
        assert row["us_together"] > 0


def test_cite_prints_each_entry_once(tmp_path: Path) -> None:
    out = windvane_command("policies --cite BVD-GLM-UCB,BOB-BVD-GLM-UCB,MASTER-GLM-UCB,GLM-UCB", tmp_path).stdout
    assert list(parse_bibtex(out)) == ["faury2021", "wei2021", "filippi2010"]
    assert out == "\n\n".join(read_bibliography()[key].bibtex for key in ("faury2021", "wei2021", "filippi2010")) + "\n"


def test_a_policy_without_a_paper_is_cited_by_windvane(tmp_path: Path) -> None:
    for name in ("AdaptiveGLMUCB", "UniformRandom"):
        out = windvane_command(f"policies --cite {name}", tmp_path).stdout
        assert list(parse_bibtex(out)) == ["windvane"]


def test_cite_as_json(tmp_path: Path) -> None:
    entries = json.loads(windvane_command("policies --cite D-LinUCB,OFUL,D-LinUCB --json", tmp_path).stdout)
    assert [(entry["key"], entry["policies"]) for entry in entries] == [
        ("russac2019", ["D-LinUCB"]),
        ("abbasi2011", ["OFUL"]),
    ]
    assert entries[0]["label"] == "Russac et al. 2019"
    assert entries[0]["fields"]["author"] == "Russac, Yoan and Vernade, Claire and Cappé, Olivier"
    assert parse_bibtex(entries[0]["bibtex"]).keys() == {"russac2019"}


def test_cite_refuses_unknown_names(tmp_path: Path) -> None:
    fails("policies --cite OFUL,nope", tmp_path, "`name`", "'nope'", "`windvane policies` lists them")
    fails("policies --cite ''", tmp_path, "`name`", "''")
