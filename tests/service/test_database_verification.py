"""``windvane verify`` on PostgreSQL: it finds whatever was changed by hand, and runs beside a cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from support.postgres import Cluster
from support.server import ARMS, run_command
from support.stores import Facts, add_stream, codes, compact, decide, edit, open_directly, verify
from windvane import Client
from windvane.service.copying import copy_streams
from windvane.service.store import DatabaseError
from windvane.service.store.postgres.store import PostgresStore
from windvane.service.verification import verify_store
from windvane.testing import Service

FLIP = "set_byte({0}, 0, get_byte({0}, 0) # 1)"  # one bit of the first byte
EVENT = "stream = 1 AND number = 3"
SHOP, OLD = {"shop": ("replay",)}, {"old": ("baseline",)}
DAMAGE = {
    **{f"UPDATE events SET {change} WHERE {EVENT}": SHOP for change in (
        "time = time + 0.001", "kind = kind + 1", "decision = 'other'", "key = 'other'", "number = 1000",
        "request = NULL", "request = NULL, salt = NULL, request_digest = NULL",
    )},
    **{f"UPDATE events SET {column} = {FLIP.format(column)} WHERE {EVENT} AND {column} IS NOT NULL": SHOP
       for column in ("outcome", "request", "salt", "request_digest", "chain")},
    f"DELETE FROM events WHERE {EVENT}": SHOP,
    "DELETE FROM events WHERE stream = 1 AND number = 18": SHOP,  # of which there is a snapshot
    "DELETE FROM events WHERE stream = 1": SHOP,
    **{f"UPDATE snapshots SET {change} WHERE stream = 1": {"shop": ("snapshot",)} for change in (
        "number = number - 1",
        *(f"{column} = {FLIP.format(column)}" for column in ("chain", "agent", "extra", "digest")),
    )},
    **{f"UPDATE baselines SET {change}": OLD for change in (
        "number = number - 1", "removed = removed - 1", "first_time = 0", "last_time = NULL",
        *(f"{column} = {FLIP.format(column)}" for column in ("chain", "agent", "extra", "removed_chain", "digest")),
    )},
    "DELETE FROM baselines": {"old": ("replay",)},
    **{f"UPDATE streams SET {change} WHERE id = 1": SHOP for change in (
        "created = created + 1", "config = config || ' '", f"digest = {FLIP.format('digest')}", "id = 77",
    )},
    "UPDATE streams SET shard = mod(shard + 1, 64) WHERE id = 1": {"file": ("structure",)},
    **{f"UPDATE tokens SET {change} WHERE name = 'reader'": {"file": ("token",)} for change in (
        "full_rights = 1", "hash = 'other'", "created = 0", "name = 'other'",
    )},
    **{f"UPDATE meta SET value = 'no' WHERE name = '{name}'": {"file": ("structure",)}
       for name in ("guarded", "id", "secret")},
    **{f"UPDATE meta SET value = '{value}' WHERE name = '{name}'": {"file": ("damaged",)}
       for name, value in (("shards", "32"), ("format", "3"))},
    "DELETE FROM meta WHERE name = 'id'": {"file": ("structure",)},
    "DROP INDEX events_by_decision": {"file": ("structure",)},
    "ALTER TABLE events ADD COLUMN other text": {"file": ("structure",)},
}  # fmt: skip


@pytest.fixture(scope="module")
def filled(original: tuple[Path, Facts], cluster: Cluster) -> str:
    """The name of a database with the streams of a file, and one that has lost its first events."""
    name = cluster.create_database()
    copy_streams(original[0], cluster.url(name))
    with closing(open_directly(cluster.url(name))) as store:
        stream = add_stream(store, "old")
        decide(stream, store, 5)
        compact(store, stream, 4, (5,))
        decide(stream, store, 2)
    return name


@pytest.fixture
def damaged(filled: str, cluster: Cluster) -> Iterator[str]:
    """The address of a copy of that database, to be damaged."""
    name = cluster.create_database(filled)
    yield cluster.url(name)
    cluster.drop_database(name)


def test_a_sound_database_has_no_marks_and_no_notes_about_them(damaged: str) -> None:
    report = verify(damaged)
    assert report.is_sound, report
    assert {note.code for stream in report.streams for note in stream.notes} == {"removed", "erased"}


@pytest.mark.parametrize("change", DAMAGE)
def test_what_was_changed_is_found(change: str, damaged: str) -> None:
    edit(damaged, change)
    assert codes(verify(damaged)) == DAMAGE[change]
    done = run_command("verify", "--store", damaged, "--json")
    if DAMAGE[change] == {"file": ("damaged",)}:  # the command refuses it
        assert (done.returncode, "does not match its checksum" in done.stderr) == (2, True)
    else:
        assert (done.returncode, json.loads(done.stdout)["sound"]) == (1, False)


def test_a_repeated_key_is_impossible_unless_the_index_is_gone(damaged: str) -> None:
    repeat = "UPDATE events SET key = 'key shop 0' WHERE stream = 1 AND key = 'key shop 1'"
    with pytest.raises(Exception, match="duplicate key"):
        edit(damaged, repeat)
    edit(damaged, "DROP INDEX events_by_key")
    edit(damaged, repeat)
    assert codes(verify(damaged)) == {"file": ("structure",), "shop": ("repeated_keys", "replay")}


def test_a_stream_without_a_snapshot_is_sound(damaged: str) -> None:
    edit(damaged, "DELETE FROM snapshots")
    assert verify(damaged).is_sound


def test_an_unreachable_database_does_not_pass_for_an_empty_one(damaged: str, cluster: Cluster) -> None:
    """It may become unreachable at any moment of the verification."""
    for part, method in (("", "find_damage"), ("", "read_streams"), ("tokens", "read_damaged"), ("", "last_number")):
        with closing(PostgresStore(damaged, shared=True, read_only=True)) as store:

            def fail(*_: object, **__: object) -> None:
                raise DatabaseError("the connection was lost")

            setattr(getattr(store, part) if part else store, method, fail)
            with suppress(DatabaseError):
                assert not verify_store(store).is_sound, method


def test_beside_a_cluster_under_load(database_url: str, tmp_path: Path) -> None:
    nodes = [Service(database_url, "--node", name) for name in "ab"]
    stop = threading.Event()
    try:
        with Client(nodes[0].address) as client, Client(nodes[1].address) as other:
            assert client.ready(wait=60)
            assert other.ready(wait=60)
            for i in range(3):
                client.create(f"s{i}", dim=2)

        def play() -> None:
            with Client(nodes[1].address) as client:
                while not stop.is_set():
                    for i in range(3):
                        client.reward(f"s{i}", client.decide(f"s{i}", ARMS["arms"]), 1.0)

        thread = threading.Thread(target=play)
        thread.start()
        try:
            counts: list[int] = []
            while len(counts) < 5 or counts[-1] < counts[0] + 100:
                report = verify(database_url)
                assert report.is_sound, report
                counts.append(sum(stream.events for stream in report.streams))
                assert run_command("streams", "list", "--store", database_url).returncode == 0
                assert thread.is_alive()
        finally:
            stop.set()
            thread.join()
        assert counts == sorted(counts)
    finally:
        for node in nodes:
            node.stop()
