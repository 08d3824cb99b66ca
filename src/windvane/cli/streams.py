"""The command ``benchmark streams``: every policy on labelled data streams."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import FAILED, options
from windvane.cli.console import DRAWING, ProgressBar, number, print_table, say
from windvane.cli.experiments import conduct
from windvane.cli.leaderboards import CONFIDENCE, failures_to_json, leaderboard_json, print_leaderboard, publish
from windvane.lab.results.leaderboard import LeaderboardRow
from windvane.lab.results.results import Results, group_by_environment
from windvane.lab.run.workers import CellError
from windvane.lab.studies import streams_benchmark
from windvane.lab.studies.benchmarks import check_own_policies, ranked_entries
from windvane.lab.studies.streams_benchmark import StreamExperiment, score_entry


def streams(
    files: Annotated[list[Path], typer.Argument(help="CSV files with a header, or Parquet files. One row is a round.")],
    label: Annotated[str | None, typer.Option(help="The column of labels (default: the last one).")] = None,
    rows: Annotated[int | None, typer.Option(help="Use only the first ROWS rows of each file.", min=1)] = None,
    drop_missing: Annotated[
        bool, typer.Option("--drop-missing", help="Leave out rows with missing values (default: report an error).")
    ] = False,
    s: Annotated[
        float, typer.Option("--S", help="The norm bound S that policies assume. They assume B_T = 2 S.", min=1e-6)
    ] = 1.0,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
    runs: options.Runs = streams_benchmark.RUNS,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Run every policy on labelled data streams, and print a leaderboard.

    A policy sees the fields of a row and chooses one of the classes. The reward is 1 if it is the label, else 0. Some
    policies (GLM-UCB) become slower with every row, so try --rows 2000 first. If a policy fails, the others continue,
    the failure is reported, and the exit code is 1. Repeat the command to continue a stopped run.

    Examples:
      windvane benchmark streams electricity.csv --rows 2000
      windvane benchmark streams electricity.csv weather.csv --out streams
      windvane benchmark streams data.parquet --label class --S 3
      windvane benchmark streams data.csv --policies AdaptiveGLMUCB,Greedy,UniformRandom --runs 20
    """
    missing = "drop" if drop_missing else "refuse"
    experiments = streams_benchmark.streams_experiments(
        files,
        label=label,
        rows=rows,
        missing=missing,
        policies=options.split_names(policies),
        runs=runs,
        seed=seed,
        S=s,
    )
    if check_policies:
        check_own_policies(experiments[0].spec.policies)
    failures: list[CellError] = []
    results = streams_benchmark.run_streams(
        experiments,
        out or Path("benchmark-streams"),
        functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart, failures=failures),
    )
    if failures and not ranked_entries(results):
        raise failures[0]
    from windvane.lab.report.presentation import present_streams

    with ProgressBar(DRAWING, "files") as progress:
        standings, written = present_streams(results, failures, confidence=CONFIDENCE, progress=progress)
    document = {**_document(results, standings, experiments), "failures": failures_to_json(failures)}
    publish(
        results, document, written, failures, as_json=as_json,
        show=lambda: _print_benchmark(results, standings, experiments),
    )  # fmt: skip
    if failures:
        raise typer.Exit(FAILED)


def _document(
    results: Results,
    standings: Sequence[LeaderboardRow],
    experiments: Sequence[StreamExperiment],
) -> dict[str, Any]:
    documents = []
    groups = group_by_environment(results.entries)
    for experiment in experiments:
        name = experiment.file.name
        ratios = {standing.label: standing.ratios[name] for standing in standings}
        scores = [dataclasses.asdict(score_entry(entry)) for entry in groups.get(name, [])]
        documents.append(
            {
                "stream": name,
                "file": experiment.file.file,
                "sha256": experiment.file.sha256,
                "rows": experiment.spec.horizon,
                "classes": experiment.classes,
                "dim": experiment.dim,
                "policies": [
                    {"policy": score.pop("label"), "ratio": ratios.get(label), **score}
                    for score in scores
                    for label in [score["label"]]
                ],
            }
        )
    return {**leaderboard_json(results, standings), "streams": documents}


def _print_benchmark(
    results: Results,
    standings: Sequence[LeaderboardRow],
    experiments: Sequence[StreamExperiment],
) -> None:
    groups = group_by_environment(results.entries)
    for experiment in experiments:
        scores = sorted(map(score_entry, groups.get(experiment.file.name, [])), key=lambda score: -score.mean_reward)
        rows = [
            [
                score.label, number(score.mean_reward, 4), number(score.se, 4), number(score.last_tenth, 4),
                number(score.mistakes), number(score.microseconds),
            ]
            for score in scores
        ]  # fmt: skip
        sizes = f"{experiment.spec.runs} runs of {experiment.spec.horizon:,} rows"
        title = f"{experiment.file.name}: {sizes}, {experiment.classes} classes, d = {experiment.dim}"
        columns = ["policy", "mean reward", "± SE", "last tenth", "mistakes", "µs/round"]
        print_table(columns, rows, title)
        say()
    meaning = "mistakes over those of the best policy on each labelled data stream"
    print_leaderboard(standings, "relative mistakes", "labelled data streams", meaning)
