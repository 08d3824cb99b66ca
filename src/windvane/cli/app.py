"""The commands, by name."""

from __future__ import annotations

from typing import Annotated

import typer

import windvane
from windvane.cli import (
    analyse,
    backups,
    benchmark,
    bounds,
    demo,
    experiments,
    policies,
    serving,
    start,
    studies,
    tuning,
)

HELP = """Bandits in a drifting world: reproduce the paper, run and compare experiments, serve decisions.

\b
Examples:
  windvane reproduce                     the paper's experiment, with figures and a report
  windvane new spec.toml                 a commented example of an experiment
  windvane simulate spec.toml            run it, on all cores
  windvane compare results               who is better, with confidence intervals
  windvane benchmark drift --quick       every policy in twelve drifting worlds
  windvane benchmark streams data.csv    every policy on labelled data of your own
  windvane serve --store windvane.db     decisions over HTTP, and a live page
  windvane demo                          a minute of it, with a simulated audience

Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.
"""

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        print(f"windvane {windvane.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (any command).")] = False,
) -> None:
    """Options of every command; ``--debug`` is taken out of the arguments before they come here."""


for command in (
    experiments.reproduce,
    experiments.simulate,
    tuning.tune,
    analyse.report,
    analyse.compare,
    bounds.bound,
    policies.policies,
    studies.study,
    serving.serve,
    serving.token,
    serving.verify,
    backups.backup,
    backups.restore,
    demo.demo,
    start.new,
    start.doctor,
):
    app.command()(command)
app.add_typer(benchmark.benchmark, name="benchmark")
