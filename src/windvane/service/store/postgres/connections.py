"""Connections to PostgreSQL: addresses without passwords, defaults, errors, and timeouts for silent servers."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from windvane.service.store.postgres.refusals import HINTS, diagnose
from windvane.service.store.records import DamageError, DatabaseError, StatementError, StoreError

# psycopg logs errors that occur while another exception, such as Ctrl-C, is being raised. Without a handler, they would
# be printed to the terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

DEFAULTS: dict[str, str | int] = {
    "application_name": "windvane",
    "client_encoding": "UTF8",
    "connect_timeout": 5,  # seconds, for each host of the address
    # A server that disappears without closing its connections is noticed after at most 10 s.
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""Parameters of libpq that apply unless the address sets them."""
SESSION: dict[str, str | int] = {
    "synchronous_commit": "on",  # a commit is on disk when it returns
    "default_transaction_isolation": r"read\ committed",  # a fence must see the latest epoch
    "idle_in_transaction_session_timeout": 2000,  # milliseconds: a stopped process must not keep its locks
    "statement_timeout": 30_000,
    "lock_timeout": 10_000,
    # Every frequent query looks up a few rows in an index. A plan made while a table was empty must not scan it later.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Starting workers or compiling a plan takes longer than such a query.
    "max_parallel_workers_per_gather": 0,
    "jit": "off",
}
"""Settings of a session that apply unless ``options`` of the address sets them."""
DEFAULT_PORT = "5432"
SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
ANSWER_SECONDS = 5.0
"""How long the server may be silent. For long work, this is added to ``statement_timeout``, after which the server
itself cancels a statement."""
MAX_STEP_SECONDS = 1.0  # psycopg polls more often than this; a longer pause means that this process itself was stopped
DAMAGED = ("XX001", "XX002")  # SQLSTATE data_corrupted, index_corrupted
# How the SQLSTATE begins if the database ends a session or a transaction, or refuses it for now, whatever it reads.
PASSING = ("08", "25P03", "40", "53", "57")
_READ_LIMIT = "SELECT extract(epoch FROM current_setting('statement_timeout')::interval)::double precision"
_ENCODE = "special characters must be percent-encoded (@ as %40, / as %2F, ? as %3F)"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed if its server is silent for too long.

    TCP does not notice a frozen server, because the kernel of its machine still acknowledges packets.

    Attributes
    ----------
    answer_timeout : float
        How many seconds the server may be silent.
    long_timeout : float
        The same inside :meth:`extend_timeout`.
    """

    answer_timeout = long_timeout = ANSWER_SECONDS

    @contextlib.contextmanager
    def extend_timeout(self) -> Iterator[None]:
        """Let statements in the block take as long as the server allows: they read many rows, or wait for nodes."""
        answer_timeout, self.answer_timeout = self.answer_timeout, self.long_timeout
        try:
            yield
        finally:
            self.answer_timeout = answer_timeout

    def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait for an answer. Raise psycopg.OperationalError if the server is silent for too long."""
        return super().wait(self._limit(gen), *arguments, **options)

    def _limit(self, steps: PQGen[RV]) -> PQGen[RV]:
        silence, looked = 0.0, time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                now = time.monotonic()
                silence = 0.0 if ready else silence + min(now - looked, MAX_STEP_SECONDS)
                looked = now
                if silence > self.answer_timeout:
                    self.close()
                    raise psycopg.OperationalError(f"the database has not answered for {self.answer_timeout:g} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result


class Address:
    """The address of a database: ``postgresql://user:password@host:port/database?option=value``.

    All parameters of libpq work, including those from its environment variables and files.

    Attributes
    ----------
    name : str
        The address without password and options, for messages.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        # Part of a password with these characters would be parsed as the host or the database, and appear in messages.
        before, at, after = rest.partition("@")
        if at and (set("/?") & set(before) or "@" in after):
            raise StoreError(f"{scheme}://...", "refused", f"the address is not valid: {_ENCODE}")
        try:
            given = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
        except (psycopg.Error, UnicodeError):  # the text of the error may contain the password
            raise StoreError(f"{scheme}://...", "refused", _describe_mistake(rest)) from None
        if not all(port.isdigit() for port in given.get("port", DEFAULT_PORT).split(",") if port):
            raise StoreError(f"{scheme}://...", "refused", f"the port must be a number; {_ENCODE}")
        self._secrets = [given[name] for name in SECRETS if given.get(name)]
        # The parameters that libpq takes from its environment variables, its files and its defaults.
        known = {item.keyword.decode(): (item.val or b"").decode() for item in psycopg.pq.Conninfo.get_defaults()}
        known = {name: value for name, value in known.items() if value} | given
        self._parameters = {**{name: value for name, value in DEFAULTS.items() if name not in known}, **given}
        self._options = known.get("options", "")
        hosts = known.get("host") or known.get("hostaddr", "")
        is_any = "target_session_attrs" not in given and known.get("target_session_attrs", "any") == "any"
        self._finds_primary = "," in hosts and is_any
        # Hosts whose names libpq looks up, and their ports.
        self._places = [] if known.get("hostaddr") else _pair_hosts(hosts, known.get("port", ""))
        self.name = _describe(known)

    def connect(self, **settings: str | int) -> Connection:
        """Open a connection in autocommit mode. ``settings``: settings of the session."""
        with self.translate_errors():
            connection = Connection.connect(self._build(settings), autocommit=True)
            try:
                ((limit,),) = connection.execute(_READ_LIMIT).fetchall()
            except BaseException:
                connection.close()
                raise
            connection.answer_timeout = ANSWER_SECONDS
            connection.long_timeout = limit + ANSWER_SECONDS if limit else math.inf
            return connection

    def find_refusal(self, **settings: str | int) -> str | None:
        """Return the SQLSTATE with which the server refuses connections, None if it accepts them or is down."""
        # Names are looked up here, because psycopg keeps the interpreter lock while libpq does that.
        places = [(host, port) for host, port in self._places if _is_known(host)]
        if self._places and not places:
            return None
        known = {}
        if len(places) < len(self._places):
            known = {"host": ",".join(host for host, _ in places), "port": ",".join(port for _, port in places)}
        with self.translate_errors():
            return diagnose(self._build(settings, **known))

    def _build(self, settings: dict[str, str | int], **changes: str) -> str:
        """Return the connection string of a session. ``changes``: other parameters than those of the address."""
        parameters = {**self._parameters, **changes}
        if self._finds_primary and "default_transaction_read_only" not in settings:
            parameters["target_session_attrs"] = "read-write"  # a standby among the hosts may be behind
        options = [f"-c {name}={value}" for name, value in {**SESSION, **settings}.items()]
        options.append(self._options)  # the last setting wins
        return make_conninfo("", **{**parameters, "options": " ".join(options)})

    @contextlib.contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Convert errors of psycopg to :class:`DatabaseError`, without the password."""
        try:
            yield
        except psycopg.Error as error:
            raise self._translate(error) from None

    def _translate(self, error: psycopg.Error) -> DatabaseError:
        # The details of an error are omitted, because they contain values of rows.
        text = error.diag.message_primary or str(error) or type(error).__name__
        if error.sqlstate in HINTS:
            text = f"{text}; {HINTS[error.sqlstate]}"
        return _choose_kind(error)(self.hide_secrets(" ".join(text.split())), error.sqlstate)

    def hide_secrets(self, text: str) -> str:
        """Return ``text`` without secrets. libpq does not put them into messages; this is a second safeguard."""
        for secret in self._secrets:
            for form in (secret, quote(secret, safe=""), quote(secret)):
                text = text.replace(form, "***")
        return text


def _pair_hosts(hosts: str, ports: str) -> list[tuple[str, str]]:
    """Return the hosts of an address with their ports."""
    names, numbers = hosts.split(","), ports.split(",")
    numbers = numbers * len(names) if len(numbers) == 1 else numbers
    return [(name, port or DEFAULT_PORT) for name, port in zip(names, numbers, strict=False)]


def _is_known(host: str) -> bool:
    """Return whether a host is a unix socket, or a name that can be looked up."""
    try:
        return host[:1] in ("/", "@") or bool(socket.getaddrinfo(host or None, DEFAULT_PORT))
    except (OSError, UnicodeError):
        return False


def _choose_kind(error: psycopg.Error) -> type[DatabaseError]:
    """Return what an error is: damage, another answer to a statement, or a database that is away."""
    if error.sqlstate is None:  # libpq or psycopg has raised it
        is_away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return DatabaseError if is_away else StatementError
    if error.sqlstate in DAMAGED:
        return DamageError
    return DatabaseError if error.sqlstate.startswith(PASSING) else StatementError


def _describe_mistake(rest: str) -> str:
    """Return why an address may be invalid, without anything that may be part of a password."""
    pairs = [pair.partition("=") for pair in rest.partition("?")[2].split("&")]
    names = {name for name, _, _ in pairs}
    known = {item.keyword.decode() for item in psycopg.pq.Conninfo.get_defaults()} | {"ssl"}
    unknown = sorted(name for name, sign, _ in pairs if sign and name.isidentifier() and name not in known)
    if unknown and "@" not in rest.partition("?")[2] and names.isdisjoint(SECRETS):
        return f"the address has an unknown option, {unknown[0]}"
    return f"the address is not valid; {_ENCODE}"


def _describe(parameters: dict[str, str]) -> str:
    """Return the address with only the user, the hosts, the ports and the database."""
    if "service" in parameters and "host" not in parameters:  # a section of a service file of libpq
        return f"postgresql:///?service={quote(parameters['service'])}"
    user = parameters.get("user", "")
    database = quote(parameters.get("dbname", user))
    hosts = (parameters.get("host") or parameters.get("hostaddr", "")).split(",")
    if not hosts[0] or hosts[0][0] in "/@":  # a unix socket
        port = parameters.get("port", DEFAULT_PORT)
        options = [f"host={hosts[0]}"] * bool(hosts[0]) + [f"port={port}"] * (port != DEFAULT_PORT)
        return f"postgresql://{quote(user)}@/{database}" + f"?{'&'.join(options)}" * bool(options)
    places = _pair_hosts(",".join(hosts), parameters.get("port", ""))
    address = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in places)
    return f"postgresql://{quote(user)}@{address}/{database}"


@contextlib.contextmanager
def check_replication(connection: Connection) -> Iterator[Connection]:
    """Yield ``connection``. Raise :class:`DatabaseError` if the wait of a commit for its standby was cancelled.

    PostgreSQL reports such a commit as a success, with a warning (after ``pg_cancel_backend``, for example).
    """
    warnings: list[str | None] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        warnings.append(notice.source_file)

    connection.add_notice_handler(note)
    try:
        yield connection
    finally:
        connection.remove_notice_handler(note)
    if "syncrep.c" in warnings:  # the text of the warning is translated; the name of the source file is not
        raise DatabaseError("the wait for the standby was cancelled: the standby may lack this commit")
