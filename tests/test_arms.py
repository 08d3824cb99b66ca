"""The best arm of a ball or a sphere."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import naive
from support.infinite_arms import NEUTRAL, SETS, Index, assert_best, on_sphere, rotation
from support.refusals import refuses
from support.worlds import ball
from windvane import Ball, Sphere
from windvane.arms import best_arm

# What a kind of problem changes of a generic one: M = Q diag(eigenvalues) Q', theta and the factor of the width.
KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "generic": lambda _: {},
    "ill-conditioned": lambda p: {"eigenvalues": 10 ** p.rng.uniform(-8, 2, p.d)},
    "isotropic": lambda p: {"eigenvalues": np.full(p.d, p.eigenvalues[0])},
    "top repeated": lambda p: {"eigenvalues": [*np.sort(p.eigenvalues)[:-3], *[p.eigenvalues.max()] * min(3, p.d)]},
    "along an eigenvector": lambda p: {"theta": p.Q @ p.axis() * p.rng.uniform(0.1, 1)},
    "exactly zero cross term": lambda p: {"Q": np.eye(p.d), "theta": p.rng.uniform(0.1, 1) * p.axis()},
    "almost zero cross term": lambda p: {"theta": p.Q[:, 0] + 1e-9 * p.Q[:, -1]},
    "zero theta": lambda p: {"theta": np.zeros(p.d)},
    "tiny theta": lambda p: {"theta": p.theta * 10 ** p.rng.uniform(-200, -6)},
    "border": lambda p: {"theta": on_sphere(p.theta, 1.0)},
    "long theta": lambda p: {"theta": on_sphere(p.theta, 30.0)},
    "no bonus": lambda _: {"factor": 0.0},
    "small bonus": lambda p: {"factor": 1e-6 * p.factor},
    "huge bonus": lambda p: {"factor": 1e6 * p.factor},
    "against the widest": lambda p: {"theta": away_from(p.Q[:, np.argmax(p.eigenvalues)], p.theta)},
}


def away_from(top: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The prediction and the width pull to opposite sides of a plane."""
    return on_sphere(theta - 0.99 * (theta @ top) * top, 1.0)


def problem(rng: np.random.Generator, d: int, kind: str) -> tuple[np.ndarray, np.ndarray, float]:
    """(theta, M, factor) of one kind."""
    p = SimpleNamespace(rng=rng, d=d, Q=rotation(rng, d), eigenvalues=10 ** rng.uniform(-3, 1, d))
    p.axis = lambda: np.eye(d)[rng.integers(d)]
    p.theta, p.factor = ball(rng, (), d), 10 ** rng.uniform(-2, 1)
    vars(p).update(KINDS[kind](p))
    return p.theta, (p.Q * p.eigenvalues) @ p.Q.T, p.factor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_best_arm(kind: str, d: int) -> None:
    """No arm of a fine grid (d <= 3) or of a 1,000-start ascent (d = 10) does better, for any theta, M and factor."""
    rng = np.random.default_rng([d, list(KINDS).index(kind)])
    for trial in range(6 if d < 10 else 3):
        theta, M, factor = problem(rng, d, kind)
        link = list(NEUTRAL)[(trial + d) % 4]
        if link == "poisson" and kind == "long theta":
            theta = theta / 10
        arm_set = SETS[trial % 2](rng.choice([0.3, 1.0, 2.0]))
        x = best_arm(arm_set, theta, M, factor, naive.LINKS[link].mean, rng.random())
        assert_best(Index(link, theta, M, factor), x, arm_set, rng)


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_both_sides_of_the_coin_score_the_same(d: int) -> None:
    """The coin picks between mirror images; where there are none, it must not cost anything."""
    rng = np.random.default_rng(d)
    for kind in KINDS:
        theta, M, factor = problem(rng, d, kind)
        index = Index("logistic", theta, M, factor)
        heads, tails = (best_arm(Sphere(1.0), theta, M, factor, index.link.mean, coin) for coin in (0.1, 0.9))
        assert float(index(heads)) == pytest.approx(float(index(tails)), rel=1e-12, abs=1e-12), kind
        if kind == "zero theta":
            assert (heads == -tails).all()


@pytest.mark.parametrize("link", list(NEUTRAL))
@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_larger_set_is_never_worse(link: str, d: int) -> None:
    rng = np.random.default_rng(d)
    for kind in KINDS:
        theta, M, factor = problem(rng, d, kind)
        if kind == "long theta":
            theta = theta / 10
        index, last = Index(link, theta, M, factor), -np.inf
        for r in (0.01, 0.8, 1.0):
            arms = [best_arm(cls(r), theta, M, factor, index.link.mean, 0.2) for cls in (Ball, Sphere)]
            whole, surface = (float(index(x)) for x in arms)
            slack = 1e-9 * max(1.0, abs(whole))  # the maximiser is searched for, not exact
            assert whole >= last - slack, (kind, r)
            assert whole >= surface - slack, (kind, r)
            last = whole


@pytest.mark.parametrize("cls", SETS)
@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf"), None, "1 m"])
def test_a_radius_is_a_positive_number(cls, radius: object) -> None:
    with refuses("radius"):
        cls(radius)
