"""The command ``benchmark`` and its sub-commands: every policy in simulations and on your own data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import options
from windvane.cli.commands import Group
from windvane.cli.console import Answer
from windvane.cli.experiments import conduct
from windvane.cli.leaderboards import MISTAKES, REGRET, describe_streams, describe_worlds, publish
from windvane.cli.options import RunOptions, Size, SpecSize, split_names
from windvane.lab.run.workers import CellError
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies import streams_benchmark
from windvane.lab.studies.benchmarks import check_own_policies, list_left_out, own_benchmark
from windvane.lab.studies.tuned_benchmark import OWN, run_benchmark
from windvane.lab.studies.world_benchmarks import BENCHMARKS, benchmark_spec

HELP = """Rank all policies on a leaderboard: in worlds that drift or rest, on labelled data streams, or in your own.

Examples:
  windvane benchmark drift --quick
  windvane benchmark stationary --quick
  windvane benchmark streams electricity.csv weather.csv --rows 2000
  windvane benchmark spec spec.toml --policies my_module:MyPolicy,OFUL
"""

Tuned = Annotated[
    bool, typer.Option("--tuned", help="Also run each policy at its best bonus scale, chosen on other runs.")
]


Quick = Annotated[bool, typer.Option("--quick", help="A small, noisy benchmark that takes two minutes.")]


def drift(
    size: Size,
    run: RunOptions,
    quick: Quick = False,
    tuned: Tuned = False,
    worlds: options.Worlds = None,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
) -> Answer:
    """Run every policy in twelve drifting worlds (d = 2 and 10), and print a leaderboard.

    Runs and horizon depend on --quick. Repeat the command to continue a stopped run. Policies that need the same arms
    in every round take part if all --worlds have them.

    Examples:
      windvane benchmark drift --quick
      windvane benchmark drift --out benchmark
      windvane benchmark drift --tuned --out benchmark
      windvane benchmark drift --policies OFUL,D-LinUCB,BVD-GLM-UCB --worlds clicks --runs 100
      windvane benchmark drift --worlds "fixed arms turning,fixed arms switching"
    """
    names = split_names(policies)
    spec = benchmark_spec(quick, worlds=split_names(worlds), policies=names, **size.list_chosen())
    folder = run.out or Path("benchmark-drift" + ("-quick" if quick else ""))
    return _run_in_worlds(
        spec, folder, run, check_policies, tuned, BENCHMARKS["drift"].recipe, _find_left_out(names, spec)
    )


def stationary(
    size: Size,
    run: RunOptions,
    quick: Quick = False,
    tuned: Tuned = False,
    worlds: options.Worlds = None,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
) -> Answer:
    """Run every policy in worlds where nothing moves (d = 2, 10 and 50), and print a leaderboard.

    It shows what protection against drift costs where there is none. Policies that ask for the drift are told 0; some
    run again, expecting the drift of the paper's experiment. Runs
    and horizon depend on --quick. Repeat the command to continue a stopped run.

    Examples:
      windvane benchmark stationary --quick
      windvane benchmark stationary --out stationary
      windvane benchmark stationary --policies OFUL,GLM-UCB,AdaptiveGLMUCB --worlds clicks --runs 100
    """
    names, chosen = split_names(policies), size.list_chosen()
    spec = benchmark_spec(quick, benchmark="stationary", worlds=split_names(worlds), policies=names, **chosen)
    folder = run.out or Path("benchmark-stationary" + ("-quick" if quick else ""))
    return _run_in_worlds(
        spec, folder, run, check_policies, tuned, BENCHMARKS["stationary"].recipe, _find_left_out(names, spec)
    )


def benchmark_worlds(
    size: SpecSize,
    run: RunOptions,
    file: options.SpecFile,
    tuned: Tuned = False,
    policies: options.Policies = None,
    check_policies: options.CheckPolicies = False,
) -> Answer:
    """Run every policy in the environments of your spec, and print a leaderboard.

    Runs all registered policies that can run there, and those of the spec. Runs, horizon and seed default to those of
    the spec.

    Examples:
      windvane benchmark spec spec.toml
      windvane benchmark spec spec.toml --policies my_module:MyPolicy,AdaptiveGLMUCB,OFUL --check-policies
    """
    worlds = Spec.read(file, check=False).replace(**size.list_chosen())
    names = split_names(policies)
    spec, folder = own_benchmark(worlds, names), run.out or Path(f"benchmark-{file.stem}")
    return _run_in_worlds(spec, folder, run, check_policies, tuned, OWN, _find_left_out(names, spec))


def _find_left_out(names: Sequence[str] | None, spec: Spec) -> dict[str, str]:
    """Return the policies that a benchmark leaves out by itself, and why."""
    return list_left_out(spec) if names is None else {}


def _run_in_worlds(
    spec: Spec, folder: Path, run: RunOptions, check_policies: bool, tuned: bool, name: str, left_out: Mapping[str, str]
) -> Answer:
    """Run a benchmark in simulated environments, and write its report."""
    from windvane.lab.report.presentation import present_benchmark

    if check_policies:
        check_own_policies(spec.policies)
    failures: list[CellError] = []
    go = functools.partial(conduct, run, failures=failures)
    results, scales = run_benchmark(spec, folder, go, tuned=tuned, name=name)
    describe = functools.partial(describe_worlds, results, scales)
    return publish(results, failures, REGRET, present_benchmark, describe, left_out)


def streams(
    run: RunOptions,
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
) -> Answer:
    """Run every policy on labelled data streams, and print a leaderboard.

    A policy sees the fields of a row and chooses one of the classes. The reward is 1 if it is the label, else 0. Some
    policies (GLM-UCB) become slower with every row, so try --rows 2000 first. Policies that never forget, but for OFUL
    and GLM-UCB, take part only if --policies names them. If a policy fails, the others continue, the failure is
    reported, and the exit code is 1. Repeat the command to continue a stopped run.

    Examples:
      windvane benchmark streams electricity.csv --rows 2000
      windvane benchmark streams electricity.csv weather.csv --out streams
      windvane benchmark streams data.parquet --label class --S 3
      windvane benchmark streams data.csv --policies AdaptiveGLMUCB,Greedy,UniformRandom --runs 20
    """
    from windvane.lab.report.presentation import present_streams

    missing, names = "drop" if drop_missing else "refuse", split_names(policies)
    experiments = streams_benchmark.streams_experiments(
        files, label=label, rows=rows, missing=missing, policies=names, runs=runs, seed=seed, S=s
    )
    if check_policies:
        check_own_policies(experiments[0].spec.policies)
    failures: list[CellError] = []
    go = functools.partial(conduct, run, failures=failures)
    results = streams_benchmark.run_streams(experiments, run.out or Path("benchmark-streams"), go)
    present = functools.partial(present_streams, failures=failures)
    describe = functools.partial(describe_streams, results, experiments)
    return publish(results, failures, MISTAKES, present, describe, _find_left_out(names, experiments[0].spec))


benchmark = Group(HELP, {"drift": drift, "stationary": stationary, "spec": benchmark_worlds, "streams": streams})
