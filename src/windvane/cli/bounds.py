"""The command ``bound``: what the theorems promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli.console import number, print_json, print_table, say
from windvane.cli.options import AsJson, OptionalHorizon
from windvane.errors import ArgumentError
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.studies.bounds import Bounds, MeasuredBounds, evaluate, evaluate_results


def bound(
    folder: Annotated[
        Path | None, typer.Argument(help="An experiment: its constants are used, its regret is shown.")
    ] = None,
    drift: Annotated[float | None, typer.Option(help="How far θ* moves in all, B_T.", min=0.0)] = None,
    dim: Annotated[int | None, typer.Option(help="Features d.", min=1)] = None,
    link: Annotated[str | None, typer.Option(help="identity, logistic, poisson or probit.")] = None,
    s: Annotated[float | None, typer.Option("--S", help="Bound on ‖θ*‖.")] = None,
    ell: Annotated[float | None, typer.Option("--L", help="Bound on ‖x‖.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Rewards lie in [0, 2σ].")] = None,
    lam: Annotated[float | None, typer.Option(help="Regularisation λ.")] = None,
    delta: Annotated[float | None, typer.Option(help="Confidence parameter δ.")] = None,
    gamma: Annotated[float | None, typer.Option(help="Discount (default: the recommended one).")] = None,
    horizon: OptionalHorizon = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate Theorems 1 and 2 of the paper for these constants, or for those of an experiment, beside its regret.

    Examples:
      windvane bound --horizon 3000 --drift 1.5708 --dim 2
      windvane bound reproduction
    """
    world: dict[str, Any] = {
        "horizon": horizon, "drift": drift, "dim": dim, "link": link, "S": s, "L": ell, "sigma": sigma
    }  # fmt: skip
    constants = {name: value for name, value in world.items() if value is not None}
    agent: dict[str, Any] = {
        name: value for name, value in {"lam": lam, "delta": delta, "gamma": gamma}.items() if value is not None
    }
    if folder is not None:
        if constants:
            name, value = next(iter(constants.items()))
            raise ArgumentError(f"--{name}", value, f"omitted, because it comes from the experiment in {folder}")
        bounds = evaluate_results(Results.open(folder), **agent)
        if not bounds:
            raise FolderError(folder, "unfinished", "no cell of a simulated environment is finished yet")
    else:
        missing = [name for name in ("horizon", "drift", "dim") if name not in constants]
        if missing:
            expected = "given, or the folder of an experiment"
            raise ArgumentError(f"--{missing[0]}", None, expected, got="nothing")
        bounds = [MeasuredBounds("", False, evaluate(**constants, **agent), [])]
    if as_json:
        print_json(bounds_to_json(bounds))
    else:
        print_bounds(bounds)


def bounds_to_json(bounds: Sequence[MeasuredBounds]) -> list[dict[str, Any]]:
    """Return the bounds as JSON values."""
    return [dataclasses.asdict(environment) for environment in bounds]


def print_bounds(bounds: Sequence[MeasuredBounds]) -> None:
    """Print the bounds of each environment, and beside them what was measured."""
    for environment in bounds:
        _print_environment(environment)


def _print_environment(measured: MeasuredBounds) -> None:
    b = measured.bounds
    c = b.constants
    if measured.environment:
        say(measured.environment, style="bold")
    say(
        f"T = {c.horizon}, B_T = {c.drift:.6g}, d = {c.dim}, {c.link} link, S = {c.S:g}, L = {c.L:g}, λ = {c.lam:g}, "
        f"σ = {c.sigma:g}, δ = {c.delta:g}; k_μ = {c.k_mu:.6g}, c_μ = {c.c_mu:.6g}"
    )
    print_table(["bound", "total", "γ", "terms"], _list_bounds(b))
    if measured.measured:
        rows = [[row.label, number(row.mean), number(row.se)] for row in measured.measured]
        print_table(["measured", "regret", "± SE"], rows)
    if measured.environment:
        general = "general: Theorem 1's first form and Theorem 2 do not apply"
        say(f"The arms are {'orthogonal: both forms of Theorem 1 apply' if measured.orthogonal_arms else general}.")
    if b.orthogonal.total > b.trivial:
        say("At this horizon the bounds are larger than the trivial bound. They are about how regret grows.")


def _list_bounds(b: Bounds) -> list[list[str]]:
    theorems = {
        "Theorem 1, orthogonal arms": dataclasses.asdict(b.orthogonal),
        "Theorem 1, general arms": dataclasses.asdict(b.general),
        "Theorem 2, drift unknown": dataclasses.asdict(b.unknown_drift),
    }
    rows: list[list[str]] = []
    for name, parts in theorems.items():
        terms = ", ".join(f"{k} {v:,.0f}" for k, v in parts.items() if k not in ("total", "gamma") and v is not None)
        rows.append([name, number(parts["total"], 0), number(parts.get("gamma", float("nan")), 6), terms])
    return [*rows, ["trivial", number(b.trivial, 0), "–", "2σT, or T times the largest gap"]]
