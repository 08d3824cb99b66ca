"""Callers that repeat nothing: whatever a node does not answer with 201 is noted as it is."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from support.nodes import ServiceCluster
from support.server import ARMS
from windvane import Client

PAUSE = 0.003  # seconds between two calls of a thread: they are not meant to load the nodes
KINDS = ("plain", "keyed", "client")


class Call(NamedTuple):
    """A call: when it ended, how long it took, and how it ended: a status, and the cause or the code of a problem."""

    ended: float
    seconds: float
    outcome: str


class PlainLoad:
    """Threads that ask for decisions of some streams: ``threads`` of each of some kinds.

    - plain: ``POST`` without an Idempotency-Key over a connection that is kept open, to one node again and again. If no
      connection to it can be opened, the next one is asked, as a proxy does. Nothing else is repeated.
    - keyed: the same, with an Idempotency-Key.
    - client: :class:`windvane.Client` with the addresses of all nodes.

    ``calls`` has the calls that have ended, by kind, ``acknowledged`` the decisions, by stream and id.
    """

    def __init__(
        self, nodes: ServiceCluster, streams: Sequence[str], threads: int = 1, kinds: Sequence[str] = KINDS
    ) -> None:
        self._nodes, self._streams, self._is_ending = nodes, streams, False
        self.calls: dict[str, list[Call]] = {kind: [] for kind in kinds}
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self._keys = itertools.count()
        works: dict[str, Callable[[int], None]] = {"plain": self._send, "keyed": self._send_keyed, "client": self._call}
        self._threads = [threading.Thread(target=works[kind], args=(i,)) for kind in kinds for i in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def failures(self) -> Counter[str]:
        """How calls failed, and how often."""
        return Counter(call.outcome for calls in self.calls.values() for call in calls if call.outcome != "201")

    def end(self) -> None:
        """Let every thread end its call."""
        self._is_ending = True
        for thread in self._threads:
            thread.join()

    def check(self) -> int:
        """Every acknowledged decision is in a log once, and every key. Return how many others are."""
        decided, keys = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for stream in self._streams:
            events = [event for event in self._nodes.read_log(stream) if event["kind"] == "decided"]
            decided.update((stream, event["decision"]) for event in events)
            keys.update((stream, event["key"]) for event in events if event["key"] is not None)
        assert max(self.acknowledged.values(), default=1) == 1
        assert not self.acknowledged.keys() - decided.keys(), "an acknowledged decision is lost"
        assert max((*decided.values(), *keys.values()), default=1) == 1, "a request was executed twice"
        return len(decided.keys() - self.acknowledged.keys())

    def _send_keyed(self, first: int) -> None:
        self._send(first, "keyed")

    def _send(self, first: int, kind: str = "plain") -> None:
        connections: dict[str, http.client.HTTPConnection] = {}
        names = list(self._nodes.nodes)
        names = names[first % len(names) :] + names[: first % len(names)]
        for number in itertools.count(first):
            if self._is_ending:
                break
            stream, began, outcome = self._streams[number % len(self._streams)], time.monotonic(), "unreachable"
            key = f"k{next(self._keys)}" if kind == "keyed" else None
            for name in names:
                if (connection := self._open(connections, name)) is not None:
                    outcome = self._ask(connection, stream, key)
                    break
            self._note(kind, began, outcome)
        for connection in connections.values():
            connection.close()

    def _open(self, connections: dict[str, http.client.HTTPConnection], name: str) -> http.client.HTTPConnection | None:
        """Return a connection to a node; None if it listens no more."""
        address = self._nodes.nodes[name].address
        connection = connections.setdefault(name, http.client.HTTPConnection(address, timeout=30.0))
        if connection.sock is not None and select.select([connection.sock], [], [], 0.0)[0]:
            connection.close()  # the node has closed it since its last answer
        if connection.sock is None:
            try:
                connection.connect()
            except OSError:
                return None
        return connection

    def _ask(self, connection: http.client.HTTPConnection, stream: str, key: str | None) -> str:
        headers = {"content-type": "application/json"} | ({} if key is None else {"idempotency-key": key})
        try:
            connection.request("POST", f"/v1/streams/{stream}/decisions", json.dumps(ARMS), headers)
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            connection.close()
            return "closed"
        if answer.status == 201:
            self.acknowledged[stream, content["id"]] += 1
            return "201"
        return f"{answer.status} {content.get('cause', content['type'].rpartition(':')[2])}"

    def _call(self, first: int) -> None:
        urls = [f"http://{node.address}" for node in self._nodes.nodes.values()]
        with contextlib.closing(Client(urls[first % len(urls) :] + urls[: first % len(urls)])) as client:
            for number in itertools.count(first):
                if self._is_ending:
                    break
                stream, began, outcome = self._streams[number % len(self._streams)], time.monotonic(), "201"
                try:
                    self.acknowledged[stream, client.decide(stream, ARMS["arms"]).id] += 1
                except Exception as error:
                    outcome = repr(error)
                self._note("client", began, outcome)

    def _note(self, kind: str, began: float, outcome: str) -> None:
        now = time.monotonic()
        self.calls[kind].append(Call(now, now - began, outcome))
        time.sleep(PAUSE)
