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
from windvane.lab.results.summary import Row
from windvane.lab.studies.bounds import Bounds, MeasuredBounds, evaluate, evaluate_results
from windvane.lab.studies.coverage import Coverage

PROOF = 'confidence = "horizon" or "anytime", not with their default settings'


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

    For an experiment it also says which policies a theorem covers and, if not, why; with default settings, none.

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
        bounds = [MeasuredBounds("", False, evaluate(**constants, **agent), [], [])]
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
    yield Table(["bound", "total", "γ", "terms"], _list_bounds(b), "γ: the recommended discount, or --gamma")
    if names := [name for name, bound in _name_bounds(b).items() if bound.total > b.trivial]:
        which = "All of them" if len(names) == len(_name_bounds(b)) else " and ".join(f"“{name}”" for name in names)
        verb = "is" if len(names) == 1 else "are"
        yield f"{which} {verb} larger than the trivial bound: they say how regret grows with T, not how large it is."
    if not measured.measured:
        yield f"They hold for BVD-GLM-UCB (Theorem 1) and BOB-BVD-GLM-UCB (Theorem 2) with {PROOF}."
        return
    rows = zip(measured.measured, measured.coverage, strict=True)
    yield Table(
        ["measured", "regret", "± SE", "covered", "its bound"], [_describe_coverage(*row, b.trivial) for row in rows],
        f"The arms are {'orthogonal' if measured.orthogonal_arms else 'general, so Theorem 2 does not apply'}",
    )  # fmt: skip
    yield from (Note(line) for line in explain_coverage(measured.coverage))


def _describe_coverage(row: Row, coverage: Coverage, trivial: float) -> list[str]:
    is_covered = "–" if coverage.theorem is None else "yes" if coverage.is_covered else "no"
    is_trivial = coverage.bound is not None and coverage.bound > trivial
    bound = number(coverage.bound, 0) + (" (above the trivial one)" if is_trivial else "")
    return [row.label, number(row.mean), number(row.se), is_covered, bound]


def explain_coverage(coverages: Sequence[Coverage]) -> Iterator[str]:
    """Yield a line for the policies that a theorem is about, and one for the others."""
    if not any(coverage.is_covered for coverage in coverages):
        yield "Neither theorem covers these runs."
    groups: dict[tuple[Any, ...], list[str]] = {}
    for c in coverages:
        groups.setdefault((c.theorem, c.arm_geometry, c.gaps, c.has_proven_order), []).append(c.label)
    for (theorem, geometry, gaps, has_proven_order), labels in groups.items():
        name = f"Theorem {theorem}" + (f" for {geometry} arms" if geometry else "")
        if theorem is None:
            yield f"{', '.join(labels)}: no theorem here is about it."
        elif gaps:
            yield f"{', '.join(labels)}: not covered by {name}: {'; '.join(gaps)}."
        elif has_proven_order:
            yield f"{', '.join(labels)}: covered by {name}, and so is the order of the bound."
        else:
            yield f"{', '.join(labels)}: covered by {name}; its order is proven for another discount, see γ above."


def _name_bounds(b: Bounds) -> dict[str, Any]:
    return {
        "Theorem 1, orthogonal arms": b.orthogonal,
        "Theorem 1, general arms": b.general,
        "Theorem 2, drift unknown": b.unknown_drift,
    }


def _list_bounds(b: Bounds) -> list[list[str]]:
    rows: list[list[str]] = []
    for name, bound in _name_bounds(b).items():
        parts = dataclasses.asdict(bound)
        total, gamma = parts.pop("total"), parts.pop("gamma", None)
        terms = ", ".join(f"{term} {value:,.0f}" for term, value in parts.items() if value is not None)
        rows.append([name, number(total, 0), number(gamma, 6), terms])
    return [*rows, ["trivial", number(b.trivial, 0), "–", b.trivial_formula.replace("2 sigma T", "2σT")]]
