"""Each operation of the lease protocol by itself, and what is left of it when the map was edited by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.peers import build_node, expire, fence, read_owners
from windvane.service.cluster.membership import (
    MAX_LEASE_SECONDS,
    add_missing,
    join,
    leave,
    read_map,
    read_time,
    release,
    renew,
    retake,
    take,
)
from windvane.service.cluster.shard_map import Holding
from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.eviction import CHANNEL, sweep

LEASE = 60.0
COUNT = 8
A, B = build_node("a"), build_node("b")


@pytest.fixture
def connection(connection: Connection) -> Connection:
    """A cluster of two nodes without shards."""
    for node in (A, B):
        assert join(connection, node, LEASE).has_joined
    connection.execute("DELETE FROM shards")
    add_missing(connection, COUNT)
    return connection


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_a_node_joins_and_leaves(connection: Connection) -> None:
    before = read_time(connection)
    assert join(connection, build_node("c", url="http://c:1", version="2.3"), LEASE).has_joined
    (node,) = (node for node in read_map(connection, COUNT).map.nodes if node.name == "c")
    assert node[:5] == ("c", "c", "http://c:1", "2.3", A.format)
    assert before <= node.joined <= read_time(connection)
    leave(connection, "c")
    assert [node.name for node in read_map(connection, COUNT).map.nodes] == ["a", "b"]


def test_to_join_twice_with_one_instance_is_harmless(connection: Connection) -> None:
    assert join(connection, A, LEASE).has_joined
    assert len(read_map(connection, COUNT).map.nodes) == 2


def test_a_name_is_given_once(connection: Connection) -> None:
    result = join(connection, A._replace(instance="other", url="http://other"), LEASE)
    assert not result.has_joined
    assert result.holder is not None
    assert (result.holder.instance, result.holder.url) == ("a", A.url)
    assert LEASE - 10 < result.remaining <= LEASE
    expire(connection, "a")
    assert join(connection, A._replace(instance="other"), LEASE).remaining < 0
    sweep(connection, COUNT)
    assert join(connection, A._replace(instance="other"), LEASE).has_joined


@pytest.mark.parametrize("change", [-1, 1])
def test_a_node_of_another_format_does_not_join(connection: Connection, change: int) -> None:
    result = join(connection, build_node("c", format=A.format + change), LEASE)
    assert (result.has_joined, result.format) == (False, str(A.format))
    assert len(read_map(connection, COUNT).map.nodes) == 2


def test_a_node_does_not_join_a_store_without_a_format(connection: Connection) -> None:
    connection.execute("DELETE FROM meta WHERE name = 'format'")
    result = join(connection, build_node("c"), LEASE)
    assert (result.has_joined, result.format) == (False, None)


def test_a_renewal_extends_the_lease_and_repairs_the_url(connection: Connection) -> None:
    expire(connection, "a")
    connection.execute("UPDATE nodes SET url = 'edited'")
    before = read_time(connection)
    now = renew(connection, A, LEASE)
    assert now is not None
    assert before <= now <= read_time(connection)
    assert read_map(connection, COUNT).map.find_node("a") == A._replace(joined=pytest.approx(before, abs=60))
    assert sweep(connection, COUNT) == ([], [])


def test_a_node_that_was_removed_cannot_renew(connection: Connection) -> None:
    connection.execute("DELETE FROM nodes WHERE instance = 'a'")
    assert renew(connection, A, LEASE) is None
    assert [node.name for node in read_map(connection, COUNT).map.nodes] == ["b"]


def test_a_node_that_leaves_frees_its_shards(connection: Connection) -> None:
    taken = take(connection, COUNT, "a", 3)
    take(connection, COUNT, "b", 2)
    leave(connection, "a")
    assert read_owners(connection) == {3: "b", 4: "b"}
    epochs = {shard: holding.epoch for shard, holding in read_map(connection, COUNT).map.holdings.items()}
    assert all(epochs[shard] > epoch for shard, epoch in taken.items())


# --- the map ---------------------------------------------------------------------------------------------------------


def test_the_map_tells_who_owns_what(connection: Connection) -> None:
    taken = take(connection, COUNT, "b", 2)
    reading = read_map(connection, COUNT)
    assert [node.name for node in reading.map.nodes] == ["a", "b"]
    assert {shard: node.name for shard, node in reading.map.owners.items()} == {0: "b", 1: "b"}
    assert [reading.map.holdings[shard] for shard in (0, 1)] == [Holding(taken[0], "b"), Holding(taken[1], "b")]
    assert reading.map.find_free() == [2, 3, 4, 5, 6, 7]
    assert reading.map.find_missing(COUNT) == []
    assert not reading.needs_sweep
    assert 0 < reading.next_expiry <= LEASE
    assert reading.instances == {"a", "b"}


def test_rows_beyond_the_count_are_ignored(connection: Connection) -> None:
    connection.execute("INSERT INTO shards VALUES (-1, -1, NULL), (8, -2, NULL), (99, -3, 'gone')")
    reading = read_map(connection, COUNT)
    assert (*reading.map.holdings,) == (*range(COUNT),)
    assert not reading.needs_sweep
    assert sweep(connection, COUNT) == ([], [])
    assert (*take(connection, COUNT, "a", 100),) == (*range(COUNT),)
    connection.execute("UPDATE shards SET node = 'a'")
    assert (*retake(connection, COUNT, "a"),) == (*range(COUNT),)


def test_missing_rows_are_added(connection: Connection) -> None:
    take(connection, COUNT, "a", 8)
    connection.execute("DELETE FROM shards WHERE shard IN (2, 5)")
    assert read_map(connection, COUNT).map.find_missing(COUNT) == [2, 5]
    assert add_missing(connection, COUNT) == [2, 5]
    assert add_missing(connection, COUNT) == []
    assert read_map(connection, COUNT).map.find_free() == [2, 5]
    assert read_owners(connection).keys() == {0, 1, 3, 4, 6, 7}


def test_a_lease_that_ran_out_shows_in_the_map(connection: Connection) -> None:
    take(connection, COUNT, "a", 2)
    expire(connection, "a")
    reading = read_map(connection, COUNT, "b")
    assert reading.needs_sweep
    assert reading.next_expiry < 0
    assert [node.name for node in reading.map.nodes] == ["b"]
    assert reading.map.owners == {}
    assert reading.instances == {"a", "b"}
    assert not read_map(connection, COUNT, "a").needs_sweep  # a node renews its own lease


def test_a_sweep_removes_nodes_and_frees_their_shards(connection: Connection) -> None:
    held = {**take(connection, COUNT, "a", 3), **take(connection, COUNT, "b", 2)}
    assert sweep(connection, COUNT) == ([], [])
    expire(connection, "a", "b")
    assert sweep(connection, COUNT, "b") == (["a"], [0, 1, 2])  # never oneself
    holdings = read_map(connection, COUNT).map.holdings
    assert all(holdings[shard].epoch > held[shard] for shard in (0, 1, 2))
    assert read_owners(connection) == {3: "b", 4: "b"}
    assert sweep(connection, COUNT, wait=True) == (["b"], [3, 4])


@pytest.mark.parametrize("garbage", ["gone", "", "a'; DROP TABLE shards; --", "x" * 3000])
def test_shards_of_unknown_nodes_become_free(connection: Connection, garbage: str) -> None:
    take(connection, COUNT, "a", 8)
    connection.execute("UPDATE shards SET node = %s WHERE shard = 3", (garbage,))
    reading = read_map(connection, COUNT)
    assert reading.needs_sweep
    assert 3 not in reading.map.owners
    assert sweep(connection, COUNT) == ([], [3])
    assert 3 not in read_owners(connection)


@pytest.mark.parametrize(
    ("until", "removed"), [("infinity", []), ("-infinity", ["a"]), ("2999-01-01", []), ("0001-01-01", ["a"])]
)
def test_impossible_leases_are_ended(connection: Connection, until: str, removed: list[str]) -> None:
    """As after an edit by hand, or after the database's clock was set back."""
    connection.execute("UPDATE nodes SET lease_until = %s, joined = %s WHERE instance = 'a'", (until, until))
    assert read_map(connection, COUNT).needs_sweep
    assert sweep(connection, COUNT).removed == removed
    reading = read_map(connection, COUNT)
    assert not reading.needs_sweep
    assert reading.next_expiry <= MAX_LEASE_SECONDS


