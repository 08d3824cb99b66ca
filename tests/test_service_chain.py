"""Checksums: the chain over events, digests of rows, late rewards with keys, and export of a log that is damaged."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

import windvane
from serving import ARMS, local, served, until
from serving import windvane as command
from stores import build, copy_store, edit, query, verify
from support.refusals import rejects
from windvane.service import access
from windvane.service.store import DECIDED, LATE, Event, Store, Token, UnreadableEventError, check_event
from windvane.service.store.digests import digest_row, salt_request
from windvane.service.store.events import STREAM_SPAN

START = digest_row("streams", 1, "shop", 5.0, "{}")
REQUEST = b'{"context":{"age":41}}'


def seal(previous: bytes, number: int, request: bytes | None = REQUEST, **more: Any) -> Event:
    values = {"decision": f"d{number}", "key": f"k{number}", "outcome_json": b'{"arm":"a"}'} | more
    return Event.create(previous, 1, number, 10.0 + number, DECIDED, request=request, **values)


def test_any_change_of_an_event_breaks_the_chain() -> None:
    first = seal(START, 1)
    check_event(START, first)
    second = seal(first.chain, 2)
    check_event(first.chain, second)
    changes: list[dict[str, Any]] = [
        {"stream": 2}, {"number": 3}, {"time": 12.000001}, {"kind": LATE}, {"decision": "d3"}, {"decision": None},
        {"key": "k3"}, {"key": None}, {"key": ""}, {"outcome_json": b'{"arm":"b"}'}, {"request": REQUEST + b" "},
        {"request": None}, {"salt": None}, {"salt": b"x" * 16}, {"request_digest": None}, {"chain": first.chain},
        {"chain": None}, {"time": None}, {"kind": "x"}, {"kind": -1}, {"decision": b"d2"}, {"outcome_json": "text"},
        {"number": -1}, {"request": "text"},
    ]  # fmt: skip
    for change in changes:
        changed = second._replace(**change)
        with rejects(error=UnreadableEventError, number=changed.number):
            check_event(first.chain, changed)
    with pytest.raises(UnreadableEventError):  # an event left out
        check_event(START, second)


def test_values_cannot_run_into_each_other() -> None:
    pairs = [
        ({"decision": "ab", "key": "c"}, {"decision": "a", "key": "bc"}),
        ({"decision": None, "key": "a"}, {"decision": "a", "key": None}),
        ({"decision": "", "key": None}, {"decision": None, "key": ""}),
        ({"key": "a", "outcome_json": b"b"}, {"key": "", "outcome_json": b"ab"}),
    ]
    for one, other in pairs:
        assert seal(START, 1, None, **one).chain != seal(START, 1, None, **other).chain
    assert digest_row("t", "ab", "c") != digest_row("t", "a", "bc")
    assert digest_row("t", 1) != digest_row("t", "1")
    assert digest_row("t", 1.0) != digest_row("t", 1)
    assert digest_row("t", None) != digest_row("t", b"")


def test_a_request_can_be_erased_and_the_chain_still_holds() -> None:
    """Contexts and vectors stand only in the request; a digest of them stays."""
    events, chain = [], START
    for number in range(1, 6):
        events.append(seal(chain, number))
        chain = events[-1].chain
    events[2] = events[2]._replace(request=None, salt=None)
    chain = START
    for event in events:
        check_event(chain, event)
        chain = event.chain
    assert b"41" not in b"".join(bytes(part) for part in events[2] if isinstance(part, bytes))
    for half in ({"request": None}, {"salt": None}):  # neither of them alone
        with pytest.raises(UnreadableEventError):
            check_event(events[0].chain, events[1]._replace(**half))
    other = events[3]._replace(request=b"{}")  # nor can it be replaced
    with pytest.raises(UnreadableEventError):
        check_event(events[2].chain, other)


def test_the_same_request_twice_has_two_digests() -> None:
    """Or erased contexts could be guessed by comparing them."""
    assert salt_request(REQUEST)[1] != salt_request(REQUEST)[1]


def test_the_log_is_chained_as_it_is_written(tmp_path: Path) -> None:
    build(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    for row in store.read_streams():
        chain = row.digest
        assert row.is_sound
        for event in store.read_events(row.id):
            check_event(chain, event)
            chain = event.chain
            assert store.read_chain(row.id, event.number) == chain
        snapshot = store.read_snapshot(row.id)
        assert snapshot is not None
        assert snapshot.chain == chain
    store.close()


def test_a_snapshot_of_another_log_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    facts = build(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    snapshot = store.read_snapshot(1)
    assert snapshot is not None
    store.append([], [(1, snapshot._replace(chain=b"x" * 32))])
    store.close()
    assert "its snapshot cannot be used" in verify(tmp_path / "a.db")["streams"][0]["problem"]
    edit(tmp_path / "a.db", "DELETE FROM tokens")
    with local(tmp_path / "a.db") as service:
        assert service.state("shop") == facts.states["shop"]
        assert "does not belong to event" in caplog.text
        service.store.remove_all_tokens()


# --- tokens and settings ---------------------------------------------------------------------------------------------


def test_a_changed_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flipped flag does not turn a token that may only read into a full one."""
    monkeypatch.setattr(access, "RELOAD", 0.0)
    build(tmp_path / "a.db")
    reader, writer = ({"authorization": f"Bearer wv_{name}"} for name in ("reader", "writer"))
    edit(tmp_path / "a.db", "UPDATE tokens SET full = 1 WHERE name = 'reader'")
    with local(tmp_path / "a.db") as service:
        assert service.get("/v1/streams", headers=writer).status_code == 200
        assert service.get("/v1/streams", headers=reader).status_code == 401
        assert service.store.read_damaged_tokens() == ["reader"]
        assert verify(tmp_path / "a.db")["store"] == [
            "the token 'reader' does not match its checksum, and is not accepted"
        ]
        assert service.store.remove_token("reader")
        assert service.store.add_token(Token("reader", access.hashed("wv_reader"), False, 1.0))
        assert service.get("/v1/streams", headers=reader).status_code == 200
        service.store.remove_all_tokens()


