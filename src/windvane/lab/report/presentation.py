"""From stored results to what people look at: figures in DIR/figures and DIR/report.html."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windvane.lab.figures.comparison_figures import difference_figure, horizons_figure, leaderboard_figure
from windvane.lab.figures.description import Figure
from windvane.lab.figures.diagnostics_figure import diagnostics_figure
from windvane.lab.figures.matplotlib_renderer import KINDS, save
from windvane.lab.figures.over_time_figure import (
    DEFAULT_BANDS,
    MEAN_REWARD,
    MOST_BANDS,
    PublishedCurves,
    over_time_figure,
)
from windvane.lab.figures.projection_figure import projection_figure
from windvane.lab.figures.tuning_figure import tuning_figure
from windvane.lab.report.report import write_report
from windvane.lab.results.folder import FolderError, make_slugs
from windvane.lab.results.leaderboard import LeaderboardRow, rank_policies
from windvane.lab.results.results import Entry, Results, group_by_environment
from windvane.lab.results.summary import Difference, compare_entries
from windvane.lab.studies.benchmarks import REFERENCES, ranked_entries
from windvane.lab.studies.reproductions import Reproduction, find_reproduction
from windvane.lab.studies.streams_benchmark import explain_streams
from windvane.lab.studies.tuned_benchmark import explain_leaderboard, read_benchmark
from windvane.lab.studies.tuning import AXES, SweepGrid, read_sweep

if TYPE_CHECKING:
    from windvane.lab.run.workers import CellError

Plan = dict[str, Callable[[], Figure]]
"""Figures by the name of their files, each described when its turn comes."""
FilesDrawn = Callable[[int, int], None]
"""Called with the number of files written so far and of all files."""
Page = dict[str, Any]
"""What :func:`write_report` is given."""
Presented = tuple[list[LeaderboardRow], list[Path]]
PROJECTED = "BVD-GLM-UCB"  # the paper's policy: its projection is drawn, if it took part


def present(
    results: Results,
    *,
    heading: str = "",
    notes: Mapping[str, Sequence[str]] | None = None,
    turning: tuple[float, float] | None = None,
    published: PublishedCurves | None = None,
    baseline: str | None = None,
    bands: str = DEFAULT_BANDS,
    page: bool = True,
    progress: FilesDrawn | None = None,
) -> list[Path]:
    """Draw what suits the experiment and, if ``page``, write the report; returns the files written.

    Every environment is drawn: those of a paper beside the published result, a sweep with a heat map, a benchmark with
    its leaderboard. ``heading``, ``notes``, ``turning`` and ``published`` are those of
    :func:`~windvane.lab.report.report.write_report`. ``baseline`` is the policy that the others are paired with: by
    default the first one, or the paper's own. ``bands`` says what bands about means show: "sd", "se" or "quantiles".
    ``progress`` is called with the number of files drawn so far and of all files.
    """
    if not results.entries:
        raise FolderError(results.folder, "unfinished", "no cell is finished yet, so there is nothing to draw")
    given: Page = {"heading": heading, "notes": notes, "turning": turning, "published": published}
    reproduction = find_reproduction(results.recipe)
    if baseline is None and reproduction is not None:
        baseline = reproduction.baseline
    content: Page = {
        "results": results,
        "heading": results.manifest["title"] or results.folder.resolve().name,
        "differences": compare_entries(results.entries, baseline) if results.complete else [],
    }
    plan: Plan = {}
    if reproduction is not None:
        content |= _describe_paper(reproduction, results)
        if len({entry.horizon for entry in results.entries}) > 1:
            title = results.manifest["title"]
            plan["horizons"] = partial(horizons_figure, results.entries, content["published"], title=title)
    elif benchmark := read_benchmark(results):
        _, plan, content = _plan_benchmark(benchmark)
    content |= {name: value for name, value in given.items() if value}
    content["bands"] = bands
    plan = _plan_environments(results, content.get("turning"), content.get("published"), bands) | plan
    policies = results.manifest["policies"]
    if len(policies) == 1 and {} not in policies[0]["variants"] and set(policies[0]["variants"][0]) <= set(AXES):
        for name, end in _file_ends(results.entries).items():
            plan[f"tuning{end}"] = partial(tuning_figure, read_sweep(results, name))
    return _draw_all(plan, results.folder, content if page else None, progress)


def present_benchmark(results: Results, *, confidence: float = 0.95, progress: FilesDrawn | None = None) -> Presented:
    """Write the figures and the report of a benchmark. The oracle, which has no regret, is not drawn."""
    standings, plan, page = _plan_benchmark(results, confidence)
    return standings, _draw_all(plan, results.folder, page, progress)


def present_streams(
    results: Results,
    failures: Sequence[CellError] = (),
    *,
    confidence: float = 0.95,
    progress: FilesDrawn | None = None,
) -> Presented:
    """Write the figures (mean reward over time, leaderboard) and the report of the labelled data streams."""
    best_first = sorted(results.entries, key=lambda entry: float(entry.final.mean()))
    names = dict.fromkeys(entry.environment for entry in results.entries)
    drawn = {name: [entry for entry in best_first if entry.environment == name] for name in names}
    plan: Plan = {}
    for name, slug in make_slugs(drawn).items():
        named, others = _split(drawn[name])
        plan[f"mean-reward-{slug}"] = partial(over_time_figure, named, MEAN_REWARD, title=name, others=others)
    standings = rank_policies(ranked_entries(results), references=REFERENCES, confidence=confidence)
    entries = [entry for entries in drawn.values() for entry in entries]
    notes = explain_streams(failures)
    more, page = _plan_leaderboard(results, standings, entries, notes, confidence, labelled=True)
    return standings, _draw_all(plan | more, results.folder, page, progress)


def draw_tuned(grid: SweepGrid, folder: Path) -> list[Path]:
    """Return the heat map (or curve) of a sweep."""
    return save(tuning_figure(grid), folder / "figures", "tuning")


def draw_differences(differences: Sequence[Difference], folder: Path, confidence: float) -> list[Path]:
    """Paired differences with their intervals, a figure per environment."""
    written = []
    for name, end in _file_ends(differences).items():
        here = [d for d in differences if d.environment == name]
        written += save(difference_figure(here, title=name, confidence=confidence), folder, f"differences{end}")
    return written


def _draw_all(plan: Plan, folder: Path, page: Page | None, progress: FilesDrawn | None) -> list[Path]:
    """Draw the figures, then write the page; returns the files written."""
    written: list[Path] = []
    for files in _draw_each(plan, folder, page):
        written += files
        if progress is not None:
            progress(len(written), len(KINDS) * len(plan) + (page is not None))
    return written


def _draw_each(plan: Plan, folder: Path, page: Page | None) -> Iterator[list[Path]]:
    for name, describe in plan.items():
        yield save(describe(), folder / "figures", name)
    if page is not None:
        yield [write_report(target=folder / "report.html", **page)]


def _describe_paper(reproduction: Reproduction, results: Results) -> Page:
    """Return the report of a paper's experiment, beside the published result. The recipe has the settings."""
    arms, bonus_scale = results.recipe["arms"], results.recipe["bonus_scale"]
    return {
        "heading": reproduction.heading,
        "notes": reproduction.write_notes(results.entries, arms, bonus_scale),
        "turning": reproduction.find_turning(results.manifest["horizon"]),
        "published": reproduction.published_curves(results.entries),
    }


