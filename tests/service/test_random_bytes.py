"""Random bytes: each is returned once, in any thread and after a fork."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from windvane.service.random_bytes import draw_bytes, draw_id


def test_no_bytes_are_returned_twice() -> None:
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: draw_bytes(16), range(2000)))
    assert len({*drawn}) == 2000
    assert {*map(len, drawn)} == {16}
    assert len(draw_bytes(10_000)) == 10_000


def test_ids_follow_the_time_and_differ() -> None:
    """In the order of their sixteenth of a second, for the 4,096 seconds until their first digits begin again."""
    times = [4096.0 * 400_000 + second / 16.0 for second in range(0, 65536, 97)]
    ids = [draw_id(time) for time in times for _ in range(3)]
    assert [id_[:4] for id_ in ids] == sorted(id_[:4] for id_ in ids)
    assert len({*ids}) == len({id_[4:] for id_ in ids}) == len(ids)
    assert all(len(id_) == 16 and int(id_, 16) >= 0 for id_ in ids)
    assert draw_id(times[0])[:4] == draw_id(times[0] + 4096.0)[:4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="warns about a fork while threads run")
def test_a_fork_draws_its_own() -> None:
    draw_bytes(1)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, draw_bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 16) != draw_bytes(16)