@pytest.mark.parametrize("change", ["DELETE FROM meta WHERE name = 'guarded'", "UPDATE meta SET value = 'no'"])
def test_access_fails_closed(tmp_path: Path, change: str) -> None:
    """Whether tokens are needed cannot be told any more: they are."""
    build(tmp_path / "a.db")
    edit(tmp_path / "a.db", "DELETE FROM tokens")
    edit(tmp_path / "a.db", f"{change} {'AND' if 'WHERE' in change else 'WHERE'} name = 'guarded'")
    assert not verify(tmp_path / "a.db")["sound"]
    with local(tmp_path / "a.db") as service:
        assert service.get("/v1/streams").status_code == 401
        service.store.remove_all_tokens()
        until(lambda: service.get("/v1/streams").status_code == 200)


def test_a_restored_store_is_its_owner_s_alone(tmp_path: Path) -> None:
    Store(tmp_path / "a.db").close()
    for shared in (False, True):
        (tmp_path / "a.db").chmod(0o644)
        store = Store(tmp_path / "a.db", shared=shared)
        store.add_token(Token(f"t{shared}", f"h{shared}", True, 1.0))
        for path in tmp_path.glob("a.db*"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        store.close()
    assert stat.S_IMODE((tmp_path / "a.db").stat().st_mode) == 0o600


# --- late rewards ----------------------------------------------------------------------------------------------------


def test_the_key_of_a_late_reward_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with local(path) as service:
        service.create(wait=1)
        first, second = service.decide()["decision"], service.decide()["decision"]
        for _ in range(3):
            service.decide()
        late = service.reward(first, 1.0, headers={"idempotency-key": "late"})
        assert (late.status_code, late.json()["error"]["code"]) == (410, "too_late")
    for _ in range(2):  # from memory and from the log
        with local(path) as service:
            again = service.reward(first, 1.0, headers={"idempotency-key": "late"})
            assert (again.status_code, again.content) == (410, late.content)
            for body in ({"decision": first, "value": 0.0}, {"decision": second, "value": 1.0}):
                other = service.post("/v1/streams/shop/reward", body, headers={"idempotency-key": "late"})
                assert (other.status_code, other.json()["error"]["code"]) == (409, "key_reused")
            for key in ({}, {"idempotency-key": "another"}):
                same = service.reward(first, 1.0, headers=key)
                assert (same.status_code, same.content) == (410, late.content)
                other = service.reward(first, 0.25, headers=key)
                assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
                assert "a late reward of 1 is recorded, and this one of 0.25 is not" in other.text
            assert [(one["value"], one["key"]) for one in service.log() if one["kind"] == "late"] == [(1.0, "late")]


# --- export ----------------------------------------------------------------------------------------------------------


def damage_event(path: Path, number: int, stream: int = 1) -> None:
    edit(path, "UPDATE events SET time = time + 1 WHERE id = ?", stream * STREAM_SPAN + number)


def read_lines(client: httpx.Client, path: str, lines: list[dict[str, Any]]) -> None:
    with client.stream("GET", path) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            lines.append(json.loads(line))


def test_export_of_an_event_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    """Over a real connection: the last line names the event, and the transfer is incomplete."""
    build(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    store.remove_all_tokens()
    store.close()
    damage_event(tmp_path / "a.db", 5)
    edit(tmp_path / "a.db", "DELETE FROM snapshots WHERE stream = 1")  # so that the stream is replayed, and set aside
    damage_event(tmp_path / "a.db", 3, stream=2)  # before the snapshot: it is served
    damage_event(tmp_path / "a.db", 1, stream=3)
    server = served(tmp_path / "a.db")
    try:
        with server.client() as client:
            assert set(client.get("/v1/streams").json()["broken"]) == {"shop"}
            for name, last in (("shop", 5), ("fields", 3)):
                lines: list[dict[str, Any]] = []
                with pytest.raises(httpx.RemoteProtocolError):
                    read_lines(client, f"/v1/streams/{name}/events", lines)
                assert [line["number"] for line in lines] == list(range(1, last + 1))
                assert lines[-1] == {"number": last, "kind": "unreadable", "error": "does not match its checksum"}
                parquet = client.get(f"/v1/streams/{name}/events?format=parquet")
                assert (parquet.status_code, parquet.json()["error"]["code"]) == (500, "unreadable")
                assert f"event {last}: does not match its checksum" in parquet.text
            first = client.get("/v1/streams/other/events")
            assert (first.status_code, first.json()["error"]["code"]) == (500, "unreadable")
            rest = client.get("/v1/streams/fields/events?after=3")
            assert json.loads(rest.text.splitlines()[0])["number"] == 4
            assert client.get("/v1/streams/fields/events?after=500").content == b""
            before = client.get("/v1/streams/fields/events?limit=2")
            assert len(before.text.splitlines()) == 2
        with windvane.Client(server.address) as client:
            events = client.events("fields")
            assert [next(events)["number"], next(events)["number"]] == [1, 2]
            with rejects(error=windvane.ClientError, code="unreadable") as caught:
                next(events)
            assert "event 3" in caught.value.message
            with pytest.raises(windvane.ClientError) as caught:
                list(client.events("other"))
            assert (caught.value.code, caught.value.status) == ("unreadable", 500)
    finally:
        server.stop()


def test_a_changed_answer_is_not_given_again(tmp_path: Path) -> None:
    """The decision id in a stored answer was changed: the key does not return another id."""
    facts = build(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    store.remove_all_tokens()
    store.close()
    (name, key), answer = next(iter(facts.answers.items()))
    decision = json.loads(answer)["decision"]
    other = "0" * len(decision)
    edit(
        tmp_path / "a.db",
        "UPDATE events SET outcome = CAST(replace(outcome, ?, ?) AS BLOB) WHERE key = ?", decision, other, key,
    )  # fmt: skip
    with local(tmp_path / "a.db") as service:
        again = service.post(f"/v1/streams/{name}/decide", ARMS, headers={"idempotency-key": key})
        assert (again.status_code, again.json()["error"]["code"]) == (500, "unreadable")
        items = [{**ARMS, "key": key}, ARMS]
        batch = service.post(f"/v1/streams/{name}/decide/batch", {"items": items}).json()["results"]
        assert [one["status"] for one in batch] == [500, 200]
        past = service.get(f"/v1/streams/{name}/decisions/{decision}")
        assert (past.status_code, past.json()["error"]["code"]) == (500, "unreadable")
        late = service.reward(decision, 1.0, name)
        assert (late.status_code, late.json()["error"]["code"]) == (500, "unreadable")
        assert other not in again.text + past.text + late.text
        edit(
            tmp_path / "a.db",
            "UPDATE events SET outcome = CAST(replace(outcome, ?, ?) AS BLOB) WHERE key = ?", other, decision, key,
        )  # fmt: skip


def test_an_index_that_points_to_another_row_is_not_believed(tmp_path: Path) -> None:
    """The rows are read from the table: what the index says about them is compared."""
    build(tmp_path / "a.db")
    store = Store(tmp_path / "a.db")
    event = next(event for event in store.read_events(1) if event.key is not None)
    edit(tmp_path / "a.db", "PRAGMA user_version = 1")
    connection = store.connection
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'key, id', 'decision, id') WHERE name LIKE '%key'")
    store.close()
    assert event.key is not None
    assert not verify(tmp_path / "a.db")["sound"]
    with_index = query(tmp_path / "a.db", "SELECT sql FROM sqlite_master WHERE name LIKE '%key'")
    assert "decision, id" in with_index[0][0]
    again = Store(tmp_path / "a.db")  # which compares the definitions, and repairs the store
    assert again.event_with_key(1, event.key) == event
    again.close()
    assert os.path.exists(tmp_path / "a.db.damaged-1")


def test_verify_needs_no_writable_file(tmp_path: Path) -> None:
    build(tmp_path / "a.db")
    copy_store(tmp_path / "a.db", tmp_path / "b.db")
    before = (tmp_path / "b.db").read_bytes()
    assert command("verify", "--store", tmp_path / "b.db").returncode == 0
    assert (tmp_path / "b.db").read_bytes() == before
