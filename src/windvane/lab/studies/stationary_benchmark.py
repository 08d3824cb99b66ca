"""The stationary benchmark: every registered policy, with its recommended tuning, in worlds where nothing moves.

It shows what protection against drift costs where there is none. ``docs/explanation/stationary-benchmark.md`` describes
the worlds. Policies that ask for B_T or the number of changes are told 0, and then forget nothing. So that the price of
forgetting can be seen, a few of them run a second time, tuned for the drift of the paper's experiment.
"""

from __future__ import annotations

import math

from windvane import environments as env
from windvane.lab.spec.experiment_spec import PolicySpec
from windvane.lab.studies.worlds import (
    CLICKS_INTERCEPT,
    CLICKS_S,
    Sizes,
    World,
    WorldBenchmark,
    place_on_circle,
)

LARGE_S = 5.0
FIXED = env.ArmsDrawnOnce("sphere", count=10)
EXPECTED_DRIFT = math.pi / 2.0  # the paper's B_T: a quarter turn of the unit circle
FORGETFUL = ("D-LinUCB", "SW-LinUCB", "RestartUCB", "BVD-GLM-UCB", "OnePassGLM", "D-GLM-TS", "Greedy")


def _rest_between_axes(_horizon: int, dim: int) -> env.Drift:
    """Rest where one feature raises the rate of clicks and another lowers it."""
    return env.Static(tuple(place_on_circle([-math.pi / 3], CLICKS_S, dim)[0]))


WORLDS: dict[str, World] = {
    "fresh arms": World(env.Static()),
    "fixed arms": World(env.Static(), FIXED),
    "large S": World(env.Static(), S=LARGE_S),
    "large S with fixed arms": World(env.Static(), FIXED, S=LARGE_S),
    "clicks": World(_rest_between_axes, env.SkewedArms(), S=CLICKS_S, intercept=CLICKS_INTERCEPT),
}

STATIONARY = WorldBenchmark(
    recipe="stationary-benchmark", title="The stationary benchmark", worlds=WORLDS,
    # with d = 50, a round of a policy that stores all observations takes a millisecond
    dims={2: tuple(WORLDS), 10: tuple(WORLDS), 50: ("fresh arms", "fixed arms", "large S")},
    whole=Sizes(runs=15, horizon=2000), quick=Sizes(runs=3, horizon=300),
    variants=[PolicySpec(name, f"{name} expecting drift", {"drift": EXPECTED_DRIFT}) for name in FORGETFUL],
)  # fmt: skip
