"""Pictures of the projection and of the bonus, in a small world whose numbers windvane computes.

The world has two dimensions and logistic rewards. Older rounds played arms near one direction, recent rounds arms near
another one, so that V and V_tilde have different shapes. The interactive picture (docs/_static/projection.js) has the
same world: :func:`write_world` writes its constants.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from pictures.svg import Picture, Point, render
from windvane.links import get_link
from windvane.projection import Projection, p2
from windvane.theory import radius

GAMMA, S, LAMBDA, SIGMA, DELTA = 0.98, 1.0, 1.0, 0.5, 0.05
OLD, RECENT = ([-5, 10, 25, 40], 110), ([80, 95, 110, 125], 50)  # directions of the arms in degrees, rounds
ROUNDS = OLD[1] + RECENT[1]
CASES = {"inside": (0.55, 0.5), "within reach": (1.3, 0.72), "out of reach": (2.9, 0.9)}
BETA = 1.0  # of the pictures; the radius of the policy would be 1.87, which hides the third case
WORDS = [
    ["1. Inside", "θ̂ is in the ball: θ̃ = θ̂."],
    [
        "2. Within reach", "Noise alone can explain", "why θ̂ is outside: what it", "can explain (shaded) meets",
        "the ball. θ̃ is the point", "closest to θ̂ in the metric", "of learning (inner line).",
    ],
    [
        "3. Out of reach", "Noise cannot explain it:", "the world has moved. θ′ at", "the border of the shaded",
        "set and θ̃ in the ball are", "as close as possible in the", "metric of tracking (dashed).",
    ],
]  # fmt: skip


@dataclass(frozen=True)
class World:
    """What the past rounds amount to: their features with two sums of weights, and what follows from these."""

    features: np.ndarray
    weights: np.ndarray
    squared_weights: np.ndarray

    @property
    def V(self) -> np.ndarray:
        """The metric of tracking."""
        return self._gram(self.weights)

    @property
    def V_tilde(self) -> np.ndarray:
        """The metric of learning."""
        return self._gram(self.squared_weights)

    @property
    def learning_root(self) -> np.ndarray:
        """The symmetric root of V_tilde."""
        eigenvalues, Q = np.linalg.eigh(self.V_tilde)
        return np.asarray((Q * np.sqrt(eigenvalues)) @ Q.T)

    def _gram(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray((self.features.T * weights) @ self.features + LAMBDA * np.eye(2))

    @property
    def ridge(self) -> float:
        """The factor lambda c_mu of theta in g."""
        return LAMBDA * get_link("logistic").constants(S=S, L=1.0).c_mu

    @property
    def beta(self) -> float:
        """The confidence radius of the policy after these rounds."""
        c_mu = get_link("logistic").constants(S=S, L=1.0).c_mu
        return float(
            radius(ROUNDS + 1, dim=2, gamma=GAMMA, S=S, L=1.0, lam=LAMBDA, sigma=SIGMA, delta=DELTA, c_mu=c_mu)
        )

    def g(self, theta: np.ndarray) -> np.ndarray:
        """Return the weighted sum of mean rewards times features, plus the penalty."""
        means = 1 / (1 + np.exp(-self.features @ theta))
        return np.asarray((self.weights * means) @ self.features + self.ridge * theta)

    def invert(self, value: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return the theta with g(theta) = value, by damped Newton steps from ``start``."""
        theta = start
        for _ in range(100):
            means = 1 / (1 + np.exp(-self.features @ theta))
            slopes = self.weights * means * (1 - means)
            H = (self.features.T * slopes) @ self.features + self.ridge * np.eye(2)
            step = np.linalg.solve(H, value - self.g(theta))
            theta = theta + step * min(1.0, 1.0 / float(np.linalg.norm(step) + 1e-300))
            if np.linalg.norm(step) < 1e-12:
                break
        return theta

    def project(self, theta_hat: np.ndarray, beta: float) -> Projection:
        """Return windvane's projection of an estimate: b is g(theta_hat)."""
        return p2(
            self.features, self.weights, b=self.g(theta_hat), V=self.V, V_tilde=self.V_tilde, beta=beta, S=S,
            ridge=self.ridge, link="logistic",
        )  # fmt: skip

    def level_set(self, centre: np.ndarray, shape: np.ndarray, level: float) -> np.ndarray:
        """Return points of {theta: g(theta) = g(centre) + level shape u, ||u|| = 1}."""
        points, theta = [], centre
        for angle in np.linspace(0, 2 * np.pi, 73):
            u = np.array([np.cos(angle), np.sin(angle)])
            theta = self.invert(self.g(centre) + level * shape @ u, theta)
            points.append(theta)
        return np.array(points)


def make_world() -> World:
    """Return the world after its rounds."""
    angles = [OLD[0][s % len(OLD[0])] for s in range(OLD[1])] + [
        RECENT[0][s % len(RECENT[0])] for s in range(RECENT[1])
    ]
    kinds = sorted(set(angles))
    discounts = GAMMA ** np.arange(ROUNDS - 1, -1, -1.0)
    played = np.array(angles)
    sums = [[float((discounts**power)[played == kind].sum()) for kind in kinds] for power in (1, 2)]
    radians = np.radians(kinds)
    return World(np.stack([np.cos(radians), np.sin(radians)], axis=1), np.array(sums[0]), np.array(sums[1]))


