"""Hypothesis profiles (examples are derived from the test itself, so that a run in CI can be repeated), and the
fixtures that several files use: a browser, servers that start quickly, and a PostgreSQL server."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.nodes import NodeForks
    from support.postgres import Cluster

settings.register_profile(
    "windvane", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("windvane")

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # bytes: several times what the files of a run take


def keep_files_in_memory() -> None:
    """Put temporary files into memory where there is room, unless the environment says where they are to be.

    Stores and databases flush thousands of transactions, and the tests would wait for the disk most of the time.
    """
    with contextlib.suppress(OSError):
        if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
            os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


keep_files_in_memory()

# Tests of the library without its extras. `make test` runs them where only the core dependencies are installed, and all
# others where everything is. A file that needs an extra fails there until it is listed.
CORE = {
    *("agent", "environments", "estimation", "kernels", "naive", "policies", "projection", "theory"),
    *("test_arms.py", "test_checks.py", "test_links.py", "test_records.py", "test_state.py"),
}
NEED_EXTRAS = {
    *("agent/test_delays.py", "agent/test_missing_values.py", "agent/test_pending.py", "agent/test_vectors.py"),
    *("environments/test_episodes.py", "environments/test_gymnasium.py", "environments/test_labelled_stream.py"),
    *("environments/test_logged_path.py", "kernels/test_polya_gamma.py", "policies/test_linear_policies.py"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=["core", "extras", "all"], default="all", help="tests that need no extra, or do")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of the other part."""
    part, file = config.getoption("part"), collection_path.relative_to(Path(__file__).parent)
    if part == "all" or not file.parts:
        return None
    in_core = file.parts[0] in CORE
    if collection_path.is_dir():
        return True if part == "core" and not in_core else None
    is_core = in_core and file.as_posix() not in NEED_EXTRAS
    return None if is_core == (part == "core") else True


ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _missing(what):
    if os.environ.get("WINDVANE_REQUIRE_BROWSER"):
        pytest.fail(f"{what} is missing, and WINDVANE_REQUIRE_BROWSER is set")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        _missing("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def fork_server():
    """Servers that start at once, to be killed."""
    from support.server import ForkServer

    running = ForkServer()
    yield running
    running.close()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private PostgreSQL server, one for every process that runs tests."""
    from support.postgres import Cluster

    running = Cluster()
    yield running
    running.remove()


@pytest.fixture(scope="session")
def node_forks() -> Iterator[NodeForks]:
    """Where nodes come from that start at once; see :mod:`support.nodes`."""
    from support.nodes import NodeForks

    running = NodeForks()
    yield running
    running.close()


@pytest.fixture
def database(cluster: Cluster) -> Iterator[str]:
    """The name of a new, empty database. A test may stop the server: it is started again for the next one."""
    cluster.start()
    name = cluster.create_database()
    yield name
    cluster.drop_database(name)


@pytest.fixture
def database_url(cluster: Cluster, database: str) -> str:
    """The connection string of a new, empty database."""
    return cluster.url(database)
