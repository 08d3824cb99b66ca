"""The diagnosis as a whole: answers, recommendations that an agent accepts, what drifts, and real logs."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import windvane
from support.drifting_logs import SURE, examine, simulate
from windvane.agent.features import Features
from windvane.agent.times import parse_duration
from windvane.environments import Arc, Static
from windvane.errors import ArgumentError
from windvane.logs import ArrayLog, DriftDiagnosis, LogSchema, diagnose_drift, from_arrays
from windvane.logs.drift.answers import judge
from windvane.logs.drift.evidence import find_refusal
from windvane.logs.drift.feature_drift import run_fixed_sample_test
from windvane.logs.drift.recommendation import format_half_life
from windvane.logs.drift.rows import read_rows
from windvane.logs.drift.score_process import build_process

DATA = Path(__file__).parents[4] / "shared" / "data"
HOUR, DAY = 3600.0, 86_400.0


def draw_log(z: Any, x: np.ndarray, seed: int = 0, **columns: Any) -> ArrayLog:
    rng, n = np.random.default_rng(seed), len(x)
    reward = (rng.random(n) < 1.0 / (1.0 + np.exp(-z))).astype(float)
    return from_arrays(x[:, None], np.zeros(n, dtype=int), reward, **columns)


@pytest.fixture(scope="module")
def turning() -> DriftDiagnosis:
    past = simulate(Arc(angle=6.0), rounds=3000, lanes=1, seed=31)
    return diagnose_drift(past.log(0, time=60.0 * np.arange(3000), is_adaptive=False))


def test_a_turning_world(turning: DriftDiagnosis) -> None:
    assert turning.verdict == "drift"
    assert turning.answer.startswith("Drift detected (valid at any time: without drift, at most 5 % of logs give this ")
    assert " Best memory: a reward counts half after " in turning.answer
    assert turning.memory is not None
    assert turning.memory.half_life_seconds == pytest.approx(60.0 * turning.memory.half_life)
    assert turning.rate is not None
    assert turning.rate.low <= 12.0 / 3000 * 1.1
    assert turning.rate.high >= 12.0 / 3000 * 0.8
    assert turning.features is not None
    assert all(feature.drifts for feature in turning.features.features)
    assert turning.change_points
    assert turning.cost is not None
    assert turning.cost.low > 0.0
    assert turning.evidence.first_decision is not None
    assert turning.evidence.first_time == 60.0 * (turning.evidence.first_decision - 1.0)
    assert len(turning.evidence.curve) == 200
    assert turning.what is not None
    assert not turning.what.is_base_rate_only
    assert turning.what.ranking is not None
    assert turning.what.ranking.has_changed


def test_an_agent_accepts_the_recommendation(turning: DriftDiagnosis) -> None:
    assert set(turning.recommendation) == {"dim", "half_life", "epsilon"}
    agent = windvane.Agent(**turning.recommendation)
    agent.decide({"a": [0.1, 0.2], "b": [0.3, 0.1]}, now=0.0)
    assert turning.memory is not None
    half_life = parse_duration("half_life", turning.recommendation["half_life"])
    assert half_life == pytest.approx(60.0 * turning.memory.correlation_half_life, rel=0.06)
    assert f"{turning.memory.gamma:.6g}" in turning.recommendation_note


def test_without_times_the_half_life_is_in_decisions() -> None:
    diagnosis = diagnose_drift(simulate(Arc(angle=6.0), rounds=3000, lanes=1, seed=31).log(0))
    assert isinstance(diagnosis.recommendation["half_life"], int)
    assert "decisions" in diagnosis.answer
    assert diagnosis.seconds is None
    assert diagnosis.what is not None
    assert diagnosis.what.calendar_note == "the log has no times"
    windvane.Agent(**diagnosis.recommendation)


def test_the_diagnosis_is_json(turning: DriftDiagnosis) -> None:
    data = json.loads(turning.to_json(allow_nan=False))
    assert data["answer"] == turning.answer
    assert data["memory"]["losses"][-1]["memory"] is None  # infinity
    assert len(data["evidence"]["curve"]) == 200


def test_all_randomness_follows_from_the_seed() -> None:
    log = simulate(Arc(angle=3.0), rounds=600, lanes=1).log(0)
    assert diagnose_drift(log, seed=1) == diagnose_drift(log, seed=1)


def test_a_world_that_rests() -> None:
    diagnosis = diagnose_drift(simulate(Static(), rounds=2000, lanes=1, seed=32).log(0), calendar=False)
    assert diagnosis.verdict == "no drift seen"
    assert diagnosis.answer.startswith("No drift seen (fixed-sample test: p = ")
    assert "is ruled out (95 %)" in diagnosis.answer
    assert diagnosis.change_points == ()
    assert diagnosis.memory is not None
    assert math.isinf(diagnosis.memory.effective_high)
    assert diagnosis.what is not None
    assert diagnosis.what.summary == "No drift was seen."
    assert diagnosis.what.calendar_note == "not requested"
    windvane.Agent(**diagnosis.recommendation)


def test_a_drift_that_only_the_fixed_sample_test_sees_is_likely() -> None:
    """A turn by 0.4 in 2,000 rounds is too small for the e-process."""
    past = simulate(Arc(angle=0.4), rounds=2000, lanes=10, seed=40)
    verdicts = set()
    for lane in range(10):
        diagnosis = diagnose_drift(past.log(lane, is_adaptive=bool(lane % 2)), calendar=False)
        verdicts.add(diagnosis.verdict)
        assert diagnosis.evidence.verdict == "no drift seen"
        assert diagnosis.features is not None
        rejects = diagnosis.features.test.p <= diagnosis.alpha
        assert diagnosis.verdict == ("drift likely" if rejects else "no drift seen")
        assert diagnosis.answer.startswith("Drift likely (fixed-sample test: p " if rejects else "No drift seen (fixed")
        if rejects:
            assert ("the logging policy did not learn" in diagnosis.answer) == bool(lane % 2)
            assert "No drift seen" not in diagnosis.answer
        else:
            assert diagnosis.change_points == ()
    assert verdicts == {"drift likely", "no drift seen"}


def test_declared_features_are_part_of_the_recommendation() -> None:
    features = Features(shared={"age": (0.0, 1.0)}, arms=["a", "b"])
    log = simulate(Static(), rounds=300, lanes=1, dim=features.dim).log(0)
    schema = LogSchema(**(vars(log.schema) | {"features": features}))
    diagnosis = diagnose_drift(ArrayLog(schema, log.rows))
    assert diagnosis.recommendation["features"]["arms"] == ["a", "b"]
    windvane.Agent(**diagnosis.recommendation)


def test_durations_are_those_that_an_agent_reads() -> None:
    for seconds in (0.002, 0.7, 1.0, 59.0, 3600.0, 5400.0, 86_399.0, 3e5, 9.96e6, 4e8):
        assert parse_duration("half_life", format_half_life(seconds)) == pytest.approx(seconds, rel=0.06)


def test_progress_and_arguments() -> None:
    calls: list[tuple[float, float, str]] = []
    log = simulate(Static(), rounds=300, lanes=1).log(0)
    diagnose_drift(log, progress=lambda *call: calls.append(call))
    assert calls[0] == (0, 7, "reading")
    assert calls[-1] == (7, 7, "done")
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(ArgumentError) as caught:
            diagnose_drift(log, alpha=wrong)
        assert caught.value.argument == "alpha"
    with pytest.raises(ArgumentError) as caught:
        diagnose_drift(log, seed=-1)
    assert caught.value.argument == "seed"


def test_a_log_without_rewards_cannot_be_answered() -> None:
    log = from_arrays(np.ones((5, 2, 1)), [0] * 5, [math.nan] * 5)
    diagnosis = diagnose_drift(log)
    assert diagnosis.verdict == "cannot be answered"
    assert diagnosis.rewards == 0
    diagnosis.to_json(allow_nan=False)


def read_open_bandit(name: str, column: str) -> ArrayLog:
    """The sample with one coefficient per value of a column."""
    path = DATA / f"obd_{name}_men.csv"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    _, index = np.unique([row[column] for row in rows], return_inverse=True)
    x = np.eye(index.max() + 1)[index]
    return from_arrays(x[:, None], np.zeros(len(rows), dtype=int), [float(row["click"]) for row in rows])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("random", "only 46 of 10,000 rewards are of the rarer kind (above the middle)"),
        (
            "bts",
            "the log has 69 rewards of the rarer kind for 34 coefficients, and at least 10 per coefficient are needed",
        ),
    ],
)
def test_the_open_bandit_samples_cannot_be_answered(name: str, reason: str) -> None:
    diagnosis = diagnose_drift(read_open_bandit(name, "item_id"))
    assert diagnosis.answer.startswith(f"Cannot be answered, because {reason}")
    assert "half_life" not in diagnosis.recommendation
    assert diagnosis.memory is None


def make_collinear(position: np.ndarray, click: np.ndarray) -> ArrayLog:
    """Return a log with one coefficient for each of three positions, and a constant, which is their sum."""
    vectors = np.concatenate([np.eye(3)[position], np.ones((len(position), 1))], axis=1)
    return from_arrays(vectors[:, None], np.zeros(len(position), dtype=int), click)


def permute_clicks(position: np.ndarray, click: np.ndarray, permutations: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the joint and the largest statistic of the clicks, and then of permutations of them in each position.

    The fit of a position is its rate of clicks, so W is the sum of the residuals, by its standard deviation.
    """
    rng, joint, largest = np.random.default_rng(0), np.zeros(1 + permutations), np.zeros(1 + permutations)
    cell = len(click) // 400  # rows between two points of the processes
    for place in range(3):
        own = click[position == place]
        rate, residual = own.mean(), np.zeros(len(click))
        for i in range(1 + permutations):
            residual[position == place] = (rng.permutation(own) if i else own) - rate
            w = np.cumsum(residual)[cell - 1 :: cell] / math.sqrt(len(own) * rate * (1.0 - rate))
            joint[i] += np.square(w).mean()
            largest[i] = max(largest[i], np.abs(w).max())
    return joint, largest


