"""What PostgreSQL refuses for good: wrong passwords, roles without rights, databases that are read-only.

libpq reports why a connection failed only as a text, in the language of the server. The SQLSTATE is needed to tell what
waiting may mend (the server starts, or has no room) from what it cannot mend (a wrong password).
"""

from __future__ import annotations

import os
import re
import select
import time
from typing import Any

import psycopg
from psycopg import pq

INVALID_AUTHORIZATION = "28"  # how the SQLSTATE begins: a wrong user, a wrong password, or pg_hba.conf
NO_DATABASE, NO_RIGHT, READ_ONLY = "3D000", "42501", "25006"
NO_PASSWORD = "28P01"  # of libpq itself, which has none to send
WRONG_SETTINGS = "F0000"  # of libpq itself, which does not even try
HINTS = {
    READ_ONLY: "the database is a standby, or read-only for this role: name the primary, or all hosts, in the address",
    NO_RIGHT: "let the owner run `windvane store create URL --grant ROLE`",
}
"""What to do about an error of a statement, by SQLSTATE."""
DIAGNOSIS_SECONDS = 5.0
_CODE = re.compile(r'ErrorResponse\t.* C "(\w{5})"')

TABLE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_WRITABLE = "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', current_user::text"
_MISSING = """SELECT name, privilege FROM unnest(%s::text[]) AS name, unnest(%s::text[]) AS privilege
    WHERE NOT has_table_privilege(to_regclass(name), privilege) ORDER BY name, privilege"""


def explain_refusal(sqlstate: str | None) -> str | None:
    """Return what to do about a connection that was refused for good; None: wait, the server may accept it later."""
    if sqlstate == NO_DATABASE:
        return "create the database, or correct its name in the address"
    if sqlstate == WRONG_SETTINGS:
        return "correct the address, the variables PG... or the service file"
    if sqlstate == NO_RIGHT:
        return "grant the role CONNECT on the database"
    if sqlstate is not None and sqlstate.startswith(INVALID_AUTHORIZATION):
        return "check the user, the password (~/.pgpass, PGPASSWORD or the address) and pg_hba.conf of the server"
    return None


def diagnose(conninfo: str) -> str | None:
    """Return the SQLSTATE with which a server that accepts connections refuses this one; None if it is not known."""
    address = conninfo.encode()
    status = pq.PGconn.ping(address)
    if status != pq.Ping.OK:  # the server is not there, or starts, or stops
        return WRONG_SETTINGS if status == pq.Ping.NO_ATTEMPT else None
    read_end, write_end = os.pipe()
    try:
        os.set_blocking(read_end, False)
        os.set_blocking(write_end, False)
        return _connect(pq.PGconn.connect_start(address), read_end, write_end)
    except (psycopg.Error, OSError):
        return None
    finally:
        os.close(read_end)
        os.close(write_end)


def _connect(connection: pq.abc.PGconn, read_end: int, write_end: int) -> str | None:
    """Connect once more, and read the code in the answer of the server from the trace of libpq."""
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
        codes = _CODE.findall(os.read(read_end, 1 << 16).decode(errors="replace"))
        return codes[-1] if codes else None
    finally:
        connection.finish()


def find_missing_rights(connection: psycopg.Connection[Any], tables: list[str]) -> str | None:
    """Return why a server cannot write to the tables of a store, and what to do; None if it can."""
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
