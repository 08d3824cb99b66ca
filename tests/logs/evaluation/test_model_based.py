"""The fitted model: the smoother against its formulas, and simulations of a model that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.logged_worlds import write_logs
from windvane import get_link
from windvane.logs import evaluate
from windvane.logs.evaluation.model_based import fit_path
from windvane.logs.evaluation.propensity_model import CLIP, PropensityModel
from windvane.logs.evaluation.survey import survey_log
from windvane.logs.evaluation.tracks import ModelFit, fit_rewards


def filter_naively(x: np.ndarray, r: np.ndarray, a: float, q: float, *, ends_with_row: bool) -> tuple[list, list]:
    """The extended Kalman filter with implicit steps, with full matrices: theta and P at every row."""
    from scipy.optimize import brentq

    mu, theta, P = get_link("logistic").mean, np.zeros(x.shape[1]), q * np.eye(x.shape[1])
    thetas, Ps = [], []
    for row, reward in zip(x, r, strict=True):
        if not ends_with_row:
            thetas.append(theta), Ps.append(P)
        z, v = row @ theta, row @ P @ row
        alpha = brentq(lambda b, z=z, v=v, reward=reward: b - reward + float(mu(z + v * b)), -1.0, 1.0, xtol=1e-14)
        s = float(get_link("logistic").slope(z + v * alpha))
        theta, P = theta + P @ row * alpha, P - s / (1 + s * v) * np.outer(P @ row, P @ row)
        if ends_with_row:
            thetas.append(theta), Ps.append(P)
        theta, P = a * theta, a * a * P + (1 - a * a) * q * np.eye(x.shape[1])
    return thetas, Ps


@pytest.mark.parametrize("memory", [40.0, np.inf])
def test_the_path_combines_two_filters(memory: float, tmp_path: Path) -> None:
    logs = write_logs(lanes=1, rows=200, epsilon=1.0, logger="fixed", seed=40)
    log = logs.log(0)
    path = fit_path(log, survey_log(log), ModelFit(memory=memory, scale=3.0, effective_memory=memory), tmp_path)
    x, r, q = logs.x[:, 0].astype(np.float32).astype(float), logs.reward[:, 0], 3.0**2 / 3
    a = 1.0 - 1.0 / memory
    forward = filter_naively(x, r, a, q, ends_with_row=False)
    backward = [list(reversed(part)) for part in filter_naively(x[::-1], r[::-1], a, q, ends_with_row=True)]
    for row in path.rows.astype(int):
        inverses = [np.linalg.inv(part[1][row]) for part in (forward, backward)]
        pull = sum(inverse @ part[0][row] for inverse, part in zip(inverses, (forward, backward), strict=True))
        expected = np.linalg.solve(sum(inverses) - np.eye(3) / q, pull)
        assert path.at(row, row + 1)[0] == pytest.approx(expected, abs=1e-6)
    assert path.length > 0.0 or memory == np.inf


def test_a_path_without_drift_does_not_move(tmp_path: Path) -> None:
    logs = write_logs(lanes=1, rows=300, epsilon=1.0, logger="fixed", seed=41)
    path = fit_path(
        logs.log(0), survey_log(logs.log(0)), ModelFit(memory=np.inf, scale=3.0, effective_memory=100.0), tmp_path
    )
    assert np.ptp(path.thetas, axis=0) == pytest.approx(np.zeros(3), abs=0.2)


def test_looking_both_ways_is_better_than_looking_back(tmp_path: Path) -> None:
    """The fitted means are closer to the true ones than those of the reward model, which knows the past only."""
    logs = write_logs(lanes=1, rows=4000, epsilon=1.0, logger="fixed", seed=42)
    log, survey = logs.log(0), survey_log(logs.log(0))
    fit = fit_rewards(log, survey, tmp_path, 0)
    path = fit_path(log, survey, fit, tmp_path)
    fitted = get_link("logistic").mean(np.einsum("nkd,nd->nk", logs.arms[:, 0], path.at(0, 4000)))
    q = np.load(tmp_path / "q.npy")
    assert np.mean((fitted - logs.means[:, 0]) ** 2) < 0.7 * np.mean((q - logs.means[:, 0]) ** 2)


def test_the_simulation_is_right_if_the_model_is() -> None:
    logs = write_logs(lanes=1, rows=4000, epsilon=1.0, logger="fixed", seed=43)
    found = evaluate(logs.log(0), "UniformRandom", estimands=["model"])["UniformRandom"].model
    # Uniform play in the fitted model is the mean over all arms of the fitted means: 0.02 is the error of 4,000 rewards
    # (0.008) and of the fit.
    assert found.value.value == pytest.approx(logs.means.mean(), abs=0.02)
    assert found.log_value == pytest.approx(logs.reward.mean(), abs=0.02)
    assert found.value.low is None
    assert "if the model is right" in found.value.caveat


def test_the_answer_says_that_it_depends_on_the_model() -> None:
    logs = write_logs(lanes=1, rows=400, epsilon=1.0, logger="fixed", seed=43)
    assert evaluate(logs.log(0), "OFUL", estimands=["model"]).answer.startswith(
        "If the model is right, OFUL would have"
    )


def test_estimated_probabilities_follow_the_log_and_are_predictable() -> None:
    logs = write_logs(lanes=1, rows=6000, epsilon=0.5, logger="fixed", seed=44)
    arms, played, valid = logs.arms[:, 0], logs.played[:, 0], np.ones((6000, 4), dtype=bool)
    p = PropensityModel(3, 4, 1.0).estimate(arms, valid, played)
    every = np.arange(3000, 6000)
    loss = -np.log(p[every, played[every]]).mean()
    assert loss < 0.9 * np.log(4.0)  # better than a guess; the best possible is the entropy of the log
    assert loss > -np.log(logs.propensity[every, 0]).mean() - 0.02
    assert (p >= CLIP / 4).all()
    changed = played.copy()
    changed[3000:] = 0
    assert (PropensityModel(3, 4, 1.0).estimate(arms, valid, changed)[:3001] == p[:3001]).all()
