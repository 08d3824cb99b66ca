"""Stores as tests damage them: changed by SQL or by the byte, with or without checksums that match."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from windvane.service.chain import extend_chain, salt_request, start_chain
from windvane.service.database import STREAM_SPAN


def edit(path: Path, sql: str, *parameters: Any) -> None:
    """Change a store from outside."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql, parameters)
    connection.close()


def query(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    rows = connection.execute(sql).fetchall()
    connection.close()
    return rows


def reseal(path: Path) -> None:
    """Make all checksums of streams and events match what the rows say, as only this code can."""
    connection = sqlite3.connect(path)
    with connection:
        for stream, name, created, config in connection.execute(
            "SELECT id, name, created, config FROM streams"
        ).fetchall():
            chain = start_chain(stream, name, created, config)
            connection.execute("UPDATE streams SET digest = ? WHERE id = ?", (chain, stream))
            rows = connection.execute(
                "SELECT id, time, kind, decision, key, outcome, request FROM events WHERE id / ? = ? ORDER BY id",
                (STREAM_SPAN, stream),
            ).fetchall()
            for rowid, *values, request in rows:
                salt, digest = (None, None) if request is None else salt_request(request)
                chain = extend_chain(chain, stream, rowid % STREAM_SPAN, *values, digest)
                connection.execute(
                    "UPDATE events SET salt = ?, request_digest = ?, chain = ? WHERE id = ?",
                    (salt, digest, chain, rowid),
                )
    connection.close()
