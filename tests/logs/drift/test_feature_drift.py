"""Score tests per feature: their critical values, their level if information is uneven, and the curves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE, is_plausible, simulate
from windvane import AdaptiveGLMUCB
from windvane.arguments import Array
from windvane.environments import Arc, Static
from windvane.logs.drift.feature_drift import (
    PARAMETRIC,
    SIGNS,
    compute_curves,
    find_feature_drifts,
    run_fixed_sample_test,
)
from windvane.logs.drift.logistic_fit import fit_logistic
from windvane.logs.drift.rows import read_rows
from windvane.logs.drift.score_process import (
    CELLS,
    build_process,
    correct,
    holm,
    measure_joint,
    measure_statistics,
    observe,
    p_values,
    resample_signs,
    simulate_rewards,
)

SUP, SQUARE = 1.358, 0.470  # 5 % critical values of a Brownian bridge
COARSE = 0.5826 / math.sqrt(CELLS)  # how far the supremum over a grid is below that over the line (Siegmund)


def quantile_error(lanes: int, density: float) -> float:
    """Four standard errors of an empirical 95 % quantile."""
    return 4.0 * math.sqrt(0.05 * 0.95 / lanes) / density


def draw(seed: int, n: int, scales: Array) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, scales.shape[1])) * scales
    return x, (rng.random(n) < 1.0 / (1.0 + np.exp(-x.sum(axis=1)))).astype(float)


@pytest.mark.parametrize("kind", ["signs", "rewards"])
def test_with_steady_information_the_critical_values_are_those_of_a_brownian_bridge(kind: str) -> None:
    lanes, (x, reward) = 4000, draw(0, 4000, np.ones((4000, 1)))
    process, rng = build_process(x, reward), np.random.default_rng(1)
    drawn = resample_signs(process, lanes, rng) if kind == "signs" else simulate_rewards(x, process, lanes, rng)
    # Densities at the quantiles: 8 x exp(-2 x^2) at 1.358; about 0.05 pi^2 / 2 for the tail exp(-pi^2 x / 2).
    largest, square = np.quantile(drawn.largest, 0.95), np.quantile(drawn.square, 0.95)
    assert abs(largest - (SUP - COARSE)) <= quantile_error(lanes, 8.0 * SUP * math.exp(-2.0 * SUP**2))
    assert abs(square - SQUARE) <= quantile_error(lanes, 0.05 * math.pi**2 / 2.0)


def uneven(n: int) -> Array:
    """The second feature has nearly all its information in the first tenth of the rows."""
    return np.stack([np.ones(n), np.where(np.arange(n) < n // 10, 2.0, 0.05)], axis=1)


def test_with_uneven_information_the_critical_values_differ_and_the_level_is_right() -> None:
    n, trials = 1000, 150
    x, reward = draw(0, n, uneven(n))
    square = np.quantile(resample_signs(build_process(x, reward), 1000, np.random.default_rng(0)).square, 0.95, axis=0)
    assert square[1] < 0.5 * SQUARE
    rejections = np.zeros(5)
    for seed in range(trials):
        x, reward = draw(seed + 1, n, uneven(n))
        process = build_process(x, reward)
        seen, drawn = observe(process), resample_signs(process, 199, np.random.default_rng(seed))
        p = [*p_values(seen.largest[0], drawn.largest), *p_values(seen.square[0], drawn.square)]
        rejections += np.array([*p, p_values(seen.joint[0], drawn.joint)]) <= 0.05
    for count in rejections:
        assert stats.binomtest(int(count), trials, 0.05, alternative="greater").pvalue > SURE


def test_the_statistics_of_a_known_process() -> None:
    x, reward = draw(2, 900, np.ones((900, 2)))
    process = build_process(x, reward, fit_logistic(x, reward).theta)
    mu = 1.0 / (1.0 + np.exp(-x @ process.theta))
    ends = np.append(0, np.cumsum(np.bincount(np.searchsorted(process.ends, np.arange(900), side="right"))))[1:]
    total = np.cumsum(x * (reward - mu)[:, None], axis=0)[ends - 1]
    np.testing.assert_allclose(process.scores, total, atol=1e-9)
    J = (x.T * (mu * (1 - mu))) @ x
    np.testing.assert_allclose(process.information[-1], J)
    w = total @ np.linalg.inv(J) / np.sqrt(np.diag(np.linalg.inv(J)))
    seen = observe(process)
    np.testing.assert_allclose(seen.largest[0], np.abs(w).max(axis=0), atol=1e-6)
    np.testing.assert_allclose(seen.square[0], np.square(w).mean(axis=0), atol=1e-6)
    joint = np.einsum("ci,ij,cj->c", total, np.linalg.inv(J), total).mean()
    assert seen.joint[0] == pytest.approx(joint, abs=1e-6)
    scores = correct(process, process.scores[None])
    assert measure_joint(process, scores, 2)[0] == pytest.approx(joint, abs=1e-6)
    assert measure_statistics(process, scores).joint[0] == pytest.approx(joint, abs=1e-6)
    assert abs(correct(process, np.cumsum(np.ones((1, len(process.ends), 2)), axis=1))[0, -1]).max() < 1e-9


def test_holm() -> None:
    assert holm(np.array([0.5, 0.001, 0.02])).tolist() == pytest.approx([0.5, 0.003, 0.04])
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_the_feature_that_drifts_is_named() -> None:
    rng, n = np.random.default_rng(4), 3000
    from windvane.logs import from_arrays

    x = rng.uniform(-1.0, 1.0, size=(n, 3))
    z = x @ [1.0, -1.0, 0.0] + 3.0 * x[:, 2] * np.arange(n) / n
    log = from_arrays(x[:, None], np.zeros(n, dtype=int), (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float),
                      names=["a", "b", "c"], is_adaptive=False)  # fmt: skip
    rows = read_rows(log)
    drifts = find_feature_drifts(rows, build_process(rows.x, rows.reward), 400.0, 0.05, seed=0)
    assert [feature.name for feature in drifts.features if feature.drifts] == ["c"]
    assert drifts.test.p == drifts.test.smallest_p == 0.001
    assert drifts.test.joint_p <= 0.002
    assert drifts.left_out == ()
    assert len(drifts.features[2].theta) == len(drifts.decisions) == 60
    truth = 3.0 * np.arange(n)[np.array(drifts.decisions, dtype=int) - 1] / n
    inside = (np.array(drifts.features[2].low) <= truth) & (truth <= np.array(drifts.features[2].high))
    assert inside.mean() >= 0.7  # pointwise 95 %, and neighbours share rows


def test_the_bands_cover_a_constant_coefficient() -> None:
    lanes, inside = 30, []
    past = simulate(Static(), rounds=1200, lanes=lanes, seed=5)
    for lane in range(lanes):
        middles, thetas, errors, width = compute_curves(read_rows(past.log(lane)), 100.0)
        assert len(middles) == 60
        assert width == 100.0
        inside.append(abs(thetas[30] - past.theta[lane, 0]) <= 1.96 * errors[30])
    assert is_plausible(int(np.sum(inside)), 2 * lanes, 0.95)


def test_the_test_of_rare_rewards_draws_rewards_and_that_of_fractions_draws_signs() -> None:
    past = simulate(Arc(angle=3.0), rounds=600, lanes=1)
    rows = read_rows(past.log(0))
    process = build_process(rows.design, rows.reward)
    found = run_fixed_sample_test(rows, process, 0)
    assert (found.method, found.smallest_p) == (PARAMETRIC, 0.001)
    assert found.p == min(1.0, 2.0 * min(found.joint_p, found.largest_p))
    fractions = replace(rows, reward=0.5 + 0.5 * (rows.reward - 0.5))
    assert run_fixed_sample_test(fractions, build_process(rows.design, fractions.reward), 0).method == SIGNS


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["uniform", "adaptive"])
@pytest.mark.parametrize("dim", [2, 5])
def test_the_level_of_the_fixed_sample_p_value(dim: int, logger: str) -> None:
    lanes = 300
    policy = AdaptiveGLMUCB(dim=dim, lanes=lanes, L=1.0) if logger == "adaptive" else None
    past = simulate(Static(), rounds=1000, lanes=lanes, seed=6, dim=dim, policy=policy)
    rejections = 0
    for lane in range(lanes):
        rows = read_rows(past.log(lane))
        rejections += run_fixed_sample_test(rows, build_process(rows.design, rows.reward), lane).p <= 0.05
    assert stats.binomtest(rejections, lanes, 0.05, alternative="greater").pvalue > SURE
