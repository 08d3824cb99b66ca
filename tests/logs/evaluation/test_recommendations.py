"""The value of recommendations, against a transcription that reads the log row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from naive.off_policy import NaiveEvaluation
from support.logged_worlds import follow, write_logs
from windvane import DLinUCB, UniformRandom, get_policy
from windvane.errors import ArgumentError
from windvane.logs import ArrayLog, evaluate
from windvane.logs.evaluation.contenders import build_contender, list_contenders
from windvane.logs.evaluation.recommendations import THRESHOLD
from windvane.logs.evaluation.scores import choose_limits
from windvane.logs.evaluation.tracks import build_reward_model
from windvane.policies.registry import POLICIES

ROWS = 500


def rough_log(*, has_all: bool, has_weights: bool = False) -> ArrayLog:
    """A log with late and missing rewards, absent arms, rows that are not to be learned, and maybe weights."""
    logs, rng = write_logs(lanes=1, rows=ROWS, epsilon=0.4, late=True, seed=7), np.random.default_rng(8)
    log = logs.log(0, has_all=has_all)
    rows = log.rows
    reward, arrived = rows.reward.copy(), rows.reward_time.copy()
    is_missing = rng.random(ROWS) < 0.05
    reward[is_missing], arrived[is_missing] = np.nan, np.inf
    valid = rows.valid.copy()
    is_smaller = (rows.played != 3) & (rng.random(ROWS) < 0.2)
    valid[is_smaller, 3] = False
    p = rows.probabilities
    if p is not None:  # still probabilities: the others share that of the arm that is not on offer
        p = np.where(valid, p + (p[:, 3] / 3 * ~valid[:, 3])[:, None], 0.0)
    changed = replace(
        rows, reward=reward, reward_time=arrived, valid=valid, arms=np.where(valid[:, :, None], rows.arms, 0.0),
        is_learned=rng.random(ROWS) < 0.9, probabilities=p,
        propensity=rows.propensity if p is None else p[np.arange(ROWS), rows.played],
        weight=rng.choice([1.0, 2.0, 5.0], ROWS) if has_weights else rows.weight,
    )  # fmt: skip
    return ArrayLog(replace(log.schema, reward_range=(-1.0, 3.0)), changed)


def to_rows(log: ArrayLog) -> list[dict]:
    r = log.rows
    fields = ("time", "reward_time", "arms", "valid", "played", "propensity", "reward", "weight", "is_learned")
    return [
        {name: getattr(r, name)[i] for name in fields} | {"p": None if r.probabilities is None else r.probabilities[i]}
        for i in range(len(r))
    ]


def transcribe(log: ArrayLog, name: str, epsilon: float) -> NaiveEvaluation:
    policy = build_contender(list_contenders(name)[0].spec, log.schema, ROWS, lanes=1, seed=0)
    return NaiveEvaluation(to_rows(log), policy, build_reward_model(log.schema, 0), epsilon, log.schema.floor)


@pytest.mark.parametrize(
    ("has_all", "has_weights", "epsilon"), [(True, False, 0.0), (False, False, 0.1), (True, True, 0.2)]
)
def test_all_numbers_are_those_of_the_transcription(has_all: bool, has_weights: bool, epsilon: float) -> None:
    log, names = rough_log(has_all=has_all, has_weights=has_weights), ["D-LinUCB(gamma=0.95)", "UniformRandom"]
    result = evaluate(log, names, estimands=["recommendations"], epsilon=epsilon)
    limits = choose_limits(log.schema.floor, has_all=has_all).tolist()
    naive = [transcribe(log, name, epsilon) for name in names]
    for name, transcript in zip(names, naive, strict=True):
        found = result[name].recommendations
        expected = transcript.variants(THRESHOLD)
        assert found.weights.effective_sample_size == pytest.approx(expected.pop("ess"), rel=1e-9)
        for variant, value in expected.items():
            assert found.variants[variant].value == pytest.approx(4.0 * value - 1.0, abs=1e-9), variant
        low, high = transcript.interval(limits, 0.05)
        assert found.value.low == pytest.approx(4.0 * low - 1.0, abs=1e-6)
        assert found.value.high == pytest.approx(4.0 * high - 1.0, abs=1e-6)
        assert found.checkpoints[-1].low == found.value.low
    low, high = naive[0].interval(limits, 0.05, naive[1])
    difference = result.comparisons[0].difference
    assert (difference.low, difference.high) == pytest.approx((4.0 * low, 4.0 * high), abs=1e-6)
    assert difference.value == pytest.approx(
        result[names[0]].recommendations.variants["dr"].value - result[names[1]].recommendations.variants["dr"].value
    )


def test_the_difference_to_the_log_is_that_of_the_transcription() -> None:
    """With all probabilities the log is a policy like any other; without, its rewards are subtracted."""
    log = rough_log(has_all=True)
    naive, rows = transcribe(log, "OFUL", 0.0), to_rows(log)
    logged = transcribe(log, "OFUL", 0.0)
    logged.pi = [list(row["p"]) for row in rows]
    low, high = naive.interval(choose_limits(log.schema.floor, has_all=True).tolist(), 0.1, logged)
    found = evaluate(log, "OFUL", estimands=["recommendations"], alpha=0.1)["OFUL"].recommendations.difference_to_log
    assert (found.low, found.high) == pytest.approx((4.0 * low, 4.0 * high), abs=1e-6)
    log = rough_log(has_all=False)
    found = evaluate(log, "OFUL", estimands=["recommendations"])["OFUL"].recommendations.difference_to_log
    naive = transcribe(log, "OFUL", 0.0)
    scores = [naive.score(pi, q, row) - row["reward"] for pi, q, row in naive.evaluated()]
    assert found.value == pytest.approx(4.0 * np.mean(scores))
    assert found.low < found.value < found.high


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "OFUL", "Greedy(gamma=0.95)"])
def test_a_policy_in_lanes_recommends_the_same(name: str) -> None:
    """The simulations of the coverage tests and ``evaluate`` agree, so what holds there holds here."""
    logs = write_logs(lanes=3, rows=150, epsilon=0.5, late=True, seed=9)
    contender = list_contenders(name)[0]
    log = logs.log(1)
    policy = build_contender(contender.spec, replace(log.schema, L=1.0), 150, lanes=3, seed=0)
    model = get_policy("AdaptiveGLMUCB")(dim=3, lanes=3)
    log.schema = replace(log.schema, L=1.0)
    pi, q = follow(logs, policy)[0][:, 1], follow(logs, model)[1][:, 1].astype(np.float32).astype(float)
    weights = pi[np.arange(150), logs.played[:, 1]] / logs.propensity[:, 1]
    error = logs.reward[:, 1] - q[np.arange(150), logs.played[:, 1]]
    expected = np.mean((pi * q).sum(axis=1) + weights * error)
    found = evaluate(log, name, estimands=["recommendations"])[name].recommendations
    assert found.variants["direct_method"].value == pytest.approx((pi * q).sum(axis=1).mean(), abs=1e-12)
    assert found.weights.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    if found.value.is_answered:
        assert found.variants["dr"].value == pytest.approx(expected, abs=1e-12)


def test_decisions_do_not_depend_on_their_own_or_later_rewards() -> None:
    logs = write_logs(lanes=1, rows=1000, epsilon=0.8, late=True, seed=10)
    log = logs.log(0)
    pi = NaiveEvaluation(to_rows(log), DLinUCB(dim=3, gamma=0.95), build_reward_model(log.schema, 0)).pi
    changed = log.rows.reward.copy()
    changed[600:] = 1.0 - changed[600:]
    other = ArrayLog(log.schema, replace(log.rows, reward=changed))
    twin = NaiveEvaluation(to_rows(other), DLinUCB(dim=3, gamma=0.95), build_reward_model(log.schema, 0))
    assert twin.pi[:601] == pi[:601]
    results = [evaluate(one, "D-LinUCB(gamma=0.95)", estimands=["recommendations"]) for one in (log, other)]
    points = [one.policies[0].recommendations.checkpoints for one in results]
    assert [p for p in points[0] if p.row <= 600] == [p for p in points[1] if p.row <= 600]
    assert points[0][-1] != points[1][-1]


def test_uniform_play_has_exact_probabilities_and_the_log_of_uniform_play_weighs_one() -> None:
    logs = write_logs(lanes=1, rows=400, epsilon=1.0, logger="fixed", seed=11)
    found = evaluate(logs.log(0), UniformRandom, estimands=["recommendations"]).policies[0].recommendations
    assert found.weights.largest == pytest.approx(1.0)
    assert found.weights.effective_sample_size == pytest.approx(400.0)
    assert found.weights.top_share == pytest.approx(0.01)
    assert found.variants["ips"].value == pytest.approx(logs.reward.mean())
    assert found.difference_to_log.value == pytest.approx(0.0, abs=1e-12)


def test_the_curve_is_an_exponentially_weighted_mean() -> None:
    logs = write_logs(lanes=1, rows=800, epsilon=1.0, logger="fixed", seed=11)
    log = logs.log(0)
    found = evaluate(log, "OFUL", estimands=["recommendations"]).policies[0].recommendations
    naive = transcribe_plain(log)
    beta = 1 - 1 / (800 / 20)
    for point in (found.checkpoints[0], found.checkpoints[40], found.checkpoints[-1]):
        weights = beta ** np.arange(point.row)[::-1]
        assert point.recent == pytest.approx(weights @ naive[: point.row] / weights.sum())
        assert point.value == pytest.approx(naive[: point.row].mean())
    assert len(found.checkpoints) == 100


def transcribe_plain(log: ArrayLog) -> np.ndarray:
    policy = build_contender(list_contenders("OFUL")[0].spec, log.schema, len(log.rows), lanes=1, seed=0)
    naive = NaiveEvaluation(to_rows(log), policy, build_reward_model(log.schema, 0))
    return np.array([naive.score(pi, q, row) for pi, q, row in naive.evaluated()])


def test_without_a_floor_the_interval_is_that_of_inverse_propensity_weighting() -> None:
    """The probabilities of the other arms are unknown, so the reward model cannot be truncated: only k = 0 is valid."""
    logs = write_logs(lanes=1, rows=800, epsilon=0.9, level=0.3, seed=22)
    log = logs.log(0, has_all=False, floor=None)
    found = evaluate(log, "UniformRandom", estimands=["recommendations"]).policies[0].recommendations
    naive = NaiveEvaluation(to_rows(log), UniformRandom(dim=3), build_reward_model(log.schema, 0), floor=0.0)
    assert (found.value.low, found.value.high) == pytest.approx(naive.interval([0.0], 0.05), abs=1e-6)
    assert found.weights.unsupported == 0.0
    declared = (
        evaluate(log, "UniformRandom", estimands=["recommendations"], floor=logs.floor).policies[0].recommendations
    )
    assert declared.value.high - declared.value.low < found.value.high - found.value.low


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "MASTER", "D-GLM-TS(gamma=0.9)", "BOB", "Greedy(gamma=0.9)"])
def test_any_policy_can_be_evaluated(name: str) -> None:
    """Given its draws, a policy recommends one arm, or shares ties: the mean weight is 1 up to chance."""
    name = next((policy for policy in POLICIES if policy.startswith(name)), name)
    logs = write_logs(lanes=1, rows=300, epsilon=1.0, logger="fixed", level=0.5, seed=23)
    found = evaluate(logs.log(0), name, estimands=["recommendations", "thinning"]).policies[0]
    weights = found.recommendations.weights
    assert weights.largest == pytest.approx(4.0)
    assert abs(weights.mean - 1.0) < 5.0 * np.sqrt(3.0 / 300)


class FirstArm:
    """A policy that follows the contract without deriving from ``Policy``. It records nothing."""

    def __init__(self, dim: int, lanes: object, seed: int = 0, arm: int = 0) -> None:
        self.lanes, self.arm = len(lanes), arm

    def select(self, arms: np.ndarray, valid: np.ndarray | None = None) -> list[int]:
        return [self.arm] * self.lanes

    def update(self, x: np.ndarray, reward: float, **others: object) -> None:
        assert x.shape == (self.lanes, 3)


def test_a_policy_of_ones_own_is_evaluated_by_the_arms_that_it_chooses() -> None:
    logs = write_logs(lanes=1, rows=1500, epsilon=0.9, logger="fixed", level=0.3, seed=24)
    found = evaluate(logs.log(0), FirstArm, estimands=["recommendations", "thinning"]).policies[0]
    weights = (logs.played[:, 0] == 0) / logs.propensity[:, 0]
    assert found.recommendations.variants["ips"].value == pytest.approx(np.mean(weights * logs.reward[:, 0]))
    assert found.thinning.runs[0].accepted > 0.5 * logs.floor * 1500
    with pytest.raises(ArgumentError) as caught:
        evaluate(logs.log(0), ("bad", FirstArm, {"arm": 4}), estimands=["recommendations"])
    assert (caught.value.argument, caught.value.value) == ("select(arms)", 4)