def test_few_clicks_and_collinear_features_are_no_obstacle_to_the_computation() -> None:
    """With three coefficients there are 23 clicks for each, and with a constant they are collinear.

    In this log, 29 of 69 clicks are in the first 3,000 of 10,000 rows: the fixed-sample test rejects at 5 %. So do
    permutations of the clicks in each position, which need neither a fit nor a model.
    """
    log, resamples = read_open_bandit("bts", "position"), 1999
    position, click = log.rows.arms[:, 0].argmax(axis=1), log.rows.reward
    diagnosis = diagnose_drift(make_collinear(position, click))
    assert diagnosis.evidence.verdict == "no drift seen"
    assert diagnosis.features is not None
    assert (diagnosis.rank, diagnosis.features.left_out) == (3, ("x4",))
    test = diagnosis.features.test
    joint, largest = permute_clicks(position, click, resamples)
    for statistic, p, drawn in ((test.joint, test.joint_p, joint), (test.largest, test.largest_p, largest)):
        assert statistic == pytest.approx(drawn[0], rel=1e-4)  # the fit is within 1e-4 of its standard error
        permuted = (drawn >= drawn[0]).mean()
        error = math.sqrt(2.0 * p * (1.0 - p) / resamples)  # both p-values are from this many draws
        assert abs(permuted - p) <= 4.0 * error
    assert test.p == 2.0 * min(test.joint_p, test.largest_p) <= diagnosis.alpha
    assert diagnosis.verdict == "drift likely"


