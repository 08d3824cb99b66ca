"""What bounds the figures of benchmarks/service.py, and what the time goes into."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import uvloop
from common import arms_and_luck, theta_star
from versions import ARMS, DIM, POLICIES, ROUNDS, Load, Server, past

from windvane import Agent

TICKS = os.sysconf("SC_CLK_TCK")  # of a second, in which Linux counts processor time


def play(agent: Agent, pairs: int) -> float:
    """Return the pairs a second of the Agent in this process: no HTTP, no store."""
    arms, luck = arms_and_luck(np.random.default_rng(3), 500, ARMS, DIM)
    clicks = luck[:, None] < 1 / (1 + np.exp(-arms @ theta_star(1, 3, DIM)))
    offers = [{f"arm{k}": row for k, row in enumerate(offer)} for offer in arms]
    start = time.perf_counter()
    for i in range(pairs):
        decision = agent.decide(offers[i % 500])
        agent.reward(decision, clicks[i % 500, decision.index])
    return pairs / (time.perf_counter() - start)


class Nothing(asyncio.Protocol):
    """Answers every request, which comes in one piece, with the same bytes."""

    BODY = b'{"id":"0123456789abcdef","arm":"arm7","index":7,"status":"recorded"}'
    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._missing = transport, 0

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head, _, body = data.partition(b"\r\n\r\n")
            self._missing = int(head[head.index(b"Content-Length: ") + 16 :]) - len(body)
        else:
            self._missing -= len(data)
        if not self._missing:
            self._transport.write(self.ANSWER)  # type: ignore[attr-defined]


def answer_nothing(address: Connection) -> None:
    async def run() -> None:
        listener = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", 0)
        address.send(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        await listener.serve_forever()

    uvloop.run(run())


@contextlib.contextmanager
def serve_nothing() -> Iterator[str]:
    """The address of a server that does nothing, to measure the load generator itself."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=answer_nothing, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def measure_limits(policies: list[str]) -> None:
    """Print what bounds the figures: the load generator itself, and the Agent without HTTP and store."""
    load = Load()
    with serve_nothing() as url:
        load.run(url, "nothing", 2000, 16)
    print(f"the load generator against a server that does nothing: {load.rate:,.0f} pairs a second")
    for name in policies:
        agent, rng = Agent(dim=DIM, **POLICIES[name]), np.random.default_rng(1)
        for _ in range(0, ROUNDS, 2000):
            vectors, clicks = past(rng, 2000)
            agent.history(clicks, vectors)
        play(agent, 200)
        print(f"the Agent in-process, {POLICIES[name]['policy']}: {play(agent, 500):,.0f} pairs a second", flush=True)


# --- where the time goes -------------------------------------------------------------------------------------------


@dataclass
class Costs:
    """Shares of the time that a load took. ``others``: the share of all cores that other processes took.

    ``server``: the seconds of processor time of the server.
    """

    server: float = 0.0
    event_loop: float = 0.0
    committer: float = 0.0
    generator: float = 0.0
    others: float = 0.0


class Limits:
    """What limits the throughput of the new version, by what was measured."""

    def __init__(self) -> None:
        self._costs: dict[str, list[Costs]] = {}
        self._disk: dict[str, list[float]] = {}
        self._memory: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def watch(self, server: Server, load: Load) -> Iterator[Costs]:
        """Yield what is known at the end: the costs of a load."""
        costs, before, wall = Costs(), np.array(read_clocks(server.pid)), time.perf_counter()
        yield costs
        main, rest, children, machine = np.array(read_clocks(server.pid)) - before
        wall = time.perf_counter() - wall
        costs.server = main + rest
        costs.event_loop, costs.committer = main / load.elapsed, rest / load.elapsed
        costs.generator = load.processor / load.elapsed
        costs.others = max(0.0, machine - main - rest - children) / (wall * (os.cpu_count() or 1))

    def note_disk(self, what: str, rate: float, costs: Costs) -> None:
        """Note a load on a server whose store is on disk."""
        self._disk.setdefault(what, []).append(rate)
        self._costs.setdefault(what, []).append(costs)

    def note_memory(self, what: str, rate: float) -> None:
        """Note the same load on a server whose store is in memory."""
        self._memory.setdefault(what, []).append(rate)

    def print(self) -> None:
        """Print the shares, medians over the repeats, and name the largest."""
        print(f"\n{'what limits the new version':<37}{'pairs/s':>8}{'in memory':>10}{'disk':>6}", end="")
        print(f"{'loop':>6}{'commit':>7}{'load':>6}{'others':>7}")
        for what, costs in self._costs.items():
            rate, memory = float(np.median(self._disk[what])), "-"
            shares = {
                "the event loop": float(np.median([each.event_loop for each in costs])),
                "the committing thread": float(np.median([each.committer for each in costs])),
                "the load generator": float(np.median([each.generator for each in costs])),
                "other processes": float(np.median([each.others for each in costs])),
            }
            disk = 0.0
            if what in self._memory:
                ratios = np.array(self._disk[what]) / np.array(self._memory[what])
                disk, memory = max(0.0, 1.0 - float(np.median(ratios))), f"{np.median(self._memory[what]):,.0f}"
            cells = "".join(f"{share:>{width}.0%}" for share, width in zip(shares.values(), (6, 7, 6, 7), strict=True))
            name = max({"the disk": disk, **shares}.items(), key=lambda item: item[1])[0]
            print(f"{what:<37}{rate:>8,.0f}{memory:>10}{disk:>6.0%}{cells}   {name}", flush=True)


def read_clocks(process: int) -> tuple[float, float, float, float]:
    """Return seconds of processor time so far: of the first thread of a process, of its others, of the children of this
    process that have ended, and of all processes. Zeros where the system does not tell (not Linux)."""
    try:
        threads = {int(thread.name): read_thread(thread) for thread in Path(f"/proc/{process}/task").iterdir()}
        machine = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0.0, 0.0, 0.0, 0.0
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    main = threads.pop(process)
    idle = machine[3] + machine[4]  # idle, and idle while the disk works
    return main, sum(threads.values()), children.ru_utime + children.ru_stime, (sum(machine[:8]) - idle) / TICKS


def read_thread(folder: Path) -> float:
    """Return the seconds of processor time of a thread; 0 if it has ended."""
    try:
        return int((folder / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0
