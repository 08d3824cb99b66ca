"""``windvane streams`` through the real command: on a store that no server has open, and through a service."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import windvane
from support.commands import SCRIPT, fails
from support.server import Local, Server, parse_json, run_command, serve
from support.stores import edit, verify

ARMS = {"red": [0.6, 0.1], "blue": [0.2, 0.7]}


def run(*line: str | Path, code: int = 0) -> Any:
    """Run a command with ``--json``."""
    done = run_command("streams", *line, "--json")
    assert done.returncode == code, done
    return parse_json(done.stdout)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a stream whose events are too old, an archived one, and one that keeps everything."""
    path = tmp_path / "a.db"
    service = Local(path)
    service.create("short", title="Short", retention="1ms")
    service.create("old")
    service.create("whole")
    for name in ("short", "old", "whole"):
        for _ in range(3):
            service.decide(name)
    service.archive("old")
    service.stop()
    return path


@pytest.fixture
def server(store: Path) -> Iterator[Server]:
    running = serve(store)
    yield running
    assert running.stop() == 0


@pytest.fixture(params=["store", "url"])
def place(request: pytest.FixtureRequest, store: Path) -> list[str | Path]:
    """The options that say where the streams are."""
    if request.param == "store":
        return ["--store", store]
    return ["--url", request.getfixturevalue("server").address]


def test_all_of_them(place: list[str | Path], store: Path) -> None:
    listed = run("list", *place)
    assert listed["unavailable"] == []
    found = {stream["name"]: stream for stream in listed["streams"]}
    assert list(found) == ["old", "short", "whole"]
    assert found["short"].keys() == {"name", "title", "created", "archived", "events", "retention", "removed"}
    assert [(each["events"], each["retention"], each["removed"]) for each in found.values()] == [
        (4, None, None), (3, "1ms", None), (3, None, None),
    ]  # fmt: skip
    assert run("compact", *place) == {"compactions": [{"stream": "short", "removed": 3, "left": 1}]}
    assert run("compact", "short", *place)["compactions"][0]["removed"] >= 0  # the event of the first is old by now
    assert run("unarchive", "old", *place) == {"name": "old", "archived": None}
    assert run("archive", "whole", *place)["archived"].endswith("Z")
    assert run("delete", "old", *place, "--yes") == {"deleted": "old"}
    found = {stream["name"]: stream for stream in run("list", *place)["streams"]}
    assert list(found) == ["short", "whole"]
    assert found["short"]["removed"]["number"] >= 3
    text = run_command("streams", "list", *place).stdout
    assert text.splitlines()[1].split() == ["stream", "state", "retention", "stored", "removed"]
    assert text.splitlines()[3].split() == ["whole", "archived", "forever", "4", "0"]
    assert verify(store).is_sound


def test_a_stream_is_configured(place: list[str | Path], tmp_path: Path) -> None:
    """All that PATCH can change."""
    options = ["--retention", "30d", "--reward-timeout", "1h", "--default-reward", "0", "--title", "12"]
    options += ["--max-pending", "50", "--epsilon", "0.1", "--learn", "at_timeout"]
    assert run("configure", "whole", *options, *place) == {
        "name": "whole",
        "settings": {
            "retention": "30d", "reward_timeout": "1h", "default_reward": 0.0, "title": "12", "max_pending": 50,
            "epsilon": 0.1, "learn": "at_timeout",
        },
    }  # fmt: skip
    options = ["--retention", "forever", "--title", "none", "--default-reward", "none", "--reward-timeout", "500"]
    assert run("configure", "whole", *options, *place)["settings"] == {
        "retention": None, "title": None, "default_reward": None, "reward_timeout": 500.0,
    }  # fmt: skip
    assert "retention" in run_command("streams", "configure", "whole", "--retention", "1d", *place).stdout
    words = " ".join(map(str, place))
    fails(f"streams configure whole {words}", tmp_path, "name what to change", "--retention")
    fails(f"streams configure whole --retention soon {words}", tmp_path, "`retention`", "soon")
    fails(f"streams configure none --retention 1d {words}", tmp_path, "'none'")
    fails(f"streams configure old --retention 1d {words}", tmp_path, "archived")
    (tmp_path / "features.json").write_text("{")
    fails(f"streams configure whole --features features.json {words}", tmp_path, "features.json", "is not JSON")
    (tmp_path / "features.json").write_text('{"shared": ["age"]}')
    fails(f"streams configure whole --features features.json {words}", tmp_path, "features")
    fails(f"streams configure whole --features nowhere.json {words}", tmp_path, "nowhere.json", "cannot be read")


