"""The commands ``benchmark drift`` and ``benchmark streams``: every policy in simulations and on your own data."""

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
from windvane.cli.streams import streams
from windvane.lab.results.leaderboard import LeaderboardRow
from windvane.lab.results.results import Results, group_by_environment
from windvane.lab.results.summary import row_of
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import drift_benchmark as worlds_benchmark
from windvane.lab.studies.benchmarks import check_own_policies, ranked_entries
from windvane.lab.studies.own_benchmark import own_benchmark
from windvane.lab.studies.tuned_benchmark import OWN, Scales, run_benchmark, tuned_label

HELP = """Rank all policies on a leaderboard: in drifting worlds, on labelled data streams, or in worlds of yours.

Examples:
  windvane benchmark drift --quick
  windvane benchmark streams electricity.csv weather.csv --rows 2000
  windvane benchmark spec spec.toml --policies my_module:MyPolicy,OFUL
"""

Tuned = Annotated[
    bool, typer.Option("--tuned", help="Also run each policy at its best bonus scale, chosen on other runs.")
]
benchmark = typer.Typer(help=HELP, no_args_is_help=True)


@benchmark.command()
def drift(
    quick: Annotated[bool, typer.Option("--quick", help="A small, noisy benchmark that takes two minutes.")] = False,
    tuned: Tuned = False,
    worlds: Annotated[str | None, typer.Option(help="Only these worlds, separated by commas: rotation,clicks")] = None,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
    runs: options.OptionalRuns = None,
    horizon: options.OptionalHorizon = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Run every policy in twelve drifting worlds (d = 2 and 10), and print a leaderboard.

    Runs and horizon depend on --quick. Repeat the command to continue a stopped run.

    Examples:
      windvane benchmark drift --quick
      windvane benchmark drift --out benchmark
      windvane benchmark drift --tuned --out benchmark
      windvane benchmark drift --policies OFUL,D-LinUCB,BVD-GLM-UCB --worlds clicks --runs 100
    """
    spec = worlds_benchmark.benchmark_spec(
        quick,
        runs=runs,
        horizon=horizon,
        seed=seed,
        worlds=options.split_names(worlds),
        policies=options.split_names(policies),
    )
    if check_policies:
        check_own_policies(spec.policies)
    go = functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart)
    folder = out or Path("benchmark-drift" + ("-quick" if quick else ""))
    _rank(*run_benchmark(spec, folder, go, tuned=tuned), as_json)


@benchmark.command("spec")
def own(
    file: options.SpecFile,
    tuned: Tuned = False,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
    runs: options.OptionalRuns = None,
    horizon: options.OptionalHorizon = None,
    seed: options.OptionalSeed = None,
    jobs: options.Jobs = None,
    cluster: options.Cluster = None,
    out: options.Out = None,
    restart: options.Restart = False,
    as_json: options.AsJson = False,
) -> None:
    """Run every policy in the environments of a spec of yours, and print a leaderboard.

    The policies are all registered ones and those of the spec. Runs, horizon and seed are those of the spec.

    Examples:
      windvane benchmark spec spec.toml
      windvane benchmark spec spec.toml --policies my_module:MyPolicy,AdaptiveGLMUCB,OFUL --check-policies
    """
    sizes: dict[str, Any] = {"runs": runs, "horizon": horizon, "seed": seed}
    chosen = {name: value for name, value in sizes.items() if value is not None}
    spec = own_benchmark(dataclasses.replace(Spec.read(file, check=False), **chosen), options.split_names(policies))
    if check_policies:
        check_own_policies(spec.policies)
    failures: list[CellError] = []
    go = functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart, failures=failures)
    results, scales = run_benchmark(spec, out or Path(f"benchmark-{file.stem}"), go, tuned=tuned, name=OWN)
    if failures and not ranked_entries(results):
        raise failures[0]
    _rank(results, scales, as_json, failures)
    if failures:
        raise typer.Exit(FAILED)


def _rank(results: Results, scales: Scales, as_json: bool, failures: Sequence[CellError] = ()) -> None:
    """Write the report and print the leaderboard."""
    from windvane.lab.report.presentation import present_benchmark

    with ProgressBar(DRAWING, "files") as progress:
        standings, files = present_benchmark(results, confidence=CONFIDENCE, progress=progress)
    document = {**_document(results, standings, scales), "failures": failures_to_json(failures)}
    publish(
        results, document, files, failures, as_json=as_json, show=lambda: _print_benchmark(results, standings, scales)
    )


def _document(results: Results, standings: list[LeaderboardRow], scales: Scales) -> dict[str, Any]:
    worlds = []
    for name, entries in group_by_environment(results.entries).items():
        rows = [row_of(entry) for entry in entries]
        ratios = {standing.label: standing.ratios[name] for standing in standings}
        policies = [
            {
                "policy": row.label, "regret": row.mean, "se": row.se, "ratio": ratios.get(row.label),
                "microseconds": row.microseconds, "bonus_scale": _scale(scales, name, row.label),
            }
            for row in rows
        ]  # fmt: skip
        worlds.append({"environment": name, "B_T": rows[0].drift, "switches": rows[0].switches, "policies": policies})
    common = leaderboard_json(results, standings)
    return {**common, "horizon": results.manifest["horizon"], "environments": worlds}


def _scale(scales: Scales, environment: str, label: str) -> float | None:
    """Return the bonus scale of a tuned policy in this environment."""
    return {tuned_label(name): scale for name, scale in scales.get(environment, {}).items()}.get(label)


def _print_benchmark(results: Results, standings: list[LeaderboardRow], scales: Scales) -> None:
    for name, entries in group_by_environment(results.entries).items():
        ratios = {standing.label: standing.ratios[name] for standing in standings}
        rows = sorted((row_of(entry) for entry in entries), key=lambda row: row.mean)
        columns = ["policy", "regret", "± SE", "relative", *["bonus scale"] * bool(scales)]
        cells = []
        for row in rows:
            scale = _scale(scales, name, row.label)
            relative = number(ratios[row.label], 2) if row.label in ratios else "–"
            scale_cell = ["–" if scale is None else f"{scale:g}"] * bool(scales)
            cells.append([row.label, number(row.mean), number(row.se), relative, *scale_cell])
        title = f"{name}: {rows[0].runs} runs of {results.manifest['horizon']} rounds, B_T = {rows[0].drift:.4g}"
        print_table(columns, cells, title)
        say()
    meaning = "final regret over that of the best policy of each environment"
    print_leaderboard(standings, "relative regret", "environments", meaning)


benchmark.command()(streams)
