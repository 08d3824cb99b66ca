"""Published regrets of arms without features, in worlds whose settings are complete.

Baudry, Russac and Cappe, "On limited-memory subsampling strategies for bandits" (ICML 2021): T = 10,000, three arms,
2,000 runs; the settings are in the notebooks of their public code, and the final regrets were read off its figures,
whose curves are wide, to 5 %. Their EXP3.S draws with the probabilities of the round before. Their D-UCB has B =
sd / 2 and xi = 2. Their SW-UCB has log t where the paper has log(min(t, tau)), so there is nothing to compare with.
"""

import math
from typing import Any

import numpy as np
import pytest

from windvane import DUCB, EXP3S

T, LANES = 10_000, 200
READING = 0.05  # relative error of a number that was read off a figure
ERRORS = 5.5  # standard errors by which a mean may miss

Segments = list[tuple[int, list[float]]]
BERNOULLI: Segments = [(0, [0.5, 0.3, 0.4]), (3000, [0.3, 0.7, 0.2]), (5000, [0.5, 0.3, 0.6])]
GAUSSIAN: Segments = [
    (0, [0.9, 0.5, 0.4]), (2500, [0.4, 0.8, 0.5]), (4500, [0.3, 0.2, 0.7]), (7000, [0.9, 0.8, 0.4])
]  # fmt: skip


def run(policy: Any, segments: Segments, sd: float | None) -> np.ndarray:
    """Final regret, [lanes]; rewards are 0 or 1, or normal."""
    rng, lanes = np.random.default_rng(0), np.arange(LANES)
    arms, regret = np.tile(np.eye(3), (LANES, 1, 1)), np.zeros(LANES)
    for t in range(T):
        means = np.array([each for start, each in segments if t >= start][-1])
        choice = policy.select(arms)
        mean = means[choice]
        reward = (rng.random(LANES) < mean).astype(float) if sd is None else mean + sd * rng.normal(size=LANES)
        policy.update(arms[lanes, choice], reward)
        regret += means.max() - mean
    return regret


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "segments", "sd", "published"),
    [
        (EXP3S(3, horizon=T, switches=2, lanes=LANES), BERNOULLI, None, 530.0),
        (DUCB(3, gamma=1 - math.sqrt(3 / T) / 8, sigma=0.125, xi=2.0, lanes=LANES), GAUSSIAN, 0.5, 350.0),
    ],
    ids=["EXP3.S", "D-UCB"],
)
def test_final_regret_is_the_published_one(policy: Any, segments: Segments, sd: float | None, published: float) -> None:
    regret = run(policy, segments, sd)
    error = regret.std(ddof=1) / math.sqrt(LANES)
    assert abs(regret.mean() - published) < READING * published + ERRORS * error
