"""Predictions and bonuses of arms: for the record of a decision, and without a decision."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from windvane.agent.pending import Pending
from windvane.agent.times import Clock
from windvane.agent.vectors import Offer
from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.policies.adaptive_glm_ucb import AdaptiveGLMUCB
from windvane.policies.base import Policy
from windvane.policies.info import DecisionInfo
from windvane.policies.inputs import Feedback
from windvane.records import Prediction

ONE_LANE = np.array([True])  # the mask of the lane that has a reward
ONE_WEIGHT = np.array([1.0])


class Preview(NamedTuple):
    """A prediction for each arm in the order of the offer, and their indices from the most to the least preferred."""

    predictions: list[Prediction]
    ranking: list[int]


Due = list[tuple[Pending, float, float]]
"""Decisions whose timeout has passed, with the outcomes to be learned and their weights."""


def preview(policy: Policy, clock: Clock, offer: Offer, at: float, due: Due) -> Preview:
    """Return the predictions of ``policy`` for the arms at the time ``at``. Nothing changes: a copy decides.

    ``due``: the outcomes that a decision at that time would learn first.
    """
    twin = copy.deepcopy(policy)
    for pending, outcome, weight in due:
        learn_outcome(twin, pending, outcome, weight)
    copy.copy(clock).pass_to(at, twin)
    preferred = int(twin.select(offer.vectors[None])[0])
    scored, scores = read_scores(twin)
    arms = []
    for i, (name, score) in enumerate(zip(offer.names, scores.tolist(), strict=True)):
        prediction = predict_mean(twin, scored, offer.vectors[i], i)
        arms.append(Prediction(arm=name, prediction=prediction, bonus=score - prediction, score=score))
    order = scores if scored.order is None else scored.order[0]
    others = [int(i) for i in np.argsort(-order, kind="stable") if i != preferred]
    return Preview(arms, [preferred, *others])


def learn_outcome(policy: Policy, pending: Pending, outcome: float, weight: float) -> None:
    """Let a policy learn an outcome, which needs no check: the vector, the round and the reward were checked before."""
    age = np.array([policy.latest_round - pending.round])
    weights = ONE_WEIGHT if weight == 1.0 else np.array([weight])
    x, rewards, rounds = pending.x[None], np.array([outcome]), np.array([pending.round])
    policy.receive(Feedback(x, rewards, rounds, age, weights, ONE_LANE))


def read_scores(policy: Policy) -> tuple[DecisionInfo, Array]:
    """Return how the last decision was made, and the scores of its arms."""
    scored = policy.decision  # info() would take a tenth of a decision's time
    if scored is None or scored.scores is None:
        hint = "end `select` with `play`"
        raise ArgumentError("policy", policy.name, "one that records the scores of its decisions", hint=hint)
    return scored, scored.scores[0]


def predict_mean(policy: Policy, scored: DecisionInfo, vector: Array, index: int) -> float:
    """Return the predicted mean reward of an arm of the last decision; its score where there is no prediction."""
    if scored.means is not None:
        return float(scored.means[0, index])
    if scored.theta_hat is not None:
        return float(policy.reward_link.mean(vector @ scored.theta_hat[0]))
    assert scored.scores is not None  # read_scores has returned them
    return float(scored.scores[0, index])


def is_projected(policy: Policy, decision: DecisionInfo) -> bool | None:
    """Whether the estimate of ``decision`` lay outside the ball of radius S; None without such a ball."""
    if decision.projection is not None:
        return bool(decision.projection.stage[0] > 1)  # stage 1: no projection was needed
    if isinstance(policy, AdaptiveGLMUCB) and policy.S is not None and decision.theta_hat is not None:
        theta = decision.theta_hat[0]
        return math.sqrt(theta @ theta) > policy.S
    return None
