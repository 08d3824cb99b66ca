"""The tables of docs/reference/http.md against the code: routes, problems, causes, settings."""

from __future__ import annotations

import contextlib
import re
import tomllib
from pathlib import Path

import typer.main

from support.service_pages import DEPLOY, REFERENCE, read_rows, read_section
from windvane.cli.app import build_app
from windvane.records import Decision
from windvane.service.http.app import create_app
from windvane.service.problems import KINDS, REQUEST_CAUSES
from windvane.service.readiness import CAUSES
from windvane.service.store import SqliteStore

PAGE = REFERENCE / "http.md"


def read_codes(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z-]+)`", cell))


def test_routes_are_those_of_the_service(tmp_path: Path) -> None:
    """All of them, with their methods."""
    listed = set()
    for request in re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) )?(/[^ `?]+)[^`]*`", read_section(PAGE, "Routes")):
        method, path = request[0].strip() or "GET", request[1].replace("NAME", "{stream}").replace("ID", "{decision}")
        listed.add((method, path))
    with contextlib.closing(SqliteStore(tmp_path / "windvane.db")) as store:
        paths = create_app(store).app.openapi()["paths"]
    assert listed == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_fields_of_a_decision() -> None:
    listed = [name for row in read_rows(PAGE, "| field | meaning |") for name in re.findall(r"`(\w+)`", row[0])]
    described = [*listed, "time", "preferred"]  # `preferred` beside `explored`; the time needs no explanation
    assert sorted(described) == sorted(Decision.__slots__)


def test_problem_codes() -> None:
    """Each is listed with its status."""
    rows = read_rows(PAGE, "| status | codes |")
    listed = {code: statuses for statuses, codes in rows for code in read_codes(codes)}
    assert listed.keys() == KINDS.keys()
    assert [code for code, statuses in listed.items() if str(KINDS[code].status) not in statuses] == []


def test_causes() -> None:
    listed = {code for cell, _ in read_rows(PAGE, "| cause | why") for code in read_codes(cell)}
    assert listed == CAUSES.keys() | REQUEST_CAUSES.keys()


def test_settings_are_the_options_of_serve() -> None:
    """The table has every option, its variable and its default; the example sets or mentions every one."""
    serve = typer.main.get_command(build_app()).commands["serve"]  # type: ignore[attr-defined]
    options = {option.opts[0].removeprefix("--"): option for option in serve.params}
    for name in ("config", "json"):
        del options[name]
    rows = {row[0].strip("`"): [cell.strip("`") for cell in row[1:3]] for row in read_rows(PAGE, "| option | variable")}
    assert rows.keys() == options.keys()
    for name, shown in rows.items():
        assert shown == [options[name].envvar, str(options[name].default).lower().removesuffix(".0")]
    example = (DEPLOY / "service.toml").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:# )?([a-z-]+) = ", example, re.M)) == options.keys()
    uncommented = re.sub(r"^# (?=[a-z-]+ = )", "", example, flags=re.M)
    defaults = {name: value for name, value in tomllib.loads(uncommented).items() if f"# {name} = " in example}
    assert {name: options[name].default or defaults[name] for name in defaults} == defaults  # None: an example