def count_verdicts(logs: int, seed: int) -> Counter[str]:
    """Return the verdicts of logs without drift, with the positions and rates of clicks of the Open Bandit sample."""
    rates, verdicts = np.array([30 / 3339, 21 / 3262, 18 / 3399]), Counter[str]()
    while verdicts.total() < logs:
        rng = np.random.default_rng(seed)
        seed += 1
        position = rng.integers(3, size=10_000)
        log = make_collinear(position, (rng.random(10_000) < rates[position]).astype(float))
        if find_refusal(read_rows(log)):  # 69 clicks are expected and 50 are needed
            continue
        rows, _, evidence = examine(log)
        verdicts[judge(evidence, run_fixed_sample_test(rows, build_process(rows.design, rows.reward), 0), 0.05)] += 1
    return verdicts


def check_level(verdicts: Counter[str]) -> None:
    """Each of the two alarms has a level of 5 %."""
    for alarm in ("drift", "drift likely"):
        assert stats.binomtest(verdicts[alarm], verdicts.total(), 0.05, alternative="greater").pvalue > SURE


def test_false_alarms_with_few_clicks_and_collinear_features() -> None:
    check_level(count_verdicts(10, seed=40))


@pytest.mark.slow
def test_false_alarms_with_few_clicks_and_collinear_features_in_many_logs() -> None:
    """With the positions of the sample itself, 12 of 397 logs were "drift likely" and none was "drift"."""
    check_level(count_verdicts(200, seed=1000))


