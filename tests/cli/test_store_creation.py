"""``windvane store create``: the owner creates the tables, and servers run under a role that cannot change them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from support.commands import fails
from support.postgres import Cluster
from support.server import run_command
from windvane import Client
from windvane.testing import Service

ROLE = "windvane service"  # a name that must be quoted


@pytest.fixture
def role(cluster: Cluster, database: str) -> Iterator[str]:
    with cluster.temporary_role(ROLE, database) as role:
        yield role


def test_a_service_runs_under_a_role_that_cannot_change_tables(
    cluster: Cluster, database: str, database_url: str, role: str, tmp_path: Path
) -> None:
    own = cluster.url(database, user=role)
    fails(f"token add shop --store '{own}'", tmp_path, "permission denied", "let the owner run")
    done = run_command("store", "create", database_url, "--grant", role, "--json")
    assert json.loads(done.stdout)["granted"] == role
    service = Service(own, "--node", "a")
    try:
        with Client(service.address) as client:
            assert client.ready(wait=60)
            client.create("shop", dim=1, reward_timeout=5, retention="1d")
            decision = client.decide("shop", {"red": [0.1], "blue": [0.2]})
            client.reward("shop", decision, 1.0)
            client.erase_context("shop", decision.id)
            client.compact("shop")
            client.create("gone", dim=1)
            client.delete_stream("gone")
    finally:
        assert service.stop() == 0, service.errors
    assert service.errors == ""
    for line in (["verify"], ["token", "add", "shop"], ["token", "list"], ["token", "open"], ["streams", "list"]):
        assert run_command(*line, "--store", own).returncode == 0
    assert run_command("streams", "move", own, tmp_path / "a.db").returncode == 0
    assert run_command("streams", "move", tmp_path / "a.db", own).returncode == 0
    tables = [
        name
        for (name,) in cluster.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database=database)
    ]
    assert len(tables) == 8
    with psycopg.connect(own, autocommit=True) as connection:
        for table in tables:
            for statement in ("DROP TABLE {}", "TRUNCATE {}", "ALTER TABLE {} DROP COLUMN name"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.format(table).encode())


def test_creating_again_changes_nothing(cluster: Cluster, database: str, database_url: str, role: str) -> None:
    first = run_command("store", "create", database_url)
    assert first.stdout == f"postgresql://owner@/{database}?host={cluster.folder}: has the tables of a store\n"
    run_command("token", "add", "shop", "--store", database_url)
    again = run_command("store", "create", database_url, "--grant", role)
    assert again.stdout.endswith(f"has the tables of a store; the role {role} may use it\n")
    assert "shop" in run_command("token", "list", "--store", database_url).stdout


def test_errors(database_url: str, tmp_path: Path) -> None:
    fails("store create a.db", tmp_path, "URL must be the address of a database")
    fails(
        f"store create '{database_url}' --grant nobody-at-all", tmp_path, "the role 'nobody-at-all' cannot be granted"
    )
    fails("store create postgresql://u@127.0.0.1:1/db", tmp_path, "cannot be reached")
    fails("store create", tmp_path, "URL")
    assert list(tmp_path.iterdir()) == []


def test_backups_of_databases_are_left_to_postgresql(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "b.db").touch()
    hint = "--store must be a file; back up a database with the tools of PostgreSQL"
    fails(f"backup --store '{database_url}' --to c.db", tmp_path, hint)
    fails(f"restore b.db --store '{database_url}'", tmp_path, hint)
