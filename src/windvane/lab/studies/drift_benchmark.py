"""The drift benchmark: every registered policy, as its own authors would run it, in twelve drifting worlds.

Each world comes with d = 2 and with d = 10, so there are 24 environments. T is the horizon; S = L = 1, logistic rewards
and ten arms, uniform in the ball and new every round, where nothing else is said.

=======================  ==============================================================================================
world                    what happens
=======================  ==============================================================================================
rotation                 the paper's: rest, a quarter turn in the second third, rest (B_T = 1.57)
slow turn                one full turn at constant speed (B_T = 6.28)
fast turns               four full turns at constant speed (B_T = 25.1)
two switches             e_1, then e_2, then -e_1, a third of the time each (B_T = 2.83)
ten small switches       ten jumps by 18 degrees (B_T = 3.13)
random walk              steps of size T^(-1/2): after T rounds as far from the start as S (B_T about 0.9 T^(1/2))
stationary               theta* rests (B_T = 0)
counts                   the rotation with Poisson rewards and orthogonal arms (Theorem 1's assumption)
fixed arms turning       the slow turn; always the same ten arms, evenly on the circle (d = 10: spread over the sphere)
fixed arms switching     the two switches, with those arms: the best arm changes while it is not being played
clicks                   rewards are rare (about 2 %: the intercept -3.9), features skewed; one raises the rate, another
                         lowers it, and twice they change places (S = 5). No linear model ranks such arms rightly: the
                         best one still loses 4 to 5 % of what playing at random does (B_T = 19.3)
large S                  the rotation with ||theta*|| = S = 5
=======================  ==============================================================================================

Turns and switches are in the plane of the first two axes. "Recommended tuning" is the policy's own default for what the
lab tells it: T, S, L, sigma, the link and, if it asks for them, the exact B_T or number of changes of each run. That is
more than anybody knows in practice; policies that ask for less have that disadvantage here.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from windvane.arguments import Array, check_choice, check_whole
from windvane.environments import (
    Arc,
    ArmLaw,
    BallArms,
    Drift,
    FixedArms,
    OrthogonalArms,
    RandomWalk,
    Rotation,
    SkewedArms,
    SphereArms,
    Static,
    Switches,
)
from windvane.errors import ArgumentError
from windvane.lab.figures.curves import by_environment
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.spec.experiment_spec import AnyEnvironmentSpec, EnvironmentSpec, Spec, SpecError
from windvane.lab.studies.benchmarks import LANES, Conduct, choose_policies, merge_results
from windvane.policies.registry import POLICIES

DIMS = (2, 10)
HORIZON, RUNS = 3000, 30
QUICK_HORIZON, QUICK_RUNS = 500, 5
SHORTEST = 11  # rounds: ten switches need as many
RECORD = 100  # rounds kept of a run: enough for a curve
SCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of the bonus, or of the spread of what is sampled, tried by --tuned
HELD_BACK = 1_000_003  # added to the seed for the runs that the tuning sees
HELD_BACK_FOLDER = "held-back"
REFERENCES = ("Oracle", "UniformRandom")  # run, but not ranked
INTERCEPT, CLICKS_S = -3.9, 5.0  # of the clicks


Scales = dict[str, dict[str, float]]
"""A bonus scale by environment and policy."""


@dataclass(frozen=True)
class World:
    """One of the twelve, whatever the dimension: a drift for a horizon and a dimension, and what else is not usual."""

    drift: Drift | Callable[[int, int], Drift]
    arms: ArmLaw | Callable[[int], ArmLaw] = BallArms()  # noqa: RUF009  (frozen)
    link: str = "logistic"
    S: float = 1.0
    clicks: bool = False

    def spec(self, name: str, horizon: int, dim: int) -> EnvironmentSpec:
        return EnvironmentSpec(
            name=f"{name}, d = {dim}",
            drift=self.drift if isinstance(self.drift, Drift) else self.drift(horizon, dim),
            arms=self.arms if isinstance(self.arms, ArmLaw) else self.arms(dim),
            dim=dim,
            link=self.link,
            S=self.S,
            intercept=INTERCEPT if self.clicks else None,
        )


def _plane(angles: Sequence[float], radius: float, dim: int) -> list[list[float]]:
    """Points of a circle in the plane of the first two axes."""
    return [[radius * math.cos(angle), radius * math.sin(angle), *[0.0] * (dim - 2)] for angle in angles]


def _jumps(angles: Sequence[float], radius: float, horizon: int, dim: int) -> Drift:
    """From angle to angle on the circle, at rest in between for times as equal as they can be."""
    times = [1 + horizon * i // len(angles) for i in range(1, len(angles))]
    return Switches(times=tuple(times), thetas=_plane(angles, radius, dim))  # type: ignore[arg-type]


def _same_arms(dim: int) -> ArmLaw:
    """Ten arms of norm 1: evenly on the circle, or one draw from the sphere, the same for ever."""
    if dim == 2:
        return FixedArms(_plane([2 * math.pi * k / 10 for k in range(10)], 1.0, 2))  # type: ignore[arg-type]
    drawn: Array = SphereArms(10).bind(dim=dim, L=1.0, lane_ids=1, seed=0).at(1)[0][0]
    return FixedArms(drawn.tolist())


def _walk(horizon: int, _dim: int) -> Drift:
    return RandomWalk(step=horizon**-0.5)


_turn = Arc(2 * math.pi)
_two_switches = functools.partial(_jumps, (0.0, math.pi / 2, math.pi), 1.0)
_ten_switches = functools.partial(_jumps, [math.pi * i / 10 for i in range(11)], 1.0)
_reversals = functools.partial(_jumps, (-math.pi / 3, 5 * math.pi / 6, -math.pi / 3), CLICKS_S)

WORLDS: dict[str, World] = {
    "rotation": World(Rotation()),
    "slow turn": World(_turn),
    "fast turns": World(Arc(8 * math.pi)),
    "two switches": World(_two_switches),
    "ten small switches": World(_ten_switches),
    "random walk": World(_walk),
    "stationary": World(Static()),
    "counts": World(Rotation(), OrthogonalArms(), link="poisson"),
    "fixed arms turning": World(_turn, _same_arms),
    "fixed arms switching": World(_two_switches, _same_arms),
    "clicks": World(_reversals, SkewedArms(), S=CLICKS_S, clicks=True),
    "large S": World(Rotation(), S=5.0),
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
    """The benchmark as an experiment like any other.

    ``runs`` and ``horizon`` stand in place of the usual sizes, ``worlds`` and ``policies`` in place of all of them.
    """
    T = (QUICK_HORIZON if quick else HORIZON) if horizon is None else check_whole("horizon", horizon, SHORTEST)
    chosen = [check_choice("worlds", name, tuple(WORLDS)) for name in (WORLDS if worlds is None else worlds)]
    return Spec(
        title="The drift benchmark",
        environments=[WORLDS[name].spec(name, T, dim) for dim in DIMS for name in chosen],
        policies=choose_policies(policies, POLICIES, REFERENCES),
        runs=(QUICK_RUNS if quick else RUNS) if runs is None else runs,
        horizon=T,
        seed=seed,
        record=RECORD,
        lanes_per_cell=LANES,
    )


# --- tuned ---------------------------------------------------------------------------------------------------------


def held_back_spec(base: Spec) -> Spec:
    """Every policy that explores, swept over :data:`SCALES`, in a third as many runs, which are none of ``base``'s."""
    swept = [dataclasses.replace(policy, sweep={policy.scale: SCALES}) for policy in base.policies if policy.scale]
    if not swept:
        names = [policy.name for policy in base.policies]
        raise ArgumentError("policies", names, "at least one with a bonus that can be tuned")
    return dataclasses.replace(
        base,
        title="The drift benchmark: bonus scales on runs held back",
        policies=swept,
        runs=math.ceil(base.runs / 3),
        seed=(base.seed + HELD_BACK) % 2**64,
        lanes_per_cell=50,
    )


