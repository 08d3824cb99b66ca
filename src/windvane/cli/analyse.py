"""Commands that read what experiments wrote: report, compare, export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from windvane.cli import InputError
from windvane.cli.console import DRAWING, Answer, Blocks, Note, ProgressBar, Table, count, number, share, warn
from windvane.cli.options import Baseline, Confidence, Out
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.results.summary import NOT_SIGNIFICANT, Difference, align, compare_entries

Bands = Literal["sd", "se", "quantiles"]
Folder = Annotated[Path, typer.Argument(help="A results folder, written by simulate, tune or reproduce.")]


def report(
    folder: Folder,
    baseline: Baseline = None,
    bands: Annotated[
        Bands,
        typer.Option(
            help="Bands about means: one standard deviation of runs, one standard error, or the middle 80 % of runs."
        ),
    ] = "sd",
) -> Answer:
    """Draw the figures of an experiment (PNG, PDF, SVG) and write a self-contained report.html.

    Without --baseline, the first policy is the baseline, or in the experiment of a paper the paper's own.

    Examples:
      windvane report results
      windvane report results --bands quantiles --baseline OFUL
    """
    from windvane.lab.report.presentation import present

    results = Results.open(folder)
    with ProgressBar(DRAWING, "files") as progress:
        files = present(results, baseline=baseline, bands=bands, progress=progress)
    return Answer({"folder": folder, "complete": results.complete, "files": files}, [*map(str, files)])


def compare(
    folders: Annotated[list[Path], typer.Argument(help="One or more results folders.")],
    baseline: Baseline = None,
    confidence: Confidence = 0.95,
    out: Out = None,
) -> Answer:
    """Compare policies by paired differences of final regret: Student t intervals, p-values, runs won, a verdict.

    Runs are paired, since all policies see the same arms and the same random numbers in a run. Verdicts go by p-values
    that are corrected for the number of differences (Holm), so they can be more careful than the intervals, each of
    which holds for itself. Folders can be compared where environment, seed and horizon are the same. Without
    --baseline, the first policy is the baseline. With --out, the intervals are drawn into that folder.

    Examples:
      windvane compare results
      windvane compare results more-results --baseline results/BVD-GLM-UCB
    """
    several = [_open_finished(folder, "compare") for folder in folders]
    differences = compare_entries(align(several), baseline=baseline, confidence=confidence)
    if not differences:
        raise InputError(f"{folders[0]}: there is only one policy; nothing to compare it with")
    files = _draw(differences, confidence, out)
    document = {"confidence": confidence, "differences": differences, "files": files}
    return Answer(document, describe_differences(differences, confidence))


def _draw(differences: list[Difference], confidence: float, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from windvane.lab.report.presentation import draw_differences

    return draw_differences(differences, folder, confidence)


def describe_differences(differences: Sequence[Difference], confidence: float) -> Blocks:
    """Return a table of paired differences for each environment, and what its columns mean."""
    columns: list[str] = ["policy", "difference", "low", "high", "p", "p (Holm)", "runs won", "runs", "verdict"]
    tables = []
    for name in dict.fromkeys(d.environment for d in differences):
        here = [d for d in differences if d.environment == name]
        title = f"{name}: final regret minus that of {here[0].baseline}"
        tables.append(Table(columns, [_describe(d) for d in here], title))
    notes = (
        "difference: mean over the runs that both have, with the same arms and random numbers; below 0 is better.",
        f"low, high: its {confidence:.0%} confidence interval (paired Student t), each for itself.",
        "p: of a two-sided paired t test of a mean difference of 0; p (Holm): corrected for the "
        f"{count(len(differences), 'difference')} here.",
        "runs won: the share of runs with less regret than the baseline; equal regret counts half.",
        f"verdict: p (Holm) is below {1 - confidence:.3g}, or there is {NOT_SIGNIFICANT}.",
    )
    return [*tables, *map(Note, notes)]


def _describe(d: Difference) -> list[str]:
    p_values = ["–" if p != p else f"{p:.2g}" for p in (d.p, d.p_adjusted)]
    return [d.label, number(d.mean), number(d.low), number(d.high), *p_values, share(d.won), str(d.n), d.verdict]


def export(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="The file to write; its extension sets the format.")],
    table: Annotated[
        str, typer.Option(help="runs (a row per run), curves, paths, or summary (a row per policy).")
    ] = "runs",
) -> Answer:
    """Write the results of an experiment to one file: CSV, Parquet, NDJSON, JSON, or the summary as a LaTeX table.

    Examples:
      windvane export results runs.csv
      windvane export results curves.parquet --table curves
      windvane export results summary.json --table summary
      windvane export results table.tex --table summary
    """
    from windvane.lab.results import export as exporting

    results = _open_finished(folder, "export")
    exporting.export(results, file, table)
    document = {"folder": folder, "table": table, "complete": results.complete, "file": file}
    return Answer(document, [f"{file} written ({table} of {folder})"])


def _open_finished(folder: Path, purpose: str) -> Results:
    """Open a folder with at least one finished cell, and remark that others are not."""
    results = Results.open(folder)
    if not results.entries:
        raise FolderError(folder, "unfinished", f"no cell is finished yet, so there is nothing to {purpose}")
    if not results.complete:
        warn(f"{folder}: incomplete, {results.finished} of {results.total} cells are finished and undamaged")
    return results
