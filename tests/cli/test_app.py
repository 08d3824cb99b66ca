"""The help: panels, examples, and what is imported for it."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
import typer.main

from support.server import run_command
from windvane.cli.app import adapt, build_app, reflow
from windvane.cli.commands import COMMANDS
from windvane.cli.console import Answer
from windvane.cli.options import AsJson


def list_commands() -> dict[str, Any]:
    """Return the commands and sub-commands by the words that call them."""
    by_words = {}
    for name, command in typer.main.get_command(build_app()).commands.items():  # type: ignore[attr-defined]
        parts = getattr(command, "commands", {"": command})
        by_words |= {f"{name} {verb}".strip(): part for verb, part in parts.items()}
    return by_words


PANELS = {
    "Experiments": ["new", "spec", "simulate", "report", "compare", "export", "tune", "bound"],
    "Benchmarks and studies": ["reproduce", "benchmark", "study", "policies"],
    "Live": ["serve", "demo", "token", "streams", "store", "verify", "backup", "restore"],
    "Logs": ["check", "drift", "replay"],
    "Installation": ["doctor", "compile"],
}


@pytest.mark.parametrize("columns", [80, 120])
def test_commands_are_in_panels(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = run_command("--help").stdout
    assert max(map(len, text.splitlines())) == columns
    for panel, names in PANELS.items():
        body = text[text.index(f"╭─ {panel} ─") :].partition("╰─")[0]
        assert re.findall(r"^│ ([a-z]+)", body, re.M) == names
        for name in names:
            assert re.search(rf"^│ {name} +{re.escape(COMMANDS[name].summary)} +│$", body, re.M)  # on one line
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted." in text


@pytest.mark.parametrize("words", list_commands())
def test_every_command_has_help_with_an_example(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    done = run_command(*words.split(), "--help")
    assert done.returncode == 0
    assert re.search(rf"Examples?:(.|\n)*windvane {words}", done.stdout), done.stdout
    assert "--json" in done.stdout


@pytest.mark.parametrize(
    ("words", "panels"),
    [
        ("serve", ["Options", "Address and limits", "Logging and traces", "Several nodes (PostgreSQL only)", "Output"]),
        ("reproduce", ["Options", "Size", "Where it runs", "Output"]),
        ("benchmark drift", ["Options", "Size", "Where it runs", "Output"]),
    ],
)
def test_options_are_in_panels(words: str, panels: list[str]) -> None:
    text = run_command(*words.split(), "--help").stdout
    assert re.findall(r"^╭─ (.+?) ─", text, re.M) == panels


def test_an_option_means_the_same_in_every_command() -> None:
    """The same help text and, where there are panels, the same panel. The exceptions are of different concepts."""
    known = {"--policy": "", "--replace": "a file, or a store with all its files", "--S": "assumed, or known"}
    known |= {"--features": "of arms in a log, or the declaration of a stream"}
    known |= {"--config": "all options of serve, or the store among them", "--store": "of files only, for backup"}
    texts: dict[str, set[tuple[str, str | None]]] = {}
    for command in list_commands().values():
        for option in command.params:
            if option.opts[0].startswith("--") and option.opts[0] not in known:
                texts.setdefault(option.opts[0], set()).add((option.help, option.rich_help_panel))
    texts["--port"] = {(text, None) for text, _ in texts["--port"]}  # that of demo is not in a panel
    assert {name: text for name, text in texts.items() if len(text) > 1} == {}


@dataclass(frozen=True)
class Place:
    """A group of options, for the test below."""

    out: Annotated[str, typer.Option(help="Where.")] = "here"


def test_groups_of_options_become_single_ones() -> None:
    """They come after the command's own, before --json."""
    calls = []

    def run(place: Place, name: str, count: int = 1) -> Answer:
        calls.append((place, name, count))
        return Answer({"name": name}, [name], 3)

    command = adapt(run)
    assert list(inspect.signature(command).parameters) == ["name", "count", "out", "as_json"]
    with pytest.raises(typer.Exit) as caught:
        command(name="a", count=2, out="there", as_json=False)
    assert caught.value.exit_code == 3
    assert calls == [(Place("there"), "a", 2)]


def test_a_command_may_print_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    def run(as_json: AsJson = False) -> None:
        print(as_json)

    adapt(run)(as_json=True)
    assert capsys.readouterr().out == "True\n"


def test_only_the_command_that_runs_is_imported() -> None:
    names = typer.main.get_command(build_app(["token"])).commands  # type: ignore[attr-defined]
    assert names.keys() == COMMANDS.keys()
    assert list(names["token"].commands) == ["add", "list", "remove", "open"]
    assert not hasattr(names["benchmark"], "commands")


def test_paragraphs_are_reflowed_and_examples_are_not() -> None:
    assert reflow("A.\n\n    C\n    d.\n\n    Example:\n      f\n") == "A.\n\nC d.\n\n\b\nExample:\n  f"
