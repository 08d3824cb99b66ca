"""``windvane serve`` in operation, through the real command."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

import windvane
from support.commands import SCRIPT, windvane_command, windvane_server
from support.postgres import Cluster
from support.refusals import rejects
from support.server import parse_json, run_command, until
from windvane.records import to_json
from windvane.service.server import serve

ARMS = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}


def strip(decision: windvane.Decision) -> dict[str, Any]:
    """Return a decision without what differs between two services in the same state."""
    fields = parse_json(to_json(decision))
    return {name: value for name, value in fields.items() if name not in ("id", "time")}


def test_a_day_in_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service with a file of settings decides while it is backed up, drains and stops; it goes on elsewhere."""
    here, there, log = tmp_path / "here", tmp_path / "there", list[str]()
    here.mkdir()
    there.mkdir()
    (here / "service.toml").write_text('store = "a.db"\nport = 0\nlog-format = "json"\naccess-log = true\ndrain = 60\n')
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with windvane_server("serve --config service.toml --json", here, log=log) as said:
        while b"READY=1" not in manager.recv(1000):
            pass
        with windvane.Client(json.loads(said)["address"]) as client:
            for name in ("shop", "busy"):
                client.create(name, dim=2, seed=7)
            for i in range(30):
                client.reward("shop", client.decide("shop", ARMS), i % 2)
            begun, enough = threading.Event(), threading.Event()

            def decide() -> None:
                while not enough.is_set():
                    client.decide("busy", ARMS)
                    begun.set()

            thread = threading.Thread(target=decide)
            thread.start()
            assert begun.wait(60)
            report = json.loads(windvane_command("backup --store a.db --to ../backup.db --json", here).stdout)
            enough.set()
            thread.join()
            events = {stream["stream"]: stream["events"] for stream in report["streams"]}
            assert (report["sound"], events["shop"], events["busy"] > 0) == (True, 60, True)
            expected = strip(client.decide("shop", ARMS))
            _drain(client, pid=int((here / "a.db.lock").read_text()))
    lines = [parse_json(line) for line in log]
    assert [line["message"] for line in lines if line["logger"] == "windvane.service"] == [
        "listening", "ready", "stopping", "stopped",
    ]  # fmt: skip
    decided = [line for line in lines if line.get("route") == "/v1/streams/{stream}/decisions"]
    assert len({line["request_id"] for line in decided}) == len(decided) > 31
    manager.close()

    said = windvane_command("restore ../backup.db --store a.db --record-loss", there).stdout
    assert "is of this store: what was lost is not known, so nothing will be recorded" in said
    assert run_command("verify", "--store", there / "a.db").returncode == 0
    options = "--log-format text --log-level info --access-log --drain 0"
    log.clear()
    serve = f"serve --store a.db --port 0 {options} --json"
    with windvane_server(serve, there, log=log) as said, windvane.Client(json.loads(said)["address"]) as client:
        assert client.ready(wait=60)
        assert client.info("shop").counts.settled == 30
        assert strip(client.decide("shop", ARMS)) == expected
    assert any(" INFO windvane.access: request method=POST route=" in line for line in log)
    line = "restore ../backup.db --store a.db --replace --record-loss --force --json"
    report = json.loads(windvane_command(line, there).stdout)
    assert report["lost"] == {"shop": 1}
    assert Path(report["replaced"]).name == "a.db.replaced-1"


def _drain(client: windvane.Client, pid: int) -> None:
    """The first signal: not ready, and requests are answered. The second ends this before the time is over."""
    os.kill(pid, signal.SIGTERM)
    until(lambda: not client.ready())
    assert client.decide("busy", ARMS).arm in ARMS
    os.kill(pid, signal.SIGTERM)


def test_a_start_that_fails_is_a_line_of_the_log(tmp_path: Path) -> None:
    line = "serve", "--store", tmp_path / "nowhere" / "a.db", "--port", "0"
    result = run_command(*line, "--log-format", "json")
    assert (result.returncode, result.stdout) == (2, "")
    fields = parse_json(result.stderr)
    assert (fields["level"], str(tmp_path / "nowhere") in fields["message"]) == ("critical", True)
    assert run_command(*line).stderr == f"windvane: error: {fields['message']}\n"


def test_what_it_prints_says_when_to_begin(tmp_path: Path) -> None:
    """The address at once, so that a page can be opened; "ready" when requests are answered, which is later."""
    line = [SCRIPT, "serve", "--store", "a.db", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            found = re.fullmatch(r"starting at (http://127\.0\.0\.1:\d+)  \(store: a\.db; the first .*\)\n", first)
            assert found is not None, first
            assert process.stdout.readline() == f"ready: {found[1]}/  (Ctrl-C stops)\n"
            with windvane.Client(found[1], deadline=0) as client:
                assert client.ready()
                assert client.create("a", dim=1).counts.decisions == 0
        finally:
            process.terminate()
    assert process.returncode == 0


def test_a_reader_that_leaves_after_the_first_line(tmp_path: Path) -> None:
    """The service goes on, and ends with code 0."""
    line = [SCRIPT, "serve", "--store", "a.db", "--port", "0", "--log-level", "error"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[2]
            process.stdout.close()
            with windvane.Client(address, deadline=0) as client:
                assert client.ready(wait=60)
                assert client.create("a", dim=1).counts.decisions == 0
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_a_port_in_use(tmp_path: Path) -> None:
    """The error proposes another one."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run_command("serve", "--store", tmp_path / "a.db", "--port", port)
    assert (result.returncode, result.stdout) == (2, "")
    proposed = port + 1 if port < 65535 else port - 1
    assert result.stderr.endswith(f"choose another port, such as --port {proposed}\n")
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("host", ["a\0b", "a" * 100])
def test_a_host_that_no_name_can_be(tmp_path: Path, host: str) -> None:
    with rejects("host"):
        serve(tmp_path / "a.db", host=host, port=0)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_this_machine(tmp_path: Path, host: str) -> None:
    """The host is named as what is wrong, and not the port."""
    with rejects("host") as caught:
        serve(tmp_path / "a.db", host=host, port=0)
    assert "while attempting" not in str(caught.value)
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    ("settings", "argument"), [({"node": "a b"}, "node"), ({"node_url": "http://u:hidden@h:1"}, "node_url")]
)
def test_a_node_of_a_wrong_name_creates_no_store(
    cluster: Cluster, database: str, settings: dict[str, str], argument: str
) -> None:
    with rejects(argument) as caught:
        serve(cluster.url(database), port=0, **settings)  # type: ignore[arg-type]
    assert "hidden" not in str(caught.value)
    assert cluster.execute("SELECT FROM pg_class WHERE relname = 'meta'", database=database) == []


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
