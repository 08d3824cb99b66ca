"""A node that is stopped before it has joined."""

from __future__ import annotations

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from windvane.service.cluster import placement
from windvane.service.cluster.placement import NodeSettings, Placement
from windvane.service.store.postgres.store import PostgresStore


def test_a_node_that_was_stopped_does_not_join(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread cannot be cancelled: without a look, it would join, and others would wait for its lease to run out."""
    monkeypatch.setattr(placement, "warm_up", lambda _: None)

    async def stop_and_recover(store: PostgresStore) -> Placement:
        engine: Any = SimpleNamespace(store=store, loop=asyncio.get_running_loop(), failure=None)
        node = Placement(engine, store, NodeSettings("a", "http://a:1", "1"))
        await node.stop()
        with pytest.raises(RuntimeError, match="is stopping"):
            await asyncio.to_thread(node.recover)
        return node

    with closing(PostgresStore(database_url)) as store:
        assert asyncio.run(stop_and_recover(store)).keeper is None
        assert store.query("SELECT name FROM nodes") == []
