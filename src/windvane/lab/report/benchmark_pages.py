"""Figures and reports of the benchmarks. A report begins with the leaderboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windvane.lab.figures.benchmark_figures import leaderboard_figure
from windvane.lab.figures.curves import MEAN_REWARD, by_environment
from windvane.lab.figures.over_time_figure import MOST_BANDS, over_time_figure
from windvane.lab.report.drawing import FilesDrawn, Plan, draw_all
from windvane.lab.report.report import write_report
from windvane.lab.report.report_tables import UNKNOWN, Listing
from windvane.lab.results.folder import slugs
from windvane.lab.results.leaderboard import LeaderboardRow, leaderboard
from windvane.lab.results.results import Entry, Results
from windvane.lab.results.summary import told_text
from windvane.lab.studies import streams_benchmark
from windvane.lab.studies.benchmarks import REFERENCES, ranked_entries
from windvane.lab.studies.tuned_benchmark import explain_leaderboard

if TYPE_CHECKING:
    from windvane.lab.run.workers import CellError

Presented = tuple[list[LeaderboardRow], list[Path]]


def present_benchmark(results: Results, *, confidence: float = 0.95, progress: FilesDrawn | None = None) -> Presented:
    """Write the figures and the report of a benchmark. The oracle, which has no regret, is not drawn."""
    standings, plan, write_page = plan_benchmark(results, confidence)
    return standings, draw_all(plan, results.folder / "figures", write_page, progress)


def plan_benchmark(results: Results, confidence: float = 0.95) -> tuple[list[LeaderboardRow], Plan, partial[Path]]:
    """The leaderboard of a benchmark, its figure, and what writes its report."""
    standings = leaderboard(ranked_entries(results), references=REFERENCES, confidence=confidence)
    ranked = {standing.label for standing in standings}
    # A report has no room for paths.
    drawn = [replace(entry, path=None) for entry in results.entries if entry.label in ranked]
    caption = (
        "Final regret relative to the best policy of each environment, geometric mean over the environments. A "
        "policy that is the best everywhere has 1. Click a heading to sort."
    )
    write_page = partial(
        write_report,
        replace(results, entries=drawn),
        results.folder / "report.html",
        heading=results.manifest["title"],
        notes=explain_leaderboard(results),
        listings=[_listing(standings, drawn, confidence, caption, "Relative regret")],
    )
    return standings, {"leaderboard": partial(leaderboard_figure, standings, confidence=confidence)}, write_page


def present_streams(
    results: Results,
    failures: Sequence[CellError] = (),
    *,
    confidence: float = 0.95,
    progress: FilesDrawn | None = None,
) -> Presented:
    """Write the figures (mean reward over time, leaderboard) and the report of the labelled data streams."""
    standings = leaderboard(ranked_entries(results), references=REFERENCES, confidence=confidence)
    drawn = {  # without paths, for which there is no room, and the best policy first
        name: sorted((replace(entry, path=None) for entry in entries), key=lambda entry: float(entry.final.mean()))
        for name, entries in by_environment(results.entries).items()
    }
    plan: Plan = {}
    for name, slug in slugs(drawn).items():
        named, others = _split(drawn[name])
        plan[f"mean-reward-{slug}"] = partial(over_time_figure, named, MEAN_REWARD, title=name, others=others)
    score, places = "Mistakes relative to the best on each labelled data stream", "labelled data streams"
    plan["leaderboard"] = partial(leaderboard_figure, standings, confidence=confidence, score=score, places=places)
    caption = f"{score}, geometric mean. A policy that is the best everywhere has 1. Click a heading to sort."
    write_page = partial(
        write_report,
        replace(results, entries=[entry for entries in drawn.values() for entry in entries]),
        results.folder / "report.html",
        heading=results.manifest["title"],
        notes=streams_benchmark.explain_streams(failures),
        listings=[
            _listing(standings, results.entries, confidence, caption, "Relative mistakes"),
            *(_scores(name, entries) for name, entries in drawn.items()),
        ],
        labelled=True,
    )
    return standings, draw_all(plan, results.folder / "figures", write_page, progress)


def _split(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Split entries into those that the figure names (the best policies and the references) and the others."""
    references = [entry.label for entry in entries if entry.label in REFERENCES]
    ranked = [entry.label for entry in entries if entry.label not in references]
    named = {*ranked[: MOST_BANDS - len(references)], *references}
    return [e for e in entries if e.label in named], [e for e in entries if e.label not in named]


def _listing(
    standings: Sequence[LeaderboardRow], entries: Sequence[Entry], confidence: float, caption: str, score: str
) -> Listing:
    told = {entry.label: told_text(entry.told) for entry in entries}
    rows = [
        (
            standing.label,
            [
                (standing.rank or math.nan, str(standing.rank or "reference")),
                (standing.score, f"{standing.score:.2f}"),
                (standing.low, f"{standing.low:.2f} to {standing.high:.2f}"),
                (standing.worst, f"{standing.worst:.2f} ({standing.worst_environment})"),
                (None, told[standing.label] or UNKNOWN),
                (standing.microseconds, f"{standing.microseconds:.1f}"),
            ],
        )
        for standing in standings
    ]
    heads = ["Policy", "Rank", score, f"{confidence:.0%} interval", "Worst", "Told", "µs a round"]
    return Listing("Leaderboard", caption, heads, rows)


def _scores(name: str, entries: Sequence[Entry]) -> Listing:
    """Return a table of how often each policy was right on one labelled data stream."""
    rows = [
        (
            score.label,
            [
                *((share, f"{share:.2%}") for share in (score.mean_reward, score.last_tenth)),
                (score.mistakes, f"{score.mistakes:,.1f}"),
                (score.se, "–" if math.isnan(score.se) else f"{score.se * entries[0].horizon:,.1f}"),
                (score.microseconds, f"{score.microseconds:,.1f}"),
            ],
        )
        for score in map(streams_benchmark.score_entry, entries)
    ]
    runs = max(len(entry.lanes) for entry in entries)
    caption = f"{runs} {'run' if runs == 1 else 'runs'} of {entries[0].horizon:,} rows. Click a heading to sort."
    heads = ["Policy", "Mean reward", "Right in the last tenth", "Mistakes", "± SE", "µs a round"]
    return Listing(f"Results: {name}", caption, heads, rows)
