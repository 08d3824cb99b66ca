"""How long experiments take: `python benchmarks/lab.py`. Everything is measured side by side in this one run."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from windvane.lab.experiment import simulate
from windvane.lab.results.results import Results
from windvane.lab.studies.paper import paper_spec
from windvane.lab.studies.tuning import default_gammas, tune_spec

COMMAND = Path(sys.executable).with_name("windvane")
LONG_RUNS = 800  # of the paper's experiment: a minute or more on one core
SPINS = 60_000_000
DISCOUNTS = 20


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def spin() -> None:
    total = 0
    for i in range(SPINS):
        total += i


def spin_twice() -> None:
    processes = [multiprocessing.Process(target=spin) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def say(what: str, value: float, target: float, unit: str, *, at_least: bool = False, more: str = "") -> None:
    met = value >= target if at_least else value <= target
    limit = f"target {'at least ' if at_least else ''}{target:g}{unit}"
    print(f"{'ok  ' if met else 'MISS'}  {what:<62} {value:.2f}{unit} {more} ({limit})", flush=True)


def reproduce(folder: Path) -> None:
    def command() -> None:
        subprocess.run([COMMAND, "reproduce", "--out", folder / "r", "--restart"], check=True, capture_output=True)

    command()  # compiles, if nothing has yet
    say("windvane reproduce, figures and report included", min(timed(command) for _ in range(3)), 20, " s")


def two_cores(folder: Path) -> None:
    spec = paper_spec(runs=LONG_RUNS)
    gains, spins = [], []
    for i in range(2):
        spins.append(2 * timed(spin) / timed(spin_twice))
        one = timed(lambda i=i: simulate(spec, folder / f"one{i}", jobs=1))
        two = timed(lambda i=i: simulate(spec, folder / f"two{i}", jobs=2))
        spins.append(2 * timed(spin) / timed(spin_twice))
        gains.append(one / two)
    gain, spin_gain = sum(gains) / len(gains), sum(spins) / len(spins)
    more = f"(gain {gain:.2f} on a job of {one:.0f} s, two spinning processes {spin_gain:.2f})"
    say("two cores: the gain, as a share of what spinning gains", gain / spin_gain, 0.9, "", at_least=True, more=more)


def tune(folder: Path) -> None:
    base = paper_spec(runs=20)
    gammas = default_gammas(base.horizon, DISCOUNTS).tolist()
    sweep = tune_spec(base, "BVD-GLM-UCB", gammas)
    simulate(sweep, folder / "warm", jobs=1)
    at_once = timed(lambda: simulate(sweep, folder / "sweep", jobs=1))
    singles = 0.0
    for i, gamma in enumerate(gammas):
        single = tune_spec(base, "BVD-GLM-UCB", [gamma])
        singles += timed(lambda i=i, single=single: simulate(single, folder / f"single{i}", jobs=1))
    more = f"({at_once:.1f} against {singles:.1f} s)"
    say(f"tune, {DISCOUNTS} discounts, against as many single runs, one core", at_once / singles, 1.2, "x", more=more)

    def command(*arguments: str) -> None:
        settings = ["--scales", "1", "--runs", "20", "--restart", "--out", str(folder / "command")]
        subprocess.run([COMMAND, "tune", *settings, *arguments], check=True, capture_output=True)

    whole = timed(lambda: command("--discounts", str(DISCOUNTS)))
    one_by_one = timed(lambda: [command("--gammas", repr(gamma)) for gamma in gammas])
    more = f"({whole:.1f} against {one_by_one:.1f} s)"
    say("the same as commands, wall time against one by one, all cores", whole / one_by_one, 0.5, "x", more=more)


def open_variants(folder: Path) -> None:
    """Four times as many variants take about four times as long; 16 times would be quadratic."""
    base, times = paper_spec(runs=10, horizon=1000), []
    for count in (100, 400):
        sweep = tune_spec(base, "D-LinUCB", default_gammas(base.horizon, count).tolist())
        simulate(sweep, folder / str(count), jobs=2)
        times.append(min(timed(lambda count=count: Results.open(folder / str(count))) for _ in range(3)))
    more = f"({times[1]:.2f} against {times[0]:.2f} s)"
    say("opening a folder with 400 variants, against one with 100", times[1] / times[0], 8.0, "x", more=more)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        for study in (reproduce, tune, open_variants, two_cores):
            study(Path(name) / study.__name__)


if __name__ == "__main__":
    main()
