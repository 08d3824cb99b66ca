"""The page about the commands: each with its help, arguments, options and examples, from the program itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import markdown_text
import typer.main

from windvane.cli.app import EPILOG, build_app
from windvane.cli.commands import COMMANDS

NOTES = re.compile(r"  \[(.*)\]$")  # what typer adds to the help of an option
EXAMPLES = "\b\nExample"  # how a paragraph of examples begins


def write_commands() -> str:
    """Return a section for each panel of the help, with its commands."""
    return "\n".join(_write_panels())


def _write_panels() -> Iterator[str]:
    program = typer.main.get_command(build_app())
    yield f"{EPILOG}\n"
    for panel in dict.fromkeys(command.panel for command in COMMANDS.values()):
        yield f"## {panel}\n"
        for name, command in COMMANDS.items():
            if command.panel == panel:
                yield from _write_command(program.commands[name], f"windvane {name}", 3, command.extra)  # type: ignore[attr-defined]


def _write_command(command: Any, words: str, level: int, extra: str) -> Iterator[str]:
    context = command.context_class(command, info_name=words)
    yield f"{'#' * level} {words}\n"
    paragraphs = command.help.split("\n\n")
    examples = paragraphs.pop() if paragraphs[-1].startswith(EXAMPLES) else ""
    yield from (f"{_mark_commands(paragraph)}\n" for paragraph in paragraphs)
    yield f"```text\n{' '.join([words, *command.collect_usage_pieces(context)])}\n```\n"
    panels: dict[str, list[Any]] = {}
    for parameter in command.get_params(context):
        if parameter.name != "help":
            title = "Arguments" if parameter.param_type_name == "argument" else parameter.rich_help_panel or "Options"
            panels.setdefault(title, []).append(parameter)
    for title, parameters in panels.items():
        yield f"**{title}**\n"
        yield from (_describe(*parameter.get_help_record(context)) for parameter in parameters)
    if examples:
        title, *lines = examples.removeprefix("\b\n").splitlines()
        yield f"**{title.rstrip(':')}**\n"
        yield "```console\n" + "\n".join(line.removeprefix("  ") for line in lines) + "\n```\n"
    if level == 3:
        yield f"Needs the extra `{extra}`.\n"
    for name, part in getattr(command, "commands", {}).items():
        yield from _write_command(part, f"{words} {name}", level + 1, extra)


def _describe(names: str, text: str) -> str:
    """Return the entry of an option in a definition list."""
    notes = NOTES.search(text)
    if notes is None:
        return f"`{names}`\n: {_mark_commands(text)}\n"
    shown = []
    for note in notes[1].split("; "):
        label, _, value = note.rpartition(": ")
        shown.append(
            f"{label.replace('env var', 'environment variable')} `{value}`" if label else markdown_text.escape(note)
        )
    return f"`{names}`\n: {_mark_commands(text[: notes.start()])} ({', '.join(shown)})\n"


def _mark_commands(text: str) -> str:
    """Return text in which commands in quotes are code."""
    return markdown_text.escape(re.sub(r"(?<!\w)'(windvane [a-z -]+)'", r"`\1`", text))
