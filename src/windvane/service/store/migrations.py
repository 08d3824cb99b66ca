"""The formats of stores and the migrations between them, for SQLite and PostgreSQL.

To change the format: raise :data:`FORMAT`, add a :class:`Migration`, and add the new tables of SQLite to
:data:`SQLITE_TABLES`. A PostgreSQL store is migrated in one transaction, which executes the statements of all
migrations. For an SQLite store, a new file is built beside the old one, which is kept
(:mod:`windvane.service.store.sqlite.repair`). Changing the tables in place would move them to other pages, and all
files must have the same tables at the same pages: otherwise a damaged first page could not be replaced. For the same
reason, new tables of SQLite come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from windvane.service.store.records import StoreError, seal_row

FORMAT = 4
"""The format that this version writes. Older ones are migrated when a server opens them."""
OLDEST_SQLITE, OLDEST_POSTGRES = 3, 4  # the oldest formats that can be migrated

Row = tuple[Any, ...]

_TABLES_3 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created REAL NOT NULL, config TEXT NOT NULL, digest BLOB NOT NULL
);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, kind INTEGER NOT NULL, decision TEXT, key TEXT, outcome BLOB NOT NULL,
    request BLOB, salt BLOB, request_digest BLOB, chain BLOB NOT NULL
);
CREATE INDEX events_by_decision ON events (decision, id) WHERE decision IS NOT NULL;
CREATE INDEX events_by_key ON events (key, id) WHERE key IS NOT NULL;
CREATE TABLE snapshots (
    stream INTEGER PRIMARY KEY, number INTEGER NOT NULL, chain BLOB NOT NULL, agent BLOB NOT NULL, extra BLOB NOT NULL,
    digest BLOB NOT NULL
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, full INTEGER NOT NULL, created REAL NOT NULL, digest BLOB NOT NULL
);
"""
_BASELINES = """
CREATE TABLE baselines (
    stream INTEGER PRIMARY KEY, number INTEGER NOT NULL, chain BLOB NOT NULL, agent BLOB NOT NULL, extra BLOB NOT NULL,
    removed INTEGER NOT NULL, removed_chain BLOB NOT NULL, first_time REAL, last_time REAL, digest BLOB NOT NULL
);
"""
SQLITE_TABLES = {3: _TABLES_3, 4: _TABLES_3 + _BASELINES}
"""The exact statements that create the tables of an SQLite file, by format."""


def _keep(_: str, row: Row) -> Row:
    return row


class Migration(NamedTuple):
    """A migration to ``format`` from the previous format. ``summary`` is logged.

    ``postgres``: the SQL statements. ``convert``: converts a row of an SQLite table, given the name of the table.
    """

    format: int
    summary: str
    postgres: Sequence[str] = ()
    convert: Callable[[str, Row], Row] = _keep


MIGRATIONS = (Migration(4, "events can be removed, and ids of streams are never used again"),)


class Connection(Protocol):
    """A connection to PostgreSQL with an open transaction, for example one of psycopg."""

    def execute(self, query: Any, params: Any = None, /) -> Any:
        """Execute a statement; ``%s`` stands for a parameter."""


def check_format(where: Path | str, value: str, oldest: int = OLDEST_SQLITE) -> int:
    """Return the format of a store from its setting "format". Raise :class:`StoreError` if it is not supported."""
    try:
        number = int(value)
    except ValueError:
        raise StoreError(where, "format", f"has format {value!r}, which is unknown") from None
    if number > FORMAT:
        problem = f"which a newer version of windvane wrote; this version reads formats up to {FORMAT}"
        raise StoreError(where, "format", f"has format {number}, {problem}")
    if number < oldest:
        problem = f"which an older version of windvane wrote; this version reads formats from {oldest} to {FORMAT}"
        raise StoreError(where, "format", f"has format {number}, {problem}")
    return number


def list_migrations(number: int) -> list[Migration]:
    """Return the migrations from format ``number`` to the current one, in order."""
    return [migration for migration in MIGRATIONS if migration.format > number]


def convert_row(table: str, row: Row, number: int) -> Row:
    """Convert a row of an SQLite table from format ``number`` to the current format."""
    for migration in list_migrations(number):
        row = migration.convert(table, row)
    return row


def migrate_postgres(connection: Connection, number: int) -> None:
    """Migrate a PostgreSQL store from format ``number`` to the current one, in the transaction of ``connection``."""
    for migration in list_migrations(number):
        for statement in migration.postgres:
            connection.execute(statement)
    name, value, digest = seal_row("meta", "format", str(FORMAT))
    connection.execute("UPDATE meta SET value = %s, digest = %s WHERE name = %s", (value, digest, name))
