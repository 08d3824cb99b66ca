"""Open a store by its path or address."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from windvane.service.store.protocol import Store
from windvane.service.store.records import StoreError
from windvane.service.store.sqlite.store import SqliteStore

PREFIXES = ("postgresql://", "postgres://")  # of addresses of PostgreSQL; everything else is a path
_SHOWN = re.compile(
    r"(?:[^@/?]*@)?"  # user and password
    r"((?:[^@/?:\[\]]|\[[^]]*\]|:\d*(?![^,/?]))*"  # hosts, with ports
    r"(?:/[^@?]*)?)"  # the database
    r"(?:\?[^@]*)?",
    re.DOTALL,
)
_OTHER = re.compile(r"[a-z][a-z0-9+.-]*://|postgres(?:ql)?:|.*\bpassword=", re.IGNORECASE | re.DOTALL)


def is_postgres(where: str | Path) -> bool:
    """Whether ``where`` is the address of a PostgreSQL database, and not a path."""
    return isinstance(where, str) and where.startswith(PREFIXES)


def name_store(where: str | Path) -> str:
    """Return a path or address as messages show it, without a password."""
    if not is_postgres(where):
        return str(where)
    scheme, _, rest = str(where).partition("://")
    match = _SHOWN.fullmatch(rest)  # where the password ends is not certain if the address is not valid
    return f"{scheme}://{'...' if match is None else match[1]}"


def check_place(where: str | Path) -> None:
    """Raise :class:`StoreError` if ``where`` is an address of another kind: it is no path, and may hold a password."""
    if isinstance(where, str) and not is_postgres(where) and _OTHER.match(where):
        scheme = re.match(r"[\w+.-]+(?=:)", where)
        problem = "a store is the path of a file, or an address such as postgresql://user@host/database"
        raise StoreError("store" if scheme is None else f"{scheme[0]}://...", "refused", problem)


def create_database_store(url: str, service_role: str | None = None) -> str:
    """Create the tables of a store in a database, or migrate them, as their owner; return the name of the store.

    ``service_role``: a role that may then read and write rows, but not change or remove tables.
    """
    _check_installed()
    from windvane.service.store.postgres.schema import create_schema

    return create_schema(url, service_role)


def _check_installed() -> None:
    if find_spec("psycopg") is None:
        raise StoreError("PostgreSQL", "not_installed", "needs psycopg: pip install 'windvane[postgres]'")


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
    check_place(where)
    if not is_postgres(where):
        return SqliteStore(where, shared=shared, create=create, read_only=read_only)
    _check_installed()
    from windvane.service.store.postgres.store import PostgresStore

    return PostgresStore(str(where), shared=shared, create=create, read_only=read_only, **options)
