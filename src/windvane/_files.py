"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """All of ``content`` under ``path``, or nothing: aside, flushed, renamed."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")  # of this call alone
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # where a folder can be opened, make the new name durable too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
