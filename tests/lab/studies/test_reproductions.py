"""The experiments of papers: their settings are those of the papers, and their published values are consistent."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.entries import entry
from support.refusals import rejects
from windvane.bibliography import read_bibliography
from windvane.environments import Environment
from windvane.lab.experiment import simulate
from windvane.lab.figures.over_time_figure import PublishedCurve
from windvane.lab.report.presentation import present
from windvane.lab.results.folder import FolderError
from windvane.lab.results.results import Results
from windvane.lab.spec.experiment_spec import Spec
from windvane.lab.studies.benchmarks import simulate_part
from windvane.lab.studies.published import (
    PublishedComparison,
    PublishedSource,
    compare_with_published,
    describe_comparisons,
)
from windvane.lab.studies.reproductions import NAMES, read_reproduction, run_reproduction, write_recipe
from windvane.policies.registry import POLICIES


def read_settings(name: str, environment: str = "") -> dict[str, dict[str, Any]]:
    """The settings of each policy in an environment, by label."""
    specs = read_reproduction(name).build_specs()
    (spec,) = [spec for spec in specs if environment in ("", *(world.name for world in spec.environments))]
    return {policy.name: dict(policy.settings) for policy in spec.policies}


def read_thetas(name: str, environment: int = 0) -> np.ndarray:
    """The path of theta* of an environment, [rounds, dim]."""
    reproduction = read_reproduction(name)
    spec = reproduction.build_specs()[0]
    horizon = spec.horizon
    world = spec.environments[environment]
    path = world.drift.path(horizon=horizon, dim=world.dim, S=world.S, lane_ids=1)  # type: ignore[union-attr]
    return np.array([path.at(t)[0] for t in range(1, horizon + 1)])


# --- every entry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_can_be_built(name: str) -> None:
    reproduction = read_reproduction(name)
    assert reproduction.paper in read_bibliography()
    assert name.startswith(reproduction.paper)
    for arms in reproduction.arms:
        for spec in reproduction.build_specs(arms=arms):
            spec.check()
            assert (spec.runs, spec.seed) == (reproduction.runs, 0)
    for text in (reproduction.summary, reproduction.title, reproduction.heading, reproduction.published.source):
        assert text == " ".join(text.split())
        assert text
    for law in reproduction.arms.values():
        assert law.keys() == {"text", "law"}
    for line in (*reproduction.list_readings(reproduction.default_arms, 0.5), *reproduction.known_errors):
        assert line.endswith((".", ".)"))
        assert "{" not in line
    assert any("0.5" in line for line in reproduction.list_readings(reproduction.default_arms, 0.5))


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_comes_back_from_its_spec_file(name: str) -> None:
    """So that ``windvane report`` can read the folder."""
    for spec in read_reproduction(name).build_specs(runs=2):
        assert Spec.parse(spec.to_toml()) == spec


@pytest.mark.parametrize("name", NAMES)
def test_published_values_are_consistent(name: str) -> None:
    """Regret grows, is no larger than the horizon allows, and each column is that of a policy."""
    reproduction = read_reproduction(name)
    environments = {environment["name"] for environment in reproduction.environments}
    labels = [policy.get("label", policy["policy"]) for policy in reproduction.policies]
    columns = [policy.get("published", label) for policy, label in zip(reproduction.policies, labels, strict=True)]
    assert len(labels) == len(set(labels))
    for (environment, column), curve in reproduction.curves.items():
        assert environment in environments or (environment == "" and len(environments) == 1)
        assert column in columns
        horizon = reproduction.find_horizon(environment or next(iter(environments)))
        assert (np.diff(curve.rounds) > 0).all()
        assert 1 <= curve.rounds[0] <= curve.rounds[-1] <= horizon
        assert (np.diff(curve.mean) > -reproduction.published.reading_error).all()
        assert curve.mean[0] > 0
        assert (np.diff(curve.mean, prepend=0) <= 2 * np.diff(curve.rounds, prepend=0)).all()  # rewards in [-1, 1]
    assert reproduction.published.runs > 0
    assert reproduction.published.reading_error >= 0


@pytest.mark.parametrize("name", NAMES)
def test_only_policies_that_are_not_registered_are_left_out(name: str) -> None:
    reproduction = read_reproduction(name)
    built = [policy.name for policy in reproduction.build_specs()[0].policies]
    for policy in reproduction.policies:
        is_left_out = policy["policy"] in reproduction.left_out
        assert is_left_out == (":" not in policy["policy"] and policy["policy"] not in POLICIES)
        assert is_left_out != (policy.get("label", policy["policy"]) in built)
    assert reproduction.baseline in (None, *built)


def shorten(spec: Spec, rounds: int = 40) -> Spec:
    """The spec with as few rounds as its jumps allow, and two runs."""
    latest = [max(getattr(environment.drift, "times", (0,))) for environment in spec.environments]  # type: ignore[union-attr]
    return spec.replace(runs=2, horizon=max(rounds, *latest))


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_runs_and_is_reported(name: str, tmp_path: Path) -> None:
    reproduction = read_reproduction(name)
    recipe = write_recipe(name, reproduction.default_arms, 1.0)
    for number, spec in enumerate(reproduction.build_specs()):
        results = simulate(shorten(spec), tmp_path / str(number), jobs=1, recipe=recipe)
        assert {path.name for path in present(results)} >= {"report.html"}
        page = (tmp_path / str(number) / "report.html").read_text(encoding="utf-8")
        differences = re.findall(r'aria-label="Table: Paired differences".*?</table>', page, re.S)
        baseline, count = reproduction.baseline or spec.policies[0].name, len(spec.environments)
        found = sum(table.count(f"<td>{baseline}</td>") for table in differences)
        assert found == count * (len(spec.policies) - 1)  # the baseline of all others
        assert results.complete
        assert {found.policy for found in results.entries} == {policy.name for policy in spec.policies}
        for found in results.entries:
            assert (found.regret[:, -1] > 0).all()
        assert reproduction.published_curves(results.entries) == {}  # another horizon


# --- settings, from the papers and the authors' code -----------------------------------------------------------------


def test_the_slow_world_of_russac_2019() -> None:
    """The code counts t from 0: the angle is (pi/2) t / 3000 up to t = 3000, and pi/2 from then on."""
    t = np.arange(6000)
    angle = np.pi / 2 * np.minimum(t / 3000, 1)
    np.testing.assert_allclose(read_thetas("russac2019"), np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-12)
    drift = sum(2 * math.sin(np.pi / 12000) for _ in range(2999))  # as the code adds it
    assert drift == pytest.approx(1.5702727100817697)  # which its notebook prints
    settings = read_settings("russac2019")
    for name in ("D-LinUCB", "D-LinUCB, public code"):
        assert settings[name]["gamma"] == pytest.approx(1 - (drift / 12000) ** (2 / 3), rel=1e-12)
    assert settings["SW-LinUCB"]["window"] == math.ceil((12000 / drift) ** (2 / 3)) == 388


def test_the_abrupt_world_of_russac_2019() -> None:
    """The code counts t from 0 and changes theta* at 1001, 2001 and 3001."""
    thetas = read_thetas("russac2019-abrupt")
    for first, last, theta in ((0, 1000, [1, 0]), (1001, 2000, [-1, 0]), (2001, 3000, [0, 1]), (3001, 5999, [0, -1])):
        np.testing.assert_array_equal(thetas[first : last + 1], np.tile(theta, (last - first + 1, 1)))
    drift = 4 + math.sqrt(2)
    settings = read_settings("russac2019-abrupt")
    assert settings["D-LinUCB"]["gamma"] == pytest.approx(0.9941173985691094)  # which the notebook prints
    assert settings["D-LinUCB"]["gamma"] == pytest.approx(1 - (drift / 12000) ** (2 / 3), rel=1e-12)
    assert settings["SW-LinUCB"]["window"] == math.ceil((12000 / drift) ** (2 / 3)) == 170
    assert settings["LinUCB-OR"]["changes"] == (1002, 2002, 3002)


@pytest.mark.parametrize("name", ["russac2019", "russac2019-abrupt"])
def test_the_common_settings_of_russac_2019(name: str) -> None:
    (spec,) = read_reproduction(name).build_specs()
    assert (spec.runs, spec.horizon) == (100, 6000)
    world = spec.environments[0].build(horizon=6000, lanes=200, seed=1)
    assert isinstance(world, Environment)
    assert (world.dim, world.S, world.L, world.sigma, world.link.name) == (2, 1.0, 1.0, 1.0, "identity")
    for policy in spec.policies:
        assert (policy.settings["lam"], policy.settings["delta"]) == (0.1, 0.01)
    arms = world.round(1).arms
    assert arms.shape == (200, 50, 2)
    assert (arms != world.round(2).arms).all()  # new in every round
    norms = np.linalg.norm(arms, axis=2)
    assert norms.max() <= 1 + 1e-12
    inside = np.isclose(norms, 1.0, atol=1e-12).mean()  # the square without the disc is divided by its norm
    assert inside == pytest.approx(1 - np.pi / 4, abs=6 * math.sqrt(0.25 / arms[..., 0].size))
    offer = world.round(1)
    noise = np.concatenate([world.reward(t, offer.means[:, 0]) - offer.means[:, 0] for t in range(1, 101)])
    assert noise.std() == pytest.approx(1.0, abs=6 / math.sqrt(2 * len(noise)))


def test_the_settings_of_wang_2023_with_linear_rewards() -> None:
    T, drift = 6000, 2 * np.pi
    thetas = read_thetas("wang2023-lb")
    turned = 2 * np.pi * np.arange(1, T + 1) / T
    np.testing.assert_allclose(thetas, np.stack([np.cos(turned), np.sin(turned)], axis=1), atol=1e-12)
    settings = read_settings("wang2023-lb")
    gamma = 1 - max(1 / T, math.sqrt(drift / (2 * T)))
    assert settings["D-LinUCB"]["gamma"] == settings["LB-WeightUCB"]["gamma"] == pytest.approx(gamma, rel=1e-12)
    assert settings["RestartUCB"]["restart_every"] == math.floor(2**0.25 * math.sqrt(T / (1 + drift))) == 34
    assert settings["MASTER+OFUL, n = 13"]["first_order"] == 13
    assert "first_order" not in settings["MASTER+OFUL, n = 0"]
    for arms, law in read_reproduction("wang2023-lb").arms.items():
        (spec,) = read_reproduction("wang2023-lb").build_specs(arms=arms)
        offers = [spec.environments[0].build(horizon=T, lanes=3, seed=0).round(t).arms for t in (1, 2)]
        assert offers[0].shape == (3, 50, 2)
        assert np.array_equal(*offers) == ("once in each run" in law["text"])
        norms = np.linalg.norm(offers[0], axis=2)
        np.testing.assert_allclose(norms.max(axis=1), 1.0)
        assert np.allclose(norms, 1.0) == ("by its norm" in law["text"])


@pytest.mark.parametrize("S", [1, 5])
def test_the_settings_of_wang_2023_with_logistic_rewards(S: int) -> None:
    T, drift = 6000, 2 * np.pi * S
    c_mu = math.exp(-S) / (1 + math.exp(-S)) ** 2
    settings = read_settings("wang2023-glb", f"S = {S}")
    assert settings["GLB-WeightUCB"]["gamma"] == pytest.approx(1 - math.sqrt(c_mu * drift / (2 * T)), rel=1e-12)
    assert settings["BVD-GLM-UCB"]["gamma"] == pytest.approx(1 - (drift / (math.sqrt(2) * T)) ** 0.4, rel=1e-12)
    assert settings["SCB-WeightUCB"]["gamma"] == pytest.approx(1 - math.sqrt(drift / (2 * T)), rel=1e-12)
    assert settings["RestartGLB"]["restart_every"] == math.floor(2**0.25 * math.sqrt(T / (1 + drift)))
    (spec,) = [s for s in read_reproduction("wang2023-glb").build_specs() if s.environments[0].S == S]
    world = spec.environments[0].build(horizon=T, lanes=1, seed=0)
    lams = {policy.name: policy.build(world).estimator.lam for policy in spec.policies if "MASTER" not in policy.name}
    assert lams["GLM-UCB"] == lams["BVD-GLM-UCB"] == lams["RestartGLB"] == 2
    assert lams["GLB-WeightUCB"] == pytest.approx(2 / c_mu**2)
    assert lams["SCB-WeightUCB"] == pytest.approx(2 * math.log(T) / c_mu)
    thetas = read_thetas("wang2023-glb", 0) * S
    np.testing.assert_allclose(np.linalg.norm(thetas, axis=1), S)


def test_the_settings_of_cheung_2019() -> None:
    """Their equation (26), with B_T = 1."""
    for spec in read_reproduction("cheung2019").build_specs():
        T, (world,) = spec.horizon, spec.environments
        t = np.arange(1, T + 1)
        path = world.drift.path(horizon=T, dim=2, S=1.0, lane_ids=1)  # type: ignore[union-attr]
        rounds = [1, T // 7, T // 2, T]
        expected = [
            [0.5 + 0.3 * math.sin(5 * np.pi * s / T), 0.5 + 0.3 * math.sin(np.pi + 5 * np.pi * s / T)]
            for s in t[np.array(rounds) - 1]
        ]
        np.testing.assert_allclose([path.at(s)[0] for s in rounds], expected, atol=1e-12)
        built = world.build(horizon=T, lanes=1, seed=0)
        np.testing.assert_array_equal(built.round(1).arms, [np.eye(2)])
        assert built.sigma == 0.1
        (policy,) = [policy for policy in spec.policies if policy.name == "SW-LinUCB"]
        assert policy.settings["delta"] == pytest.approx(1 / T)
        assert policy.build(built).estimator.window.tolist() == [math.floor((2 * T) ** (2 / 3))]


def test_the_settings_of_zhao_2020() -> None:
    T, drift = 50_000, np.pi
    settings = read_settings("zhao2020-gradual")
    window = (2 * T / drift) ** (2 / 3)
    assert settings["D-LinUCB"]["gamma"] == pytest.approx(1 - 1 / window, rel=1e-12)
    assert settings["SW-LinUCB"]["window"] == settings["RestartUCB"]["restart_every"] == math.floor(window)
    thetas = read_thetas("zhao2020-gradual")
    np.testing.assert_allclose(thetas[-1], [-1, 0], atol=1e-12)
    (spec,) = read_reproduction("zhao2020-gradual").build_specs()
    world = spec.environments[0].build(horizon=T, lanes=1, seed=0)
    assert world.sigma == pytest.approx(math.sqrt(0.1))
    assert world.round(1).arms.shape == (1, 20, 2)


def test_the_settings_of_russac_2021() -> None:
    """theta* jumps from the angle 2 pi / 3 to 4 pi / 3 after 4,000 rounds; bonuses are divided by 5."""
    for place, S in enumerate((6, 7)):
        thetas = read_thetas("russac2021", place)
        for angle, part in ((2 * np.pi / 3, thetas[:4000]), (4 * np.pi / 3, thetas[4000:])):
            np.testing.assert_allclose(part, np.tile([S * math.cos(angle), S * math.sin(angle)], (4000, 1)), atol=1e-12)
    for settings in read_settings("russac2021").values():
        assert settings["bonus_scale"] == 0.2
        assert settings.get("gamma", 0.9975) == pytest.approx(1 - (2 / (2 * 8000)) ** (2 / 3))
    (spec,) = read_reproduction("russac2021").build_specs(bonus_scale=0.5)
    assert {policy.settings["bonus_scale"] for policy in spec.policies} == {0.1}


def test_the_settings_of_baudry_2021() -> None:
    """The code counts rounds from 0 and changes the arms at 3000 and 5000, and at 2500, 4500 and 7000."""
    thetas = read_thetas("baudry2021-bernoulli")
    for part, means in (
        (thetas[:3000], [0.5, 0.3, 0.4]),
        (thetas[3000:5000], [0.3, 0.7, 0.2]),
        (thetas[5000:], [0.5, 0.3, 0.6]),
    ):
        np.testing.assert_allclose(1 / (1 + np.exp(-part)), np.tile(means, (len(part), 1)), rtol=1e-12)
    thetas = read_thetas("baudry2021-gaussian")
    means = [[0.9, 0.5, 0.4], [0.4, 0.8, 0.5], [0.3, 0.2, 0.7], [0.9, 0.8, 0.4]]
    for first, last, theta in zip((0, 2500, 4500, 7000), (2500, 4500, 7000, 10000), means, strict=True):
        np.testing.assert_array_equal(thetas[first:last], np.tile(theta, (last - first, 1)))
    (gaussian,) = read_reproduction("baudry2021-gaussian").build_specs()
    world = gaussian.environments[0].build(horizon=10000, lanes=1, seed=0)
    assert world.sigma == 0.5
    policies = {
        policy.get("label", policy["policy"]): policy for policy in read_reproduction("baudry2021-gaussian").policies
    }
    bound = 1 + 2 * 0.5  # B in the code's rules for the discount and the window
    discount, window = policies["D-UCB"]["settings"], policies["SW-UCB"]["settings"]
    assert discount["gamma"] == pytest.approx(1 - math.sqrt(3 / 10000) / (4 * bound), rel=1e-12)
    assert window["window"] == int(2 * bound * math.sqrt(10000 * math.log(10000) / 3))
    # B is 2 sigma = 1 here: 2 B sqrt(xi log n / N) and B sqrt(xi log n / N) are the code's bonuses
    assert 2 * math.sqrt(discount["xi"]) == pytest.approx(2 * (0.5 / 2) * math.sqrt(2))
    assert math.sqrt(window["xi"]) == pytest.approx(0.5 * math.sqrt(2))


def test_the_paper_s_experiment_is_unchanged() -> None:
    """Results of ``windvane reproduce`` go on where they were: the fingerprint is that of before the registry."""
    (spec,) = read_reproduction("faury2021").build_specs()
    assert spec.fingerprint() == "e1b576baff9a6aa2780505b66de99ba43b7ddfbc06ea042fee2f7f712bf1c62c"


# --- published values, as the research notes have them ---------------------------------------------------------------

FINALS = {  # by experiment and environment
    ("faury2021", ""): {"OFUL": 220.5, "GLM-UCB": 138.0, "D-LinUCB": 105.4, "BVD-GLM-UCB": 59.1},
    ("russac2019", ""): {"D-LinUCB": 234.5, "SW-LinUCB": 294.5, "dLinUCB": 1509, "LinUCB": 1438},
    ("russac2019-abrupt", ""): {
        "D-LinUCB": 981, "SW-LinUCB": 749, "dLinUCB": 2678, "LinUCB": 4180, "LinUCB-OR": 160,
    },
    ("wang2023-lb", ""): {
        "OFUL": 3666.8, "RestartUCB": 1662.6, "MASTER+OFUL, n = 0": 1908.4, "MASTER+OFUL, n = 13": 1483.7,
        "D-LinUCB": 951.7, "LB-WeightUCB": 954.5,
    },
    ("wang2023-glb", "S = 1"): {
        "GLM-UCB": 1069.6, "GLB-RestartUCB": 758.1, "MASTER+GLM-UCB": 584.0, "BVD-GLM-UCB": 826.6,
        "GLB-WeightUCB": 374.2, "LogUCB1": 1106.9, "SCB-RestartUCB": 770.0, "MASTER+LogUCB1": 588.7,
        "SCB-WeightUCB": 454.3,
    },
    ("wang2023-glb", "S = 5"): {
        "GLM-UCB": 2717.5, "GLB-RestartUCB": 1631.3, "MASTER+GLM-UCB": 1470.4, "BVD-GLM-UCB": 2143.3,
        "GLB-WeightUCB": 1025.6, "LogUCB1": 2636.2, "SCB-RestartUCB": 472.2, "MASTER+LogUCB1": 459.7,
        "SCB-WeightUCB": 218.8,
    },
    ("cheung2019", "T = 30,000"): {"SW-LinUCB": 127, "Modified EXP3.S": 1011},
    ("cheung2019", "T = 60,000"): {"SW-LinUCB": 185, "Modified EXP3.S": 1575},
    ("cheung2019", "T = 120,000"): {"SW-LinUCB": 253, "Modified EXP3.S": 2453},
    ("cheung2019", "T = 240,000"): {"SW-LinUCB": 359, "Modified EXP3.S": 3802},
    ("zhao2020-gradual", ""): {"Static": 6857, "Weight": 116, "Window": 166, "Restart": 340},
    ("baudry2021-bernoulli", ""): {"EXP3.S": 530},
    ("baudry2021-gaussian", ""): {"D-UCB": 350, "SW-UCB": 340, "UCB1": 773},
    ("russac2021", "S = 6"): {"GLM-UCB": 1970, "D-GLUCB": 717, "SC-D-GLUCB": 587, "LogUCB1": 1853},
    ("russac2021", "S = 7"): {"GLM-UCB": 2165, "D-GLUCB": 1151, "SC-D-GLUCB": 732, "LogUCB1": 1901},
}  # fmt: skip


@pytest.mark.parametrize(("name", "environment"), FINALS)
def test_published_curves_end_where_the_figures_do(name: str, environment: str) -> None:
    curves = read_reproduction(name).curves
    ends = {column: curve.mean[-1] for (place, column), curve in curves.items() if place == environment}
    assert ends == pytest.approx(FINALS[name, environment], rel=0.005)
    assert {name for name, _ in FINALS} == set(NAMES)


# --- comparing --------------------------------------------------------------------------------------------------------

SOURCE = PublishedSource("made up", runs=50, reading_error=0.0, compare=(10, 20))


@given(
    st.floats(0.5, 20), st.floats(1, 100), st.integers(2, 40), st.integers(1, 100), st.floats(0, 30),
)  # fmt: skip
def test_a_gap_is_measured_in_standard_errors(sd: float, gap: float, n: int, runs: int, reading: float) -> None:
    """Ours, that of as many published runs with the same spread, and a uniform error of reading."""
    spread = np.linspace(-1, 1, n)
    final = 100 + sd * spread / spread.std(ddof=1)
    found = entry("OFUL", final)
    curve = PublishedCurve(np.array([found.horizon]), np.array([100 + gap]))
    source = PublishedSource("made up", runs, reading)
    (comparison,) = compare_with_published([found], {(found.environment, "OFUL"): curve}, source)
    error = math.sqrt(sd**2 / n + sd**2 / runs + reading**2 / 3)
    assert comparison.errors == pytest.approx([gap / error], rel=1e-9)
    assert comparison.rounds == [found.horizon]


def test_comparisons_are_put_in_words() -> None:
    def compared(policy: str, *errors: float, environment: str = "a") -> PublishedComparison:
        rounds = [10, 20][: len(errors)]
        return PublishedComparison(policy, rounds, [1.0] * len(errors), [2.0] * len(errors), [*errors], environment)

    lines = describe_comparisons([compared("x", 3.0, 4.0), compared("y", 1.0, 3.0), compared("z", 1.0, 1.0)])
    assert lines == [
        "Mean regret after 10 / 20 rounds:",
        "x differs: 1.0 / 1.0 against the published 2.0 / 2.0 (3.0 / 4.0 standard errors apart).",
        "y differs in places: 1.0 / 1.0 against the published 2.0 / 2.0 (1.0 / 3.0 standard errors apart).",
        "z shows no significant difference: 1.0 / 1.0 against the published 2.0 / 2.0"
        " (1.0 / 1.0 standard errors apart).",
    ]
    lines = describe_comparisons([compared("x", math.nan), compared("x", 1.0, environment="b")])
    assert lines[0] == "a, mean regret after 10 rounds:"
    assert "one run tells nothing about the noise" in lines[1]
    assert lines[2] == "b, mean regret after 10 rounds:"


def test_regret_between_recorded_rounds_is_interpolated() -> None:
    found = entry("OFUL", np.array([30.0, 50.0]))
    middle = int(found.rounds[1] + found.rounds[2]) // 2
    curve = PublishedCurve(np.array([middle]), np.array([7.0]))
    source = dataclasses.replace(SOURCE, compare=(middle,))
    (comparison,) = compare_with_published([found], {(found.environment, "OFUL"): curve}, source)
    mean = found.regret.mean(axis=0)
    assert comparison.ours == pytest.approx([np.interp(middle, found.rounds, mean)])
    assert compare_with_published([dataclasses.replace(found, variant={"gamma": 0.9})], {}, source) == []


# --- running ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A reproduction with two horizons, each a small one."""
    reproduction = read_reproduction("cheung2019")
    worlds = [{**world, "horizon": T} for world, T in zip(reproduction.environments, (30, 60), strict=False)]
    small = dataclasses.replace(reproduction, environments=worlds)
    return run_reproduction(small, tmp_path_factory.mktemp("cheung") / "out", simulate_part, runs=2)


