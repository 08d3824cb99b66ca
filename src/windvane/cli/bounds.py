"""The command ``bound``: what the theorems promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from windvane.cli.console import Answer, Blocks, Note, Table, number
from windvane.cli.options import OptionalHorizon, list_chosen
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
) -> Answer:
    """Evaluate Theorems 1 and 2 of the paper for these constants, or for those of an experiment, beside its regret.

    Examples:
      windvane bound --horizon 3000 --drift 1.5708 --dim 2
      windvane bound reproduction
    """
    constants = list_chosen(horizon=horizon, drift=drift, dim=dim, link=link, S=s, L=ell, sigma=sigma)
    agent = list_chosen(lam=lam, delta=delta, gamma=gamma)
    if folder is not None:
        if constants:
            name, value = next(iter(constants.items()))
            raise ArgumentError(f"--{name}", value, f"omitted, because it comes from the experiment in {folder}")
        bounds = evaluate_results(Results.open(folder), **agent)
        if not bounds:
            raise FolderError(folder, "unfinished", "no cell of a simulated environment is finished yet")
    else:
        for name in ("horizon", "drift", "dim"):
            if name not in constants:
                raise ArgumentError(f"--{name}", None, "given, or the folder of an experiment", got="nothing")
        bounds = [MeasuredBounds("", False, evaluate(**constants, **agent), [])]
    return Answer(bounds, describe_bounds(bounds))


def describe_bounds(bounds: Sequence[MeasuredBounds]) -> Blocks:
    """Return the bounds of each environment as text, and beside them what was measured."""
    return [block for measured in bounds for block in _describe_environment(measured, measured.bounds)]


def _describe_environment(measured: MeasuredBounds, b: Bounds) -> Iterator[str | Table | Note]:
    c = b.constants
    if measured.environment:
        yield Note(measured.environment, "bold")
    yield (
        f"T = {c.horizon}, B_T = {c.drift:.6g}, d = {c.dim}, {c.link} link, S = {c.S:g}, L = {c.L:g}, λ = {c.lam:g}, "
        f"σ = {c.sigma:g}, δ = {c.delta:g}; k_μ = {c.k_mu:.6g}, c_μ = {c.c_mu:.6g}"
    )
    yield Table(["bound", "total", "γ", "terms"], _list_bounds(b))
    if measured.measured:
        rows = [[row.label, number(row.mean), number(row.se)] for row in measured.measured]
        yield Table(["measured", "regret", "± SE"], rows)
    if measured.environment:
        general = "general: Theorem 1's first form and Theorem 2 do not apply"
        yield f"The arms are {'orthogonal: both forms of Theorem 1 apply' if measured.orthogonal_arms else general}."
    if b.orthogonal.total > b.trivial:
        yield "At this horizon the bounds are larger than the trivial bound. They are about how regret grows."


def _list_bounds(b: Bounds) -> list[list[str]]:
    theorems: dict[str, Any] = {
        "Theorem 1, orthogonal arms": b.orthogonal,
        "Theorem 1, general arms": b.general,
        "Theorem 2, drift unknown": b.unknown_drift,
    }
    rows: list[list[str]] = []
    for name, bound in theorems.items():
        parts = dataclasses.asdict(bound)
        total, gamma = parts.pop("total"), parts.pop("gamma", None)
        terms = ", ".join(f"{term} {value:,.0f}" for term, value in parts.items() if value is not None)
        rows.append([name, number(total, 0), number(gamma, 6), terms])
    return [*rows, ["trivial", number(b.trivial, 0), "–", "2σT, or T times the largest gap"]]
