"""The program: all commands, in the panels of the help."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any

import typer

import windvane
from windvane.cli.commands import COMMANDS, Group
from windvane.cli.options import AsJson

HELP = """Bandits in a drifting world: run experiments, reproduce the paper, serve decisions, analyse logs.

Examples:
  windvane reproduce                   the paper's experiment, with a report
  windvane new spec.toml               a commented example of an experiment
  windvane simulate spec.toml          run it, on all cores
  windvane compare spec-results        differences with confidence intervals
  windvane benchmark drift --quick     every policy in twelve worlds
  windvane serve --store windvane.db   decisions over HTTP, and a live page
  windvane demo                        the service with a simulated audience
  windvane drift log.ndjson            does the world of your log drift, and how fast?
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
        if isinstance(target, Group):
            group = typer.Typer(no_args_is_help=True)
            for verb, part in target.commands.items():
                group.command(verb, help=reflow(part.__doc__))(adapt(part))
            app.add_typer(group, name=name, help=reflow(target.help), **listing)
        else:
            app.command(name, help=reflow(target.__doc__), **listing)(adapt(target))
    return app


def adapt(command: Callable[..., Any]) -> Callable[..., None]:
    """Return a command as typer calls it: with the fields of its groups of options, and with ``--json``.

    A group of options is a parameter that is a dataclass; its fields follow the command's own options. The command
    returns an :class:`~windvane.cli.console.Answer`, which is printed, or prints by itself and has ``as_json``.
    """
    own = _list_parameters(command)
    groups: dict[str, Any] = {name: p.annotation for name, p in own.items() if dataclasses.is_dataclass(p.annotation)}
    parameters = {name: parameter for name, parameter in own.items() if name not in groups}
    for group in groups.values():
        parameters |= _list_parameters(group)
    parameters.setdefault("as_json", Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in _list_parameters(group)})
        if "as_json" in own:  # it prints by itself
            command(**values)
            return
        as_json = values.pop("as_json")
        with own_output_to_stderr():
            answer = command(**values)
        if code := answer.print(as_json):
            raise typer.Exit(code)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def own_output_to_stderr() -> Iterator[None]:
    """Send what is printed inside to stderr, by worker processes too: code of the user may print."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _list_parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    parameters = inspect.signature(function, eval_str=True).parameters
    return {name: parameter.replace(kind=Parameter.KEYWORD_ONLY) for name, parameter in parameters.items()}


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
