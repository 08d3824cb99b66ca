"""Write the tables of a benchmark's page from the folder of its results.

``python tools/leaderboards.py drift benchmark`` writes the leaderboard, the mean regrets and the figure of
``docs/explanation/drift-benchmark.md`` from what ``windvane benchmark drift --out benchmark`` left in ``benchmark``. If
that was run with ``--tuned``, the table of tuned policies is written instead. ``make generate`` afterwards: the table
of recommendations comes from both leaderboards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blocks import ROOT, markdown_markers, replace_block, table

COLUMNS = {  # of the tables of mean regrets
    "drift": "AdaptiveGLMUCB, Greedy, D-GLM-TS, LB-WeightUCB, D-LinUCB, OnePassGLM, BVD-GLM-UCB, GLM-UCB, OFUL, "
    "BOB-BVD-GLM-UCB, UniformRandom",
    "stationary": "AdaptiveGLMUCB, Greedy, Greedy expecting drift, PG-TS, ECOLogUCB, OFUGLB-e, Logistic-UCB-1, OFUL, "
    "D-LinUCB expecting drift, BVD-GLM-UCB, BVD-GLM-UCB expecting drift, UniformRandom",
}
TUNED = " tuned"  # what the label of a policy ends with whose bonus was tuned
FIGURES = {"drift": "leaderboard.svg", "stationary": "leaderboard-stationary.svg"}


class Standing(NamedTuple):
    """A policy on the leaderboard of a page: its mean relative regret and the largest, and the time of a round."""

    rank: int
    policy: str
    score: float
    worst: float
    microseconds: float


def page_of(benchmark: str) -> Path:
    return ROOT / "docs" / "explanation" / f"{benchmark}-benchmark.md"


def write_leaderboard(standings: Sequence[Mapping[str, Any]]) -> str:
    rows = [["rank", "policy", "relative regret", "95 %", "worst (where)", "µs/round"]]
    for row in standings:
        rank = "–" if row["rank"] is None else str(row["rank"])
        interval = f"{row['low']:.2f} – {row['high']:.2f}"
        worst = f"{row['worst']:.1f} ({row['worst_environment']})"
        rows.append([rank, row["label"], f"{row['score']:.2f}", interval, worst, f"{row['microseconds']:.1f}"])
    return table(rows)


def write_regrets(environments: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return the mean final regrets of some policies, the least of all policies but the oracle in bold."""
    rows = [["environment", *columns]]
    for environment in environments:
        regrets = {entry["policy"]: entry["regret"] for entry in environment["policies"]}
        best = min(regrets.keys() - {"Oracle"}, key=regrets.__getitem__)
        shown = [f"**{regrets[name]:.0f}**" if name == best else f"{regrets[name]:.0f}" for name in columns]
        rows.append([environment["environment"], *shown])
    return table(rows)


def write_tuned(document: Mapping[str, Any]) -> str:
    """Return each policy with its bonus tuned beside the same as recommended, and how often each scale was chosen."""
    standings = {row["label"]: row for row in document["leaderboard"]}
    entries = [entry for environment in document["environments"] for entry in environment["policies"]]
    scales = sorted({entry["bonus_scale"] for entry in entries} - {None})
    rows = [["policy", "tuned (95 %)", "as recommended", "worst when tuned (where)", "scales"]]
    for label, row in standings.items():
        name = label.removesuffix(TUNED)
        if label != name:
            chosen = Counter(entry["bonus_scale"] for entry in entries if entry["policy"] == label)
            score = f"{row['score']:.2f} ({row['low']:.2f} – {row['high']:.2f})"
            worst = f"{row['worst']:.1f} ({row['worst_environment']})"
            counts = " / ".join(str(chosen[scale]) for scale in scales)
            rows.append([name, score, f"{standings[name]['score']:.2f}", worst, counts])
        elif label + TUNED not in standings and row["rank"] is not None:
            rows.append([name, "–", f"{row['score']:.2f}", f"{row['worst']:.1f} ({row['worst_environment']})", "–"])
    return table(rows)


def read_standings(benchmark: str) -> dict[str, Standing]:
    """Return the leaderboard that is printed on the page of a benchmark; references have no rank and are left out."""
    begin, end = markdown_markers("leaderboard")
    lines = page_of(benchmark).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0].splitlines()[2:]
    found = {}
    for line in lines:
        rank, policy, score, _, worst, microseconds = (cell.strip() for cell in line.strip("|").split("|"))
        if rank.isdecimal():
            largest = float(worst.partition(" ")[0])
            found[policy] = Standing(int(rank), policy, float(score), largest, float(microseconds))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the tables of a benchmark's page.")
    parser.add_argument("benchmark", choices=[*COLUMNS])
    parser.add_argument("folder", type=Path, help="what the command wrote with --out")
    options = parser.parse_args(arguments)
    page, document = page_of(options.benchmark), json.loads((options.folder / "leaderboard.json").read_text("utf-8"))
    if any(row["label"].endswith(TUNED) for row in document["leaderboard"]):
        tables = {"tuned": write_tuned(document)}
    else:
        columns = COLUMNS[options.benchmark].split(", ")
        tables = {
            "leaderboard": write_leaderboard(document["leaderboard"]),
            "regrets": write_regrets(document["environments"], columns),
        }
        shutil.copy(options.folder / "figures" / "leaderboard.svg", ROOT / "docs/figures" / FIGURES[options.benchmark])
    text = page.read_text(encoding="utf-8")
    for name, content in tables.items():
        text = replace_block(text, *markdown_markers(name), content)
    page.write_text(text, encoding="utf-8")
    print(f"docs/explanation/{page.name}: {', '.join(tables)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
