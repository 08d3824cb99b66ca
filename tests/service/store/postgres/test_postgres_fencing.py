"""A node that no longer owns a shard writes nothing of it, whenever it lost it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

from support.postgres import Cluster
from support.server import until
from support.stores import snapshot_number
from windvane.cluster_map import shard_of
from windvane.service.store import (
    LATE,
    Baseline,
    DatabaseError,
    Erasure,
    Event,
    FencedError,
    Snapshot,
    StreamRow,
    TooManyStreamsError,
)
from windvane.service.store.postgres.schema import SHARDS
from windvane.service.store.postgres.store import PostgresStore

SNAPSHOT = Snapshot(1, b"chain", b"agent", b"{}")
BASELINE = Baseline(SNAPSHOT, 1, b"chain", 1.0, 1.0)


def event(stream: int, number: int = 1) -> Event:
    return Event(stream, number, 10.0, LATE, None, None, b"{}")


def add_streams(store: PostgresStore, count: int) -> list[StreamRow]:
    """Add streams in different shards; the names are chosen so."""
    rows: dict[int, StreamRow] = {}
    for i in range(1000):
        shard = shard_of(f"s{i}", store.shards)
        if shard not in rows and len(rows) < count:
            row = store.add_stream(f"s{i}", 1.0, "{}")
            assert row is not None
            rows[shard] = row
    return list(rows.values())


def take(url: str, *rows: StreamRow) -> dict[int, int]:
    """Take the shards of some streams over, as another node does; return the new epochs by stream."""
    epochs = {}
    with psycopg.connect(url) as connection:
        for row in rows:
            query = "UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s RETURNING epoch"
            ((epochs[row.id],),) = connection.execute(query, (shard_of(row.name, SHARDS),)).fetchall()
    return epochs


@contextmanager
def waiting(cluster: Cluster, database: str, call: Callable[[], None]) -> Iterator[Future[None]]:
    """Call in a thread; begin when the call waits for a lock."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        query = "SELECT 1 FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        until(lambda: cluster.execute(query, database))
        yield future


def test_the_owner_writes(pg: PostgresStore, database_url: str) -> None:
    first, second = add_streams(pg, 2)
    epochs = take(database_url, first, second)
    pg.append([event(first.id), event(second.id)], [(first.id, SNAPSHOT)], epochs=epochs)
    pg.append([event(first.id, 2)], [], [Erasure(first.id, BASELINE)], epochs | {77: 1})
    assert [each.number for each in pg.read_events(first.id)] == [2]
    assert pg.last_number(second.id) == 1


@pytest.mark.parametrize("kind", ["event", "snapshot", "erasure"])
def test_nothing_is_written_if_one_shard_is_lost(pg: PostgresStore, database_url: str, kind: str) -> None:
    """The error names the streams that are lost: the caller repeats without them."""
    kept, lost, other = add_streams(pg, 3)
    epochs = take(database_url, kept, lost, other)
    pg.append([event(lost.id)], epochs=epochs)
    new = take(database_url, lost)
    events = [event(kept.id), event(other.id)] + ([event(lost.id, 2)] if kind == "event" else [])
    snapshots = [(lost.id, SNAPSHOT)] if kind == "snapshot" else []
    erasures = [Erasure(lost.id, BASELINE)] if kind == "erasure" else []
    with pytest.raises(FencedError) as caught:
        pg.append(events, snapshots, erasures, epochs)
    assert caught.value.streams == {lost.id}
    assert [pg.last_number(row.id) for row in (kept, lost, other)] == [0, 1, 0]
    assert (pg.read_snapshot(lost.id), pg.read_baseline(lost.id)) == (None, None)
    pg.append(events[:2], epochs=epochs)
    pg.append(events[2:], snapshots, erasures, new)


def test_a_stream_without_an_epoch_or_that_is_gone_is_fenced(pg: PostgresStore, database_url: str) -> None:
    first, second = add_streams(pg, 2)
    epochs = take(database_url, first)
    with pytest.raises(FencedError) as caught:
        pg.append([event(first.id), event(second.id)], epochs=epochs)
    assert caught.value.streams == {second.id}
    pg.remove_stream(first)
    with pytest.raises(FencedError) as caught:
        pg.append([event(first.id)], epochs=epochs)
    assert caught.value.streams == {first.id}


def test_a_takeover_that_is_being_committed_is_waited_for(
    pg: PostgresStore, database_url: str, cluster: Cluster, database: str
) -> None:
    """The epoch is compared again after waiting for the lock; a takeover that is rolled back changes nothing."""
    for is_committed in (False, True):
        (row,) = add_streams(pg, 1) if not is_committed else pg.read_streams()
        epochs = take(database_url, row)
        with psycopg.connect(database_url) as taker:
            taker.execute("UPDATE shards SET epoch = nextval('epochs') WHERE shard = %s", (shard_of(row.name, SHARDS),))
            number = pg.last_number(row.id) + 1
            with waiting(cluster, database, lambda: pg.append([event(row.id, number)], epochs=epochs)) as future:
                assert not future.done()
                taker.commit() if is_committed else taker.rollback()
                if not is_committed:
                    future.result(20)
                else:
                    with pytest.raises(FencedError):
                        future.result(20)
        assert pg.last_number(row.id) == 1


