"""The sweep behind ``windvane tune``: the grid, the spec, and what is read off the results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.entries import entry, results
from support.refusals import rejects
from windvane import BVDGLMUCB
from windvane.environments import ARM_LAWS, DRIFTS
from windvane.lab.experiment import simulate
from windvane.lab.results.folder import FolderError
from windvane.lab.results.summary import compare_entries
from windvane.lab.spec.experiment_spec import EnvironmentSpec, PolicySpec, Spec, SpecError
from windvane.lab.studies.tuning import default_gammas, read_sweep, tune_spec

WORLD = EnvironmentSpec("rotation", DRIFTS["rotation"](), ARM_LAWS["ball"]())
BASE = Spec([WORLD], [PolicySpec("BVD-GLM-UCB"), PolicySpec("D-LinUCB")], runs=4, horizon=120, seed=5, title="base")


# --- the grid --------------------------------------------------------------------------------------------------------


@given(st.integers(2, 10**7), st.integers(1, 50))
def test_default_discounts_have_log_spaced_memories(horizon: int, n: int) -> None:
    gammas = default_gammas(horizon, n)
    assert len(gammas) == n
    assert (gammas > 0).all()
    assert (gammas < 1).all()
    assert (np.diff(gammas) > 0).all()
    memories = 1 / (1 - gammas)
    if n > 1:
        assert (memories[0], memories[-1]) == pytest.approx((min(10, np.sqrt(horizon)), horizon), rel=1e-6)
        np.testing.assert_allclose(np.diff(np.log(memories)), np.log(memories[-1] / memories[0]) / (n - 1), rtol=1e-5)
    else:
        assert min(10, np.sqrt(horizon)) < memories[0] < horizon


def test_the_recommended_discount_takes_its_place() -> None:
    plain, more = default_gammas(3000, 20), default_gammas(3000, 20, recommended=0.995908)
    assert len(more) == 21
    assert set(more) == {*plain, 0.995908}
    assert (np.diff(more) > 0).all()
    assert len(default_gammas(3000, 20, recommended=plain[3])) == 20
    assert default_gammas(3000, 20, recommended=1.0)[-1] == 1.0


@pytest.mark.parametrize(
    ("arguments", "argument", "value"),
    [((1, 5), "horizon", 1), ((100, 0), "n", 0), ((100, 5, 0.0), "recommended", 0.0)],
)
def test_a_bad_grid_is_named(arguments: tuple, argument: str, value: float) -> None:
    with rejects(argument, value=value):
        default_gammas(*arguments)


# --- the spec --------------------------------------------------------------------------------------------------------


def test_one_policy_is_swept_and_the_rest_stays() -> None:
    found = tune_spec(BASE, "D-LinUCB", np.array([0.9, 0.99]), [0.5, 1.0, 2.0])
    assert (found.runs, found.horizon, found.seed, found.title, found.environments) == (4, 120, 5, "base", (WORLD,))
    (policy,) = found.policies
    assert policy == PolicySpec("D-LinUCB", sweep={"gamma": [0.9, 0.99], "bonus_scale": [0.5, 1.0, 2.0]})
    assert len(policy.variants) == 6
    found.check()


def test_a_policy_of_the_base_keeps_its_other_settings() -> None:
    known = PolicySpec("BVD-GLM-UCB", "mine", {"gamma": 0.9, "bonus_scale": 2.0, "lam": 0.5}, {"delta": [0.1, 0.2]})
    base = Spec([WORLD], [known], horizon=120)
    (both,) = tune_spec(base, "mine", [0.8], [1.0]).policies
    assert both == PolicySpec("BVD-GLM-UCB", "mine", {"lam": 0.5}, {"gamma": [0.8], "bonus_scale": [1.0]})
    (scales,) = tune_spec(base, "mine", None, [1.0]).policies
    assert scales == PolicySpec("BVD-GLM-UCB", "mine", {"gamma": 0.9, "lam": 0.5}, {"bonus_scale": [1.0]})
    drifting = PolicySpec("BVD-GLM-UCB", settings={"drift": 2.0})
    assert tune_spec(base, drifting, [0.8]).policies == (PolicySpec("BVD-GLM-UCB", sweep={"gamma": [0.8]}),)
    assert tune_spec(base, drifting, None, [0.8]).policies[0].settings == {"drift": 2.0}


def test_a_policy_by_class_or_a_name_that_the_base_lacks() -> None:
    assert tune_spec(BASE, BVDGLMUCB, [0.9]).policies == (PolicySpec("BVD-GLM-UCB", sweep={"gamma": [0.9]}),)
    assert tune_spec(BASE, "OFUL", None, [1, 2]).policies == (PolicySpec("OFUL", sweep={"bonus_scale": [1.0, 2.0]}),)
    sampled = tune_spec(BASE, "D-LinTS", None, [1, 2]).policies
    assert sampled == (PolicySpec("D-LinTS", sweep={"posterior_scale": [1.0, 2.0]}),)


def test_a_sweep_that_cannot_be_is_refused() -> None:
    with rejects("gammas", value=None):
        tune_spec(BASE, "D-LinUCB", None)
    with rejects(error=SpecError, path=("sweep", "gamma")):
        tune_spec(BASE, "OFUL", [0.9])
    with rejects(error=SpecError, path=("sweep", "gamma", 1)):
        tune_spec(BASE, "D-LinUCB", [0.9, 0.9])


# --- what was found --------------------------------------------------------------------------------------------------


def grid(values: dict[tuple[float, float], list[float]], environment: str = "rotation") -> list:
    return [
        entry("A", final, environment=environment, variant={"gamma": gamma, "bonus_scale": scale})
        for (gamma, scale), final in values.items()
    ]


def test_the_grid_and_its_best_point() -> None:
    rng = np.random.default_rng(0)
    run_effect = 20 * rng.normal(size=30)
    near, far = 0.1 * rng.normal(size=30), 5 + rng.normal(size=30)
    near -= near.mean() - 0.001  # above the best by next to nothing
    points = {
        (0.99, 2.0): run_effect + far,
        (0.99, 1.0): run_effect,
        (0.9, 2.0): run_effect + near,
        (0.9, 1.0): run_effect + far + 1,
    }
    found = read_sweep(results(grid(points)))
    assert (found.environment, found.policy, found.runs) == ("rotation", "A", 30)
    assert found.gammas.tolist() == [0.9, 0.99]
    assert found.scales.tolist() == [1.0, 2.0]
    for (gamma, scale), final in points.items():
        at = found.gammas.tolist().index(gamma), found.scales.tolist().index(scale)
        assert found.mean[at] == pytest.approx(np.mean(final))
        assert found.se[at] == pytest.approx(np.std(final, ddof=1) / np.sqrt(30))
    assert (found.best, found.best_gamma, found.best_scale) == ((1, 0), 0.99, 1.0)
    assert found.close.tolist() == [[False, True], [True, False]]  # though all lie within one standard error


def test_what_is_close_is_what_the_paired_interval_cannot_tell_from_the_best() -> None:
    rng = np.random.default_rng(1)
    points = {(float(g), 1.0): 0.3 * i + rng.normal(size=12) for i, g in enumerate(np.linspace(0.5, 0.9, 9))}
    made = grid(points)
    for confidence in (0.5, 0.95, 0.999):
        found = read_sweep(results(made), confidence=confidence)
        best = made[found.best[0]]
        low = {d.label: d.low for d in compare_entries(made, baseline=best.label, confidence=confidence)}
        assert found.close[:, 0].tolist() == [e is best or low[e.label] <= 0 for e in made]


def test_one_run_tells_nothing_apart() -> None:
    found = read_sweep(results(grid({(0.9, 1.0): [3.0], (0.8, 1.0): [1.0]})))
    assert found.best_gamma == 0.8
    assert found.close.all()
    assert np.isnan(found.se).all()


@pytest.mark.parametrize("name", ["gamma", "bonus_scale", "posterior_scale"])
def test_an_axis_that_was_not_swept(name: str) -> None:
    made = [entry("A", [value, value], variant={name: value}) for value in (0.7, 0.5, 0.6)]
    found = read_sweep(results(made))
    swept, other = (found.gammas, found.scales) if name == "gamma" else (found.scales, found.gammas)
    assert swept.tolist() == [0.5, 0.6, 0.7]
    assert other.shape == (1,)
    assert np.isnan(other[0])
    assert found.mean.ravel().tolist() == [0.5, 0.6, 0.7]
    assert found.best == (0, 0)


def test_points_that_are_not_finished_are_left_open() -> None:
    made = grid({(0.8, 1.0): [5.0, 6.0], (0.9, 1.0): [1.0], (0.95, 1.0): [7.0, 9.0], (0.8, 2.0): [4.0, 4.0]})
    found = read_sweep(results(made))
    assert found.runs == 2
    assert np.isnan(found.mean).tolist() == [[False, False], [True, True], [False, True]]
    assert not found.close[np.isnan(found.mean)].any()
    assert found.best == (0, 1)


def test_which_environment_is_meant() -> None:
    made = [*grid({(0.9, 1.0): [1.0]}), *grid({(0.9, 1.0): [2.0]}, "arc")]
    assert read_sweep(results(made), "arc").mean[0, 0] == 2.0
    for given_ in (None, "no"):
        with rejects("environment", value=given_) as caught:
            read_sweep(results(made), given_)
        assert "rotation, arc" in caught.value.expected


@pytest.mark.parametrize(
    ("entries", "code", "mention"),
    [
        ([], "unfinished", ""),
        ([entry("A", [1.0])], "not_a_sweep", "nothing"),
        ([entry("A", [1.0], variant={"delta": 0.1})], "not_a_sweep", "['delta']"),
        ([entry(name, [1.0], variant={"gamma": 0.9}) for name in "AB"], "not_a_sweep", "A, B"),
    ],
)
def test_results_that_are_no_sweep_are_refused(entries: list, code: str, mention: str) -> None:
    with rejects(error=FolderError, path=Path("one"), code=code) as caught:
        read_sweep(results(entries))
    assert mention in caught.value.problem


def test_a_real_sweep(tmp_path) -> None:
    """Each point of the grid has the regret that its settings have alone."""
    done = simulate(tune_spec(BASE, "BVD-GLM-UCB", [0.8, 0.98], [0.25, 1.0]), tmp_path / "sweep", jobs=1)
    found = read_sweep(done)
    assert (found.environment, found.policy, found.runs) == ("rotation", "BVD-GLM-UCB", 4)
    for row, gamma in enumerate(found.gammas):
        for column, scale in enumerate(found.scales):
            alone = PolicySpec("BVD-GLM-UCB", settings={"gamma": float(gamma), "bonus_scale": float(scale)})
            single = simulate(Spec([WORLD], [alone], 4, 120, 5), tmp_path / f"{gamma}-{scale}", jobs=1)
            assert found.mean[row, column] == single.entries[0].final.mean()
    assert found.mean[found.best] == found.mean.min()
