"""Commands that read what experiments wrote: report, compare, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.console import DRAWING, Answer, ProgressBar, Table, number, share, warn
from windvane.cli.options import Confidence, Out
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.results.summary import Difference, align, compare_entries

Folder = Annotated[Path, typer.Argument(help="A results folder, written by simulate, tune or reproduce.")]


def report(folder: Folder) -> Answer:
    """Draw the figures of an experiment (PNG, PDF, SVG) and write a self-contained report.html.

    Example:
      windvane report results
    """
    from windvane.lab.report.presentation import present

    results = Results.open(folder)
    with ProgressBar(DRAWING, "files") as progress:
        files = present(results, progress=progress)
    return Answer({"folder": folder, "complete": results.complete, "files": files}, [*map(str, files)])


def compare(
    folders: Annotated[list[Path], typer.Argument(help="One or more results folders.")],
    baseline: Annotated[str | None, typer.Option(help="The policy to compare the others with.")] = None,
    confidence: Confidence = 0.95,
    out: Out = None,
) -> Answer:
    """Compare policies by paired differences of final regret, with confidence intervals.

    Runs are paired, since all policies see the same arms and the same random numbers in a run. Folders can be compared
    where environment, seed and horizon are the same. Without --baseline, the first policy is the baseline. With --out,
    the intervals are drawn into that folder.

    Examples:
      windvane compare results
      windvane compare results more-results --baseline results/BVD-GLM-UCB
    """
    several = [_open_finished(folder, "compare") for folder in folders]
    differences = compare_entries(align(several), baseline=baseline, confidence=confidence)
    if not differences:
        raise InputError(f"{folders[0]}: there is only one policy; nothing to compare it with")
    files = _draw(differences, confidence, out)
    columns, tables = ["policy", "difference", "low", "high", "p", "runs won", "runs", "verdict"], []
    for name in dict.fromkeys(d.environment for d in differences):
        here = [d for d in differences if d.environment == name]
        title = f"{name}: final regret minus that of {here[0].baseline}, {confidence:.0%} confidence"
        tables.append(Table(columns, [_describe(d) for d in here], title))
    return Answer({"confidence": confidence, "differences": differences, "files": files}, tables)


def _draw(differences: list[Difference], confidence: float, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from windvane.lab.report.presentation import draw_differences

    return draw_differences(differences, folder, confidence)


def _describe(d: Difference) -> list[str]:
    verdict = "worse" if d.low > 0 else "better" if d.high < 0 else "no significant difference"
    p = "–" if d.p != d.p else f"{d.p:.2g}"
    return [d.label, number(d.mean), number(d.low), number(d.high), p, share(d.won), str(d.n), verdict]


def export(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="The file to write; its extension sets the format.")],
    table: Annotated[
        str, typer.Option(help="runs (a row per run), curves, paths, or summary (a row per policy).")
    ] = "runs",
) -> Answer:
    """Write the results of an experiment to one file: CSV, Parquet, NDJSON or JSON.

    Examples:
      windvane export results runs.csv
      windvane export results curves.parquet --table curves
      windvane export results summary.json --table summary
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
