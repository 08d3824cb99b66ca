"""From stored results to what people look at: figures in DIR/figures and DIR/report.html."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from windvane.lab.figures.curves import by_environment
from windvane.lab.figures.description import Figure
from windvane.lab.figures.diagnostics_figure import diagnostics_figure
from windvane.lab.figures.difference_figure import difference_figure
from windvane.lab.figures.matplotlib_renderer import save
from windvane.lab.figures.over_time_figure import over_time_figure
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.tuning_figure import tuning_figure
from windvane.lab.report.benchmark_pages import plan_benchmark
from windvane.lab.report.drawing import FilesDrawn, Plan, draw_all
from windvane.lab.report.report import write_report
from windvane.lab.results.folder import FolderError, slugs
from windvane.lab.results.results import Entry, Results
from windvane.lab.results.summary import Difference, paired
from windvane.lab.studies import paper
from windvane.lab.studies.tuned_benchmark import read_benchmark
from windvane.lab.studies.tuning import AXES, SweepGrid, read_sweep

PROJECTED = "BVD-GLM-UCB"  # whose projection is drawn, if it took part


def present_all(results: Results, *, progress: FilesDrawn | None = None) -> list[Path]:
    """What suits the experiment: the paper's figures, the benchmark's leaderboard, a heat map for a sweep."""
    if results.recipe.get("name") == "paper":
        return present_paper(results, progress=progress)
    benchmark = read_benchmark(results)
    plan, write_page = _plan(results), partial(_write_page, results)
    if benchmark is not None:
        _, more, write_page = plan_benchmark(benchmark)
        plan |= more
    policies = results.manifest["policies"]
    if len(policies) == 1 and {} not in policies[0]["variants"] and set(policies[0]["variants"][0]) <= set(AXES):
        for world, end in _ends(results.entries).items():
            plan[f"tuning{end}"] = _plan_tuned(read_sweep(results, world))
    return draw_all(plan, results.folder / "figures", write_page, progress)


def _ends(several: Iterable[Entry] | Iterable[Difference]) -> dict[str, str]:
    """How the names of an environment's figures end: not at all if it is alone."""
    worlds = dict.fromkeys(one.environment for one in several)
    return {world: f"-{name}" if len(worlds) > 1 else "" for world, name in slugs(worlds).items()}


def present(
    results: Results,
    *,
    heading: str = "",
    notes: Mapping[str, Sequence[str]] | None = None,
    turning: tuple[float, float] | None = None,
    published: Mapping[str, paper.Published] | None = None,
    page: bool = True,
    progress: FilesDrawn | None = None,
) -> list[Path]:
    """Draw every environment and, if ``page``, write the report; returns the files written.

    ``progress`` is called with the number of files drawn so far and of all files.
    """
    plan = _plan(results, turning=turning, published=published)
    write_page = partial(_write_page, results, heading, notes=notes, turning=turning, published=published)
    return draw_all(plan, results.folder / "figures", write_page if page else None, progress)


def _plan(
    results: Results,
    turning: tuple[float, float] | None = None,
    published: Mapping[str, paper.Published] | None = None,
) -> Plan:
    """The figures of every environment."""
    if not results.entries:
        raise FolderError(results.folder, "unfinished", "no cell is finished yet, so there is nothing to draw")
    plan: Plan = {}
    ends = _ends(results.entries)
    for name, entries in by_environment(results.entries).items():
        end, title = ends[name], name if ends[name] else ""
        plan[f"regret{end}"] = partial(over_time_figure, entries, title=title, turning=turning, published=published)
        if shown := _projected(entries):
            assert shown.path is not None  # said by _projected
            plan[f"projection{end}"] = partial(projection_figure, shown.path, title=shown.label)
        for entry, slug in zip(entries, slugs(entry.label for entry in entries).values(), strict=True):
            if entry.diagnostics:
                plan[f"diagnostics{end}-{slug}"] = partial(diagnostics_figure, entry)
    return plan


def _write_page(results: Results, heading: str = "", **settings: Any) -> Path:
    return write_report(
        results,
        results.folder / "report.html",
        heading=heading or results.manifest["title"] or results.folder.resolve().name,
        comparison_rows=paired(results.entries) if results.complete else None,
        **settings,
    )


def _projected(entries: Sequence[Entry]) -> Entry | None:
    """The entry whose projection is worth a figure: one that has any, BVD-GLM-UCB before the others."""
    able = [e for e in entries if e.path is not None and e.stages[0, 1] == e.stages[0, 1]]
    return next((e for e in able if e.policy == PROJECTED), able[0] if able else None)


def present_paper(results: Results, *, progress: FilesDrawn | None = None) -> list[Path]:
    """Write the paper's figures and report, beside the published result. The recipe of ``results`` has the settings."""
    horizon = results.manifest["horizon"]
    notes = {
        "Where this differs from the published result": paper.describe_differences(results.entries),
        "Readings assumed where the paper is silent": paper.list_readings(
            results.recipe["arms"], results.recipe["bonus_scale"]
        ),
    }
    return present(
        results,
        heading="BVD-GLM-UCB and its rivals while the world turns",
        notes=notes,
        turning=paper.turning_period(horizon),
        published=paper.published_curves() if horizon == paper.HORIZON else None,
        progress=progress,
    )


def draw_tuned(found: SweepGrid, folder: Path, end: str = "") -> list[Path]:
    """The heat map (or curve) of a sweep."""
    return draw_all({f"tuning{end}": _plan_tuned(found)}, folder / "figures")


def _plan_tuned(found: SweepGrid) -> partial[Figure]:
    title, grid = f"{found.policy} in {found.environment}", (found.gammas, found.scales, found.mean, found.se)
    return partial(tuning_figure, *grid, best=found.best, close=found.close, title=title)


def draw_differences(differences: Sequence[Difference], folder: Path, confidence: float) -> list[Path]:
    """Paired differences with their intervals, a figure per environment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(folder, "unwritable", f"cannot be made a folder ({error.strerror})") from None
    written = []
    for name, end in _ends(differences).items():
        here = [d for d in differences if d.environment == name]
        written += save(difference_figure(here, title=name, confidence=confidence), folder, f"differences{end}")
    return written
