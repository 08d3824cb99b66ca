"""Compare the tables of a store in PostgreSQL with the expected ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.schema import HERE, INDEXES, REQUIRED_META, SEQUENCES, TABLES, Index, read_meta

_COLUMNS_QUERY = f"""SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull
    FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
    WHERE {HERE} AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped ORDER BY relname, attnum"""
_INDEXES_QUERY = f"""SELECT relname, indisunique, ARRAY(
        SELECT attname::text FROM unnest(indkey) WITH ORDINALITY AS place(number, n)
        LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = number ORDER BY n
    ), pg_get_expr(indpred, indrelid)
    FROM pg_index JOIN pg_class ON indrelid = pg_class.oid WHERE {HERE} AND indisvalid AND indisready"""
_SEQUENCES_QUERY = f"SELECT relname FROM pg_class WHERE {HERE} AND relkind = 'S'"


def find_damage(connection: Connection) -> list[str]:
    """Return which tables, indexes, sequences and settings are missing or were changed."""
    tables: dict[str, list[tuple[Any, ...]]] = {}
    for table, *column in connection.execute(_COLUMNS_QUERY):
        tables.setdefault(table, []).append(tuple(column))
    problems = []
    for table, columns in TABLES.items():
        expected = [_describe_column(text) for text in columns if not text.startswith("PRIMARY KEY")]
        if tables.get(table) != expected:
            problems.append(f"the table {table} is missing, or its columns were changed")
    rows = connection.execute(_INDEXES_QUERY).fetchall()
    indexes = {Index(table, is_unique, tuple(columns), condition) for table, is_unique, columns, condition in rows}
    for index in _list_indexes():
        if index.table in tables and index not in indexes:
            problems.append(f"the index of {index.table} over {', '.join(index.columns)} is missing, or was changed")
    sequences = {name for (name,) in connection.execute(_SEQUENCES_QUERY)}
    problems += [f"the sequence {name} is missing" for name in SEQUENCES if name not in sequences]
    meta = read_meta(connection) if "meta" in tables else {}
    problems += [
        f"the setting {name!r} is missing, or does not match its checksum" for name in REQUIRED_META if name not in meta
    ]
    return problems


def _describe_column(text: str) -> tuple[str, str, bool]:
    """Return the name and the type of a column, and whether it is NOT NULL."""
    match = re.fullmatch(r"(\w+) (.+?)( NOT NULL| PRIMARY KEY)?( UNIQUE)?", text)
    assert match is not None
    return match[1], match[2], match[3] is not None


def _list_indexes() -> Iterator[Index]:
    """Yield all indexes: those of keys first, then the others."""
    for table, columns in TABLES.items():
        for text in columns:
            if text.startswith("PRIMARY KEY ("):
                yield Index(table, True, tuple(text[len("PRIMARY KEY (") : -1].split(", ")))
            elif text.endswith((" PRIMARY KEY", " UNIQUE")):
                yield Index(table, True, (text.split()[0],))
    yield from INDEXES.values()
