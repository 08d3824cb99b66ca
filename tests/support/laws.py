"""One of every drift, arm law and reward law."""

import math

import numpy as np

from windvane import environments as E


def spiral(t: int) -> np.ndarray:
    """A path for the function drift: outwards for 200 rounds, then at rest."""
    t = min(t, 200)
    return 0.002 * t * np.array([math.cos(0.1 * t), math.sin(0.1 * t)])


DRIFTS: dict[str, E.Drift] = {
    "static": E.Static(),
    "rotation": E.Rotation(),
    "arc": E.Arc(),
    "turns": E.Turns(),
    "switches": E.Switches(times=[5, 20], thetas=[[1.0, 0.0], [0.0, 0.5], [-0.6, 0.8]]),
    "random-switches": E.RandomSwitches(count=4),
    "random-walk": E.RandomWalk(step=0.05),
    "sinusoid": E.Sinusoid(period=17.0, amplitude=[0.3, 0.3], centre=[0.1, -0.4], phase=1.0),
    "piecewise-linear": E.PiecewiseLinear(times=[3, 10, 14, 24], points=[[1, 0], [0, 1], [0, 1], [-1, 0]]),
    "function": E.FunctionDrift(spiral),
    "logged": E.LoggedPath(thetas=[[0.9, 0.1], [0.9, 0.1], [-0.2, 0.7], [0.4, -0.5]], stretch=True),
}
ARMS: dict[str, E.ArmLaw] = {
    "ball": E.BallArms(5),
    "sphere": E.SphereArms(5),
    "cube": E.CubeArms(5),
    "orthogonal": E.OrthogonalArms(5),
    "gaussian": E.GaussianArms(5),
    "skewed": E.SkewedArms(5),
    "fixed": E.FixedArms([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]]),
    "drawn-once": E.ArmsDrawnOnce("gaussian", count=4),
    "come-and-go": E.ComeAndGo(count=5, lifetime=7, presence=0.4),
}
REWARDS: dict[str, tuple[E.RewardLaw, str]] = {
    "bernoulli": (E.BernoulliRewards(), "logistic"),
    "gaussian": (E.GaussianRewards(sd=0.3), "identity"),
    "binomial": (E.BinomialRewards(trials=4), "probit"),
    "poisson": (E.PoissonRewards(), "poisson"),
}


def path_of(drift: E.Drift, T: int = 60, dim: int = 2, S: float = 1.0, lanes: int | list[int] = 3) -> E.Path:
    return drift.path(horizon=T, dim=dim, S=S, lane_ids=lanes, seed=7)
