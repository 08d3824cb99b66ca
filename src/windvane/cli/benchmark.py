"""The command ``benchmark``: the whole family in many drifting worlds."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane._files import write_atomically
from windvane.arguments import check_choice
from windvane.cli.console import number, output, plain, print_json, remark, table
from windvane.cli.experiments import conduct
from windvane.cli.options import AsJson, Cluster, Jobs, Out, Restart, Seed, named
from windvane.lab import drift_benchmark as drift
from windvane.lab.curves import by_environment
from windvane.lab.results import Results
from windvane.lab.standings import Standing
from windvane.lab.summary import row_of

BENCHMARKS = ("drift",)
CONFIDENCE = 0.95


def benchmark(
    name: Annotated[str, typer.Argument(help=f"Which one: {', '.join(BENCHMARKS)}.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small one, to look at: noisy, done in two minutes.")
    ] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Also every policy at the bonus scale that served it best on other runs.")
    ] = False,
    runs: Annotated[int | None, typer.Option(help="Runs of each policy (default: by size).", min=1, max=10**6)] = None,
    horizon: Annotated[int | None, typer.Option(help="Rounds of each run (default: by size).", min=1)] = None,
    worlds: Annotated[str | None, typer.Option(help="Only these worlds, with commas: rotation,clicks")] = None,
    policies: Annotated[str | None, typer.Option(help="Only these policies, with commas: OFUL,BVD-GLM-UCB")] = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    cluster: Cluster = None,
    out: Out = None,
    restart: Restart = False,
    as_json: AsJson = False,
) -> None:
    """Every policy in twelve drifting worlds (d = 2 and 10), and a leaderboard. Stopped, it goes on where it was.

    \b
    Examples:
      windvane benchmark drift --quick
      windvane benchmark drift --out benchmark
      windvane benchmark drift --tuned --out benchmark
      windvane benchmark drift --policies OFUL,D-LinUCB,BVD-GLM-UCB --worlds clicks --runs 100
    """
    check_choice("name", name, BENCHMARKS)
    spec = drift.benchmark_spec(
        quick, runs=runs, horizon=horizon, seed=seed, worlds=named(worlds), policies=named(policies)
    )
    folder = out or Path(f"benchmark-{name}" + ("-quick" if quick else ""))
    results, scales = drift.run_benchmark(
        spec, folder, functools.partial(conduct, jobs=jobs, cluster=cluster, restart=restart), tuned=tuned
    )
    remark("computing the leaderboard and writing the report")
    from windvane.lab.presentation import present_benchmark

    standings, files = present_benchmark(results, confidence=CONFIDENCE)
    document = _document(results, standings, scales)
    write_atomically(folder / "leaderboard.json", (json.dumps(plain(document), indent=2) + "\n").encode())
    if as_json:
        print_json({**document, "files": [str(path) for path in files]})
    else:
        _print(results, standings, scales)
        output().print(f"\nReport: {folder / 'report.html'}", markup=False)


def _document(results: Results, standings: list[Standing], scales: drift.Scales) -> dict[str, Any]:
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
    return {
        "folder": str(results.folder),
        "complete": results.complete,
        "seed": results.manifest["seed"],
        "runs": results.manifest["runs"],
        "horizon": results.manifest["horizon"],
        "confidence": CONFIDENCE,
        "leaderboard": [dataclasses.asdict(standing) for standing in standings],
        "environments": worlds,
    }


def _scale(scales: drift.Scales, environment: str, label: str) -> float | None:
    """The bonus scale that a tuned policy got there."""
    return {drift.tuned_label(name): scale for name, scale in scales.get(environment, {}).items()}.get(label)


def _print(results: Results, standings: list[Standing], scales: drift.Scales) -> None:
    console = output()
    for name, entries in by_environment(results.entries).items():
        ratios = {standing.label: standing.ratios[name] for standing in standings}
        rows = sorted((row_of(entry) for entry in entries), key=lambda row: row.mean)
        columns = ["policy", "regret", "± SE", "relative", *["bonus scale"] * bool(scales)]
        lines = []
        for row in rows:
            scale = _scale(scales, name, row.label)
            relative = number(ratios[row.label], 2) if row.label in ratios else "–"
            told = ["–" if scale is None else f"{scale:g}"] * bool(scales)
            lines.append([row.label, number(row.mean), number(row.se), relative, *told])
        title = f"{name}: {rows[0].runs} runs of {results.manifest['horizon']} rounds, B_T = {rows[0].drift:.4g}"
        console.print(table(columns, lines, title))
        console.print()
    lines = [
        [
            "–" if one.rank is None else str(one.rank), one.label, number(one.score, 2), number(one.low, 2),
            number(one.high, 2), number(one.worst, 2), one.worst_environment, number(one.microseconds),
        ]
        for one in standings
    ]  # fmt: skip
    columns = ["rank", "policy", "relative regret", "low", "high", "worst", "where", "µs/round"]
    console.print(table(columns, lines, f"Leaderboard over {len(standings[0].ratios)} environments", left=2))
    console.print(
        "relative regret: final regret over that of the best policy of each environment, geometric mean over "
        f"environments, with its {CONFIDENCE:.0%} interval (bootstrap over runs).",
        markup=False,
        style="dim",
    )
