"""What a memory costs: regret of BVD-GLM-UCB by its memory, in worlds of different speed.

``simulate_memories`` takes a minute or two. Its figures are kept in ``regret.json``, from which the pictures are drawn.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

import windvane
from pictures.chart import Plot
from pictures.svg import Picture
from windvane.environments import Arc, BallArms, Drift, Environment, Static
from windvane.policies import Policy

KEPT = Path(__file__).with_suffix(".json")
HORIZON, RUNS, EVERY = 3000, 20, 50
WORLDS: dict[str, tuple[Drift, str]] = {
    "θ* at rest": (Static(), "blue"), "one turn": (Arc(), "green"), "four turns": (Arc(angle=8 * math.pi), "orange")
}  # fmt: skip
MEMORIES = [10, 20, 50, 100, 200, 500, 1000, 3000, 10000]
CURVES = {"10": ("memory 10", "orange"), "200": ("memory 200", "green"), "3000": ("memory 3,000", "blue")}
DEFAULT = "AdaptiveGLMUCB"


def measure_regret(policy: Policy, drift: Drift, runs: int = RUNS, horizon: int = HORIZON) -> np.ndarray:
    """Return the mean regret of a policy after every :data:`EVERY` rounds."""
    environment = Environment(drift, BallArms(), horizon=horizon, lanes=runs, seed=0)
    regret = np.zeros(horizon + 1)
    for t in range(1, horizon + 1):
        offer = environment.round(t)
        choice = policy.select(offer.arms)
        outcome = environment.play(offer, choice)
        policy.update(offer.arms[np.arange(runs), choice], outcome.reward)
        regret[t] = (offer.means.max(axis=1) - outcome.mean).mean()
    return regret.cumsum()[::EVERY]


def make_policy(memory: int, runs: int = RUNS) -> Policy:
    """Return the paper's policy, as printed, with a memory."""
    return windvane.BVDGLMUCB(dim=2, S=1.0, gamma=1 - 1 / memory, lanes=runs)


def simulate_memories() -> dict[str, dict[str, list[float]]]:
    """Return the regret curves by world, then by memory or the name of the default policy."""
    result: dict[str, dict[str, list[float]]] = {}
    for world, (drift, _) in WORLDS.items():
        policies: dict[str, Policy] = {str(memory): make_policy(memory) for memory in MEMORIES}
        policies[DEFAULT] = windvane.AdaptiveGLMUCB(dim=2, lanes=RUNS)
        result[world] = {
            name: [round(float(value), 3) for value in measure_regret(policy, drift)]
            for name, policy in policies.items()
        }
    return result


def write_regret() -> None:
    """Simulate anew, and keep the curves."""
    KEPT.write_text(json.dumps(simulate_memories(), ensure_ascii=False) + "\n", encoding="utf-8")


def draw_curves() -> str:
    """Draw regret over time in the world of one turn, with a short, a right and a long memory."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["one turn"]
    rounds = list(range(0, HORIZON + 1, EVERY))
    lines = {**CURVES, DEFAULT: ("the default", "violet")}
    finals = {name: kept[name][-1] for name in lines}
    picture = Picture(
        520, 320, "Regret with a short, a right and a long memory",
        "While theta* turns once in 3,000 rounds. "
        + "; ".join(f"{lines[name][0]}: {value:.0f}" for name, value in finals.items()) + ".",
    )  # fmt: skip
    plot = Plot(picture, (48, 36), (330, 226), (0, HORIZON), (0, 400))
    plot.draw_y_axis([0, 100, 200, 300, 400], "regret", "g")
    plot.draw_x_axis([0, 1000, 2000, 3000], "round")
    for name, (_, colour) in lines.items():
        plot.curve(rounds, kept[name], colour, 2.2)
    plot.name_ends([(f"{text}: {finals[name]:.0f}", finals[name], colour) for name, (text, colour) in lines.items()])
    return picture.to_svg()


def draw_tradeoff() -> str:
    """Draw final regret against the memory, in three worlds."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    best = {world: min(MEMORIES, key=lambda memory: kept[world][str(memory)][-1]) for world in WORLDS}
    picture = Picture(
        520, 330, "Final regret by memory, in three worlds",
        "Each curve has its lowest point at another memory: " + "; ".join(
            f"{world}: {best[world]:,} rounds, regret {kept[world][str(best[world])][-1]:.0f}, "
            f"the default policy {kept[world][DEFAULT][-1]:.0f}" for world in WORLDS
        ) + ".",
    )  # fmt: skip
    plot = Plot(picture, (48, 36), (346, 226), (1, 4), (0, 600))
    plot.draw_y_axis([0, 200, 400, 600], "regret after 3,000 rounds", "g")
    plot.draw_x_axis([], "memory in rounds")
    for power in range(1, 5):
        x, y = plot.place(power, 0)
        picture.line([(x, y), (x, y + 4)], "muted", 1)
        picture.text((x, y + 18), f"{10**power:,}", "muted", "middle", 13)
    for world, (_, colour) in WORLDS.items():
        finals = [kept[world][str(memory)][-1] for memory in MEMORIES]
        plot.curve([math.log10(memory) for memory in MEMORIES], finals, colour, 2.2)
        picture.dot(plot.place(math.log10(best[world]), min(finals)), colour)
        default = kept[world][DEFAULT][-1]
        plot.curve([1, 4], [default, default], colour, 1.5, stroke_dasharray="3 4")
    plot.name_ends(
        [(f"  {world}", kept[world][str(MEMORIES[-1])][-1], colour) for world, (_, colour) in WORLDS.items()]
    )
    picture.text((394, 24), "dashed: the default policy", "muted", "end", 13)
    return picture.to_svg()