# --- shards ----------------------------------------------------------------------------------------------------------


def test_free_shards_are_taken_once(connection: Connection) -> None:
    free = read_map(connection, COUNT).map.holdings
    first, second = take(connection, COUNT, "a", 5), take(connection, COUNT, "b", 5)
    assert (len(first), len(second)) == (5, 3)
    assert not first.keys() & second.keys()
    assert take(connection, COUNT, "a", 5) == {}
    epochs = [*first.values(), *second.values()]
    assert len({*epochs}) == 8
    assert all(epoch > free[shard].epoch for shard, epoch in {**first, **second}.items())
    assert take(connection, COUNT, "a", 0) == {}


def test_a_node_without_a_lease_takes_nothing(connection: Connection) -> None:
    expire(connection, "a")
    assert take(connection, COUNT, "a", 5) == {}
    assert take(connection, COUNT, "unknown", 5) == {}


def test_shards_are_taken_again_under_new_epochs(connection: Connection) -> None:
    first = take(connection, COUNT, "a", 5)
    take(connection, COUNT, "b", 1)
    second = retake(connection, COUNT, "a")
    assert second.keys() == first.keys()
    assert min(second.values()) > max(first.values())
    third = retake(connection, COUNT, "a", [1, 3, 5, 7])
    assert third.keys() == {1, 3}
    assert retake(connection, COUNT, "a", []) == {}


