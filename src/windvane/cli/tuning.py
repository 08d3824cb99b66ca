"""The command ``tune``: which discount and which bonus serve a policy best."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli.console import number, output, print_json, remark, table
from windvane.cli.experiments import conduct
from windvane.cli.options import AsJson, Cluster, Jobs, Out, Restart
from windvane.errors import ArgumentError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.tuning import SweepGrid, default_gammas, read_sweep, tune_spec

RUNS = 20  # of every point of the grid, where no spec says otherwise


def tune(
    spec: Annotated[Path | None, typer.Argument(help="The world to tune in (default: the paper's).")] = None,
    policy: Annotated[str, typer.Option(help="The policy to tune.")] = "BVD-GLM-UCB",
    discounts: Annotated[
        int, typer.Option(help="How many discounts, with memories from 10 rounds to the horizon.", min=1, max=1000)
    ] = 20,
    gammas: Annotated[str | None, typer.Option(help="These discounts instead: 0.9,0.99,0.999")] = None,
    scales: Annotated[str, typer.Option(help="The bonus scales: 0.25,0.5,1")] = "0.25,0.5,1",
    environment: Annotated[str | None, typer.Option(help="Which environment of the spec, if it has several.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each point.", min=1)] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds of each run.", min=2)] = None,
    seed: Annotated[int | None, typer.Option(help="All randomness follows from it.", min=0)] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """Sweep discount and bonus scale at once, and draw the heat map of the regret.

    All points of the grid see the same arms and the same luck, so that small differences count.

    \b
    Examples:
      windvane tune
      windvane tune spec.toml --policy D-LinUCB --scales 1 --discounts 30
      windvane tune --gammas 0.99,0.995,0.999 --scales 0.5,1 --runs 50
    """
    base = _base(spec, environment, runs, horizon, seed)
    chosen = default_gammas(base.horizon, discounts).tolist() if gammas is None else _numbers("--gammas", gammas)
    sweep = tune_spec(base, policy, chosen, _numbers("--scales", scales))
    folder = out or Path(f"tune-{'paper' if spec is None else spec.stem}-{policy.replace(':', '.').replace('/', '.')}")
    results = conduct(sweep, folder, f"tuning {policy}", {"name": "tune"}, jobs=jobs, cluster=cluster, restart=restart)
    found = read_sweep(results)
    remark("drawing the heat map")
    from windvane.lab.report.presentation import draw_tuned

    written = [str(path) for path in draw_tuned(found, folder)]
    if as_json:
        print_json({**dataclasses.asdict(found), "folder": str(folder), "files": written})
        return
    _print(found, folder)


def _base(spec: Path | None, environment: str | None, runs: int | None, horizon: int | None, seed: int | None) -> Spec:
    """The experiment whose world is tuned in, with what the command line overrides."""
    base = dataclasses.replace(paper_spec(), runs=RUNS) if spec is None else Spec.read(spec)
    names = [world.name for world in base.environments]
    if environment not in names and (environment is not None or len(names) > 1):
        raise ArgumentError("--environment", environment, f"one of {', '.join(names)}")
    changes: dict[str, Any] = {"runs": runs, "horizon": horizon, "seed": seed}
    kept = tuple(world for world in base.environments if environment in (None, world.name))
    return dataclasses.replace(base, environments=kept, **{k: v for k, v in changes.items() if v is not None})


def _numbers(name: str, text: str) -> list[float]:
    try:
        return sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ArgumentError(name, text, "numbers separated by commas, such as 0.9,0.99") from None


def _print(found: SweepGrid, folder: Path) -> None:
    console = output()
    columns = ["γ", *(f"bonus {scale:g}" for scale in found.scales)]
    rows = [
        [f"{gamma:.6f}", *(_point(found, g, b) for b in range(len(found.scales)))]
        for g, gamma in enumerate(found.gammas)
    ]
    title = f"{found.policy} in {found.environment}: mean final regret over {found.runs} runs"
    console.print(table(columns, rows, title))
    best = found.mean[found.best], found.se[found.best]
    console.print(
        f"best: γ = {found.best_gamma:.6f}, bonus scale {found.best_scale:g}, regret {number(best[0])} ± "
        f"{number(best[1])} (marked *); points marked ~ cannot be told apart from it (paired, 95 %).",
        markup=False,
    )
    console.print(f"Figure: {folder / 'figures'}", markup=False)


def _point(found: SweepGrid, g: int, b: int) -> str:
    mark = "*" if (g, b) == found.best else "~" if found.close[g, b] else " "
    return f"{number(found.mean[g, b])} {mark}"
