"""One client misbehaves; what does another one notice? `python benchmarks/stress.py [--quick] [DRILL ...]`.

A real server over loopback. In each drill one client misbehaves in one way, while another (benchmarks/load.py, in a
process of its own) asks for decisions of 20 arms and 10 features and sends their rewards, one at a time. Printed are
the percentiles of that client's requests, and the limit beside them. The drills of the disk need no second client: they
print how soon requests are refused and the service says that it is not ready. tests/service/test_stress.py asserts the
limits.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import say

from windvane.service.http.access import create_token
from windvane.service.store import SqliteStore
from windvane.testing import Service

LIMIT, TIMEOUT_LIMIT, DISK_LIMIT = 0.1, 0.25, 5.0  # seconds: p99 of another client, the longest decision, until 503
LEFT_BEHIND = 150  # MB that refused bodies may leave in memory
BODY_BYTES = 4 << 20
WIDE = 500  # features
IDLE, CROWD = 1000, 300  # connections that say nothing, and that all ask at once
VICTIM = {"name": "victim", "dim": 10, "seed": 0}


class Figures(NamedTuple):
    """What was measured, in seconds or MB, and the limit that must not be exceeded."""

    what: str
    value: float
    limit: float
    text: str

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


class Target:
    """A server with a store of its own, and the sizes of the drills."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.store = folder / "stress.db"
        with contextlib.closing(SqliteStore(self.store)) as store:  # two clients are two tokens
            self.token, self.other_token = (
                create_token(store.tokens, name, full=True) or "" for name in ("one", "other")
            )
        self.stall = folder / "stall"
        library = folder / "stalling_disk.so"
        source = Path(__file__).with_name("stalling_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        with patch.dict(os.environ, LD_PRELOAD=str(library), WINDVANE_STALL=str(self.stall)):
            self.service = Service(self.store)
        self.port = int(self.service.address.rpartition(":")[2])
        self.pairs, self.waits = (150, 5000) if quick else (1000, 50_000)
        until(lambda: self.ask("GET", "/readyz")[0] == 200, 120.0)
        self.create(**VICTIM)

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 120.0) -> tuple[int, Any]:
        """Send a request of the client that misbehaves, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
            connection.request(method, path, content, headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = (answer.getheader("Content-Type") or "").endswith(("/json", "+json"))
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def create(self, **settings: Any) -> None:
        assert self.ask("POST", "/v1/streams", settings)[0] == 201

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    @property
    def memory(self) -> float:
        """MB that the server's process holds."""
        lines = Path(f"/proc/{self.service.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000

    def measure(self, stream: str = "victim", pairs: int = 0) -> np.ndarray:
        """Return the seconds that each request of another client took."""
        line = self.build_load(stream)
        options = ["--pairs", str(pairs or self.pairs), "--connections", "1", "--token", self.other_token]
        subprocess.run([*line, *options], check=True, timeout=600, stdout=subprocess.DEVNULL)
        return np.array(json.loads(Path(line[-1]).read_text())["seconds"])

    def build_load(self, stream: str) -> list[str]:
        """Return the command of a client; the last argument is the file that it writes."""
        script, out = Path(__file__).with_name("load.py"), self.store.with_name(f"{stream}.json")
        return [sys.executable, str(script), self.service.address, stream, str(out)]


@contextlib.contextmanager
def misbehave(step: Callable[[int], None], threads: int = 4) -> Iterator[None]:
    """Call ``step`` with 0, 1, ... again and again in several threads while the block runs."""
    stop, errors = threading.Event(), list[Exception]()

    def work(first: int) -> None:
        i = first
        try:
            while not stop.is_set():
                step(i)
                i += 1
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join(120)
    if errors:
        raise errors[0]


def until(condition: Callable[[], bool], seconds: float) -> float:
    """Wait for ``condition``, and return the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} seconds"
        time.sleep(0.02)
    return time.monotonic() - began


def summarise(what: str, seconds: np.ndarray, limit: float = LIMIT, share: float = 99.0) -> Figures:
    """Return the percentile that has a limit, with others in the text."""
    p50, p99, most = np.percentile(seconds, (50, 99, 100)) * 1000
    text = f"p50 {p50:.0f}, p99 {p99:.0f}, max {most:.0f} ms"
    return Figures(what, float(np.percentile(seconds, share)), limit, text)


# --- bodies ----------------------------------------------------------------------------------------------------------


def build_hostile_bodies() -> dict[str, tuple[str, bytes]]:
    """Return bodies of 4 MB that are refused, with the paths that they are sent to."""

    def fill(start: bytes, entry: bytes, end: bytes) -> bytes:
        return start + entry * ((BODY_BYTES - len(start) - len(end)) // len(entry)) + end

    names = b",".join(b'"%d":1' % i for i in range(370_000))
    stream = "/v1/streams/victim"
    return {
        "texts for rewards": (f"{stream}/history", fill(b'{"rewards":[', b'"a",', b"1]}")),
        "texts in vectors": (f"{stream}/history", fill(b'{"rewards":[1],"vectors":[', b'["a"],', b"[1]]}")),
        "unknown fields of history": (f"{stream}/history", b"{%b}" % names),
        "unknown fields of an item": (f"{stream}/decisions/batch", b'{"decisions":[{%b}]}' % names),
        "unknown fields of a stream": ("/v1/streams", b"{%b}" % names),
        "empty objects": (f"{stream}/decisions/batch", fill(b'{"decisions":[', b"{},", b"{}]}")),
        "nested objects": (f"{stream}/decisions", fill(b'{"arms":[', b'{"":{}},', b"{}]}")),
        "numbers for items": (f"{stream}/rewards/batch", fill(b'{"rewards":[', b"1,", b"1]}")),
        "a text among numbers": (f"{stream}/decisions", fill(b'{"arms":[["a"],[', b"0.125,", b"1]]}")),
        "vectors that are too long": (f"{stream}/decisions", fill(b'{"arms":{"a":[', b"0.125,", b"1]}}")),
        "many settings": ("/v1/streams", b'{"name":"x","dim":2,"settings":{%b}}' % names),
        "no JSON": (f"{stream}/decisions", fill(b"", b"[", b"")),
    }


def drill_refused(target: Target) -> list[Figures]:
    """Refused bodies of 4 MB, from four connections at once."""
    bodies = list(build_hostile_bodies().values())

    def send(i: int) -> None:
        path, body = bodies[i % len(bodies)]
        status, _ = target.ask("POST", path, body)
        assert status in (413, 422, 503), status

    send(0)
    before = target.memory
    with misbehave(send):
        seconds = target.measure()
    figures = [summarise("refused bodies of 4 MB", seconds)]
    left = target.memory - before
    return [*figures, Figures("  memory that they leave behind", left, LEFT_BEHIND, f"{left:.0f} MB")]


def drill_wide(target: Target) -> list[Figures]:
    """Decisions of 900 arms with 500 features."""
    target.create(name="wide", dim=WIDE, seed=0)
    rows = np.random.default_rng(0).normal(size=(900, WIDE))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True) * 0.9).round(4)
    body = json.dumps({"arms": {f"a{i}": row for i, row in enumerate(rows.tolist())}}, separators=(",", ":")).encode()
    assert len(body) <= BODY_BYTES

    def decide(_: int) -> None:
        assert target.ask("POST", "/v1/streams/wide/decisions", body)[0] in (201, 503)

    decide(0)
    with misbehave(decide):
        return [summarise("900 arms x 500 features", target.measure())]


def drill_info(target: Target) -> list[Figures]:
    """A stream of 500 features that is read again and again."""
    target.create(name="read", dim=WIDE, seed=0)

    def read(_: int) -> None:
        assert target.ask("GET", "/v1/streams/read")[0] == 200

    with misbehave(read):
        return [summarise("a stream of 500 features is read", target.measure())]


def drill_batches(target: Target) -> list[Figures]:
    """Batches of 1,000 decisions of 20 arms."""
    target.create(name="batches", dim=10, seed=0)
    item = {"arms": {f"a{i}": [0.1] * 10 for i in range(20)}}
    body = json.dumps({"decisions": [item] * 1000}).encode()

    def decide(_: int) -> None:
        assert target.ask("POST", "/v1/streams/batches/decisions/batch", body)[0] in (200, 503)

    with misbehave(decide, threads=2):
        return [summarise("batches of 1,000 decisions", target.measure())]


def drill_crowd(target: Target) -> list[Figures]:
    """Many requests of one client at once."""
    target.create(name="crowd", dim=10, seed=0)
    options = ["--pairs", "1000000", "--connections", str(CROWD), "--token", target.token]
    with subprocess.Popen([*target.build_load("crowd"), *options], stdout=subprocess.DEVNULL) as crowd:
        try:
            until(lambda: target.ask("GET", "/v1/streams/crowd")[1]["counts"]["rewards"] > CROWD, 60.0)
            figures = summarise(f"{CROWD} requests at once", target.measure())
            assert crowd.poll() is None, "the crowd was refused"
            return [figures]
        finally:
            crowd.kill()


def drill_idle(target: Target) -> list[Figures]:
    """Connections that say nothing, or half of a request."""
    with contextlib.ExitStack() as stack:
        for i in range(IDLE):
            connection = stack.enter_context(target.connect())
            if i % 2:
                connection.sendall(b"POST /v1/streams/victim/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        assert target.ask("GET", "/healthz")[0] == 200
        return [summarise(f"{IDLE:,} idle connections", target.measure())]


def drill_unread(target: Target) -> list[Figures]:
    """Exports of a log that nobody reads, and many that are read."""
    target.create(name="unread", dim=10, seed=0)
    fill_stream(target, "unread", 5000)
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {target.token}"
    request = f"GET /v1/streams/unread/events HTTP/1.1\r\n{head}\r\n\r\n".encode()

    def export(_: int) -> None:
        assert target.ask("GET", "/v1/streams/unread/events")[0] == 200

    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(target.connect()).sendall(request)
        stack.enter_context(misbehave(export, threads=2))
        return [summarise("exports, 50 of them unread", target.measure())]


# --- timeouts --------------------------------------------------------------------------------------------------------


def fill_stream(target: Target, stream: str, decisions: int) -> None:
    """Make decisions of two arms and ten features."""
    items = [{"arms": {"a": [0.1] * 10, "b": [0.2] * 10}}] * 1000
    for _ in range(decisions // 1000):
        status, answer = target.ask("POST", f"/v1/streams/{stream}/decisions/batch", {"decisions": items})
        assert status == 200, answer


def drill_timeouts(target: Target) -> list[Figures]:
    """Decisions whose timeouts pass together; the other client uses the same stream."""
    target.create(name="many", dim=10, seed=0, reward_timeout="1h", default_reward=0.0)
    fill_stream(target, "many", target.waits)
    seconds = list[np.ndarray]()
    other = threading.Thread(target=lambda: seconds.append(target.measure("many", 1500)))
    other.start()
    until(lambda: target.ask("GET", "/v1/streams/many")[1]["counts"]["rewards"] > 20, 60.0)
    assert target.ask("PATCH", "/v1/streams/many", {"reward_timeout": "2s"})[0] == 200
    other.join()
    closed = target.ask("GET", "/v1/streams/many")[1]["counts"]["expired"]
    assert closed > 0.5 * target.waits, "the other client was done too soon"
    return [summarise(f"{target.waits:,} timeouts that pass together", seconds[0], TIMEOUT_LIMIT, 100.0)]


# --- erasure ---------------------------------------------------------------------------------------------------------


def drill_erasure(target: Target) -> list[Figures]:
    """A long log is compacted, a stream with one is deleted, and contexts are erased."""
    figures = []
    for name, method, path in (("compacted", "POST", "/compact"), ("deleted", "DELETE", "")):
        target.create(name=name, dim=10, seed=0, retention="1ms", max_pending=1000)
        fill_stream(target, name, target.waits)
        seconds = measure_beside(target, method, f"/v1/streams/{name}{path}")
        figures.append(summarise(f"a log of {target.waits:,} decisions is {name}", seconds))
    target.create(name="erased", dim=10, seed=0)
    item = {"arms": {"a": [0.1] * 10, "b": [0.2] * 10}}

    def erase(_: int) -> None:
        decision = target.ask("POST", "/v1/streams/erased/decisions", item)[1]["id"]
        assert target.ask("DELETE", f"/v1/streams/erased/decisions/{decision}/context")[0] == 200

    with misbehave(erase, threads=2):
        return [*figures, summarise("contexts are erased", target.measure())]


def measure_beside(target: Target, method: str, path: str) -> np.ndarray:
    """Return the seconds that each request of another client took while one request is answered."""

    def count_rewards() -> int:
        return int(target.ask("GET", "/v1/streams/victim")[1]["counts"]["rewards"])

    seconds, before = list[np.ndarray](), count_rewards()
    other = threading.Thread(target=lambda: seconds.append(target.measure()))
    other.start()
    until(lambda: count_rewards() > before + 20, 60.0)
    assert target.ask(method, path, seconds=600.0)[0] in (200, 204)
    other.join()
    return seconds[0]


# --- the disk --------------------------------------------------------------------------------------------------------


def drill_stall(target: Target) -> list[Figures]:
    """A disk that does not answer: flushing waits (benchmarks/stalling_disk.c)."""
    return measure_outage(target, "a disk that stalls", target.stall.touch, target.stall.unlink)


def drill_lock(target: Target) -> list[Figures]:
    """Another process holds the lock that every write needs."""
    with contextlib.closing(sqlite3.connect(target.store, isolation_level=None)) as other:
        return measure_outage(
            target,
            "a lock of another process",
            lambda: other.execute("BEGIN IMMEDIATE"),
            lambda: other.execute("ROLLBACK"),
        )


def measure_outage(target: Target, what: str, begin: Callable[[], object], end: Callable[[], object]) -> list[Figures]:
    """Measure when requests are refused while the store cannot be written, and when they are served again."""
    body = {"arms": {"a": [0.1] * 10}}
    begin()
    began, answers = time.monotonic(), list[tuple[int, float]]()

    def decide() -> None:
        status, _ = target.ask("POST", "/v1/streams/victim/decisions", body)
        answers.append((status, time.monotonic() - began))

    threads = [threading.Thread(target=decide) for _ in range(20)]
    for thread in threads:
        thread.start()
    not_ready = until(lambda: target.ask("GET", "/readyz")[0] == 503, 60.0)
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {503}
    later = time.monotonic()
    assert target.ask("POST", "/v1/streams/victim/decisions", body)[0] == 503
    at_once = time.monotonic() - later
    end()
    back = until(lambda: target.ask("POST", "/v1/streams/victim/decisions", body)[0] == 201, 120.0)
    refused = max(seconds for _, seconds in answers)
    return [
        Figures(f"{what}: requests are refused", refused, DISK_LIMIT, f"after {refused:.1f} s"),
        Figures("  /readyz is 503", not_ready, DISK_LIMIT, f"after {not_ready:.1f} s"),
        Figures("  later requests", at_once, LIMIT, f"after {1000 * at_once:.0f} ms"),
        Figures("  it serves again", back, 60.0, f"{back:.1f} s after it ended"),
    ]


def drill_removed(target: Target) -> list[Figures]:
    """A store that is moved away, and back."""
    aside = target.store.with_name("aside")
    aside.mkdir()
    files = [path for path in target.store.parent.glob("stress.db*") if path.is_file()]
    for path in files:
        os.rename(path, aside / path.name)
    body = {"arms": {"a": [0.1] * 10}}
    began = time.monotonic()
    for method, path, content in (
        ("POST", "/v1/streams/victim/decisions", body), ("GET", "/v1/streams/victim", None), ("GET", "/readyz", None),
    ):  # fmt: skip
        status, answer = target.ask(method, path, content)
        assert (status, answer["type"]) == (503, "urn:windvane:problem:unavailable"), (path, answer)
    noticed = time.monotonic() - began
    for path in files:
        os.rename(aside / path.name, path)
    until(lambda: target.ask("POST", "/v1/streams/victim/decisions", body)[0] == 201, 60.0)
    return [Figures("a store that is removed: 3 answers of 503", noticed, 3 * LIMIT, f"{1000 * noticed:.0f} ms")]


DRILLS: dict[str, Callable[[Target], list[Figures]]] = {
    name.removeprefix("drill_"): function for name, function in list(globals().items()) if name.startswith("drill_")
}


def run_drill(name: str, *, quick: bool) -> list[Figures]:
    """Run one drill with a server of its own, which must not have failed in any other way."""
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder), quick=quick)
        try:
            return DRILLS[name](target)
        finally:
            target.service.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("drills", nargs="*", choices=[*DRILLS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="fewer requests and timeouts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calm = Target(Path(folder), quick=options.quick)
        print(f"without any of it: {summarise('', calm.measure()).text}")
        calm.service.kill()
    misses = 0
    for name in options.drills or DRILLS:
        for figures in run_drill(name, quick=options.quick):
            unit = "MB" if figures.limit == LEFT_BEHIND else "s"
            say(figures.what, figures.text, f"{figures.limit:g} {unit}", figures.is_met)
            misses += not figures.is_met
    return min(misses, 1)


if __name__ == "__main__":
    sys.exit(main())
