"""The leaderboard as text and as JSON, for all benchmark commands."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windvane._files import write_atomically
from windvane.cli.console import explain, number, plain, print_json, print_table, say
from windvane.lab.results.leaderboard import LeaderboardRow
from windvane.lab.results.results import Results
from windvane.lab.run.workers import CellError

CONFIDENCE = 0.95


def leaderboard_json(results: Results, standings: Sequence[LeaderboardRow]) -> dict[str, Any]:
    """Return the part of ``leaderboard.json`` that all benchmarks have."""
    return {
        "folder": str(results.folder),
        "complete": results.complete,
        "seed": results.manifest["seed"],
        "runs": results.manifest["runs"],
        "confidence": CONFIDENCE,
        "leaderboard": [dataclasses.asdict(standing) for standing in standings],
    }


def failures_to_json(failures: Sequence[CellError]) -> list[dict[str, Any]]:
    """Return which policies failed where."""
    return [{"policy": error.policy, "environment": error.environment, "error": str(error)} for error in failures]


def publish(
    results: Results,
    document: dict[str, Any],
    files: Sequence[Path],
    failures: Sequence[CellError],
    *,
    as_json: bool,
    show: Callable[[], None],
) -> None:
    """Write ``leaderboard.json``. Print it if ``as_json``; otherwise call ``show`` and print the path of the report."""
    content = (json.dumps(plain(document), indent=2) + "\n").encode()
    write_atomically(results.folder / "leaderboard.json", content)
    if as_json:
        print_json({**document, "files": [str(path) for path in files]})
        return
    show()
    for failure in failures:
        say(f"failed: {failure}")
    say(f"\nReport: {results.folder / 'report.html'}")


def print_leaderboard(standings: Sequence[LeaderboardRow], score: str, places: str, meaning: str) -> None:
    """Print the leaderboard as a table. ``score`` is the heading of the scores, and ``meaning`` explains them."""
    rows = [
        [
            "–" if standing.rank is None else str(standing.rank), standing.label, number(standing.score, 2),
            number(standing.low, 2), number(standing.high, 2), number(standing.worst, 2), standing.worst_environment,
            number(standing.microseconds),
        ]
        for standing in standings
    ]  # fmt: skip
    columns = ["rank", "policy", score, "low", "high", "worst", "where", "µs/round"]
    print_table(columns, rows, f"Leaderboard over {len(standings[0].ratios)} {places}", left=2)
    interval = f"with its {CONFIDENCE:.0%} interval (bootstrap over runs)"
    explain(f"{score}: {meaning}, geometric mean over {places}, {interval}.")
