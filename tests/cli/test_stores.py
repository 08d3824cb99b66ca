"""``windvane verify``, ``backup`` and ``restore``; a backup of a running service is in test_serving.py."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

import windvane
from support.commands import fails, files, windvane_command, windvane_server
from support.server import run_command, run_local
from support.stores import reseal
from windvane.service import backups


def test_verify(tmp_path: Path) -> None:
    with windvane_server("serve --store a.db --port 0 --json", tmp_path) as said:
        with windvane.Client(json.loads(said)["address"]) as client:
            client.create("a", dim=2)
            client.reward("a", client.decide("a", [[0.1, 0.2], [0.2, 0.1]]), 1.0)
        assert re.search(
            r"^a +2 +sound *$", windvane_command("verify --store a.db", tmp_path).stdout, re.M
        )  # beside it
    assert re.search(r"^a +2 +sound *$", windvane_command("verify --store a.db", tmp_path).stdout, re.M)
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


def test_ctrl_c_is_ignored_while_files_are_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the store could be moved aside without a new one in its place."""
    store, backup = tmp_path / "a.db", tmp_path / "b.db"
    with run_local(store) as service:
        service.create("shop")
    assert run_command("backup", "--store", store, "--to", backup).returncode == 0
    move_aside, handler = backups._move_aside, signal.getsignal(signal.SIGINT)

    def interrupt(*arguments: Any, **more: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return move_aside(*arguments, **more)

    monkeypatch.setattr(backups, "_move_aside", interrupt)
    done = run_command("restore", backup, "--store", store, "--replace")
    assert done.returncode == 0
    assert f"the previous store is now {store}.replaced-1" in done.stdout
    assert f"no acknowledged event is missing, according to {store}.replaced-1.mark" in done.stdout
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_loss_can_be_recorded_after_a_restore(tmp_path: Path) -> None:
    """By the command that the restore prints."""
    store, backup = tmp_path / "a.db", tmp_path / "b.db"
    with run_local(store) as service:
        service.create("shop")
    assert run_command("backup", "--store", store, "--to", backup).returncode == 0
    with run_local(store) as service:
        service.decide()
    done = windvane_command("restore b.db --store a.db --replace", tmp_path)
    assert "stream shop: 1 event was acknowledged after the backup, and missing in it" in done.stdout
    command = re.search(r"run this before the next start: (cp .+)", done.stdout)
    assert command is not None
    assert subprocess.run(command[1], shell=True, check=True).returncode == 0
    with run_local(store) as service:
        assert [event["kind"] for event in service.events()] == ["lost"]


def test_errors_of_stores_are_one_line(tmp_path: Path) -> None:
    fails("verify --store none.db", tmp_path, "none.db", "does not exist")
    fails("backup --store none.db --to b.db", tmp_path, "none.db", "does not exist")
    fails("restore none.db --store a.db", tmp_path, "none.db", "the backup does not exist")
    fails("backup --store none.db", tmp_path, "--to")
    (tmp_path / "text.db").write_text("text")
    fails("restore text.db --store a.db", tmp_path, "text.db")
    assert files(tmp_path) - {"a.db.lock"} == {"text.db"}


def test_a_stream_is_deleted_in_one_place_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both options it would not be clear in which one; a variable may be set for other commands."""
    line = ["streams", "delete", "a", "--yes"]
    url = ["--url", "http://127.0.0.1:1"]
    for option in ("--store", "--config"):
        place = [option, str(tmp_path / "a.db")]
        for options in (url + place, place + url):
            result = run_command(*line, *options)
            assert (result.returncode, f"--url and {option} must not be given together" in result.stderr) == (2, True)
    monkeypatch.setenv("WINDVANE_STORE", str(tmp_path / "a.db"))
    assert "must be an address" in run_command("streams", "list", "--url", "nowhere").stderr
