"""The drift benchmark: every policy that can run there, with its recommended tuning, in twelve drifting worlds.

Each world comes with d = 2 and with d = 10; ``docs/explanation/drift-benchmark.md`` describes them. A policy has its
own defaults; it is told what it asks for, even the exact B_T or number of changes of each run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from windvane import environments as env
from windvane.lab.studies.worlds import (
    CLICKS_INTERCEPT,
    CLICKS_S,
    Sizes,
    World,
    WorldBenchmark,
    fix_arms,
    place_on_circle,
)

DIMS = (2, 10)
SHORTEST = 11  # rounds: ten switches need as many


def _jumps(angles: Sequence[float], radius: float, horizon: int, dim: int) -> env.Drift:
    """Jump from angle to angle on the circle, and rest in between for times as equal as they can be."""
    times = [1 + horizon * i // len(angles) for i in range(1, len(angles))]
    return env.Switches(times=tuple(times), thetas=place_on_circle(angles, radius, dim))  # type: ignore[arg-type]


def _walk(horizon: int, _dim: int) -> env.Drift:
    return env.RandomWalk(step=horizon**-0.5)


_turn = env.Arc(2 * math.pi)
_two_switches = functools.partial(_jumps, (0.0, math.pi / 2, math.pi), 1.0)
_ten_switches = functools.partial(_jumps, [math.pi * i / 10 for i in range(11)], 1.0)
_reversals = functools.partial(_jumps, (-math.pi / 3, 5 * math.pi / 6, -math.pi / 3), CLICKS_S)

WORLDS: dict[str, World] = {
    "rotation": World(env.Rotation()),
    "slow turn": World(_turn),
    "fast turns": World(env.Arc(8 * math.pi)),
    "two switches": World(_two_switches),
    "ten small switches": World(_ten_switches),
    "random walk": World(_walk),
    "stationary": World(env.Static()),
    "counts": World(env.Rotation(), env.OrthogonalArms(), link="poisson"),
    "fixed arms turning": World(_turn, fix_arms),
    "fixed arms switching": World(_two_switches, fix_arms),
    "clicks": World(_reversals, env.SkewedArms(), S=CLICKS_S, intercept=CLICKS_INTERCEPT),
    "large S": World(env.Rotation(), S=5.0),
}

DRIFT = WorldBenchmark(
    recipe="drift-benchmark", title="The drift benchmark", worlds=WORLDS, dims=dict.fromkeys(DIMS, tuple(WORLDS)),
    whole=Sizes(runs=30, horizon=3000), quick=Sizes(runs=5, horizon=500), shortest=SHORTEST,
)  # fmt: skip
