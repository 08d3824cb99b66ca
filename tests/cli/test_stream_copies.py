"""``windvane streams copy`` and ``move`` as users run them, and killed at the worst moments."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from support.commands import fails, run_on_terminal, windvane_command
from support.postgres import Cluster
from support.server import run_command, serve
from support.stores import Facts, build
from windvane import Client
from windvane.service.store import open_store
from windvane.testing import Service


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("built") / "a.db"
    return path, build(path)


def list_names(where: str | Path) -> list[str]:
    with closing(open_store(where, shared=True, read_only=True)) as store:
        return [row.name for row in store.read_streams()]


def test_copy_and_move(built: tuple[Path, Facts], tmp_path: Path, database_url: str) -> None:
    path, _ = built
    done = windvane_command(f"streams copy {path} '{database_url}'", tmp_path)
    assert re.search(r"^shop +copied +kept +18$", done.stdout, re.M)
    assert re.search(
        r"^3 streams, 2 tokens from .*a\.db to postgresql://owner@/.*, verified, [\d.]+ s$", done.stdout, re.M
    )
    assert done.stderr == ""
    found = json.loads(windvane_command(f"streams move '{database_url}' b.db other --json", tmp_path).stdout)
    streams = [{"stream": "other", "events": 20, "copied": True, "same_id": True}]
    assert (found["moved"], found["streams"], found["tokens"], found["other_tokens"]) == (True, streams, [], [])
    assert (list_names(database_url), list_names(tmp_path / "b.db")) == (["shop", "fields"], ["other"])
    verified = json.loads(windvane_command("verify --store b.db --json", tmp_path).stdout)
    assert verified["streams"] == [{"stream": "other", "events": 20, "problems": [], "notes": []}]
    again = windvane_command(f"streams copy {path} '{database_url}' shop --tokens", tmp_path).stdout
    assert re.search(r"^shop +already in the target +kept +18$", again, re.M)


def test_errors_are_one_line(built: tuple[Path, Facts], tmp_path: Path, database_url: str) -> None:
    path, _ = built
    fails(f"streams copy none.db '{database_url}'", tmp_path, "none.db", "does not exist")
    fails(f"streams copy {path} b.db nobody", tmp_path, "a.db", "has no stream named 'nobody'")
    fails(f"streams copy {path} {path}", tmp_path, "the same store")
    fails("streams copy", tmp_path, "SRC")
    fails("streams move a.db", tmp_path, "DST")
    (tmp_path / "text.db").write_text("text")
    fails(f"streams copy {path} text.db", tmp_path, "text.db")
    assert list_names(path) == ["shop", "fields", "other"]


def test_a_role_that_may_only_read_can_copy(
    built: tuple[Path, Facts], tmp_path: Path, cluster: Cluster, database: str, database_url: str
) -> None:
    """While no node is running. It cannot move."""
    assert run_command("streams", "copy", built[0], database_url).returncode == 0
    with cluster.reader(database) as role:
        own = cluster.url(database, user=role)
        assert json.loads(windvane_command(f"streams copy '{own}' b.db --json", tmp_path).stdout)["tokens"]
        fails(f"streams move '{own}' c.db", tmp_path, "postgresql://reader@/", "lacks rights", "let the owner run")
        service = Service(database_url, "--node", "first")
        try:
            with Client(service.address) as client:
                assert client.ready(wait=60)
            fails(f"streams copy '{own}' c.db", tmp_path, "postgresql://reader@/", "is served by the nodes first")
        finally:
            assert service.stop() == 0
    assert not (tmp_path / "c.db").exists()
    with closing(open_store(tmp_path / "b.db", shared=True, read_only=True)) as store:
        logs = {row.name: [event.to_plain() for event in store.read_events(row.id)] for row in store.read_streams()}
    assert logs == built[1].logs


def test_stores_that_are_served_are_refused(built: tuple[Path, Facts], tmp_path: Path, database_url: str) -> None:
    path, _ = built
    service = Service(database_url, "--node", "first")
    try:
        with Client(service.address) as client:
            assert client.ready(wait=60)
        hint = "is served by the nodes first; stop them first"
        fails(f"streams copy {path} '{database_url}'", tmp_path, "postgresql://owner@/", hint)
        fails(f"streams copy '{database_url}' b.db", tmp_path, "postgresql://owner@/", hint)
    finally:
        assert service.stop() == 0
    assert run_command("streams", "copy", path, database_url).returncode == 0
    server = serve(path)
    try:
        fails(f"streams copy {path} b.db", tmp_path, "another server has this store")
        fails(f"streams copy '{database_url}' {path}", tmp_path, "another server has this store")
    finally:
        server.stop()


def test_progress_is_shown_on_a_terminal(built: tuple[Path, Facts], tmp_path: Path) -> None:
    script = (
        "import windvane.cli.console as console, windvane.cli as cli, sys, time\n"
        "import windvane.service.copying as copying\n"
        "bar = console.ProgressBar.__init__\n"
        "console.ProgressBar.__init__ = lambda self, text, unit='', patience=0.0: bar(self, text, unit, 0.0)\n"
        "write = copying._chunk\n"
        "copying._chunk = lambda events: (time.sleep(0.3) or chunk for chunk in write(events))\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    line = [sys.executable, "-c", script, "streams", "copy", str(built[0]), str(tmp_path / "b.db"), "shop"]
    out, shown = run_on_terminal(line)
    assert "copied" in out
    assert "18/18 events" in shown


# --- kill -9 ---------------------------------------------------------------------------------------------------------

KILL = """
import os, signal, sys
from windvane.service.copying import copy_streams
from windvane.service.store import SqliteStore
from windvane.service.store.postgres.store import PostgresStore

