"""Commands that run experiments: reproduce, simulate."""

from __future__ import annotations

import functools
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
from windvane.cli.options import RunOptions, Size, complete_paper
from windvane.lab import experiment as lab_experiment
from windvane.lab.results.folder import Recipe
from windvane.lab.results.results import Entry, Results, group_by_environment
from windvane.lab.results.summary import Row, format_told, summarise_entries
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.benchmarks import check_own_policies
from windvane.lab.studies.bounds import evaluate_results
from windvane.lab.studies.reproductions import DEFAULT, NAMES, Reproduction, read_reproduction, run_reproduction

COLUMNS = (
    "regret: the reward lost to the best arm of each round, mean over the runs; ± SE: the standard error of this mean; "
    "sd: the standard deviation of single runs.",
    "told: quantities that nobody knows in practice, which the policy was told exactly and does not strictly need: "
    "B_T, the drift of the run; the number of changes; S, the bound on the norm of θ*. Policies that need T, the link, "
    "S, L or σ are given them.",
    "γ: the factor by which an observation loses weight in a round, mean over the runs; 1 for a policy without a "
    "discount, – for one without a γ. Of BOB it is that of the last block.",
    "µs/round: microseconds of a decision and its update, per run and round.",
    "θ̂ outside: the share of rounds with the estimate outside Θ, the ball of radius S.",
    "stages: the share of rounds in which the estimate was inside Θ (1), was moved into Θ within the confidence radius "
    "(2), or farther (3); – for a policy that does not project.",
)
"""What the columns of the table of results mean, a line for each."""
IN_PAPER = "published: the mean regret in the paper, read off its figure."


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


Paper = Annotated[str, typer.Option(help="Which experiment; --list describes them.", autocompletion=complete_paper)]


def reproduce(
    size: Size,
    run: RunOptions,
    paper: Paper = DEFAULT,
    list_papers: Annotated[bool, typer.Option("--list", help="List the experiments instead of running one.")] = False,
    arms: Annotated[
        str | None, typer.Option(help="How arms are drawn, if a paper leaves it open (faury2021: ball, sphere, cube).")
    ] = None,
    bonus_scale: Annotated[float, typer.Option(help="Multiplies every bonus; 1 is as printed.", min=0.0)] = 1.0,
    diagnostics: options.WithDiagnostics = False,
) -> Answer:
    """Reproduce the experiment of a paper: table, figures and a report, beside the published result.

    The default is the paper that windvane is built around. Runs and rounds are those of the paper. This is what "make
    demo" runs; "windvane demo" is different: it shows the live service with a simulated audience.

    Examples:
      windvane reproduce
      windvane reproduce --list
      windvane reproduce --paper russac2019
      windvane reproduce --runs 400 --arms sphere --out sphere
      windvane reproduce --bonus-scale 0.5 --json
    """
    if list_papers:
        return _list_papers()
    reproduction = read_reproduction(paper)
    arms = arms or reproduction.default_arms
    results = run_reproduction(
        reproduction, run.out or _name_folder(reproduction, size, arms, bonus_scale, diagnostics),
        functools.partial(conduct, run), arms=arms, bonus_scale=bonus_scale, diagnostics=diagnostics,
        **size.list_chosen(),
    )  # fmt: skip
    from windvane.lab.report.presentation import present

    with ProgressBar(DRAWING, "files") as progress:
        files = present(results, progress=progress)
    notes = reproduction.write_notes(results.entries, arms, bonus_scale)
    lines = [line for heading, texts in notes.items() for line in (f"\n{heading}:", *(f"  {text}" for text in texts))]
    ends = {key: float(curve.mean[-1]) for key, curve in reproduction.published_curves(results.entries).items()}
    more = {
        "paper": paper,
        "published": reproduction.compare(results.entries),
        "readings": reproduction.list_readings(arms, bonus_scale),
        **{name: getattr(reproduction, name) for name in ("known_errors", "reasons", "left_out")},
        "files": files,
    }
    return _summarise(results, diagnostics, [*lines, f"\nReport: {results.folder / 'report.html'}"], ends, **more)


