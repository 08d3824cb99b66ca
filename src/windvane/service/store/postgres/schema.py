"""The tables of a store in PostgreSQL: create, recognise and check them, and grant privileges to the service."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from windvane.service.store import migrations
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.eviction import check_migration
from windvane.service.store.postgres.refusals import (
    HINTS,
    NO_TLS,
    WRONG_SETTINGS,
    explain_refusal,
    find_missing_rights,
)
from windvane.service.store.records import DatabaseError, StoreError, is_sealed, seal_row

OLDEST_SERVER = 120_000  # PostgreSQL 12: common table expressions that are MATERIALIZED
SHARDS = 64
LOST = ("08", "53", "57P")  # the classes of SQLSTATE for a lost connection or a server without resources
LOCK = int.from_bytes(hashlib.sha256(b"windvane").digest()[:8], signed=True)
"""The advisory lock that is held while a store is created or migrated, and while a stream is added."""

TABLES: dict[str, tuple[str, ...]] = {
    "meta": ("name text PRIMARY KEY", "value text NOT NULL", "digest bytea NOT NULL"),
    "streams": (
        "id bigint PRIMARY KEY", "shard integer NOT NULL", "name text NOT NULL UNIQUE",
        "created double precision NOT NULL", "config text NOT NULL", "digest bytea NOT NULL",
    ),
    "events": (
        "stream bigint NOT NULL", "number bigint NOT NULL", "time double precision NOT NULL", "kind smallint NOT NULL",
        "decision text", "key text", "outcome bytea NOT NULL", "request bytea", "salt bytea", "request_digest bytea",
        "chain bytea NOT NULL", "PRIMARY KEY (stream, number)",
    ),
    "snapshots": (
        "stream bigint PRIMARY KEY", "number bigint NOT NULL", "chain bytea NOT NULL", "agent bytea NOT NULL",
        "extra bytea NOT NULL", "digest bytea NOT NULL",
    ),
    "baselines": (
        "stream bigint PRIMARY KEY", "number bigint NOT NULL", "chain bytea NOT NULL", "agent bytea NOT NULL",
        "extra bytea NOT NULL", "removed bigint NOT NULL", "removed_chain bytea NOT NULL",
        "first_time double precision", "last_time double precision", "digest bytea NOT NULL",
    ),
    "tokens": (
        "name text PRIMARY KEY", "hash text NOT NULL UNIQUE", "full_rights integer NOT NULL",
        "created double precision NOT NULL", "digest bytea NOT NULL",
    ),
    "nodes": (
        "instance text PRIMARY KEY", "name text NOT NULL UNIQUE", "url text NOT NULL", "version text NOT NULL",
        "format integer NOT NULL", "joined timestamp with time zone NOT NULL",
        "lease_until timestamp with time zone NOT NULL",
    ),
    "shards": ("shard integer PRIMARY KEY", "epoch bigint NOT NULL", "node text"),
}  # fmt: skip
"""Columns in order. Those of events are the fields of :class:`windvane.service.store.Event`."""


class Index(NamedTuple):
    """An index of a table. ``condition``: which rows it contains, as PostgreSQL prints it."""

    table: str
    is_unique: bool
    columns: tuple[str, ...]
    condition: str | None = None


INDEXES = {
    "events_by_key": Index("events", True, ("stream", "key"), "(key IS NOT NULL)"),
    "events_by_decision": Index("events", False, ("stream", "decision", "number"), "(decision IS NOT NULL)"),
}
SEQUENCES = ("stream_ids", "epochs")
REQUIRED_META = ("format", "id", "guarded", "shards", "secret")
MAX_NAMES = 5  # how many tables of another application a message names

HERE = "relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"
_TABLES_QUERY = f"""SELECT relname FROM pg_class WHERE {HERE} AND relkind IN ('r', 'p') AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')"""


# --- open and create -------------------------------------------------------------------------------------------------


def create_schema(url: str, service_role: str | None = None) -> str:
    """Create the tables of a store, unless they exist, as their owner, and grant a role the privileges of the service.

    Returns the address without the password.
    """
    address = Address(url)
    with contextlib.closing(connect_first(address)) as connection:
        open_tables(address, connection)
        if service_role is not None:
            try:
                with address.translate_errors():
                    grant_service_role(connection, service_role)
            except DatabaseError as error:
                problem = f"the role {service_role!r} cannot be granted the privileges of the service ({error})"
                raise StoreError(address.name, "refused", problem) from None
    return address.name


