"""Open, create and check a store in PostgreSQL, as its owner and as a role with few rights."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from support.postgres import Cluster
from support.refusals import rejects
from support.stores import edit, query
from windvane.service.store import LATE, Baseline, Erasure, Event, Snapshot, StoreError, Token, migrations, open_store
from windvane.service.store.migrations import Migration
from windvane.service.store.postgres import schema
from windvane.service.store.postgres.store import PostgresStore
from windvane.service.store.records import seal_row

OWN_SCHEMA = "-c search_path=elsewhere"


def event(number: int) -> Event:
    return Event(1, number, 10.0, LATE, None, None, b"{}", b"request", b"salt", b"digest", b"chain")


def write_meta(url: str, name: str, value: str) -> None:
    row = seal_row("meta", name, value)
    edit(url, "UPDATE meta SET value = ?, digest = ? WHERE name = ?", *row[1:], name)


# --- create ----------------------------------------------------------------------------------------------------------


def test_a_store_is_created_once(database_url: str) -> None:
    with closing(open_store(database_url)) as store:
        assert isinstance(store, PostgresStore)
        assert (store.is_remote, store.is_checked, store.shards) == (True, True, 64)
        assert store.find_damage() == []
        meta = store.read_meta()
        assert (meta["format"], meta["guarded"], meta["shards"]) == (str(migrations.FORMAT), "no", "64")
        assert (len(meta["id"]), len(meta["secret"])) == (32, 64)
        store.add_stream("shop", 1.0, "{}")
        size = store.measure()["store_bytes"]
        assert size > 8192
        store.check_writable()
        assert (store.read_acknowledged(), store.check_in_place()) == (None, None)  # type: ignore[func-returns-value]
    assert query(database_url, "SELECT count(*), min(shard), max(shard), max(epoch) FROM shards") == [(64, 0, 63, 0)]
    with closing(PostgresStore(database_url)) as again:
        assert {**again.read_meta(), "probe": ""} == {**meta, "probe": ""}
        assert [row.name for row in again.read_streams()] == ["shop"]


def test_nodes_that_create_a_store_at_once(database_url: str) -> None:
    results: list[object] = []
    barrier = threading.Barrier(4)

    def create() -> None:
        barrier.wait(20)
        try:
            with closing(PostgresStore(database_url)) as store:
                results.append(store.read_meta()["id"])
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1, results


def test_a_store_is_created_whole_or_not_at_all(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever statement fails, nothing is left."""
    tables = dict(schema.TABLES)
    for count in range(len(tables) + 1):
        names = list(tables)[:count]
        with monkeypatch.context() as patch:
            patch.setattr(schema, "TABLES", {name: tables[name] for name in names} | {"x": ("a nonsense",)})
            with rejects(error=StoreError, code="unreadable"):
                PostgresStore(database_url)
        assert query(database_url, "SELECT 1 FROM pg_class WHERE relnamespace = 'public'::regnamespace") == []
    PostgresStore(database_url).close()


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_only_read_is_not_created(database_url: str, read_only: bool) -> None:
    with rejects(error=StoreError, code="no_store"):
        PostgresStore(database_url, shared=True, create=False, read_only=read_only)
    assert query(database_url, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


def test_a_store_that_is_only_read_is_not_written(pg: PostgresStore, database_url: str) -> None:
    pg.append([event(1)])
    with closing(PostgresStore(database_url, shared=True, create=False, read_only=True)) as store:
        assert store.last_number(1) == 1
        for write in (lambda: store.append([event(2)]), lambda: store.tokens.add(Token("a", "b", True, 1.0))):
            with pytest.raises(Exception) as caught:
                write()
            assert getattr(caught.value, "sqlstate", "") == "25006"


def test_a_store_in_a_schema_of_its_own(cluster: Cluster, database: str, database_url: str) -> None:
    """Beside the tables of another application; a schema that does not exist is refused."""
    edit(database_url, "CREATE TABLE customers (name text)")
    url = cluster.url(database, options=OWN_SCHEMA)
    with rejects(error=StoreError, code="refused"):
        PostgresStore(url)
    edit(database_url, "CREATE SCHEMA elsewhere")
    with closing(PostgresStore(url)) as store:
        store.append([event(1)])
        assert store.find_damage() == []
    assert query(database_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("customers",)]
    assert query(url, "SELECT count(*) FROM events") == [(1,)]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE customers (name text)"],
        ["CREATE TABLE meta (name text)"],
        ["CREATE TABLE meta (key text, entry text)", "CREATE TABLE events (id integer)"],
        ["CREATE TABLE streams (id integer)", "CREATE TABLE tokens (id integer)"],
    ],
)
def test_tables_of_another_application_are_left_alone(database_url: str, statements: list[str]) -> None:
    for statement in statements:
        edit(database_url, statement)
    for create in (True, False):
        with rejects(error=StoreError, code="not_a_store") as caught:
            PostgresStore(database_url, create=create)
    assert "search_path" in caught.value.problem
    assert query(database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(len(statements),)]


