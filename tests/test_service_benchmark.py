"""benchmarks/service.py: its parts run against a service, and without the old commit it measures the new one alone."""

from __future__ import annotations

import os
from pathlib import Path

import figures
import limits
import pytest
import versions

import service
from windvane.testing import serve


def test_a_version_prepares_and_loads_its_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(service, "ROUNDS", 2000)
    load = versions.Load()
    with serve() as client:
        service.prepare(client.url, ["random"])
        load.run(client.url, "random", 20, 2)
        service.call(client.url, "random", 4)
        counts = client.info("random").counts
    assert len(load.seconds) == 40
    assert load.rate == load.rates[0] > 0.0
    assert float(capsys.readouterr().out) > 0.0
    assert (counts.history_rows, counts.decisions, counts.settled) == (2000, 25, 25)


def test_without_the_old_commit_there_is_one_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(versions, "OLD_COMMIT", "0" * 40)
    assert versions.unpack_old(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert versions.unpack_old(tmp_path) is None


def test_ratios_are_those_of_the_repeats(capsys: pytest.CaptureFixture) -> None:
    new, old = (versions.Version.of(name, Path("benchmarks"), Path("src")) for name in ("new", "old"))
    table = figures.Figures([new, old])
    for what, pairs in {"faster": [(4, 2), (9, 3)], "open": [(3, 2), (1, 4)], "slower": [(1, 2), (1, 4)]}.items():
        for values in pairs:
            for version, value in zip((new, old), values, strict=True):
                table.add(what, version, value)
    table.print("pairs a second", ".1f")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(line[0], line[4]) for line in lines] == [("ok", "2.50x"), ("open", "0.88x"), ("MISS", "0.38x")]


def test_the_largest_share_is_named(capsys: pytest.CaptureFixture) -> None:
    """The disk takes what a store in memory saves; without one its share is not known."""
    shares = limits.Limits()
    for memory, costs in ((400.0, limits.Costs(event_loop=0.5)), (110.0, limits.Costs(event_loop=0.6, others=0.8))):
        shares.note_disk(f"memory {memory:g}", 100.0, costs)
        shares.note_memory(f"memory {memory:g}", memory)
    shares.note_disk("no memory", 100.0, limits.Costs(generator=0.9))
    shares.print()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.rpartition("%   ")[2] for line in lines] == ["the disk", "other processes", "the load generator"]
    assert [line.split()[4] for line in lines[:2]] == ["75%", "9%"]


def test_a_load_is_accounted_for() -> None:
    shares, load = limits.Limits(), versions.Load()
    with serve() as client:
        client.create("random", dim=versions.DIM, **versions.POLICIES["random"])
        with shares.watch(versions.Server(client.url, os.getpid()), load) as costs:
            load.run(client.url, "random", 20, 2)
    assert costs.server > 0.0
    assert costs.event_loop > 0.0
    assert costs.generator > 0.0
    assert 0.0 <= costs.others <= 1.0
