"""The page about the commands has every command, argument, option and example of the program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import cli_reference
import pytest
import typer.main

from windvane.cli.app import build_app
from windvane.cli.commands import COMMANDS


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The text about each command, by its words."""
    parts = re.split(r"^#{2,4} (.+)\n", cli_reference.write_commands(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def list_commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if words != "windvane":
        yield words, command
    for name, part in getattr(command, "commands", {}).items():
        yield from list_commands(f"{words} {name}", part)


def test_every_command_has_its_section(sections: dict[str, str]) -> None:
    commands = dict(list_commands("windvane", typer.main.get_command(build_app())))
    assert sections.keys() - {command.panel for command in COMMANDS.values()} == commands.keys()
    for words, command in commands.items():
        text = sections[words]
        for parameter in command.params:
            names = parameter.opts if parameter.param_type_name == "option" else [parameter.metavar or parameter.name]
            assert [name for name in names if not re.search(rf"^`{name}[ .`]", text, re.M)] == [], words
        examples = re.findall(r"^  (windvane .*)$", command.help, re.M)
        assert [example for example in examples if f"\n{example}\n" not in text] == [], words
        assert ("```console" in text) == bool(examples), words


def test_defaults_and_variables_are_shown(sections: dict[str, str]) -> None:
    text = sections["windvane serve"]
    assert "(environment variable `WINDVANE_PORT`, default `8000`, 0\\<=x\\<=65535)" in text
    assert "Needs the extra `service`." in text


def test_commands_in_quotes_are_code(sections: dict[str, str]) -> None:
    assert "(`windvane new` writes one)" in sections["windvane simulate"]
