"""``windvane verify`` through the real command; backup and restore are also tested in test_serving.py."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import windvane
from support.commands import windvane_command, windvane_server
from support.stores import reseal


def test_verify(tmp_path: Path) -> None:
    with windvane_server("serve --store a.db --port 0 --json", tmp_path) as said:
        with windvane.Client(json.loads(said)["address"]) as client:
            client.create("a", dim=2)
            client.reward("a", client.decide("a", [[0.1, 0.2], [0.2, 0.1]]), 1.0)
        assert re.search(r"^a +2 +sound$", windvane_command("verify --store a.db", tmp_path).stdout, re.M)  # beside it
    assert re.search(r"^a +2 +sound$", windvane_command("verify --store a.db", tmp_path).stdout, re.M)
    found = json.loads(windvane_command("verify --store a.db --json", tmp_path).stdout)
    assert found == {
        "sound": True,
        "problems": [],
        "streams": [{"stream": "a", "events": 2, "problems": [], "notes": []}],
    }
    with sqlite3.connect(tmp_path / "a.db") as store:  # somebody changes what was decided
        other = """CAST(replace(CAST(outcome AS TEXT), '"arm":', '"arm":7') AS BLOB)"""
        store.execute(f"UPDATE events SET outcome = {other} WHERE kind = 1")
    store.close()
    found = json.loads(windvane_command("verify --store a.db --json", tmp_path, code=1).stdout)
    text = "stream 'a', event 1: does not match its checksum"
    assert found["streams"][0]["problems"] == [{"code": "replay", "text": text}]
    reseal(tmp_path / "a.db")
    found = json.loads(windvane_command("verify --store a.db --json", tmp_path, code=1).stdout)
    assert re.match(r"stream 'a', event 1: arm 7[01] was not offered", found["streams"][0]["problems"][0]["text"])
