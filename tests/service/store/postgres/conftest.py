"""A store in a new database, and its server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from windvane.service.store.postgres.store import PostgresStore


@pytest.fixture
def pg(database_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(database_url)) as store:
        yield store
