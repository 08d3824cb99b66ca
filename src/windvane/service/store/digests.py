"""Checksums of rows. Every table but the events ends with a column ``digest``, the SHA-256 of the other columns."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

SALT_BYTES = 16  # 128 bits: a short context cannot be guessed from its digest once the salt is erased

Value = str | float | bytes | None
"""What a column may hold."""

_NO_VALUE = b"\xff" * 8  # in the place of a length: no value, which differs from an empty one


def digest_row(table: str, *values: Value) -> bytes:
    """Return the checksum of a row of ``table``. Every value enters it with its type and its length."""
    parts = [_pack(table)]
    for value in values:
        parts += (type(value).__name__.encode(), b" ", _pack(value))
    return hashlib.sha256(b"".join(parts)).digest()


def seal_row(table: str, *values: Value) -> tuple[Value, ...]:
    """Return ``values`` followed by their checksum: a row of ``table``."""
    return *values, digest_row(table, *values)


def is_sealed(table: str, row: Sequence[Any]) -> bool:
    """Whether a row ends with the checksum of its other values. A damaged row may hold values of any type."""
    try:
        return bool(row[-1] == digest_row(table, *row[:-1]))
    except (TypeError, ValueError, AttributeError):
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


def _pack(value: Value) -> bytes:
    if value is None:
        return _NO_VALUE
    if not isinstance(value, bytes):
        value = (value if isinstance(value, str) else repr(value)).encode()
    return len(value).to_bytes(8, "big") + value
