"""Every snippet in the README and the docs runs, page by page, as a reader would run it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer.main

from support.pages import LIBRARY_HOWTOS
from windvane.cli.app import build_app
from windvane.lab.spec.experiment_spec import Spec
from windvane.service.http.app import create_app
from windvane.service.problems import KINDS, REQUEST_CAUSES
from windvane.service.readiness import CAUSES
from windvane.service.store import KINDS as KIND_NAMES
from windvane.service.store import SqliteStore
from windvane.testing import serve

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTED_ELSEWHERE = {ROOT / "docs" / "howto" / f"{name}.md" for name in LIBRARY_HOWTOS}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.fixture
def service(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For a page that talks to the service, run one at the default address of the client."""
    if not any("windvane.Client(" in code for code in blocks(page, "python")):
        yield
        return
    with serve(tmp_path / "windvane.db") as client:
        monkeypatch.setenv("WINDVANE_URL", client.url)
        yield


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TESTED_ELSEWHERE], ids=lambda page: page.name)
@pytest.mark.usefixtures("service")
def test_python_snippets_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for number, code in enumerate(blocks(page, "python")):
        exec(compile(code, f"{page.name}, snippet {number + 1}", "exec"), namespace)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_commands_of_the_service_run_as_pasted(tmp_path: Path) -> None:
    """Run all blocks with curl in one shell, with the port of a live server; an answer that is an error ends it."""
    commands = [code for code in blocks(ROOT / "docs" / "service.md", "console") if "curl " in code]
    assert len(commands) == 3
    (tmp_path / ".curlrc").write_text('fail\nwrite-out = "%{stderr}%{http_code} %{url_effective}\\n"\n')
    with serve(tmp_path / "windvane.db") as client:
        script = "".join(commands).replace("localhost:8000", f"localhost:{client.url.rpartition(':')[2]}")
        environment = {**os.environ, "CURL_HOME": str(tmp_path), "NO_PROXY": "localhost"}
        line = ["bash", "-e", "-o", "pipefail", "-c", script]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        info = client.info("homepage")
    assert '"status":"recorded"' in done.stdout
    assert (info.counts.decisions, info.counts.settled, info.mean_reward) == (1, 1, 1.0)
    assert any(info.theta.values())
    lines = (tmp_path / "events.ndjson").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["decided", "rewarded"]
    assert (tmp_path / "events.parquet").read_bytes()[:4] == b"PAR1"


