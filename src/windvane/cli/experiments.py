"""Commands that run experiments: reproduce, simulate."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import InterruptedRunError, options
from windvane.cli.bounds import bounds_to_json, print_bounds
from windvane.cli.commands import CONTINUE
from windvane.cli.console import DRAWING, ProgressBar, print_json, remark, say
from windvane.cli.tables import print_summary, summary_json
from windvane.lab import experiment as lab_experiment
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Results
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import paper
from windvane.lab.studies.benchmarks import check_own_policies
from windvane.lab.studies.bounds import evaluate_results


def conduct(
    spec: Spec,
    folder: Path,
    text: str,
    recipe: Recipe | None = None,
    *,
    jobs: int | None,
    cluster: str | None = None,
    restart: bool = False,
    failures: list[CellError] | None = None,
) -> Results:
    """Run an experiment with a progress bar; Ctrl-C keeps finished cells and says how to continue.

    Cells that fail are added to ``failures`` if it is given; else the first one ends the run.
    """
    command = "windvane " + shlex.join(sys.argv[1:])
    remark(f"{text}: {spec.runs} runs of {spec.horizon} rounds, into {folder}")
    try:
        with ProgressBar(text, "rounds") as progress:
            return lab_experiment.simulate(
                spec, folder, jobs=jobs, cluster=cluster, restart=restart, progress=progress, command=command,
                failures=failures, recipe=recipe,
            )  # fmt: skip
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; {_describe_finished(folder)}; {CONTINUE}") from None


def _describe_finished(folder: Path) -> str:
    try:
        results = Results.open(folder)
    except ValueError:
        return "nothing is finished yet"
    return f"{results.finished} of {results.total} cells are finished and usable"


def reproduce(
    arms: Annotated[str, typer.Option(help=f"How arms are drawn: {', '.join(paper.ARMS)}.")] = "ball",
    bonus_scale: Annotated[float, typer.Option(help="Multiplies every bonus; 1 is as printed.", min=0.0)] = 1.0,
    diagnostics: options.WithDiagnostics = False,
    runs: options.Runs = paper.RUNS,
    horizon: options.Horizon = paper.HORIZON,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Reproduce the paper's experiment: table, figures and a report, beside the published result.

    This is what "make demo" runs; "windvane demo" is something else, the live service with a simulated audience.

    Examples:
      windvane reproduce
      windvane reproduce --runs 400 --arms sphere --out sphere
      windvane reproduce --bonus-scale 0.5 --json
    """
    spec = paper.paper_spec(
        runs=runs, horizon=horizon, arms=arms, bonus_scale=bonus_scale, seed=seed, diagnostics=diagnostics
    )
    folder = out or Path(_default_folder(runs, horizon, arms, bonus_scale, seed, diagnostics))
    recipe = paper.paper_recipe(arms, bonus_scale)
    results = conduct(spec, folder, "reproducing the paper", recipe, jobs=jobs, cluster=cluster, restart=restart)
    from windvane.lab.report.presentation import present

    with ProgressBar(DRAWING, "files") as progress:
        written = present(results, progress=progress)
    against = paper.compare_with_published(results.entries)
    assumed = paper.list_readings(arms, bonus_scale)
    if as_json:
        comparison = {"published": [curve._asdict() for curve in against], "readings": assumed}
        document = {**summary_json(results), **comparison, "files": [str(path) for path in written]}
        print_json({**document, **_evaluate_bounds(results, diagnostics)})
        return
    print_summary(results, published=paper.published_curves() if horizon == paper.HORIZON else None)
    if diagnostics:
        print_bounds(evaluate_results(results))
    say("\nWhere this differs from the published result:")
    for line in paper.describe_differences(results.entries):
        say(f"  {line}")
    say("\nReadings assumed where the paper is silent:")
    for line in assumed:
        say(f"  {line}")
    say(f"\nReport: {folder / 'report.html'}")


def _evaluate_bounds(results: Results, diagnostics: bool) -> dict[str, Any]:
    """Return the bounds beside the regret, if there are diagnostics."""
    return {"bounds": bounds_to_json(evaluate_results(results))} if diagnostics else {}


def _default_folder(runs: int, horizon: int, arms: str, bonus_scale: float, seed: int, diagnostics: bool) -> str:
    """Return ``reproduction`` and the settings that differ from the defaults, so that each has its own folder."""
    differs = [
        f"{runs}x{horizon}" if (runs, horizon) != (paper.RUNS, paper.HORIZON) else "",
        arms if arms != "ball" else "",
        f"bonus{bonus_scale:g}" if bonus_scale != 1.0 else "",
        f"seed{seed}" if seed else "",
        "diagnostics" if diagnostics else "",
    ]
    return "-".join(["reproduction", *filter(None, differs)])


def simulate(
    spec: options.SpecFile,
    diagnostics: options.WithDiagnostics = False,
    check_policies: options.CheckPolicies = False,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Run an experiment. If it is stopped, repeat the command to continue.

    Examples:
      windvane simulate spec.toml
      windvane simulate spec.toml --out results --jobs 8
      windvane simulate spec.toml --check-policies
      windvane simulate spec.toml --cluster tcp://scheduler:8786
    """
    experiment = Spec.read(spec, check=False)  # simulate checks it
    if check_policies:
        check_own_policies(experiment.policies)
    if diagnostics:
        experiment = dataclasses.replace(experiment, diagnostics=True)
    folder = out or Path(f"{spec.stem}-results")
    results = conduct(experiment, folder, experiment.title or spec.stem, jobs=jobs, cluster=cluster, restart=restart)
    if as_json:
        print_json({**summary_json(results), **_evaluate_bounds(results, experiment.diagnostics)})
        return
    print_summary(results)
    if experiment.diagnostics:
        print_bounds(evaluate_results(results))
    say(f"\nResults: {folder} (windvane report {folder} draws them)")
