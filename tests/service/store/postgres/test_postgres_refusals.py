"""What a server refuses for good is told from what waiting mends, whatever language the server speaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import psycopg
import pytest

from support.nodes import find_port
from support.postgres import Cluster
from support.refusals import rejects
from windvane.service.store import DatabaseError, StoreError, Token, open_store
from windvane.service.store.postgres import schema
from windvane.service.store.postgres.connections import Address
from windvane.service.store.postgres.refusals import NO_TLS, explain_refusal
from windvane.service.store.postgres.store import PostgresStore

UNKNOWN = "no-such-host.invalid"
ACCESS = "host all secured 127.0.0.1/32 scram-sha-256\nlocal all barred reject\nlocal all plain password\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """A server that wants passwords of some roles, and has few connections."""
    settings = {"listen_addresses": "127.0.0.1", "port": find_port(), "max_connections": 6}
    running = Cluster({**settings, "superuser_reserved_connections": 1}, access=ACCESS)
    try:
        running.execute("CREATE ROLE secured LOGIN PASSWORD 'right'")
        running.execute("CREATE ROLE plain LOGIN PASSWORD 'right'")
        running.execute("CREATE ROLE barred LOGIN")
        running.execute("CREATE DATABASE closed")
        running.execute("REVOKE CONNECT ON DATABASE closed FROM PUBLIC")
        yield running
    finally:
        running.remove()


def test_the_code_of_a_refusal(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    refusals = {
        server.url("postgres", "secured", "wrong", host="127.0.0.1"): "28P01",
        server.url("postgres", "secured", host="127.0.0.1"): "28P01",  # none was given
        server.url("postgres", "plain", "wrong"): "28P01",
        server.url("postgres", "nobody at all"): "28000",
        server.url("postgres", "barred"): "28000",
        server.url("nowhere"): "3D000",
        server.url("closed", "plain", "right"): "42501",
        "postgresql:///?service=nowhere": "F0000",
        server.url("postgres", "secured", "right", host="127.0.0.1", sslmode="require"): NO_TLS,  # the server has none
        server.url("postgres", "secured", "wrong", host=f"{UNKNOWN},127.0.0.1"): "28P01",  # by the host that is known
    }
    for url, code in refusals.items():
        assert Address(url).find_refusal() == code
        with rejects(error=StoreError, code="refused") as caught:
            PostgresStore(url, lazy=True)
        assert ("cannot be used" if code in ("F0000", NO_TLS) else "refuses the connection") in caught.value.problem
        assert str(explain_refusal(code)) in caught.value.problem
        assert "wrong" not in str(caught.value)


def test_what_waiting_mends_is_waited_for(server: Cluster) -> None:
    """A server that is not there, or has no room: a store can be opened lazily, and is reached later."""
    url = server.url("postgres", "secured", "right", host="127.0.0.1")
    assert Address(url).find_refusal() is None
    with ExitStack() as stack:
        with suppress(psycopg.OperationalError):
            while True:
                stack.enter_context(closing(psycopg.connect(server.url("postgres", "plain", "right"))))
        assert explain_refusal(Address(url).find_refusal()) is None
        with closing(PostgresStore(url, lazy=True)), rejects(error=StoreError, code="unreachable"):
            PostgresStore(url)
    server.stop()
    for options in ({}, {"sslmode": "require"}, {"host": UNKNOWN}, {"host": f"{UNKNOWN},127.0.0.1"}):
        place = server.url("postgres", "secured", "right", **{"host": "127.0.0.1", **options})
        assert Address(place).find_refusal() is None
    with closing(PostgresStore(url, lazy=True)) as store, rejects(error=StoreError, code="unreachable"):
        store.open()
    server.start()


def test_files_are_not_leaked(server: Cluster) -> None:
    address = Address(server.url("nowhere"))
    address.find_refusal()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert address.find_refusal() == "3D000"
    assert len(os.listdir("/proc/self/fd")) == before


# --- databases that cannot be written to -----------------------------------------------------------------------------


def test_a_role_that_may_only_read(cluster: Cluster, pg: PostgresStore, database: str) -> None:
    """It is refused when a server opens the store, and told what to do when a command writes."""
    with cluster.reader(database) as role:
        url = cluster.url(database, user=role)
        with rejects(error=StoreError, code="refused") as caught:
            PostgresStore(url, lazy=True)
        assert "the role reader lacks rights, such as DELETE on baselines" in caught.value.problem
        assert "windvane store create URL --grant ROLE" in caught.value.problem
        check_that_writing_names_a_remedy(url, "42501", "windvane store create")


def test_a_role_whose_transactions_only_read(cluster: Cluster, pg: PostgresStore, database: str) -> None:
    with cluster.temporary_role("careful", database) as role:
        schema.create_schema(cluster.url(database), role)
        cluster.execute(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        url = cluster.url(database, user=role)
        for address in (url, cluster.url(database, options="-c default_transaction_read_only=on")):
            with rejects(error=StoreError, code="refused") as caught:
                PostgresStore(address, lazy=True)
            assert "default_transaction_read_only is on" in caught.value.problem
        check_that_writing_names_a_remedy(url, "25006", "read-only for this role")


def check_that_writing_names_a_remedy(url: str, code: str, remedy: str) -> None:
    """A command beside a server may open the store, and finds out when it writes."""
    with closing(open_store(url, shared=True, create=False)) as store:
        assert store.read_streams() == []
        with pytest.raises(DatabaseError) as caught:
            store.tokens.add(Token("shop", "h", True, 1.0))
    assert caught.value.sqlstate == code
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