# --- what drifts ------------------------------------------------------------------------------------------------------


def draw_vectors(n: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).uniform(-1.0, 1.0, size=(n, 3))
    x[:, 2] = 1.0
    return x


def test_a_base_rate_that_moves_is_told_from_coefficients_that_move() -> None:
    n, x = 4000, draw_vectors(4000, 33)
    wave = np.sin(2.0 * math.pi * np.arange(n) / n)
    for z, is_base in ((x[:, 0] + 1.5 * wave, True), (x[:, 0] + 2.5 * wave * x[:, 1], False)):
        what = diagnose_drift(draw_log(z, x, seed=34)).what
        assert what is not None
        assert what.is_base_rate_only == is_base
        assert ("base rate moves" in what.summary) == is_base


def test_a_daily_cycle_is_explained_by_the_calendar() -> None:
    n, x = 5000, draw_vectors(5000, 35)
    time = np.arange(n) * 10 * DAY / n
    cycle = 1.5 * np.sin(2.0 * math.pi * time / DAY)
    for z in (x[:, 0] + cycle, cycle * x[:, 1]):
        diagnosis = diagnose_drift(draw_log(z, x, seed=36, time=time))
        assert diagnosis.what is not None
        calendar = diagnosis.what.calendar
        assert calendar is not None
        assert calendar.terms == ("hour of day",)  # ten days are too few for weekdays
        assert calendar.p_terms < 1e-6
        assert calendar.p > 0.05
    drifting = diagnose_drift(draw_log(3.0 * x[:, 1] * np.arange(n) / n, x, seed=37, time=time)).what
    assert drifting is not None
    assert drifting.calendar is not None
    assert not drifting.calendar.explains
    assert drifting.calendar.p <= 0.05


def test_contexts_that_shift_are_no_drift_of_the_rewards() -> None:
    rng, n = np.random.default_rng(38), 3000
    x = rng.uniform(-1.0, 1.0, size=(n, 2)) * 0.5
    x[n // 2 :, 0] += 0.4
    log = draw_log(2.0 * x[:, 0], x, seed=39, context=x)
    diagnosis = diagnose_drift(log)
    assert diagnosis.verdict == "no drift seen"
    assert diagnosis.what is not None
    assert [shift.has_shifted for shift in diagnosis.what.contexts] == [True, False]
    assert "contexts shift" in diagnosis.what.summary


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_skip_what_has_no_reward_and_count_weights_as_decisions() -> None:
    log = from_arrays(np.ones((6, 2, 1)), [0] * 6, [1.0, math.nan, 0.0, 1.0, 0.5, 0.0], time=np.arange(6.0))
    object.__setattr__(log.rows, "weight", np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0]))
    object.__setattr__(log.rows, "is_learned", np.array([True, True, True, False, True, True]))
    rows = read_rows(log)
    assert rows.reward.tolist() == [1.0, 0.0, 0.5, 0.0]
    assert rows.place.tolist() == [1, 3, 5, 6]
    assert rows.clock.tolist() == [1.0, 4.0, 8.0, 9.0]
    assert rows.decisions == 9.0
    assert rows.seconds == 5.0
    assert rows.rarer == 1.5
    assert rows.offers.shape == (6, 2, 1)


def test_a_log_that_is_too_large_is_refused() -> None:
    log = from_arrays(np.ones((3, 1, 1)), [0] * 3, [1.0] * 3)
    schema = LogSchema(**(vars(log.schema) | {"rows": 10**8}))
    with pytest.raises(ArgumentError) as caught:
        diagnose_drift(ArrayLog(schema, log.rows))
    assert caught.value.argument == "log"
