"""Pictures of drift: its kinds, the weights of old observations, and how an estimate follows theta*."""

from __future__ import annotations

import numpy as np

import windvane
from pictures.chart import Plot
from pictures.svg import Picture
from windvane.environments import Arc, BallArms, Drift, Environment, RandomWalk, Rotation, Sinusoid, Switches

HORIZON = 1000
KINDS: dict[str, tuple[Drift, str]] = {
    "abrupt": (Switches([350, 700], [[0.8, 0.0], [-0.6, 0.0], [0.3, 0.0]]), "Switches"),
    "slow": (Arc(angle=np.pi), "Arc"),
    "seasonal": (Sinusoid(period=250, amplitude=[0.7, 0.0]), "Sinusoid"),
    "random walk": (RandomWalk(0.04), "RandomWalk"),
}
MEMORIES = {"short memory: 15 rounds": 15, "right memory: 120 rounds": 120, "long memory: 1,500 rounds": 1500}
MEMORY_COLOURS = ("orange", "green", "blue")


def draw_kinds() -> str:
    """Draw one coordinate of theta* for four kinds of drift."""
    picture = Picture(
        520, 372, "Four kinds of drift",
        "One coordinate of theta* over 1,000 rounds: it jumps twice; it moves slowly from 1 to −1; it oscillates four "
        "times; it wanders at random.",
    )  # fmt: skip
    for i, (name, (drift, kind)) in enumerate(KINDS.items()):
        path = drift.path(horizon=HORIZON, dim=2, S=1.0, lane_ids=1, seed=3)
        rounds = np.arange(1, HORIZON + 1)
        values = [float(path.at(int(t))[0, 0]) for t in rounds]
        plot = Plot(picture, (44 + 250 * (i % 2), 40 + 176 * (i // 2)), (206, 106), (0, HORIZON), (-1, 1))
        picture.text((plot.at[0], plot.at[1] - 14), name, bold=True)
        picture.text((plot.at[0] + 206, plot.at[1] - 14), kind, "muted", "end", 13)
        plot.draw_y_axis([-1, 0, 1])
        plot.draw_x_axis([0, 500, 1000])
        plot.curve(list(rounds), values, "blue")
    return picture.to_svg()


def draw_weights() -> str:
    """Draw the weight of an observation by its age, for the three ways to forget."""
    picture = Picture(
        520, 236, "The weight of an observation by its age",
        "With a discount the weight halves every 100 rounds. In a window it is one for 144 rounds and then zero. With "
        "restarts every 400 rounds it is one for everything since the last restart.",
    )  # fmt: skip
    plot = Plot(picture, (44, 36), (336, 140), (0, 500), (0, 1))
    plot.draw_y_axis([0, 0.25, 0.5, 0.75, 1], "weight", "g")
    plot.draw_x_axis([0, 100, 200, 300, 400, 500], "age in rounds")
    ages = np.arange(0, 501, 5)
    plot.curve([0, 144, 144, 500], [1, 1, 0, 0], "orange")
    plot.curve([0, 260, 260, 500], [1, 1, 0, 0], "green", stroke_dasharray="6 4")
    plot.curve(list(ages), list(0.5 ** (ages / 100)), "blue", 2.5)
    x, y = plot.place(100, 0.5)
    picture.dot((x, y), "blue")
    picture.text((x - 8, y + 16), "half-life", "blue", "end", 13)
    names = [
        ("discount γ = 0.9931", 0.5**5, "blue"),
        ("window of 144", 0.24, "orange"),
        ("restart, 260 ago", 0.47, "green"),
    ]
    plot.name_ends(names)
    return picture.to_svg()


def track(memory: int, horizon: int = 1500, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return the angles of theta* and of the estimate in every round, in degrees, for one memory."""
    environment = Environment(Rotation(), BallArms(), horizon=horizon, S=1.0, seed=seed)
    policy = windvane.BVDGLMUCB(dim=2, S=1.0, gamma=1 - 1 / memory)
    truth, estimates = np.empty((horizon, 2)), np.empty((horizon, 2))
    for t in range(1, horizon + 1):
        offer = environment.round(t)
        choice = policy.select(offer.arms)
        truth[t - 1], estimates[t - 1] = environment.path.at(t)[0], policy.info().theta_hat[0]
        policy.update(offer.arms[[0], choice], environment.play(offer, choice).reward)
    return truth, estimates


def draw_tracking() -> str:
    """Draw the angle of the estimate beside that of theta*, for a short, a right and a long memory."""
    picture = Picture(
        520, 580, "The estimate follows theta* with three memories",
        "The direction of theta* turns by 90 degrees in the middle third. With a memory of 15 rounds the estimate "
        "scatters widely around it, with 120 rounds it follows closely, with 1,500 rounds it lags far behind.",
    )  # fmt: skip
    for i, ((name, memory), colour) in enumerate(zip(MEMORIES.items(), MEMORY_COLOURS, strict=True)):
        truth, estimates = track(memory)
        rounds = list(range(1, len(truth) + 1))
        plot = Plot(picture, (52, 60 + 176 * i), (440, 110), (0, len(truth)), (-90, 180))
        picture.text((52, plot.at[1] - 16), name, colour, bold=True)
        plot.shade(len(truth) / 3, 2 * len(truth) / 3)
        plot.draw_y_axis([-90, 0, 90, 180], form="g")
        plot.draw_x_axis([0, 500, 1000, 1500], "round" if i == 2 else "")
        angle = np.degrees(np.arctan2(estimates[:, 1], estimates[:, 0]))
        known = np.linalg.norm(estimates, axis=1) > 0
        angle = np.where(angle < -90, angle + 360, angle)
        for piece in np.split(np.arange(len(angle)), np.flatnonzero(np.abs(np.diff(angle)) > 180) + 1):
            inside = [j for j in piece if known[j] and angle[j] <= 180]
            if len(inside) > 1:
                plot.curve([rounds[j] for j in inside], angle[inside], colour, 1.3)
        plot.curve(rounds, np.degrees(np.arctan2(truth[:, 1], truth[:, 0])), "ink", 2, stroke_dasharray="7 4")
    picture.text((52, 16), "direction in degrees: θ* dashed, θ̂ solid", "muted", size=13)
    return picture.to_svg()
