"""What ``windvane bound`` shows: the theorems at given constants, and beside a measured regret."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.entries import entry, results
from support.refusals import rejects
from windvane import CustomLink, theory
from windvane.environments import ARM_LAWS, DRIFTS, REWARD_LAWS
from windvane.lab.experiment import simulate
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec
from windvane.lab.studies.bounds import evaluate, evaluate_results

ROTATION, BALL = DRIFTS["rotation"](), ARM_LAWS["ball"]()
PAPER = {"horizon": 3000, "drift": np.pi / 2, "dim": 2}


def test_the_papers_experiment() -> None:
    found = evaluate(**PAPER)
    c = found.constants
    assert (c.k_mu, c.c_mu) == (0.25, pytest.approx(0.196612, abs=1e-6))
    assert (c.horizon, c.drift, c.dim, c.link, c.S, c.L, c.lam, c.sigma, c.delta) == (
        3000, np.pi / 2, 2, "logistic", 1.0, 1.0, 1.0, 0.5, 0.05,
    )  # fmt: skip
    assert found.orthogonal.gamma == pytest.approx(0.995908, abs=1e-6)
    assert found.trivial == 3000.0
    for arm_geometry, bound in (("orthogonal", found.orthogonal), ("general", found.general)):
        assert bound.gamma == theory.discount(**PAPER, arm_geometry=arm_geometry)
        assert bound.total == pytest.approx(bound.learning + bound.truncation + bound.tracking)
        assert bound.total > found.trivial
    assert found.general.total > found.orthogonal.total
    two = found.unknown_drift
    assert two.total == pytest.approx(two.restarts + two.learning + two.truncation + two.tracking + two.master)


def test_every_constant_reaches_the_theorems() -> None:
    constants = {"S": 1.2, "L": 0.8, "lam": 0.3, "sigma": 0.7}
    found = evaluate(**PAPER, link="probit", **constants, delta=0.01, gamma=0.97)
    k = {"k_mu": found.constants.k_mu, "c_mu": found.constants.c_mu}
    problem = theory.Problem(**PAPER, **k, **constants)
    for arm_geometry, bound in (("orthogonal", found.orthogonal), ("general", found.general)):
        assert bound == theory.regret_bound(problem, delta=0.01, gamma=0.97, arm_geometry=arm_geometry)
    assert found.unknown_drift == theory.regret_bound_unknown_drift(problem, confidence="horizon")
    assert found.trivial == pytest.approx(1.4 * 3000)


def test_without_drift_nothing_is_forgotten() -> None:
    found = evaluate(horizon=500, drift=0.0, dim=3)
    assert (found.orthogonal.gamma, found.general.gamma, found.orthogonal.tracking) == (1.0, 1.0, 0.0)
    assert np.isposinf(evaluate(horizon=500, drift=1.0, dim=3, gamma=1.0).orthogonal.total)


def test_the_trivial_bound_where_any_reward_is_possible() -> None:
    assert evaluate(**PAPER, link="identity", S=2.0, L=1.5).trivial == pytest.approx(3000 * 2 * 3.0)
    steep = CustomLink("steep", lambda z: 2.0 * z, lambda z: 2.0 + 0 * z, any_reward=True)
    found = evaluate(**PAPER, link=steep)
    assert (found.trivial, found.constants.link) == (pytest.approx(3000 * 4.0), "steep")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"horizon": 0}, {"drift": -1.0}, {"dim": 0}, {"lam": 0.0}, {"sigma": "x"}, {"gamma": 1.5}, {"delta": 0.0}),
        *({"S": np.nan}, {"drift": 1e5}, {"link": "cubic"}),
    ],
    ids=str,
)
def test_bad_constants_are_named(wrong: dict) -> None:
    ((name, value),) = wrong.items()
    with rejects(name) as caught:
        evaluate(**{**PAPER, **wrong})
    assert caught.value.value is value or caught.value.value == value


def spec(*environments: EnvironmentSpec, settings: dict | None = None) -> Spec:
    return Spec(environments, [PolicySpec("D-LinUCB"), PolicySpec("BVD-GLM-UCB", settings=settings or {})], horizon=200)


def test_constants_come_from_the_experiment() -> None:
    """sigma of the reward law, dim, S and L with the intercept, the mean B_T of the runs, lam and delta of BVD."""
    narrow = EnvironmentSpec("narrow", ROTATION, ARM_LAWS["orthogonal"](), REWARD_LAWS["binomial"](), dim=3)
    wide = EnvironmentSpec(
        "wide", ROTATION, BALL, REWARD_LAWS["poisson"](bound=40), link="poisson", S=0.6, L=2.0, intercept=0.8
    )
    drifts = np.array([1.0, 2.0])
    made = [
        entry("BVD-GLM-UCB", [10.0, 20.0], environment=name, horizon=200, drift=drifts) for name in ("narrow", "wide")
    ]
    first, second = evaluate_results(
        results(made, spec=spec(narrow, wide, settings={"lam": 0.5, "delta": 0.2})), gamma=0.98
    )
    assert (first.environment, first.orthogonal_arms, second.orthogonal_arms) == ("narrow", True, False)
    expected = evaluate(horizon=200, drift=1.5, dim=3, lam=0.5, delta=0.2, gamma=0.98)
    assert first.bounds == expected
    assert second.bounds.constants.sigma == 20.0
    sizes = dataclasses.asdict(second.bounds.constants)
    assert [sizes[name] for name in ("dim", "S", "L")] == pytest.approx([3, 1.0, np.sqrt(5)])
    assert [(m.label, m.runs, m.mean, m.se) for m in first.measured] == [("BVD-GLM-UCB", 2, 15.0, 5.0)]


def test_lam_and_delta_may_be_told_and_have_the_policys_defaults() -> None:
    world = EnvironmentSpec("here", ROTATION, BALL)
    made = results([entry("D-LinUCB", [1.0], environment="here", horizon=200)], spec=spec(world))
    (default,), (told,) = evaluate_results(made), evaluate_results(made, lam=2.0, delta=0.5)
    assert (default.bounds.constants.lam, default.bounds.constants.delta) == (1.0, 0.05)
    assert (told.bounds.constants.lam, told.bounds.constants.delta) == (2.0, 0.5)


def test_an_environment_without_results_is_left_out() -> None:
    worlds = [EnvironmentSpec(name, ROTATION, BALL) for name in ("here", "there")]
    made = results([entry("D-LinUCB", [1.0], environment="there", horizon=200)], spec=spec(*worlds))
    assert [found.environment for found in evaluate_results(made)] == ["there"]


def test_beside_a_real_run(tmp_path) -> None:
    """Every policy's regret is below the trivial bound, as it must be; the theorems lie above that."""
    world = EnvironmentSpec("here", DRIFTS["random-walk"](step=0.01), BALL)
    policies = [PolicySpec("BVD-GLM-UCB"), PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99]})]
    done = simulate(Spec([world], policies, runs=3, horizon=120), tmp_path / "out", jobs=1)
    (found,) = evaluate_results(done)
    assert [row.label.partition(" ")[0] for row in found.measured] == ["BVD-GLM-UCB", "D-LinUCB", "D-LinUCB"]
    assert found.bounds.constants.drift == pytest.approx(done.entries[0].drift.mean())
    assert np.ptp(done.entries[0].drift) > 0
    for row in found.measured:
        assert 0 < row.mean < found.bounds.trivial < found.bounds.orthogonal.total < found.bounds.general.total
