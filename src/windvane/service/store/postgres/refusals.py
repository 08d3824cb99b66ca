"""Refusals of PostgreSQL that waiting cannot resolve: wrong passwords, missing privileges, read-only databases.

libpq reports the reason for a failed connection only as text, in the language of the server. The SQLSTATE distinguishes
temporary reasons (the server is starting, or has no free connection) from permanent ones (a wrong password).
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Any

import psycopg
from psycopg import pq

from windvane.service.store.postgres.tls import is_tls_refused
from windvane.service.store.records import NO_RIGHT, READ_ONLY

INVALID_AUTHORIZATION = "28"  # the class of SQLSTATE for a wrong user, a wrong password, or pg_hba.conf
NO_DATABASE = "3D000"
NO_PASSWORD = "28P01"  # stands for libpq itself refusing, because it has no password to send
WRONG_SETTINGS = "F0000"  # stands for libpq itself refusing, because its settings are invalid
NO_TLS = "08TLS"  # stands for libpq itself refusing, because it cannot agree with the server about TLS
HINTS = {
    READ_ONLY: "the database is a standby, or read-only for this role: name the primary, or all hosts, in the address",
    NO_RIGHT: "let the owner run `windvane store create URL --grant ROLE`",
}
"""How to resolve an error of a statement, by SQLSTATE."""
DIAGNOSIS_SECONDS = 5.0
_CODE = re.compile(r'ErrorResponse\t.* C "(\w{5})"')

TABLE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_WRITABLE = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', current_user::text"
_MISSING = """SELECT name, privilege FROM unnest(%s::text[]) AS name, unnest(%s::text[]) AS privilege
    WHERE NOT has_table_privilege(to_regclass(name), privilege) ORDER BY name, privilege"""


def explain_refusal(sqlstate: str | None) -> str | None:
    """Return how to resolve a permanent refusal of a connection. None: the server may accept it later."""
    if sqlstate == NO_DATABASE:
        return "create the database, or correct its name in the address"
    if sqlstate == WRONG_SETTINGS:
        return "correct the address, the environment variables PG..., or the service file"
    if sqlstate == NO_TLS:
        return "check sslmode, sslrootcert and the host in the address, and the certificate of the server"
    if sqlstate == NO_RIGHT:
        return "grant the role CONNECT on the database"
    if sqlstate is not None and sqlstate.startswith(INVALID_AUTHORIZATION):
        return "check the user, the password (~/.pgpass, PGPASSWORD or the address) and the server's pg_hba.conf"
    return None


def diagnose(conninfo: str) -> str | None:
    """Return the SQLSTATE with which a running server refuses this connection; None if it is not known.

    No call blocks other threads: psycopg holds the interpreter lock in calls of libpq that wait, such as ``ping``.
    """
    address = conninfo.encode()
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        connection = pq.PGconn.connect_start(address)
        if connection.status == pq.ConnStatus.BAD:  # nothing listens there, or libpq has not even tried
            connection.finish()
            return WRONG_SETTINGS if pq.PGconn.ping(address) == pq.Ping.NO_ATTEMPT else None
        return _connect(connection, read_end, write_end)
    except (psycopg.Error, OSError):
        return None
    finally:
        os.close(read_end)
        os.close(write_end)


def _connect(connection: pq.abc.PGconn, read_end: int, write_end: int) -> str | None:
    """Connect once more, and read the SQLSTATE of the server's answer from the trace of libpq."""
    end = time.monotonic() + DIAGNOSIS_SECONDS
    try:
        connection.trace(write_end)
        while (status := connection.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
            poll = select.poll()
            poll.register(connection.socket, select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT)
            if not poll.poll(max(0.0, 1000.0 * (end - time.monotonic()))):
                return None
        if status == pq.PollingStatus.OK:
            return None
        if connection.needs_password and not connection.password:
            return NO_PASSWORD
        connection.untrace()
        if codes := _CODE.findall(_read(read_end)):
            return str(codes[-1])
        return NO_TLS if is_tls_refused(connection, end) else None
    finally:
        connection.finish()


def _read(pipe: int) -> str:
    """Return what is in a pipe."""
    try:
        return os.read(pipe, 1 << 16).decode(errors="replace")
    except BlockingIOError:  # nothing
        return ""


def find_missing_rights(connection: psycopg.Connection[Any], tables: list[str]) -> str | None:
    """Return why the service could not write to the tables, and how to resolve it; None if it could."""
    ((is_standby, is_read_only, role),) = connection.execute(_WRITABLE).fetchall()
    if is_standby:
        return "is a standby, which cannot be written to; name the primary, or all hosts, in the address"
    if is_read_only:
        return f"is read-only for the role {role}: default_transaction_read_only is on; turn it off for this role"
    missing = connection.execute(_MISSING, (tables, [*TABLE_RIGHTS])).fetchall()
    if missing:
        table, right = missing[0]
        return f"the role {role} lacks rights, such as {right} on {table}; {HINTS[NO_RIGHT]}"
    return None
