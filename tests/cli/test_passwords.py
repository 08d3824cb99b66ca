"""A password in the address of a database is in no output, log, answer or title of a process."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from support.postgres import Cluster
from support.server import keep_logging, until
from windvane.cli import main

CORE = "Wv7Hidden"  # in every form of the password
PASSWORD = f"/{CORE}@:?#%+ é"
WRONG = f"{CORE}-wrong"
PATHS = (
    "/", "/healthz", "/readyz", "/metrics", "/v1/cluster", "/v1/streams", "/v1/streams/none", "/docs", "/openapi.json",
    "/v1/streams?limit=x", "/none",
)  # fmt: skip
COMMANDS = [
    ["verify", "--store"],
    ["token", "list", "--store"],
    ["token", "add", "shop", "--store"],
    ["streams", "list", "--store"],
    ["streams", "delete", "none", "--yes", "--store"],
    ["streams", "copy", "missing.db"],
    ["store", "create"],
    ["backup", "--to", "b.db", "--store"],
    ["restore", "missing.db", "--store"],
    ["backup", "--to", "b.db"],  # an argument that the command does not expect
    ["serve", "--port"],
    ["store"],
    [],
]
SERVE = ["serve", "--port", "0", "--ha", "--log-level", "debug"]  # it does not start: there is no standby
WAITS = (
    "wrong",
    "no such",
    "unreachable",
)  # addresses for which a server waits, as for a database that is started later


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    """A server that asks for the password, and has a database."""
    cluster = Cluster(access="local all owner trust\nlocal all guest scram-sha-256")
    try:
        cluster.execute(f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
        cluster.execute("CREATE DATABASE shop OWNER guest")
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture
def address(guarded: Cluster) -> str:
    guarded.start()
    return guarded.url("shop", user="guest", password=PASSWORD)


def run(words: list[str], *, as_json: bool = False, debug: bool = False) -> str:
    """Return all that a command prints in this process, and the traceback of its error."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown), keep_logging():
        try:
            code = main([*words, *(["--json"] if as_json else []), *(["--debug"] if debug else [])])
        except (Exception, SystemExit) as error:
            code = 1
            shown.write("".join(traceback.format_exception(error)))
            shown.write(repr(vars(error)))
    return f"{shown.getvalue()}\nexit code {code}"