def connect_first(address: Address, **settings: str | int) -> Connection:
    """Connect for the first time. Raise :class:`StoreError` if the server cannot hold a store or does not admit this
    role ("refused"), or if it cannot be reached ("unreachable")."""
    try:
        connection = address.connect(**settings)
    except DatabaseError as error:
        code = address.find_refusal(**settings)
        if (hint := explain_refusal(code)) is not None:
            what = "cannot be used" if code in (WRONG_SETTINGS, NO_TLS) else "refuses the connection"
            raise StoreError(address.name, "refused", f"{what} ({error}); {hint}") from None
        raise StoreError(address.name, "unreachable", f"cannot be reached ({error})") from None
    problem = None
    if connection.info.server_version < OLDEST_SERVER:
        problem = "needs PostgreSQL 12 or newer"
    elif connection.info.parameter_status("server_encoding") != "UTF8":
        problem = "must be a database with the encoding UTF8"
    if problem is not None:
        connection.close()
        raise StoreError(address.name, "refused", problem)
    return connection


def open_tables(address: Address, connection: Connection, *, create: bool = True, migrate: bool = True) -> int:
    """Find the tables of a store. If allowed, ``create`` missing ones, or ``migrate`` those of an older format.

    Returns the number of shards. Raises :class:`StoreError` if there is no store of the current format in the end.
    Several processes may do this at once: one of them makes the changes.
    """
    with raise_store_errors(address), connection.extend_timeout():
        found = _read_format(address, connection)
        if found is None and not create:
            raise StoreError(address.name, "no_store", "the store does not exist")
        if found is not None and found < migrations.FORMAT and not migrate:
            problem = (
                f"has format {found}, and this version needs format {migrations.FORMAT}; `windvane serve` migrates it"
            )
            raise StoreError(address.name, "format", problem)
        if found is None or found < migrations.FORMAT:
            with connection.transaction():
                hold_lock(connection)
                found = _read_format(address, connection)  # another process may have been first
                if found is None:
                    _create_tables(connection)
                elif found < migrations.FORMAT:
                    check_migration(connection, address.name, migrations.FORMAT)
                    migrations.migrate_postgres(connection, found)
        shards = read_meta(connection).get("shards", "")
    if not shards.isdigit() or int(shards) < 1:
        raise StoreError(address.name, "damaged", "the setting 'shards' is missing, or does not match its checksum")
    return int(shards)


def check_rights(address: Address, connection: Connection) -> None:
    """Raise :class:`StoreError` if this role cannot write to the tables. Otherwise a server would notice only later."""
    problem = find_missing_rights(connection, [*TABLES])
    if problem is not None:
        raise StoreError(address.name, "refused", problem)


def has_standby(connection: Connection) -> bool:
    """Return whether a commit waits until a standby has it, so that losing one machine loses no data."""
    ((names, level),) = connection.execute(
        "SELECT current_setting('synchronous_standby_names'), current_setting('synchronous_commit')"
    ).fetchall()
    return bool(names.strip()) and level in ("on", "remote_apply")


def read_timeline(connection: Connection) -> str | None:
    """Return the timeline of the write-ahead log, which changes when a standby is promoted or the database is recovered
    to an earlier time. None: the server is a standby, or does not say."""
    query = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END"
    try:
        row = connection.execute(query).fetchone()
    except psycopg.errors.DatabaseError:  # the function is missing (not quite PostgreSQL) or its use was revoked
        return None
    return None if row is None else row[0]


