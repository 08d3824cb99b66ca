"""The options of ``windvane serve``: from the command line, the environment or a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support.server import run_command
from windvane.cli.serving import warn_of_variables

FILE = """
store = "file.db"
host = "127.0.0.9"
port = 1111
rate = 5.5
body-limit = 2048
max-streams = 77
drain = 3
log-format = "json"
log-level = "error"
access-log = true
skip-probes = true
tracing = "otlp"
personalizer = "homepage"
node = "a"
node-url = "http://10.0.0.5:1111"
ha = true
"""
SETTINGS: dict[str, Any] = {
    "store": "file.db", "host": "127.0.0.9", "rate": 5.5, "most_bytes": 2048, "most_streams": 77, "drain": 3.0,
    "log_requests": True, "skip_probes": True, "node": "a", "node_url": "http://10.0.0.5:1111", "ha": True,
    "tracing": "otlp", "personalizer": "homepage",
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments with which the command would run a server and configure its log, in a folder of its own."""
    taken: dict[str, Any] = {}

    def serve(path: Path, **more: Any) -> None:
        taken.update(more, store=str(path))

    monkeypatch.setattr("windvane.service.server.serve", serve)
    monkeypatch.setattr("windvane.service.logs.configure_logging", lambda *a: taken.update(log=a))
    monkeypatch.chdir(tmp_path)
    return taken


def without_callbacks(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without the functions that print the address and "ready", which must be there."""
    assert callable(settings["started"])
    assert callable(settings["ready"])
    return {name: value for name, value in settings.items() if name not in ("started", "ready")}


def test_the_command_line_comes_before_the_environment_and_this_before_the_file(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "service.toml").write_text(FILE)
    monkeypatch.setenv("WINDVANE_PORT", "2222")
    monkeypatch.setenv("WINDVANE_LOG_LEVEL", "debug")
    monkeypatch.setenv("WINDVANE_CONFIG", "service.toml")
    assert run_command("serve", "--port", "3333").returncode == 0
    assert without_callbacks(settings) == {**SETTINGS, "port": 3333, "log": ("json", "debug")}


def test_every_option_has_a_variable(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for line in FILE.split("\n")[1:-1]:
        name, _, value = line.partition(" = ")
        monkeypatch.setenv(f"WINDVANE_{name.upper().replace('-', '_')}", value.strip('"'))
    assert run_command("serve").returncode == 0
    assert without_callbacks(settings) == {**SETTINGS, "port": 1111, "log": ("json", "error")}


def test_unknown_variables_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """Those of clients are not."""
    names = ("WINDVANE_PROT", "WINDVANE_XYZZY", "WINDVANE_TOKEN", "WINDVANE_CACHE_DIR", "WINDVANE_NODE_URL", "PATH")
    warn_of_variables(dict.fromkeys(names, "1"))
    assert [record.getMessage() for record in caplog.records] == [
        "the variable WINDVANE_PROT is unknown; did you mean WINDVANE_PORT?",
        "the variable WINDVANE_XYZZY is unknown",
    ]


@pytest.mark.parametrize(
    ("text", "mentions"),
    [
        ("prot = 1", ("prot", f"allowed are {', '.join(sorted(re.findall('^[a-z-]+', FILE, re.M)))}")),
        ("json = true", ("json", "allowed are")),
        ("[serve]\nport = 1", ("serve", "allowed are")),
        ("port = 99999", ("port: must be less than or equal to 65535\n",)),
        ('port = "x"', ("port: must be an integer\n",)),
        ('rate = "x"', ("rate: must be a number\n",)),
        ("port = true", ("port", "a number")),
        ("port = [1]", ("port", "a number")),
        ('access-log = "yes"', ("access-log", "true or false")),
        ('log-format = "xml"', ("log-format: 'xml' is not one of 'text', 'json'",)),
        ("port\n", ("not TOML", "line 1")),
        (f"port = {'[' * 10_000}", ("not TOML", "recursion")),
        (None, ("No such file",)),
    ],
)
def test_a_file_that_is_refused(
    settings: dict[str, Any], tmp_path: Path, text: str | None, mentions: tuple[str, ...]
) -> None:
    if text is not None:
        (tmp_path / "service.toml").write_text(text)
    result = run_command("serve", "--config", "service.toml")
    assert (result.returncode, settings) == (2, {})
    assert result.stderr.startswith("windvane: error: service.toml: ")
    assert all(mention in result.stderr for mention in mentions), result.stderr