def list_addresses(cluster: Cluster) -> dict[str, str]:
    """Return addresses with the password, by what is wrong with them."""
    folder, part = quote(str(cluster.folder), safe=""), quote(PASSWORD, safe="")
    return {
        "nothing": cluster.url("shop", user="guest", password=PASSWORD),
        "nothing, as an option": f"postgresql://guest@/shop?host={folder}&password={part}",
        "wrong password": cluster.url("shop", user="guest", password=WRONG),
        "wrong password, as an option": f"postgresql:///shop?host={folder}&user=guest&password={WRONG}",
        "no such user": cluster.url("shop", user="nobody", password=PASSWORD),
        "no such database": cluster.url("none", user="guest", password=PASSWORD),
        "unreachable": f"postgresql://guest:{part}@127.0.0.1:1/shop",
        "no such host": f"postgresql://guest:{part}@{'x' * 70}.invalid/shop",
        "no such socket": f"postgres://guest:{part}@/shop?host=/none",
        "not encoded": f"postgresql://guest:{PASSWORD}@127.0.0.1:1/shop",
        "not encoded, without @": f"postgresql://guest:{CORE}",
        "not encoded, an option with @": f"postgresql://guest@127.0.0.1/shop?password=a@{CORE}",
        "bad escape": f"postgresql://guest:{CORE}%zz@127.0.0.1:1/shop",
        "bad port": f"postgresql://guest:{part}@127.0.0.1:port/shop",
        "password in place of the port": f"postgresql://guest@127.0.0.1:{CORE}/shop",
        "bad option": f"postgresql://guest:{part}@127.0.0.1:1/shop?colour=red",
        "upper case": f"POSTGRESQL://guest:{part}@127.0.0.1:1/shop",
        "of another library": f"postgresql+psycopg://guest:{part}@127.0.0.1:1/shop",
        "one slash": f"postgresql:/guest:{part}@127.0.0.1:1/shop",
        "no slash": f"postgresql:guest:{part}@127.0.0.1:1/shop",
        "of another kind": f"host=127.0.0.1 port=1 password={CORE}",
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_prints_the_password(
    words: list[str], guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guarded.start()
    for name, url in list_addresses(guarded).items():
        for options in ({}, {"as_json": True}, {"debug": True}):
            shown = run([*words, url], **options)
            assert CORE not in shown, (name, shown)
    assert [path.name for path in tmp_path.rglob("*") if CORE in path.name] == []


def test_commands_work_with_a_password_of_special_characters(address: str, tmp_path: Path) -> None:
    for words in (
        ["store", "create", address],
        ["verify", "--store", address],
        ["streams", "list", "--store", address],
    ):
        assert run(words).endswith("exit code 0")
    assert "from postgresql://guest@/shop" in run(["streams", "copy", address, str(tmp_path / "b.db")])


def test_variables_and_files_keep_the_password(
    guarded: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "service.toml"
    for name, url in list_addresses(guarded).items():
        config.write_text(f"store = {json.dumps(url)}\n", encoding="utf-8")
        lines = [["verify"]] if name.startswith(WAITS) else [["verify"], SERVE, [*SERVE, "--log-format", "json"]]
        for words in lines:
            monkeypatch.setenv("WINDVANE_STORE", url)
            shown = run(words)
            monkeypatch.delenv("WINDVANE_STORE")
            if words[0] == "serve":
                shown += run([*words, "--config", str(config)])
            assert CORE not in shown, (name, shown)
            assert not shown.endswith("exit code 0") or name.startswith("nothing")


class Server:
    """``windvane serve`` with the password on its command line; all that it writes is kept."""

    def __init__(self, *options: str) -> None:
        line = [sys.executable, "-m", "windvane.cli", "serve", "--port", "0", "--log-level", "debug", "--access-log"]
        self._process = subprocess.Popen([*line, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines += iter(self._process.stdout.readline, "")

    @property
    def address(self) -> str:
        return self.wait_for("starting at ", 120.0).split()[0]

    def wait_for(self, beginning: str, seconds: float = 20.0) -> str:
        """Return the rest of the first line with this ``beginning``."""
        lines = until(lambda: [line for line in self._lines if line.startswith(beginning)], seconds)
        return lines[0].removeprefix(beginning)

    def has_logged(self, text: str) -> bool:
        return any(text in line for line in self._lines)

    def read_title(self) -> str:
        return Path(f"/proc/{self._process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and everything of an answer."""
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=60) as answer:
                return answer.status, f"{answer.headers}{answer.read().decode()}"
        except urllib.error.HTTPError as error:
            return error.code, f"{error.headers}{error.read().decode()}"

    def stop(self) -> str:
        self._process.terminate()
        with self._process:  # closes the pipe
            self._reader.join(60)
        return "".join(self._lines)


@pytest.mark.parametrize("form", ["--store URL", "--store=URL"])
def test_a_server_shows_the_password_to_nobody(form: str, guarded: Cluster, address: str) -> None:
    run(["store", "create", address])
    run(["token", "open", "--store", address])  # other tests add one
    server = Server(*(["--store", address] if " " in form else [f"--store={address}"]), "--node", "a")
    try:
        until(lambda: server.get("/readyz")[0] == 200, 120.0)
        assert server.wait_for("starting at ").startswith(f"{server.address}  (store: postgresql:///shop;")
        assert server.wait_for("ready: ") == f"{server.address}/  (Ctrl-C stops)\n"
        title = server.read_title()
        assert "windvane.cli serve" in title
        assert f"{form.removesuffix('URL')}postgresql:... --node a" in title
        answers = [server.get(path) for path in PATHS]
        guarded.stop("immediate")
        until(lambda: server.get("/readyz")[0] == 503)
        answers += [server.get(path) for path in PATHS]
        guarded.start()
        until(lambda: server.get("/readyz")[0] == 200, 60.0)
        answers += [server.get(path) for path in PATHS]
    finally:
        shown = server.stop()
    assert CORE not in title
    assert CORE not in shown
    assert [body for _, body in answers if CORE in body] == []
    assert {status for status, _ in answers} >= {200, 404, 422, 503}
    assert "postgresql://guest@/shop" in shown


@pytest.mark.parametrize(("kind", "text"), [("wrong password", "refuses the connection"), ("unreachable", "not ready")])
def test_a_server_without_its_database_shows_it_neither(kind: str, text: str, guarded: Cluster) -> None:
    """One that is refused ends, the other waits."""
    server = Server("--store", list_addresses(guarded)[kind], "--log-format", "json", "--json")
    try:
        until(lambda: server.has_logged(text), 120.0)
        title = server.read_title()
    finally:
        shown = server.stop()
    assert CORE not in title
    assert CORE not in shown
