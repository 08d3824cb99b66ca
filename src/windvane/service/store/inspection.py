"""Whether the file of a store is whole: its pages and indexes, its tables, and the rows that are not a stream's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from windvane.service.store.chain import digest_row
from windvane.service.store.database import (
    READ_ERRORS,
    Token,
    connect,
    digest_token,
    expected_schema,
    is_damage,
    read_meta,
    read_schema,
)

REQUIRED_META = ("format", "id", "guarded")
MOST_LINES = 20  # of SQLite's own check: enough to see what is damaged
CHECKED_AT_START = 64 << 20
"""Bytes up to which a store is checked before it is served. Measured with the file in the page cache, SQLite's check
takes 1.6 s for a million events of 145 bytes, the smallest there are, and 2.6 s for a million of 1,100 bytes (d = 10,
20 arms): at least 90 MB a second, so that this many bytes take less than a second."""


def find_damage(path: Path, *, pages: bool = True) -> list[str]:
    """Return what is wrong with the structure of the file: its tables, its settings and, which takes long, all of its
    ``pages`` and indexes. All of it can be rebuilt from the rows that can be read."""
    connection = connect(path, "ro")
    try:
        return inspect_structure(connection, pages=pages)
    finally:
        connection.close()


def inspect_structure(connection: sqlite3.Connection, *, pages: bool = True) -> list[str]:
    """Do what :func:`find_damage` does, on a connection of the caller."""
    problems = []
    for inspect in (*([_inspect_pages] if pages else []), _inspect_schema, _inspect_meta):
        try:
            problems += inspect(connection)
        except READ_ERRORS as error:
            # A table whose name is damaged is not found, which is an ordinary error. A file that is busy or out of
            # reach is not damaged.
            if not is_damage(error) and getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                raise
            problems.append(str(error))
    return list(dict.fromkeys(problems))  # a page that cannot be read is reported by each of them


def _inspect_pages(connection: sqlite3.Connection) -> list[str]:
    lines = [str(line) for (line,) in connection.execute(f"PRAGMA integrity_check({MOST_LINES})")]
    parts = [part for line in lines for part in line.splitlines() if not part.startswith("*** in database")]
    return [] if lines == ["ok"] else parts


def _inspect_schema(connection: sqlite3.Connection) -> list[str]:
    schema = read_schema(connection)
    return [
        f"the definition of {name} was changed" if name in schema else f"{name} is missing"
        for name, sql in expected_schema().items()
        if name not in schema or schema[name] != sql
    ]


def _inspect_meta(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name, value, digest FROM meta NOT INDEXED").fetchall()
    problems = [
        f"the setting {name!r} does not match its checksum"
        for name, value, digest in rows
        if digest != digest_row("meta", name, value)
    ]
    sound = read_meta(connection)
    return problems + [f"the setting {name!r} is missing" for name in REQUIRED_META if name not in sound]


def split_tokens(connection: sqlite3.Connection) -> tuple[list[Token], list[str]]:
    """Return the tokens by name, and the names of those that do not match their checksum."""
    sound, damaged = [], []
    for name, secret_hash, full, created, digest in connection.execute("SELECT * FROM tokens NOT INDEXED"):
        try:
            token = Token(name, secret_hash, bool(full), created)
            is_sound = full in (0, 1) and digest == digest_token(token)
        except (TypeError, ValueError):
            is_sound = False
        if is_sound:
            sound.append(token)
        else:
            damaged.append(str(name))
    return sorted(sound), sorted(damaged)
