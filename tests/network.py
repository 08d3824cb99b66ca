"""A real server in a process of its own, and a network in between that loses things."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

COMMAND = [sys.executable, "-m", "windvane.cli"]


@contextlib.contextmanager
def served(store: Path, *options: str) -> Iterator[str]:
    """The address of a server on ``store``, which is stopped at the end and must then have nothing to complain of."""
    line = [*COMMAND, "serve", "--store", str(store), "--port", "0", "--json", *options]
    with (store.parent / "stderr").open("w+") as errors:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None  # a pipe, as asked for
        try:
            told = process.stdout.readline()
            assert told, (store.parent / "stderr").read_text()
            yield json.loads(told)["address"]
        finally:
            process.terminate()
            process.communicate(timeout=30)
        errors.seek(0)
        assert (process.returncode, errors.read()) == (0, "")


class Listener:
    """Takes connections on loopback; what it does with each is told in ``handle``, in a thread of its own."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed: the end
                return
            self._open.append(connection)
            thread = threading.Thread(target=self._handle, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _handle(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.handle(connection)

    def handle(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(timeout=10)


class Fake(Listener):
    """A server that follows a script: for each request an answer, or None (hang until the client has enough). After an
    answer that is not the whole of what it promises, it hangs up. What came after the script's end gets the last."""

    def __init__(self, *script: bytes | None) -> None:
        self.script, self.requests = list(script), list[bytes]()
        super().__init__()

    def handle(self, connection: socket.socket) -> None:
        while request := read_message(connection):
            self.requests.append(request)
            act = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            if act is None:
                connection.recv(1)  # until the other side hangs up
                return
            connection.sendall(act)
            if not complete(act):
                return

    @property
    def keys(self) -> list[str]:
        found = [re.search(rb"(?i)^idempotency-key: (\S+)", request, re.M) for request in self.requests]
        return [one[1].decode() for one in found if one]


class Lossy(Listener):
    """A proxy that loses a share of the requests and of the answers: before, or in the middle of them."""

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
    """A whole request or answer; nothing if the other side hung up."""
    found = b""
    while not complete(found):
        chunk = connection.recv(65536)
        if not chunk:
            return b""
        found += chunk
    return found


def complete(message: bytes) -> bool:
    head, between, body = message.partition(b"\r\n\r\n")
    if not between:
        return False
    if re.search(rb"(?i)^transfer-encoding: chunked", head, re.M):
        return body.endswith(b"0\r\n\r\n")
    length = re.search(rb"(?i)^content-length: (\d+)", head, re.M)
    return len(body) >= (int(length[1]) if length else 0)


def answer(document: object, status: str = "200 OK", *headers: str) -> bytes:
    body = json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
