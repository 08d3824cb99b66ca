"""Garbage collection, where it would take long."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause it while many objects are created: it would look at each of them several times."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
