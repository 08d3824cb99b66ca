"""Commands around the service, through the real command in processes of their own: serve, token, verify, demo."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import windvane
from support.commands import fails, files, windvane_command, windvane_server
from support.refusals import rejects
from support.stores import reseal


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return json.loads(answer.read())


def test_token(tmp_path: Path) -> None:
    secret = windvane_command("token add shop --store a.db", tmp_path).stdout.strip()
    told = json.loads(windvane_command("token add page --store a.db --read-only --json", tmp_path).stdout)
    assert told["name"] == "page"
    fails("token add shop --store a.db", tmp_path, "`name`", "'shop'")
    with windvane_server("serve --store a.db --port 0 --json", tmp_path) as said:
        address = json.loads(said)["address"]
        with windvane.Client(address, secret) as shop, windvane.Client(address, told["token"]) as page:
            shop.create("a", dim=2)
            assert [stream.name for stream in page.streams()] == ["a"]
            with rejects(error=windvane.ClientError, status=403, code="read-only-token"):
                page.archive("a")
            windvane_command("token remove shop --store a.db", tmp_path)  # beside the server, which hears of it
            time.sleep(1.1)
            with rejects(error=windvane.ClientError, status=401, code="wrong-token"):
                shop.streams()
    assert "page   read" in windvane_command("token list --store a.db", tmp_path).stdout
    (left,) = json.loads(windvane_command("token list --store a.db --json", tmp_path).stdout)["tokens"]
    assert (left["name"], left["rights"]) == ("page", "read")
    fails("token remove shop --store a.db", tmp_path, "`name`", "'shop'")
    fails("token list shop --store a.db", tmp_path, "`name`", "'shop'")
    fails("token ad shop --store a.db", tmp_path, "`action`", "add, list, remove", "'ad'")


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


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of it in test_demo.py."""
    monkeypatch.setenv("BROWSER", "true")  # the program of that name
    found = json.loads(windvane_command("demo --seconds 2 --port 0 --open --json", tmp_path).stdout)
    assert [one["stream"] for one in found["streams"]] == ["adaptive", "never-forgets", "random"]
    with windvane_server("demo --seconds 1 --keep --no-open", tmp_path, signal.SIGINT) as said:
        assert get(said.split()[-1] + "readyz") == {"status": "ready"}
        time.sleep(4.0)  # the audience has left
    assert files(tmp_path) == set()
    fails("demo --seconds 0.1", tmp_path, "--seconds")


def test_an_interrupt_that_a_library_wraps_is_still_an_interrupt(tmp_path: Path) -> None:
    """As pydantic does, if it is interrupted while it builds a model."""
    code = """
import signal, sys, windvane.cli, windvane.cli.app
def wrap(*_, **__):
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise RuntimeError("wrapped") from None
windvane.cli.app.build_app = lambda _: wrap
sys.exit(windvane.cli.main(["policies"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "windvane: interrupted\n")


def test_limits_of_a_server(tmp_path: Path) -> None:
    options = "--host 127.0.0.1 --rate 5 --body-limit 1024"
    with windvane_server(f"serve --store a.db --port 0 {options} --json", tmp_path) as said:
        address = json.loads(said)["address"]
        with windvane.Client(address, deadline=0) as client:
            assert client.ready(wait=60)
            with rejects(error=windvane.ClientError, code="too-large"):
                client.create("a", dim=1, title="x" * 2000)
            with rejects(error=windvane.ClientError, code="rate-limited"):
                for _ in range(50):
                    client.streams()
