"""Cases that a review of the contract found: each was silent or wrong once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import windvane
from support.refusals import refuses
from windvane import BVDGLMUCB, DGLMTS, CustomLink, Discount, MaximumLikelihoodEstimator, Restart, Window
from windvane.kernels.projection import P2
from windvane.policies.optimism import EstimatingPolicy

ARMS = np.array([[[1.0, 0.0], [0.0, 1.0]]])


@pytest.mark.parametrize("rule", [Restart(5), Window(5.0)])
def test_a_rule_that_a_policy_cannot_follow_is_refused(rule: Any) -> None:
    with refuses("forgetting"):
        BVDGLMUCB(2, forgetting=rule)
    if isinstance(rule, Restart):
        with refuses("forgetting"):
            MaximumLikelihoodEstimator(2, forgetting=rule)


def test_arrays_of_another_shape_do_not_reach_a_kernel() -> None:
    policy = BVDGLMUCB(2, gamma=0.9, lanes=3)
    arms = np.tile(ARMS, (3, 1, 1))
    with refuses("beta"):
        policy.estimator.project(P2, np.ones(1))
    with refuses("theta"):
        policy.predict(arms, np.zeros((1, 2)))
    with refuses("multiplier"):
        policy.bonus(arms, np.ones(1))
    with refuses("scores"):
        policy.play(np.zeros((3, 1)), np.ones((3, 2), dtype=bool))


class Steep(EstimatingPolicy):
    """Scores that are what the test says."""

    name = "steep"
    scores: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.estimator = MaximumLikelihoodEstimator(self.dim)

    def select(self, arms: Any, valid: Any = None) -> Any:
        arms, valid = self.check_arms(arms, valid)
        return self.play(np.array([self.scores]), valid)


@pytest.mark.parametrize("scores", [(np.inf, np.inf), (1.0, np.inf), (np.nan, np.nan)])
def test_infinite_scores_never_play_an_absent_arm(scores: tuple[float, float]) -> None:
    policy = Steep(2, scores=scores)
    assert policy.select(ARMS, np.array([[False, True]])) == [1]


def test_a_singular_lane_does_not_change_its_neighbour() -> None:
    def play(lanes: list[int]) -> np.ndarray:
        policy = DGLMTS(2, gamma=0.99, lam=1e-5, lanes=lanes)
        for _ in range(3):
            arms = np.tile(ARMS, (len(lanes), 1, 1))
            policy.select(arms)
            policy.update(arms[:, 0], 1.0, weight=np.where(np.array(lanes) == 0, 1e12, 1.0))
        return policy.info().theta_tilde[lanes.index(1)]

    np.testing.assert_array_equal(play([0, 1]), play([1]))


def test_whole_numbers_and_floats_are_the_same_settings() -> None:
    state = BVDGLMUCB(2, gamma=0.9, S=2).state()
    BVDGLMUCB(2, gamma=0.9, S=2.0).load_state(state)
    assert BVDGLMUCB(2, gamma=0.9, seed=2**53).config_hash != BVDGLMUCB(2, gamma=0.9, seed=2**53 + 1).config_hash


def test_every_lane_of_master_has_a_state() -> None:
    lane = windvane.MasterOFUL(2, horizon=100).policies[0]
    lane.select(ARMS)
    lane.load_state(lane.state())


def test_a_pickled_policy_holds_no_compiled_code() -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    before = len(pickle.dumps(policy))
    policy.select(ARMS)
    assert len(pickle.dumps(policy)) < before + 1500  # the record of a decision


def test_a_custom_link_that_raises_leaves_every_lane_as_it_was() -> None:
    limit = [np.inf]

    def mean(z: np.ndarray) -> np.ndarray:
        if (np.abs(z) > limit[0]).any():
            raise RuntimeError("out of range")
        return 1.0 / (1.0 + np.exp(-z))

    link = CustomLink("touchy", mean, lambda z: np.exp(-np.abs(z)) / (1.0 + np.exp(-np.abs(z))) ** 2)
    policy = BVDGLMUCB(1, link, gamma=0.9, lanes=2)
    x = np.array([[0.1], [1.0]])
    for _ in range(3):
        policy.select(x[:, None])
        policy.update(x, 1.0)
    policy.select(x[:, None])
    before, limit[0] = policy.state(), 0.2
    with pytest.raises(RuntimeError):
        policy.update(x, 1.0)
    limit[0] = np.inf
    after = policy.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_ragged_arms_are_refused() -> None:
    with refuses("arms"):
        BVDGLMUCB(2, gamma=0.9).select([[[1.0, 0.0], [1.0]]])


def test_a_restart_in_the_first_round_is_the_same_after_loading() -> None:
    policy, other = (BVDGLMUCB(2, forgetting=Discount(0.9)) for _ in range(2))
    policy.restart()
    other.load_state(policy.state())
    for each in (policy, other):
        each.select(ARMS)
        each.update(ARMS[:, 0], 1.0, round=0.5)
    assert (policy.estimator.remembered == other.estimator.remembered).all()


def test_predictions_do_not_change_the_record_of_the_last_decision() -> None:
    policy = BVDGLMUCB(2, gamma=0.9)
    policy.select(ARMS)
    record = policy.info(estimates=False).decision
    assert record is not None
    means = record.means
    policy.predict(ARMS, np.ones((1, 2)))
    assert record.means is means
    policy.select(ARMS)
    assert policy.info(estimates=False).decision is not record
