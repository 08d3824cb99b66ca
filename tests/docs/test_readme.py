"""The README, followed as a reader would: the agent, curl, the lab, and the analysis of a log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.pages import ROOT, run_page, run_shown
from support.service_pages import Shell, parse_documents, read_commands
from windvane import Client
from windvane.testing import serve

PAGE = ROOT / "README.md"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serve(tmp_path_factory.mktemp("store") / "windvane.db") as client:
        yield client


def test_it_can_be_read_in_ten_minutes() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_snippets(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDVANE_URL", client.url)
    agent, counts = run_page(PAGE).printed
    assert agent.startswith("show the banner: ")
    assert "predicted 0.5" in agent
    assert counts.startswith("Counts(decisions=1, rewards=1, pending=0, held=1, ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_curl(client: Client, tmp_path: Path) -> None:
    (block,) = (block for block in read_commands(PAGE) if "curl " in block)
    shell = Shell(tmp_path, client.url.rpartition(":")[2])
    (tmp_path / ".curlrc").write_text("fail\nsilent\n")
    ready, created, decision, recorded = parse_documents(shell.run(block))
    assert ready["status"] == "ready"
    assert created["settings"]["features"]["arms"] == ["red", "blue"]
    assert decision["arm"] in ("red", "blue")
    assert recorded["status"] == "recorded"


def test_the_commands_of_the_lab(tmp_path: Path) -> None:
    run_shown(PAGE, "new spec.toml", tmp_path)
    spec = (tmp_path / "spec.toml").read_text(encoding="utf-8")
    assert spec.count("runs = 50 ") == spec.count("horizon = 3000 ") == 1
    small = spec.replace("runs = 50 ", "runs = 3 ").replace("horizon = 3000 ", "horizon = 60 ")
    (tmp_path / "spec.toml").write_text(small, encoding="utf-8")
    run_shown(PAGE, "simulate spec.toml", tmp_path, "--jobs 1")
    run_shown(PAGE, "report spec-results", tmp_path)
    assert (tmp_path / "spec-results" / "report.html").stat().st_size > 10_000
    assert "BVD-GLM-UCB" in run_shown(PAGE, "compare spec-results", tmp_path).stdout


def test_the_commands_for_logs(client: Client, tmp_path: Path) -> None:
    # without a seed, about one log in fifty would fail one of the tests of its propensities, which are at 1 %
    client.create("shop", features={"arms": ["red", "blue"]}, epsilon=0.5, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(300):
        decision = client.decide("shop")
        client.reward("shop", decision, float(rng.random() < {"red": 0.6, "blue": 0.3}[decision.arm]))
    lines = (json.dumps(event) for event in client.events("shop"))
    (tmp_path / "log.ndjson").write_text("\n".join(lines), encoding="utf-8")
    assert "The log is sound: 300 rows" in run_shown(PAGE, "check log.ndjson", tmp_path).stdout
    assert "drift" in run_shown(PAGE, "drift log.ndjson", tmp_path).stdout
    replay = "replay log.ndjson --policy AdaptiveGLMUCB --policy OFUL"
    assert "OFUL" in run_shown(PAGE, replay, tmp_path, "--jobs 1").stdout