def test_routes_in_the_docs_are_those_of_the_service(tmp_path: Path) -> None:
    """All of them, with their methods."""
    text = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    table = text[text.index("## Routes") : text.index("## Errors")]
    listed = set()
    for request in re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) )?(/[^ `?]+)[^`]*`", table):
        method, path = request[0].strip() or "GET", request[1].replace("NAME", "{stream}").replace("ID", "{decision}")
        listed.add((method, path))
    with contextlib.closing(SqliteStore(tmp_path / "windvane.db")) as store:
        paths = create_app(store).app.openapi()["paths"]
    assert listed == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_causes_in_the_docs_are_those_of_the_service() -> None:
    cells = read_rows("| cause | why", "The client raises")
    assert {cause for cell in cells for cause in re.findall(r"\w+", cell)} == CAUSES.keys() | REQUEST_CAUSES.keys()


def test_problem_codes_in_the_docs_are_those_of_the_service() -> None:
    text = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    table = text[text.index("| status | codes |") : text.index("The problem `unavailable`")]
    listed = {}
    for line in table.splitlines()[2:]:
        statuses, codes = line.split("|")[1:3] if line else ("", "")
        listed |= dict.fromkeys(re.findall(r"`([a-z-]+)`", codes), statuses)
    assert listed.keys() == KINDS.keys()
    assert [code for code, statuses in listed.items() if str(KINDS[code].status) not in statuses] == []


def read_rows(start: str, end: str, page: str = "service.md") -> dict[str, str]:
    """Return the last cells of a table by the first."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    table = text[text.index(start) : text.index(end, text.index(start))]
    cells = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return {row[0].strip(" `"): row[-1] for row in cells[2:]}


def test_events_in_the_docs_are_those_of_the_log(tmp_path: Path) -> None:
    """All kinds, the fields of those that a sound service writes, and the columns of the export."""
    listed = {kind: set(re.findall(r"`(\w+)`", cell)) for kind, cell in read_rows("| kind |", "Parquet has").items()}
    assert list(listed) == list(KIND_NAMES.values())
    arms = {"red": [0.5], "blue": [1.0]}
    found: dict[str, set[str]] = {}
    with serve(tmp_path / "windvane.db") as client:
        client.create("short", dim=1, retention="1ms")
        client.decide("short", arms)
        client.create("whole", dim=1, reward_timeout=3, max_pending=2)
        first, *_ = client.decide_many("whole", [arms] * 5)
        client.configure("whole", max_pending=100)
        client.reward("whole", first, 1.0)
        client.reward("whole", client.decide("whole", arms), 1.0)
        client.history("whole", rewards=[1], vectors=[[0.5]])
        client.refit("whole", half_life=10)
        client.undo_refit("whole")
        client.archive("whole")
        client.unarchive("whole")
        client.erase_context("whole", first)
        client.create("parts", dim=1, reward_timeout=1, default_reward=0.0)
        decision = client.decide("parts", arms)
        client.add_reward("parts", decision, 0.5)
        client.decide_many("parts", [arms] * 3)
        client.add_reward("parts", decision, 0.5)
        assert client.compact("short").removed > 0
        for event in [*client.events("whole"), *client.events("parts"), *client.events("short")]:
            found.setdefault(event["kind"], set()).update(event)
        url = f"{client.url}/v1/streams/whole/events?format=parquet"
        with urllib.request.urlopen(url) as answer:
            columns = pq.read_schema(io.BytesIO(answer.read())).names
    shared = {"number", "time", "kind", "decision", "key"}
    assert found.keys() == listed.keys() - {"lost", "unreadable"}
    for kind, fields in found.items():
        extra = {"arms", "context", "max_pending"}  # inside a field, or a setting
        assert fields - shared == listed[kind] - extra, kind
    text = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
    sentence = text[text.index("Parquet has the same columns") :].partition("\n\n")[0]
    assert re.findall(r"`(\w+)`", sentence) == columns


def test_codes_of_verify_in_the_docs_are_those_of_the_report() -> None:
    rows = read_rows("| list | codes |", "## Damage", "operations.md")
    listed = [code for cell in rows.values() for code in re.findall(r"`(\w+)`", cell)]
    source = (ROOT / "src" / "windvane" / "service" / "verification.py").read_text(encoding="utf-8")
    pattern = r'(?:Finding|\.add)\("(\w+)"|^ +"(\w+)": f?"'  # added, or counted in a table
    assert set(listed) == {first or second for first, second in re.findall(pattern, source, flags=re.M)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_only_known_kinds_of_snippets(page: Path) -> None:
    """A fence of another kind would not be run."""
    kinds = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), flags=re.M)
    assert set(kinds) <= {"", "python", "console", "text", "toml"}, kinds


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_specs_in_the_docs_are_valid(page: Path) -> None:
    """Every spec on a page can be run."""
    for number, text in enumerate(blocks(page, "toml")):
        Spec.parse(text, f"{page.name}, spec {number + 1}").check()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_docs_exist(page: Path) -> None:
    """The commands and options that a page shows are ones that the program has."""
    group = typer.main.get_command(build_app())
    for code in blocks(page, "console"):
        for line in re.findall(r"^(?:sudo -u windvane )?windvane (.*?)(?: +#.*)?$", code, flags=re.M):
            command, words = group, shlex.split(line)
            while hasattr(command, "commands"):  # a group: the next word is the name of one of its commands
                command = command.commands[words.pop(0)]
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known, line


def test_make_targets_in_snippets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {t for page in PAGES for code in blocks(page, "console") for t in re.findall(r"^make (\w+)", code, re.M)}
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """To a file that exists, and to a heading that it has."""
    for target, _, heading in re.findall(r"\]\((?!http)([^)#]*)(#([^)]+))?\)", page.read_text(encoding="utf-8")):
        leads_to = page.parent / target if target else page
        assert leads_to.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.+)$", leads_to.read_text(encoding="utf-8"), re.M)
            assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, heading


@pytest.mark.parametrize("package", ["agent", "cli", "client", "environments", "lab", "logs", "service"])
def test_the_layout_names_every_module(package: str) -> None:
    """And no module that does not exist."""
    text = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8")
    layout = text[text.index("## Layout") : text.index("Imports point one way")]
    part = re.search(rf"^  {package}/.*?(?=^(?:  )?[a-z])", layout, flags=re.M | re.S)
    assert part is not None
    modules = {path.stem for path in (ROOT / "src" / "windvane" / package).rglob("*.py") if path.stem[:2] != "__"}
    assert modules - set(re.findall(r"\w+", part[0])) == set()
    assert set(re.findall(r"(\w+)\.py\b", part[0])) <= modules
