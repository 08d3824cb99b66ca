"""A private PostgreSQL server in a temporary folder, on a unix socket, to be stopped, killed and restarted by tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest

from support.server import until

OWNER = "owner"  # the superuser of the server
DEFAULT_PORT = 5432  # whatever PGPORT says
LONGEST_ROOT = 60  # bytes; the names below it have 35
ENCODING = ["--encoding=UTF8", "--locale=C"]
SETTINGS: dict[str, str | int] = {
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": 100,
    "fsync": "on",  # durability is tested
    "synchronous_commit": "on",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "timezone": "UTC",
    "jit": "off",
    "max_wal_size": "256MB",
}
_numbers = itertools.count(1)


def find_folder() -> Path:
    """Return the folder with PostgreSQL's programs. Skip or fail the test if there is none."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_read_version, reverse=True)
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return folder
    if os.environ.get("WINDVANE_REQUIRE_POSTGRES"):
        pytest.fail("PostgreSQL is missing, and WINDVANE_REQUIRE_POSTGRES is set")
    pytest.skip("PostgreSQL is missing")


def _read_version(folder: Path) -> float:
    match = re.fullmatch(r"\d+(\.\d+)?", folder.parent.name)
    return float(match.group()) if match else 0.0


def find_user() -> str | None:
    """Return the user under whom the server runs: PostgreSQL refuses to run as root. None: the user of this process."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


class Cluster:
    """A PostgreSQL server with its own data folder.

    Parameters
    ----------
    settings
        Settings of postgresql.conf that differ from :data:`SETTINGS`.
    access
        Lines that come first in pg_hba.conf. Without any, everybody may connect as anybody.
    source
        Another running server: this one becomes its streaming standby.
    """

    def __init__(
        self, settings: Mapping[str, str | int] | None = None, access: str = "", source: Cluster | None = None
    ) -> None:
        self.programs, self.user = find_folder(), find_user()
        # A short path: that of a unix socket has at most 107 bytes, and the folders of pytest are closed to the user.
        root = tempfile.gettempdir()
        self.folder = Path(tempfile.mkdtemp(prefix="wv-pg-", dir=root if len(root) <= LONGEST_ROOT else "/tmp"))
        self.data, self.log = self.folder / "data", self.folder / "log"
        self.port = int((settings or {}).get("port", DEFAULT_PORT))  # also names the socket
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        # It waits until this process ends, however it ends, and then removes the server: one that was killed cannot.
        stop = f"read _; '{self.programs}/pg_ctl' stop --mode=immediate --pgdata='{self.data}'; rm -rf '{self.folder}'"
        self._guard = subprocess.Popen(
            ["sh", "-c", stop],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
            **self._identity(),
        )
        try:
            if source is None:
                words = [*ENCODING, "--auth=trust", "--no-sync", "--username", OWNER, "--pgdata", str(self.data)]
                self.run("initdb", *words)
            else:
                words = ["--write-recovery-conf", "--checkpoint=fast", "--dbname", source.url("postgres")]
                self.run("pg_basebackup", *words, "--pgdata", str(self.data))
            self.configure(
                {**SETTINGS, "port": self.port, "unix_socket_directories": str(self.folder), **(settings or {})}
            )
            if access:
                rules = self.data / "pg_hba.conf"
                rules.write_text(access + "\n" + rules.read_text())
            self.start()
        except BaseException:
            self.remove()
            raise

    def run(self, program: str, *words: str, most_bytes: int | None = None) -> None:
        """Run one of PostgreSQL's programs as the user of the server; it must not fail. ``most_bytes``: of a file."""
        line = [str(self.programs / program), *words]
        if most_bytes is not None:
            line = ["prlimit", f"--fsize={most_bytes}:", *line]
        with self.log.open("a") as log:
            # The server inherits stdout and stderr: with a pipe, this would wait until the server ends.
            done = subprocess.run(line, cwd=self.folder, stdout=log, stderr=log, check=False, **self._identity())
        assert done.returncode == 0, f"{' '.join(line)} failed\n{self.log.read_text(errors='replace')[-4000:]}"

    def _identity(self) -> dict[str, Any]:
        return {} if self.user is None else {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid}

    def configure(self, settings: Mapping[str, str | int]) -> None:
        """Add settings to postgresql.conf. They take effect at the next start, or some of them after :meth:`reload`."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    # --- start and stop ----------------------------------------------------------------------------------------------

    @property
    def process(self) -> int | None:
        """The id of the server's main process; None if it does not run."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            process = int((self.data / "postmaster.pid").read_text().splitlines()[0])
            return process if _is_alive(process) else None
        return None

    def start(self, most_bytes: int | None = None) -> None:
        """Start the server, unless it runs, and wait until it accepts connections.

        ``most_bytes``: the size to which a file can grow, at least 17 MB; then writing fails as on a full disk.
        """
        if self.process is None:
            words = ["start", "--wait", "--timeout=60", "--silent", "--pgdata", str(self.data)]
            self.run("pg_ctl", *words, most_bytes=most_bytes)

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. Mode "immediate": as after a crash, without writing anything."""
        if self.process is not None:
            self.run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}", "--pgdata", str(self.data))

    def reload(self) -> None:
        self.run("pg_ctl", "reload", "--silent", "--pgdata", str(self.data))

    def promote(self) -> None:
        """Make a standby the primary."""
        self.run("pg_ctl", "promote", "--wait", "--silent", "--pgdata", str(self.data))

    def kill(self) -> None:
        """Kill all processes of the server (SIGKILL), and wait until they are gone."""
        main = self.process
        if main is None:
            return
        children = _list_children(main)
        for process in (main, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        until(lambda: not any(_is_alive(process) for process in (main, *children)))
        # Where nobody reaps orphans, as in a container, PostgreSQL would take the zombie for a running server.
        for lock in (self.data / "postmaster.pid", self.folder / f".s.PGSQL.{self.port}.lock"):
            lock.unlink(missing_ok=True)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        with contextlib.suppress(AssertionError):
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.communicate()

    # --- connections -------------------------------------------------------------------------------------------------

    def url(self, database: str, user: str = OWNER, password: str | None = None, **options: str | int) -> str:
        """Return the connection string of a database, over the unix socket unless ``host`` is given."""
        host = str(options.pop("host", ""))
        parameters = options if host else {"host": str(self.folder), "port": self.port, **options}
        secret = "" if password is None else f":{quote(password, safe='')}"
        address = f"{host}:{parameters.pop('port', self.port)}" if host else ""
        query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
        return f"postgresql://{quote(user)}{secret}@{address}/{quote(database)}{query}"

    @contextlib.contextmanager
    def connect(self, database: str = "postgres") -> Iterator[psycopg.Connection[Any]]:
        """Connect as the superuser; every statement is a transaction of its own."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            yield connection

    def execute(self, sql: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser; return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def temporary_role(self, name: str, database: str) -> Iterator[str]:
        """Create a role that may log in. In the end it is dropped, with its privileges in ``database``."""
        self.execute(f'CREATE ROLE "{name}" LOGIN')
        try:
            yield name
        finally:
            self.execute(f'DROP OWNED BY "{name}"', database=database)
            self.execute(f'DROP ROLE "{name}"')

    @contextlib.contextmanager
    def reader(self, database: str) -> Iterator[str]:
        """Create a role that may only read the tables of ``database``."""
        with self.temporary_role("reader", database) as role:
            self.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", database=database)
            yield role

    def create_database(self, template: str = "template1") -> str:
        """Create a database; return its name."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.start()
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def terminate_backends(self, database: str, condition: str = "true") -> int:
        """End the sessions in a database for which an SQL condition over pg_stat_activity holds; return their number.

        The sessions are gone when this returns.
        """
        where = f"datname = '{database}' AND pid <> pg_backend_pid() AND ({condition})"
        # A minute: pg_terminate_backend waits until the session has ended.
        sql = f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {where}"
        return sum(ended for (ended,) in self.execute(sql))

    @contextlib.contextmanager
    def frozen(self, database: str, condition: str = "application_name = 'windvane'") -> Iterator[None]:
        """Stop the sessions in a database for which an SQL condition over pg_stat_activity holds (SIGSTOP).

        They are idle and hold no lock. The kernel still takes what is sent to them.
        """
        sql = "SELECT pid FROM pg_stat_activity WHERE "
        while True:
            rows = self.execute(f"{sql} datname = '{database}' AND ({condition})")
            assert rows, "no session to be frozen"
            pids = [pid for (pid,) in rows]
            with frozen(pids):
                if not self.execute(f"{sql} pid = ANY(%s) AND state <> 'idle'", pids):
                    yield
                    return

    @contextlib.contextmanager
    def all_frozen(self) -> Iterator[None]:
        """Stop the whole server: it accepts no session, but the kernel does."""
        main = self.process
        assert main is not None
        with frozen([main]), frozen(_list_children(main)):
            yield


@contextlib.contextmanager
def frozen(processes: Iterable[int]) -> Iterator[None]:
    """Stop processes; they are stopped when this returns."""
    stopped = list(processes)
    try:
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        # One may have ended before; where its parent is stopped, it stays a zombie.
        until(lambda: all(not _is_alive(process) or _read_state(process) == "T" for process in stopped))
        yield
    finally:
        for process in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def _list_children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _read_state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def _is_alive(process: int) -> bool:
    """Whether a process exists and, where that can be seen, is not merely waiting to be reaped."""
    try:
        if not Path("/proc/self").exists():
            os.kill(process, 0)
            return True
        return _read_state(process) not in ("Z", "X")
    except OSError:
        return False
