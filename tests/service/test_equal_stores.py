"""One script of requests on SQLite and on PostgreSQL: the same answers, the same events, the same bytes of agents."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import backends
from support.backends import Databases
from support.postgres import Cluster
from support.server import ARMS, Local, run_local, until
from windvane.service.copying import copy_streams
from windvane.service.store import KINDS

FIELDS: dict[str, Any] = {
    "shared": {"hour": [0, 24]}, "by_arm": {"device": ["phone", "desk"]}, "arms": ["red", "blue", "green"],
}  # fmt: skip
STREAMS: dict[str, dict[str, Any]] = {
    "vectors": {"dim": 2, "epsilon": 0.1, "reward_timeout": "50s", "default_reward": 0.25, "seed": 1},
    "fields": {"features": FIELDS, "seed": 2},
    "parts": {"dim": 2, "reward_timeout": "30s", "learn": "at_timeout", "seed": 3},
    "old": {"dim": 2, "retention": "1h", "half_life": "100s", "seed": 4},
}
ALL_KINDS = {*KINDS.values()} - {"lost", "unreadable"}  # what a sound service writes


@pytest.fixture
def fixed_draws(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that lets ids of decisions and salts begin again with the same values."""
    numbers = itertools.count()

    def draw(size: int) -> bytes:
        return hashlib.sha256(str(next(numbers)).encode()).digest()[:size]

    def reset() -> None:
        nonlocal numbers
        numbers = itertools.count()

    for module in ("random_bytes", "store.events"):
        monkeypatch.setattr(f"windvane.service.{module}.draw_bytes", draw)
    monkeypatch.setattr("windvane.service.streams.CLOSING_SECONDS", 1e9)  # how many are closed at once takes no time
    return reset


@contextmanager
def on_postgres(cluster: Cluster, template: str) -> Iterator[None]:
    backends.current = Databases(cluster, template)
    try:
        yield
    finally:
        backends.current.drop()
        backends.current = None


class Script:
    """Requests, whose answers are kept."""

    def __init__(self, service: Local, clock: list[float]) -> None:
        self.service, self.clock, self.answers = service, clock, list[tuple[int, Any]]()
        self._rng = np.random.default_rng(0)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        self.wait()
        self.clock[0] += 0.5
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        content = {} if body is None else {"json": body}
        answer = self.service.request(method, f"/v1/streams{path}", headers=names, **content)
        assert answer.status_code < 300, answer.text
        self.answers.append((answer.status_code, answer.json() if answer.content else None))
        return self.answers[-1][1]

    def resume(self, service: Local) -> None:
        """Continue with a service that was started anew; on PostgreSQL, streams are loaded when they are needed."""
        self.service = service
        for name in STREAMS:
            service.load(name)

    def wait(self) -> None:
        """Wait until nothing is closed in the background: its events would get the time of the next request."""
        streams = self.service.engine.streams
        until(lambda: self.service.call(lambda: all(stream.closing is None for stream in streams.values())))

    def play(self, name: str, rounds: int) -> list[str]:
        """Decide; rewards come later, some at once, some in parts, some never. Return the open decisions."""
        waiting: list[str] = []
        for i in range(rounds):
            context = {"hour": float(self._rng.integers(24)), "device": ("phone", "desk")[i % 2]}
            body = {"context": context} if name == "fields" else ARMS
            waiting.append(self.send("POST", f"/{name}/decisions", body, idempotency_key=f"{name} {i}")["id"])
            if name == "parts":
                self.send("POST", f"/{name}/decisions/{waiting[-1]}/rewards", {"value": 0.25}, idempotency_key=f"p {i}")
            if len(waiting) > 3:
                decision, value = waiting.pop(0), float(self._rng.integers(3)) / 4
                method, path = ("POST", "rewards") if name == "parts" else ("PUT", "reward")
                self.send(method, f"/{name}/decisions/{decision}/{path}", {"value": value})
        return waiting

    def begin(self) -> None:
        """Create streams, teach one of them, decide one by one and in batches."""
        for name, settings in STREAMS.items():
            self.send("POST", "", {"name": name, **settings})
        rows = {"rewards": [1.0, 0.0, 1.0], "vectors": [[0.1, 0.2], [0.3, 0.1], [0.2, 0.2]], "weights": [2, 1, 1]}
        self.send("POST", "/vectors/history", rows, idempotency_key="history")
        for name in STREAMS:
            waiting = self.play(name, 12)
            self.wait()
            self.clock[0] += 100.0 if name in ("vectors", "parts") else 0.0  # the timeout of what is open
            value = {"value": 0.5}
            late = ("PUT", "reward") if name != "parts" else ("POST", "rewards")
            self.send(late[0], f"/{name}/decisions/{waiting[0]}/{late[1]}", value)
        batch = {"decisions": [{**ARMS, "key": f"batch {i}"} for i in range(5)]}
        results = self.send("POST", "/vectors/decisions/batch", batch)["results"]
        rewards = [{"decision": each["decision"]["id"], "value": i / 4} for i, each in enumerate(results[:3])]
        self.send("POST", "/vectors/rewards/batch", {"rewards": rewards})

    def go_on(self) -> None:
        """Change settings, refit and undo it, archive, erase, compact."""
        self.send("PATCH", "/vectors", {"title": "Vectors", "epsilon": 0.2, "max_pending": 2})
        self.send("POST", "/vectors/decisions/batch", {"decisions": [ARMS] * 4})  # some are dropped
        self.send("PATCH", "/fields", {"features": {**FIELDS, "arms": ["red", "blue"]}})
        self.play_again("fields")
        self.send("POST", "/vectors/refit", {"half_life": 20}, idempotency_key="refit")
        self.play_again("vectors")
        self.send("POST", "/vectors/refit/undo", idempotency_key="undo")
        first = self.service.events("vectors")[1]["decision"]
        self.send("DELETE", f"/vectors/decisions/{first}/context")
        self.wait()
        self.clock[0] += 4000.0
        self.play_again("old")
        self.send("POST", "/old/compact")
        self.send("POST", "/parts/archive")
        self.send("POST", "/parts/unarchive")
        for name in STREAMS:
            self.send("GET", f"/{name}")

    def play_again(self, name: str) -> None:
        for i in range(4):
            body = {"context": {"hour": 3.0 * i, "device": "desk"}} if name == "fields" else ARMS
            decision = self.send("POST", f"/{name}/decisions", body)["id"]
            self.send("PUT", f"/{name}/decisions/{decision}/reward", {"value": i / 4})


