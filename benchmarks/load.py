"""A load generator for the decision service, in a process of its own: `python benchmarks/load.py URL STREAM OUT`.

A plain HTTP/1.1 client over asyncio: bodies are made before the clock starts, connections are kept open, and each of
them sends the reward of its last decision and then asks for the next one. It writes the seconds that each
request took to OUT. How fast it is itself is measured against a handler that does nothing (benchmarks/service.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import arms_and_luck, theta_star

OFFERS = 500  # different ones; they are asked for in turn


class Work:
    """What is to be asked, and what has been."""

    def __init__(self, stream: str, host: str, pairs: int, K: int, dim: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        arms, luck = arms_and_luck(rng, OFFERS, K, dim)
        clicks = luck[:, None] < 1 / (1 + np.exp(-arms @ theta_star(1, 3, dim)))
        self.clicks = [[b"1.0" if click else b"0.0" for click in row] for row in clicks.tolist()]
        self._host, self._path = host.encode(), f"/v1/streams/{stream}/".encode()
        self._life = secrets.token_hex(8).encode()
        bodies = [{"arms": {f"arm{k}": row for k, row in enumerate(offer)}} for offer in arms.tolist()]
        self.offers = [json.dumps(body).encode() for body in bodies]
        self.left, self.asked, self.sent, self.seconds = pairs, 0, 0, list[float]()

    def request(self, what: bytes, body: bytes) -> bytes:
        """With a key of its own, as windvane.Client sends it."""
        self.sent += 1
        head = (
            b"POST %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nIdempotency-Key: %s-%d\r\n"
            b"Content-Length: %d\r\n\r\n"
        )
        return head % (self._path, what, self._host, self._life, self.sent, len(body)) + body


class Caller(asyncio.Protocol):
    """One connection: decide, reward, decide, ... until the work is done."""

    def __init__(self, work: Work, done: asyncio.Future[None]) -> None:
        self._work, self._done, self._seen = work, done, b""
        self._clicks: list[bytes] | None = None  # of the offer whose decision is awaited; None: a reward is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._decide()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server hung up"))

    def _send(self, request: bytes) -> None:
        self._began = time.perf_counter()
        self._transport.write(request)  # type: ignore[attr-defined]

    def _decide(self) -> None:
        work = self._work
        if work.left == 0:
            if not self._done.done():
                self._done.set_result(None)
            self._transport.close()
            return
        work.left -= 1
        work.asked += 1
        offer = work.asked % OFFERS
        self._clicks = work.clicks[offer]
        self._send(work.request(b"decide", work.offers[offer]))

    def data_received(self, data: bytes) -> None:
        self._seen += data
        end = self._seen.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._seen.lower().find(b"content-length: ", 0, end) + 16
        size = int(self._seen[at : self._seen.index(b"\r", at)])
        if len(self._seen) < end + 4 + size:
            return
        head, body, self._seen = self._seen[:end], self._seen[end + 4 :], b""
        self._work.seconds.append(time.perf_counter() - self._began)
        if not head.startswith(b"HTTP/1.1 200"):
            self._done.set_exception(RuntimeError(f"{head.decode()} {body.decode()}"))
            self._transport.close()
        elif self._clicks is None:
            self._decide()
        else:
            decision = body[body.index(b'"decision":"') + 12 :].partition(b'"')[0]
            index = int(body[body.index(b'"index":') + 8 :].partition(b",")[0])
            reward = b'{"decision":"%s","value":%s}' % (decision, self._clicks[index])
            self._clicks = None
            self._send(self._work.request(b"reward", reward))


async def drive(work: Work, host: str, port: int, connections: int) -> float:
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    ends = []
    for _ in range(connections):
        done = loop.create_future()
        ends.append(done)
        await loop.create_connection(lambda done=done: Caller(work, done), host, port)
    await asyncio.gather(*ends)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("stream")
    parser.add_argument("out", type=Path)
    for name, value in (("pairs", 1000), ("connections", 16), ("arms", 20), ("dim", 10), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    address = urlsplit(given.url)
    assert address.hostname
    assert address.port
    work = Work(given.stream, address.netloc, given.pairs, given.arms, given.dim, given.seed)
    elapsed = uvloop.run(drive(work, address.hostname, address.port, given.connections))
    given.out.write_text(json.dumps({"elapsed": elapsed, "seconds": work.seconds}))


if __name__ == "__main__":
    main()
