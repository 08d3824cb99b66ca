"""Compare the Agent with Vowpal Wabbit and bayesianbandits on one labelled data stream, in one process.

    python benchmarks/peers.py --classes 2           a drifting stream from a seeded generator: six fields, two arms
    python benchmarks/peers.py FILE --rows 12000     the first rows of a CSV file: a header, the label last
    python benchmarks/peers.py FILE --tuned          also Vowpal Wabbit with the best of eleven settings
    python benchmarks/peers.py FILE --python PATH    use an environment that already has windvane and the peers

The arms are the classes, and the reward is 1 if the class is right. All contenders get the same numbers: each field is
scaled to [-1, 1] by its range in these rows (a constant field is 0). All have one parameter per class and field. The
measured time is the processor time of a decision and its reward, from a row as a dict to the updated model. The
contenders take turns in chunks of rows, so that noise of the machine affects all of them. Times are medians over
chunks, and a ratio is the median of the ratios of the chunks.

Agent             the default: ``Agent(features=...)`` and nothing else
Agent, BVD        ``policy="BVD-GLM-UCB"`` with a half-life of 100 decisions and S = 5
Vowpal Wabbit     ``--cb_explore_adf --squarecb``; each example is parsed once
  from text       the same, but predict and learn both parse the text, as in its tutorials
bayesianbandits   a ``BayesianGLM`` for each class, Thompson sampling, stabilized forgetting with the same half-life

The script creates a virtual environment for the peers and runs itself there. It skips a peer that cannot be installed.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from common import say

import windvane

ROOT = Path(__file__).parent.parent
PEERS = ("vowpalwabbit", "bayesianbandits")
CHUNK = 200  # rows that a contender plays before the next one does
HALF_LIFE = 100.0  # in decisions, for the contenders that need one
AGENT, AGENT_BVD, VW, VW_TEXT, VW_TUNED, BAYESIAN = (
    "Agent",
    "Agent, BVD-GLM-UCB",
    "Vowpal Wabbit",
    "Vowpal Wabbit, from text",
    "Vowpal Wabbit, best of 11",
    "bayesianbandits",
)
MOST_TIME = 0.4  # target for the Agent's time, relative to that of Vowpal Wabbit
VW_SETTINGS = (
    "",
    "-l 2",
    "-l 5",
    "-l 10",
    "--power_t 0",
    "--power_t 0 -l 2",
    "--power_t 0 -l 5",
    "--gamma_scale 100",
    "--gamma_scale 100 -l 2",
    "--gamma_scale 100 -l 5",
    "--gamma_scale 500 --power_t 0 -l 2",
)

Row = dict[str, float]


# --- the labelled data stream --------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """Rows that map fields to numbers in [-1, 1], and the label of each row."""

    fields: list[str]
    classes: list[str]
    rows: list[Row]
    labels: list[str]


def build_stream(fields: Sequence[str], numbers: np.ndarray, labels: Sequence[str]) -> Stream:
    """Scale each column of ``numbers`` to [-1, 1] by its range. A constant column becomes 0."""
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    places = (2.0 * numbers - low - high) / np.where(high > low, high - low, 1.0)
    rows = [dict(zip(fields, row, strict=True)) for row in places.clip(-1.0, 1.0).tolist()]
    return Stream(list(fields), sorted(set(labels)), rows, list(labels))


def read_stream(path: Path, count: int) -> Stream:
    """Read the first ``count`` rows of a CSV file with a header, whose last column is the label."""
    with path.open(newline="") as file:
        reader = csv.reader(file)
        *fields, _ = next(reader)
        lines = [line for line, _ in zip(reader, range(count), strict=False)]
    return build_stream(fields, np.array([line[:-1] for line in lines], dtype=float), [line[-1] for line in lines])


def generate_stream(count: int, classes: int = 3, seed: int = 0) -> Stream:
    """Draw rows with six fields. The label, a class, follows a linear rule that turns once per 8,000 rows.

    One label in ten is random.
    """
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(-1.0, 1.0, (count, 6))
    start, quarter = rng.normal(size=(2, 6, classes))
    angle = (2.0 * np.pi / 8000.0 * np.arange(count))[:, None]
    best = (np.cos(angle) * (numbers @ start) + np.sin(angle) * (numbers @ quarter)).argmax(axis=1)
    labels = np.where(rng.random(count) < 0.1, rng.integers(classes, size=count), best)
    return build_stream([f"field {i}" for i in range(6)], numbers, [f"class {label}" for label in labels])


# --- the contenders ------------------------------------------------------------------------------------------------


class Contender(Protocol):
    """An algorithm that chooses a class for a row, then learns from the reward."""

    def decide(self, row: Row) -> str: ...

    def reward(self, value: float) -> None: ...


class AgentContender:
    def __init__(self, stream: Stream, **settings: Any) -> None:
        ranges = dict.fromkeys(stream.fields, (-1.0, 1.0))
        features = windvane.Features(by_arm=ranges, arms=stream.classes)
        self.agent = windvane.Agent(features=features, **settings)

    def decide(self, row: Row) -> str:
        self.decision = self.agent.decide(context=row)
        return str(self.decision.arm)

    def reward(self, value: float) -> None:
        self.agent.reward(self.decision, value)


class VowpalWabbitContender:
    """Vowpal Wabbit. An example has one shared line with the fields and one line per class; ``-q ca`` pairs the two."""

    def __init__(self, stream: Stream, options: str = "") -> None:
        from vowpalwabbit import Workspace

        self.workspace = Workspace(f"--cb_explore_adf --squarecb -q ca --quiet {options}")
        self.names = {field: f"f{i}" for i, field in enumerate(stream.fields)}  # a name must not contain ":" or "|"
        self.classes, self.indices = stream.classes, range(len(stream.classes))
        self.actions = [f"|a c{i}" for i in self.indices]
        self.random = random.Random(0)

    def decide(self, row: Row) -> str:
        self.example = self.workspace.parse(self.format_lines(row))
        return self.draw(self.workspace.predict(self.example))

    def reward(self, value: float) -> None:
        self.example[1 + self.index].set_label_string(self.format_label(value))
        self.workspace.learn(self.example)
        self.workspace.finish_example(self.example)

    def format_lines(self, row: Row) -> list[str]:
        names = self.names
        return ["shared |c " + " ".join([f"{names[field]}:{x:.6g}" for field, x in row.items()]), *self.actions]

    def format_label(self, value: float) -> str:
        return f"0:{-value}:{self.probability:.6g}"

    def draw(self, probabilities: list[float]) -> str:
        self.index = self.random.choices(self.indices, probabilities)[0]
        self.probability = probabilities[self.index]
        return self.classes[self.index]


class VowpalWabbitTextContender(VowpalWabbitContender):
    def decide(self, row: Row) -> str:
        self.lines = self.format_lines(row)
        return self.draw(self.workspace.predict(self.lines))

    def reward(self, value: float) -> None:
        line = 1 + self.index
        self.lines[line] = f"{self.format_label(value)} {self.lines[line]}"
        self.workspace.learn(self.lines)


class BayesianBanditsContender:
    def __init__(self, stream: Stream) -> None:
        from bayesianbandits import Arm, BayesianGLM, ContextualAgent, StabilizedForgetting, ThompsonSampling

        arms = [Arm(label, learner=BayesianGLM(link="logit")) for label in stream.classes]
        self.agent = ContextualAgent(arms, ThompsonSampling(), random_seed=0)
        self.forgetting = StabilizedForgetting(0.5 ** (1.0 / HALF_LIFE))

    def decide(self, row: Row) -> str:
        self.x = np.array([[1.0, *row.values()]])
        return str(self.agent.pull(self.x)[0])

    def reward(self, value: float) -> None:
        self.agent.update(self.x, np.array([value]))
        self.agent.decay(self.forgetting)


Build = Callable[[Stream], Contender]
CONTENDERS: dict[str, Build] = {
    AGENT: AgentContender,
    AGENT_BVD: lambda stream: AgentContender(stream, policy="BVD-GLM-UCB", half_life=HALF_LIFE, S=5.0),
    VW: VowpalWabbitContender,
    VW_TEXT: VowpalWabbitTextContender,
    BAYESIAN: BayesianBanditsContender,
}


# --- measuring -----------------------------------------------------------------------------------------------------


class Measurement(NamedTuple):
    """Seconds of processor time per decision and reward in each chunk, and the mean reward."""

    seconds: np.ndarray
    mean_reward: float


def play(contender: Contender, rows: Sequence[Row], labels: Sequence[str]) -> float:
    """Let a contender play these rows. Return the sum of its rewards."""
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        value = float(contender.decide(row) == label)
        contender.reward(value)
        total += value
    return total


def find_available(stream: Stream, builds: dict[str, Build]) -> tuple[dict[str, Build], dict[str, str]]:
    """Return the contenders that can be imported, and the import error of each of the others.

    A first copy of each contender plays one chunk, so that everything is loaded and compiled before the measurement.
    """
    available, skipped = {}, {}
    for name, build in builds.items():
        try:
            play(build(stream), stream.rows[:CHUNK], stream.labels[:CHUNK])
        except ImportError as error:
            skipped[name] = str(error)
        else:
            available[name] = build
    return available, skipped


def measure(stream: Stream, builds: dict[str, Build]) -> dict[str, Measurement]:
    """Let all contenders play the stream, in turns of one chunk."""
    contenders = {name: build(stream) for name, build in builds.items()}
    seconds: dict[str, list[float]] = {name: [] for name in builds}
    rewards = dict.fromkeys(builds, 0.0)
    for start in range(0, len(stream.rows), CHUNK):
        rows, labels = stream.rows[start : start + CHUNK], stream.labels[start : start + CHUNK]
        for name, contender in contenders.items():
            began = time.process_time()
            rewards[name] += play(contender, rows, labels)
            seconds[name].append((time.process_time() - began) / len(rows))
    return {name: Measurement(np.array(seconds[name]), rewards[name] / len(stream.rows)) for name in builds}


def tune_vowpal_wabbit(stream: Stream) -> str:
    """Return the options with the largest mean reward on the whole stream."""
    rewards = {
        options: play(VowpalWabbitContender(stream, options), stream.rows, stream.labels) for options in VW_SETTINGS
    }
    return max(rewards, key=lambda options: rewards[options])


# --- reporting -----------------------------------------------------------------------------------------------------


def summarize(measured: dict[str, Measurement]) -> list[dict[str, Any]]:
    """Return one row of the table per contender.

    ``ratio`` is relative to the time of Vowpal Wabbit, and None if that was skipped.
    """
    base = measured.get(VW)
    return [
        {
            "contender": name,
            "microseconds": 1e6 * float(np.median(m.seconds)),
            "ratio": None if base is None else float(np.median(m.seconds / base.seconds)),
            "mean_reward": m.mean_reward,
        }
        for name, m in measured.items()
    ]


def print_table(table: list[dict[str, Any]]) -> None:
    print(f"{'':<28} {'µs per decision + reward':>24} {'ratio to VW':>12} {'mean reward':>12}")
    for row in table:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}x"
        print(f"{row['contender']:<28} {row['microseconds']:>24.1f} {ratio:>12} {row['mean_reward']:>12.4f}")


def check_targets(table: list[dict[str, Any]]) -> None:
    """Print whether the default Agent meets its targets for time and mean reward, relative to Vowpal Wabbit."""
    by_name = {row["contender"]: row for row in table}
    agent = by_name[AGENT]
    if agent["ratio"] is not None:
        figure, is_met = f"{agent['ratio']:.2f}x", agent["ratio"] <= MOST_TIME
        say("Agent's default: decision + reward vs Vowpal Wabbit", figure, f"{MOST_TIME}x", is_met)
    for name in (VW, VW_TUNED):
        if name in by_name:
            own, other = agent["mean_reward"], by_name[name]["mean_reward"]
            say(f"Agent's default: mean reward vs {name}", f"{own:.4f}", f"at least {other:.4f}", own >= other)


def run_here(arguments: argparse.Namespace) -> None:
    """Measure in this interpreter."""
    rows, classes = arguments.rows, arguments.classes
    stream = generate_stream(rows, classes) if arguments.file is None else read_stream(arguments.file, rows)
    builds, skipped = find_available(stream, CONTENDERS)
    settings = None
    if arguments.tuned and VW in builds:
        settings = tune_vowpal_wabbit(stream)
        builds[VW_TUNED] = lambda stream: VowpalWabbitContender(stream, settings)
    table = summarize(measure(stream, builds))
    shape = {"rows": len(stream.rows), "fields": len(stream.fields), "classes": len(stream.classes)}
    if arguments.json:
        print(json.dumps({**shape, "table": table, "tuned": settings, "skipped": skipped}, indent=2))
        return
    print(", ".join(f"{count} {name}" for name, count in shape.items()))
    print_table(table)
    if settings is not None:
        print(f"{VW_TUNED}: {settings or 'the default'}")
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}")
    check_targets(table)


# --- the environment of the peers ----------------------------------------------------------------------------------


def create_environment(folder: Path) -> Path:
    """Create a virtual environment with windvane and the peers that can be installed. Return its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    problem = install(python, "--editable", str(ROOT))
    if problem:
        sys.exit(f"windvane cannot be installed: {problem}")
    for peer in PEERS:
        problem = install(python, peer)
        if problem:
            print(f"{peer} cannot be installed: {problem}", file=sys.stderr)
    return python


