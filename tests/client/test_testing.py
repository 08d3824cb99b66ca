"""A throw-away service for test suites."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from support.server import is_running, until
from windvane import testing


def test_a_throw_away_service() -> None:
    with testing.serve(timeout=60.0) as client:
        assert client.ready()
        assert client.create("homepage", dim=2).counts.decisions == 0
    assert not client.ready()


def test_a_service_that_is_killed_and_started_again(tmp_path: Path) -> None:
    """What was answered is on disk."""
    service = testing.Service(tmp_path / "windvane.db", "--rate", "1000")
    with httpx2.Client(base_url=service.address, trust_env=False) as client:
        assert until(lambda: client.get("/readyz").status_code == 200, 60.0)
        assert client.post("/v1/streams", json={"name": "homepage", "dim": 2}).status_code == 201
    service.kill()
    assert not is_running(service.pid)
    assert service.stop() != 0
    with testing.serve(tmp_path / "windvane.db") as again:
        assert [stream.name for stream in again.streams()] == ["homepage"]
    assert (tmp_path / "windvane.db").exists()


def test_a_service_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(testing.ServiceError, match="did not start: windvane: error: "):
        testing.Service(tmp_path)
    with pytest.raises(testing.ServiceError, match="no address was printed"):
        testing.Service(tmp_path / "windvane.db", seconds=0.01)
