"""From stored results to what people look at: figures in DIR/figures and DIR/report.html."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from windvane.lab.figures import plots
from windvane.lab.figures.curves import by_environment
from windvane.lab.report.benchmark_pages import present_benchmark
from windvane.lab.report.report import write_report
from windvane.lab.results.folder import FolderError, slugs
from windvane.lab.results.results import Entry, Results
from windvane.lab.results.summary import Difference, paired
from windvane.lab.studies import paper
from windvane.lab.studies.tuned_benchmark import read_benchmark
from windvane.lab.studies.tuning import AXES, SweepGrid, read_sweep

PROJECTED = "BVD-GLM-UCB"  # whose projection is drawn, if it took part


def present_all(results: Results) -> list[Path]:
    """What suits the experiment: the paper's figures, the benchmark's leaderboard, a heat map for a sweep."""
    if results.recipe.get("name") == "paper":
        return present_paper(results)
    benchmark = read_benchmark(results)
    written = [] if benchmark is None else present_benchmark(benchmark)[1]
    written += present(results, page=benchmark is None)
    policies = results.manifest["policies"]
    if len(policies) == 1 and {} not in policies[0]["variants"] and set(policies[0]["variants"][0]) <= set(AXES):
        for world, end in _ends(results.entries).items():
            written += draw_tuned(read_sweep(results, world), results.folder, end)
    return written


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
) -> list[Path]:
    """Draw every environment and, if ``page``, write the report; returns the files written."""
    if not results.entries:
        raise FolderError(results.folder, "unfinished", "no cell is finished yet, so there is nothing to draw")
    folder, written = results.folder / "figures", []
    folder.mkdir(exist_ok=True)
    ends = _ends(results.entries)
    for environment, entries in by_environment(results.entries).items():
        end = ends[environment]
        figure = plots.regret_figure(entries, title=environment if end else "", turning=turning, published=published)
        written += plots.save(figure, folder, f"regret{end}")
        if shown := _projected(entries):
            assert shown.path is not None  # said by _projected
            written += plots.save(plots.projection_figure(shown.path, title=shown.label), folder, f"projection{end}")
        for entry, name in zip(entries, slugs(entry.label for entry in entries).values(), strict=True):
            if entry.diagnostics:
                written += plots.save(plots.diagnostics_figure(entry), folder, f"diagnostics{end}-{name}")
    if not page:
        return written
    title = heading or results.manifest["title"] or results.folder.resolve().name
    report = write_report(
        results,
        results.folder / "report.html",
        heading=title,
        notes=notes,
        published=published,
        turning=turning,
        comparison_rows=paired(results.entries) if results.complete else None,
    )
    return [*written, report]


def _projected(entries: Sequence[Entry]) -> Entry | None:
    """The entry whose projection is worth a figure: one that has any, BVD-GLM-UCB before the others."""
    able = [e for e in entries if e.path is not None and e.stages[0, 1] == e.stages[0, 1]]
    return next((e for e in able if e.policy == PROJECTED), able[0] if able else None)


def present_paper(results: Results) -> list[Path]:
    """Write the paper's figures and report, beside the published result. The recipe of ``results`` has the settings."""
    horizon = results.manifest["horizon"]
    published = paper.published_curves() if horizon == paper.HORIZON else None
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
        published=published,
    )


def draw_tuned(found: SweepGrid, folder: Path, end: str = "") -> list[Path]:
    """The heat map (or curve) of a sweep."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figure = plots.heat_map(
        found.gammas,
        found.scales,
        found.mean,
        found.se,
        best=found.best,
        close=found.close,
        title=f"{found.policy} in {found.environment}",
    )
    return plots.save(figure, folder / "figures", f"tuning{end}")


def draw_differences(differences: Sequence[Difference], folder: Path, confidence: float) -> list[Path]:
    """Paired differences with their intervals, a figure per environment."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(folder, "unwritable", f"cannot be made a folder ({error.strerror})") from None
    written = []
    for name, end in _ends(differences).items():
        here = [d for d in differences if d.environment == name]
        figure = plots.difference_figure(here, title=name, confidence=confidence)
        written += plots.save(figure, folder, f"differences{end}")
    return written