def _name_folder(reproduction: Reproduction, size: Size, arms: str, bonus_scale: float, diagnostics: bool) -> Path:
    """Return the folder of an experiment: each setting has its own."""
    sizes = [size.runs or reproduction.runs, *([size.horizon] if size.horizon else reproduction.horizons[-1:])]
    differs = [
        reproduction.name if reproduction.name != DEFAULT else "",
        "x".join(map(str, sizes)) if sizes != [reproduction.runs, reproduction.horizons[-1]] else "",
        arms if arms != reproduction.default_arms else "",
        f"bonus{bonus_scale:g}" if bonus_scale != 1.0 else "",
        f"seed{size.seed}" if size.seed else "",
        "diagnostics" if diagnostics else "",
    ]
    return Path("-".join(["reproduction", *filter(None, differs)]))


def _list_papers() -> Answer:
    """Return the experiments that can be reproduced."""
    experiments = [read_reproduction(name) for name in NAMES]
    rows = [
        [one.name, one.label, one.summary, number(one.runs, 0), number(max(one.horizons), 0)] for one in experiments
    ]
    document = [
        {
            "name": one.name,
            "paper": one.paper,
            "label": one.label,
            **{name: getattr(one, name) for name in ("summary", "runs", "horizons")},
            "arms": {name: law["text"] for name, law in one.arms.items()},
        }
        for one in experiments
    ]
    return Answer(document, [Table(["name", "paper", "what", "runs", "rounds"], rows, left=3)])


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


InPaper = Mapping[tuple[str, str], float]
"""The published final regret by environment and policy."""


def _summarise(
    results: Results, diagnostics: bool, lines: list[str], in_paper: InPaper | None = None, **more: Any
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


def _describe_results(results: Results, in_paper: InPaper | None) -> list[str | Table | Note]:
    """Return a table per environment with one line per policy."""
    columns = ["policy", "told", "regret", "± SE", "sd", "γ", "µs/round", "θ̂ outside", "stages 1/2/3"]
    columns += ["published"] if in_paper else []
    rows = summarise_entries(results)
    incomplete = f"incomplete: {results.finished} of {results.total} cells are finished"
    blocks: list[str | Table | Note] = [] if results.complete else [incomplete]
    for environment, entries in group_by_environment(results.entries).items():
        here = [row for row in rows if row.environment == environment]
        title = f"{environment}: {here[0].runs} runs of {entries[0].horizon} rounds{_describe_drift(entries[0])}"
        blocks.append(Table(columns, [_describe_row(row, in_paper) for row in here], title))
    return [*blocks, *(Note(line) for line in COLUMNS), *([Note(IN_PAPER)] if in_paper else [])]


def _describe_drift(entry: Entry) -> str:
    """Return how much θ* moved; nothing for a labelled data stream, which has no θ*."""
    drift, switches = float(entry.drift.mean()), float(entry.switches.mean())
    if not math.isfinite(drift):
        return ""
    low, high = float(entry.drift.min()), float(entry.drift.max())
    if low == high:
        return f", B_T = {drift:.4g}, θ* changed {switches:g} times"
    return f", B_T = {drift:.4g} on average ({low:.4g} to {high:.4g}), θ* changed {switches:.4g} times on average"


def _describe_row(row: Row, in_paper: InPaper | None) -> list[str]:
    stages = " ".join(share(s) for s in row.stages[1:]) if math.isfinite(row.stages[1]) else "–"
    numbers = number(row.mean), number(row.se), number(row.sd), number(row.gamma, 6), number(row.microseconds)
    published = [number(in_paper.get((row.environment, row.policy)))] if in_paper else []
    return [row.label, format_told(row.told) or "–", *numbers, share(row.outside), stages, *published]