def test_several_horizons_have_a_folder_each(joined: Results) -> None:
    assert {path.name for path in joined.folder.iterdir()} == {"t-30-000", "t-60-000"}
    assert [(found.environment, found.horizon) for found in joined.entries if found.policy == "SW-LinUCB"] == [
        ("T = 30,000", 30),
        ("T = 60,000", 60),
    ]
    for part in ("t-30-000", "t-60-000"):
        recipe = Results.open(joined.folder / part).recipe
        assert recipe == {"name": "paper", "paper": "cheung2019", "arms": "two", "bonus_scale": 1.0, "part": part}
    with rejects(error=FolderError, path=joined.folder, code="no_experiment") as caught:
        Results.open(joined.folder)  # which of them is meant?
    assert caught.value.problem.endswith("name one of its parts: t-30-000, t-60-000")


def test_the_report_of_several_horizons_has_them_side_by_side(joined: Results) -> None:
    files = {path.name for path in present(joined)}
    assert {"report.html", "horizons.svg", "regret-t-30-000.svg", "regret-t-60-000.svg"} <= files
    page = (joined.folder / "report.html").read_text(encoding="utf-8")
    assert "SW-LinUCB while the means of two arms swing" in page
    for heading in ("Where this differs from the published result", "Known errors of the publication"):
        assert heading in page


