from __future__ import annotations
from collections.abc import Iterator
import pytest
from support.peers import Peers, run_peers, settle, COUNT


@pytest.fixture
def peers(database_url: str) -> Iterator[Peers]:
    with run_peers(database_url) as running:
        yield running


def test_three(peers: Peers) -> None:
    import time

    t = time.time()
    (a,) = peers.start("a")
    print("1", time.time() - t)
    peers.start("b")
    print("2", time.time() - t)
    peers.start("c")
    print("3", time.time() - t)
    for p in peers.all:
        print([(k, len(v)) if k != "map" else k for k, v in p.log])
    t = time.time()
    print(settle(lambda: [p.count_owned() for p in peers.all], 1))
    peers.all[1].keeper.stop(release=False)
    t = time.time()
    print(peers.wait_for_balance(), time.time() - t)
    peers.all[0].keeper.stop()
    t = time.time()
    print(peers.wait_for_balance(), time.time() - t)
