"""What the benchmark commands answer: a table per environment, and the leaderboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windvane.cli import FAILED
from windvane.cli.console import DRAWING, Answer, Blocks, Note, ProgressBar, Table, number, write_json
from windvane.lab.results.folder import name_unwritable
from windvane.lab.results.leaderboard import LeaderboardRow
from windvane.lab.results.results import Results, group_by_environment
from windvane.lab.results.summary import summarise_entry
from windvane.lab.run.workers import CellError
from windvane.lab.studies.benchmarks import ranked_entries
from windvane.lab.studies.streams_benchmark import StreamExperiment, score_entry
from windvane.lab.studies.tuned_benchmark import Scales, tuned_label

CONFIDENCE = 0.95
Columns = Mapping[str, tuple[str, int | None]]
"""The numbers in a table: which key of a policy's row is under a heading, and with how many digits."""

IN_WORLD: Columns = {"regret": ("regret", 1), "± SE": ("se", 1), "relative": ("ratio", 2)}
ON_STREAM: Columns = {
    "mean reward": ("mean_reward", 4), "± SE": ("se", 4), "last tenth": ("last_tenth", 4), "mistakes": ("mistakes", 1),
    "µs/round": ("microseconds", 1),
}  # fmt: skip


class Section(NamedTuple):
    """One environment: the title and the columns of its table, and its document, with a row per policy."""

    title: str
    columns: Columns
    document: dict[str, Any]


class Scoring(NamedTuple):
    """How a benchmark compares policies: its score, in what kind of places, what the score means, a key for JSON."""

    score: str
    places: str
    meaning: str
    key: str


REGRET = Scoring(
    "relative regret", "environments", "final regret over that of the best policy of each environment", "environments"
)
MISTAKES = Scoring(
    "relative mistakes", "labelled data streams",
    "mistakes over those of the best policy on each labelled data stream", "streams",
)  # fmt: skip


def describe_worlds(results: Results, scales: Scales, standings: Sequence[LeaderboardRow]) -> list[Section]:
    """Return a section for each environment of a benchmark in simulated worlds."""
    columns, sections = {**IN_WORLD, **({"bonus scale": ("bonus_scale", None)} if scales else {})}, []
    for name, entries in group_by_environment(results.entries).items():
        ratios = {standing.label: standing.ratios[name] for standing in standings}
        bonus_scales = {tuned_label(policy): scale for policy, scale in scales.get(name, {}).items()}
        rows = [summarise_entry(entry) for entry in entries]
        policies = [
            {
                "policy": row.label, "regret": row.mean, "se": row.se, "ratio": ratios.get(row.label),
                "microseconds": row.microseconds, "bonus_scale": bonus_scales.get(row.label),
            }
            for row in rows
        ]  # fmt: skip
        title = f"{name}: {rows[0].runs} runs of {results.manifest['horizon']} rounds, B_T = {rows[0].drift:.4g}"
        document = {"environment": name, "B_T": rows[0].drift, "switches": rows[0].switches, "policies": policies}
        sections.append(Section(title, columns, document))
    return sections


def describe_streams(
    results: Results, experiments: Sequence[StreamExperiment], standings: Sequence[LeaderboardRow]
) -> list[Section]:
    """Return a section for each labelled data stream."""
    groups, sections = group_by_environment(results.entries), []
    for spec, file, classes, dim in experiments:
        ratios = {standing.label: standing.ratios[file.name] for standing in standings}
        scores = {score.label: vars(score) for score in map(score_entry, groups.get(file.name, []))}
        policies = [
            {"policy": label, "ratio": ratios.get(label), **{name: score[name] for name in score if name != "label"}}
            for label, score in scores.items()
        ]
        title = f"{file.name}: {spec.runs} runs of {spec.horizon:,} rows, {classes} classes, d = {dim}"
        sizes = {"rows": spec.horizon, "classes": classes, "dim": dim}
        document = {"stream": file.name, "file": file.file, "sha256": file.sha256, **sizes, "policies": policies}
        sections.append(Section(title, ON_STREAM, document))
    return sections


def publish(
    results: Results,
    failures: Sequence[CellError],
    scoring: Scoring,
    present: Callable[..., tuple[list[LeaderboardRow], list[Path]]],
    describe: Callable[[Sequence[LeaderboardRow]], list[Section]],
    left_out: Mapping[str, str],
) -> Answer:
    """Write the report, by ``present``, and ``leaderboard.json``; return the answer, with a section per environment.

    ``left_out``: the policies that cannot run in these places, and what they need.
    """
    if failures and not ranked_entries(results):
        raise failures[0]
    with ProgressBar(DRAWING, "files") as progress:
        standings, files = present(results, confidence=CONFIDENCE, progress=progress)
    sections = describe(standings)
    document: dict[str, Any] = {
        "folder": results.folder,
        "complete": results.complete,
        **{name: results.manifest[name] for name in ("seed", "runs", "horizon") if name in results.manifest},
        "confidence": CONFIDENCE,
        "leaderboard": standings,
        scoring.key: [section.document for section in sections],
        "failures": [{"policy": e.policy, "environment": e.environment, "error": str(e)} for e in failures],
        "left_out": dict(left_out),
    }
    with name_unwritable(results.folder):
        write_json(results.folder / "leaderboard.json", document)
    blocks: list[str | Table | Note] = []
    for title, columns, section in sections:
        best = sorted(section["policies"], key=lambda row: row["regret"] if "regret" in row else row["mistakes"])
        cells = [[row["policy"], *(number(row[key], digits) for key, digits in columns.values())] for row in best]
        blocks += [Table(["policy", *columns], cells, title), ""]
    blocks += [*_describe_leaderboard(standings, scoring), *(f"failed: {failure}" for failure in failures)]
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, own in left_out.items() if own == reason]
        blocks.append(f"left out ({reason}): {', '.join(names)}")
    blocks.append(f"\nReport: {results.folder / 'report.html'}")
    return Answer({**document, "files": files}, blocks, FAILED if failures else 0)


def _describe_leaderboard(standings: Sequence[LeaderboardRow], scoring: Scoring) -> Blocks:
    rows = [
        [
            number(row.rank, 0), row.label, *(number(value, 2) for value in (row.score, row.low, row.high, row.worst)),
            row.worst_environment, number(row.microseconds),
        ]
        for row in standings
    ]  # fmt: skip
    columns = ["rank", "policy", scoring.score, "low", "high", "worst", "where", "µs/round"]
    title = f"Leaderboard over {len(standings[0].ratios)} {scoring.places}"
    interval = f"with its {CONFIDENCE:.0%} interval (bootstrap over runs)"
    note = f"{scoring.score}: {scoring.meaning}, geometric mean over {scoring.places}, {interval}."
    return [Table(columns, rows, title, left=2), Note(note)]