def test_options_that_a_paper_does_not_have_are_refused() -> None:
    with rejects("horizon"):
        read_reproduction("cheung2019").build_specs(horizon=100)
    with rejects("horizon", value=5000):
        read_reproduction("baudry2021-bernoulli").build_specs(horizon=5000)
    assert read_reproduction("baudry2021-bernoulli").build_specs(horizon=5001)[0].horizon == 5001
    with rejects("arms"):
        read_reproduction("russac2019").build_specs(arms="ball")
    with rejects("paper"):
        read_reproduction("nobody2000")


def test_notes_have_no_empty_sections(tmp_path: Path) -> None:
    reproduction = read_reproduction("faury2021")
    spec = reproduction.build_specs(runs=2, horizon=30)[0]
    notes = reproduction.write_notes(simulate(spec, tmp_path, jobs=1).entries, "ball", 1.0)
    assert list(notes) == [
        "Where this differs from the published result",
        "Readings assumed where the paper is silent or contradicts itself",
    ]
    assert notes["Where this differs from the published result"] == [
        "Nothing to compare: only 3000 rounds were published."
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["russac2019", "russac2019-abrupt"])
def test_the_figures_of_russac_2019_come_out(name: str, tmp_path: Path) -> None:
    """With the error of the public code every policy agrees with the published figure; D-LinUCB itself does not."""
    reproduction = read_reproduction(name)
    results = run_reproduction(reproduction, tmp_path / "out", simulate_part)
    errors = {comparison.policy: max(comparison.errors) for comparison in reproduction.compare(results.entries)}
    assert errors.pop("D-LinUCB") > 5
    assert {"D-LinUCB, public code", "SW-LinUCB", "LinUCB"} <= errors.keys()
    assert max(errors.values()) < 4  # standard errors, of up to eighteen comparisons
