"""What tests of the service begin with: a service in this process, an open store, and a store with everything in it.

``place`` and ``any_store`` run a test over both kinds of stores, ``store`` over SQLite alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support import backends
from support.backends import Databases
from support.nodes import NodeForks, ServiceCluster
from support.postgres import Cluster
from support.server import Local, run_local
from support.stores import Facts, build, copy_store
from windvane.service import engine
from windvane.service.store import SqliteStore, Store, open_store

BOTH = (
    "test_charts", "test_engine", "test_order", "test_races", "test_recovery", "test_story", "test_stream_refit",
    "test_streams", "test_stress", "test_access", "test_bodies", "test_decision_routes", "test_ensure", "test_export",
    "test_model_metrics", "test_problems", "test_service_routes", "test_stream_routes", "test_logs",
    "test_stream_erasure", "test_compaction", "test_compaction_races", "test_erasure_routes",
    "test_personalizer_routes", "test_baselines", "test_stream_erasure_properties",
)  # fmt: skip
"""The modules whose tests run on SQLite and on PostgreSQL, except those marked ``sqlite``."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if "backend" in metafunc.fixturenames:
        has_store = module in BOTH and "tmp_path" in metafunc.fixturenames
        is_sqlite = not has_store or metafunc.definition.get_closest_marker("sqlite") is not None
        metafunc.parametrize("backend", ["sqlite"] if is_sqlite else ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> str:
    """A database with the tables of a store, from which others are copied."""
    name = cluster.create_database()
    open_store(cluster.url(name)).close()
    return name


@pytest.fixture(autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind of store that the test runs on: see :mod:`support.backends`."""
    if request.param == "postgres":
        server = request.getfixturevalue("cluster")
        backends.current = Databases(server, request.getfixturevalue("template"))
    try:
        yield request.param
        assert backends.current is None or backends.current.is_used, "the same as on SQLite: mark it with `sqlite`"
    finally:
        if backends.current is not None:
            backends.current.drop()
            backends.current = None


@pytest.fixture
def databases(cluster: Cluster, template: str) -> Databases:
    """Stores are databases; :func:`backend` drops them."""
    cluster.start()
    backends.current = Databases(cluster, template)
    return backends.current


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
def node(databases: Databases, tmp_path: Path) -> Iterator[Local]:
    """A service on PostgreSQL with a stream; at its end, memory must equal a replay of the log."""
    with run_local(tmp_path / "a.db") as running:
        running.create()
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


@pytest.fixture
def nodes(node_forks: NodeForks, cluster: Cluster, database: str) -> Iterator[ServiceCluster]:
    """Servers that share a new database; none has been started."""
    running = ServiceCluster(node_forks, cluster, database)
    yield running
    running.close()
