"""Commands that read what experiments wrote: report, compare, export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from windvane.cli import InputError
from windvane.cli.console import DRAWING, ProgressBar, number, print_json, print_table, remark, say, share
from windvane.cli.options import AsJson, Confidence, Out
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.results.summary import Difference, align, paired


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that simulate, tune or reproduce wrote.")],
    as_json: AsJson = False,
) -> None:
    """Draw an experiment: figures (PNG, PDF, SVG) and a self-contained report.html in its folder.

    Example:
      windvane report results
    """
    from windvane.lab.report.presentation import present

    results = Results.open(folder)
    with ProgressBar(DRAWING, "files") as progress:
        written = present(results, progress=progress)
    if as_json:
        print_json({"folder": str(folder), "complete": results.complete, "files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))


def compare(
    folders: Annotated[list[Path], typer.Argument(help="One or more folders of experiments.")],
    baseline: Annotated[str | None, typer.Option(help="The policy to compare with (default: the first).")] = None,
    confidence: Confidence = 0.95,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Paired differences of final regret, with confidence intervals.

    Runs are paired, since all policies see the same arms and the same random numbers in a run. Folders can be compared
    where environment, seed and horizon are the same. With --out, the intervals are drawn into that folder.

    Examples:
      windvane compare results
      windvane compare results more-results --baseline results/BVD-GLM-UCB
    """
    several = [Results.open(folder) for folder in folders]
    for results in several:
        if not results.entries:
            raise FolderError(results.folder, "unfinished", "no cell is finished yet, so there is nothing to compare")
        if not results.complete:
            remark(f"{results.folder}: incomplete, {results.finished} of {results.total} cells are finished")
    differences = paired(align(several), baseline=baseline, confidence=confidence)
    if not differences:
        raise InputError(f"{folders[0]}: there is only one policy; nothing to compare it with")
    written = _draw(differences, confidence, out)
    if as_json:
        rows = [dataclasses.asdict(difference) for difference in differences]
        print_json({"confidence": confidence, "differences": rows, "files": written})
        return
    for name in dict.fromkeys(d.environment for d in differences):
        here = [d for d in differences if d.environment == name]
        title = f"{name}: final regret minus that of {here[0].baseline}, {confidence:.0%} confidence"
        columns = ["policy", "difference", "low", "high", "p", "runs won", "runs", "verdict"]
        print_table(columns, [_line(d) for d in here], title)


def _line(d: Difference) -> list[str]:
    verdict = "worse" if d.low > 0 else "better" if d.high < 0 else "no significant difference"
    p = "–" if d.p != d.p else f"{d.p:.2g}"
    return [d.label, number(d.mean), number(d.low), number(d.high), p, share(d.won), str(d.n), verdict]


def _draw(differences: list[Difference], confidence: float, folder: Path | None) -> list[str]:
    if folder is None:
        return []
    from windvane.lab.report.presentation import draw_differences

    return [str(path) for path in draw_differences(differences, folder, confidence)]


def export(
    folder: Annotated[Path, typer.Argument(help="A folder that simulate, tune or reproduce wrote.")],
    file: Annotated[Path, typer.Argument(help="The file to write; its ending, such as .csv, is its format.")],
    table: Annotated[
        str, typer.Option(help="runs (a row per run), curves, paths, or summary (a row per policy).")
    ] = "runs",
    as_json: AsJson = False,
) -> None:
    """Write the results of an experiment to one file: CSV, Parquet, NDJSON or JSON.

    Examples:
      windvane export results runs.csv
      windvane export results curves.parquet --table curves
      windvane export results summary.json --table summary
    """
    from windvane.lab.results import export as exporting

    results = Results.open(folder)
    if not results.entries:
        raise FolderError(folder, "unfinished", "no cell is finished yet, so there is nothing to export")
    if not results.complete:
        remark(f"{folder}: incomplete, {results.finished} of {results.total} cells are finished")
    exporting.export(results, file, table)
    if as_json:
        print_json({"folder": str(folder), "table": table, "complete": results.complete, "file": str(file)})
    else:
        say(f"{file} written ({table} of {folder})")
