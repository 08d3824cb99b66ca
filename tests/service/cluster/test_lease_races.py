"""The lease protocol with several connections at once, in every order that matters.

An operation is one statement; here some run in a transaction that stays open, as if the statement took that long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from support.peers import build_node, expire, fence, is_waiting, read_owners
from support.server import until
from windvane.service.cluster.membership import (
    add_missing,
    join,
    leave,
    read_map,
    release,
    renew,
    retake,
    take,
)
from windvane.service.store.migrations import FORMAT
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.eviction import check_migration, sweep
from windvane.service.store.postgres.schema import write_meta
from windvane.service.store.records import StoreError

LEASE = 60.0
COUNT = 8
A, B = build_node("a"), build_node("b")
Connect = Callable[[], Connection]


class Races:
    """Three connections, and a thread for an operation that has to wait."""

    def __init__(self, connect: Connect, pool: ThreadPoolExecutor) -> None:
        self.first, self.second, self.observer = connect(), connect(), connect()
        self._pool = pool

    def begin(self, work: Callable[..., Any], connection: Connection, *arguments: Any, **options: Any) -> Future[Any]:
        """Start an operation, and return when it waits for a lock."""
        running = self._pool.submit(work, connection, *arguments, **options)
        until(lambda: running.done() or is_waiting(self.observer, connection))
        assert not running.done(), f"it did not wait: {running}"
        return running


@pytest.fixture
def races(connect: Connect) -> Iterator[Races]:
    """A cluster: node a owns shards 0 to 3, node b 4 and 5, and 6 and 7 are free."""
    with ThreadPoolExecutor() as pool:
        running = Races(connect, pool)
        for node in (A, B):
            join(running.first, node, LEASE)
        running.first.execute("DELETE FROM shards")
        add_missing(running.first, COUNT)
        take(running.first, COUNT, "a", 4)
        take(running.first, COUNT, "b", 2)
        yield running


def read_epochs(connection: Connection) -> dict[int, int]:
    return {shard: holding.epoch for shard, holding in read_map(connection, COUNT).map.holdings.items()}


@contextlib.contextmanager
def wait_briefly(connection: Connection) -> Iterator[None]:
    """Locks are not waited for, and that is an error."""
    connection.execute("SET lock_timeout = '20ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        yield
    connection.execute("RESET lock_timeout")


# --- a renewal and a sweep -------------------------------------------------------------------------------------------


def test_a_renewal_that_comes_first_saves_the_node(races: Races) -> None:
    expire(races.observer, "a")
    with races.first.transaction():
        assert renew(races.first, A, LEASE) is not None
        assert sweep(races.second, COUNT) == ([], [])  # does not wait for it
        assert sweep(races.second, COUNT, wait=True) == ([], [])
    assert sweep(races.second, COUNT) == ([], [])
    assert len(read_owners(races.observer)) == 6


def test_a_renewal_that_is_rolled_back_does_not(races: Races) -> None:
    expire(races.observer, "a")
    with races.first.transaction(force_rollback=True):
        renew(races.first, A, LEASE)
    assert sweep(races.second, COUNT) == (["a"], [0, 1, 2, 3])


def test_a_renewal_that_comes_second_learns_that_the_node_is_gone(races: Races) -> None:
    expire(races.observer, "a")
    with races.second.transaction():
        assert sweep(races.second, COUNT) == (["a"], [0, 1, 2, 3])
        renewal = races.begin(renew, races.first, A, LEASE)
    assert renewal.result() is None
    assert read_owners(races.observer).keys() == {4, 5}


def test_a_renewal_goes_on_if_the_sweep_is_rolled_back(races: Races) -> None:
    expire(races.observer, "a")
    with races.second.transaction(force_rollback=True):
        sweep(races.second, COUNT)
        renewal = races.begin(renew, races.first, A, LEASE)
    assert renewal.result() is not None
    assert sweep(races.second, COUNT) == ([], [])
    assert len(read_owners(races.observer)) == 6


def test_a_renewal_does_not_wait_for_long(races: Races) -> None:
    with races.second.transaction():
        races.second.execute("SELECT FROM nodes WHERE instance = 'a' FOR UPDATE")
        with wait_briefly(races.first):
            renew(races.first, A, LEASE)


def test_two_sweeps_at_once_do_not_wait_for_each_other(races: Races) -> None:
    expire(races.observer, "a", "b")
    with races.first.transaction():
        assert sweep(races.first, COUNT) == (["a", "b"], [0, 1, 2, 3, 4, 5])
        assert sweep(races.second, COUNT) == ([], [])
    assert sweep(races.second, COUNT) == ([], [])


# --- a writer and a change of its epoch ------------------------------------------------------------------------------


def test_a_sweep_skips_what_is_written_to_or_waits_for_it(races: Races) -> None:
    epochs = read_epochs(races.observer)
    expire(races.observer, "a")
    with races.first.transaction():
        assert fence(races.first, 1, epochs[1])
        assert sweep(races.second, COUNT) == (["a"], [0, 2, 3])
        with wait_briefly(races.second):
            sweep(races.second, COUNT, wait=True)
        waiting = races.begin(sweep, races.second, COUNT, wait=True)
        assert fence(races.first, 1, epochs[1])  # the writer goes on
    assert waiting.result() == ([], [1])
    assert not fence(races.first, 1, epochs[1])


def test_a_writer_that_comes_second_is_fenced(races: Races) -> None:
    epochs = read_epochs(races.observer)
    expire(races.observer, "a")
    with races.second.transaction():
        sweep(races.second, COUNT)
        writer = races.begin(fence, races.first, 1, epochs[1])
    assert writer.result() is False


def test_a_writer_is_not_fenced_by_a_sweep_that_is_rolled_back(races: Races) -> None:
    epochs = read_epochs(races.observer)
    expire(races.observer, "a")
    with races.second.transaction(force_rollback=True):
        sweep(races.second, COUNT)
        writer = races.begin(fence, races.first, 1, epochs[1])
    assert writer.result() is True


@pytest.mark.parametrize("operation", ["retake", "release"])
def test_epochs_change_after_the_write_that_uses_them(races: Races, operation: str) -> None:
    epochs = read_epochs(races.observer)
    work = {
        "retake": lambda connection: retake(connection, COUNT, "a").keys(),
        "release": lambda connection: release(connection, "a", {shard: epochs[shard] for shard in range(4)}),
    }[operation]
    with races.first.transaction():
        assert fence(races.first, 2, epochs[2])
        with wait_briefly(races.second):
            work(races.second)
        assert read_epochs(races.observer) == epochs  # all or nothing
        waiting = races.begin(work, races.second)
    assert waiting.result() == {0, 1, 2, 3}
    assert not fence(races.first, 2, epochs[2])


def test_a_node_leaves_without_waiting(races: Races) -> None:
    epochs = read_epochs(races.observer)
    with races.first.transaction():
        assert fence(races.first, 2, epochs[2])
        leave(races.second, "a")
        assert read_owners(races.observer) == {2: "a", 4: "b", 5: "b"}
        assert read_map(races.observer, COUNT).needs_sweep
    assert sweep(races.second, COUNT) == ([], [2])


def test_a_writer_of_one_shard_does_not_disturb_the_others(races: Races) -> None:
    epochs = read_epochs(races.observer)
    with races.first.transaction():
        assert fence(races.first, 2, epochs[2])
        assert retake(races.second, COUNT, "a", [0, 1, 3]).keys() == {0, 1, 3}
        assert release(races.second, "b", {4: epochs[4]}) == {4}
        assert len(take(races.second, COUNT, "b", 10)) == 3


# --- two that take ---------------------------------------------------------------------------------------------------


def test_two_nodes_take_different_shards(races: Races) -> None:
    leave(races.observer, "a")
    with races.first.transaction():
        first = take(races.first, COUNT, "b", 3)
        join(races.second, A, LEASE)
        second = take(races.second, COUNT, "a", 3)
    assert (first.keys(), second.keys()) == ({0, 1, 2}, {3, 6, 7})


def test_a_sweep_does_not_free_what_a_new_node_has_just_taken(races: Races) -> None:
    """The sweep sees shard 0 with a node that is gone, waits, and finds it with one that it does not know."""
    races.observer.execute("UPDATE shards SET node = 'gone' WHERE shard = 0")
    with races.first.transaction():
        races.first.execute("SELECT FROM shards WHERE shard = 0 FOR UPDATE")
        waiting = races.begin(sweep, races.second, COUNT, wait=True)
        join(races.first, build_node("c"), LEASE)
        races.first.execute("UPDATE shards SET node = 'c', epoch = nextval('epochs') WHERE shard = 0")
    assert waiting.result() == ([], [])
    assert read_owners(races.observer)[0] == "c"


def test_rows_are_added_once(races: Races) -> None:
    races.observer.execute("DELETE FROM shards")
    with races.first.transaction():
        assert len(add_missing(races.first, COUNT)) == COUNT
        second = races.begin(add_missing, races.second, COUNT)
    assert second.result() == []


def test_a_name_is_given_to_one_of_two(races: Races) -> None:
    c, other = build_node("c"), build_node("c", instance="other")
    with races.first.transaction():
        assert join(races.first, c, LEASE).has_joined
        second = races.begin(join, races.second, other, LEASE)
    assert (second.result().has_joined, second.result().holder.instance) == (False, "c")


# --- migrations ------------------------------------------------------------------------------------------------------


def test_a_migration_is_refused_while_an_older_node_runs(races: Races) -> None:
    with pytest.raises(StoreError) as caught, races.first.transaction():
        check_migration(races.first, "postgresql://x", FORMAT + 1)
    assert caught.value.code == "in_use"
    assert "a (format 4), b (format 4)" in caught.value.problem
    with races.first.transaction():
        check_migration(races.first, "postgresql://x", FORMAT)


def test_a_migration_fences_nodes_whose_lease_has_run_out(races: Races) -> None:
    epochs = read_epochs(races.observer)
    expire(races.observer, "a", "b")
    with races.first.transaction():
        check_migration(races.first, "postgresql://x", FORMAT + 1)
    assert renew(races.second, A, LEASE) is None
    assert not any(fence(races.second, shard, epochs[shard]) for shard in range(6))


def test_a_node_that_joins_waits_for_the_migration(races: Races) -> None:
    for node in (A, B):
        leave(races.observer, node.instance)
    with races.first.transaction():
        check_migration(races.first, "postgresql://x", FORMAT + 1)
        joining = races.begin(join, races.second, A, LEASE)
        write_meta(races.first, "format", str(FORMAT + 1))
    assert (joining.result().has_joined, joining.result().format) == (False, str(FORMAT + 1))
    assert read_map(races.observer, COUNT).map.nodes == ()


def test_a_migration_waits_for_a_node_that_joins(races: Races) -> None:
    for node in (A, B):
        leave(races.observer, node.instance)

    def migrate(connection: Connection) -> None:
        with connection.transaction():
            check_migration(connection, "postgresql://x", FORMAT + 1)

    with races.first.transaction():
        assert join(races.first, A, LEASE).has_joined
        migration = races.begin(migrate, races.second)
    with pytest.raises(StoreError) as caught:
        migration.result()
    assert caught.value.code == "in_use"
