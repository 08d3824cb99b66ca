"""Which runs the theorems cover: every assumption that a run can break, and the bounds at a run's own settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.entries import entry, results
from support.refusals import rejects
from windvane import theory
from windvane.environments import ARM_LAWS, DELAYS, DRIFTS, REWARD_LAWS
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.bounds import evaluate_results
from windvane.lab.studies.coverage import Coverage
from windvane.links import get_link

T, DRIFT = 200, 1.5
BVD, BOB = "BVD-GLM-UCB", "BOB-BVD-GLM-UCB"
PROOF = {"confidence": "horizon"}


def cover(policy: str, settings: dict[str, Any], arms: str = "orthogonal", **world: Any) -> Coverage:
    """Return the coverage of a policy in the rotation with orthogonal arms, at the discount 0.97."""
    here = EnvironmentSpec("here", DRIFTS["rotation"](), ARM_LAWS[arms](), world.pop("rewards", None), **world)
    spec = Spec([here], [PolicySpec("OFUL"), PolicySpec(policy, settings=settings, label="it")], horizon=T)
    made = entry("it", [1.0, 2.0], environment="here", horizon=T, drift=DRIFT, gamma=np.full(2, 0.97))
    (measured,) = evaluate_results(results([made], spec=spec))
    (coverage,) = measured.coverage
    return coverage


def make_problem(**settings: float) -> theory.Problem:
    values = {"S": 1.0, "L": 1.0, "lam": 1.0, "sigma": 0.5, **settings}
    k = get_link("logistic").constants(values["S"], values["L"])
    return theory.Problem(horizon=T, drift=DRIFT, dim=2, k_mu=k.k_mu, c_mu=k.c_mu, **values)


@pytest.mark.parametrize(("arms", "geometry"), [("orthogonal", "orthogonal"), ("ball", "general")])
@pytest.mark.parametrize("confidence", ["horizon", "anytime"])
def test_the_bound_of_covered_runs_is_that_of_their_own_settings(arms: str, geometry: str, confidence: str) -> None:
    own = {"lam": 0.5, "S": 1.5, "sigma": 0.8}
    found = cover(BVD, {"confidence": confidence, "delta": 0.1, "gamma": 0.97, **own}, arms)
    bound = theory.regret_bound(
        make_problem(**own), gamma=0.97, delta=0.1, arm_geometry=geometry, confidence=confidence
    ).total
    assert found == Coverage("it", 1, geometry, (), pytest.approx(bound), False)
    assert found.is_covered


def test_the_bound_is_a_mean_over_the_runs() -> None:
    here = EnvironmentSpec("here", DRIFTS["random-walk"](step=0.01), ARM_LAWS["orthogonal"]())
    spec = Spec([here], [PolicySpec(BVD, settings=PROOF)], horizon=T)
    drifts, gammas = np.array([0.5, 0.5, 2.0]), np.array([0.9, 0.9, 0.95])
    made = entry(BVD, [1.0, 2.0, 3.0], environment="here", horizon=T, drift=drifts, gamma=gammas)
    ((found,),) = (measured.coverage for measured in evaluate_results(results([made], spec=spec)))
    k = get_link("logistic").constants(1, 1)
    totals = [
        theory.regret_bound(
            theory.Problem(horizon=T, drift=B, dim=2, k_mu=k.k_mu, c_mu=k.c_mu, S=1, L=1, lam=1, sigma=0.5),
            gamma=gamma, delta=0.05,
        ).total
        for B, gamma in zip(drifts.tolist(), gammas.tolist(), strict=True)
    ]  # fmt: skip
    assert found.bound == pytest.approx(np.mean(totals))


@pytest.mark.parametrize("geometry", theory.ARM_GEOMETRIES)
def test_the_order_is_proven_for_the_discount_of_the_arms(geometry: str) -> None:
    """Not for the discount that is recommended for the other geometry."""
    best = theory.discount(horizon=T, drift=DRIFT, dim=2, arm_geometry=geometry)
    for arms, own in (("orthogonal", "orthogonal"), ("ball", "general")):
        here = EnvironmentSpec("here", DRIFTS["rotation"](), ARM_LAWS[arms]())
        spec = Spec([here], [PolicySpec(BVD, settings={**PROOF, "arm_geometry": geometry})], horizon=T)
        made = entry(BVD, [1.0], environment="here", horizon=T, drift=DRIFT, gamma=np.array([best]))
        ((found,),) = (measured.coverage for measured in evaluate_results(results([made], spec=spec)))
        assert found.is_covered
        assert found.has_proven_order == (own == geometry)


def test_theorem_2() -> None:
    found = cover(BOB, {**PROOF, "lam": 0.5})
    bound = theory.regret_bound_unknown_drift(make_problem(lam=0.5), confidence="horizon").total
    assert found == Coverage("it", 2, None, (), pytest.approx(bound), True)


GAPS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (BVD, {}, {}, 'confidence = "pointwise"'),
    (BVD, {**PROOF, "bonus_scale": 0.5}, {}, "bonus_scale is not 1"),
    (BVD, {**PROOF, "S": 0.5}, {}, "S = 0.5, but 1 in"),
    (BVD, {**PROOF, "L": 0.5}, {}, "L = 0.5, but 1 in"),
    (BVD, {**PROOF, "link": "probit"}, {}, "link = 'probit', but 'logistic' in"),
    (BVD, {**PROOF, "horizon": 199}, {}, "horizon = 199, but 200 rounds"),
    (BVD, PROOF, {"delay": DELAYS["fixed"](3)}, "rewards arrive late"),
    (BVD, PROOF, {"link": "identity", "rewards": REWARD_LAWS["gaussian"]()}, "rewards are not bounded"),
    (BOB, {}, {}, 'confidence = "pointwise"'),
    (BOB, PROOF, {"arms": "ball"}, "the arms are not orthogonal"),
    (BOB, {**PROOF, "horizon": 400}, {}, "horizon = 400, but 200 rounds"),
    (BOB, {**PROOF, "block": 20}, {}, "block is not"),
    (BOB, {**PROOF, "delta": 0.05}, {}, "delta is not"),
    (BOB, {**PROOF, "discounts": [0.9, 0.99]}, {}, "discounts is not"),
    (BOB, {**PROOF, "reward_range": 2.0}, {}, "reward_range is not"),
]


@pytest.mark.parametrize(("policy", "settings", "world", "gap"), GAPS, ids=[f"{row[0]}: {row[3]}" for row in GAPS])
def test_each_gap_is_named(policy: str, settings: dict[str, Any], world: dict[str, Any], gap: str) -> None:
    found = cover(policy, settings, **world)
    (named,) = found.gaps
    assert gap in named
    assert (found.is_covered, found.bound, found.has_proven_order) == (False, None, False)


def test_a_sigma_that_is_too_small_is_a_gap_where_it_can_run() -> None:
    """Only unbounded rewards, a gap of their own, allow it; else the policy would reject rewards above 2 sigma."""
    settings = {**PROOF, "sigma": 0.25}
    found = cover(BVD, settings, link="identity", rewards=REWARD_LAWS["gaussian"](sd=0.5))
    sigma, rewards = found.gaps
    assert "sigma = 0.25, but 0.5 in" in sigma
    assert "rewards are not bounded" in rewards
    with rejects("policy", value=BVD):
        cover(BVD, settings)


def test_what_covers_the_runs_although_it_is_not_the_default() -> None:
    assert cover(BVD, {**PROOF, "horizon": 500}).is_covered
    assert cover(BVD, {"confidence": "anytime", "S": 2.0, "sigma": 1.0, "L": 1.5}).is_covered
    assert cover(BVD, PROOF, rewards=REWARD_LAWS["binomial"](trials=4)).is_covered


def test_other_policies_have_no_theorem_here() -> None:
    assert cover("D-LinUCB", {}) == Coverage("it", None)
    assert not cover("SW-BVD-GLM-UCB", {"confidence": "horizon"}).is_covered
