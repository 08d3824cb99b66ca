"""A server that stands still while its kernel acknowledges what it is sent: nothing waits for it for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import pytest

from support.postgres import Cluster
from support.refusals import rejects
from support.server import until
from windvane.service.store import LATE, DatabaseError, Event, StoreError
from windvane.service.store.postgres import connections
from windvane.service.store.postgres.store import PostgresStore

SECONDS = 1.0  # of silence


def event(number: int, key: str | None = None) -> Event:
    return Event(1, number, 10.0, LATE, None, key, b"{}")


@pytest.fixture
def pg(cluster: Cluster, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """A store with a short answer timeout and an event."""
    with closing(PostgresStore(cluster.url(database))) as store:
        store.append([event(1, "key")])
    monkeypatch.setattr(connections, "ANSWER_SECONDS", SECONDS)
    with closing(PostgresStore(cluster.url(database, connect_timeout=2), shared=True)) as store:
        yield store


def repeat(call: Callable[[], Any]) -> Any:
    """Return the result of a call as soon as it succeeds: on a busy machine, any server may seem to be frozen."""

    def attempt() -> list[Any]:
        with suppress(DatabaseError):
            return [call()]
        return []

    return until(attempt)[0]


def write(store: PostgresStore, number: int) -> None:
    """Write an event, unless an attempt of unknown outcome has."""

    def attempt() -> bool:
        with suppress(DatabaseError):
            store.append([event(number)])
        with suppress(DatabaseError):
            return store.last_number(1) == number
        return False

    until(attempt)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """For calls that might never return."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_commit_does_not_wait_for_a_frozen_session(
    pg: PostgresStore, cluster: Cluster, database: str, thread: ThreadPoolExecutor
) -> None:
    """Another session goes on, and what the frozen one finds when it wakes up is not written twice."""
    write(pg, 2)
    with cluster.frozen(database):
        with rejects(error=DatabaseError) as caught:
            thread.submit(pg.append, [event(3)]).result(20)
        assert "has not answered for 1 s" in str(caught.value)
        thread.submit(write, pg, 3).result(20)
    write(pg, 4)
    assert [each.number for each in pg.read_events(1)] == [1, 2, 3, 4]


def read_at_one_moment(store: PostgresStore) -> int:
    with store.read_transaction():
        return store.last_number(1)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.find_events([(1, "key")]),
        lambda store: store.last_number(1),
        lambda store: store.read_streams(),
        lambda store: store.tokens.read(),
        lambda store: list(store.read_events(1)),
        lambda store: store.add_stream("new", 1.0, "{}") or store.find_stream("new"),
        read_at_one_moment,
    ],
)
def test_nothing_short_waits_for_a_frozen_session(
    pg: PostgresStore, cluster: Cluster, database: str, thread: ThreadPoolExecutor, read: Callable[[Any], Any]
) -> None:
    expected = repeat(lambda: read(pg))
    with cluster.frozen(database):
        with rejects(error=DatabaseError):
            thread.submit(read, pg).result(20)
        assert thread.submit(repeat, lambda: read(pg)).result(20) == expected


def test_the_probe_of_a_recovery_does_not_depend_on_an_old_session(
    pg: PostgresStore, cluster: Cluster, database: str, thread: ThreadPoolExecutor
) -> None:
    """Commits need a new one, too."""
    write(pg, 2)
    with cluster.frozen(database):
        thread.submit(repeat, pg.check_writable).result(20)


def test_nothing_waits_for_a_frozen_server(
    pg: PostgresStore, cluster: Cluster, database: str, thread: ThreadPoolExecutor
) -> None:
    url = cluster.url(database, connect_timeout=2)
    write(pg, 2)
    with cluster.all_frozen():
        for use in (lambda: pg.append([event(3)]), lambda: pg.last_number(1), pg.check_writable):
            for _ in range(2):  # the second one has to connect
                with rejects(error=DatabaseError):
                    thread.submit(use).result(20)
        with rejects(error=StoreError, code="unreachable"):
            thread.submit(PostgresStore, url).result(20)
    write(pg, 3)


def test_a_silence_while_this_process_stood_still_does_not_count(
    pg: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a node that was stopped would give its commits up as it goes on."""
    now = [0.0]

    def jump() -> float:
        now[0] += 1000.0
        return now[0]

    monkeypatch.setattr(connections.time, "monotonic", jump)
    with pg.pool.borrow() as connection:
        connection.answer_timeout = 3 * connections.MAX_STEP_SECONDS
        assert connection.execute("SELECT pg_sleep(0.15)").fetchall() == [("",)]
