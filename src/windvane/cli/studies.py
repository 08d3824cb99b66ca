"""The command ``study``: questions that take several experiments to answer."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane._validation import one_of
from windvane.cli.console import number, output, plain, print_json, remark, table
from windvane.cli.experiments import conduct
from windvane.cli.options import AsJson, Cluster, Jobs, Out, Restart, Seed
from windvane.lab import rates, unknown_drift
from windvane.lab.drift_benchmark import Conduct
from windvane.lab.folder import write_atomically

STUDIES = ("unknown-drift", "rates")


def study(
    name: Annotated[str, typer.Argument(help=f"Which one: {', '.join(STUDIES)}.")],
    runs: Annotated[int, typer.Option(help="Runs of each policy.", min=1)] = unknown_drift.RUNS,
    horizon: Annotated[
        int | None, typer.Option(help="Rounds of each run (default 12000); rates: the longest (default 100000).", min=1)
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """A study, with a figure (PNG, PDF, SVG). Slow; stopped, it goes on where it was.

    unknown-drift: what BOB-BVD-GLM-UCB pays for not knowing the drift, and BVD-GLM-UCB for being wrong about it.
    rates: how regret grows with the horizon, beside the proven rates.

    \b
    Examples:
      windvane study unknown-drift
      windvane study rates --horizon 25000 --runs 50
    """
    one_of("name", name, STUDIES)
    folder = out or Path(f"study-{name}")
    go = functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart)
    if name == "unknown-drift":
        T = unknown_drift.HORIZON if horizon is None else horizon
        _finish(_unknown_drift(folder, go, runs=runs, horizon=T, seed=seed), name, folder, as_json)
    else:
        T = rates.LONGEST if horizon is None else horizon
        _finish(_rates(folder, go, runs=runs, horizon=T, seed=seed), name, folder, as_json)


def _finish(found: tuple[dict[str, Any], list[Any]], name: str, folder: Path, as_json: bool) -> None:
    """Store the document beside the figures; print it or the tables."""
    document, tables = found
    write_atomically(folder / f"{name}.json", (json.dumps(plain(document), indent=2) + "\n").encode())
    if as_json:
        print_json(document)
        return
    console = output()
    for one in tables:
        console.print(one)
    console.print(f"\nFigure: {folder / name}.png (and .pdf, .svg)", markup=False)


def _unknown_drift(
    folder: Path, go: Conduct, *, runs: int, horizon: int, seed: int
) -> tuple[dict[str, Any], list[Any]]:
    found = unknown_drift.unknown_drift(folder, go, runs=runs, horizon=horizon, seed=seed)
    remark("drawing the figure")
    files = [str(path) for path in unknown_drift.draw(found, folder)]
    lines = [
        [f"{drift:g}", *(f"{number(row.mean)} ± {number(row.se)}" for row in rows)]
        for drift, rows in zip(found.drifts, found.rows, strict=True)
    ]
    columns = ["B_T", *(row.label for row in found.rows[0])]
    title = f"Final regret, mean ± SE: {runs} runs of {horizon} rounds"
    return {**dataclasses.asdict(found), "files": files}, [table(columns, lines, title)]


def _rates(folder: Path, go: Conduct, *, runs: int, horizon: int, seed: int) -> tuple[dict[str, Any], list[Any]]:
    found = rates.rates(folder, go, horizons=rates.horizons_up_to(horizon), runs=runs, seed=seed)
    remark("drawing the figure")
    files = [str(path) for path in rates.draw(found, folder)]
    tables = []
    for one in found:
        lines = [
            [f"{T:,}", number(B, 3), f"{number(mean)} ± {number(se)}", number(bound, 0)]
            for T, B, mean, se, bound in zip(one.horizons, one.drifts, one.mean, one.se, one.bound, strict=True)
        ]
        title = (
            f"{one.name}: slope {number(one.slope, 3)} (95 % interval {number(one.low, 3)} to {number(one.high, 3)}), "
            f"proven {one.proven:.3f}, the bound's own {one.bound_slope:.3f}"
        )
        tables.append(table(["T", "B_T", "regret ± SE", "bound"], lines, title))
    document = {"runs": runs, "seed": seed, "families": [dataclasses.asdict(one) for one in found], "files": files}
    return document, tables
