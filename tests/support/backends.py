"""The kind of store that a test runs on: an SQLite file, or a PostgreSQL database in its place.

Tests name a store by a path. On PostgreSQL, every path stands for a database of its own; see ``backend`` in
``tests/service/conftest.py``.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import windvane
from windvane.service.cluster.placement import NodeSettings
from windvane.service.store import Store, open_store

if TYPE_CHECKING:
    from support.postgres import Cluster

_numbers = itertools.count(1)


class Databases:
    """Databases by the paths that they stand for."""

    def __init__(self, server: Cluster, template: str) -> None:
        self._server, self._template = server, template
        self._names: dict[Path, str] = {}

    def locate(self, path: Path) -> str:
        """Return the address of the database for ``path``; create it when it is needed."""
        if path not in self._names:
            self._names[path] = self._server.create_database(self._template)
        return self._server.url(self._names[path])

    @property
    def is_used(self) -> bool:
        return bool(self._names)

    def drop(self) -> None:
        for name in self._names.values():
            self._server.drop_database(name)


current: Databases | None = None  # None: SQLite


def locate(path: str | Path) -> str | Path:
    """Return where the store for ``path`` is; the address of a database stands for itself."""
    return path if current is None or isinstance(path, str) else current.locate(path)


def open_backend(path: str | Path, **options: Any) -> Store:
    """Open the store for ``path``."""
    return open_store(locate(path), **options)


def describe_node() -> NodeSettings | None:
    """Return the settings of a new node, None for a service on a file."""
    if current is None:
        return None
    return NodeSettings(f"local-{next(_numbers)}", "http://127.0.0.1:1", windvane.__version__)
