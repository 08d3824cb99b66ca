"""Options that several commands share, described once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[int, typer.Option(help="Independent runs of each policy.", min=1, max=2**32 - 1)]
Horizon = Annotated[int, typer.Option(help="Rounds of each run.", min=1)]
Seed = Annotated[int, typer.Option(help="All randomness follows from it.", min=0, max=2**64 - 1)]
Jobs = Annotated[int | None, typer.Option(help="Processes (default: one per core).", min=1, max=256)]
Cluster = Annotated[
    str | None, typer.Option(help="Run on Dask: the scheduler's address (tcp://host:8786), or 'local'.")
]
Restart = Annotated[bool, typer.Option("--restart", help="Discard an experiment that is already in the folder.")]
WithDiagnostics = Annotated[
    bool,
    typer.Option("--diagnostics", help="Record the terms of the analysis and the lemmas' slack; print the bounds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Policies = Annotated[str | None, typer.Option(help="Only these policies, separated by commas: OFUL,BVD-GLM-UCB")]
Out = Annotated[Path | None, typer.Option(help="The folder to write to.", show_default=False)]


def named(given: str | None) -> list[str] | None:
    """The names in an option's value, with commas between them; None if it is not given."""
    return None if given is None else [name.strip() for name in given.split(",")]
