"""The pages about other libraries, followed step by step: what they promise is what comes out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2
import numpy as np
import pytest
from mabwiser.mab import MAB

import windvane
from support.pages import run_page
from support.server import run_server, serve
from support.service_pages import HOWTO, read_commands
from windvane.service.http.tracing import FLUSH_SECONDS


def test_scikit_learn() -> None:
    page = run_page(HOWTO / "scikit-learn.md").names
    assert page["forgetful"].coef_[0, 0] < -1 < page["lasting"].coef_[0, 0] < 0.5
    correct = page["correct"]
    assert min(np.mean(correct[:49]), np.mean(correct[60:])) > 0.75 > np.mean(correct[49:54])
    assert page["search"].best_params_ == {"half_life": 50}
    linear = page["linear"]
    assert np.allclose([linear.coef_[1], linear.intercept_], [-3.0, 20.0], atol=0.5)


def test_river() -> None:
    run = run_page(HOWTO / "river.md")
    page, lines = run.names, "".join(run.printed).splitlines()
    ours, theirs, chance = (float(re.findall(r"mean reward (\S+)", line)[0]) for line in lines[:3])
    assert ours > 0.65 > theirs
    assert abs(chance - 0.5) < 0.05
    assert page["agent"].info().counts.decisions == 0
    assert page["policy"].learner.info().counts.rewards == 1
    for found in page["alarms"]:
        assert any(1500 < row < 1800 for row in found.rows), found
    assert lines[-1].startswith("Drift detected")


def test_mabwiser() -> None:
    """The page itself asserts that both libraries agree without forgetting."""
    page = run_page(HOWTO / "mabwiser.md").names
    agent, theirs = page["agent"], page["mab"].predict_expectations([page["young"]])
    ours = {arm: each.prediction for arm, each in agent.predict(context={"age": -0.8}).items()}
    assert abs(theirs["red"] - theirs["blue"]) < 0.1  # both halves of the year, averaged
    assert ours["blue"] - ours["red"] > 0.4
    assert page["decision"].arm == "blue"
    assert set(ours) == {"red", "blue", "green"}


def test_what_stands_for_a_call_of_mabwiser_exists() -> None:
    """The methods and policies that the page names, in both libraries."""
    text = (HOWTO / "mabwiser.md").read_text(encoding="utf-8")
    for library, owner in (("mab", MAB), ("agent", windvane.Agent)):
        names = set(re.findall(rf"`{library}\.(\w+)\(", text))
        assert names
        assert [name for name in names if not hasattr(owner, name)] == []
    for name in re.findall(r"policies `(\w+)`, `(\w+)` and `([\w-]+)` with", text)[0]:
        assert name in windvane.POLICIES


def test_opentelemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's program, and the service as the page starts it: the span has the parent and attributes it names."""
    page = HOWTO / "opentelemetry.md"
    assert "windvane serve --store windvane.db --tracing otlp" in "".join(read_commands(page))
    server = serve(tmp_path / "windvane.db", "--tracing", "console")
    monkeypatch.setenv("WINDVANE_URL", server.address)
    shown = run_page(page).names
    assert server.stop() == 0
    assert server.service is not None
    spans = [json.loads(line) for line in server.service.errors.splitlines()]
    (decided,) = (span for span in spans if span["name"].endswith("/decisions"))
    own = shown["span"].get_span_context()
    assert (decided["context"]["trace_id"], decided["parent_id"]) == (f"0x{own.trace_id:032x}", f"0x{own.span_id:016x}")
    assert decided["attributes"]["windvane.decision"] == shown["decision"].id
    text = page.read_text(encoding="utf-8")
    table = text[text.index("| attribute |") : text.index("A span contains no")]
    assert set(decided["attributes"]) <= set(re.findall(r"`([\w.]+)`", table))
    assert f"up to {['zero', 'one', 'two', 'three'][int(FLUSH_SECONDS)]} seconds" in text


def test_personalizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's stream and program, with the service as the page starts it; its table names the routes."""
    page = HOWTO / "personalizer.md"
    (command,) = read_commands(page)
    *_, option, stream = command.split()
    with run_server(tmp_path / "windvane.db", option, stream) as server:
        for name in ("WINDVANE_URL", "PERSONALIZER_ENDPOINT"):
            monkeypatch.setenv(name, server.address)
        shown = run_page(page).names
        answers = [shown["show_homepage"](f"event-{i}") for i in range(30)]
        with windvane.Client(server.address) as client:
            info = client.info(stream)
            explained = client.explain(stream, "event-0")
            paths = httpx2.get(f"{server.address}/openapi.json").json()["paths"]
    assert info.counts.rewards == 30
    assert explained.arm == answers[0]["rewardActionId"]
    assert {answer["ranking"][1]["id"] for answer in answers} == {"SportsArticle"}
    assert (info.counts.held, info.counts.settled) == (30, 0)  # outcomes are learned when the wait time ends
    assert sorted(answers[-1]["ranking"][place]["probability"] for place in (0, 2)) == pytest.approx([0.1, 0.9])
    routes = re.findall(r"^\| `POST (/personalizer\S+)`", page.read_text(encoding="utf-8"), flags=re.M)
    served = {path.partition("{stream}")[2].replace("{event}", "{eventId}") for path in paths if "personalizer" in path}
    assert set(routes) == served
