"""The parts of benchmarks/peers.py that do not need Vowpal Wabbit or bayesianbandits."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import peers
import pytest


@pytest.fixture
def no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in peers.PEERS:
        monkeypatch.setitem(sys.modules, name, None)


def test_the_generated_stream_is_seeded_and_drifts() -> None:
    stream = peers.generate_stream(8000)
    assert stream == peers.generate_stream(8000)
    assert stream != peers.generate_stream(8000, seed=1)
    assert stream.classes == ["class 0", "class 1", "class 2"]
    numbers = np.array([list(row.values()) for row in stream.rows])
    np.testing.assert_allclose([numbers.min(axis=0), numbers.max(axis=0)], [[-1.0] * 6, [1.0] * 6], atol=1e-12)
    is_first = np.array(stream.labels) == "class 0"
    early, late = (numbers[part][is_first[part]].mean(axis=0) for part in (slice(0, 500), slice(4000, 4500)))
    assert early @ late < -0.5 * early @ early  # after half a turn the rule is the opposite


def test_the_file_is_moved_to_its_range(tmp_path: Path) -> None:
    path = tmp_path / "stream.csv"
    path.write_text("a,b,class\n0,7,up\n4,7,down\n1,7,up\n9,9,left\n")
    stream = peers.read_stream(path, 3)
    assert (stream.fields, stream.classes, stream.labels) == (["a", "b"], ["down", "up"], ["up", "down", "up"])
    assert stream.rows == [{"a": -1.0, "b": 0.0}, {"a": 1.0, "b": 0.0}, {"a": -0.5, "b": 0.0}]


@pytest.mark.usefixtures("no_peer")
def test_peers_that_are_missing_are_skipped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stream = peers.generate_stream(600)
    path = tmp_path / "stream.csv"
    lines = [[*row.values(), label] for row, label in zip(stream.rows, stream.labels, strict=True)]
    path.write_text("\n".join(",".join(map(str, line)) for line in [[*stream.fields, "class"], *lines]))
    peers.run_here(Namespace(file=path, rows=600, classes=3, tuned=True, json=True))
    report = json.loads(capsys.readouterr().out)
    assert [row["contender"] for row in report["table"]] == [peers.AGENT, peers.AGENT_BVD]
    assert set(report["skipped"]) == {peers.VW, peers.VW_TEXT, peers.BAYESIAN}
    assert all("halted" in reason for reason in report["skipped"].values())
    assert report["table"][0]["mean_reward"] > 0.5  # chance: a third
    assert report["table"][0]["ratio"] is None


def test_ratios_and_targets_are_within_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {
        peers.AGENT: peers.Measurement(np.array([0.5, 1.0, 9.0]) * 1e-6, 0.8),
        peers.VW: peers.Measurement(np.array([2.0, 4.0, 10.0]) * 1e-6, 0.9),
    }
    table = peers.summarize(measured)
    assert [(row["microseconds"], row["ratio"]) for row in table] == [(1.0, 0.25), (4.0, 1.0)]
    peers.check_targets(table)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ok", "MISS"]