def _plan_environments(
    results: Results, turning: tuple[float, float] | None, published: PublishedCurves | None, bands: str
) -> Plan:
    """Return the figures of every environment."""
    plan: Plan = {}
    ends = _file_ends(results.entries)
    for name, entries in group_by_environment(results.entries).items():
        end = ends[name]
        title = name if end else ""
        more: dict[str, Any] = {"title": title, "turning": turning, "published": published, "bands": bands}
        plan[f"regret{end}"] = partial(over_time_figure, entries, **more)
        able = [e for e in entries if e.path is not None and e.stages[0, 1] == e.stages[0, 1]]  # those that project
        shown = next((e for e in able if e.policy == PROJECTED), able[0] if able else None)
        if shown is not None and shown.path is not None:
            plan[f"projection{end}"] = partial(projection_figure, shown.path, title=shown.label)
        for entry, slug in zip(entries, make_slugs(entry.label for entry in entries).values(), strict=True):
            if entry.diagnostics:
                plan[f"diagnostics{end}-{slug}"] = partial(diagnostics_figure, entry)
    return plan


def _plan_benchmark(results: Results, confidence: float = 0.95) -> tuple[list[LeaderboardRow], Plan, Page]:
    """Return the leaderboard of a benchmark, its figure, and its report."""
    standings = rank_policies(ranked_entries(results), references=REFERENCES, confidence=confidence)
    ranked = {standing.label for standing in standings}
    entries = [entry for entry in results.entries if entry.label in ranked]
    return standings, *_plan_leaderboard(results, standings, entries, explain_leaderboard(results), confidence)


def _plan_leaderboard(
    results: Results,
    standings: Sequence[LeaderboardRow],
    entries: Iterable[Entry],
    notes: Mapping[str, Sequence[str]],
    confidence: float,
    *,
    labelled: bool = False,
) -> tuple[Plan, Page]:
    """Return the figure of a leaderboard, and the report about these entries, without their paths."""
    shown = replace(results, entries=[replace(entry, path=None) for entry in entries])
    ranking: Page = {"standings": standings, "confidence": confidence, "labelled": labelled}
    page = {"results": shown, "heading": results.manifest["title"], "notes": notes, **ranking}
    return {"leaderboard": partial(leaderboard_figure, **ranking)}, page


def _split(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Split entries into those that the figure names (the best policies and the references) and the others."""
    references = [entry.label for entry in entries if entry.label in REFERENCES]
    ranked = [entry.label for entry in entries if entry.label not in references]
    named = {*ranked[: MOST_BANDS - len(references)], *references}
    return [e for e in entries if e.label in named], [e for e in entries if e.label not in named]


def _file_ends(several: Iterable[Entry] | Iterable[Difference]) -> dict[str, str]:
    """How the names of an environment's figures end: not at all if it is alone."""
    names = make_slugs(dict.fromkeys(one.environment for one in several))
    return {name: f"-{slug}" if len(names) > 1 else "" for name, slug in names.items()}
