"""Options that several commands share. One concept has one name, one help text and one panel in all commands.

The order in a command: its own options, then size (runs, horizon, seed), place (jobs, cluster), output (out, restart,
json, which every command has). An alias that starts with ``Optional`` is for commands whose default depends on other
arguments. A command has all options of a dataclass if it has a parameter of that type: see ``windvane.cli.app.adapt``.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import hide_address

SIZE, PLACE, OUTPUT = "Size", "Where it runs", "Output"


def split_names(text: str | None) -> list[str] | None:
    """Return the names in the value of an option, with commas between them; None if the option is not used."""
    return None if text is None else [name.strip() for name in text.split(",")]


def list_chosen(**options: Any) -> dict[str, Any]:
    """Return the options that are not None, by name."""
    return {name: value for name, value in options.items() if value is not None}


def complete_policy(incomplete: str) -> list[str]:
    """Return the names of policies that begin with ``incomplete``."""
    from windvane.policies.registry import POLICIES  # imports numba, which completing other words must not wait for

    return [name for name in POLICIES if name.startswith(incomplete)]


def complete_policies(incomplete: str) -> list[str]:
    """Return the completions of a list of policies with commas between them."""
    listed, comma, last = incomplete.rpartition(",")
    return [listed + comma + name for name in complete_policy(last) if name not in listed.split(",")]


_RUNS = typer.Option(help="Independent runs of each policy.", min=1, rich_help_panel=SIZE)
_HORIZON = typer.Option(help="Rounds of each run.", min=1, rich_help_panel=SIZE)
_SEED = typer.Option(help="Seed of all random numbers.", min=0, rich_help_panel=SIZE)
Runs = Annotated[int, _RUNS]
OptionalRuns = Annotated[int | None, _RUNS]
Horizon = Annotated[int, _HORIZON]
OptionalHorizon = Annotated[int | None, _HORIZON]
Seed = Annotated[int, _SEED]
OptionalSeed = Annotated[int | None, _SEED]

Jobs = Annotated[
    int | None, typer.Option(help="Processes (default: one per core).", min=1, max=256, rich_help_panel=PLACE)
]
_CLUSTER_HELP = "Run on Dask: the scheduler's address (tcp://host:8786), or 'local'."
Cluster = Annotated[str | None, typer.Option(help=_CLUSTER_HELP, rich_help_panel=PLACE)]

Out = Annotated[Path | None, typer.Option(help="The folder to write to.", show_default=False, rich_help_panel=OUTPUT)]
Restart = Annotated[
    bool,
    typer.Option("--restart", help="Discard an experiment that is already in the folder.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True)
class Size:
    """How large an experiment is. None: as the command or its spec says."""

    runs: OptionalRuns = None
    horizon: OptionalHorizon = None
    seed: OptionalSeed = 0

    def list_chosen(self) -> dict[str, Any]:
        """Return the options that are not None, by name."""
        return list_chosen(**vars(self))


@dataclass(frozen=True)
class SpecSize(Size):
    """The size of an experiment whose spec also has a seed."""

    seed: OptionalSeed = None


@dataclass(frozen=True)
class RunOptions:
    """Where an experiment runs, and where its results go."""

    jobs: Jobs = None
    cluster: Cluster = None
    out: Out = None
    restart: Restart = False


Policy = Annotated[str, typer.Option(help="The policy to tune.", autocompletion=complete_policy)]
Policies = Annotated[
    str | None,
    typer.Option(help="Only these policies, separated by commas: OFUL,BVD-GLM-UCB", autocompletion=complete_policies),
]
SpecFile = Annotated[Path, typer.Argument(help="The spec of an experiment, a TOML file ('windvane new' writes one).")]
CheckPolicies = Annotated[
    bool,
    typer.Option("--check-policies", help='First run the conformance checks on your own policies ("module:Class").'),
]
WithDiagnostics = Annotated[
    bool,
    typer.Option("--diagnostics", help="Record the terms of the analysis and the lemmas' slack; print the bounds."),
]
Confidence = Annotated[float, typer.Option(help="Confidence level of the intervals.", min=0.0, max=1.0)]


def hide_password(store: str) -> str:
    """Remove addresses of databases, which may hold a password, from the title of the process: all users see it."""
    words = [hide_address(word) for word in sys.orig_argv]
    if words != sys.orig_argv and importlib.util.find_spec("setproctitle") is not None:
        import setproctitle

        setproctitle.setproctitle(" ".join(words))
    return store


def _build_store_option(*, is_eager: bool = False) -> Any:
    return typer.Option(
        "--store",
        envvar="WINDVANE_STORE",
        callback=hide_password,
        is_eager=is_eager,
        help="The store that holds all data: an SQLite file, or postgresql://user@host/database.",
    )


Store = Annotated[str, _build_store_option()]
EarlyStore = Annotated[str, _build_store_option(is_eager=True)]
"""The same, read before other options, whose callbacks can see whether it was given."""
DEFAULT_STORE = "windvane.db"
PORT_HELP = "Port; 0 chooses a free one."
