"""The regret bounds of Faury et al. 2021, alone or beside the measured regret of an experiment.

Theorem 1 and Theorem 2 are :mod:`windvane.theory`'s, evaluated at the discounts they recommend. They hold for
BVD-GLM-UCB and BOB-BVD-GLM-UCB with the settings of a proof, which are not their defaults:
:mod:`windvane.lab.studies.coverage` says for each policy of an experiment whether a theorem covers its runs. At
practical horizons the theorems exceed the trivial bound.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import theory
from windvane.arguments import check_positive, check_whole
from windvane.lab.results.results import group_by_environment
from windvane.lab.results.summary import Row, summarise_entry
from windvane.lab.spec.environment_spec import EnvironmentSpec
from windvane.lab.studies.coverage import Coverage, find_coverage
from windvane.links import Link, get_link
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.lab.results.results import Results
    from windvane.lab.spec.experiment_spec import Spec

THEOREM_1 = "BVD-GLM-UCB"  # the policy that the theorem is about


@dataclass(frozen=True, kw_only=True)
class Constants(theory.Problem):
    """The constants in the theorems; k_mu and c_mu follow from the link, S and L."""

    link: str
    delta: float


@dataclass(frozen=True)
class Bounds:
    """Theorem 1 for orthogonal and for general arms, Theorem 2 (orthogonal arms, unknown drift), the trivial bound.

    ``trivial_formula`` says which of the two trivial bounds it is: "2 sigma T", or "T times the largest difference of
    two means" where any reward is possible.
    """

    constants: Constants
    orthogonal: theory.RegretBound
    general: theory.RegretBound
    unknown_drift: theory.UnknownDriftBound
    trivial: float
    trivial_formula: str


@dataclass(frozen=True)
class MeasuredBounds:
    """The bounds for one environment, the measured regret of its policies, and whether a theorem covers each."""

    environment: str
    orthogonal_arms: bool  # else only the general form of Theorem 1 applies
    bounds: Bounds
    measured: list[Row]
    coverage: list[Coverage]


def evaluate(
    *,
    horizon: int,
    drift: float,
    dim: int,
    link: str | Link = "logistic",
    S: float = 1.0,
    L: float = 1.0,
    lam: float = 1.0,
    sigma: float = 0.5,
    delta: float = 0.05,
    gamma: float | None = None,
) -> Bounds:
    """Return the bounds for these constants; ``gamma=None`` evaluates Theorem 1 at the discount it recommends.

    The radius is the one that covers all rounds (delta / T), which the proofs need. Theorem 2 takes delta = 1/T
    whatever ``delta`` is. The trivial bound is 2 sigma T; where any reward is possible it is T times the largest
    difference of two means.
    """
    mu = get_link(link)
    k = mu.constants(check_positive("S", S), check_positive("L", L))
    world: dict[str, Any] = {
        "horizon": check_whole("horizon", horizon, 1), "drift": drift, "dim": dim, "k_mu": k.k_mu, "c_mu": k.c_mu,
        "S": S, "L": L, "lam": lam, "sigma": sigma,
    }  # fmt: skip
    problem = theory.Problem(**world)
    orthogonal, general = (
        theory.regret_bound(problem, gamma=gamma, arm_geometry=arm_geometry, delta=delta, confidence="horizon")
        for arm_geometry in theory.ARM_GEOMETRIES
    )
    if np.isfinite(mu.reward_range(sigma)).all():
        trivial, formula = theory.trivial_bound(horizon, sigma), "2 sigma T"
    else:
        ends = mu.mean(np.array([-S * L, S * L]))
        trivial, formula = horizon * float(ends[1] - ends[0]), "T times the largest difference of two means"
    unknown_drift = theory.regret_bound_unknown_drift(problem, confidence="horizon")
    return Bounds(Constants(link=mu.name, delta=delta, **world), orthogonal, general, unknown_drift, trivial, formula)


def evaluate_results(
    results: Results, *, lam: float | None = None, delta: float | None = None, gamma: float | None = None
) -> list[MeasuredBounds]:
    """Return the bounds for every simulated environment, beside the mean final regret of its entries.

    The environment gives horizon, dim, link, S, L and sigma; the drift is the mean B_T of its runs. ``lam`` and
    ``delta`` are by default those of the experiment's first BVD-GLM-UCB, or else that policy's own defaults.
    """
    spec, measured, groups = results.spec, [], group_by_environment(results.entries)
    asked = {"lam": lam, "delta": delta}
    settings: dict[str, Any] = {name: _setting(spec, name) if value is None else value for name, value in asked.items()}
    for environment in spec.environments:
        entries = groups.get(environment.name)
        if not entries or not isinstance(environment, EnvironmentSpec):  # the theorems are about a known drift
            continue
        world = environment.build(horizon=spec.horizon, lanes=1, seed=spec.seed)
        drift = float(max(entries, key=lambda entry: len(entry.lanes)).drift.mean())
        constants: dict[str, Any] = {name: getattr(world, name) for name in ("dim", "link", "S", "L", "sigma")}
        bounds = evaluate(horizon=spec.horizon, drift=drift, gamma=gamma, **constants, **settings)
        coverage = [find_coverage(spec, world, entry) for entry in entries]
        rows = list(map(summarise_entry, entries))
        measured.append(MeasuredBounds(environment.name, world.orthogonal, bounds, rows, coverage))
    return measured


def _setting(spec: Spec, name: str) -> float:
    """Return a setting of the experiment's first BVD-GLM-UCB, or that policy's default."""
    given = (policy.settings.get(name) for policy in spec.policies if policy.policy == THEOREM_1)
    default = inspect.signature(POLICIES[THEOREM_1]).parameters[name].default
    return float(next((value for value in given if isinstance(value, int | float)), default))