def test_a_database_with_another_encoding_is_refused(cluster: Cluster) -> None:
    name = "test_latin"
    cluster.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    try:
        with rejects(error=StoreError, code="refused") as caught:
            PostgresStore(cluster.url(name))
        assert "UTF8" in caught.value.problem
    finally:
        cluster.drop_database(name)


def test_a_newer_format_is_refused_by_name(pg: PostgresStore, database_url: str) -> None:
    newer = migrations.FORMAT + 3
    write_meta(database_url, "format", str(newer))
    for shared in (False, True):
        with rejects(error=StoreError, code="format") as caught:
            PostgresStore(database_url, shared=shared)
        assert f"has format {newer}" in caught.value.problem


def test_an_older_format_is_migrated_in_one_transaction(
    pg: PostgresStore, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a server; commands beside one leave it as it is. A migration that fails changes nothing."""

    pg.append([event(1)])
    now = migrations.FORMAT
    column, other = "ALTER TABLE nodes ADD COLUMN color text", "ALTER TABLE nodes ADD COLUMN shape text"
    columns = "SELECT attname::text FROM pg_attribute WHERE attname IN ('color', 'shape') ORDER BY attname"
    monkeypatch.setattr(migrations, "FORMAT", now + 2)
    monkeypatch.setitem(schema.TABLES, "nodes", (*schema.TABLES["nodes"], "color text", "shape text"))
    with rejects(error=StoreError, code="format"):
        PostgresStore(database_url, shared=True)
    first, second = Migration(now + 1, "", [column]), Migration(now + 2, "", [other])
    monkeypatch.setattr(migrations, "MIGRATIONS", (first, Migration(now + 2, "", [other, "SELECT 1 / 0"])))
    with rejects(error=StoreError, code="unreadable"):
        PostgresStore(database_url)
    assert query(database_url, columns) == []
    monkeypatch.setattr(migrations, "MIGRATIONS", (first, second))
    values = f"'i', 'old', 'u', 'v', {now}, now(), now() + interval '30 s'"
    edit(database_url, f"INSERT INTO nodes VALUES ({values})")
    with rejects(error=StoreError, code="in_use"):  # a node of the older version is running
        PostgresStore(database_url)
    assert query(database_url, columns) == []
    edit(database_url, "DELETE FROM nodes")
    with closing(PostgresStore(database_url)) as store:
        assert store.read_meta()["format"] == str(now + 2)
        assert store.last_number(1) == 1
    assert query(database_url, columns) == [("color",), ("shape",)]
    PostgresStore(database_url, shared=True).close()
    monkeypatch.setattr(migrations, "FORMAT", now + 9)
    monkeypatch.setattr(migrations, "OLDEST_POSTGRES", now + 8)
    with rejects(error=StoreError, code="format"):
        PostgresStore(database_url)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP INDEX events_by_key", "the index of events over stream, key"),
        ("ALTER TABLE events DROP CONSTRAINT events_pkey", "the index of events over stream, number"),
        ("ALTER TABLE streams DROP CONSTRAINT streams_name_key", "the index of streams over name"),
        ("DROP TABLE snapshots", "the table snapshots"),
        ("ALTER TABLE events DROP COLUMN salt", "the table events"),
        ("ALTER TABLE events ALTER COLUMN kind TYPE integer", "the table events"),
        ("ALTER TABLE streams ALTER COLUMN config DROP NOT NULL", "the table streams"),
        ("DROP SEQUENCE epochs", "the sequence epochs"),
        ("UPDATE meta SET value = 'x' WHERE name = 'secret'", "the setting 'secret'"),
        ("DELETE FROM meta WHERE name = 'id'", "the setting 'id'"),
    ],
)
def test_a_changed_structure_is_found_and_refused(
    pg: PostgresStore, database_url: str, statement: str, problem: str
) -> None:
    edit(database_url, statement)
    (found,) = pg.find_damage()
    assert problem in found
    for use in (lambda: PostgresStore(database_url), pg.repair):
        with rejects(error=StoreError, code="damaged") as caught:
            use()
        assert problem in caught.value.problem
    with closing(PostgresStore(database_url, shared=True, read_only=True)) as beside:  # as `windvane verify` does
        assert beside.find_damage() == [found]


@pytest.mark.parametrize("name", ["format", "shards"])
def test_a_store_without_its_main_settings_is_refused(pg: PostgresStore, database_url: str, name: str) -> None:
    edit(database_url, f"UPDATE meta SET value = '1' WHERE name = '{name}'")
    for shared in (False, True):
        with rejects(error=StoreError, code="damaged"):
            PostgresStore(database_url, shared=shared)
    edit(database_url, "DROP TABLE meta")
    with rejects(error=StoreError, code="damaged"):
        PostgresStore(database_url)


# --- few rights ------------------------------------------------------------------------------------------------------


@pytest.fixture
def service_url(cluster: Cluster, database: str) -> Iterator[str]:
    """The address for a role that may only connect; its name must be quoted in SQL."""
    cluster.execute('CREATE ROLE "the service" LOGIN')
    yield cluster.url(database, user="the service")
    cluster.start()
    cluster.execute('DROP OWNED BY "the service"', database=database)
    cluster.execute('DROP ROLE "the service"')


def test_the_owner_creates_and_the_service_uses(database_url: str, service_url: str) -> None:
    with rejects(error=StoreError, code="refused") as caught:  # since PostgreSQL 15, not everybody may create tables
        PostgresStore(service_url)
    assert "owner" in caught.value.problem
    schema.create_schema(database_url)
    with rejects(error=StoreError, code="refused"):
        PostgresStore(service_url)
    schema.create_schema(database_url, service_role="the service")
    with closing(PostgresStore(service_url)) as store:
        row = store.add_stream("shop", 1.0, "{}", epoch=0, most=10)
        assert row is not None
        store.append([event(1), event(2)], [(1, Snapshot(1, b"", b"", b""))], epochs={1: 0})
        baseline = Baseline(Snapshot(2, b"chain", b"", b""), 1, b"chain", 1.0, 1.0)
        store.append([], [], [Erasure(1, baseline, (2,))], epochs={1: 0})
        assert [each.request for each in store.read_events(1)] == [None]
        assert store.tokens.add(Token("shop", "h", True, 1.0))
        assert store.tokens.remove("shop")
        store.check_writable()
        assert store.find_damage() == []
        store.begin_removal(row, epoch=0)
        assert store.add_stream("copy", 1.0, "{}", id=9) is not None
        assert store.measure()["store_bytes"] > 0
    with psycopg.connect(service_url, autocommit=True) as connection:
        connection.execute("UPDATE shards SET epoch = nextval('epochs'), node = 'a' WHERE shard = 1")
        connection.execute("NOTIFY windvane_cluster")
        for table in schema.TABLES:
            for statement in (
                "DROP TABLE {}",
                "TRUNCATE {}",
                "ALTER TABLE {} ADD COLUMN x text",
                "CREATE INDEX ON {} (x)",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.format(table).encode())
        for statement in ("CREATE TABLE x (a text)", "DROP INDEX events_by_key", "ALTER SEQUENCE epochs RESTART"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_a_role_that_may_not_read_is_refused(pg: PostgresStore, database_url: str, service_url: str) -> None:
    edit(database_url, 'GRANT SELECT ON ALL TABLES IN SCHEMA public TO "the service"')
    with closing(PostgresStore(service_url, shared=True)) as reader:
        assert reader.read_streams() == []
        with pytest.raises(Exception) as caught:
            reader.check_writable()
        assert getattr(caught.value, "sqlstate", "") == "42501"
    edit(database_url, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    with rejects(error=StoreError, code="refused"):
        PostgresStore(service_url)
    with rejects(error=StoreError, code="refused"):
        schema.create_schema(database_url, service_role="nobody at all")