def test_shards_are_released_by_their_owner_only(connection: Connection) -> None:
    taken = take(connection, COUNT, "a", 4)
    assert release(connection, "b", taken) == set()
    assert release(connection, "a", {}) == set()
    assert release(connection, "a", {0: taken[0], 1: taken[1] + 1000, 2: taken[2]}) == {0, 2}
    assert release(connection, "a", taken) == {1, 3}
    assert read_map(connection, COUNT).map.find_free() == [*range(COUNT)]


def test_epochs_are_never_used_again(connection: Connection) -> None:
    """Also if somebody sets one back."""
    seen: set[int] = set()
    for _ in range(5):
        taken = take(connection, COUNT, "a", 8)
        retaken = retake(connection, COUNT, "a")
        new = {*taken.values(), *retaken.values()}
        assert not new & seen
        seen |= new
        connection.execute("UPDATE shards SET epoch = epoch - 10")
        leave(connection, "a")
        join(connection, A, LEASE)


def test_a_stale_owner_cannot_write_after_the_epochs_were_set_back(connection: Connection) -> None:
    """An asynchronous standby was promoted: it knows nothing of the last change of owners, and of their epochs."""
    take(connection, COUNT, "a", 8)
    shards = connection.execute("SELECT shard, epoch, node FROM shards").fetchall()
    state = connection.execute("SELECT last_value, is_called FROM epochs").fetchone()
    release(connection, "a", {shard: epoch for shard, epoch, _ in shards})
    lost = take(connection, COUNT, "b", 8)
    for shard, epoch, node in shards:
        connection.execute("UPDATE shards SET epoch = %s, node = %s WHERE shard = %s", (epoch, node, shard))
    connection.execute("SELECT setval('epochs', %s, %s)", state)
    release(connection, "a", {shard: epoch for shard, epoch, _ in shards})
    taken = take(connection, COUNT, "a", 8)
    assert taken.keys() == lost.keys()
    assert not any(fence(connection, shard, epoch) for shard, epoch in lost.items())
    assert all(fence(connection, shard, epoch) for shard, epoch in taken.items())


# --- notifications ---------------------------------------------------------------------------------------------------


def count_notifications(listener: Connection) -> int:
    listener.execute("SELECT 1")
    return len([*listener.notifies(timeout=0)])


def test_every_change_is_announced_and_nothing_else(connection: Connection, connect: Callable[[], Connection]) -> None:
    listener = connect()
    listener.execute(f"LISTEN {CHANNEL}".encode())
    taken = take(connection, COUNT, "a", 4)
    changes: list[Callable[[], object]] = [
        lambda: join(connection, build_node("c"), LEASE),
        lambda: take(connection, COUNT, "c", 2),
        lambda: retake(connection, COUNT, "c"),
        lambda: release(connection, "a", taken),
        lambda: leave(connection, "c"),
        lambda: (expire(connection, "b"), sweep(connection, COUNT)),
        lambda: (connection.execute("DELETE FROM shards"), add_missing(connection, COUNT)),
    ]
    assert count_notifications(listener) == 1
    for change in changes:
        change()
        assert count_notifications(listener) == 1
    for _ in range(2):
        read_map(connection, COUNT)
        renew(connection, A, LEASE)
        sweep(connection, COUNT)
        sweep(connection, COUNT, wait=True)
        add_missing(connection, COUNT)
        join(connection, A, LEASE)
        join(connection, A._replace(instance="x"), LEASE)
        release(connection, "a", taken)
        retake(connection, COUNT, "a")
        take(connection, COUNT, "gone", 4)
    assert count_notifications(listener) == 0
