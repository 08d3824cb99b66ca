"""The program: all commands, in the panels of the help."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Any

import typer

import windvane
from windvane.cli.commands import COMMANDS

HELP = """Bandits in a drifting world: run and compare experiments, reproduce the paper, serve decisions.

Examples:
  windvane reproduce                   the paper's experiment, with a report
  windvane new spec.toml               a commented example of an experiment
  windvane simulate spec.toml          run it, on all cores
  windvane compare spec-results        differences with confidence intervals
  windvane benchmark drift --quick     every policy in twelve worlds
  windvane serve --store windvane.db   decisions over HTTP, and a live page
  windvane demo                        the service with a simulated audience
"""
EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted."


def build_app(imported: Collection[str] = COMMANDS.keys()) -> typer.Typer:
    """Return the program. Only the commands in ``imported`` are imported and can run; the others are only listed.

    Importing takes time, and a command may need libraries that are not installed.
    """
    app = typer.Typer(help=reflow(HELP), epilog=EPILOG, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_options)
    for name, command in COMMANDS.items():
        listing: dict[str, Any] = {"short_help": command.summary, "rich_help_panel": command.panel}
        target = _load(command.target) if name in imported else _list_only
        if isinstance(target, typer.Typer):
            for part in target.registered_commands:
                part.help = reflow(part.callback.__doc__ if part.callback else None)
            app.add_typer(target, name=name, help=reflow(target.info.help), **listing)
        else:
            app.command(name, help=reflow(target.__doc__), **listing)(target)
    return app


def reflow(text: str | None) -> str:
    """Join the lines of each paragraph, because typer breaks them again; those of examples stay as they are."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(f"\b\n{p}" if p.startswith("Example") else p.replace("\n", " ") for p in paragraphs)


def _load(target: str) -> Any:
    module, _, attribute = target.partition(".")
    return getattr(import_module(f"windvane.cli.{module}"), attribute)


def _list_only() -> None:
    raise AssertionError("a command that was not imported cannot run")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"windvane {windvane.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (any command).")] = False,
) -> None:
    """Options of every command; ``--debug`` is removed from the arguments before this is called."""
