"""The commands ``benchmark drift`` and ``benchmark streams``: every policy in simulations and on your own data."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli import options
from windvane.cli.console import number, print_table, remark, say
from windvane.cli.experiments import conduct
from windvane.cli.leaderboards import CONFIDENCE, leaderboard_json, print_leaderboard, publish
from windvane.cli.streams import streams
from windvane.lab.figures.curves import by_environment
from windvane.lab.results.leaderboard import Standing
from windvane.lab.results.results import Results
from windvane.lab.results.summary import row_of
from windvane.lab.studies import drift_benchmark as worlds_benchmark
from windvane.lab.studies.drift_benchmark import Scales, tuned_label

HELP = """Rank all policies on a leaderboard: in simulated drifting worlds, or on your own labelled data streams.

Examples:
  windvane benchmark drift --quick
  windvane benchmark streams electricity.csv weather.csv --rows 2000
"""

benchmark = typer.Typer(help=HELP, no_args_is_help=True)


@benchmark.command()
def drift(
    quick: Annotated[bool, typer.Option("--quick", help="A small, noisy benchmark that takes two minutes.")] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Also run each policy at its best bonus scale, chosen on other runs.")
    ] = False,
    worlds: Annotated[str | None, typer.Option(help="Only these worlds, separated by commas: rotation,clicks")] = None,
    policies: options.Policies = None,
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
    names = {"worlds": options.split_names(worlds), "policies": options.split_names(policies)}
    spec = worlds_benchmark.benchmark_spec(quick, runs=runs, horizon=horizon, seed=seed, **names)
    folder = out or Path("benchmark-drift" + ("-quick" if quick else ""))
    results, scales = worlds_benchmark.run_benchmark(
        spec, folder, functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart), tuned=tuned
    )
    remark("computing the leaderboard and writing the report")
    from windvane.lab.report.benchmark_pages import present_benchmark

    standings, files = present_benchmark(results, confidence=CONFIDENCE)
    document = _document(results, standings, scales)
    publish(results, document, files, as_json=as_json, show=lambda: _print_benchmark(results, standings, scales))


def _document(results: Results, standings: list[Standing], scales: Scales) -> dict[str, Any]:
    worlds = []
    for name, entries in by_environment(results.entries).items():
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


def _print_benchmark(results: Results, standings: list[Standing], scales: Scales) -> None:
    for name, entries in by_environment(results.entries).items():
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
