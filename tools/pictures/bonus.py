"""A picture of the bonus: what optimism adds to the prediction of each arm, in the world of the projection."""

from __future__ import annotations

import numpy as np

from pictures.projection import Map, S, draw_step, make_world
from pictures.svg import Picture
from windvane.links import get_link

ARMS = {"A": (8, 0.95), "B": (100, 0.95), "C": (50, 0.6), "D": (200, 0.5)}  # direction in degrees, length
ESTIMATE = np.array([0.35, 0.75])


def score_arms() -> dict[str, tuple[np.ndarray, float, float]]:
    """Return each arm's vector, prediction and bonus, as the policy computes them."""
    world, R_mu = make_world(), get_link("logistic").constants(S=S, L=1.0).R_mu
    result = {}
    for name, (degrees, length) in ARMS.items():
        x = length * np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        width = float(np.sqrt(x @ np.linalg.solve(world.V, x)))
        result[name] = (x, float(1 / (1 + np.exp(-x @ ESTIMATE))), 2 * R_mu * world.beta * width)
    return result


def draw_bonus() -> str:
    """Draw four arms with the ellipse of equal uncertainty, and their scores."""
    scores = score_arms()
    best = max(scores, key=lambda name: scores[name][1] + scores[name][2])
    likely = max(scores, key=lambda name: scores[name][1])
    picture = Picture(
        520, 270, "The bonus of four arms",
        "Left: four arms as vectors, and an ellipse of equal uncertainty: the further an arm reaches in it, the more "
        "uncertain it is, and arm A reaches out of it. Right: prediction plus bonus of each arm. "
        f"Arm {likely} has the highest prediction. Arm {best}, in the direction that was played less, has the highest "
        "sum and is played.",
    )  # fmt: skip
    place = Map((122, 142), 100)
    world = make_world()
    eigenvalues, Q = np.linalg.eigh(world.V)
    angles = np.linspace(0, 2 * np.pi, 73)
    ring = (Q * np.sqrt(eigenvalues / eigenvalues.max())) @ np.array([np.cos(angles), np.sin(angles)])
    picture.text((16, 24), "equal uncertainty ‖x‖ in V⁻¹", "muted", size=13)
    picture.area([place(0.95 * point) for point in ring.T], "orange", 0.12, stroke="orange")
    for name, (x, _, _) in scores.items():
        at = place(x)
        draw_step(picture, place(np.zeros(2)), at, "green" if name == best else "ink")
        picture.text((at[0] + (4 if x[0] > 0 else -12), at[1] - 6), name, "green" if name == best else "ink", bold=True)
    picture.line([place(np.zeros(2)), place(ESTIMATE)], "violet", 2, stroke_dasharray="4 3")
    at = place(ESTIMATE)
    picture.dot(at, "violet")
    picture.text((at[0] + 8, at[1] + 4), "θ̃", "violet")
    scale = 230 / max(mean + bonus for _, mean, bonus in scores.values())
    picture.text((268, 24), "μ(⟨x, θ̃⟩)", "blue", size=13)
    picture.text((346, 24), "+ bonus", "orange", size=13)
    for i, (name, (_, mean, bonus)) in enumerate(scores.items()):
        top = 44 + 52 * i
        picture.text((248, top + 21), name, "green" if name == best else "ink", bold=True)
        picture.add("rect", x=268, y=top, width=round(scale * mean, 1), height=30, fill="blue", fill_opacity=0.75)
        where = {"x": round(268 + scale * mean, 1), "y": top, "width": round(scale * bonus, 1), "height": 30}
        picture.add("rect", **where, fill="orange", fill_opacity=0.45)
        picture.text((274, top + 20), f"{mean:.2f}", "ground", size=13, bold=True)
        picture.text((274 + scale * mean, top + 20), f"{bonus:.2f}", size=13)
    picture.text((268, 262), f"{best} is played", "green", size=13, bold=True)
    return picture.to_svg()
