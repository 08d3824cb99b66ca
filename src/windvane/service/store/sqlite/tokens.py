"""The access tokens in an SQLite file."""

from __future__ import annotations

from windvane.service.store.records import Token, is_sealed, seal_row
from windvane.service.store.sqlite.database import insert_row, read_meta, write_row
from windvane.service.store.sqlite.store_file import StoreFile


class SqliteTokens:
    """The access tokens in ``file``."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file

    @property
    def are_required(self) -> bool:
        """Whether every request needs a token: one exists or existed, or the setting cannot be read."""
        connection = self._file.connection
        if read_meta(connection).get("guarded") != "no":
            return True
        return connection.execute("SELECT 1 FROM tokens NOT INDEXED LIMIT 1").fetchone() is not None

    def add(self, token: Token) -> bool:
        """Return False if the name is taken. From now on every request needs a token."""
        with self._file.transaction() as connection:
            row = seal_row("tokens", token.name, token.hash, int(token.full), float(token.created))
            return insert_row(connection, "tokens", row) and write_row(connection, "meta", "guarded", "yes")

    def remove(self, name: str) -> bool:
        """Return False if no token has this name. Every request still needs a token."""
        with self._file.transaction() as connection:
            removed = connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount > 0
            return removed and write_row(connection, "meta", "guarded", "yes")

    def remove_all(self) -> None:
        """Remove all tokens and turn authentication off: no request needs a token."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM tokens")
            write_row(connection, "meta", "guarded", "no")

    def read(self) -> list[Token]:
        """Return the tokens that match their checksum; no other one is accepted."""
        rows = self._file.connection.execute("SELECT * FROM tokens NOT INDEXED")
        return sorted(Token(row[0], row[1], bool(row[2]), row[3]) for row in rows if is_sealed("tokens", row))

    def read_damaged(self) -> list[str]:
        """Return the names of the tokens that do not match their checksum."""
        rows = self._file.connection.execute("SELECT * FROM tokens NOT INDEXED")
        return sorted(str(row[0]) for row in rows if not is_sealed("tokens", row))
