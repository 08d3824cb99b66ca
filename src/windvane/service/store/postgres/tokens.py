"""The access tokens in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from windvane.service.store.postgres.connections import Connection
from windvane.service.store.postgres.schema import write_meta
from windvane.service.store.records import Token, is_sealed, seal_row

_TOKENS = "SELECT name, hash, full_rights, created, digest FROM tokens"


class PostgresTokens:
    """The access tokens in a database. ``query`` reads, ``transaction`` changes: see
    :class:`windvane.service.store.postgres.store.PostgresStore`."""

    def __init__(
        self,
        query: Callable[[str], list[tuple[Any, ...]]],
        transaction: Callable[[], AbstractContextManager[Connection]],
    ) -> None:
        self._query, self._transaction = query, transaction

    @property
    def are_required(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""
        query = "SELECT name, value, digest, EXISTS (SELECT FROM tokens) FROM meta WHERE name = 'guarded'"
        rows = self._query(query)
        return not rows or not is_sealed("meta", rows[0][:3]) or rows[0][1] != "no" or bool(rows[0][3])

    def add(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""
        row = seal_row("tokens", token.name, token.hash, int(token.full), float(token.created) + 0.0)
        with self._transaction() as connection:
            query = "INSERT INTO tokens VALUES (%s, %s, %s, %s, %b) ON CONFLICT DO NOTHING"
            is_new = connection.execute(query, row).rowcount > 0
            if is_new:
                write_meta(connection, "guarded", "yes")
            return is_new

    def remove(self, name: str) -> bool:
        """Return False if no token has this name. Every request still needs a token."""
        with self._transaction() as connection:
            is_removed = connection.execute("DELETE FROM tokens WHERE name = %s", (name,)).rowcount > 0
            if is_removed:
                write_meta(connection, "guarded", "yes")
            return is_removed

    def remove_all(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM tokens")
            write_meta(connection, "guarded", "no")

    def read(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""
        rows = [row for row in self._query(_TOKENS) if is_sealed("tokens", row)]
        return sorted(Token(row[0], row[1], bool(row[2]), row[3]) for row in rows)

    def read_damaged(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""
        return sorted(row[0] for row in self._query(_TOKENS) if not is_sealed("tokens", row))
