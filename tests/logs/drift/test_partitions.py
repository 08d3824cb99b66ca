"""Evidence from groups of rows: which groups, that it is bounded by the true likelihood ratio, and its level."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE, examine
from windvane.agent.features import Features
from windvane.logs import ArrayLog, LogSchema, from_arrays
from windvane.logs.drift.coding import find_row_space
from windvane.logs.drift.evidence import SHARE_WEIGHTS, SHARES, combine_groups, compute_group_curves
from windvane.logs.drift.logistic_fit import log_likelihoods
from windvane.logs.drift.partitions import ARMS, CELLS, MOST_GROUPS, WEIGHTS, list_partitions
from windvane.logs.drift.replay import divide, list_memories, replay_experts
from windvane.logs.drift.rows import RewardedRows, read_rows

ARM_NAMES, DEVICES = ("a", "b", "c"), ("phone", "desktop")
FEATURES = Features(by_arm={"device": list(DEVICES)}, arms=ARM_NAMES)


def draw_shop(n: int, seed: int, *, change: int | None = None, rate: float = 0.1) -> ArrayLog:
    """Three arms on two devices, drawn uniformly; from row ``change`` on, phones like "a" much more."""
    rng = np.random.default_rng(seed)
    offers = np.stack([FEATURES.vectors({"device": device}, ARM_NAMES) for device in DEVICES])
    device, played = rng.integers(2, size=n), rng.integers(3, size=n)
    chance = np.full(n, rate)
    if change is not None:
        chance[(np.arange(n) >= change) & (device == 0) & (played == 0)] = 4.0 * rate
    log = from_arrays(offers[device], played, (rng.random(n) < chance).astype(float))
    schema = vars(log.schema) | {"features": FEATURES, "arms": ARM_NAMES, "names": tuple(FEATURES.names)}
    return ArrayLog(LogSchema(**schema), log.rows)


def predict(rows: RewardedRows, index: np.ndarray) -> np.ndarray:
    """The log likelihood of the mixture of both banks after each row of a group, in the coordinates of the log."""
    some, ends = rows.restrict(index, np.eye(rows.dim)), np.arange(1, len(index) + 1)
    level = replace(some, x=np.full((len(index), 1), rows.schema.L))
    losses = np.concatenate([replay_experts(each, list_memories(rows), ends)[0] for each in (some, level)], axis=1)
    return np.logaddexp.reduce(-np.cumsum(losses, axis=0), axis=1) - math.log(losses.shape[1])


def test_the_groups_are_arms_and_cells() -> None:
    rows = read_rows(draw_shop(600, 0))
    arms, cells = list_partitions(rows)
    assert (arms.name, sorted(arms.labels)) == (ARMS, list(ARM_NAMES))
    assert cells.name == CELLS
    assert sorted(cells.labels) == sorted(f"{arm}: device = {device}" for arm in ARM_NAMES for device in DEVICES)
    for i, label in enumerate(cells.labels):
        arm = ARM_NAMES.index(label[0])
        assert set(rows.arm[cells.group == i]) == {arm}
    assert sum(WEIGHTS.values()) == 1.0
    assert SHARES[-1] == 1.0 / MOST_GROUPS


def test_cells_that_differ_in_a_number_that_is_0_have_different_names() -> None:
    vectors = np.array([[1.0, 0.5], [1.0, 0.0], [0.0, 0.5]])
    rows = read_rows(from_arrays(vectors[:, None].repeat(50, axis=0), [0] * 150, [1.0, 0.0] * 75))
    schema = LogSchema(**vars(rows.schema) | {"arms": ("a",), "names": ("a: device = phone", "a: hour")})
    (cells,) = list_partitions(replace(rows, schema=schema))
    assert sorted(cells.labels) == ["a", "a: device = phone", "a: device = phone, hour encoded as 0"]


def test_dense_vectors_have_no_groups_and_too_many_groups_are_left_out() -> None:
    rng = np.random.default_rng(0)
    dense = from_arrays(rng.normal(size=(100, 2, 3)), rng.integers(2, size=100), rng.integers(2, size=100))
    assert list(list_partitions(read_rows(dense))) == []
    sparse = from_arrays(np.eye(70)[rng.integers(70, size=3000)][:, None], [0] * 3000, rng.integers(2, size=3000))
    assert list(list_partitions(read_rows(sparse))) == []


def test_predictions_do_not_depend_on_the_basis() -> None:
    """The prior is isotropic in the coordinates of the log, so the rank of a group does not change it."""
    rows = read_rows(draw_shop(300, 1))
    ends, memories = divide(300, 10), list_memories(rows)
    losses, _ = replay_experts(rows, memories, ends)
    reduced = rows.restrict(np.arange(300), find_row_space(rows.x))
    assert reduced.dim < rows.dim
    np.testing.assert_allclose(replay_experts(reduced, memories, ends)[0], losses, rtol=1e-7, atol=1e-8)


def test_the_evidence_of_a_group_is_below_the_likelihood_ratio_of_the_truth() -> None:
    rows = read_rows(draw_shop(800, 2))
    ends, (_, cells) = divide(800, 20), list_partitions(rows)
    curves = compute_group_curves(rows, cells, ends)
    truth = log_likelihoods(np.full(800, math.log(0.1 / 0.9)), rows.reward)
    for group, curve in enumerate(curves):
        index = np.flatnonzero(cells.group == group)
        ratio = predict(rows, index) - np.cumsum(truth[index])
        seen = np.searchsorted(index, ends)
        assert (curve <= np.where(seen, ratio[seen - 1], 0.0) + 1e-9).all()


def test_groups_are_combined_as_the_formula_says() -> None:
    curves = np.log(np.array([[1.0, 3.0], [0.5, 40.0], [0.01, 1e-9]]))
    products = [[np.prod(1.0 - s + s * np.exp(curves[:, t])) for s in SHARES] for t in range(2)]
    expected = np.array(products) @ SHARE_WEIGHTS
    assert SHARE_WEIGHTS.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.exp(combine_groups(curves)), expected)


def test_a_cell_that_drifts_is_seen_though_the_others_rest() -> None:
    examined = examine(draw_shop(3000, 3, change=1500))
    assert examined.evidence.verdict == "drift"
    assert examined.evidence.groups[0].group == "a: device = phone"


def count_alarms(lanes: int, seed: int) -> int:
    return sum(examine(draw_shop(1500, seed + lane)).evidence.verdict == "drift" for lane in range(lanes))


def test_false_alarms() -> None:
    assert stats.binomtest(count_alarms(20, 100), 20, 0.05, alternative="greater").pvalue > SURE


@pytest.mark.slow
def test_false_alarms_in_many_logs() -> None:
    assert stats.binomtest(count_alarms(400, 1000), 400, 0.05, alternative="greater").pvalue > SURE


@pytest.mark.slow
def test_the_martingale_of_groups_rarely_becomes_large() -> None:
    """Ville's inequality for the combination itself, with the true likelihood instead of the supremum."""
    alarms, lanes, n = 0, 400, 200
    for seed in range(lanes):
        rows = read_rows(draw_shop(n, 5000 + seed))
        ends, (_, cells) = divide(n, 40), list_partitions(rows)
        truth, curves = log_likelihoods(np.full(n, math.log(0.1 / 0.9)), rows.reward), []
        for group in range(len(cells.labels)):
            index = np.flatnonzero(cells.group == group)
            ratio = predict(rows, index) - np.cumsum(truth[index])
            seen = np.searchsorted(index, ends)
            curves.append(np.where(seen, ratio[seen - 1], 0.0))
        alarms += bool(combine_groups(np.array(curves)).max() >= math.log(20.0))
    assert stats.binomtest(alarms, lanes, 0.05, alternative="greater").pvalue > SURE
