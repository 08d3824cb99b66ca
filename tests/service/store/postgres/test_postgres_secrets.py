"""Passwords are in no message, and the TLS parameters of an address are honoured."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from support.postgres import Cluster
from support.refusals import rejects
from windvane.service.store import DatabaseError, StoreError, Token, open_store
from windvane.service.store.postgres.connections import Address
from windvane.service.store.postgres.refusals import NO_TLS, explain_refusal
from windvane.service.store.postgres.store import PostgresStore

PASSWORD = "s3cr/et@?#%:pa ss+wörd"
ACCESS = """
local all owner trust
local all guest scram-sha-256
hostssl all guest 127.0.0.1/32 scram-sha-256
hostnossl all all 127.0.0.1/32 reject
"""


class Secured(NamedTuple):
    """A server that asks for a password, over TLS where it is not its unix socket, with a database of the role."""

    cluster: Cluster
    folder: Path  # with the certificates server.pem, of the name localhost, and other.pem


def find_openssl() -> str:
    path = shutil.which("openssl")
    if path is None and os.environ.get("WINDVANE_REQUIRE_POSTGRES"):
        pytest.fail("openssl is missing, and WINDVANE_REQUIRE_POSTGRES is set")
    return path or pytest.skip("openssl is missing")


def create_certificate(openssl: str, folder: Path, name: str) -> None:
    line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    about = ["-addext", "subjectAltName=DNS:localhost", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
    subprocess.run([openssl, *line.split(), *about], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    openssl, folder = find_openssl(), tmp_path_factory.mktemp("tls")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    cluster = Cluster({"listen_addresses": "127.0.0.1", "port": port}, ACCESS)
    try:
        for name in ("server", "other"):
            create_certificate(openssl, folder, name)
        for name in ("server.pem", "server.key"):
            shutil.copyfile(folder / name, cluster.folder / name)
            (cluster.folder / name).chmod(0o600)
            if cluster.user is not None:
                shutil.chown(cluster.folder / name, cluster.user)
        files = {
            f"ssl_{kind}_file": str(cluster.folder / f"server.{end}") for kind, end in (("cert", "pem"), ("key", "key"))
        }
        cluster.stop()
        cluster.configure({"ssl": "on", **files})
        cluster.start()
        cluster.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
        cluster.execute("CREATE DATABASE shop OWNER guest")
        yield Secured(cluster, folder)
    finally:
        cluster.remove()


def over_network(secured: Secured, host: str = "localhost", **options: str) -> str:
    return secured.cluster.url("shop", "guest", PASSWORD, host=host, port=secured.cluster.port, **options)


def assert_secret(*texts: object) -> None:
    """No text holds the password, as it is, encoded, or a long part of it."""
    for text in map(str, texts):
        for part in (PASSWORD, quote(PASSWORD), quote(PASSWORD, safe=""), PASSWORD[:5], PASSWORD[-5:], "s3cr", "w%C3"):
            assert part not in text, text


# --- passwords -------------------------------------------------------------------------------------------------------


def test_the_password_is_in_no_name_log_or_error(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = secured.cluster
    url = cluster.url("shop", "guest", PASSWORD)
    texts: list[object] = []
    with closing(open_store(url)) as store:
        assert store.name == f"postgresql://guest@/shop?host={cluster.folder}&port={cluster.port}"
        texts += [store.name, repr(store)]
        store.tokens.add(Token("a", "b", True, 1.0))
        cluster.stop("immediate")
        with pytest.raises(DatabaseError) as failed:
            store.read_streams()
        with rejects(error=StoreError, code="unreachable") as refused:
            open_store(url)
        texts += [failed.value, repr(failed.value), refused.value, repr(refused.value), refused.value.where]
        cluster.start()
        assert store.tokens.read()
    for wrong in (cluster.url("shop", "guest", PASSWORD + "x"), cluster.url("nowhere", "guest", PASSWORD)):
        with rejects(error=StoreError, code="refused") as refused:
            open_store(wrong)
        texts.append(refused.value)
    assert_secret(*texts, *(record.getMessage() for record in caplog.records), caplog.text)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://guest:{PASSWORD}@localhost/shop",
        "postgresql://guest:s3cr@et@localhost/shop",
        "postgresql://guest:s3cr/et@localhost/shop",
        "postgresql://guest:s3cr?et@localhost/shop",
        "postgresql://guest:s3cr%zzet@localhost/shop",
        "postgresql://localhost:s3cr/shop",
        "postgresql://localhost/shop?password=s3cr&nonsense=s3cr",
        "postgresql://[localhost/shop?password=s3cret",
        "postgresql://guest:s3cr%00et@localhost/shop",
    ],
)
def test_an_address_that_is_not_valid_is_not_shown(url: str) -> None:
    """Characters that should have been encoded would make a part of the password the name of the host."""
    with rejects(error=StoreError, code="refused") as caught:
        PostgresStore(url)
    assert_secret(caught.value, repr(caught.value))
    assert "%40" in caught.value.problem
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_an_option_that_is_unknown_is_named() -> None:
    """Unless it may be a part of a password."""
    for url in ("postgresql://localhost/shop?ssl_mode=s3cret", "postgresql://u@h/shop?sslmode=require&ssl_mode=s3cret"):
        with rejects(error=StoreError, code="refused") as caught:
            PostgresStore(url)
        assert caught.value.problem == "the address has an unknown option, ssl_mode"
    for query in ("password=a&s3cret=b", "s3cret", "x=1&user=a@s3cret=1"):
        with rejects(error=StoreError, code="refused") as caught:
            PostgresStore(f"postgresql://localhost/shop?{query}")
        assert_secret(caught.value)
        assert "%40" in caught.value.problem


def test_names_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("PGHOST", "PGUSER", "PGDATABASE", "PGPORT"):
        monkeypatch.delenv(variable, raising=False)
    names = {
        "postgresql://u:s3cret@db.example.com:6543/shop?sslmode=require": "postgresql://u@db.example.com:6543/shop",
        "postgres://u@db.example.com/shop?password=s3cret": "postgresql://u@db.example.com:5432/shop",
        "postgresql://u:s3cret@a:1,b:2/shop": "postgresql://u@a:1,b:2/shop",
        "postgresql://u@a,b/shop": "postgresql://u@a:5432,b:5432/shop",
        "postgresql://u@a,b/shop?port=7": "postgresql://u@a:7,b:7/shop",
        "postgresql://u:s3cret@[::1]:6543/": "postgresql://u@[::1]:6543/u",
        "postgresql://u:s3cret@/shop?host=/run/pg": "postgresql://u@/shop?host=/run/pg",
        "postgresql://u:s3cret@/shop?host=/run/pg&port=6543": "postgresql://u@/shop?host=/run/pg&port=6543",
        "postgresql://u@/shop?port=6543&password=s3cret&host=/a,/b": "postgresql://u@/shop?host=/a&port=6543",
        "postgresql://a%20b:s3cret@h/my%20shop": "postgresql://a%20b@h:5432/my%20shop",
    }
    assert {url: Address(url).name for url in names} == names
    monkeypatch.setenv("PGUSER", "me")
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    assert Address("postgresql://h/shop").name == "postgresql://me@h:5432/shop"


def test_a_password_in_a_message_is_replaced() -> None:
    """libpq puts none there; should it ever, the message is cleaned."""
    address = Address(f"postgresql://guest:{quote(PASSWORD, safe='')}@localhost/shop?sslpassword=other")
    for text in (f"failed for {PASSWORD}", f"failed for {quote(PASSWORD, safe='')}", "failed for other"):
        assert address.hide_secrets(text) == "failed for ***"


# --- TLS -------------------------------------------------------------------------------------------------------------


def test_parameters_of_tls_are_honoured(secured: Secured) -> None:
    certificate, other = secured.folder / "server.pem", secured.folder / "other.pem"
    url = over_network(secured, sslmode="verify-full", sslrootcert=str(certificate))
    with closing(open_store(url)) as store:
        assert store.name == f"postgresql://guest@localhost:{secured.cluster.port}/shop"
        store.read_streams()
        sessions = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'guest'"
        assert secured.cluster.execute(sessions) == [(True,)]
    url = over_network(secured, "127.0.0.1", sslmode="verify-ca", sslrootcert=str(certificate))
    open_store(url).close()
    for host, mode, root, code in (
        ("localhost", "verify-full", other, NO_TLS),  # of somebody else
        ("localhost", "verify-ca", other, NO_TLS),
        ("127.0.0.1", "verify-full", certificate, NO_TLS),  # of another name
        ("localhost", "verify-full", secured.folder / "missing.pem", NO_TLS),
        ("localhost", "disable", certificate, "28000"),  # by the server
    ):
        with rejects(error=StoreError, code="refused") as caught:
            open_store(over_network(secured, host, sslmode=mode, sslrootcert=str(root)))
        assert str(explain_refusal(code)) in caught.value.problem
        assert_secret(caught.value)


@pytest.mark.parametrize("options", ["", "?target_session_attrs=read-write"])
def test_one_of_several_hosts_is_enough(secured: Secured, options: str) -> None:
    port = secured.cluster.port
    hosts = f"127.0.0.1:1,127.0.0.1:{port}"
    url = f"postgresql://guest:{quote(PASSWORD, safe='')}@{hosts}/shop{options}"
    with closing(open_store(url)) as store:
        assert store.name == f"postgresql://guest@{hosts}/shop"
        store.check_writable()
