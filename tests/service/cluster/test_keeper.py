"""Keepers that join, share the shards, take over, and leave."""

from __future__ import annotations

import time
from contextlib import closing

import psycopg
import pytest

from support.peers import COUNT, Peer, Peers, fence, settle
from support.postgres import Cluster
from support.server import until
from windvane.service.cluster.clocks import read_clock
from windvane.service.store.migrations import FORMAT
from windvane.service.store.postgres.connections import Address
from windvane.service.store.postgres.schema import create_schema
from windvane.service.store.records import DatabaseError, StoreError

SLOW = {"lease": 5.0, "tick": 0.1}  # for tests in which no lease may run out by accident


# --- shares ----------------------------------------------------------------------------------------------------------


def test_nodes_share_the_shards_and_leave_it_at_that(peers: Peers) -> None:
    for name, counts in (("a", [64]), ("b", [32, 32]), ("c", [22, 21, 21]), ("d", [16, 16, 16, 16])):
        peers.start(name, **SLOW)
        assert settle(lambda: [peer.count_owned() for peer in peers.all], 0.5) == [counts]
    lengths = [len(peer.log) for peer in peers.all]
    settle(lambda: None, 0.5)
    assert [len(peer.log) for peer in peers.all] == lengths  # nothing moves
    for peer in peers.all:
        assert all(len(shards) <= 8 for shards in peer.read_log("excess"))
        assert {shard: peer.keeper.owns(shard) for shard in peer.owned} == peer.owned == peer.keeper.epochs
        assert peer.keeper.problem is None
    assert peers.all[0].keeper.map == peers.all[3].keeper.map
    owners = peers.all[0].keeper.map.owners
    assert all(owners[shard].name == "d" for shard in peers.all[3].owned)
    assert {node.name: node.url for node in owners.values()}["c"] == "http://c:8000"


def test_nodes_that_start_at_once_share_the_shards(peers: Peers) -> None:
    peers.start("a", "b", "c", **SLOW)
    assert sorted(peer.count_owned() for peer in peers.all) == [21, 21, 22]


def test_most_shards_stay_owned_while_they_move(peers: Peers) -> None:
    (first,) = peers.start("a", **SLOW)
    second = peers.add("b", **SLOW)
    counts: list[int] = []
    second.start()
    while min(first.count_owned(), second.count_owned()) < 32:
        counts.append(COUNT - first.count_owned() - second.count_owned())
        time.sleep(0.001)
    # A step moves eight. The two are not counted at one moment, so a second step may be counted as well.
    assert max(counts) <= 16


def test_shards_are_proposed_once_and_kept_until_they_are_released(peers: Peers) -> None:
    first = peers.add("a", is_obedient=False, **SLOW).start()
    until(lambda: first.count_owned() == COUNT)
    second = peers.add("b", **SLOW).start()
    (shards,) = until(lambda: first.read_log("excess"))
    assert len(shards) == 8
    settle(lambda: None, 0.5)
    assert first.read_log("excess") == [shards]
    assert (first.count_owned(), second.count_owned()) == (64, 0)
    assert first.keeper.release(shards) == shards
    until(lambda: second.count_owned() == 8)
    assert second.owned.keys() == shards
    assert len(until(lambda: first.read_log("excess")[1:])) == 1  # the next step
    assert first.keeper.release([*shards, 1000]) == set()


# --- an owner is gone ------------------------------------------------------------------------------------------------


def test_a_node_withdraws_and_still_reads_the_map(peers: Peers) -> None:
    first, second = peers.start("a", "b", **SLOW)
    first.keeper.drain()
    until(lambda: second.count_owned() == COUNT)
    assert first.read_log("lost")[-1] <= first.read_log("excess")[-1]
    until(lambda: [node.name for node in first.keeper.map.nodes] == ["b"])
    until(lambda: len(first.keeper.map.owners) == COUNT)
    assert first.keeper.is_running
    peers.add("c", **SLOW).start()
    until(lambda: [node.name for node in first.keeper.map.nodes] == ["b", "c"])
    assert first.count_owned() == 0


def test_a_node_that_is_alone_has_nobody_to_leave_its_shards_to(peers: Peers) -> None:
    (first,) = peers.start("a", **SLOW)
    first.keeper.drain()
    settle(lambda: None, 0.3)
    assert (first.count_owned(), first.read_log("excess"), first.keeper.is_handed_over) == (COUNT, [], True)
    second = peers.add("b", **SLOW).start()
    until(lambda: second.count_owned() == COUNT)
    until(lambda: first.keeper.is_handed_over)