def test_a_takeover_waits_for_a_commit(pg: PostgresStore, database_url: str, cluster: Cluster, database: str) -> None:
    """So the new owner, which reads the events after it, misses none."""
    (row,) = add_streams(pg, 1)
    epochs = take(database_url, row)
    # Another session has inserted an event with the same number: the append, which holds its shard, waits for it.
    with psycopg.connect(database_url) as blocker:
        blocker.execute("INSERT INTO events VALUES (%s, 1, 0, 1, NULL, NULL, '', NULL, NULL, NULL, '')", (row.id,))
        with waiting(cluster, database, lambda: pg.append([event(row.id)], epochs=epochs)) as append:
            taken = threading.Event()

            def take_over() -> None:
                take(database_url, row)
                taken.set()

            with ThreadPoolExecutor(1) as pool:
                takeover = pool.submit(take_over)
                query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
                until(lambda: cluster.execute(query, database) == [(2,)])
                assert not taken.is_set()
                blocker.rollback()
                append.result(20)
                takeover.result(20)
    assert pg.last_number(row.id) == 1


def test_two_writers_cannot_both_write_an_event(pg: PostgresStore, database_url: str) -> None:
    """The second fence: also if nothing else is compared."""
    pg.append([event(1)])
    with closing(PostgresStore(database_url)) as other:
        with pytest.raises(DatabaseError) as caught:
            other.append([event(2), event(1)])
        assert caught.value.sqlstate == "23505"
        assert other.last_number(2) == 0
        other.append([event(2)])


def test_streams_are_added_and_removed_by_the_owner_of_the_shard(pg: PostgresStore, database_url: str) -> None:
    row = pg.add_stream("shop", 1.0, "{}", epoch=0)
    assert row is not None
    old = take(database_url, row)[row.id]
    epoch = take(database_url, row)[row.id]
    pg.append([event(row.id)], [(row.id, SNAPSHOT)])
    pg.append([event(row.id, 2)], [], [Erasure(row.id, BASELINE)])
    with pytest.raises(FencedError) as caught:
        pg.begin_removal(row, epoch=old)
    assert caught.value.streams == {row.id}
    assert pg.find_stream("shop") == row
    pg.begin_removal(row, epoch=epoch)
    assert pg.purge()
    assert (pg.find_stream("shop"), pg.last_number(row.id), pg.read_baseline(row.id)) == (None, 0, None)
    with pytest.raises(FencedError):
        pg.add_stream("shop", 1.0, "{}", epoch=old)
    again = pg.add_stream("shop", 1.0, "{}", epoch=epoch)
    assert again is not None
    assert again.id > row.id
    shard = shard_of("shop", SHARDS)
    assert pg.read_streams([shard]) == [again]
    assert pg.read_streams([shard + 1, shard + 2]) == pg.read_streams([]) == []


def test_the_number_of_streams_is_limited_across_nodes(pg: PostgresStore, database_url: str) -> None:
    """Two nodes that add streams at once do not exceed the limit together."""
    results: list[str] = []
    with closing(PostgresStore(database_url)) as other:

        def add(store: PostgresStore, prefix: str) -> None:
            for i in range(10):
                try:
                    results.append("added" if store.add_stream(f"{prefix}{i}", 1.0, "{}", most=7) else "taken")
                except TooManyStreamsError as error:
                    results.append(f"limit {error.most}")

        threads = [threading.Thread(target=add, args=pair) for pair in ((pg, "a"), (other, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == ["added"] * 7 + ["limit 7"] * 13
    assert len(pg.read_streams()) == 7
    assert pg.add_stream(pg.read_streams()[0].name, 1.0, "{}", most=7) is None


def test_a_copied_stream_keeps_its_id(pg: PostgresStore) -> None:
    rows = [pg.add_stream(f"s{i}", 1.0, "{}", id=number) for i, number in enumerate((None, 40, None, 7, None))]
    assert [row.id for row in rows if row is not None and row.is_sound] == [1, 40, 41, 7, 42]
    with pytest.raises(DatabaseError):
        pg.add_stream("other", 1.0, "{}", id=7)
    assert pg.find_stream("other") is None


def test_nothing_is_written_after_an_event_that_the_database_has_lost(pg: PostgresStore, database_url: str) -> None:
    """A standby was promoted that did not have it: the log would have a gap, and could not be replayed."""
    lost, whole = add_streams(pg, 2)
    epochs = take(database_url, lost, whole)
    pg.append([event(row.id, number) for row in (lost, whole) for number in (1, 2)], epochs=epochs)
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM events WHERE stream = %s AND number = 2", (lost.id,))
    with pytest.raises(DatabaseError):
        pg.append([event(whole.id, 3), event(lost.id, 3)], [(whole.id, SNAPSHOT)], epochs=epochs)
    assert (pg.last_number(whole.id), snapshot_number(pg, whole.id)) == (2, 0)
    pg.append([event(lost.id, 2), event(lost.id, 3)], epochs=epochs)
    baseline = BASELINE._replace(snapshot=SNAPSHOT._replace(number=3), removed=3)
    pg.append([], [], [Erasure(lost.id, baseline)], epochs)
    pg.append([event(lost.id, 4)], epochs=epochs)
    assert [each.number for each in pg.read_events(lost.id)] == [4]
