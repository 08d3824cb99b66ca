"""Which shard a stream belongs to."""

from __future__ import annotations

import hashlib


def shard_of(name: str, count: int) -> int:
    """Return the shard of a stream, a number below ``count``. It never changes, since neither does the name.

    Examples
    --------
    >>> shard_of("shop", 64)
    61
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % count