source, target, step = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def progress(name, done, total):
    if name == step and done:
        die()

if step == "removal":
    SqliteStore.remove_stream = PostgresStore.remove_stream = die
copy_streams(source, target, move=True, progress=progress)
"""


@pytest.mark.parametrize("direction", ["to PostgreSQL", "from PostgreSQL"])
def test_a_killed_move_leaves_whole_streams(
    direction: str, built: tuple[Path, Facts], tmp_path: Path, database_url: str
) -> None:
    """At any step: every stream is in one store, or in both, and a repetition finishes."""
    facts = built[1]
    source, target = tmp_path / "a.db", database_url
    assert run_command("streams", "copy", built[0], source).returncode == 0
    if direction == "from PostgreSQL":
        assert run_command("streams", "move", source, target).returncode == 0
        source, target = target, source
    seen = []
    for step in ("copying shop", "verifying the copy of shop", "removal", "copying fields"):
        line = [sys.executable, "-c", KILL, str(source), str(target), step]
        assert subprocess.run(line, check=False).returncode == -signal.SIGKILL
        seen.append((list_names(source), list_names(target)))
        for place in (source, target):
            assert run_command("verify", "--store", place).returncode == 0
    both, rest = ["shop", "fields", "other"], ["fields", "other"]
    assert seen == [(both, []), (both, []), (both, ["shop"]), (rest, ["shop"])]
    done = run_command("streams", "move", source, target, "--json")
    assert [stream["stream"] for stream in json.loads(done.stdout)["streams"]] == rest
    assert (list_names(source), list_names(target)) == ([], both)
    with closing(open_store(target, shared=True, read_only=True)) as store:
        logs = {row.name: [event.to_plain() for event in store.read_events(row.id)] for row in store.read_streams()}
    assert logs == facts.logs


def test_ctrl_c_undoes_the_stream_under_way(built: tuple[Path, Facts], tmp_path: Path, database_url: str) -> None:
    script = KILL.replace("os.kill(os.getpid(), signal.SIGKILL)", "signal.raise_signal(signal.SIGINT)")
    assert run_command("streams", "copy", built[0], tmp_path / "a.db").returncode == 0
    line = [sys.executable, "-c", script, str(tmp_path / "a.db"), database_url, "copying fields"]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr
    assert list_names(database_url) == ["shop"]
    assert list_names(tmp_path / "a.db") == ["fields", "other"]
