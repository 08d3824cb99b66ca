"""Streams are removed at once, and their events in slices, whatever happens in between."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from support.erasing import add_row, make_baseline, make_events
from support.gates import Gate
from support.postgres import Cluster
from support.refusals import rejects
from support.server import ARMS, Local, read_problem, until
from windvane.service.store import DatabaseError, Erasure, Snapshot, StreamRow
from windvane.service.store.postgres import removal
from windvane.service.store.postgres.store import PostgresStore
from windvane.service.verification import verify_store

FAIL = """CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.number = 20 THEN RAISE EXCEPTION 'no'; END IF; RETURN OLD; END $$;
    CREATE TRIGGER fail BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION fail()"""
COUNT = """CREATE TABLE slices (count bigint, transaction bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO slices SELECT count(*), txid_current() FROM old; RETURN NULL; END $$;
    CREATE TRIGGER note AFTER DELETE ON events REFERENCING OLD TABLE AS old
    FOR EACH STATEMENT EXECUTE FUNCTION note()"""


@pytest.fixture(autouse=True)
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "SLICE_EVENTS", 7)


@pytest.fixture
def row(pg: PostgresStore) -> StreamRow:
    """A stream with 30 events, of which ten are erased, beside another one."""
    row, other = add_row(pg), add_row(pg, "other")
    events = make_events(row, 30)
    pg.append([*events, *make_events(other, 30)], [(row.id, Snapshot(30, b"", b"agent", b"{}"))])
    pg.append([], erasures=[Erasure(row.id, make_baseline(events, 20, 10))])
    return row


def count_rows(pg: PostgresStore, stream: int) -> list[int]:
    """Return how many events, snapshots, baselines and marks are left of a stream."""
    tables = [f"SELECT count(*) FROM {table} WHERE stream = {stream}" for table in ("events", "snapshots", "baselines")]
    marks = f"SELECT count(*) FROM meta WHERE name = '{removal.MARK}{stream}'"
    return [pg.query(sql)[0][0] for sql in (*tables, marks)]


def test_the_events_are_deleted_in_slices(pg: PostgresStore, cluster: Cluster, database: str, row: StreamRow) -> None:
    cluster.execute(COUNT, database=database)
    pg.remove_stream(row)
    assert count_rows(pg, row.id) == [0, 0, 0, 0]
    deleted = [count for (count,) in pg.query("SELECT count FROM slices WHERE count > 0")]
    assert deleted == [7, 7, 6]
    assert pg.query("SELECT count(DISTINCT transaction) FROM slices WHERE count > 0") == [(3,)]
    assert len(list(pg.read_events(pg.read_streams()[0].id))) == 30


def test_a_removal_that_ends_half_way_is_finished_by_a_purge(
    pg: PostgresStore, cluster: Cluster, database: str, database_url: str, row: StreamRow
) -> None:
    cluster.execute(FAIL, database=database)
    with rejects(error=DatabaseError):
        pg.remove_stream(row)
    assert count_rows(pg, row.id) == [13, 0, 0, 1]
    assert pg.find_stream("shop") is None
    again = add_row(pg)
    pg.append(make_events(again, 5))
    with rejects(error=DatabaseError):
        pg.purge()
    cluster.execute("DROP TRIGGER fail ON events", database=database)
    with closing(PostgresStore(database_url)) as other:
        assert other.purge()
    assert count_rows(pg, row.id) == [0, 0, 0, 0]
    assert len(list(pg.read_events(again.id))) == 5
    assert pg.purge()


def test_a_purge_and_a_removal_at_once(pg: PostgresStore, database_url: str, row: StreamRow) -> None:
    with closing(PostgresStore(database_url)) as other, ThreadPoolExecutor(3) as threads:
        removal = threads.submit(pg.remove_stream, row)
        purges = [threads.submit(other.purge) for _ in range(2)]
        for future in (removal, *purges):
            future.result(20)
    assert count_rows(pg, row.id) == [0, 0, 0, 0]


def test_a_mark_of_a_stream_that_exists_deletes_nothing(pg: PostgresStore, row: StreamRow) -> None:
    """Somebody has restored the row of the stream, but not that of the mark."""
    with pg.pool.borrow() as connection:
        removal.write_meta(connection, f"{removal.MARK}{row.id}", "")
    assert pg.purge()
    assert count_rows(pg, row.id) == [20, 1, 1, 0]


def test_a_removal_that_is_not_committed_changes_nothing(pg: PostgresStore, row: StreamRow) -> None:
    def remove() -> None:
        with pg.hold():
            pg.remove_stream(row)
            assert count_rows(pg, row.id) == [0, 0, 0, 0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remove()
    assert count_rows(pg, row.id) == [20, 1, 1, 0]


def test_a_purge_ends_between_slices_and_goes_on_later(pg: PostgresStore, row: StreamRow) -> None:
    pg.begin_removal(row)
    answers = iter([False, True])
    assert not pg.purge(lambda: next(answers))
    assert count_rows(pg, row.id) == [13, 0, 0, 1]
    assert pg.purge()
    assert count_rows(pg, row.id) == [0, 0, 0, 0]


# --- the service -----------------------------------------------------------------------------------------------------


@pytest.fixture
def service(node: Local) -> Local:
    """A service with a stream of 30 events, and a database in which event 20 cannot be deleted."""
    for _ in range(30):
        assert node.post("/v1/streams/shop/decisions", ARMS).status_code == 201
    execute(node, FAIL)
    return node


def execute(service: Local, sql: str) -> None:
    with service.store.pool.borrow() as connection:
        connection.execute(sql.encode())


def delete(service: Local) -> Any:
    return service.request("DELETE", "/v1/streams/shop")


def test_a_repeated_request_is_answered_when_nothing_is_left(service: Local) -> None:
    stream = service.engine.rows["shop"].id
    for _ in range(2):
        read_problem(delete(service), 503)
    assert count_rows(service.store, stream)[0] == 16
    assert service.engine.recoveries == 1  # the other streams are served meanwhile
    assert verify_store(service.store).is_sound
    execute(service, "DROP TRIGGER fail ON events")
    read_problem(delete(service), 404)
    assert count_rows(service.store, stream) == [0, 0, 0, 0]


def test_nothing_waits_for_a_long_removal(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a recovery nor a new stream of the same name."""
    execute(service, "DROP TRIGGER fail ON events")
    gate = Gate(removal.delete_slice)
    monkeypatch.setattr(removal, "delete_slice", gate)
    with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as end:
        end.callback(gate.open)
        deletion = thread.submit(delete, service)
        until(lambda: gate.count)
        service.call(lambda: service.engine.fail(DatabaseError("it has gone")))
        until(lambda: service.engine.recoveries == 2)
        service.create()
        assert not deletion.done()
        gate.open()
        assert deletion.result(20).status_code == 204
    assert service.info()["events"] == 0


def test_a_service_finishes_the_removal_of_another_one(service: Local) -> None:
    stream = service.engine.rows["shop"].id
    read_problem(delete(service), 503)
    assert count_rows(service.store, stream)[0] == 16
    execute(service, "DROP TRIGGER fail ON events")
    until(lambda: count_rows(service.store, stream) == [0, 0, 0, 0])


def test_a_server_that_stops_does_not_wait_for_a_long_removal(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on with it."""
    execute(service, "DROP TRIGGER fail ON events")
    stream, gate = service.engine.rows["shop"].id, Gate(removal.delete_slice)
    monkeypatch.setattr(removal, "delete_slice", gate)
    with ThreadPoolExecutor(1) as thread, contextlib.ExitStack() as end:
        end.callback(gate.open)
        deletion = thread.submit(delete, service)
        until(lambda: gate.count)
        service.engine.is_closing = True
        gate.open()
        assert read_problem(deletion.result(20), 503)["cause"] == "stopping"
    assert count_rows(service.store, stream)[0] >= 16
    service.engine.is_closing = False
    until(lambda: count_rows(service.store, stream) == [0, 0, 0, 0])
