"""Commands that run experiments: reproduce, simulate."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import InterruptedRunError, options
from windvane.cli.bounds import describe_bounds
from windvane.cli.commands import CONTINUE
from windvane.cli.console import DRAWING, Answer, Note, ProgressBar, Table, number, remark, share
from windvane.cli.options import RunOptions
from windvane.lab import experiment as lab_experiment
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Results
from windvane.lab.results.summary import Row, format_told, summarise_entries
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import paper
from windvane.lab.studies.benchmarks import check_own_policies
from windvane.lab.studies.bounds import evaluate_results


def conduct(
    run: RunOptions,
    spec: Spec,
    folder: Path,
    text: str,
    recipe: Recipe | None = None,
    *,
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
                spec, folder, jobs=run.jobs, cluster=run.cluster, restart=run.restart, progress=progress,
                command=command, failures=failures, recipe=recipe,
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
    run: RunOptions,
    arms: Annotated[str, typer.Option(help=f"How arms are drawn: {', '.join(paper.ARMS)}.")] = "ball",
    bonus_scale: Annotated[float, typer.Option(help="Multiplies every bonus; 1 is as printed.", min=0.0)] = 1.0,
    diagnostics: options.WithDiagnostics = False,
    runs: options.Runs = paper.RUNS,
    horizon: options.Horizon = paper.HORIZON,
    seed: options.Seed = 0,
) -> Answer:
    """Reproduce the paper's experiment: table, figures and a report, beside the published result.

    This is what "make demo" runs; "windvane demo" is different: it shows the live service with a simulated audience.

    Examples:
      windvane reproduce
      windvane reproduce --runs 400 --arms sphere --out sphere
      windvane reproduce --bonus-scale 0.5 --json
    """
    spec = paper.paper_spec(
        runs=runs, horizon=horizon, arms=arms, bonus_scale=bonus_scale, seed=seed, diagnostics=diagnostics
    )
    differs = [  # each setting has its own folder
        f"{runs}x{horizon}" if (runs, horizon) != (paper.RUNS, paper.HORIZON) else "",
        arms if arms != "ball" else "",
        f"bonus{bonus_scale:g}" if bonus_scale != 1.0 else "",
        f"seed{seed}" if seed else "",
        "diagnostics" if diagnostics else "",
    ]
    folder = run.out or Path("-".join(["reproduction", *filter(None, differs)]))
    results = conduct(run, spec, folder, "reproducing the paper", paper.paper_recipe(arms, bonus_scale))
    from windvane.lab.report.presentation import present

    with ProgressBar(DRAWING, "files") as progress:
        files = present(results, progress=progress)
    compared, differences = paper.compare_with_published(results.entries), paper.describe_differences(results.entries)
    readings = paper.list_readings(arms, bonus_scale)
    published = paper.published_curves() if horizon == paper.HORIZON else {}
    ends = {name: float(curve.mean[-1]) for name, curve in published.items()}
    lines = [
        "\nWhere this differs from the published result:", *(f"  {line}" for line in differences),
        "\nReadings assumed where the paper is silent:", *(f"  {line}" for line in readings),
        f"\nReport: {folder / 'report.html'}",
    ]  # fmt: skip
    return _summarise(results, diagnostics, lines, ends, published=compared, readings=readings, files=files)


def simulate(
    run: RunOptions,
    spec: options.SpecFile,
    diagnostics: options.WithDiagnostics = False,
    check_policies: options.CheckPolicies = False,
) -> Answer:
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
        experiment = experiment.replace(diagnostics=True)
    folder = run.out or Path(f"{spec.stem}-results")
    results = conduct(run, experiment, folder, experiment.title or spec.stem)
    return _summarise(
        results, experiment.diagnostics, [f"\nResults: {folder} (draw them with: windvane report {folder})"]
    )


def _summarise(
    results: Results, diagnostics: bool, lines: list[str], in_paper: Mapping[str, float] | None = None, **more: Any
) -> Answer:
    """Return the answer of an experiment; ``lines`` follow its tables, and ``more`` is for its document."""
    document = {
        "folder": results.folder,
        "complete": results.complete,
        "finished_cells": results.finished,
        "cells": results.total,
        **{name: results.manifest[name] for name in ("seed", "runs", "horizon")},
        "policies": summarise_entries(results),
        **more,
    }
    blocks = _describe_results(results, in_paper)
    if diagnostics:
        document["bounds"] = bounds = evaluate_results(results)
        blocks += describe_bounds(bounds)
    return Answer(document, [*blocks, *lines])


def _describe_results(results: Results, in_paper: Mapping[str, float] | None) -> list[str | Table | Note]:
    """Return a table per environment with one line per policy; ``in_paper`` is the regret in the paper."""
    columns = ["policy", "told", "regret", "± SE", "sd", "γ", "µs/round", "θ̂ outside", "stages 1/2/3"]
    columns += ["published"] if in_paper else []
    rows = summarise_entries(results)
    incomplete = f"incomplete: {results.finished} of {results.total} cells are finished"
    blocks: list[str | Table | Note] = [] if results.complete else [incomplete]
    for environment in dict.fromkeys(row.environment for row in rows):
        here = [row for row in rows if row.environment == environment]
        facts = f", B_T = {here[0].drift:.4g}, θ* changed {here[0].switches:g} times"
        known = facts if math.isfinite(here[0].drift) else ""  # a labelled data stream has no θ*
        title = f"{environment}: {here[0].runs} runs of {results.manifest['horizon']} rounds{known}"
        blocks.append(Table(columns, [_describe_row(row, in_paper) for row in here], title))
    note = (
        "regret: reward lost to the best arm of each round, mean over runs, with its standard error and spread; "
        "told: what the policy was told exactly, although nobody knows it in practice (B_T, number of changes); "
        "θ̂ outside: share of rounds with the estimate outside Θ; stages: share of rounds by how it was projected."
    )
    return [*blocks, Note(note)]


def _describe_row(row: Row, in_paper: Mapping[str, float] | None) -> list[str]:
    stages = " ".join(share(s) for s in row.stages[1:]) if math.isfinite(row.stages[1]) else "–"
    numbers = number(row.mean), number(row.se), number(row.sd), number(row.gamma, 6), number(row.microseconds)
    published = [number(in_paper.get(row.policy))] if in_paper else []
    return [row.label, format_told(row.told) or "–", *numbers, share(row.outside), stages, *published]