def best_scales(held_back: Results) -> Scales:
    """The scale with the least mean regret: {environment: {policy: scale}}."""
    found: Scales = {}
    for name, entries in by_environment(held_back.entries).items():
        ordered = sorted(entries, key=lambda entry: float(entry.final.mean()), reverse=True)
        # the last, the least, stays; one value is swept
        found[name] = {entry.policy: next(iter(entry.variant.values())) for entry in ordered}
    return found


def tuned_spec(base: Spec, environment: AnyEnvironmentSpec, scales: dict[str, float]) -> Spec:
    """One environment of ``base``, on its own runs, with the policies at these scales."""
    policies = [
        dataclasses.replace(policy, label=tuned_label(policy.name), settings={policy.scale: scales[policy.name]})
        for policy in base.policies
        if policy.scale and policy.name in scales
    ]
    return dataclasses.replace(base, environments=[environment], policies=policies)


def tuned_label(name: str) -> str:
    return f"{name} tuned"


def run_benchmark(base: Spec, folder: Path, conduct: Conduct, *, tuned: bool = False) -> tuple[Results, Scales]:
    """Run ``base`` into ``folder`` with ``conduct(spec, folder, text)``; with ``tuned``, what is tuned is among the
    entries, and the scales it got are returned as well."""
    held_back = held_back_spec(base) if tuned else None
    results = conduct(base, folder, "the drift benchmark")
    if held_back is None:
        return results, {}
    scales = best_scales(conduct(held_back, folder / HELD_BACK_FOLDER, "bonus scales on runs held back"))
    again = []
    for number, environment in enumerate(base.environments, 1):
        spec = tuned_spec(base, environment, scales[environment.name])
        text = f"tuned policies, environment {number} of {len(base.environments)}"
        again.append(conduct(spec, _tuned_folder(folder, number), text))
    return merge_results(results, again), scales


