"""Why the service is not ready: a code for every kind of failure, and nothing that is not public."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from support.server import ARMS, read_problem, run_local, until
from windvane.service import engine
from windvane.service.readiness import CAUSES, NotReady
from windvane.service.store import DamageError, StoreError


def make_sqlite_error() -> sqlite3.Error:
    """Return an error of SQLite with its name."""
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect("file:/nowhere/secret.db?mode=ro", uri=True)
    return caught.value


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (make_sqlite_error(), "disk", "disk: the store cannot be read or written (SQLITE_CANTOPEN)"),
        (OSError(28, "No space left on device", "/srv/secret.db"), "disk", f"disk: {CAUSES['disk']} (ENOSPC)"),
        (sqlite3.OperationalError("/srv/secret.db: was moved"), "disk", f"disk: {CAUSES['disk']}"),
        (DamageError("page 3 of /srv/secret.db"), "damaged", f"damaged: {CAUSES['damaged']}"),
        (StoreError(Path("/srv/secret.db"), "repair_failed", "no"), "damaged", f"damaged: {CAUSES['damaged']}"),
        (StoreError("postgresql://h/db", "unreachable", "no"), "database", f"database: {CAUSES['database']}"),
        (
            StoreError("postgresql://h/db", "refused", "permission denied"),
            "database",
            "database: the database cannot be used; the log says why",
        ),
        (
            StoreError("postgresql://h/db", "not_a_store", "has tables (secret)"),
            "database",
            "database: the database has tables of another application",
        ),
        (KeyError("/srv/secret.db"), "internal", f"internal: {CAUSES['internal']}"),
    ],
)
def test_what_an_error_means(error: Exception, code: str, text: str) -> None:
    assert NotReady.after(error) == (code, text)


def test_a_store_that_is_moved_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer has the cause, the log has the path, once; the service goes on when it can."""
    monkeypatch.setattr(engine, "TICK", 0.02)
    monkeypatch.setattr(engine, "RETRY", 0.02)
    path = tmp_path / "a.db"
    with run_local(path) as service, caplog.at_level(logging.INFO, "windvane"):
        service.create("shop")
        service.decide()
        path.rename(tmp_path / "b.db")
        until(lambda: service.engine.failure is not None)
        until(lambda: "not ready" in caplog.text)
        for answer in (service.get("/readyz"), service.post("/v1/streams/shop/decisions", ARMS)):
            assert read_problem(answer, 503)["cause"] == "misplaced"
            assert str(path) not in answer.text
        assert 'windvane_not_ready{cause="misplaced"} 1.0' in service.get("/metrics").text
        (tmp_path / "b.db").rename(path)
        service.wait_until_ready()
        service.decide()
        assert "windvane_recoveries_total 2.0" in service.get("/metrics").text
    failures = [record for record in caplog.records if record.getMessage().startswith("not ready")]
    assert [record.fields for record in failures] == [{"cause": "misplaced", "store": str(path)}]  # type: ignore[attr-defined]
    assert str(path) in failures[0].getMessage()
