"""``windvane policies`` through the real command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from windvane.policies.registry import POLICIES

SCRIPT = Path(sys.executable).with_name("windvane")
REWARDS = {"linear", "generalized linear", "any"}
FORGETTING = {"none", "discount", "window", "restarts", "detection", "adaptive"}


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    found = subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False)
    assert found.returncode == code, found.stderr
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_a_card(name: str) -> None:
    card = POLICIES[name].card
    assert card.rewards in REWARDS
    assert card.forgetting in FORGETTING
    for text in card:
        assert text
        assert text == text.strip()
        assert "\n" not in text


def test_the_table_lists_every_policy_with_its_cost() -> None:
    found = run("policies")
    assert found.stderr == ""  # nobody watches: no progress
    lines = found.stdout.splitlines()
    assert lines[0].split()[0] == "policy"
    assert len(lines) == 1 + len(POLICIES) + 1
    for line, (name, policy) in zip(lines[1:], POLICIES.items(), strict=False):
        assert line.startswith(f"{name}  ")
        for text in policy.card[:5]:
            assert text in line
        alone, together = (float(word.replace(",", "")) for word in line.split()[-2:])
        assert alone > 0
        assert together > 0


def test_json_is_one_document() -> None:
    found = run("policies", "--json")
    assert found.stderr == ""
    document = json.loads(found.stdout)
    assert document["lanes"] == [1, 50]
    assert [row["name"] for row in document["policies"]] == list(POLICIES)
    for row in document["policies"]:
        assert {field: row[field] for field in POLICIES[row["name"]].card._fields} == POLICIES[
            row["name"]
        ].card._asdict()
        assert row["us_alone"] > 0
        assert row["us_together"] > 0


def test_help_has_an_example_and_a_wrong_option_is_refused() -> None:
    assert "windvane policies" in run("policies", "--help").stdout
    assert "policies" in run("--help").stdout
    assert "--nonsense" in run("policies", "--nonsense", code=2).stderr


def test_progress_is_shown_on_a_terminal() -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen([SCRIPT, "policies", "--json"], stdout=subprocess.PIPE, stderr=slave, text=True)
    os.close(slave)
    shown = b""
    while True:  # what is written to a terminal must be read, or the writer waits
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed: all is read
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    document, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(document)["policies"]
    assert b"measuring" in shown
