"""A database with the tables of a store, connections to it, and keepers that share it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from support.peers import Peers, run_peers
from windvane.service.store.postgres.connections import Address, Connection
from windvane.service.store.postgres.schema import create_schema


@pytest.fixture
def store_url(database_url: str) -> str:
    """The connection string of a new store."""
    create_schema(database_url)
    return database_url


@pytest.fixture
def connect(store_url: str) -> Iterator[Callable[[], Connection]]:
    """Opens connections to a new store."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Address(store_url).connect()))


@pytest.fixture
def connection(connect: Callable[[], Connection]) -> Connection:
    return connect()


@pytest.fixture
def peers(database_url: str) -> Iterator[Peers]:
    with run_peers(database_url) as running:
        yield running
