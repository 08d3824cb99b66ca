"""Summaries as text and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from windvane.cli.console import explain, number, print_table, say, share
from windvane.lab.results.results import Results
from windvane.lab.results.summary import Row, summary_rows, told_text
from windvane.lab.studies.paper import Published


def summary_json(results: Results) -> dict[str, Any]:
    """Return what ``--json`` prints of an experiment."""
    return {
        "folder": str(results.folder),
        "complete": results.complete,
        "finished_cells": results.finished,
        "cells": results.total,
        "seed": results.manifest["seed"],
        "runs": results.manifest["runs"],
        "horizon": results.manifest["horizon"],
        "policies": [dataclasses.asdict(row) for row in summary_rows(results)],
    }


def print_summary(results: Results, published: Mapping[str, Published] | None = None) -> None:
    """One line per policy, a table per environment."""
    rows = summary_rows(results)
    if not results.complete:
        say(f"incomplete: {results.finished} of {results.total} cells are finished")
    for environment in dict.fromkeys(row.environment for row in rows):
        here = [row for row in rows if row.environment == environment]
        facts = f", B_T = {here[0].drift:.4g}, θ* changed {here[0].switches:g} times"
        known = facts if math.isfinite(here[0].drift) else ""  # a labelled data stream has no θ*
        title = f"{environment}: {here[0].runs} runs of {results.manifest['horizon']} rounds{known}"
        columns = ["policy", "told", "regret", "± SE", "sd", "γ", "µs/round", "θ̂ outside", "stages 1/2/3"]
        lines = [_line(row) for row in here]
        if published:
            columns.append("published")
            for line, row in zip(lines, here, strict=True):
                line.append(number(float(published[row.policy].mean[-1])) if row.policy in published else "–")
        print_table(columns, lines, title)
    explain(
        "regret: reward lost to the best arm of each round, mean over runs, with its standard error and spread; "
        "told: what the policy was told exactly, although nobody knows it in practice (B_T, number of changes); "
        "θ̂ outside: share of rounds with the estimate outside Θ; stages: share of rounds by how it was projected."
    )


def _line(row: Row) -> list[str]:
    stages = " ".join(share(s) for s in row.stages[1:]) if row.stages[1] == row.stages[1] else "–"
    numbers = number(row.mean), number(row.se), number(row.sd), number(row.gamma, 6), number(row.microseconds)
    return [row.label, told_text(row.told) or "–", *numbers, share(row.outside), stages]