def test_what_is_refused(place: list[str | Path], tmp_path: Path) -> None:
    words = " ".join(map(str, place))
    for verb in ("compact", "archive", "unarchive", "delete"):
        fails(f"streams {verb} none {words}{' --yes' * (verb == 'delete')}", tmp_path, "'none'")
    fails(f"streams compact whole {words}", tmp_path, "'whole'", "retention")
    fails(f"streams delete whole {words}", tmp_path, "--yes")  # nobody can be asked
    assert len(run("list", *place)["streams"]) == 3


def test_a_store_that_a_server_has_open(store: Path, server: Server, tmp_path: Path) -> None:
    """It is not changed under the server; only the list can be read beside it."""
    for line in ("compact", "compact short", "archive whole", "unarchive old", "delete whole --yes"):
        fails(f"streams {line} --store {store}", tmp_path, "a.db", "--url")
    assert len(run("list", "--store", store)["streams"]) == 3
    with windvane.Client(server.address) as client:
        assert client.info("whole").archived is None


def test_places_that_do_not_exist(tmp_path: Path) -> None:
    for line in ("list", "compact", "archive a", "delete a --yes"):
        fails(f"streams {line} --store none.db", tmp_path, "none.db", "does not exist")
    fails("streams list --url nowhere", tmp_path, "`url`")
    assert not (tmp_path / "none.db").exists()


def test_the_token_is_in_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = run_command("token", "add", "shop", "--store", store).stdout.strip()
    with_url = ["--url"]
    running = serve(store)
    try:
        done = run_command("streams", "list", *with_url, running.address)
        assert (done.returncode, "needs a token: set the variable WINDVANE_TOKEN" in done.stderr) == (1, True)
        monkeypatch.setenv("WINDVANE_TOKEN", "wv_guessed")
        done = run_command("streams", "list", *with_url, running.address)
        assert (done.returncode, "does not know the token in the variable" in done.stderr) == (1, True)
        monkeypatch.setenv("WINDVANE_TOKEN", secret)
        assert len(run("list", *with_url, running.address)["streams"]) == 3
        assert run("delete", "old", *with_url, running.address, "--yes") == {"deleted": "old"}
    finally:
        running.stop()


def test_a_stream_that_cannot_be_recovered(store: Path) -> None:
    """It is listed with the reason, does not keep others from being compacted, and can be deleted."""
    edit(store, "UPDATE events SET outcome = x'00' WHERE id >> 40 = 3")
    edit(store, "DELETE FROM snapshots")
    listed = run("list", "--store", store)
    assert [stream["name"] for stream in listed["unavailable"]] == ["whole"]
    assert "event" in listed["unavailable"][0]["reason"]
    assert "not recovered" in run_command("streams", "list", "--store", store).stdout
    assert run("compact", "--store", store)["compactions"][0]["removed"] == 3
    assert run("delete", "whole", "--store", store, "--yes") == {"deleted": "whole"}
    assert verify(store).is_sound


@pytest.mark.parametrize("answer", ["y", "n"])
def test_it_asks_before_it_deletes(store: Path, answer: str) -> None:
    main, worker = pty.openpty()
    line = [SCRIPT, "streams", "delete", "old", "--store", store, "--json"]
    process = subprocess.Popen(line, stdin=worker, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(worker)
    os.write(main, f"{answer}\n".encode())
    out, err = process.communicate(timeout=120)
    os.close(main)
    is_deleted = answer == "y"
    assert process.returncode == (0 if is_deleted else 1), err
    assert json.loads(out) == {"deleted": "old" if is_deleted else None}
    assert "Delete the stream 'old'" in err
    assert len(run("list", "--store", store)["streams"]) == (2 if is_deleted else 3)
