"""The kill drill for several nodes: callers that repeat every request, at any node, until it is answered."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from typing import Any

from support.drill import WORKERS, Caller, Ledger, Load
from support.nodes import ServiceCluster
from support.server import until

PAUSE_SECONDS = 0.02  # between two attempts
ANSWER_SECONDS = 3.0  # that an attempt may take: a node may be stopped
PATIENCE_SECONDS = 60.0  # after which a request that is not answered fails the test


class Wait:
    """How long a request had to be repeated: from its first attempt to its answer."""

    def __init__(self, stream: str, began: float, ended: float, refusals: list[str]) -> None:
        self.stream, self.began, self.ended, self.refusals = stream, began, ended, refusals

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class PersistentCaller(Caller):
    """Sends every request to random nodes until it is answered. 503, 504 and a lost connection are no answer."""

    def __init__(self, load: ClusterLoad, seed: str) -> None:
        self._load, self._rng = load, random.Random(seed)
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def __call__(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        if self._load.is_ending:
            raise ConnectionError("the drill is over")
        began, refusals = time.monotonic(), list[str]()
        while time.monotonic() < began + PATIENCE_SECONDS:
            node = self._rng.choice(list(self._load.cluster.nodes.values()))
            try:
                status, answer = self._send(node.address, method, path, body, key)
                if status not in (503, 504):
                    self._load.note(path.split("/")[3], began, refusals)
                    return status, answer
                refusals.append(answer["detail"])
            except (OSError, http.client.HTTPException) as error:
                self._drop(node.address)
                refusals.append(f"{node.name}: {type(error).__name__}")
            time.sleep(PAUSE_SECONDS)
        raise AssertionError(f"{method} {path}: no answer; {refusals[-5:]}")

    def _send(self, address: str, method: str, path: str, body: Any, key: str | None) -> tuple[int, Any]:
        connection = self._connections.get(address)
        if connection is None:
            connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
            self._connections[address] = connection
        headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def _drop(self, address: str) -> None:
        with contextlib.suppress(KeyError):
            self._connections.pop(address).close()

    def close(self) -> None:
        for address in list(self._connections):
            self._drop(address)


class ClusterLoad(Load):
    """Load on all nodes, through whatever happens to them."""

    def __init__(self, cluster: ServiceCluster, names: list[str]) -> None:
        super().__init__({name: Ledger(name) for name in names})
        self.cluster, self.is_ending, self.waits = cluster, False, list[Wait]()

    def begin(self, seed: int, workers: int = WORKERS) -> None:
        """Start the callers."""
        self.is_ending = False
        seeds = [f"{seed} {worker}" for worker in range(workers)]
        self._threads = [
            threading.Thread(target=self._work, args=(PersistentCaller(self, text), random.Random(text)))
            for text in seeds
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let every caller finish its operation; all of them must have been answered as expected."""
        self.is_ending = True
        self.join()

    def note(self, stream: str, began: float, refusals: list[str]) -> None:
        """Record that a request was answered."""
        self.waits.append(Wait(stream, began, time.monotonic(), refusals))

    def longest_wait(self, since: float = 0.0) -> float:
        """Return the longest that a request had to be repeated which was answered after ``since``."""
        return max((wait.seconds for wait in self.waits if wait.ended >= since), default=0.0)

    def wait_for_all(self, seconds: float = 60.0) -> float:
        """Wait until every stream has answered a request that began from now on; return the seconds that took."""
        began = time.monotonic()

        def is_served() -> bool:
            served = {wait.stream for wait in list(self.waits) if wait.began >= began}
            return bool(self.errors) or served >= self.ledgers.keys()

        until(is_served, seconds)
        assert not self.errors, self.errors[0]
        return time.monotonic() - began

    def check(self) -> None:
        """Check that what was acknowledged is in the log once, and that keys are answered as before."""
        for ledger in self.ledgers.values():
            ledger.log = self.cluster.read_log(ledger.name)
            assert [event["number"] for event in ledger.log] == list(range(1, len(ledger.log) + 1))
            ledger.check()
        self.is_ending = False
        call = PersistentCaller(self, "check")
        for ledger in self.ledgers.values():
            for key in random.Random(0).sample(list(ledger.decisions), min(20, len(ledger.decisions))):
                self._ask_again(call, ledger, key)
            assert call("GET", ledger.path)[1]["events"] >= len(ledger.log)
        call.close()