def hold_lock(connection: Connection) -> None:
    """Acquire :data:`LOCK` until the end of the transaction."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))


@contextlib.contextmanager
def raise_store_errors(address: Address) -> Iterator[None]:
    """Convert errors of the database to :class:`StoreError`."""
    try:
        with address.translate_errors():
            yield
    except DatabaseError as error:
        if error.sqlstate in HINTS:
            raise StoreError(address.name, "refused", str(error)) from None
        if error.sqlstate is None or error.sqlstate.startswith(LOST):
            raise StoreError(address.name, "unreachable", f"cannot be reached ({error})") from None
        raise StoreError(address.name, "unreadable", f"cannot be used as a store ({error})") from None


def _read_format(address: Address, connection: Connection) -> int | None:
    """Return the format of the store, None if the schema has no tables. Raise :class:`StoreError` if the tables are not
    those of a store, or have a newer format."""
    ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
    if schema is None:
        raise StoreError(address.name, "refused", "this role may use no schema of its search_path")
    tables = {name for (name,) in connection.execute(_TABLES_QUERY)}
    if not tables:
        return None
    rows: list[Any] = []
    if "meta" in tables:
        with contextlib.suppress(psycopg.errors.UndefinedColumn):
            rows = connection.execute("SELECT name, value, digest FROM meta WHERE name = 'format'").fetchall()
    if not rows and not TABLES.keys() - {"meta"} <= tables:
        names = ", ".join(sorted(tables)[:MAX_NAMES]) + (", ..." if len(tables) > MAX_NAMES else "")
        problem = (
            f"the schema {schema} has tables of another application ({names}); use another database, or another schema"
            " (?options=-csearch_path%3DNAME)"
        )
        raise StoreError(address.name, "not_a_store", problem)
    if not rows or not is_sealed("meta", rows[0]):
        raise StoreError(address.name, "damaged", "the setting 'format' is missing, or does not match its checksum")
    return migrations.check_format(address.name, rows[0][1], migrations.OLDEST_POSTGRES)


def _create_tables(connection: Connection) -> None:
    """Create the tables and their first rows, in the transaction of the caller."""
    for statement in _list_statements():
        connection.execute(statement)
    settings = (str(migrations.FORMAT), secrets.token_hex(16), "no", str(SHARDS), secrets.token_hex(32))
    for name, value in zip(REQUIRED_META, settings, strict=True):
        write_meta(connection, name, value)
    query = "INSERT INTO shards SELECT number, 0, NULL FROM generate_series(0, %s - 1) AS number"
    connection.execute(query, (SHARDS,))


def _list_statements() -> Iterator[bytes]:
    """Yield the statements that create all tables, indexes and sequences."""
    for table, columns in TABLES.items():
        yield f"CREATE TABLE {table} ({', '.join(columns)})".encode()
    for table in ("snapshots", "baselines"):  # not compressed: the column holds numbers and is written often
        yield f"ALTER TABLE {table} ALTER COLUMN agent SET STORAGE EXTERNAL".encode()
    for name, index in INDEXES.items():
        kind = "UNIQUE INDEX" if index.is_unique else "INDEX"
        yield f"CREATE {kind} {name} ON {index.table} ({', '.join(index.columns)}) WHERE {index.condition}".encode()
    for name in SEQUENCES:
        yield f"CREATE SEQUENCE {name} AS bigint".encode()


def grant_service_role(connection: Connection, role: str) -> None:
    """Grant a role the privileges of the service: to read and write rows, but not to alter, truncate or drop tables."""
    ((schema,),) = connection.execute("SELECT current_schema()").fetchall()
    names = {"role": sql.Identifier(role), "schema": sql.Identifier(schema)}
    tables, (ids, epochs) = sql.SQL(", ").join(map(sql.Identifier, TABLES)), map(sql.Identifier, SEQUENCES)
    with connection.transaction():
        for statement in (
            sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}"),
            sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}"),
            sql.SQL("GRANT USAGE ON SEQUENCE {epochs} TO {role}"),
            sql.SQL("GRANT USAGE, SELECT, UPDATE ON SEQUENCE {ids} TO {role}"),  # a copied stream keeps its id
        ):
            connection.execute(statement.format(tables=tables, ids=ids, epochs=epochs, **names))


# --- settings --------------------------------------------------------------------------------------------------------


def read_meta(connection: Connection) -> dict[str, str]:
    """Return the settings whose checksums match, by name."""
    rows = connection.execute("SELECT name, value, digest FROM meta", binary=True)
    return {row[0]: row[1] for row in rows if is_sealed("meta", row)}


def write_meta(connection: Connection, name: str, value: str) -> None:
    """Set a setting."""
    query = """INSERT INTO meta VALUES (%s, %s, %b)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, digest = excluded.digest"""
    connection.execute(query, seal_row("meta", name, value))
