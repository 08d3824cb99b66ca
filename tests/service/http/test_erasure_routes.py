"""Over HTTP: delete a stream, bring an archived one back, give one a retention, and the most streams there may be."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.erased_shop import SHOP, has_mark, list_kinds, offer_vectors
from support.server import ARMS, Local, Server, read_pointers, read_problem, run_local, serve, until
from support.stores import edit, verify
from windvane import Agent
from windvane.service import refit as refits
from windvane.service.http import access
from windvane.service.http.access import create_token
from windvane.service.store import SqliteStore


def delete(service: Local, name: str = "shop", **more: Any) -> httpx2.Response:
    return service.request("DELETE", f"/v1/streams/{name}", **more)


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_a_stream_is_deleted_with_everything(tmp_path: Path) -> None:
    """Also an archived one. Its name is free at once, and the new stream has nothing of the old one."""
    with run_local(tmp_path / "a.db") as service:
        first = service.create("shop", title="Old", retention="90d")
        service.create("other")
        decision = service.decide(key="k")["id"]
        service.archive()
        answer = delete(service)
        assert (answer.status_code, answer.content) == (204, b"")
        assert [stream["name"] for stream in service.get("/v1/streams").json()["streams"]] == ["other"]
        for method, path in (("GET", SHOP), ("GET", f"{SHOP}/events"), ("POST", f"{SHOP}/archive"), ("DELETE", SHOP)):
            assert read_problem(service.request(method, path), 404)["code"] == "unknown-stream"
        again = service.create("shop")
        assert (again["events"], again["title"], again["retention"]) == (0, None, None)
        assert again["created"] >= first["created"]
        assert read_problem(service.reward(decision, 1.0), 404)["code"] == "unknown-decision"
        assert service.decide(key="k")["id"] != decision
        state = service.state()
    report = verify(tmp_path / "a.db")
    assert report.is_sound, report
    with run_local(tmp_path / "a.db") as service:
        assert service.state() == state
        assert delete(service).status_code == 204
        assert delete(service, "other").status_code == 204
        assert service.get("/v1/streams").json()["streams"] == []
    assert verify(tmp_path / "a.db").streams == []


@pytest.mark.sqlite
def test_no_byte_of_a_deleted_stream_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    service = Local(path)
    service.create("shop", title="Geheimnis")
    service.create("other")
    for i in range(50):
        service.decide(body=offer_vectors(i))
    service.decide("other", body=offer_vectors(99))
    service.stop()  # snapshots are written
    service = Local(path)
    assert has_mark(path, 7)
    assert delete(service).status_code == 204
    assert not any(has_mark(path, i) for i in range(50))
    assert has_mark(path, 99)
    service.crash()
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"Geheimnis" not in content
    assert b"shop" not in content
    assert verify(path).is_sound


@pytest.mark.sqlite
def test_a_stream_that_could_not_be_recovered(tmp_path: Path) -> None:
    service = Local(tmp_path / "a.db")
    service.create("shop")
    service.create("other")
    service.decide()
    service.crash()
    edit(tmp_path / "a.db", "UPDATE events SET outcome = x'00'")
    with run_local(tmp_path / "a.db") as service:
        assert read_problem(service.get(SHOP), 500)["code"] == "unrecovered"
        assert delete(service).status_code == 204
        assert service.get("/v1/streams").json()["unavailable"] == []
        read_problem(service.get(SHOP), 404)
        service.create("shop")
    assert verify(tmp_path / "a.db").is_sound


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def test_deleting_needs_full_rights(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RELOAD", 0.0)
    service.create("shop")
    reading, full = (create_token(service.store.tokens, str(is_full), full=is_full) for is_full in (False, True))
    for token, status in ((None, 401), (reading, 403)):
        headers = bearer(token)
        read_problem(delete(service, headers=headers), status)
        read_problem(service.request("DELETE", f"{SHOP}/decisions/x/context", headers=headers), status)
        read_problem(service.post(f"{SHOP}/compact", headers=headers), status)
        read_problem(service.post(f"{SHOP}/unarchive", headers=headers), status)
    assert delete(service, headers=bearer(full)).status_code == 204


def test_requests_that_are_under_way(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refit that is learning, and decisions that wait for the disk: they end, and nothing of them is stored."""
    service.create("shop")
    for _ in range(5):
        service.reward(service.decide()["id"], 1.0)
    entered, go, read = threading.Event(), threading.Event(), refits.LogReader.read

    def wait(reader: Any, last: int, work: Any) -> Any:
        entered.set()
        assert go.wait(30)
        return read(reader, last, work)

    monkeypatch.setattr(refits.LogReader, "read", wait)
    answers: list[httpx2.Response] = []
    thread = threading.Thread(target=lambda: answers.append(service.post(f"{SHOP}/refit", {"half_life": 20})))
    thread.start()
    assert entered.wait(30)
    requests: list[tuple[str, str, Any]] = [("POST", f"{SHOP}/decisions", ARMS)] * 20
    together = service.request_together(*requests, ("DELETE", SHOP, {}), *requests, ("DELETE", SHOP, {}))
    assert sorted(together[i].status_code for i in (20, 41)) == [204, 404]
    assert {answer.status_code for answer in together} <= {201, 204, 404}
    go.set()
    thread.join()
    assert read_problem(answers[0], 404)["code"] == "unknown-stream"
    assert service.get("/v1/streams").json()["streams"] == []
    service.create("shop")
    assert service.events() == []


