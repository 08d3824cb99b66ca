"""The commands, by name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

import windvane

HELP = """Bandits in a drifting world: reproduce the paper, run and compare experiments, serve decisions.

\b
Examples:
  windvane reproduce                     the paper's experiment, with figures and a report
  windvane new spec.toml                 a commented example of an experiment
  windvane simulate spec.toml            run it, on all cores
  windvane compare results               paired differences, with confidence intervals
  windvane benchmark drift --quick       every policy in twelve drifting worlds
  windvane benchmark streams data.csv    every policy on labelled data of your own
  windvane serve --store windvane.db     decisions over HTTP, and a live page
  windvane demo                          a one-minute demonstration with a simulated audience

Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.
"""

COMMANDS = {
    "reproduce": "experiments.reproduce",
    "simulate": "experiments.simulate",
    "tune": "tuning.tune",
    "report": "analyse.report",
    "compare": "analyse.compare",
    "bound": "bounds.bound",
    "policies": "policies.policies",
    "study": "studies.study",
    "serve": "serving.serve",
    "token": "serving.token",
    "verify": "serving.verify",
    "backup": "backups.backup",
    "restore": "backups.restore",
    "demo": "demo.demo",
    "compile": "start.compile_kernels",
    "new": "start.new",
    "doctor": "start.doctor",
    "benchmark": "benchmark.benchmark",
}
"""Where the commands are, by name, in the order of the help."""


def build_app(command: str | None = None) -> typer.Typer:
    """Return the program. With ``command``, import only that one; others may need libraries that are not installed."""
    app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_options)
    names: Iterable[str] = [command] if command in COMMANDS else COMMANDS
    for name in names:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(import_module(f"windvane.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _version(asked: bool) -> None:
    if asked:
        print(f"windvane {windvane.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (any command).")] = False,
) -> None:
    """Options of every command; ``--debug`` is removed from the arguments before this is called."""
