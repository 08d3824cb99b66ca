"""Processes that are stopped, replaced, and continued: what they were about to write must not be written."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.node_process import FIND_SHARED, FIND_STALE, TABLE
from support.server import SOURCE
from windvane.service.store.postgres.connections import Connection

LEASE, TICK = 0.3, 0.05
PLACES = ("before", "before", "fenced", "written")


class NodeProcess:
    """A node that runs :mod:`support.node_process`."""

    def __init__(self, url: str, name: str) -> None:
        line = [sys.executable, "-m", "support.node_process", url, name, str(LEASE), str(TICK)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(SOURCE)}
        self.name = name
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def send(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait_until_stopped(self) -> None:
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def processes(store_url: str) -> Iterator[list[NodeProcess]]:
    running = [NodeProcess(store_url, name) for name in "abc"]
    yield running
    for process in running:
        process.end()


@pytest.fixture
def connection(connection: Connection) -> Connection:
    connection.execute(TABLE.encode())
    return connection


def stop_and_continue(processes: list[NodeProcess], connection: Connection, draw: random.Random) -> list[str]:
    """Stop two of three nodes while they write, until the third has written to the same shards; return the outcomes."""
    draw.shuffle(processes)
    survivor, *victims = processes
    for victim in victims:
        victim.send("write", "any", draw.choice(PLACES))
    shards = [victim.read() for victim in victims]
    for victim in victims:
        victim.wait_until_stopped()
    for shard in shards:
        survivor.send("write", shard, "never")
        assert survivor.read() == "committed"
    for victim in victims:
        victim.resume()
    return [victim.read() for victim in victims]


def repeat(processes: list[NodeProcess], connection: Connection, times: int) -> None:
    draw = random.Random(17)
    outcomes: list[str] = []
    while len(outcomes) < times:
        outcomes += stop_and_continue(processes, connection, draw)
        assert {*outcomes} <= {"fenced", "failed"}
    assert {*outcomes} == {"fenced", "failed"}
    assert connection.execute(FIND_STALE).fetchall() == connection.execute(FIND_SHARED).fetchall() == []
    (count,) = connection.execute("SELECT count(*) FROM writes").fetchone() or (0,)
    assert count == len(outcomes)  # of the survivors


def test_a_process_that_was_stopped_is_fenced(processes: list[NodeProcess], connection: Connection) -> None:
    repeat(processes, connection, 50)


@pytest.mark.slow
def test_a_process_that_was_stopped_is_fenced_a_thousand_times(
    processes: list[NodeProcess], connection: Connection
) -> None:
    repeat(processes, connection, 1000)
