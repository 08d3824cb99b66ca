"""The worlds of the benchmarks: environments of any horizon and dimension, and benchmarks that consist of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windvane import environments as env
from windvane.arguments import Array, check_choice, check_whole
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.benchmarks import LANES, choose_policies

RECORD = 100  # rounds kept of a run: enough for a curve
ARMS = 10  # of the worlds with fixed arms
CLICKS_INTERCEPT, CLICKS_S = -3.9, 5.0  # about 2 % of all arms are clicked


@dataclass(frozen=True)
class World:
    """A world of any horizon and dimension.

    ``drift`` and ``arms`` may be functions of (horizon, dim) and of dim.
    """

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


@dataclass(frozen=True)
class Sizes:
    """How many runs of how many rounds."""

    runs: int
    horizon: int


@dataclass(frozen=True)
class WorldBenchmark:
    """Every policy in a set of worlds.

    ``recipe`` is its name in the recipe of its results, and ``shortest`` the smallest horizon of its worlds.
    ``variants``: policies with settings of their own, beside the registered ones.
    """

    recipe: str
    title: str
    worlds: Mapping[str, World]
    dims: Mapping[int, Sequence[str]]  # the worlds of each dimension
    whole: Sizes
    quick: Sizes
    shortest: int = 1
    variants: Sequence[PolicySpec] = ()

    def build_spec(
        self,
        quick: bool = False,
        *,
        runs: int | None = None,
        horizon: int | None = None,
        seed: int = 0,
        worlds: Sequence[str] | None = None,
        policies: Sequence[str] | None = None,
    ) -> Spec:
        """Return the benchmark as a spec; see :func:`windvane.lab.benchmark_spec`."""
        sizes = self.quick if quick else self.whole
        T = sizes.horizon if horizon is None else check_whole("horizon", horizon, self.shortest)
        chosen = self.worlds if worlds is None else [check_choice("worlds", w, tuple(self.worlds)) for w in worlds]
        places = [(name, dim) for dim, names in self.dims.items() for name in chosen if name in names]
        environments = [self.worlds[name].build_spec(name, T, dim) for name, dim in places]
        return Spec(
            environments, choose_policies(policies, environments, self.variants, horizon=T, seed=seed),
            runs=sizes.runs if runs is None else runs, horizon=T, seed=seed, title=self.title, record=RECORD,
            lanes_per_cell=LANES,
        )  # fmt: skip


def place_on_circle(angles: Sequence[float], radius: float, dim: int) -> list[list[float]]:
    """Return points of a circle in the plane of the first two axes."""
    return [[radius * math.cos(angle), radius * math.sin(angle), *[0.0] * (dim - 2)] for angle in angles]


def fix_arms(dim: int) -> env.ArmLaw:
    """Return ten arms of norm 1 that never change: evenly on the circle, or one draw from the sphere."""
    if dim == 2:
        return env.FixedArms(place_on_circle([2 * math.pi * k / ARMS for k in range(ARMS)], 1.0, 2))  # type: ignore[arg-type]
    drawn: Array = env.SphereArms(ARMS).bind(dim=dim, L=1.0, lane_ids=1, seed=0).at(1)[0][0]
    return env.FixedArms(drawn.tolist())
