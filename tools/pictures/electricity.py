"""Decisions on a real labelled data stream: the electricity market of New South Wales.

The figures come from the stream itself (``simulate_policies``, minutes) and are kept in ``electricity.json``, from
which the picture is drawn.
"""

from __future__ import annotations

import json
import math
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from pictures.chart import Plot
from pictures.svg import Picture
from windvane.environments import LabelledStream
from windvane.lab import PolicySpec, Spec, simulate
from windvane.lab.spec.experiment_spec import LabelledStreamSpec

RATES = Path(__file__).with_suffix(".json")
WINDOW = 1344  # rows of four weeks: a row is half an hour
DEFAULT, NEVER, PAPER, RANDOM, REPEAT = (
    "the default", "never forgetting", "BVD-GLM-UCB", "random play", "last label again"
)  # fmt: skip
POLICIES = [
    PolicySpec("AdaptiveGLMUCB", label=DEFAULT),
    PolicySpec("AdaptiveGLMUCB", label=NEVER, settings={"memories": [math.inf]}),
    PolicySpec("BVD-GLM-UCB", label=PAPER, settings={"gamma": 0.99, "tolerance": 1e-3}),
    PolicySpec("UniformRandom", label=RANDOM),
]
COLOURS = {DEFAULT: "violet", NEVER: "blue", PAPER: "orange", RANDOM: "muted", REPEAT: "green"}


def simulate_policies(data: Path) -> dict[str, object]:
    """Run the policies on the stream, and return the share of right choices per window."""
    file = LabelledStreamSpec("electricity", str(data)).pin()
    stream = LabelledStream.read(data)
    spec = Spec([file], POLICIES, runs=1, horizon=stream.horizon, seed=0)
    windows = np.arange(0, stream.horizon + 1, min(WINDOW, stream.horizon))
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for entry in simulate(spec, Path(folder) / "electricity", jobs=1).entries:
            mistakes = np.interp(windows, [0, *entry.rounds], [0.0, *entry.regret[0]])
            rates[entry.label] = [float(rate) for rate in 1.0 - np.diff(mistakes) / np.diff(windows)]
    labels = np.array([int(stream.round(t).means.argmax()) for t in range(1, stream.horizon + 1)])
    repeats = np.concatenate([[0.5], labels[1:] == labels[:-1]])
    rates[REPEAT] = [float(repeats[a:b].mean()) for a, b in pairwise(windows)]
    return {"rows": stream.horizon, "window": int(windows[1]), "rates": rates}


def write_rates(data: Path) -> None:
    """Run the policies on the file of the stream, and keep the rates."""
    result = simulate_policies(data)
    result["rates"] = {name: [round(rate, 4) for rate in rates] for name, rates in result["rates"].items()}  # type: ignore[attr-defined]
    RATES.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def draw_electricity() -> str:
    """Draw the share of right choices over time."""
    kept = json.loads(RATES.read_text(encoding="utf-8"))
    rates, window, rows = kept["rates"], kept["window"], kept["rows"]
    means = {name: float(np.mean(values)) for name, values in rates.items()}
    picture = Picture(
        520, 330, "Mean reward of four policies on the Electricity stream",
        "Share of right choices per four weeks over two and a half years. "
        + "; ".join(f"{name}: {100 * mean:.0f} per cent" for name, mean in means.items()) + ".",
    )  # fmt: skip
    plot = Plot(picture, (44, 36), (316, 236), (0, rows), (0.4, 1.0))
    plot.draw_y_axis([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0], "mean reward, in windows of four weeks", "g")
    plot.draw_x_axis([0, 10_000, 20_000, 30_000, 40_000], "decisions (one every half hour)")
    middles = [(i + 0.5) * window for i in range(len(rates[DEFAULT]))]
    for name, values in rates.items():
        dashes = {"stroke_dasharray": "3 4"} if name == REPEAT else {}
        plot.curve(middles, values, COLOURS[name], 3 if name == DEFAULT else 1.8, **dashes)
    ends = [(f"{name}: {100 * means[name]:.0f} %", rates[name][-1], COLOURS[name]) for name in rates]
    plot.name_ends(ends)
    return picture.to_svg()
