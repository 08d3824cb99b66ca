"""Which shard a stream belongs to, how many shards a node should own, what it owns, and whether its clock is right."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.peers import build_node
from windvane.cluster_map import shard_of
from windvane.service.cluster import clocks
from windvane.service.cluster.clocks import WallClock, read_clock
from windvane.service.cluster.lease import Lease
from windvane.service.cluster.shard_map import Holding, ShardMap


@given(st.text(), st.integers(1, 1000))
def test_the_shard_of_a_stream(name: str, count: int) -> None:
    try:
        digest = hashlib.sha256(name.encode()).hexdigest()
    except UnicodeEncodeError:
        return
    assert shard_of(name, count) == int(digest[:16], 16) % count


def test_streams_are_spread_evenly() -> None:
    counts = [0] * 64
    for number in range(64_000):
        counts[shard_of(f"stream-{number}", 64)] += 1
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 125  # chi-square with 63 degrees of freedom, p = 1e-5


# --- shares ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 100), st.integers(1, 200))
def test_shares_add_up_and_differ_by_one_at_most(nodes: int, count: int) -> None:
    shard_map = ShardMap.build([build_node(f"{number:03}", joined=number) for number in range(nodes)], {})
    shares = [shard_map.compute_share(node.instance, count) for node in shard_map.nodes]
    assert sum(shares) == count
    assert max(shares) - min(shares) <= 1
    assert shares == sorted(shares, reverse=True)


@given(st.integers(2, 80), st.data())
def test_no_share_shrinks_when_a_node_leaves(nodes: int, data: st.DataObject) -> None:
    all_nodes = [build_node(f"{number:03}", joined=number) for number in range(nodes)]
    gone = data.draw(st.sampled_from(all_nodes))
    before, after = ShardMap.build(all_nodes, {}), ShardMap.build([node for node in all_nodes if node != gone], {})
    for node in after.nodes:
        assert after.compute_share(node.instance, 64) >= before.compute_share(node.instance, 64)


def test_a_map() -> None:
    young, old = build_node("a", joined=2.0), build_node("b", joined=1.0)
    shard_map = ShardMap.build([young, old], {0: Holding(5, "a"), 1: Holding(6, None), 2: Holding(7, "gone")})
    assert shard_map.nodes == (old, young)
    assert shard_map.owners == {0: young}
    assert (shard_map.find_node("a"), shard_map.find_node("gone")) == (young, None)
    assert (shard_map.find_free(), shard_map.find_missing(5)) == ([1], [3, 4])
    assert [shard_map.compute_share(name, 5) for name in ("a", "b", "gone")] == [2, 3, 0]


# --- what a node owns ------------------------------------------------------------------------------------------------


def test_shards_are_owned_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.clock_gettime", lambda _: now[0])
    lease = Lease()
    lease.add({1: 10, 2: 20})
    assert lease.owns(1) is None
    lease.extend(read_clock() + 2.0)
    assert [lease.owns(shard) for shard in (1, 2, 3)] == [10, 20, None]
    now[0] = 102.0
    assert lease.owns(1) is None
    assert lease.epochs == {1: 10, 2: 20}
    lease.extend(103.0)
    assert lease.owns(1) == 10  # nobody else had it meanwhile, or the keeper would have dropped it


def test_owned_shards_change() -> None:
    lease = Lease()
    lease.extend(read_clock() + 60)
    lease.add({1: 10, 2: 20, 3: 30})
    lease.add({2: 21})
    assert lease.drop({2, 9}) == {2: 21}
    assert (lease.owns(2), lease.epochs) == (None, {1: 10, 3: 30})
    assert lease.clear() == {1: 10, 3: 30}
    assert lease.clear() == {}


def test_the_clock_goes_on_while_the_machine_is_suspended() -> None:
    import time

    assert clocks.CLOCK == time.CLOCK_BOOTTIME


# --- the wall clock --------------------------------------------------------------------------------------------------


def compare(clock: WallClock, times: list[float], ahead: float, round_trip: float = 0.0) -> bool:
    times[0] = 1000.0 + ahead + round_trip / 2
    clock.compare(1000.0 + ahead - round_trip / 2, 1000.0)
    return clock.is_right


def test_a_clock_is_wrong_beyond_the_limit_and_right_again_well_within() -> None:
    times = [0.0]
    clock = WallClock(lambda: times[0])
    assert clock.skew is None
    assert clock.is_right
    for ahead, is_right in [(1.9, True), (-1.9, True), (2.1, False), (1.9, False), (-1.1, False), (-0.9, True)]:
        assert compare(clock, times, ahead) is is_right
        assert clock.skew == pytest.approx(ahead)


def test_a_slow_answer_does_not_make_a_clock_wrong() -> None:
    times = [0.0]
    clock = WallClock(lambda: times[0])
    assert compare(clock, times, 4.0, round_trip=5.0)  # the error may be 2.5 s
    assert not compare(clock, times, 4.0, round_trip=3.0)
