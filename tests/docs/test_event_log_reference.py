"""The tables of docs/reference/event-log.md against the log that a service writes."""

from __future__ import annotations

import io
import json
import re
import shutil
import urllib.request
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.server import ARMS
from support.service_pages import REFERENCE, Shell, read_commands, read_rows, read_section
from windvane.service.store import KINDS
from windvane.testing import serve

PAGE = REFERENCE / "event-log.md"
VECTORS = ARMS["arms"]


def test_kinds_and_fields(tmp_path: Path) -> None:
    """All kinds, the fields of those that a sound service writes, and the columns of the export."""
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[-1])) for row in read_rows(PAGE, "| kind |")}
    assert list(listed) == list(KINDS.values())
    found: dict[str, set[str]] = {}
    with serve(tmp_path / "windvane.db") as client:
        client.create("short", dim=2, retention="1ms")
        client.decide("short", VECTORS)
        client.create("whole", dim=2, reward_timeout=3, max_pending=2)
        first, *_ = client.decide_many("whole", [VECTORS] * 5)
        client.configure("whole", max_pending=100)
        client.reward("whole", first, 1.0)
        client.reward("whole", client.decide("whole", VECTORS), 1.0)
        client.history("whole", rewards=[1], vectors=[[0.5, 0.1]])
        client.refit("whole", half_life=10)
        client.undo_refit("whole")
        client.archive("whole")
        client.unarchive("whole")
        client.erase_context("whole", first)
        client.create("parts", dim=2, reward_timeout=1, default_reward=0.0)
        decision = client.decide("parts", VECTORS)
        client.add_reward("parts", decision, 0.5)
        client.decide_many("parts", [VECTORS] * 3)
        client.add_reward("parts", decision, 0.5)
        assert client.compact("short").removed > 0
        for event in [*client.events("whole"), *client.events("parts"), *client.events("short")]:
            found.setdefault(event["kind"], set()).update(event)
        with urllib.request.urlopen(f"{client.url}/v1/streams/whole/events?format=parquet") as answer:
            columns = pq.read_schema(io.BytesIO(answer.read())).names
    shared = {"number", "time", "kind", "decision", "key"}
    assert found.keys() == listed.keys() - {"lost", "unreadable"}
    for kind, fields in found.items():
        extra = {"arms", "context", "max_pending"}  # inside a field, or a setting
        assert fields - shared == listed[kind] - extra, kind
    assert re.findall(r"`(\w+)`", read_section(PAGE, "Parquet")) == columns


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_exports(tmp_path: Path) -> None:
    with serve(tmp_path / "windvane.db") as client:
        client.create("homepage", dim=2)
        client.reward("homepage", client.decide("homepage", VECTORS), 1.0)
        (block,) = read_commands(PAGE)
        Shell(tmp_path, client.url.rpartition(":")[2]).run(block)
    lines = (tmp_path / "events.ndjson").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["decided", "rewarded"]
    assert (tmp_path / "events.parquet").read_bytes()[:4] == b"PAR1"