def stored_benchmark(results: Results) -> Results | None:
    """The benchmark of which ``results`` are the plain part, with all that was tuned; None if they are another
    experiment's, or something is missing."""
    spec = results.spec
    worlds = list(dict.fromkeys(environment.name.rpartition(", d = ")[0] for environment in spec.environments))
    names = [policy.name for policy in spec.policies]
    if not results.complete or not {*worlds} <= {*WORLDS} or not {*names} <= {*POLICIES}:
        return None
    same = benchmark_spec(runs=spec.runs, horizon=spec.horizon, seed=spec.seed, worlds=worlds, policies=names)
    if same.fingerprint() != spec.fingerprint():
        return None
    again = _tuned_again(spec, results.folder)
    return results if again is None else merge_results(results, again)


def _tuned_again(base: Spec, folder: Path) -> list[Results] | None:
    """What was tuned for this very benchmark, if all of it is there: a folder may hold what belongs to an older one."""
    try:
        held_back = Results.open(folder / HELD_BACK_FOLDER)
        if held_back.spec.fingerprint() != held_back_spec(base).fingerprint() or not held_back.complete:
            return None
        scales, again = best_scales(held_back), []
        for number, environment in enumerate(base.environments, 1):
            one = Results.open(_tuned_folder(folder, number))
            wanted = tuned_spec(base, environment, scales[environment.name])
            if one.spec.fingerprint() != wanted.fingerprint() or not one.complete:
                return None
            again.append(one)
    except (FolderError, SpecError):
        return None
    return again


def _tuned_folder(folder: Path, number: int) -> Path:
    """Where the tuned policies of the environment with this number are kept."""
    return folder / "tuned" / f"{number:02d}"


def notes(runs: int, horizon: int) -> dict[str, list[str]]:
    """What a reader of the leaderboard should know."""
    return {
        "How to read the leaderboard": [
            "Every policy has its own recommended tuning and is told what it asks for: T, S, L, sigma, the link, and, "
            "if it wants them, the exact drift or number of changes of each run, which nobody knows in practice.",
            f'Policies called "{tuned_label("...")}" have the best of the bonus scales '
            f"{', '.join(f'{scale:g}' for scale in SCALES)} in each environment, chosen on other runs.",
            "UniformRandom is a reference and has no rank; the oracle, which loses nothing, is left out.",
            "AdaptiveGLMUCB was developed in these environments, so its place is too good; windvane study no-tuning "
            "has three others.",
            "Intervals come from drawing runs anew, the same for all policies; the best of an environment is chosen "
            "by the runs that judge it, which flatters it a little.",
            f"{runs} runs of {horizon} rounds; how fast a policy is depends on the machine.",
        ]
    }
