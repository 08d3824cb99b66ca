"""What tests of the service begin with: a service in this process, an open store, and a store with everything in it.

``place`` and ``any_store`` run a test over both kinds of stores, ``store`` over SQLite alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.server import Local, run_local
from support.stores import Facts, build, copy_store
from windvane.service import engine
from windvane.service.store import SqliteStore, Store, open_store


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets; a service that is started after it looks at timeouts only when it is asked to."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(engine, "TICK", 1e9)
    monkeypatch.setattr("time.time_ns", lambda: round(now[0] * 1e6) * 1000)
    return now


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Local]:
    """A service without streams; at its end, every stream must equal a replay of its log."""
    with run_local(tmp_path / "a.db") as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "a.db")) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a new store may be: the path of a file, then the address of a PostgreSQL database."""
    if request.param == "sqlite":
        return tmp_path / "a.db"
    return str(request.getfixturevalue("database_url"))


@pytest.fixture
def any_store(place: str | Path) -> Iterator[Store]:
    """A store of each kind."""
    with closing(open_store(place)) as opened:
        yield opened


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("store") / "a.db"
    return path, build(path)


@pytest.fixture
def copy(original: tuple[Path, Facts], tmp_path: Path) -> Path:
    """A copy of the store with everything in it, to be damaged."""
    return copy_store(original[0], tmp_path / "b.db")


@pytest.fixture
def facts(original: tuple[Path, Facts]) -> Facts:
    """What the copy has acknowledged."""
    return original[1]
