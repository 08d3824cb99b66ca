"""The command ``tune``: which discount and which bonus serve a policy best."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import options
from windvane.cli.console import number, print_json, print_table, say
from windvane.cli.experiments import conduct
from windvane.errors import ArgumentError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.tuning import SweepGrid, default_gammas, read_sweep, tune_spec

RUNS = 20  # of every point of the grid, where no spec says otherwise


def tune(
    spec: Annotated[Path | None, typer.Argument(help="The world to tune in (default: the paper's).")] = None,
    policy: options.Policy = "BVD-GLM-UCB",
    discounts: Annotated[
        int, typer.Option(help="How many discounts, with memories from 10 rounds to the horizon.", min=1, max=1000)
    ] = 20,
    gammas: Annotated[str | None, typer.Option(help="These discounts instead: 0.9,0.99,0.999")] = None,
    scales: Annotated[str, typer.Option(help="The bonus scales: 0.25,0.5,1")] = "0.25,0.5,1",
    environment: Annotated[str | None, typer.Option(help="Which environment of the spec, if it has several.")] = None,
    runs: options.OptionalRuns = None,
    horizon: options.OptionalHorizon = None,
    seed: options.OptionalSeed = None,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Sweep discount and bonus scale at once, and draw the heat map of the regret.

    All points of the grid see the same arms and the same random numbers, so that small differences count. Runs, horizon
    and seed are those of the spec, or 20 runs of the paper's experiment.

    Examples:
      windvane tune
      windvane tune spec.toml --policy D-LinUCB --scales 1 --discounts 30
      windvane tune --gammas 0.99,0.995,0.999 --scales 0.5,1 --runs 50
    """
    base = _read_base(spec, environment, runs, horizon, seed)
    chosen = default_gammas(base.horizon, discounts).tolist() if gammas is None else _parse_numbers("--gammas", gammas)
    sweep = tune_spec(base, policy, chosen, _parse_numbers("--scales", scales))
    folder = out or Path(f"tune-{'paper' if spec is None else spec.stem}-{policy.replace(':', '.').replace('/', '.')}")
    results = conduct(sweep, folder, f"tuning {policy}", {"name": "tune"}, jobs=jobs, cluster=cluster, restart=restart)
    outcome = read_sweep(results)
    from windvane.lab.report.presentation import draw_tuned

    written = [str(path) for path in draw_tuned(outcome, folder)]
    if as_json:
        print_json({**dataclasses.asdict(outcome), "folder": str(folder), "files": written})
        return
    _print_grid(outcome, folder)


def _read_base(
    spec: Path | None, environment: str | None, runs: int | None, horizon: int | None, seed: int | None
) -> Spec:
    """Return the experiment whose environment is used, with the changes of the command line."""
    base = dataclasses.replace(paper_spec(), runs=RUNS) if spec is None else Spec.read(spec)
    names = [world.name for world in base.environments]
    if environment not in names and (environment is not None or len(names) > 1):
        raise ArgumentError("--environment", environment, f"one of {', '.join(names)}")
    changes: dict[str, Any] = {"runs": runs, "horizon": horizon, "seed": seed}
    kept = tuple(world for world in base.environments if environment in (None, world.name))
    return dataclasses.replace(base, environments=kept, **{k: v for k, v in changes.items() if v is not None})


def _parse_numbers(name: str, text: str) -> list[float]:
    try:
        return sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ArgumentError(name, text, "numbers separated by commas, such as 0.9,0.99") from None


def _print_grid(outcome: SweepGrid, folder: Path) -> None:
    columns = ["γ", *(f"bonus {scale:g}" for scale in outcome.scales)]
    rows = [
        [f"{gamma:.6f}", *(_format_point(outcome, g, b) for b in range(len(outcome.scales)))]
        for g, gamma in enumerate(outcome.gammas)
    ]
    title = f"{outcome.policy} in {outcome.environment}: mean final regret over {outcome.runs} runs"
    print_table(columns, rows, title)
    regret = f"{number(outcome.mean[outcome.best])} ± {number(outcome.se[outcome.best])}"
    say(
        f"best: γ = {outcome.best_gamma:.6f}, bonus scale {outcome.best_scale:g}, regret {regret} (marked *); "
        "no significant difference from it at points marked ~ (paired, 95 %)."
    )
    say(f"Figure: {folder / 'figures'}")


def _format_point(outcome: SweepGrid, g: int, b: int) -> str:
    mark = "*" if (g, b) == outcome.best else "~" if outcome.close[g, b] else " "
    return f"{number(outcome.mean[g, b])} {mark}"
