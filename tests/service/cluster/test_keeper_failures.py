"""Keepers while the database is away, sessions end, leases are late, and somebody edits the map by hand."""

from __future__ import annotations

import logging
import threading
from contextlib import closing

import pytest

from support.peers import COUNT, Peer, Peers, fence
from support.postgres import Cluster
from support.server import until
from windvane.service.cluster import membership
from windvane.service.cluster.clocks import read_clock
from windvane.service.store.postgres.connections import Address
from windvane.service.store.postgres.eviction import CHANNEL, sweep
from windvane.service.store.records import DatabaseError

SLOW = {"lease": 5.0, "tick": 0.1}


# --- the database is away --------------------------------------------------------------------------------------------


def test_a_database_that_is_away_at_the_start(cluster: Cluster, peers: Peers) -> None:
    cluster.stop()
    (peer,) = [peers.add("a").start()]
    assert isinstance(until(lambda: peer.keeper.problem), DatabaseError)
    assert not peer.keeper.wait_until_joined(0.3)
    assert peer.count_owned() == 0
    with pytest.raises(DatabaseError):
        peer.keeper.retake(0.2)
    cluster.start()
    assert peer.keeper.wait_until_joined(20)
    until(lambda: peer.count_owned() == COUNT)
    assert peer.keeper.problem is None


@pytest.mark.parametrize("end", ["fast", "immediate", "kill"])
def test_a_database_that_goes_away_for_longer_than_a_lease(cluster: Cluster, peers: Peers, end: str) -> None:
    """Nodes own nothing meanwhile, and afterwards what they owned, since nobody has replaced them."""
    first, second = peers.start("a", "b", lease=2.0, tick=0.05)
    epochs = [dict(peer.keeper.epochs) for peer in peers.all]
    if end == "kill":
        cluster.kill()
    else:
        cluster.stop(end)
    until(lambda: first.count_owned() + second.count_owned() == 0)
    assert all(isinstance(peer.keeper.problem, DatabaseError) for peer in peers.all)
    until(lambda: all(read_clock() > peer.keeper.deadline + 0.3 for peer in peers.all))  # their leases have run out
    cluster.start()
    assert peers.wait_for_balance() == [32, 32]
    assert [peer.keeper.epochs for peer in peers.all] == epochs
    until(lambda: all(peer.keeper.problem is None for peer in peers.all))


def test_a_short_restart_is_not_noticed(cluster: Cluster, peers: Peers) -> None:
    (peer,) = peers.start("a", lease=30.0, tick=0.1)
    epochs, deadline = dict(peer.keeper.epochs), peer.keeper.deadline
    cluster.stop("immediate")
    assert peer.count_owned() == COUNT
    cluster.start()
    until(lambda: peer.keeper.deadline > deadline + 1.0 and peer.keeper.problem is None)
    assert (peer.count_owned(), peer.keeper.epochs) == (COUNT, epochs)


def test_a_node_that_stops_while_the_database_is_away(cluster: Cluster, peers: Peers) -> None:
    first, second = peers.start("a", "b")
    cluster.stop()
    first.keeper.stop(release=True, seconds=0.2)
    assert not first.keeper.is_running
    cluster.start()
    until(lambda: second.count_owned() == COUNT)


def test_sessions_that_are_ended(cluster: Cluster, database: str, peers: Peers) -> None:
    peers.start("a", "b", **SLOW)
    epochs = [dict(peer.keeper.epochs) for peer in peers.all]
    for _ in range(5):
        deadlines = [peer.keeper.deadline for peer in peers.all]
        cluster.terminate_backends(database)
        until(lambda: all(peer.keeper.deadline > old for peer, old in zip(peers.all, deadlines, strict=True)))
    assert [peer.keeper.epochs for peer in peers.all] == epochs
    assert [peer.count_owned() for peer in peers.all] == [32, 32]


