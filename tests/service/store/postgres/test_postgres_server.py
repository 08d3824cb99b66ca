"""The private PostgreSQL server of the tests: it does what tests of bad days ask of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from support.postgres import Cluster
from support.server import until


def count(cluster: Cluster, database: str) -> int:
    return int(cluster.execute("SELECT count(*) FROM t", database=database)[0][0])


def test_a_database_is_new_and_empty(cluster: Cluster, database: str) -> None:
    assert cluster.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", database=database) == []
    assert cluster.execute("SHOW fsync") == [("on",)]


@pytest.mark.parametrize("end", ["fast", "immediate", "kill"])
def test_what_is_committed_survives_the_end_of_the_server(cluster: Cluster, database: str, end: str) -> None:
    cluster.execute("CREATE TABLE t (x integer)", database=database)
    cluster.execute("INSERT INTO t VALUES (1)", database=database)
    if end == "kill":
        cluster.kill()
    else:
        cluster.stop(end)
    assert cluster.process is None
    with pytest.raises(psycopg.OperationalError):
        count(cluster, database)
    cluster.start()
    assert count(cluster, database) == 1


def test_sessions_are_terminated(cluster: Cluster, database: str) -> None:
    with psycopg.connect(cluster.url(database)) as connection:
        assert cluster.terminate_backends(database) == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert cluster.terminate_backends(database) == 0


def test_a_standby_follows_and_is_promoted(cluster: Cluster, database: str) -> None:
    cluster.execute("CREATE TABLE t (x integer)", database=database)
    standby = Cluster(source=cluster)
    try:
        cluster.execute("INSERT INTO t VALUES (1)", database=database)
        cluster.execute("SELECT 1", database=database)
        (position,) = cluster.execute("SELECT pg_current_wal_lsn()::text")[0]
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        until(lambda: standby.execute(query, position)[0][0])
        standby.promote()
        standby.execute("INSERT INTO t VALUES (2)", database=database)
        assert (count(standby, database), count(cluster, database)) == (2, 1)
    finally:
        standby.remove()


def test_a_server_ends_with_its_process() -> None:
    """Also if that is killed, as by the time limit of a run."""
    code = "from support.postgres import Cluster; cluster = Cluster(); print(cluster.folder, flush=True); input()"
    line, path = [sys.executable, "-c", code], os.pathsep.join(sys.path)
    environment = os.environ | {"PYTHONPATH": path}
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder / "data" / "postmaster.pid").exists()
        process.kill()
    until(lambda: not folder.exists())
