"""Bad days of the database: sessions that end, at a commit too, restarts, full disks, and too few connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from support.postgres import Cluster
from support.refusals import rejects
from support.server import until
from windvane.service.store import (
    LATE,
    Baseline,
    DamageError,
    DatabaseError,
    Erasure,
    Event,
    NoConnectionError,
    Snapshot,
    StoreError,
    Token,
    is_damage,
)
from windvane.service.store.postgres import pool as pooling
from windvane.service.store.postgres.connections import Address
from windvane.service.store.postgres.store import PostgresStore

BASELINE = Baseline(Snapshot(1, b"chain", b"agent", b"{}"), 1, b"chain", 1.0, 1.0)


def event(number: int, request: bytes | None = None) -> Event:
    return Event(1, number, 10.0, LATE, None, None, b"{}", request)


def numbers(store: PostgresStore) -> list[int]:
    return [each.number for each in store.read_events(1)]


def wait_for(cluster: Cluster, database: str, condition: str, count: int = 1) -> None:
    """Wait until a number of sessions satisfies a condition over pg_stat_activity."""
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND ({condition})"
    until(lambda: cluster.execute(query, database) == [(count,)])


def every_use(store: PostgresStore) -> list[Callable[[], Any]]:
    """What the service does with a store."""
    return [
        lambda: store.append([event(store_number(store))]),
        lambda: store.last_number(1),
        lambda: numbers(store),
        store.read_streams,
        lambda: store.add_stream("new", 1.0, "{}"),
        lambda: store.tokens.add(Token("shop", "h", True, 1.0)),
        lambda: store.tokens.are_required,
        store.check_writable,
        store.find_damage,
        store.measure,
        store.repair,
    ]


def store_number(store: PostgresStore) -> int:
    return store.last_number(1) + 1


@contextmanager
def stuck_commits(cluster: Cluster) -> Iterator[None]:
    """Let every commit wait, after it is on disk, for a standby that does not exist."""
    cluster.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    cluster.reload()
    until(lambda: cluster.execute("SHOW synchronous_standby_names") == [("nobody",)])
    try:
        yield
    finally:
        cluster.execute("ALTER SYSTEM RESET synchronous_standby_names")
        cluster.reload()
        until(lambda: cluster.execute("SHOW synchronous_standby_names") == [("",)])


# --- sessions that end -----------------------------------------------------------------------------------------------


def test_sessions_that_end_while_nothing_is_done_are_not_noticed(
    pg: PostgresStore, cluster: Cluster, database: str
) -> None:
    for number in range(1, 4):
        pg.append([event(number)])
        assert numbers(pg) == [*range(1, number + 1)]
        assert cluster.terminate_backends(database) >= 2
    cluster.stop("fast")
    cluster.start()
    pg.append([event(4)])
    assert numbers(pg) == [1, 2, 3, 4]


def test_a_commit_whose_session_ends_may_have_happened(pg: PostgresStore, cluster: Cluster, database: str) -> None:
    """It is on disk, and waits for a standby: the caller gets an error, and must read what is stored."""
    pg.append([event(1)])
    with ThreadPoolExecutor(1) as pool, stuck_commits(cluster):
        future = pool.submit(pg.append, [event(2)])
        wait_for(cluster, database, "wait_event = 'SyncRep'")
        assert cluster.terminate_backends(database, "wait_event = 'SyncRep'") == 1
        with pytest.raises(DatabaseError):
            future.result(20)
    assert numbers(pg) == [1, 2]
    with pytest.raises(DatabaseError) as caught:  # a repetition would not write it twice
        pg.append([event(2)])
    assert caught.value.sqlstate == "23505"
    pg.append([event(3)])
    assert numbers(pg) == [1, 2, 3]


def test_a_standby_that_is_no_longer_required_is_missed_once(
    pg: PostgresStore, cluster: Cluster, database: str, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a promotion. The store goes on: an outage would be worse."""
    assert pg.lacks_standby is None
    with stuck_commits(cluster):
        store = PostgresStore(database_url, needs_standby=True)
    with closing(store), caplog.at_level("INFO", "windvane.service"):
        for number in (1, 2):
            cluster.terminate_backends(database)
            store.append([event(number)])
            assert store.lacks_standby
        assert [record.levelname for record in caplog.records if "standby" in record.message] == ["WARNING"]
        with stuck_commits(cluster):
            cluster.terminate_backends(database)
            with store._writer.connect():
                assert store.lacks_standby is False
        cluster.terminate_backends(database)
        store.append([event(3)])
        levels = [record.levelname for record in caplog.records if "standby" in record.message]
        assert levels == ["WARNING", "INFO", "WARNING"]
    assert numbers(pg) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["statement", "transaction"])