@pytest.mark.sqlite
def test_a_store_that_cannot_be_written(service: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is still there, and the request can be repeated."""
    monkeypatch.setattr("windvane.service.engine.RETRY", 0.02)
    service.create("shop")
    service.decide()
    before = service.state()
    with monkeypatch.context() as patch:

        def fail(*_: Any, **more: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        patch.setattr(service.store, "begin_removal", fail)
        assert read_problem(delete(service), 503)["code"] == "unavailable"
    service.wait_until_ready()
    assert service.state() == before
    assert delete(service).status_code == 204


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = serve(tmp_path / "a.db", "--max-streams", "3")
    yield running
    assert running.stop() == 0


@pytest.mark.sqlite
def test_whoever_follows_the_stream_is_told(server: Server) -> None:
    """The answer that follows it ends, and the next one is 404."""
    with server.client() as client:
        assert client.post("/v1/streams", json={"name": "shop", "dim": 2}).status_code == 201
        with client.stream("GET", f"{SHOP}/live") as live:
            lines = live.iter_lines()
            assert any(line.startswith("data:") for line in lines)
            assert client.delete(SHOP).status_code == 204
            assert list(lines)[-1:] in ([], [""])  # it has ended
        assert client.get(f"{SHOP}/live").status_code == 404


@pytest.mark.sqlite
def test_the_most_streams(server: Server, tmp_path: Path) -> None:
    """Archived ones count; those that exist are served, and one that is deleted makes room."""
    with server.client() as client:
        for name in ("a", "b", "c"):
            assert client.put(f"/v1/streams/{name}", json={"dim": 2}).status_code == 201
        assert client.post("/v1/streams/a/archive").status_code == 200
        for answer in (
            client.post("/v1/streams", json={"name": "d", "dim": 2}),
            client.put("/v1/streams/d", json={"dim": 2}),
        ):
            assert read_problem(answer, 409)["code"] == "too-many-streams"
            assert "3" in answer.json()["detail"]
        assert client.put("/v1/streams/b", json={"dim": 2}).status_code == 200
        assert read_problem(client.post("/v1/streams", json={"name": "b", "dim": 2}), 409)["code"] == "stream-exists"
        assert client.delete("/v1/streams/a").status_code == 204
        assert client.put("/v1/streams/d", json={"dim": 2}).status_code == 201
    with closing(SqliteStore(tmp_path / "a.db", shared=True, create=False)) as store:
        assert [row.name for row in store.read_streams()] == ["b", "c", "d"]


def test_streams_beyond_the_most_are_served(tmp_path: Path) -> None:
    with run_local(tmp_path / "a.db") as service:
        for name in "abc":
            service.create(name)
    with run_local(tmp_path / "a.db", most_streams=2) as service:
        service.decide("c")
        answer = service.post("/v1/streams", {"name": "d", "dim": 2})
        assert read_problem(answer, 409)["code"] == "too-many-streams"


# --- bringing an archived stream back ---------------------------------------------------------------------------------


def test_an_archived_stream_serves_again(tmp_path: Path, clock: list[float]) -> None:
    """Timeouts that passed meanwhile are closed; repeating the request changes nothing."""
    with run_local(tmp_path / "a.db") as service:
        service.create("shop", reward_timeout="1h", default_reward=0.25)
        late, old = (service.decide()["id"] for _ in range(2))
        clock[0] += 1800.0
        young = service.decide()["id"]
        service.archive()
        clock[0] += 3000.0
        read_problem(service.post(f"{SHOP}/decisions", ARMS), 409)
        assert service.get(f"{SHOP}/decisions/{old}").json()["status"] == "pending"
        info = service.post(f"{SHOP}/unarchive").json()
        assert info["archived"] is None
        assert service.post(f"{SHOP}/unarchive").json()["archived"] is None
        assert list_kinds(service).count("unarchived") == 1
        assert service.reward(late, 1.0).json()["status"] == "expired"
        until(lambda: service.info()["counts"]["defaulted"] == 2)
        assert service.reward(young, 1.0).json()["status"] == "recorded"
        service.decide()
        service.archive()
        state = service.state()
    with run_local(tmp_path / "a.db") as service:
        assert service.state() == state
        assert service.info()["archived"] is not None
        service.post(f"{SHOP}/unarchive")
        service.decide()
    assert verify(tmp_path / "a.db").is_sound


def test_a_stream_that_is_ensured_after_it_was_brought_back(service: Local) -> None:
    service.put(SHOP, {"dim": 2})
    service.archive()
    assert read_problem(service.put(SHOP, {"dim": 2}), 409)["code"] == "archived"
    service.post(f"{SHOP}/unarchive")
    assert service.put(SHOP, {"dim": 2}).status_code == 200


# --- the setting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retention", [90, 90.5, True, "", "soon", "90", "-1d", ["90d"], {"days": 90}, "2h", "60m"])
def test_wrong_retentions(service: Local, retention: Any) -> None:
    """No numbers of decisions, and nothing shorter than the timeout."""
    body = {"dim": 2, "reward_timeout": "2h", "retention": retention}
    assert read_pointers(service.post("/v1/streams", {"name": "shop", **body})) == ["#/retention"]
    assert read_pointers(service.put(SHOP, body)) == ["#/retention"]
    service.create("shop", reward_timeout="2h", retention="3h")
    assert read_pointers(service.patch(SHOP, {"retention": retention})) == ["#/retention"]
    assert service.info()["retention"] == "3h"
    read_problem(service.post(f"{SHOP}/refit", {"retention": "90d"}), 422)
    assert read_pointers(service.put("/v1/streams/x", {"dim": 2, "settings": {"retention": "9d"}})) == [
        "#/settings/retention"
    ]


def test_a_retention_is_compared_by_meaning(service: Local) -> None:
    """If it is given: who does not know of it does not lose it."""
    body = {"dim": 2, "seed": 0}
    assert service.put(SHOP, {**body, "retention": "90d"}).status_code == 201
    for same in ({}, {"retention": "90d"}, {"retention": "2160h"}):
        assert service.put(SHOP, {**body, **same}).status_code == 200
    for other, shown in (("91d", '"91d"'), (None, "null")):
        problem = read_problem(service.put(SHOP, {**body, "retention": other}), 409)
        assert problem["errors"] == [{"pointer": "#/retention", "detail": f'the stream has "90d", not {shown}'}]
    service.configure(retention=None)
    assert service.put(SHOP, {**body, "retention": None}).status_code == 200
    assert service.get("/v1/streams").json()["streams"][0]["retention"] is None


@pytest.mark.sqlite
def test_a_stream_of_an_older_version_has_none(tmp_path: Path) -> None:
    """Its configuration and its snapshot do not mention it."""
    path = tmp_path / "a.db"
    with closing(SqliteStore(path)) as store:
        config = {"title": None, "agent": Agent(dim=2, seed=0).settings}
        assert store.add_stream("shop", 1.0, json.dumps(config)) is not None
    service = Local(path)
    assert service.info()["retention"] is None
    service.decide()
    stream = service.load()
    snapshot, state = service.call(stream.snapshot), service.state()
    extra = {name: json.loads(snapshot.extra)[name] for name in ("title", "archived", "refits")}
    service.store.append([], [(stream.id, snapshot._replace(extra=json.dumps(extra).encode()))])
    service.crash()
    with run_local(path) as service:
        assert service.state() == state
        assert (service.info()["retention"], service.info()["removed"]) == (None, None)
        service.configure(retention="90d")
    with run_local(path) as service:
        assert service.info()["retention"] == "90d"
    assert verify(path).is_sound
