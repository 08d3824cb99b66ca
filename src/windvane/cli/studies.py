"""The command ``study``: questions that take several experiments to answer."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from windvane._files import write_atomically
from windvane.cli.console import number, plain, print_json, print_table, remark, say
from windvane.cli.experiments import conduct
from windvane.cli.options import AsJson, Cluster, Jobs, OptionalHorizon, OptionalRuns, Out, Restart, Seed
from windvane.lab.results.summary import Row
from windvane.lab.studies import no_tuning, rates, unknown_drift
from windvane.lab.studies.benchmarks import Conduct

Name = Literal["unknown-drift", "no-tuning", "rates"]


def study(
    name: Annotated[Name, typer.Argument(help="The study to run.", show_default=False)],
    runs: OptionalRuns = None,
    horizon: OptionalHorizon = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """Run a study and draw its figure (PNG, PDF, SVG). It is slow; if it is stopped, repeat the command to continue.

    unknown-drift: what BOB-BVD-GLM-UCB pays for not knowing the drift, and BVD-GLM-UCB for being wrong about it (20
    runs of 12,000 rounds).

    no-tuning: what AdaptiveGLMUCB loses to a memory and a bonus chosen for each environment of the drift benchmark (200
    runs of 3,000 rounds).

    rates: how regret grows with the horizon, beside the proven rates (20 runs of up to 100,000 rounds).

    Examples:
      windvane study unknown-drift
      windvane study rates --horizon 25000 --runs 50
    """
    folder = out or Path(f"study-{name}")
    run = functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart)
    size = {key: value for key, value in (("runs", runs), ("horizon", horizon)) if value is not None}
    document, tables = _STUDIES[name](folder, run, seed=seed, **size)
    write_atomically(folder / f"{name}.json", (json.dumps(plain(document), indent=2) + "\n").encode())
    if as_json:
        print_json(document)
        return
    for columns, lines, title in tables:
        print_table(columns, lines, title)
    say(f"\nFigure: {folder / name}.png (and .pdf, .svg)")


Table = tuple[list[str], list[list[str]], str]
Outcome = tuple[dict[str, Any], list[Table]]
"""The document of a study, and its tables: columns, lines, title."""


def _unknown_drift(
    folder: Path, run: Conduct, *, seed: int, runs: int = unknown_drift.RUNS, horizon: int = unknown_drift.HORIZON
) -> Outcome:
    outcome = unknown_drift.run_unknown_drift(folder, run, runs=runs, horizon=horizon, seed=seed)
    remark("drawing the figure")
    files = [str(path) for path in unknown_drift.draw(outcome, folder)]
    lines = [
        [f"{drift:g}", *(f"{number(row.mean)} ± {number(row.se)}" for row in rows)]
        for drift, rows in zip(outcome.drifts, outcome.rows, strict=True)
    ]
    columns = ["B_T", *(row.label for row in outcome.rows[0])]
    title = f"Final regret, mean ± SE: {outcome.runs} runs of {outcome.horizon} rounds"
    return {**dataclasses.asdict(outcome), "files": files}, [(columns, lines, title)]


def _no_tuning(folder: Path, run: Conduct, **size: int) -> Outcome:
    cases = no_tuning.run_no_tuning(folder, run, **size)
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
        "seed": size["seed"],
        "geometric mean": {name: mean._asdict() for name, mean in means.items()},
        "price of S": prices,
        "environments": worlds,
        "files": files,
    }
    return document, [(columns, lines, title)]


def _without_influence(case: no_tuning.Comparison) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(case).items() if name != "influence"}


def _rows(case: no_tuning.Comparison) -> list[Row]:
    return [case.chosen, case.adaptive, case.master, case.greedy, case.untold]


def _rates(folder: Path, run: Conduct, *, seed: int, runs: int = rates.RUNS, horizon: int = rates.LONGEST) -> Outcome:
    families = rates.run_rates(folder, run, horizons=rates.choose_horizons(horizon), runs=runs, seed=seed)
    remark("drawing the figure")
    files = [str(path) for path in rates.draw(families, folder)]
    tables = []
    for family in families:
        lines = [
            [f"{T:,}", number(B, 3), f"{number(mean)} ± {number(se)}", number(bound, 0)]
            for T, B, mean, se, bound in zip(
                family.horizons, family.drifts, family.mean, family.se, family.bound, strict=True
            )
        ]
        interval = f"95 % interval {number(family.low, 3)} to {number(family.high, 3)}"
        slopes = f"proven {family.proven:.3f}, the bound's own {family.bound_slope:.3f}"
        title = f"{family.name}: slope {number(family.slope, 3)} ({interval}), {slopes}"
        tables.append((["T", "B_T", "regret ± SE", "bound"], lines, title))
    document = {"runs": runs, "seed": seed, "families": [dataclasses.asdict(f) for f in families], "files": files}
    return document, tables


_STUDIES: dict[Name, Callable[..., Outcome]] = {
    "unknown-drift": _unknown_drift,
    "no-tuning": _no_tuning,
    "rates": _rates,
}
