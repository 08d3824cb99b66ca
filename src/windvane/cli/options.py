"""Options that several commands share. One concept has one name, one help text and one panel in all commands.

The order in a command: its own options, then size (runs, horizon, seed), place (jobs, cluster), output (out, restart,
json, which every command has). An alias that starts with ``Optional`` is for commands whose default depends on other
arguments. A command has all options of a dataclass if it has a parameter of that type: see ``windvane.cli.app.adapt``.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import InputError, hide_address

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


def complete_paper(incomplete: str) -> list[str]:
    """Return the names of experiments of papers that begin with ``incomplete``."""
    from windvane.lab.studies.reproductions import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


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
Worlds = Annotated[str | None, typer.Option(help="Only these worlds, separated by commas: clicks,large S")]
Baseline = Annotated[str | None, typer.Option(help="The policy to compare the others with.")]
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


DEFAULT_STORE = "windvane.db"
PORT_HELP = "Port; 0 chooses a free one."
_STORE_HELP = "The store that holds all data: an SQLite file, or postgresql://user@host/database."
_FILE_HELP = "The file of the store. For a PostgreSQL database, use PostgreSQL's own tools."
_CONFIG_HELP = "The TOML file of `windvane serve`, which names the store."


def _build_store_option(help: str = _STORE_HELP, **more: Any) -> Any:
    return typer.Option("--store", envvar="WINDVANE_STORE", callback=hide_password, help=help, **more)


def _build_config_option(**more: Any) -> Any:
    return typer.Option("--config", envvar="WINDVANE_CONFIG", help=_CONFIG_HELP, show_default=False, **more)


Store = Annotated[str, _build_store_option()]
OptionalStore = Annotated[str | None, _build_store_option(show_default=DEFAULT_STORE)]
OptionalFile = Annotated[str | None, _build_store_option(_FILE_HELP, show_default=DEFAULT_STORE)]
Config = Annotated[Path | None, _build_config_option()]
# The same, read before other options, whose callbacks can see whether they were given.
EarlyStore = Annotated[str | None, _build_store_option(show_default=DEFAULT_STORE, is_eager=True)]
EarlyConfig = Annotated[Path | None, _build_config_option(is_eager=True)]


@dataclass(frozen=True)
class ChosenStore:
    """The store of a command: that of --store, of $WINDVANE_STORE, of the file of --config, or windvane.db."""

    store: OptionalStore = None
    config: Config = None

    def find(self) -> tuple[str, bool]:
        """Return the path or address of the store, and whether anybody has named it."""
        name = self.store if self.store is not None or self.config is None else _read_store(self.config)
        return (DEFAULT_STORE, False) if name is None else (name, True)

    @property
    def place(self) -> str:
        """The path or address of the store."""
        return self.find()[0]


@dataclass(frozen=True)
class ChosenFile(ChosenStore):
    """The store of a command that works on files only."""

    store: OptionalFile = None


def _read_store(config: Path) -> str | None:
    """Return the store that a configuration file names."""
    try:
        name = tomllib.loads(config.read_text(encoding="utf-8")).get("store")
    except OSError as error:
        raise InputError(f"{config}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{config}: is not TOML ({error})") from None
    if name is not None and not isinstance(name, str):
        raise InputError(f"{config}: store: must be a string")
    return name if name is None else hide_password(name)
