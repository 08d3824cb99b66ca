"""Which runs of an experiment the theorems of Faury et al. 2021 cover, and their bounds at the settings of those runs.

A theorem covers a run if the policy is the one that it is about, with the printed bonus and a radius that holds at all
rounds, and if what the policy assumes of the environment is true. The bound is then evaluated at the discount, the
lambda and the delta of the run. The *order* in T, B_T and d is proven only for the discount that the theorem
recommends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windvane import theory
from windvane.environments import Environment
from windvane.policies.registry import POLICIES

if TYPE_CHECKING:
    from windvane.lab.results.results import Entry
    from windvane.lab.spec.experiment_spec import Spec

THEOREMS = {"BVD-GLM-UCB": 1, "BOB-BVD-GLM-UCB": 2}  # the theorem about a policy
POINTWISE = 'the radius is the printed one, confidence = "pointwise", which does not hold at all rounds at once'
_SAME_DISCOUNT = 1e-9  # relative to 1 - gamma; the recommended discount of a run has rounding errors only


@dataclass(frozen=True)
class Coverage:
    """What the theorems say about the runs of one policy variant.

    Parameters
    ----------
    label
        The policy, with the swept values.
    theorem
        The number of the theorem about it; None if there is none.
    arm_geometry
        The form of Theorem 1 for the arms of the environment, "orthogonal" or "general"; None for other policies.
    gaps
        Why the theorem does not cover the runs; empty if it does.
    bound
        The theorem's bound at the settings of the runs, mean over them; None if they are not covered.
    has_proven_order
        Whether they are covered, and their discount is the one for which the order of the bound is proven.

    >>> Coverage("OFUL", None).is_covered
    False
    """

    label: str
    theorem: int | None
    arm_geometry: str | None = None
    gaps: tuple[str, ...] = ()
    bound: float | None = None
    has_proven_order: bool = False

    @property
    def is_covered(self) -> bool:
        """Whether the theorem holds for these runs."""
        return self.theorem is not None and not self.gaps


def find_coverage(spec: Spec, world: Environment, entry: Entry) -> Coverage:
    """Return what the theorems say about the runs of ``entry`` in ``world``, their environment with one lane."""
    policy_spec = next(policy for policy in spec.policies if policy.name == entry.policy)
    policy: Any = policy_spec.build(world, variants=[entry.variant] * world.lanes)
    theorem = next((number for name, number in THEOREMS.items() if type(policy) is POLICIES[name]), None)
    if theorem is None:
        return Coverage(entry.label, None)
    geometry = None if theorem == 2 else "orthogonal" if world.orthogonal else "general"
    find_gaps = _find_gaps_1 if theorem == 1 else _find_gaps_2
    if gaps := (*_find_shared_gaps(policy, world), *find_gaps(policy, world)):
        return Coverage(entry.label, theorem, geometry, gaps)
    bound, has_order = _evaluate_1(policy, entry, geometry) if geometry else (_evaluate_2(policy, entry), True)
    return Coverage(entry.label, theorem, geometry, (), bound, has_order)


def _find_shared_gaps(policy: Any, world: Environment) -> Iterator[str]:
    """Yield what both theorems assume, and the runs do not satisfy."""
    if policy.confidence == "pointwise":
        yield POINTWISE
    if np.any(np.asarray(policy.bonus_scale) != 1.0):
        yield "bonus_scale is not 1"
    for name in ("S", "L", "sigma"):
        own, true = getattr(policy, name), getattr(world, name)
        if own < true:
            yield f"{name} = {own:g}, but {true:g} in this environment"
    if policy.link.name != world.link.name:
        yield f"link = {policy.link.name!r}, but {world.link.name!r} in this environment"
    if world.delay is not None:
        yield "rewards arrive late"
    if world.rewards.kind == "gaussian" and world.link.any_reward:
        yield "rewards are not bounded"


def _find_gaps_1(policy: Any, world: Environment) -> Iterator[str]:
    if policy.confidence == "horizon" and policy.horizon < world.horizon:
        yield f"horizon = {policy.horizon}, but {world.horizon} rounds were played"


def _find_gaps_2(policy: Any, world: Environment) -> Iterator[str]:
    if not world.orthogonal:
        yield "the arms are not orthogonal"
    for name in ("block", "discounts", "delta", "reward_range"):
        if getattr(policy, name) is not None:
            yield f"{name} is not the one of the theorem"
    if policy.horizon != world.horizon:
        yield f"horizon = {policy.horizon}, but {world.horizon} rounds were played"


def _describe_problem(policy: Any, horizon: int, drift: float) -> theory.Problem:
    """Return the constants that the policy assumes; k_mu and c_mu are those of its own S and L."""
    link = policy.link.constants(policy.S, policy.L)
    return theory.Problem(
        horizon=horizon, drift=drift, dim=policy.dim, k_mu=link.k_mu, c_mu=link.c_mu, S=policy.S, L=policy.L,
        lam=policy.lam, sigma=policy.sigma,
    )  # fmt: skip


def _evaluate_1(policy: Any, entry: Entry, geometry: str) -> tuple[float, bool]:
    """Return the mean of Theorem 1 over the runs, and whether the discount of each is the recommended one."""
    runs, counts = np.unique(np.column_stack([entry.drift, entry.gamma]), axis=0, return_counts=True)
    settings: dict[str, Any] = {"delta": float(np.max(policy.delta)), "confidence": policy.confidence}
    totals, has_order = [], True
    for drift, gamma in runs.tolist():
        problem = _describe_problem(policy, entry.horizon, drift)
        totals.append(theory.regret_bound(problem, gamma=gamma, arm_geometry=geometry, **settings).total)
        best = theory.discount(horizon=entry.horizon, drift=drift, dim=policy.dim, arm_geometry=geometry)
        has_order &= abs(gamma - best) <= _SAME_DISCOUNT * (1.0 - best)
    return float(np.average(totals, weights=counts)), has_order


def _evaluate_2(policy: Any, entry: Entry) -> float:
    """Return the mean of Theorem 2 over the runs."""
    drifts, counts = np.unique(entry.drift, return_counts=True)
    problems = [_describe_problem(policy, entry.horizon, drift) for drift in drifts.tolist()]
    totals = [theory.regret_bound_unknown_drift(problem, confidence=policy.confidence).total for problem in problems]
    return float(np.average(totals, weights=counts))