@pytest.mark.parametrize("releases", [True, False])
def test_others_take_over(peers: Peers, releases: bool) -> None:
    first, second, third = peers.start("a", "b", "c")
    old, instance = dict(first.keeper.epochs), first.keeper.node.instance
    first.keeper.stop(release=releases)
    until(lambda: second.keeper.map.find_node(instance) is None)
    assert second.keeper.has_left(instance) is releases  # else it was evicted
    assert first.count_owned() == 0
    assert not first.keeper.is_running
    peers.wait_for_balance()
    new = {**second.keeper.epochs, **third.keeper.epochs}
    assert new.keys() == {*range(COUNT)}
    assert all(new[shard] > epoch for shard, epoch in old.items())


def test_a_node_that_leaves_is_replaced_at_once(peers: Peers) -> None:
    first, second = peers.start("a", "b", lease=60.0, tick=20.0)
    first.keeper.stop()
    until(lambda: second.count_owned() == COUNT)  # by a notification; the tick is twenty seconds
    assert [node.name for node in second.keeper.map.nodes] == ["b"]


def test_a_frozen_node_owns_nothing_and_is_replaced(peers: Peers) -> None:
    first, second = peers.start("a", "b")
    instance = first.keeper.node.instance
    first.address.freeze()
    until(lambda: second.count_owned() == COUNT)
    # Its deadline passed before the others could take over.
    assert first.count_owned() == 0
    assert isinstance(first.keeper.problem, DatabaseError)
    first.address.thaw()
    peers.wait_for_balance()
    assert first.keeper.problem is None
    assert first.keeper.node.instance != instance
    until(lambda: first.read_log("lost"))
    until(lambda: first.owned == first.keeper.epochs)


def test_a_node_keeps_its_shards_if_nobody_has_replaced_it(peers: Peers) -> None:
    (peer,) = peers.start("a")
    epochs = dict(peer.keeper.epochs)
    peer.address.freeze()
    until(lambda: peer.count_owned() == 0)
    assert read_clock() >= peer.keeper.deadline
    peer.address.thaw()
    until(lambda: peer.count_owned() == COUNT)
    assert peer.keeper.epochs == epochs
    assert peer.read_log("lost") == []


# --- on behalf of the service ----------------------------------------------------------------------------------------


def test_shards_are_taken_again(peers: Peers) -> None:
    first, _ = peers.start("a", "b", **SLOW)
    before = dict(first.keeper.epochs)
    after = first.keeper.retake()
    assert after.keys() == before.keys()
    assert min(after.values()) > max(before.values())
    assert first.keeper.epochs == after
    settle(lambda: None, 0.3)
    assert first.keeper.epochs == after == first.owned  # also after the map was read


def test_to_take_again_waits_for_writes_and_renews_meanwhile(peers: Peers) -> None:
    (peer,) = peers.start("a")
    shard, epoch = next(iter(peer.keeper.epochs.items()))
    writer = Address(peers.url).connect()
    with closing(writer):
        with writer.transaction():
            assert fence(writer, shard, epoch)
            with pytest.raises(DatabaseError):
                peer.keeper.retake(1.5)  # more than two leases
            assert peer.keeper.problem is None
            assert peer.keeper.owns(shard) is None
        until(lambda: peer.count_owned() == COUNT)
        assert len(peer.keeper.map.nodes) == 1
        until(lambda: peer.read_log("taken")[-1].get(shard, epoch) > epoch)  # it is told in the event loop
        assert not fence(writer, shard, epoch)


def test_what_is_released_is_not_owned(peers: Peers) -> None:
    first = peers.add("a", is_obedient=False, **SLOW).start()
    until(lambda: first.count_owned() == COUNT)
    assert first.keeper.release([1, 2]) == {1, 2}
    taken = until(lambda: first.read_log("taken")[1:])  # nobody else is there, so they come back
    assert taken[0].keys() == {1, 2}


def test_nothing_is_done_for_a_node_that_has_stopped(peers: Peers) -> None:
    (peer,) = peers.start("a")
    peer.keeper.stop()
    peer.keeper.stop()
    with pytest.raises(DatabaseError):
        peer.keeper.retake()
    with pytest.raises(DatabaseError):
        peer.keeper.release([1])
    assert peers.add("b").keeper.stop() is None  # never started


# --- who may join ----------------------------------------------------------------------------------------------------


