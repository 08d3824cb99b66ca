"""The command ``study``: questions that take several experiments to answer."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane._files import write_atomically
from windvane.arguments import check_choice
from windvane.cli.console import number, output, plain, print_json, remark, table
from windvane.cli.experiments import conduct
from windvane.cli.options import AsJson, Cluster, Jobs, Out, Restart, Seed
from windvane.lab.results.summary import Row
from windvane.lab.studies import no_tuning, rates, unknown_drift
from windvane.lab.studies.benchmarks import Conduct

STUDIES = ("unknown-drift", "no-tuning", "rates")


def study(
    name: Annotated[str, typer.Argument(help=f"Which one: {', '.join(STUDIES)}.")],
    runs: Annotated[int | None, typer.Option(help="Runs of each policy (default: 20; no-tuning: 200).", min=1)] = None,
    horizon: Annotated[
        int | None,
        typer.Option(help="Rounds of each run (12000; no-tuning: 3000); rates: the longest (100000).", min=1),
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """Run a study and draw its figure (PNG, PDF, SVG). It is slow; if it is stopped, repeat the command to continue.

    unknown-drift: what BOB-BVD-GLM-UCB pays for not knowing the drift, and BVD-GLM-UCB for being wrong about it.
    no-tuning: what AdaptiveGLMUCB loses to a memory and a bonus chosen for each environment of the drift benchmark.
    rates: how regret grows with the horizon, beside the proven rates.

    \b
    Examples:
      windvane study unknown-drift
      windvane study rates --horizon 25000 --runs 50
    """
    check_choice("name", name, STUDIES)
    folder = out or Path(f"study-{name}")
    go = functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart)
    asked = {key: value for key, value in (("runs", runs), ("horizon", horizon)) if value is not None}
    _finish(_DO[name](folder, go, seed=seed, **asked), name, folder, as_json)


Found = tuple[dict[str, Any], list[Any]]
"""A document and its tables."""


def _finish(found: Found, name: str, folder: Path, as_json: bool) -> None:
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
    folder: Path, go: Conduct, *, seed: int, runs: int = unknown_drift.RUNS, horizon: int = unknown_drift.HORIZON
) -> Found:
    found = unknown_drift.run_unknown_drift(folder, go, runs=runs, horizon=horizon, seed=seed)
    remark("drawing the figure")
    files = [str(path) for path in unknown_drift.draw(found, folder)]
    lines = [
        [f"{drift:g}", *(f"{number(row.mean)} ± {number(row.se)}" for row in rows)]
        for drift, rows in zip(found.drifts, found.rows, strict=True)
    ]
    columns = ["B_T", *(row.label for row in found.rows[0])]
    title = f"Final regret, mean ± SE: {found.runs} runs of {found.horizon} rounds"
    return {**dataclasses.asdict(found), "files": files}, [table(columns, lines, title)]


def _no_tuning(folder: Path, go: Conduct, **asked: int) -> Found:
    cases = no_tuning.run_no_tuning(folder, go, **asked)
    remark("drawing the figure")
    files = [str(path) for path in no_tuning.draw(cases, folder)]
    lines = [
        [
            case.environment + (" *" if case.set_aside else ""),
            f"{case.memory:g}", f"{case.scale:g}", *(f"{number(row.mean)} ± {number(row.se)}" for row in _rows(case)),
            f"{number(case.ratio, 2)} ± {number(no_tuning.geometric_mean([case]).se, 2)}",
            number(case.price_of_scale, 2),
        ]
        for case in cases
    ]  # fmt: skip
    columns = ["environment", "memory", "bonus", "that pair", *(row.label for row in _rows(cases[0])[1:]), "ratio"]
    columns.append("price of S")
    means = {
        "everywhere": no_tuning.geometric_mean(cases),
        "developed in": no_tuning.geometric_mean([case for case in cases if not case.set_aside]),
        "set aside": no_tuning.geometric_mean([case for case in cases if case.set_aside]),
    }
    mean_ratios = ", ".join(f"{name} {number(mean.value, 3)} ± {number(mean.se, 3)}" for name, mean in means.items())
    runs = cases[0].adaptive.runs
    prices = {
        "geometric mean": math.exp(sum(math.log(case.price_of_scale) for case in cases) / len(cases)),
        "worst": max(case.price_of_scale for case in cases),
    }
    title = (
        f"Final regret and ratios, mean ± SE of {runs} runs (*: set aside); geometric means of the ratios: "
        f"{mean_ratios}; regret without S relative to that with S: {number(prices['geometric mean'], 3)}, at worst "
        f"{number(prices['worst'], 2)}"
    )
    worlds = [
        {
            **_without_influence(case),
            "ratio": no_tuning.geometric_mean([case])._asdict(),
            "price_of_scale": case.price_of_scale,
        }
        for case in cases
    ]
    document = {
        "runs": runs,
        "seed": asked["seed"],
        "geometric mean": {name: mean._asdict() for name, mean in means.items()},
        "price of S": prices,
        "environments": worlds,
        "files": files,
    }
    return document, [table(columns, lines, title)]


def _without_influence(case: no_tuning.Comparison) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(case).items() if name != "influence"}


def _rows(case: no_tuning.Comparison) -> list[Row]:
    return [case.chosen, case.adaptive, case.master, case.greedy, case.untold]


def _rates(folder: Path, go: Conduct, *, seed: int, runs: int = rates.RUNS, horizon: int = rates.LONGEST) -> Found:
    found = rates.run_rates(folder, go, horizons=rates.choose_horizons(horizon), runs=runs, seed=seed)
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


_DO: dict[str, Callable[..., Found]] = {"unknown-drift": _unknown_drift, "no-tuning": _no_tuning, "rates": _rates}
