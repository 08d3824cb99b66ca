"""How many decisions the service makes: `python benchmarks/service.py`. All is measured side by side in this one run.

A real server in one process, a load generator in another, loopback between them. A pair is a decision and its reward,
each a request of its own, answered when it is on disk. d = 10, K = 20, gamma = 0.999 at t >= 20,000: BVD-GLM-UCB, whose
cost grows with its memory; OnePassGLM, whose cost does not; and UniformRandom, which is all but the model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import uvloop
from common import arms_and_luck, theta_star

from windvane import Agent, Client

DIM, ARMS, ROUNDS = 10, 20, 20_000
POLICIES = {
    "bvd": {"policy": "BVD-GLM-UCB", "gamma": 0.999},
    "onepass": {"policy": "OnePassGLM", "gamma": 0.999},
    "random": {"policy": "UniformRandom"},
}
LOAD = Path(__file__).with_name("load.py")
REPEATS = 3  # of every measurement, in turn, so that a busy neighbour does not hit one of them alone


def say(what: str, figure: str, target: str = "", met: bool = True) -> None:
    verdict = ("ok  " if met else "MISS") if target else "    "
    print(f"{verdict}  {what:<58} {figure:<34} {f'(target {target})' if target else ''}".rstrip(), flush=True)


class Load:
    """What the load generator measured, over all repeats."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.seconds: list[float] = []

    def run(self, url: str, stream: str, pairs: int, connections: int) -> None:
        sizes = ["--pairs", str(pairs), "--connections", str(connections), "--arms", str(ARMS), "--dim", str(DIM)]
        seed = ["--seed", str(len(self.rates))]
        with tempfile.NamedTemporaryFile() as out:
            subprocess.run([sys.executable, LOAD, url, stream, out.name, *sizes, *seed], check=True, timeout=300)
            found = json.loads(out.read())
        self.rates.append(pairs / found["elapsed"])
        self.seconds += found["seconds"]

    @property
    def rate(self) -> float:
        """Pairs a second: the median of the repeats."""
        return float(np.median(self.rates))

    def percentile(self, p: float) -> float:
        """Of a request, in milliseconds, over all repeats."""
        return 1e3 * float(np.percentile(self.seconds, p))

    def __str__(self) -> str:
        pace = f"{2 * self.rate:,.0f} requests/s, p50 {self.percentile(50):.1f} ms, p99 {self.percentile(99):.1f} ms"
        return f"{pace} (pairs/s by repeat: {', '.join(f'{rate:,.0f}' for rate in self.rates)})"


@contextlib.contextmanager
def server(store: Path) -> Iterator[str]:
    line = [sys.executable, "-m", "windvane.cli", "serve", "--store", store, "--port", "0", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


class Nothing(asyncio.Protocol):
    """Answers every request, which comes in one piece, with the same bytes."""

    BODY = b'{"decision":"0123456789abcdef","arm":"arm7","index":7,"learnt":true}'
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


def answer_nothing(told: Connection) -> None:
    async def run() -> None:
        listening = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", 0)
        told.send(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()

    uvloop.run(run())


@contextlib.contextmanager
def trivial() -> Iterator[str]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=answer_nothing, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


def history(rounds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Vectors and clicks of the past, in parts that one request holds."""
    rng = np.random.default_rng(1)
    for _ in range(0, rounds, 2000):
        x, luck = arms_and_luck(rng, 2000, 1, DIM)
        yield x[:, 0], (luck < 1 / (1 + np.exp(-x[:, 0] @ theta_star(1, 3, DIM)))).astype(float)


def in_process(agent: Agent, pairs: int, seed: int) -> float:
    """Pairs a second of the library's Agent, with the same offers and no HTTP, no store."""
    rng = np.random.default_rng(seed)
    arms, luck = arms_and_luck(rng, 500, ARMS, DIM)
    clicks = luck[:, None] < 1 / (1 + np.exp(-arms @ theta_star(1, 3, DIM)))
    offers = [{f"arm{k}": row for k, row in enumerate(offer)} for offer in arms]
    began = time.perf_counter()
    for i in range(pairs):
        decision = agent.decide(offers[i % 500])
        agent.reward(decision, clicks[i % 500, decision.index])
    return pairs / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000, help="of each repeat")
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement", flush=True)
    loads = {name: Load() for name in ("nothing", *POLICIES)}
    alone: dict[str, list[float]] = {name: [] for name in POLICIES}
    agents = {name: Agent(dim=DIM, **settings) for name, settings in POLICIES.items()}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "windvane.db") as url, Client(url) as client:
        for name, settings in POLICIES.items():
            client.create(name, dim=DIM, **settings)
            for x, clicks in history(ROUNDS):
                client.history(name, clicks, x)
                agents[name].update_many(x, clicks)
            loads[name].run(url, name, 200, given.connections)  # what is done once is not counted
            loads[name] = Load()
            in_process(agents[name], 200, 0)
        for _ in range(REPEATS):
            with trivial() as nowhere:
                loads["nothing"].run(nowhere, "nothing", given.pairs, given.connections)
            for name in POLICIES:
                loads[name].run(url, name, given.pairs, given.connections)
                alone[name].append(in_process(agents[name], given.pairs // 4, 1))
    say("the load generator against a handler that does nothing", str(loads["nothing"]))
    for name, settings in POLICIES.items():
        load, library = loads[name], float(np.median(alone[name]))
        aimed = name != "random"
        label = f"{settings['policy']}, decide + reward, durable"
        say(label, str(load))
        if aimed:
            say("  pairs a second", f"{load.rate:,.0f}", "at least 1,000", load.rate >= 1000)
            p99 = load.percentile(99)
            say("  p99 of a request", f"{p99:.1f} ms", "25 ms", p99 <= 25)
            say(
                "  against the same with the model replaced by random choice",
                f"{load.rate / loads['random'].rate:.2f}x",
            )
        say("  against the Agent in-process", f"{load.rate / library:.2f}x its {library:,.0f} pairs/s")


if __name__ == "__main__":
    main()
