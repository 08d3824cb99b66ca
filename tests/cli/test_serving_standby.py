"""``windvane serve --ha``: a server starts only if PostgreSQL commits to a standby too."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from support.commands import fails
from support.postgres import Cluster
from support.server import until
from windvane import Client
from windvane.testing import Service


def test_a_standby_is_needed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        primary = Cluster({"wal_level": "replica", "max_wal_senders": 4})
        stack.callback(primary.remove)
        database = primary.create_database()
        url = primary.url(database)
        fails(f"serve --ha --port 0 --store '{url}'", tmp_path, "commits to no standby", "synchronous_standby_names")
        standby = Cluster(source=primary)
        stack.callback(standby.remove)
        fails(f"serve --ha --port 0 --store '{standby.url('postgres')}'", tmp_path, "standby")
        primary.configure({"synchronous_standby_names": "*"})
        primary.reload()
        service = Service(url, "--ha")
        try:
            with Client(service.address) as client:
                assert client.ready(wait=60)
                client.create("shop", dim=1)
        finally:
            assert service.stop() == 0, service.errors
        # A commit waits until the standby has it on disk, not until its readers see it.
        until(lambda: standby.execute("SELECT name FROM streams", database=database) == [("shop",)])


def test_a_file_has_no_standby(tmp_path: Path) -> None:
    fails("serve --ha --port 0 --store a.db", tmp_path, "`ha`", "the store is a file")