def test_a_database_that_refuses_everything(cluster: Cluster, database: str, peers: Peers) -> None:
    (peer,) = peers.start("a")
    cluster.execute("ALTER TABLE nodes RENAME TO hidden", database=database)
    problem = until(lambda: peer.keeper.problem)
    assert isinstance(problem, DatabaseError)
    until(lambda: peer.count_owned() == 0)
    cluster.execute("ALTER TABLE hidden RENAME TO nodes", database=database)
    until(lambda: peer.count_owned() == COUNT)


def test_an_error_in_the_keeper_does_not_end_it(
    peers: Peers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (peer,) = peers.start("a")
    with caplog.at_level(logging.ERROR, "windvane.service"), monkeypatch.context() as patch:
        patch.setattr(membership, "read_map", lambda *_: 1 / 0)
        until(lambda: isinstance(peer.keeper.problem, DatabaseError))
    assert "ZeroDivisionError" in caplog.text
    until(lambda: peer.count_owned() == COUNT and peer.keeper.problem is None)


def test_the_password_is_in_no_message(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    url, peers.url = peers.url, "postgresql://user:geheim@/nowhere?host=/nonexistent"
    with caplog.at_level(logging.DEBUG):
        peer = peers.add("a").start()
        problem = until(lambda: peer.keeper.problem)
        peer.keeper.stop()
    assert "geheim" not in f"{problem} {problem!r} {caplog.text}"
    peers.url = url


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_dead_node_that_still_writes_is_replaced(peers: Peers) -> None:
    """The others do not wait for it: they take what it does not write to, and the rest when it has ended."""
    first, second = peers.start("a", "b")
    shard, epoch = next(iter(first.keeper.epochs.items()))
    with closing(Address(peers.url).connect()) as writer:
        with writer.transaction():
            assert fence(writer, shard, epoch)
            first.keeper.stop(release=False)
            until(lambda: second.count_owned() == COUNT - 1)
            assert second.keeper.owns(shard) is None
            assert second.keeper.problem is None
        until(lambda: second.count_owned() == COUNT)
        assert not fence(writer, shard, epoch)


def test_a_stopped_writer_is_ended_by_the_server(peers: Peers) -> None:
    """A transaction that stays open without a statement ends after idle_in_transaction_session_timeout."""
    first, second = peers.start("a", "b")
    shard, epoch = next(iter(first.keeper.epochs.items()))
    with closing(Address(peers.url).connect(idle_in_transaction_session_timeout=500)) as writer:
        writer.execute("BEGIN")
        assert fence(writer, shard, epoch)
        first.keeper.stop(release=False)
        until(lambda: second.count_owned() == COUNT)


def test_a_lock_on_the_lease_is_waited_for_briefly(peers: Peers) -> None:
    (peer,) = peers.start("a")
    epochs = dict(peer.keeper.epochs)
    with closing(Address(peers.url).connect(idle_in_transaction_session_timeout=0)) as locker:
        with locker.transaction():
            locker.execute("SELECT FROM nodes FOR UPDATE")
            until(lambda: peer.count_owned() == 0)
            assert isinstance(peer.keeper.problem, DatabaseError)
        until(lambda: peer.count_owned() == COUNT)
    assert peer.keeper.epochs == epochs


# --- edits by hand ---------------------------------------------------------------------------------------------------

EDITS = {
    "rows deleted": "DELETE FROM shards WHERE shard %% 3 = 0",
    "all rows deleted": "DELETE FROM shards",
    "a garbage node": "UPDATE shards SET node = 'garbage' WHERE shard < 20",
    "no node": "UPDATE shards SET node = NULL WHERE shard < 20",
    "epochs backwards": "UPDATE shards SET epoch = epoch - 1000",
    "epochs forwards": "UPDATE shards SET epoch = epoch + 1000000 WHERE shard %% 2 = 0",
    "another live node": "UPDATE shards SET node = %(b)s",
    "nodes swapped": "UPDATE shards SET node = CASE node WHEN %(a)s THEN %(b)s ELSE %(a)s END",
    "rows beyond the count": "INSERT INTO shards VALUES (64, 1, %(a)s), (1000, 2, 'x'), (-1, 3, NULL)",
    "numbers changed": "UPDATE shards SET shard = shard + 500 WHERE shard < 10",
    "a node deleted": "DELETE FROM nodes WHERE name = 'a'",
    "all nodes deleted": "DELETE FROM nodes",
    "a lease in the past": "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 h' WHERE name = 'a'",
    "a lease without an end": "UPDATE nodes SET lease_until = 'infinity' WHERE name = 'a'",
    "an instance renamed": "UPDATE nodes SET instance = 'x' WHERE name = 'a'",
    "the name of a node": "UPDATE nodes SET name = 'z' WHERE name = 'a'",
    "joined in eternity": "UPDATE nodes SET joined = 'infinity'",
    "tables emptied": "TRUNCATE nodes, shards",
}


@pytest.mark.parametrize("edit", EDITS)
def test_the_map_is_edited_by_hand(peers: Peers, edit: str) -> None:
    """Whatever it was: soon every shard has one owner again, the map agrees, and what was lost was announced."""
    first, second = peers.start("a", "b", lease=1.0, tick=0.05)
    with closing(Address(peers.url).connect()) as connection:
        instances = {"a": first.keeper.node.instance, "b": second.keeper.node.instance}
        connection.execute(EDITS[edit].encode(), instances)
        connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
        until(lambda: peers.is_sound(connection))
    peers.wait_for_balance()
    assert all(peer.keeper.problem is None for peer in peers.all)


def test_a_node_that_exists_only_in_the_table_is_removed(peers: Peers) -> None:
    """Its share stays free until its lease has run out."""
    (peer,) = peers.start("a")
    with closing(Address(peers.url).connect()) as connection:
        sql = """INSERT INTO nodes VALUES ('ghost', 'ghost', '', '', 4, clock_timestamp(),
            clock_timestamp() + interval '1 s')"""
        connection.execute(sql)
        sweep(connection, COUNT)
    until(lambda: len(peer.keeper.map.nodes) == 1 and peer.count_owned() == COUNT)


def test_a_shard_is_dropped_as_soon_as_the_map_says_so(peers: Peers) -> None:
    """Without waiting for a tick or for the deadline."""
    (peer,) = peers.start("a", lease=60.0, tick=20.0)
    epochs = dict(peer.keeper.epochs)
    with closing(Address(peers.url).connect()) as connection:
        connection.execute("UPDATE shards SET epoch = epoch + 1000000 WHERE shard = 7")
        connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
        until(lambda: peer.keeper.owns(7) not in (None, epochs[7]))
    assert until(lambda: peer.read_log("lost")) == [frozenset({7})]  # it is told in the event loop
    assert {shard: epoch for shard, epoch in peer.keeper.epochs.items() if shard != 7} == {
        shard: epoch for shard, epoch in epochs.items() if shard != 7
    }


# --- threads ---------------------------------------------------------------------------------------------------------


def test_many_threads_release_and_take_again(peers: Peers) -> None:
    first, second = peers.start("a", "b", **SLOW)

    def disturb(peer: Peer, number: int) -> None:
        for turn in range(5):
            if (turn + number) % 3:
                peer.keeper.release([*peer.keeper.epochs][number::8])
            else:
                peer.keeper.retake()

    threads = [threading.Thread(target=disturb, args=(peer, number)) for peer in (first, second) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peers.wait_for_balance()
    assert not first.keeper.epochs.keys() & second.keeper.epochs.keys()


def test_a_keeper_that_hangs_does_not_hang_those_who_ask(peers: Peers) -> None:
    (peer,) = peers.start("a")
    peer.address.freeze()
    with pytest.raises(DatabaseError):
        peer.keeper.retake(0.2)
    peer.keeper.stop(seconds=0.2)
    assert peer.count_owned() == 0
    peer.address.thaw()
    until(lambda: not peer.keeper.is_running)
