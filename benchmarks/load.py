"""A load generator for the decision service, in a process of its own: `python benchmarks/load.py URL STREAM OUT`.

A plain HTTP/1.1 client over asyncio. Bodies are encoded before the clock starts, connections are kept open, and each
connection asks for a decision, sends its reward, asks for the next one, and so on. It writes the seconds that each
request took to OUT. benchmarks/service.py measures its own speed against a server that does nothing.
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

OFFERS = 500  # different ones, used in turn


class Work:
    """The requests to send, and the seconds that each took."""

    def __init__(self, stream: str, host: str, pairs: int, K: int, dim: int, seed: int, token: str = "") -> None:
        rng = np.random.default_rng(seed)
        arms, luck = arms_and_luck(rng, OFFERS, K, dim)
        clicks = luck[:, None] < 1 / (1 + np.exp(-arms @ theta_star(1, 3, dim)))
        self.clicks = [[b"1.0" if click else b"0.0" for click in row] for row in clicks.tolist()]
        self._host, self._path = host.encode(), f"/v1/streams/{stream}/decisions".encode()
        self._key = secrets.token_hex(8).encode()
        self._access = f"Authorization: Bearer {token}\r\n".encode() if token else b""
        bodies = [{"arms": {f"arm{k}": row for k, row in enumerate(offer)}} for offer in arms.tolist()]
        self.offers = [json.dumps(body).encode() for body in bodies]
        self.left, self.decisions, self.seconds = pairs, 0, list[float]()

    def next_decision(self) -> tuple[bytes, list[bytes]]:
        """Return a request to decide, with a key of its own as windvane.Client sends it, and the clicks by arm."""
        self.left -= 1
        self.decisions += 1
        offer = self.decisions % OFFERS
        key = b"Idempotency-Key: %s-%d\r\n" % (self._key, self.decisions)
        return self._build(b"POST", b"", key, self.offers[offer]), self.clicks[offer]

    def build_reward(self, decision: bytes, value: bytes) -> bytes:
        return self._build(b"PUT", b"/%s/reward" % decision, b"", b'{"value":%s}' % value)

    def _build(self, method: bytes, path: bytes, key: bytes, body: bytes) -> bytes:
        head = b"%s %s%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
        return head % (method, self._path, path, self._host, key + self._access, len(body)) + body


class Caller(asyncio.Protocol):
    """One connection: decide, reward, decide, ... until the work is done."""

    def __init__(self, work: Work, done: asyncio.Future[None]) -> None:
        self._work, self._done, self._received = work, done, b""
        self._clicks: list[bytes] | None = None  # of the offer whose decision is awaited; None: a reward is

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._decide()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(error or ConnectionError("the server closed the connection"))

    def _send(self, request: bytes) -> None:
        self._start = time.perf_counter()
        self._transport.write(request)  # type: ignore[attr-defined]

    def _decide(self) -> None:
        if self._work.left > 0:
            request, self._clicks = self._work.next_decision()
            self._send(request)
            return
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._received.lower().find(b"content-length: ", 0, end) + 16
        size = int(self._received[at : self._received.index(b"\r", at)])
        if len(self._received) < end + 4 + size:
            return
        head, body, self._received = self._received[:end], self._received[end + 4 :], b""
        self._work.seconds.append(time.perf_counter() - self._start)
        if not head.startswith(b"HTTP/1.1 20"):
            self._done.set_exception(RuntimeError(f"{head.decode()} {body.decode()}"))
            self._transport.close()
        elif self._clicks is None:
            self._decide()
        else:
            decision = body[body.index(b'"id":"') + 6 :].partition(b'"')[0]
            index = int(body[body.index(b'"index":') + 8 :].partition(b",")[0])
            value, self._clicks = self._clicks[index], None
            self._send(self._work.build_reward(decision, value))


async def drive(work: Work, host: str, port: int, connections: int) -> float:
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    ends = []
    for _ in range(connections):
        done = loop.create_future()
        ends.append(done)
        await loop.create_connection(lambda done=done: Caller(work, done), host, port)
    await asyncio.gather(*ends)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("stream")
    parser.add_argument("out", type=Path)
    for name, value in (("pairs", 1000), ("connections", 16), ("arms", 20), ("dim", 10), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--token", default="")
    options = parser.parse_args()
    address = urlsplit(options.url)
    assert address.hostname
    assert address.port
    work = Work(options.stream, address.netloc, options.pairs, options.arms, options.dim, options.seed, options.token)
    before = time.process_time()
    elapsed = uvloop.run(drive(work, address.hostname, address.port, options.connections))
    processor = time.process_time() - before
    options.out.write_text(json.dumps({"elapsed": elapsed, "processor": processor, "seconds": work.seconds}))


if __name__ == "__main__":
    main()
