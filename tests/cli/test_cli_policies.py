"""``windvane policies`` through the real command."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from support.commands import SCRIPT, windvane_command
from windvane.policies.registry import POLICIES

REWARDS = {"linear", "generalized linear", "any"}
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
        for text in policy.card[:5]:
            assert text in line
        alone, together = (float(word.replace(",", "")) for word in line.split()[-2:])
        assert alone > 0
        assert together > 0


def test_json_is_one_document(tmp_path: Path) -> None:
    found = windvane_command("policies --json", tmp_path)
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


def test_help_has_an_example_and_a_wrong_option_is_refused(tmp_path: Path) -> None:
    assert "windvane policies" in windvane_command("policies --help", tmp_path).stdout
    assert "policies" in windvane_command("--help", tmp_path).stdout
    assert "--nonsense" in windvane_command("policies --nonsense", tmp_path, 2).stderr


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
