"""Write files so that readers see all of the content or none of it."""

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically: temporary file, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")  # no other call uses this name
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some platforms cannot open a folder; elsewhere this makes the rename durable
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
