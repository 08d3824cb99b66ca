"""The demo: a simulated audience over a real server, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.commands import fails, run_on_terminal
from support.server import command
from windvane import Agent
from windvane.cli.demo import DIM, STREAMS, TICKS, TOPICS, create_audience


def run(tmp_path: Path, *options: str, code: int = 0) -> str:
    settings = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"}
    found = subprocess.run(command("demo", *options), env=settings, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (code, ""), found.stderr
    assert list(tmp_path.iterdir()) == []
    return found.stdout


def test_the_summary(tmp_path: Path) -> None:
    text = run(tmp_path, "--seconds", "3", "--no-open")
    assert re.search(r"the live page: http://127\.0\.0\.1:\d+/\n", text)
    assert re.search(r"[\d,]+ visits to every stream in 3 s; the audience's taste turned once", text)
    for name in (*STREAMS, "best possible"):
        assert re.search(rf"^{name} +\d+\.\d% +\d+% +\d+", text, re.M), text
    assert len(re.findall(r"[▁▂▃▄▅▆▇█]{10}", text)) == len(STREAMS)
    assert re.search(r'What "adaptive" has learned about the drift: .*; it uses .*\.\n', text)


def test_every_topic_has_its_time() -> None:
    """All policies meet the same audience; the taste passes every topic, and comes back."""
    world = create_audience()
    rounds = [world.round(t) for t in range(1, TICKS, TICKS // 160)]
    favourites = [TOPICS[int(np.argmax(offer.means[0]))] for offer in rounds]
    assert [min(favourites.count(topic), 15) for topic in TOPICS] == [15] * len(TOPICS)
    assert rounds[0].arms.shape == (1, len(TOPICS), DIM + 1)
    assert min(offer.means.min() for offer in rounds) < 0.1
    assert min(offer.best[0] for offer in rounds) > 0.5


def test_the_demo_makes_its_point() -> None:
    """Its streams, in this process, before the same audience with the same luck: who adapts is ahead of who never
    forgets, and both of who plays at random."""
    world, visits = create_audience(), 1500
    lost = {}
    for name, (_, settings) in STREAMS.items():
        agent, rng, total = Agent(dim=DIM, intercept=True, **settings), np.random.default_rng(3), 0.0
        for i in range(visits):
            offer, luck = world.round(1 + i * (TICKS // visits)), rng.random()
            decision = agent.decide(dict(zip(TOPICS, offer.arms[0, :, :DIM], strict=True)))
            mean = offer.means[0, decision.index]
            total += offer.best[0] - mean
            agent.reward(decision, float(luck < mean))
        lost[name] = total / visits
    assert lost["adaptive"] < 0.5 * lost["never-forgets"], lost
    assert lost["never-forgets"] < 0.95 * lost["random"], lost


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_early_nothing_is_left(tmp_path: Path, stop: signal.Signals) -> None:
    settings = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command("demo", "--no-open"), env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None  # a pipe, as asked for
    assert process.stdout.readline().startswith("the live page")
    server = subprocess.run(
        ["pgrep", "-f", f"serve --store {tmp_path}/"], capture_output=True, text=True, check=False
    ).stdout.split()
    assert len(server) == 1
    time.sleep(0.5)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "windvane: interrupted; the demo's data was removed\n")
    assert not Path(f"/proc/{server[0]}").exists() or sys.platform != "linux"
    assert list(tmp_path.iterdir()) == []


def test_json_on_stdout_and_progress_on_a_terminal(tmp_path: Path) -> None:
    out, shown = run_on_terminal(command("demo", "--seconds", "4", "--no-open", "--json"), TMPDIR=str(tmp_path))
    assert "starting the service" in shown
    assert re.search(r"the audience visits .*[123]/4 s  0:00:0\d left", shown), shown
    document = json.loads(out)
    assert document["seconds"] == 4.0
    assert document["visits"] > 3
    assert document["drift"]["verdict"] in ("drift", "no drift seen", "too little data to tell")
    for stream in document["streams"]:
        assert 0.0 <= stream["click_rate"] <= 1.0
        assert 0.0 <= stream["regret"] <= document["visits"]
        assert len(stream["by_tenth"]) == 10


def test_a_demo_that_is_too_short_is_refused(tmp_path: Path) -> None:
    fails("demo --seconds 0.1", tmp_path, "--seconds")
