"""Open a store by its path or address."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from windvane.service.store.protocol import Store
from windvane.service.store.records import StoreError
from windvane.service.store.sqlite.store import SqliteStore

PREFIXES = ("postgresql://", "postgres://")  # of addresses of PostgreSQL; everything else is a path


def is_postgres(where: str | Path) -> bool:
    """Whether ``where`` is the address of a PostgreSQL database, and not a path."""
    return isinstance(where, str) and where.startswith(PREFIXES)


def name_store(where: str | Path) -> str:
    """Return a path or address as messages show it, without a password."""
    if not is_postgres(where):
        return str(where)
    scheme, _, rest = str(where).partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def open_store(
    where: str | Path, *, shared: bool = False, create: bool = True, read_only: bool = False, **options: bool
) -> Store:
    """Open the store at ``where``: the path of an SQLite file, or the address of a PostgreSQL database.

    Parameters
    ----------
    where
        ``windvane.db``, or ``postgresql://user@host/database``.
    shared
        Open beside a running server, to read or to change tokens.
    create
        Create a store that does not exist.
    read_only
        Write nothing. Needs ``shared``.
    **options
        ``lazy`` and ``needs_standby``: see :class:`windvane.service.store.postgres.store.PostgresStore`.
    """
    if not is_postgres(where):
        return SqliteStore(where, shared=shared, create=create, read_only=read_only)
    if find_spec("psycopg") is None:
        raise StoreError("PostgreSQL", "not_installed", "needs psycopg: pip install 'windvane[postgres]'")
    from windvane.service.store.postgres.store import PostgresStore

    return PostgresStore(str(where), shared=shared, create=create, read_only=read_only, **options)
