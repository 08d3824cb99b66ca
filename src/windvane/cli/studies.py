"""The commands ``study`` and ``tune``: questions that take many experiments to answer."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from windvane.cli import options
from windvane.cli.console import Answer, Blocks, Table, estimate, number, remark, write_json
from windvane.cli.experiments import conduct
from windvane.cli.options import RunOptions, Size, SpecSize
from windvane.errors import ArgumentError
from windvane.lab.results.folder import name_unwritable
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import no_tuning, rates, unknown_drift
from windvane.lab.studies.benchmarks import Conduct
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.tuning import SweepGrid, default_gammas, read_sweep, tune_spec

TUNING_RUNS = 20  # of every point of the grid, where no spec says otherwise
Name = Literal["unknown-drift", "no-tuning", "rates"]


def study(
    size: Size, run: RunOptions, name: Annotated[Name, typer.Argument(help="The study to run.", show_default=False)]
) -> Answer:
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
    folder, kind = run.out or Path(f"study-{name}"), _STUDIES[name]
    outcome = kind.run(folder, functools.partial(conduct, run), **size.list_chosen())
    remark("drawing the figure")
    files = kind.draw(outcome, folder)
    document, tables = kind.describe(outcome, size)
    document["files"] = files
    with name_unwritable(folder):
        write_json(folder / f"{name}.json", document)
    return Answer(document, [*tables, f"\nFigure: {folder / name}.png (and .pdf, .svg)"])


class Study(NamedTuple):
    """How to run a study, to draw its outcome, and to describe it by a document and tables."""

    run: Callable[..., Any]
    draw: Callable[[Any, Path], list[Path]]
    describe: Callable[[Any, Size], tuple[dict[str, Any], list[Table]]]


def _describe_unknown_drift(outcome: unknown_drift.UnknownDrift, _size: Size) -> tuple[dict[str, Any], list[Table]]:
    lines = [
        [f"{drift:g}", *(estimate(row.mean, row.se) for row in rows)]
        for drift, rows in zip(outcome.drifts, outcome.rows, strict=True)
    ]
    columns = ["B_T", *(row.label for row in outcome.rows[0])]
    title = f"Final regret, mean ± SE: {outcome.runs} runs of {outcome.horizon} rounds"
    return dict(vars(outcome)), [Table(columns, lines, title)]


def _describe_no_tuning(cases: Sequence[no_tuning.Comparison], size: Size) -> tuple[dict[str, Any], list[Table]]:
    means = {
        "everywhere": no_tuning.geometric_mean(cases),
        "developed in": no_tuning.geometric_mean([case for case in cases if not case.set_aside]),
        "set aside": no_tuning.geometric_mean([case for case in cases if case.set_aside]),
    }
    prices = [case.price_of_scale for case in cases]
    price, worst = math.exp(sum(map(math.log, prices)) / len(prices)), max(prices)
    lines, environments = [], []
    for case in cases:
        ratio = no_tuning.geometric_mean([case])
        rows = [case.chosen, case.adaptive, case.master, case.greedy, case.untold]
        name = case.environment + (" *" if case.set_aside else "")
        regrets = [estimate(row.mean, row.se) for row in rows]
        ratios = [estimate(*ratio, 2), number(case.price_of_scale, 2)]
        lines.append([name, f"{case.memory:g}", f"{case.scale:g}", *regrets, *ratios])
        fields = {field: value for field, value in vars(case).items() if field != "influence"}
        environments.append({**fields, "ratio": ratio, "price_of_scale": case.price_of_scale})
    runs = cases[0].adaptive.runs
    title = (
        f"Final regret and ratios, mean ± SE of {runs} runs (*: set aside); geometric means of the ratios: "
        f"{', '.join(f'{where} {estimate(*mean, 3)}' for where, mean in means.items())}; "
        f"regret without S relative to that with S: {number(price, 3)}, at worst {number(worst, 2)}"
    )
    document = {
        "runs": runs,
        "seed": size.seed,
        "geometric mean": means,
        "price of S": {"geometric mean": price, "worst": worst},
        "environments": environments,
    }
    columns = ["environment", "memory", "bonus", "that pair", *(row.label for row in rows[1:]), "ratio", "price of S"]
    return document, [Table(columns, lines, title)]


def _run_rates(folder: Path, conduct: Conduct, *, horizon: int = rates.LONGEST, **size: int) -> list[rates.Slope]:
    return rates.run_rates(folder, conduct, horizons=rates.choose_horizons(horizon), **size)


def _describe_rates(families: Sequence[rates.Slope], size: Size) -> tuple[dict[str, Any], list[Table]]:
    tables: list[Table] = []
    for family in families:
        points = zip(family.horizons, family.drifts, family.mean, family.se, family.bound, strict=True)
        lines = [[f"{T:,}", number(B, 3), estimate(mean, se), number(bound, 0)] for T, B, mean, se, bound in points]
        interval = f"95 % interval {number(family.low, 3)} to {number(family.high, 3)}"
        slopes = f"proven {family.proven:.3f}, the bound's own {family.bound_slope:.3f}"
        title = f"{family.name}: slope {number(family.slope, 3)} ({interval}), {slopes}"
        tables.append(Table(["T", "B_T", "regret ± SE", "bound"], lines, title))
    return {"runs": size.runs or rates.RUNS, "seed": size.seed, "families": families}, tables


_STUDIES: dict[Name, Study] = {
    "unknown-drift": Study(unknown_drift.run_unknown_drift, unknown_drift.draw, _describe_unknown_drift),
    "no-tuning": Study(no_tuning.run_no_tuning, no_tuning.draw, _describe_no_tuning),
    "rates": Study(_run_rates, rates.draw, _describe_rates),
}


def tune(
    size: SpecSize,
    run: RunOptions,
    spec: Annotated[Path | None, typer.Argument(help="The world to tune in (default: the paper's).")] = None,
    policy: options.Policy = "BVD-GLM-UCB",
    discounts: Annotated[
        int, typer.Option(help="How many discounts, with memories from 10 rounds to the horizon.", min=1, max=1000)
    ] = 20,
    gammas: Annotated[str | None, typer.Option(help="These discounts instead: 0.9,0.99,0.999")] = None,
    scales: Annotated[str, typer.Option(help="The bonus scales: 0.25,0.5,1")] = "0.25,0.5,1",
    environment: Annotated[str | None, typer.Option(help="Which environment of the spec, if it has several.")] = None,
) -> Answer:
    """Sweep discount and bonus scale at once, and draw the heat map of the regret.

    All points of the grid see the same arms and the same random numbers, so that small differences count. Runs, horizon
    and seed are those of the spec, or 20 runs of the paper's experiment.

    Examples:
      windvane tune
      windvane tune spec.toml --policy D-LinUCB --scales 1 --discounts 30
      windvane tune --gammas 0.99,0.995,0.999 --scales 0.5,1 --runs 50
    """
    base = _read_base(spec, environment, size)
    chosen = default_gammas(base.horizon, discounts).tolist() if gammas is None else _parse_numbers("--gammas", gammas)
    sweep = tune_spec(base, policy, chosen, _parse_numbers("--scales", scales))
    name = f"tune-{'paper' if spec is None else spec.stem}-{policy.replace(':', '.').replace('/', '.')}"
    folder = run.out or Path(name)
    outcome = read_sweep(conduct(run, sweep, folder, f"tuning {policy}", {"name": "tune"}))
    from windvane.lab.report.presentation import draw_tuned

    files = draw_tuned(outcome, folder)
    document = {**vars(outcome), "folder": folder, "files": files}
    return Answer(document, [*_describe_grid(outcome), f"Figure: {folder / 'figures'}"])


def _read_base(spec: Path | None, environment: str | None, size: SpecSize) -> Spec:
    """Return the experiment whose environment is used, with the changes of the command line."""
    base = dataclasses.replace(paper_spec(), runs=TUNING_RUNS) if spec is None else Spec.read(spec)
    names = [world.name for world in base.environments]
    if environment not in names and (environment is not None or len(names) > 1):
        raise ArgumentError("--environment", environment, f"one of {', '.join(names)}")
    kept = tuple(world for world in base.environments if environment in (None, world.name))
    return dataclasses.replace(base, environments=kept, **size.list_chosen())


def _parse_numbers(name: str, text: str) -> list[float]:
    try:
        return sorted({float(part) for part in text.split(",")})
    except ValueError:
        raise ArgumentError(name, text, "numbers separated by commas, such as 0.9,0.99") from None


def _describe_grid(outcome: SweepGrid) -> Blocks:
    def format_point(g: int, b: int) -> str:
        mark = "*" if (g, b) == outcome.best else "~" if outcome.close[g, b] else " "
        return f"{number(outcome.mean[g, b])} {mark}"

    columns = ["γ", *(f"bonus {scale:g}" for scale in outcome.scales)]
    rows = [
        [f"{gamma:.6f}", *(format_point(g, b) for b in range(len(outcome.scales)))]
        for g, gamma in enumerate(outcome.gammas)
    ]
    title = f"{outcome.policy} in {outcome.environment}: mean final regret over {outcome.runs} runs"
    regret = estimate(outcome.mean[outcome.best], outcome.se[outcome.best])
    note = (
        f"best: γ = {outcome.best_gamma:.6f}, bonus scale {outcome.best_scale:g}, regret {regret} (marked *); "
        "no significant difference from it at points marked ~ (paired, 95 %)."
    )
    return [Table(columns, rows, title), note]
