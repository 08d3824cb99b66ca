"""The benchmark on labelled data streams: every policy that can run there, on each file.

A stream may drift, so policies that never forget are left out, except for those that the paper compares with.
Each file is a separate experiment, because files have different lengths. Regret is the number of mistakes. theta* is
unknown, so S, B_T = 2 S and one change, which policies get if they need them, are assumptions; see
:class:`LabelledStream`. A policy that can learn the scale gets no S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.lab.results.folder import make_slugs
from windvane.lab.results.results import Entry, Results
from windvane.lab.results.summary import measure_spread
from windvane.lab.spec.experiment_spec import LabelledStreamSpec, Spec
from windvane.lab.studies import benchmarks
from windvane.lab.studies.benchmarks import Conduct, ExperimentPart, merge_results, run_parts, simulate_part
from windvane.lab.studies.notes import read_notes

if TYPE_CHECKING:
    from windvane.lab.run.workers import CellError

TITLE = "The benchmark on labelled data streams"
RUNS = 5  # few, because most policies are deterministic except for ties
LAST = 0.1  # the last share of the rounds, by which a policy should have learned


class StreamExperiment(NamedTuple):
    """The experiment on one file, with the number of classes and the dimension."""

    spec: Spec
    file: LabelledStreamSpec
    classes: int
    dim: int


@dataclass(frozen=True)
class StreamScore:
    """How often one policy was right on one labelled data stream, over its runs."""

    environment: str
    label: str
    runs: int
    mean_reward: float
    se: float  # of the mean reward; nan for one run
    last_tenth: float  # share of right choices in the last tenth of the rounds
    mistakes: float
    microseconds: float


def streams_experiments(
    files: Sequence[str | Path],
    *,
    label: str | None = None,
    rows: int | None = None,
    missing: str = "refuse",
    policies: Sequence[str] | None = None,
    runs: int = RUNS,
    seed: int = 0,
    S: float = 1.0,
) -> list[StreamExperiment]:
    """Read and check all files, and return the experiments of the benchmark, one per file."""
    paths = [Path(file) for file in files]
    if not paths or len({path.resolve() for path in paths}) < len(paths):
        raise ArgumentError("files", [str(path) for path in paths], "one or more files, each listed once")
    stems = [path.stem for path in paths]
    streams = [LabelledStreamSpec(path.stem, str(path)) for path in paths]
    chosen = benchmarks.choose_policies(policies, streams, horizon=1)
    experiments = []
    for path in paths:
        name = path.stem if stems.count(path.stem) == 1 else str(path)
        stream = LabelledStreamSpec(name, str(path), label=label, missing=missing, S=S).pin()
        data = stream.build(horizon=rows, lanes=1, seed=seed)
        sizes: dict[str, Any] = {"runs": runs, "horizon": data.horizon, "seed": seed}
        spec = Spec([stream], chosen, title=f"{TITLE}: {name}", lanes_per_cell=benchmarks.LANES, **sizes)
        experiments.append(StreamExperiment(spec, stream, len(data.classes), data.dim))
    return experiments


def run_streams(experiments: Sequence[StreamExperiment], folder: Path, conduct: Conduct = simulate_part) -> Results:
    """Run each experiment in its own folder inside ``folder``, and return all entries together."""
    folders = make_slugs(experiment.file.name for experiment in experiments)
    parts = [
        ExperimentPart(folders[file.name], f"{file.name}, file {number} of {len(experiments)}", spec)
        for number, (spec, file, _, _) in enumerate(experiments, 1)
    ]
    first, *others = run_parts(parts, folder, conduct, {"name": "streams-benchmark"})
    merged = merge_results(first, others)
    common = {key: merged.manifest[key] for key in ("runs", "seed", "begun", "versions", "command")}
    return replace(merged, folder=folder, manifest={**common, "title": TITLE})


def score_entry(entry: Entry) -> StreamScore:
    """Return the score of one entry."""
    rewards = 1.0 - entry.final / entry.horizon
    return StreamScore(
        environment=entry.environment, label=entry.label, runs=len(entry.lanes), mean_reward=float(rewards.mean()),
        se=measure_spread(rewards)[0], last_tenth=float(recent_accuracy(entry).mean()),
        mistakes=float(entry.final.mean()), microseconds=entry.microseconds,
    )  # fmt: skip


def recent_accuracy(entry: Entry) -> Array:
    """Return the share of right choices in about the last tenth of the rounds, [n].

    The tenth starts after the recorded round that is closest to nine tenths of the horizon.
    """
    rounds = np.concatenate([[0], entry.rounds[:-1]])
    mistakes = np.concatenate([np.zeros((len(entry.regret), 1)), entry.regret[:, :-1]], axis=1)
    start = int(np.abs(rounds - (1.0 - LAST) * entry.horizon).argmin())
    return np.asarray(1.0 - (entry.final - mistakes[:, start]) / (entry.horizon - rounds[start]))


def explain_streams(failures: Sequence[CellError]) -> dict[str, list[str]]:
    """Return the notes on the leaderboard, by heading."""
    failed = {"Policies that failed, and are not on the leaderboard": [str(failure) for failure in failures]}
    return {**(failed if failures else {}), "How to read the leaderboard": read_notes("streams")["guide"]}
