"""A service that is killed and started again under clients that call it: they notice nothing, and nothing is lost."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from pathlib import Path

import pytest

from support.clients import ARMS, Awaited, Connect, refused
from support.network import ScriptedServer, make_answer
from support.server import serve, until
from windvane.client import Client

LIVES = 3


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_restart_under_calling_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once killed (SIGKILL), once stopped (SIGTERM). Every call returns, and the log has each of them once."""
    monkeypatch.setattr("windvane.client.connection.LONGEST_PAUSE", 0.2)  # the test need not wait for longer ones
    port, done = str(find_port()), threading.Event()
    server = serve(tmp_path / "w.db", "--port", port)
    decisions: dict[str, list[str]] = {"sync": [], "async": []}
    failures: list[Exception] = []

    def call(kind: str, connect: Connect) -> None:
        try:
            with connect(server.address, deadline=120.0) as client:
                while not done.is_set():
                    decision = client.decide("shop", ARMS)
                    assert client.reward("shop", decision, 1.0) in ("recorded", "unchanged")
                    decisions[kind].append(decision.id)
        except Exception as error:
            failures.append(error)

    def wait_for_calls() -> None:
        before = {kind: len(made) for kind, made in decisions.items()}
        until(lambda: failures or all(len(decisions[kind]) > before[kind] + 5 for kind in decisions), 60.0)

    with Client(server.address, timeout=60.0) as client:
        client.create("shop", dim=2, policy="OnePassGLM", gamma=0.99)
        threads = [threading.Thread(target=call, args=pair) for pair in (("sync", Client), ("async", Awaited))]
        for thread in threads:
            thread.start()
        try:
            for life in range(LIVES):
                wait_for_calls()
                if life < LIVES - 1:
                    (server.kill, server.stop)[life]()
                    server = serve(tmp_path / "w.db", "--port", port)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failures
        made = decisions["sync"] + decisions["async"]
        assert min(map(len, decisions.values())) > 5 * LIVES
        events = list(client.events("shop"))
        for kind in ("decided", "rewarded"):
            assert Counter(e["decision"] for e in events if e["kind"] == kind) == Counter(dict.fromkeys(made, 1))
        assert client.info("shop").counts.pending == 0
    assert server.stop() == 0


@pytest.mark.parametrize(("status", "code"), [("500 Error", "unrecovered"), ("401 Unauthorized", "no-token")])
def test_what_no_time_mends_is_raised_at_once(status: str, code: str, connect: Connect, pauses: list[float]) -> None:
    problem = {"type": f"urn:windvane:problem:{code}", "title": "T", "status": int(status[:3]), "detail": "d"}
    with ScriptedServer(make_answer({**problem, "errors": []}, status)) as server, connect(server.address) as client:
        refused(lambda: client.decide("a", ARMS), int(status[:3]), code)
    assert (len(server.requests), pauses) == (1, [])


def test_nobody_is_there_until_the_deadline(connect: Connect, pauses: list[float]) -> None:
    with connect(f"http://127.0.0.1:{find_port()}", deadline=6.0) as client:
        error = refused(lambda: client.decide("a", ARMS), None, "unreachable")
    assert not error.is_unsure
    assert 5.0 < sum(pauses) <= 6.0
