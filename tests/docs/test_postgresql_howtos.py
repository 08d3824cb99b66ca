"""The commands for PostgreSQL in the how-to pages, run as they are against a private PostgreSQL server."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import windvane.testing
from support.postgres import Cluster
from support.server import SOURCE, until
from support.service_pages import HOWTO, read_commands, run_bash
from windvane import Client
from windvane.testing import Service

PAGE, BACKUP, RETENTION = HOWTO / "postgresql.md", HOWTO / "backup-restore.md", HOWTO / "retention.md"
NEEDS_ROOT = {"Install nodes under systemd", "Containers"}  # or a machine to install on
STORE = "postgresql://windvane@localhost/windvane"
MARKER = "an-address-to-be-erased"
ACCESS = """
local all all trust
host replication replicator 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""
SUDO = """#!/bin/sh
shift 2
[ "$1" = windvane ] || export PGHOST={folder} PGUSER=owner PGDATABASE=postgres
exec "$@"
"""


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Desk:
    """The shell of an administrator: the host of the database is ``localhost``, ``sudo`` and ``systemctl`` pretend."""

    def __init__(self, folder: Path) -> None:
        self.port, self.home, self.server_home = find_port(), folder / "home", folder / "server-home"
        self.cluster = Cluster({"port": self.port, "listen_addresses": "127.0.0.1", "wal_level": "replica"}, ACCESS)
        programs = folder / "programs"
        for directory in (self.home, self.server_home, programs):
            directory.mkdir()
        if self.cluster.user is not None:
            shutil.chown(self.server_home, self.cluster.user)
        for name, text in {"sudo": SUDO.format(folder=self.cluster.folder), "systemctl": "#!/bin/sh\n"}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        path = [str(programs), str(Path(sys.executable).parent), str(self.cluster.programs), os.environ["PATH"]]
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PG", "WINDVANE_"))},
            "PATH": os.pathsep.join(path), "PYTHONPATH": os.pathsep.join(SOURCE), "HOME": str(self.home),
            "PGPORT": str(self.port), "NO_PROXY": "localhost",
            "WINDVANE_CACHE_DIR": os.environ.get("WINDVANE_CACHE_DIR", str(Path.home() / ".cache" / "windvane")),
        }  # fmt: skip
        self.log_in(windvane="choose-another", windvane_owner="choose-one", replicator="choose-a-third")

    def log_in(self, **passwords: str) -> None:
        """Store passwords where libpq looks for them, for the administrator and for the user of the server."""
        lines = [f"localhost:*:*:{role}:{word}\n" for role, word in passwords.items()]
        for home in (self.home, self.server_home):
            (home / ".pgpass").write_text("".join(lines))
            (home / ".pgpass").chmod(0o600)
        if self.cluster.user is not None:
            shutil.chown(self.server_home / ".pgpass", self.cluster.user)

    def run(self, script: str, *replacements: tuple[str, str], code: int = 0, **identity: Any) -> str:
        """Run commands, with other names where the documentation has examples; return what they print."""
        for old, new in (("db.internal:5432", f"localhost:{self.port}"), ("db.internal", "localhost"), *replacements):
            script = script.replace(old, new)
        environment = {**self.environment, **identity.pop("environment", {})}
        return run_bash(script, Path(environment["HOME"]), environment, code, **identity)

    def run_as_server(self, script: str, *replacements: tuple[str, str]) -> None:
        """Run commands as the user of the database server, who connects by its socket; those of windvane afterwards."""
        own = [line for line in script.splitlines() if line.startswith("windvane ")]
        rest = "\n".join(line for line in script.splitlines() if line not in own)
        user = self.cluster.user
        identity: dict[str, Any] = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid}
        # A standby goes on reading the passwords of its user, so these stay where they are.
        environment = {
            "PGHOST": str(self.cluster.folder), "PGUSER": "owner", "PGDATABASE": "postgres",
            "HOME": str(self.server_home),
        }  # fmt: skip
        # What it starts inherits its output: with a pipe this would wait until that ends.
        self.run(f"( {rest}\n) > log 2>&1 || (cat log; exit 1)", *replacements, environment=environment, **identity)
        for line in own:
            self.run(line, *replacements)

    @contextmanager
    def serve(self, *options: str, store: str = STORE) -> Iterator[Client]:
        """Run a node under the role of the service."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            node = Service(store, *options)
        try:
            with Client(node.address) as client:
                assert client.ready(wait=60.0)
                yield client
        finally:
            assert node.stop() == 0, node.errors


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """With the roles and the database of the documentation."""
    # Not in pytest's folder, which the user of the server may not enter.
    folder = Path(f"/tmp/wv-desk-{os.getpid()}")
    folder.mkdir()
    desk = Desk(folder)
    try:
        for block in read_commands(PAGE, "Create the database and its roles"):
            desk.run(block)
        yield desk
    finally:
        desk.cluster.remove()
        shutil.rmtree(folder, ignore_errors=True)


def test_every_block_of_commands_is_run() -> None:
    titles = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.M)
    tests = {
        "Try it in five minutes", "Create the database and its roles", "Passwords and TLS", "Add a token",
        "A standby and `--ha`", "Move a store from a file", "Plan the size",
    }  # fmt: skip
    assert {title for title in titles if read_commands(PAGE, title)} == tests | NEEDS_ROOT


def test_five_minutes(desk: Desk) -> None:
    setup, serving, asking = read_commands(PAGE, "Try it in five minutes")
    local = {"PGHOST": str(desk.cluster.folder), "PGUSER": "owner"}
    names = [("pip install '.[postgres]'\n", ""), ("windvane", "five_minutes")]
    desk.run(setup, *names, environment=local)
    ports = {"8000": str(find_port()), "8001": str(find_port())}
    lines = serving.splitlines()
    assert len(lines) == 2
    nodes = []
    try:
        for line in lines:
            store, port = re.findall(r"--store (\S+) --port (\d+)", line)[0]
            words = ["windvane", "serve", "--store", store.replace("windvane", "five_minutes"), "--port", ports[port]]
            nodes.append(subprocess.Popen(words, env={**desk.environment, **local}, stderr=subprocess.DEVNULL))
        text = desk.run(asking, *((f"localhost:{port}", f"localhost:{other}") for port, other in ports.items()))
    finally:
        for node in nodes:
            node.terminate()
        assert [node.wait(30) for node in nodes] == [0, 0]
    assert '"arm":' in text
    assert len(re.findall(r'"url":"http', text)) == 2


def test_the_role_of_the_service_drops_nothing(desk: Desk) -> None:
    with desk.serve() as client:
        client.create("roles", dim=1)
        assert client.decide("roles", {"a": [0.5]}).arm == "a"
        client.delete_stream("roles")
    for statement in ("DROP TABLE events", "TRUNCATE events", "ALTER TABLE events ADD x int", "CREATE TABLE x ()"):
        text = desk.run(f"psql '{STORE}' --command '{statement}'", code=1)
        assert re.search("must be owner|permission denied", text), text


def test_passwords(desk: Desk) -> None:
    (block,) = read_commands(PAGE, "Passwords and TLS")
    try:
        text = desk.run(block, ("END\nwindvane", f"END\necho port={desk.port} >> ~/.pg_service.conf\nwindvane"))
    finally:
        desk.log_in(windvane="choose-another", windvane_owner="choose-one", replicator="choose-a-third")
        (desk.home / ".pg_service.conf").unlink()
    assert f"postgresql://windvane@localhost:{desk.port}/windvane" in text
    assert "postgresql:///?service=windvane" in text
    assert "choose-another" not in text


def test_tokens(desk: Desk) -> None:
    (block,) = read_commands(PAGE, "Add a token")
    assert desk.run(block).startswith("wv_")
    desk.run(f"windvane token remove shop --store {STORE} && windvane token open --store {STORE}")


def test_a_store_is_moved(desk: Desk, tmp_path: Path) -> None:
    with windvane.testing.serve(tmp_path / "windvane.db") as client:
        client.create("moved", dim=1)
        decision = client.decide("moved", {"a": [0.5], "b": [-0.5]})
    (block,) = read_commands(PAGE, "Move a store from a file")
    text = desk.run(block, ("/var/lib/windvane/windvane.db", str(tmp_path / "windvane.db")))
    assert "1 stream" in text
    with desk.serve() as client:
        assert client.reward("moved", decision, 1.0) == "recorded"
        client.delete_stream("moved")


def test_sizing(desk: Desk) -> None:
    disk, processor = read_commands(PAGE, "Plan the size")
    with desk.serve() as client:
        client.create("sized", dim=1)
        client.decide_many("sized", [{"a": [0.5], "b": [-0.5]}] * 100)
        assert re.search(r"^ +100 \| +\d+ \|", desk.run(disk), re.M)
        text = desk.run(processor, ("localhost:8000", client.url.removeprefix("http://")))
        client.delete_stream("sized")
    assert re.findall(r"^\w+", text, re.M) == ["windvane_events_total", "process_cpu_seconds_total"]


def test_a_dump_is_restored(desk: Desk) -> None:
    with desk.serve() as client:
        client.create("dumped", dim=1)
        client.decide("dumped", {"a": [0.5]})
    dump, restore = read_commands(BACKUP, "Back up PostgreSQL")
    desk.run(dump)
    text = desk.run(restore)
    assert re.search(r"dumped +1 +sound", text), text
    with desk.serve(store=STORE.removesuffix("windvane") + "restored") as client:
        assert client.info("dumped").counts.decisions == 1
    with desk.serve() as client:
        client.delete_stream("dumped")


def holds_marker(folder: Path) -> bool:
    return any(MARKER.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_erased_bytes_leave_the_tables(desk: Desk) -> None:
    ((database,),) = desk.cluster.execute("SELECT oid FROM pg_database WHERE datname = 'windvane'")
    tables = desk.cluster.data / "base" / str(database)
    with desk.serve() as client:
        client.create("erased", features={"shared": {"street": [MARKER, "another"]}, "arms": ["a", "b"]})
        client.decide("erased", context={"street": MARKER})
        desk.cluster.execute("CHECKPOINT")
        assert holds_marker(tables)
        client.delete_stream("erased")
    (block,) = read_commands(RETENTION, "Where the bytes are")
    desk.run(block, ("VACUUM FULL events, snapshots, baselines", "VACUUM FULL events, snapshots, baselines, streams"))
    assert not holds_marker(tables)


def test_point_in_time_recovery(desk: Desk) -> None:
    archive, base, recovery = read_commands(BACKUP, "Recover PostgreSQL to a point in time")
    folder = desk.home.parent / "archive"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    places = [("ARCHIVE=/var/backups/postgres", f"ARCHIVE={folder}/postgres"), ("$(date +%F)", "2026-11-18")]
    desk.run_as_server(archive, *places)
    desk.cluster.stop()
    desk.cluster.start()
    with desk.serve() as client:
        client.create("recovered", dim=1)
        client.decide("recovered", {"a": [0.5]})
        desk.run_as_server(base, *places)
        client.decide("recovered", {"a": [0.5]})
        ((time,),) = desk.cluster.execute("SELECT clock_timestamp()::text")
        client.decide("recovered", {"a": [0.5]})
        client.delete_stream("recovered")
    port = str(find_port())
    data = folder / "data"
    try:
        desk.run_as_server(
            recovery, *places, ("DATA=/var/lib/postgresql/17/recovered", f"DATA={data}"), ("5433", port),
            ("2026-11-18 09:00:00+00", time), ("/var/lib/postgresql/17/main", str(desk.cluster.data)),
        )  # fmt: skip
        text = desk.run(f"windvane verify --store postgresql://windvane_owner@localhost:{port}/windvane")
        assert re.search(r"recovered +2 +sound", text), text
        with desk.serve(store=f"postgresql://windvane@localhost:{port}/windvane") as client:
            assert client.decide("recovered", {"a": [0.5]}).arm == "a"
    finally:
        desk.cluster.run("pg_ctl", "stop", "--mode=immediate", "--pgdata", str(data))
        desk.cluster.start()
        desk.cluster.execute("ALTER SYSTEM RESET archive_mode")
        desk.cluster.execute("ALTER SYSTEM RESET archive_command")


def test_a_standby(desk: Desk) -> None:
    role, copy, sync = read_commands(PAGE, "A standby and `--ha`")
    desk.run(f"windvane serve --port 0 --ha --store {STORE}", code=2)
    desk.run(role)
    data = desk.home.parent / "standby"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    port = f"echo port = {find_port()} >> $DATA/postgresql.auto.conf\npg_ctl"
    try:
        desk.run_as_server(copy, ("/var/lib/postgresql/17/standby", f"{data}/data"), ("pg_ctl", port))
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        until(lambda: desk.cluster.execute(query) == [(1,)], 60.0)  # a standby tries again every 5 s
        desk.run(sync.splitlines()[0])
        until(lambda: "quorum" in desk.run(sync.splitlines()[1]))
        with desk.serve("--ha") as client:
            client.create("safe", dim=1)
            client.delete_stream("safe")
    finally:
        desk.cluster.execute("ALTER SYSTEM RESET synchronous_standby_names")
        desk.cluster.reload()
        desk.cluster.run("pg_ctl", "stop", "--mode=immediate", "--pgdata", f"{data}/data")
        desk.cluster.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
