"""benchmarks/service.py: its parts run against a service, and without the old commit it measures the new one alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import service
from windvane.testing import serve


def test_a_version_prepares_and_loads_its_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(service, "ROUNDS", 2000)
    load = service.Load()
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
    monkeypatch.setattr(service, "OLD_COMMIT", "0" * 40)
    assert service.unpack_old(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert service.unpack_old(tmp_path) is None


def test_ratios_are_those_of_the_repeats(capsys: pytest.CaptureFixture) -> None:
    new, old = (service.Version.of(name, Path("benchmarks"), Path("src")) for name in ("new", "old"))
    figures = service.Figures([new, old])
    for what, pairs in {"faster": [(4, 2), (9, 3)], "open": [(3, 2), (1, 4)], "slower": [(1, 2), (1, 4)]}.items():
        for values in pairs:
            for version, value in zip((new, old), values, strict=True):
                figures.add(what, version, value)
    figures.print("pairs a second", ".1f")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(line[0], line[4]) for line in lines] == [("ok", "2.50x"), ("open", "0.88x"), ("MISS", "0.38x")]
