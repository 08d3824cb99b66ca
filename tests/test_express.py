"""The short way for decide and reward answers as the framework's routes for them do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from windvane.service import express
from windvane.service.app import create_app
from windvane.service.store import Store

DECIDE, REWARD = "/v1/streams/a/decide", "/v1/streams/a/reward"
ARMS = b'{"arms": {"red": [0.6, 0.1], "blue": [0.2, 0.7]}}'
JSON = {"content-type": "application/json"}


def ask(folder: Path) -> list[tuple[Any, ...]]:
    """The same conversation with a server; what differs from run to run (ids, times) is taken out."""

    async def talk() -> list[tuple[Any, ...]]:
        store = Store(folder / "w.db")
        app = create_app(store, most_bytes=2000)
        engine = app._app.state.engine  # type: ignore[attr-defined]
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
        said: list[tuple[Any, ...]] = []

        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:

            async def call(method: str, path: str, body: bytes, **headers: str) -> Any:
                sent = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
                answer = await http.request(method, path, content=body, headers=sent)
                found = re.sub(r'"(decision|time|created|archived)":("\w+"|[\d.]+)', r'"\1":0', answer.text)
                found = re.sub(r"'[0-9a-f]{16}'", "ID", found)
                kept = {name: value for name, value in answer.headers.items() if name != "content-length"}
                shown = re.sub(rb'"[0-9a-f]{16}"', b"ID", body[:99])
                said.append((method, path, shown, answer.status_code, found, kept))
                return answer.json() if answer.content else None

            await call("POST", DECIDE, ARMS)  # not started
            await engine.start()
            await call("POST", "/v1/streams", b'{"name": "a", "dim": 2, "policy": "UniformRandom", "seed": 1}')
            made = await call("POST", DECIDE, ARMS)
            value = b'{"decision": "%s", "value": 1.0}' % made["decision"].encode()
            for body in (value, value, value.replace(b"1.0", b"0.5"), b'{"decision": "x", "value": 1}'):
                await call("POST", REWARD, body)
            first = await call("POST", DECIDE, ARMS, idempotency_key="k")
            assert await call("POST", DECIDE, ARMS, idempotency_key="k") == first
            await call("POST", DECIDE, b'{"arms": [[0.1, 0.1]]}', idempotency_key="k")
            await call("POST", DECIDE, ARMS, idempotency_key="k" * 201)
            await call("POST", REWARD, value, idempotency_key="")
            for path in (DECIDE, REWARD):
                for body in (b"", b"{}", b"[", b"null", b'{"arms": {"red": [1]}}', b'{"x": 1}', b"\xff", b" " * 3000):
                    await call("POST", path, body)
                await call("POST", path, ARMS, content_type="text/plain")
                await call("POST", path.replace("/a/", "/unknown/"), ARMS)
                await call("POST", path.replace("/a/", "/a%20b/"), ARMS)
                await call("POST", path.replace("/a/", "/a%0A/"), ARMS)
                await call("POST", path + "?x=1", ARMS)
                await call("GET", path, b"")
                await call("PUT", path, ARMS)
                await call("POST", path + "/", ARMS)
            await call("POST", "/v1/streams/a/archive", b"")
            await call("POST", DECIDE, ARMS)
            counted = (await http.get("/metrics")).text
            said.append(tuple(line for line in counted.splitlines() if line.startswith("windvane_requests_total")))
            await engine.stop()
        store.close()
        return said

    return asyncio.run(talk())


def test_both_ways_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    short = ask(tmp_path / "short")
    assert sum(entry[3] == 200 for entry in short[:-1]) > 6
    monkeypatch.setattr(express, "_PATH", re.compile("nothing"))
    for one, other in zip(short, ask(tmp_path / "long"), strict=True):
        assert one == other