def test_a_second_node_of_a_name_is_refused(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    (first,) = peers.start("a", changes={"url": "http://first:1"})
    second = peers.add("a", changes={"url": "http://second:2"}).start()
    with pytest.raises(StoreError) as caught:
        second.keeper.wait_until_joined(20)
    assert caught.value.code == "name_taken"
    assert "http://first:1" in caught.value.problem
    until(lambda: not second.keeper.is_running)
    assert second.keeper.problem is caught.value
    assert "already running" not in caplog.text  # whoever tries again, with a new keeper, logs it once
    assert first.count_owned() == COUNT


def test_a_node_takes_the_name_of_one_that_has_crashed(peers: Peers) -> None:
    (first,) = peers.start("a")
    first.keeper.stop(release=False)
    second = peers.add("a").start()
    assert second.keeper.wait_until_joined(20)
    until(lambda: second.count_owned() == COUNT)


def test_a_node_whose_name_was_taken_meanwhile_waits(peers: Peers) -> None:
    (first,) = peers.start("a")
    first.address.freeze()
    second = peers.add("a").start()
    until(lambda: second.count_owned() == COUNT)
    first.address.thaw()
    until(lambda: getattr(first.keeper.problem, "code", None) == "name_taken")
    assert (first.count_owned(), first.keeper.is_running) == (0, True)
    second.keeper.stop()
    until(lambda: first.count_owned() == COUNT)
    assert first.keeper.problem is None


def test_a_node_of_another_format_is_refused(peers: Peers) -> None:
    peer = peers.add("a", changes={"format": FORMAT + 1}).start()
    with pytest.raises(StoreError) as caught:
        peer.keeper.wait_until_joined(20)
    assert caught.value.code == "format"


def test_a_role_without_rights_on_the_tables_is_enough(cluster: Cluster, database: str, peers: Peers) -> None:
    role = f"service_{database}"
    cluster.execute(f"CREATE ROLE {role} LOGIN")
    create_schema(peers.url, role)
    url, peers.url = peers.url, cluster.url(database, user=role)
    try:
        first, _ = peers.start("a", "b")
        first.keeper.retake()
        first.keeper.stop()
        peers.wait_for_balance()
        with closing(Address(peers.url).connect()) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DROP TABLE shards")
    finally:
        peers.url = url
        for peer in peers.all:
            peer.keeper.stop()
        cluster.execute(f"DROP OWNED BY {role}", database=database)
        cluster.execute(f"DROP ROLE {role}")


# --- clocks ----------------------------------------------------------------------------------------------------------


def get_code(peer: Peer) -> str | None:
    return getattr(peer.keeper.problem, "code", None)


@pytest.mark.parametrize("seconds", [-3.0, 3.0, 1e6])
def test_a_node_with_a_wrong_clock_stays_out(peers: Peers, seconds: float) -> None:
    offset = [seconds]
    wrong = peers.add("a", read_time=lambda: time.time() + offset[0]).start()
    until(lambda: get_code(wrong) == "clock")
    right = peers.add("b").start()
    until(lambda: right.count_owned() == COUNT)
    assert wrong.keeper.skew == pytest.approx(seconds, abs=1.0)
    assert wrong.count_owned() == 0
    assert right.keeper.skew == pytest.approx(0.0, abs=1.0)
    offset[0] = 0.0
    peers.wait_for_balance()
    assert wrong.keeper.problem is None


def test_a_node_whose_clock_is_set_wrong_gives_up_its_shards(peers: Peers) -> None:
    offset = [0.0]
    wrong = peers.add("a", read_time=lambda: time.time() + offset[0], **SLOW).start()
    (right,) = peers.start("b", **SLOW)
    offset[0] = -10.0
    until(lambda: right.count_owned() == COUNT)
    assert get_code(wrong) == "clock"
    assert wrong.read_log("lost") == [*map(frozenset, wrong.read_log("excess"))]  # it was asked to write snapshots
    offset[0] = 0.0
    peers.wait_for_balance()


def test_nobody_owns_a_shard_while_the_clock_of_the_database_is_wrong(peers: Peers) -> None:
    """Every node differs from it: all of them release their shards, and take them again once it is right."""
    offset = [0.0]
    for name in "ab":
        peers.add(name, read_time=lambda: time.time() + offset[0], **SLOW).start()
    peers.wait_for_balance()
    offset[0] = 10.0
    until(lambda: all(peer.count_owned() == 0 and get_code(peer) == "clock" for peer in peers.all))
    assert settle(lambda: [peer.count_owned() for peer in peers.all], 0.5) == [[0, 0]]
    offset[0] = 1.5
    assert settle(lambda: [peer.count_owned() for peer in peers.all], 0.5) == [[0, 0]]  # it must come closer than 1 s
    offset[0] = 0.0
    peers.wait_for_balance()
    assert all(peer.keeper.problem is None for peer in peers.all)


def test_an_outage_of_the_only_node_with_a_right_clock(peers: Peers) -> None:
    """A node with a wrong clock does not step in."""
    wrong = peers.add("a", read_time=lambda: time.time() + 100).start()
    right = peers.add("b").start()
    until(lambda: right.count_owned() == COUNT)
    right.keeper.stop()
    settle(lambda: None, 0.3)
    assert wrong.count_owned() == 0