def test_a_commit_whose_session_ends_before_it_writes_nothing(
    pg: PostgresStore, cluster: Cluster, database: str, database_url: str, kind: str
) -> None:
    pg.append([event(1)])
    erasures = [] if kind == "statement" else [Erasure(1, BASELINE)]
    with psycopg.connect(database_url) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("LOCK TABLE events")
        future = pool.submit(pg.append, [event(2)], (), erasures)
        wait_for(cluster, database, "wait_event_type = 'Lock'")
        assert cluster.terminate_backends(database, "wait_event_type = 'Lock'") == 1
        with pytest.raises(DatabaseError) as caught:
            future.result(20)
    assert caught.value.sqlstate == "57P01"
    assert numbers(pg) == [1]
    pg.append([event(2)])
    assert numbers(pg) == [1, 2]


def test_a_session_that_ends_between_two_chunks_is_not_noticed(
    pg: PostgresStore, cluster: Cluster, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windvane.service.store.postgres.lookups.CHUNK", 2)
    pg.append([event(number) for number in range(1, 6)])
    found = []
    for each in pg.read_events(1):
        cluster.terminate_backends(database)
        found.append(each.number)
    assert found == [1, 2, 3, 4, 5]


def test_a_read_transaction_whose_session_ends_fails(pg: PostgresStore, cluster: Cluster, database: str) -> None:
    """It must not go on with a later state of the database."""
    pg.append([event(1)])
    with pg.read_transaction():
        assert pg.last_number(1) == 1
        cluster.terminate_backends(database)
        for _ in range(2):
            with pytest.raises(DatabaseError):
                pg.last_number(1)
    assert pg.last_number(1) == 1


# --- the server ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_database_that_is_down_is_found_again(pg: PostgresStore, cluster: Cluster, mode: str) -> None:
    pg.append([event(1)])
    cluster.stop(mode)
    for use in every_use(pg):
        with pytest.raises(DatabaseError):
            use()
    cluster.start()
    for use in every_use(pg):
        use()
    assert numbers(pg) == [1, 2]


def test_nothing_acknowledged_is_lost_in_a_crash_under_load(pg: PostgresStore, cluster: Cluster) -> None:
    acknowledged: list[int] = []
    started, failed = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        try:
            while True:
                number += 1
                pg.append([event(number)])
                acknowledged.append(number)
                if number == 50:
                    started.set()
        except DatabaseError:
            failed.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert started.wait(20)
    cluster.kill()
    assert failed.wait(20)
    thread.join()
    cluster.start()
    stored = numbers(pg)
    assert stored[: len(acknowledged)] == acknowledged
    assert len(stored) <= len(acknowledged) + 1  # the last one is unknown


def test_a_database_that_cannot_be_reached_is_refused(cluster: Cluster, database: str) -> None:
    cluster.stop()
    with rejects(error=StoreError, code="unreachable") as caught:
        PostgresStore(cluster.url(database))
    assert caught.value.where == f"postgresql://owner@/{database}?host={cluster.folder}"
    cluster.start()
    with rejects(error=StoreError, code="unreachable"):
        PostgresStore("postgresql://u@127.0.0.1:1/a")


# --- too few connections ---------------------------------------------------------------------------------------------


def test_a_pool_without_free_connections_is_waited_for_but_not_forever(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(database_url, connections=2)) as store, ThreadPoolExecutor(2) as pool:
        held, go = threading.Barrier(3), threading.Event()

        def hold() -> None:
            with store.read_transaction():
                held.wait(20)
                go.wait(20)

        futures = [pool.submit(hold) for _ in range(2)]
        held.wait(20)
        with monkeypatch.context() as patch:
            patch.setattr(pooling, "WAIT_SECONDS", 0.05)
            with rejects(error=NoConnectionError) as caught:
                store.last_number(1)
        assert "all 2 connections" in str(caught.value)
        store.append([event(1)])  # events have their own connection
        with ThreadPoolExecutor(1) as another:
            waiting = another.submit(store.last_number, 1)
            go.set()
            assert waiting.result(20) == 1
        for future in futures:
            future.result(20)


def test_a_server_without_free_connections(pg: PostgresStore, cluster: Cluster, database: str) -> None:
    """Another application takes all that there are."""
    cluster.execute("CREATE ROLE guest LOGIN CONNECTION LIMIT 1")
    try:
        cluster.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO guest", database=database)
        url = cluster.url(database, user="guest")
        with psycopg.connect(url), rejects(error=StoreError, code="unreachable"):
            PostgresStore(url, shared=True)
        wait_for(cluster, database, "usename = 'guest'", 0)
        with closing(PostgresStore(url, shared=True)) as store:
            wait_for(cluster, database, "usename = 'guest'", 0)
            with psycopg.connect(url), rejects(error=DatabaseError):
                store.last_number(1)
            wait_for(cluster, database, "usename = 'guest'", 0)
            assert store.last_number(1) == 0
    finally:
        cluster.execute("DROP OWNED BY guest", database=database)
        cluster.execute("DROP ROLE guest")


def test_threads_share_few_connections_and_leave_none_behind(
    pg: PostgresStore, cluster: Cluster, database: str
) -> None:
    pg.append([event(1)])
    with ThreadPoolExecutor(30) as pool:
        assert list(pool.map(lambda _: pg.last_number(1), range(300))) == [1] * 300
    ((count,),) = cluster.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", database)
    assert count <= 8 + 1
    pg.close()
    wait_for(cluster, database, "true", 0)
    for use in every_use(pg)[1:]:
        with pytest.raises(DatabaseError):
            use()
    with pytest.raises(DatabaseError):
        pg.append([event(2)])


# --- the disk --------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_grow(pg: PostgresStore, cluster: Cluster) -> None:
    """As on a full disk, the table cannot be extended: the events are not stored, and later they are."""
    cluster.stop()
    cluster.start(most_bytes=20 << 20)
    failure, last = None, 0
    while failure is None:
        try:
            pg.append([event(last + 1, os.urandom(1 << 20))])
            last += 1
        except DatabaseError as error:
            failure = error
    assert "could not extend file" in str(failure)
    assert 1 < last < 25
    assert pg.last_number(1) == last  # reading is not affected
    cluster.stop()
    cluster.start()
    pg.append([event(last + 1, os.urandom(1 << 20))])
    assert numbers(pg) == [*range(1, last + 2)]


@pytest.mark.parametrize(("code", "is_damaged"), [("53100", False), ("53200", False), ("XX001", True), ("XX002", True)])
def test_the_code_of_an_error_is_kept(
    pg: PostgresStore, cluster: Cluster, database: str, code: str, is_damaged: bool
) -> None:
    """53100: disk full, 53200: out of memory; XX001, XX002: a damaged table or index."""
    body = f"BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{code}', DETAIL = 'a secret of a row'; END"
    cluster.execute(f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$", database=database)
    cluster.execute("CREATE TRIGGER t BEFORE INSERT ON events EXECUTE FUNCTION fail()", database=database)
    with pytest.raises(DatabaseError) as caught:
        pg.append([event(1)])
    assert caught.value.sqlstate == code
    assert str(caught.value) == "no"  # details hold values
    assert is_damage(caught.value) == isinstance(caught.value, DamageError) == is_damaged
    cluster.execute("DROP TRIGGER t ON events", database=database)
    pg.append([event(1)])


def test_a_statement_that_takes_too_long_is_ended(
    cluster: Cluster, database: str, database_url: str, pg: PostgresStore
) -> None:
    """Options of the address come after the defaults."""
    url = cluster.url(database, options="-c lock_timeout=50")
    with closing(PostgresStore(url)) as store, psycopg.connect(database_url) as blocker:
        blocker.execute("LOCK TABLE events")
        with pytest.raises(DatabaseError) as caught:
            store.append([event(1)])
        assert caught.value.sqlstate == "55P03"
        blocker.rollback()
        store.append([event(1)])
    assert numbers(pg) == [1]


def test_settings_of_sessions(cluster: Cluster, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults, unless the address or a variable of libpq has something else."""

    def read(url: str) -> list[str]:
        names = ("application_name", "synchronous_commit", "lock_timeout", "statement_timeout", "transaction_isolation")
        with closing(Address(url).connect(statement_timeout=4000)) as connection:
            ((*values,),) = connection.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))
            return values

    url = cluster.url(database)
    assert read(url) == ["windvane", "on", "10s", "4s", "read committed"]
    other = cluster.url(database, application_name="shop", options="-c synchronous_commit=remote_apply")
    assert read(other) == ["shop", "remote_apply", "10s", "4s", "read committed"]
    cluster.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = serializable")
    monkeypatch.setenv("PGAPPNAME", "variable")
    monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=7s")
    assert read(url) == ["variable", "on", "7s", "4s", "read committed"]