def run_script(path: Path, clock: list[float]) -> tuple[Any, ...]:
    """Return the answers, the states in memory, and all rows; the service is started anew in the middle."""
    clock[0] = 1_700_000_000.0
    with run_local(path) as service:
        script = Script(service, clock)
        script.begin()
    with run_local(path) as service:
        script.resume(service)
        script.go_on()
        states = {name: service.state(name) for name in STREAMS}
    return script.answers, states, read_all(path)


def read_all(path: Path) -> dict[str, Any]:
    """Return all rows of a store, by stream."""
    with closing(backends.open_backend(path, shared=True, read_only=True)) as store:
        return {
            row.name: (row, list(store.read_events(row.id)), store.read_snapshot(row.id), store.read_baseline(row.id))
            for row in store.read_streams()
        }


def test_one_script_gives_the_same_bytes_on_both_stores(
    tmp_path: Path, clock: list[float], fixed_draws: Callable[[], None], cluster: Cluster, template: str
) -> None:
    fixed_draws()
    on_file = run_script(tmp_path / "a.db", clock)
    fixed_draws()
    with on_postgres(cluster, template):
        on_database = run_script(tmp_path / "a.db", clock)
    for first, second in zip(on_file, on_database, strict=True):
        assert first == second
    rows = on_file[2]
    assert {KINDS[event.kind] for row in rows.values() for event in row[1]} == ALL_KINDS
    assert all(row[2] is not None for row in rows.values())
    assert rows["old"][3].removed > 0
    assert rows["vectors"][3].removed == 0  # a request was erased


def test_copies_continue_equally(
    tmp_path: Path, clock: list[float], fixed_draws: Callable[[], None], cluster: Cluster, template: str
) -> None:
    """From a file to a database and back to another file: the same rows, and the same decisions afterwards."""
    fixed_draws()
    run_script(tmp_path / "a.db", clock)
    before = read_all(tmp_path / "a.db")
    results = []
    with on_postgres(cluster, template):
        database = backends.locate(tmp_path / "b.db")
        copy_streams(tmp_path / "a.db", database)
        copy_streams(database, tmp_path / "c.db")
        assert read_all(tmp_path / "b.db") == before
        results.append(go_on_longer(tmp_path / "b.db", clock, fixed_draws))
    assert read_all(tmp_path / "c.db") == before
    results += [go_on_longer(tmp_path / name, clock, fixed_draws) for name in ("a.db", "c.db")]
    assert results[0] == results[1] == results[2]


def go_on_longer(path: Path, clock: list[float], fixed_draws: Callable[[], None]) -> tuple[Any, ...]:
    fixed_draws()
    clock[0] = 1_800_000_000.0
    with run_local(path) as service:
        script = Script(service, clock)
        script.resume(service)
        for name in STREAMS:
            script.play_again(name)
        states = {name: service.state(name) for name in STREAMS}
    return script.answers, states, read_all(path)
