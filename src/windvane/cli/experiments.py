"""Commands that run experiments: reproduce, simulate."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli.bounds import bounds_json, print_bounds
from windvane.cli.console import Bar, InterruptedRunError, output, print_json, remark
from windvane.cli.options import AsJson, Cluster, Jobs, Out, Restart, Runs, Seed, WithDiagnostics
from windvane.cli.tables import print_summary, summary_json
from windvane.lab import experiment as lab_experiment
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Results
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import paper
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
        return lab_experiment.simulate(
            spec,
            folder,
            jobs=jobs,
            cluster=cluster,
            restart=restart,
            progress=Bar(text),
            command=command,
            failures=failures,
            recipe=recipe,
        )
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; {_how_far(folder)}; repeat the command to continue") from None


def _how_far(folder: Path) -> str:
    try:
        found = Results.open(folder)
    except ValueError:
        return "nothing is finished yet"
    return f"{found.finished} of {found.total} cells are finished and usable"


def reproduce(
    runs: Runs = paper.RUNS,
    horizon: Annotated[int, typer.Option(help="Rounds of each run.", min=3)] = paper.HORIZON,
    arms: Annotated[str, typer.Option(help=f"How arms are drawn: {', '.join(paper.ARMS)}.")] = "ball",
    bonus_scale: Annotated[float, typer.Option(help="Multiplies every bonus; 1 is as printed.", min=0.0)] = 1.0,
    seed: Seed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    diagnostics: WithDiagnostics = False,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment: table, figures and a report beside the published result.

    \b
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
    remark("drawing the figures and writing the report")
    from windvane.lab.report.presentation import present_paper

    written = present_paper(results)
    against = paper.compare_with_published(results.entries)
    assumed = paper.list_readings(arms, bonus_scale)
    if as_json:
        print_json(
            {
                **summary_json(results),
                "published": [one._asdict() for one in against],
                "readings": assumed,
                "files": [str(path) for path in written],
                **_with_bounds(results, diagnostics),
            }
        )
        return
    print_summary(results, published=paper.published_curves() if horizon == paper.HORIZON else None)
    if diagnostics:
        print_bounds(evaluate_results(results))
    console = output()
    console.print("\nWhere this differs from the published result:", markup=False)
    for line in paper.describe_differences(results.entries):
        console.print(f"  {line}", markup=False)
    console.print("\nReadings assumed where the paper is silent:", markup=False)
    for line in assumed:
        console.print(f"  {line}", markup=False)
    console.print(f"\nReport: {folder / 'report.html'}", markup=False)


def _with_bounds(results: Results, diagnostics: bool) -> dict[str, Any]:
    """The regret beside its bounds, for those who asked for diagnostics."""
    return {"bounds": bounds_json(evaluate_results(results))} if diagnostics else {}


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
    spec: Annotated[Path, typer.Argument(help="The experiment, a TOML file ('windvane new' writes one).")],
    out: Out = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    diagnostics: WithDiagnostics = False,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment. If it is stopped, repeat the command to continue.

    \b
    Examples:
      windvane simulate spec.toml
      windvane simulate spec.toml --out results --jobs 8
      windvane simulate spec.toml --cluster tcp://scheduler:8786
    """
    experiment = Spec.read(spec)
    if diagnostics:
        experiment = dataclasses.replace(experiment, diagnostics=True)
    folder = out or Path(f"{spec.stem}-results")
    results = conduct(experiment, folder, experiment.title or spec.stem, jobs=jobs, cluster=cluster, restart=restart)
    if as_json:
        print_json({**summary_json(results), **_with_bounds(results, experiment.diagnostics)})
        return
    print_summary(results)
    if experiment.diagnostics:
        print_bounds(evaluate_results(results))
    output().print(f"\nResults: {folder} (windvane report {folder} draws them)", markup=False)
