"""Nodes are killed, frozen, cut off and edited at random, while all of them write."""

from __future__ import annotations

import pytest

from support.peers import Peers
from support.storms import Storm


def check(peers: Peers, seed: int, edits: bool) -> None:
    storm = Storm(peers, seed, edits=edits)
    storm.run(40)
    assert storm.violations == []
    assert storm.written > 50
    assert storm.fenced > 0


@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_a_storm(peers: Peers, seed: int, edits: bool) -> None:
    check(peers, seed, edits)


@pytest.mark.slow
@pytest.mark.parametrize("edits", [False, True])
@pytest.mark.parametrize("seed", range(2, 52))
def test_many_storms(peers: Peers, seed: int, edits: bool) -> None:
    check(peers, seed, edits)