def describe_world() -> str:
    """Return the JavaScript file with the constants of the world."""
    world = make_world()
    constants = {
        "features": world.features.round(12).tolist(), "weights": world.weights.round(12).tolist(),
        "squaredWeights": world.squared_weights.round(12).tolist(), "S": S, "lambda": LAMBDA,
        "ridge": round(world.ridge, 12), "beta": round(world.beta, 12),
    }  # fmt: skip
    comment = "// Written by `python tools/draw_docs.py projection-world`."
    return f"{comment}\nwindow.projectionWorld = {json.dumps(constants)};\n"


@dataclass(frozen=True)
class Map:
    """Where a parameter is on the picture."""

    centre: Point
    scale: float

    def __call__(self, theta: np.ndarray) -> Point:
        """Return the position on the picture."""
        return self.centre[0] + self.scale * float(theta[0]), self.centre[1] - self.scale * float(theta[1])


def draw_projection() -> str:
    """Draw the three cases: the estimate inside the ball, within reach of it, and out of reach."""
    world = make_world()
    picture = Picture(
        520, 590, "The projection in three cases",
        "First, the estimate is inside the ball and stays there. Second, it is outside, but the set of parameters that "
        "noise can explain meets the ball: the projection is the point of the ball that is closest in the metric of "
        "learning. Third, that set does not meet the ball: a point at its border is chosen, so that its distance to "
        "the ball in the metric of tracking is smallest.",
    )  # fmt: skip
    for i, (case, lines) in enumerate(zip(CASES.values(), WORDS, strict=True)):
        top = 14 + 190 * i
        frame = {"x": 10, "y": top, "width": 310, "height": 180, "rx": 6}
        picture.add("clipPath", render("rect", None, dict(frame)), id=f"panel{i}")
        picture.elements.append(f'<g clip-path="url(#panel{i})">')
        draw_case(picture, world, np.array(case), Map((86, top + 96), 60))
        picture.elements.append("</g>")
        picture.add("rect", **frame, fill="none", stroke="grid")
        picture.text((332, top + 20), lines[0], bold=True)
        picture.lines((332, top + 42), lines[1:], colour="muted", size=13)
    return picture.to_svg()


def draw_case(picture: Picture, world: World, theta_hat: np.ndarray, place: Map) -> None:
    """Draw the ball, the estimate, its projection, and the level sets that define it."""
    result = world.project(theta_hat, BETA)
    picture.add("circle", cx=place.centre[0], cy=place.centre[1], r=place.scale * S, fill="shade", stroke="ink")
    root = world.learning_root
    if result.stage > 1:
        region = [place(point) for point in world.level_set(theta_hat, root, BETA)]
        picture.area(region, "orange", 0.16, stroke="orange")
    at_hat, at_tilde = place(theta_hat), place(result.theta)
    if result.stage == 2:
        level = BETA * float(np.linalg.norm(result.eta))
        picture.line([place(point) for point in world.level_set(theta_hat, root, level)], "orange", 1.2)
        draw_step(picture, at_hat, at_tilde, "ink")
    if result.stage == 3:
        reached = world.invert(world.g(theta_hat) - BETA * root @ result.eta, theta_hat)
        level = [place(point) for point in world.level_set(reached, world.V, float(result.value))]
        picture.line(level, "blue", 1.5, stroke_dasharray="5 4")
        at_reached = place(reached)
        draw_step(picture, at_hat, at_reached, "orange")
        draw_step(picture, at_reached, at_tilde, "blue")
        picture.dot(at_reached, "blue")
        picture.text((at_reached[0] + 2, at_reached[1] + 20), "θ′", "blue", "middle")
    picture.dot(at_tilde, "green", 6)
    if result.stage > 1:
        picture.text((at_tilde[0] - 8, at_tilde[1] + 18), "θ̃", "green", "end")
        picture.dot(at_hat, "orange", 6)
        picture.text((at_hat[0] + 9, at_hat[1] - 7), "θ̂", "orange")
    else:
        picture.text((at_tilde[0] - 8, at_tilde[1] + 18), "θ̂ = θ̃", "green", "middle")
    picture.text(
        (place.centre[0] - 0.62 * place.scale, place.centre[1] + 0.86 * place.scale + 18),
        "‖θ‖ ≤ S",
        "muted",
        "middle",
        13,
    )


def draw_step(picture: Picture, begin: Point, end: Point, colour: str) -> None:
    """Draw an arrow between two points that leaves room for their dots."""
    gap = 7 / float(np.hypot(end[0] - begin[0], end[1] - begin[1]))
    tip = (end[0] - gap * (end[0] - begin[0]), end[1] - gap * (end[1] - begin[1]))
    picture.arrow([begin, tip], colour, width=2)
