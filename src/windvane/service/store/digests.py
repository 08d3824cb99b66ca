"""Checksums of rows. Every table but the events ends with a column ``digest``, the SHA-256 of the other columns."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

SALT_BYTES = 16  # 128 bits: a short context cannot be guessed from its digest once the salt is erased

Value = str | float | bytes | None
"""What a column may hold."""

_PREFIXES = {str: b"s", int: b"i", float: b"f", bytes: b"b"}


def digest_row(table: str, *values: Value) -> bytes:
    """Return the checksum of a row of ``table``. Every value enters it with its type and its length."""
    parts = [table.encode(), b"\0"]
    for value in values:
        if value is None:
            parts.append(b"n")  # which differs from an empty value
            continue
        content = value if isinstance(value, bytes) else (value if isinstance(value, str) else repr(value)).encode()
        parts += (_PREFIXES[type(value)], len(content).to_bytes(8, "big"), content)
    return hashlib.sha256(b"".join(parts)).digest()


def seal_row(table: str, *values: Value) -> tuple[Value, ...]:
    """Return ``values`` followed by their checksum: a row of ``table``."""
    return *values, digest_row(table, *values)


def is_sealed(table: str, row: Sequence[Any]) -> bool:
    """Whether a row ends with the checksum of its other values."""
    try:
        return bool(row[-1] == digest_row(table, *row[:-1]))
    except LookupError:  # a type that no column has
        return False


def salt_request(request: bytes) -> tuple[bytes, bytes]:
    """Return a random salt, and the digest of the salt and ``request``."""
    salt = secrets.token_bytes(SALT_BYTES)
    return salt, hashlib.sha256(salt + request).digest()


def matches_digest(request: bytes | None, salt: bytes | None, digest: bytes | None) -> bool:
    """Whether ``request`` is the one that was digested, or was erased together with its salt."""
    if request is None or salt is None:
        return request is salt
    return hashlib.sha256(salt + request).digest() == digest