def install(python: Path, *packages: str) -> str:
    """Install packages with pip. Return its last error, or an empty string if it succeeded."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return ""
    errors = [line.strip() for line in process.stderr.splitlines() if line.strip().startswith("ERROR:")]
    return errors[-1] if errors else f"pip exited with status {process.returncode}"


def run_in(python: Path) -> int:
    """Run this command again in another interpreter. Return its exit status."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # the matrices are small
    return subprocess.run([str(python), __file__, *sys.argv[1:], "--here"], env=environment, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="a CSV file (default: a generated stream)")
    parser.add_argument("--rows", type=int, default=12_000, help="number of rows to play (default: 12000)")
    parser.add_argument("--classes", type=int, default=3, help="classes of the generated stream (default: 3)")
    parser.add_argument("--tuned", action="store_true", help="also try eleven settings of Vowpal Wabbit")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--python", type=Path, help="the interpreter of an environment to use instead of a new one")
    parser.add_argument("--environment", type=Path, help="create the environment in this folder, and keep it")
    parser.add_argument("--here", action="store_true", help="measure in this interpreter")
    arguments = parser.parse_args()
    if arguments.here:
        warnings.simplefilter("ignore")  # bayesianbandits warns whenever its five iterations do not converge
        logging.getLogger("windvane").setLevel(logging.ERROR)  # an Agent warns when its estimate is at the norm bound
        run_here(arguments)
    elif arguments.python is not None:
        sys.exit(run_in(arguments.python))
    elif arguments.environment is not None:
        sys.exit(run_in(create_environment(arguments.environment)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(run_in(create_environment(Path(folder))))


if __name__ == "__main__":
    main()
