"""The drift benchmark: every registered policy, with its recommended tuning, in twelve drifting worlds.

Each world comes with d = 2 and with d = 10; ``docs/explanation/drift-benchmark.md`` describes them. A policy has its
own defaults; it is told what it asks for, even the exact B_T or number of changes of each run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windvane import environments as env
from windvane.arguments import Array, check_choice, check_whole
from windvane.lab.spec.experiment_spec import EnvironmentSpec, Spec
from windvane.lab.studies.benchmarks import LANES, choose_policies
from windvane.policies.registry import POLICIES

DIMS = (2, 10)
HORIZON, RUNS = 3000, 30
QUICK_HORIZON, QUICK_RUNS = 500, 5
SHORTEST = 11  # rounds: ten switches need as many
RECORD = 100  # rounds kept of a run: enough for a curve
INTERCEPT, CLICKS_S = -3.9, 5.0  # of the clicks


@dataclass(frozen=True)
class DriftWorld:
    """A world of any horizon and dimension."""

    drift: env.Drift | Callable[[int, int], env.Drift]
    arms: env.ArmLaw | Callable[[int], env.ArmLaw] = env.BallArms()  # noqa: RUF009  (frozen)
    link: str = "logistic"
    S: float = 1.0
    intercept: float | None = None

    def build_spec(self, name: str, horizon: int, dim: int) -> EnvironmentSpec:
        """Return this world as an environment of a spec."""
        drift = self.drift if isinstance(self.drift, env.Drift) else self.drift(horizon, dim)
        arms = self.arms if isinstance(self.arms, env.ArmLaw) else self.arms(dim)
        label, S = f"{name}, d = {dim}", self.S
        return EnvironmentSpec(label, drift, arms, dim=dim, link=self.link, S=S, intercept=self.intercept)


def _plane(angles: Sequence[float], radius: float, dim: int) -> list[list[float]]:
    """Return points of a circle in the plane of the first two axes."""
    return [[radius * math.cos(angle), radius * math.sin(angle), *[0.0] * (dim - 2)] for angle in angles]


def _jumps(angles: Sequence[float], radius: float, horizon: int, dim: int) -> env.Drift:
    """Jump from angle to angle on the circle, and rest in between for times as equal as they can be."""
    times = [1 + horizon * i // len(angles) for i in range(1, len(angles))]
    return env.Switches(times=tuple(times), thetas=_plane(angles, radius, dim))  # type: ignore[arg-type]


def _fixed_arms(dim: int) -> env.ArmLaw:
    """Return ten arms of norm 1 that never change: evenly on the circle, or one draw from the sphere."""
    if dim == 2:
        return env.FixedArms(_plane([2 * math.pi * k / 10 for k in range(10)], 1.0, 2))  # type: ignore[arg-type]
    drawn: Array = env.SphereArms(10).bind(dim=dim, L=1.0, lane_ids=1, seed=0).at(1)[0][0]
    return env.FixedArms(drawn.tolist())


def _walk(horizon: int, _dim: int) -> env.Drift:
    return env.RandomWalk(step=horizon**-0.5)


_turn = env.Arc(2 * math.pi)
_two_switches = functools.partial(_jumps, (0.0, math.pi / 2, math.pi), 1.0)
_ten_switches = functools.partial(_jumps, [math.pi * i / 10 for i in range(11)], 1.0)
_reversals = functools.partial(_jumps, (-math.pi / 3, 5 * math.pi / 6, -math.pi / 3), CLICKS_S)

WORLDS: dict[str, DriftWorld] = {
    "rotation": DriftWorld(env.Rotation()),
    "slow turn": DriftWorld(_turn),
    "fast turns": DriftWorld(env.Arc(8 * math.pi)),
    "two switches": DriftWorld(_two_switches),
    "ten small switches": DriftWorld(_ten_switches),
    "random walk": DriftWorld(_walk),
    "stationary": DriftWorld(env.Static()),
    "counts": DriftWorld(env.Rotation(), env.OrthogonalArms(), link="poisson"),
    "fixed arms turning": DriftWorld(_turn, _fixed_arms),
    "fixed arms switching": DriftWorld(_two_switches, _fixed_arms),
    "clicks": DriftWorld(_reversals, env.SkewedArms(), S=CLICKS_S, intercept=INTERCEPT),
    "large S": DriftWorld(env.Rotation(), S=5.0),
}


def benchmark_spec(
    quick: bool = False,
    *,
    runs: int | None = None,
    horizon: int | None = None,
    seed: int = 0,
    worlds: Sequence[str] | None = None,
    policies: Sequence[str] | None = None,
) -> Spec:
    """Return the drift benchmark as a spec.

    Parameters
    ----------
    quick
        A small benchmark: 5 runs of 500 rounds instead of 30 of 3000.
    runs, horizon, seed
        In place of the usual sizes, and the seed.
    worlds, policies
        Names in place of all worlds and all policies; a policy of your own is "module:Class".

    Examples
    --------
    >>> spec = benchmark_spec(quick=True, worlds=["clicks"], policies=["OFUL", "Greedy"])
    >>> [environment.name for environment in spec.environments]
    ['clicks, d = 2', 'clicks, d = 10']
    """
    T = (QUICK_HORIZON if quick else HORIZON) if horizon is None else check_whole("horizon", horizon, SHORTEST)
    chosen = [check_choice("worlds", name, tuple(WORLDS)) for name in (WORLDS if worlds is None else worlds)]
    return Spec(
        [WORLDS[name].build_spec(name, T, dim) for dim in DIMS for name in chosen], choose_policies(policies, POLICIES),
        runs=(QUICK_RUNS if quick else RUNS) if runs is None else runs, horizon=T, seed=seed,
        title="The drift benchmark", record=RECORD, lanes_per_cell=LANES,
    )  # fmt: skip
