"""Servers that misbehave, and a network that loses things."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import threading
from typing import Any


class Listener:
    """Takes connections on loopback and calls ``handle`` for each in a thread of its own."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed: the end
                return
            self.connections.append(connection)
            thread = threading.Thread(target=self._handle, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.handle(connection)

    def handle(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(timeout=10)


class ScriptedServer(Listener):
    """Answers each request with the next entry of a script; the last entry answers all later ones.

    None: hang until the client gives up. After an answer that is shorter than it promises, or says "Connection: close",
    the server hangs up.
    """

    def __init__(self, *script: bytes | None) -> None:
        self.script, self.requests = list(script), list[bytes]()
        super().__init__()

    def handle(self, connection: socket.socket) -> None:
        while request := read_message(connection):
            self.requests.append(request)
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if answer is None:
                connection.recv(1)  # until the other side hangs up
                return
            connection.sendall(answer)
            if not is_complete(answer) or b"\r\nConnection: close" in answer:
                return

    @property
    def keys(self) -> list[str]:
        """The Idempotency-Key of the requests that have one."""
        matches = [re.search(rb"(?i)^idempotency-key: (\S+)", request, re.M) for request in self.requests]
        return [match[1].decode() for match in matches if match]

    @property
    def bodies(self) -> list[bytes]:
        return [request.partition(b"\r\n\r\n")[2] for request in self.requests]


class LossyProxy(Listener):
    """A proxy that loses a share of the requests and of the answers, or the rest of an answer."""

    def __init__(self, target: str, seed: int, share: float) -> None:
        self._target = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._rng, self._share, self._guard = random.Random(seed), share, threading.Lock()
        self.passed = self.lost_requests = self.lost_answers = self.cut_answers = 0
        super().__init__()

    def handle(self, connection: socket.socket) -> None:
        with socket.create_connection(self._target) as server:
            while request := read_message(connection):
                with self._guard:
                    fate, place = self._rng.random() / self._share, self._rng.random()
                    self.passed += fate >= 1.0
                    self.lost_requests += fate < 0.3
                    self.lost_answers += 0.3 <= fate < 0.7
                    self.cut_answers += 0.7 <= fate < 1.0
                if fate < 0.3:
                    return
                server.sendall(request)
                answer = read_message(server)
                if fate < 0.7:
                    return
                connection.sendall(answer if fate >= 1.0 else answer[: int(place * len(answer))])
                if fate < 1.0:
                    return


def read_message(connection: socket.socket) -> bytes:
    """Read a whole request or answer; nothing if the other side hung up."""
    message = b""
    while not is_complete(message):
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        message += chunk
    return message


def is_complete(message: bytes) -> bool:
    head, separator, body = message.partition(b"\r\n\r\n")
    if not separator:
        return False
    if re.search(rb"(?i)^transfer-encoding: chunked", head, re.M):
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"(?i)^content-length: (\d+)", head, re.M)
    return len(body) >= (int(length[1]) if length else 0)


def make_answer(document: object, status: str = "200 OK", *headers: str) -> bytes:
    """Return an HTTP answer with a document as JSON, or with these bytes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
