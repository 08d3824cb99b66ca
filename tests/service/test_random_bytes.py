"""Random bytes: each is returned once, in any thread and after a fork."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from windvane.service.random_bytes import draw_bytes


def test_no_bytes_are_returned_twice() -> None:
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: draw_bytes(16), range(2000)))
    assert len({*drawn}) == 2000
    assert {*map(len, drawn)} == {16}
    assert len(draw_bytes(10_000)) == 10_000


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
