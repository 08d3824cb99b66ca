"""``evaluate`` as a whole: what it accepts, what it refuses, and what it returns."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from support.logged_worlds import WrittenLogs, write_logs
from windvane import OFUL
from windvane.errors import ArgumentError, WindvaneError
from windvane.logs import ArrayLog, Evaluation, evaluate
from windvane.logs.evaluation import log_walk
from windvane.logs.evaluation.contenders import derive_seed, list_contenders
from windvane.logs.evaluation.estimates import Estimate


@pytest.fixture(scope="module")
def logs() -> WrittenLogs:
    return write_logs(lanes=1, rows=1200, epsilon=0.8, late=True, level=0.3, seed=20)


@pytest.fixture(scope="module")
def result(logs: WrittenLogs) -> Evaluation:
    return evaluate(logs.log(0), ["AdaptiveGLMUCB", "OFUL", ("weak", "OFUL", {"bonus_scale": 5.0})])


def list_estimates(value: object) -> list[Estimate]:
    """All estimates anywhere in a result."""
    if isinstance(value, Estimate):
        return [value]
    if isinstance(value, dict):
        return list_estimates(list(value.values()))
    if isinstance(value, list | tuple):
        return [estimate for entry in value for estimate in list_estimates(entry)]
    return list_estimates(list(vars(value).values())) if hasattr(value, "__dataclass_fields__") else []


def test_every_number_carries_what_it_means(result: Evaluation) -> None:
    estimates = list_estimates(result)
    assert len(estimates) > 20
    for estimate in estimates:
        assert estimate.estimand
        if estimate.value is None:
            assert estimate.reason
            assert estimate.low is estimate.high is None
        elif estimate.low is None:
            assert estimate.reason
            assert estimate.caveat
        else:
            assert estimate.low <= estimate.value <= estimate.high
            assert estimate.effective_sample_size > 0.0


def test_the_result_is_json(result: Evaluation) -> None:
    data = json.loads(result.to_json())
    assert data["answer"] == str(result) == result.answer
    assert [policy["label"] for policy in data["policies"]] == ["AdaptiveGLMUCB", "OFUL", "weak"]
    assert data["policies"][0]["recommendations"]["value"]["low"] == result["AdaptiveGLMUCB"].recommendations.value.low
    assert data["policies"][2]["settings"] == {"bonus_scale": 5.0}
    assert data["log"]["rows"] == 1200
    with pytest.raises(KeyError):
        result["GLM-UCB"]


def test_the_answer_is_one_sentence(result: Evaluation) -> None:
    assert " would have earned 0." in result.answer
    assert " per decision (0." in result.answer
    assert f"compared with {result.log.value.value:#.3g} for the log" in result.answer
    assert "the difference from" in result.answer
    assert result.answer.endswith(".")


def test_it_says_what_policies_were_told(result: Evaluation) -> None:
    assert result["OFUL"].assumed["S"] == 1.0
    assert result["AdaptiveGLMUCB"].assumed["S"] is None
    assert result["AdaptiveGLMUCB"].assumed["link"] == "logistic"


def test_what_is_assumed_follows_the_norm_bound(logs: WrittenLogs) -> None:
    told = evaluate(logs.log(0), ["D-LinUCB", "D-LinUCB(S=3)", "D-LinUCB(gamma=0.9)"], estimands="recommendations")
    assert told["D-LinUCB"].assumed == {
        "S": 1.0,
        "L": pytest.approx(1.0, abs=0.1),
        "sigma": 0.5,
        "horizon": 1200,
        "drift": 2.0,
    }
    assert told["D-LinUCB(S=3)"].assumed["drift"] == 6.0
    assert "drift" not in told["D-LinUCB(gamma=0.9)"].assumed


def test_processes_batches_and_progress_change_nothing(logs: WrittenLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int, str]] = []
    policies = ["OFUL", "UniformRandom"]
    plain = evaluate(logs.log(0), policies, seed=3, progress=lambda *step: steps.append(step))
    assert steps == [(i + 1, 6, name) for i, name in enumerate(["reward model", *policies, *policies, "assessment"])]
    steps.clear()
    evaluate(logs.log(0), policies, estimands="thinning", floor=0.0, progress=lambda *step: steps.append(step))
    assert steps == [(1, 1, "assessment")]  # nothing else can be done
    assert evaluate(logs.log(0), policies, seed=3, jobs=2) == plain
    monkeypatch.setattr(log_walk, "LARGEST_BATCH", 100)
    batched = evaluate(logs.log(0), policies, seed=3)
    assert batched["OFUL"].recommendations == plain["OFUL"].recommendations
    assert batched["OFUL"].thinning == plain["OFUL"].thinning
    assert evaluate(logs.log(0), policies, seed=4)["OFUL"].thinning != plain["OFUL"].thinning


def test_a_baseline_limits_the_comparisons(logs: WrittenLogs) -> None:
    names = ["OFUL", "UniformRandom", "AdaptiveGLMUCB"]
    found = evaluate(logs.log(0), names, baseline="UniformRandom", estimands="recommendations")
    assert [(c.policy, c.baseline) for c in found.comparisons] == [
        ("OFUL", "UniformRandom"), ("AdaptiveGLMUCB", "UniformRandom"),
    ]  # fmt: skip
    assert len(evaluate(logs.log(0), names, estimands="recommendations").comparisons) == 3


def test_a_policy_does_not_differ_from_itself(logs: WrittenLogs) -> None:
    found = evaluate(logs.log(0), {"a": OFUL, "b": "OFUL"}, estimands="recommendations").comparisons[0]
    assert found.difference.value == 0.0
    assert found.is_significant is False


# --- policies ---------------------------------------------------------------------------------------------------------


def test_policies_are_given_in_many_ways() -> None:
    ways = {
        "OFUL": OFUL,
        "mine": ("mine", OFUL, {"S": 2.0}),
        "OFUL(S=2, lam=0.5)": "OFUL(S=2, lam=0.5)",
        "imported": {"policy": "windvane.policies.linear:OFUL", "label": "imported", "settings": {"S": 2}},
    }
    contenders = list_contenders(list(ways.values()))
    assert [contender.label for contender in contenders] == list(ways)
    assert contenders[2].spec.settings == {"S": 2, "lam": 0.5}
    assert [c.label for c in list_contenders({"x": "OFUL", "y": OFUL})] == ["x", "y"]
    assert list_contenders("D-LinUCB(\n gamma = 0.9,\n S = 1\n)")[0].spec.settings == {"gamma": 0.9, "S": 1}


@pytest.mark.parametrize(
    "policies",
    [[], "Oracle", "D-UCB(gamma=0.9)", ["OFUL", "OFUL"], "OFUL(S=)", "OFUL(S=1", "NoSuchPolicy", 3, "OFUL(nonsense=1)",
     {"policy": "OFUL", "x": 1}],
)  # fmt: skip
def test_other_policies_are_refused(policies: object) -> None:
    with pytest.raises(WindvaneError):
        list_contenders(policies)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("estimands", ["value"]), ("estimands", []), ("epsilon", 1.5), ("alpha", 0.0), ("seed", -1), ("jobs", 0),
     ("baseline", "GLM-UCB"), ("floor", 2.0)],
)  # fmt: skip
def test_other_arguments_are_refused(logs: WrittenLogs, argument: str, value: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        evaluate(logs.log(0), "OFUL", **{argument: value})
    assert caught.value.argument == argument


def test_random_numbers_of_policies_are_not_those_of_a_log() -> None:
    """A log that UniformRandom or a sampling policy wrote with the same seed would agree with it on every row."""
    assert len({derive_seed(seed) for seed in range(100)} | set(range(100))) == 200


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_without_probabilities_there_are_only_biased_numbers(logs: WrittenLogs) -> None:
    log = logs.log(0, has_all=False, propensity=None, floor=None)
    found = evaluate(log, ["OFUL", "UniformRandom"])
    assert found.answer.startswith("Cannot be answered, because the log has no propensities")
    one = found["UniformRandom"].recommendations
    assert one.value.value is None
    assert set(one.variants) == {"direct_method", "dr_estimated_propensities"}
    truth = logs.means.mean()
    for estimate in one.variants.values():
        assert "biased" in estimate.caveat
        assert estimate.low is None
        assert estimate.value == pytest.approx(truth, abs=0.15)
    assert found["OFUL"].thinning.runs == ()
    assert all(c.difference.value is None for c in found.comparisons)
    assert all(point.value is None for point in one.checkpoints)
    assert found["OFUL"].model.value.value is not None  # right if the model is


def test_a_log_without_exploration_cannot_be_answered(logs: WrittenLogs) -> None:
    log = logs.log(0, has_all=False, propensity=np.ones(1200), floor=None)
    found = evaluate(log, "OFUL", estimands=["recommendations", "thinning"])
    assert found.answer.startswith("Cannot be answered, because the log was written without exploration")
    assert found["OFUL"].recommendations.value.value is None
    log = logs.log(0, has_all=False, floor=0.0)
    assert "floor is 0" in evaluate(log, "OFUL", estimands=["recommendations"]).answer


def test_arms_that_the_log_never_plays_cannot_be_answered(logs: WrittenLogs) -> None:
    log = logs.log(0)
    p = log.rows.probabilities.copy()
    p[log.rows.played != 0, 0] = 0.0  # as if arm 0 had been possible only where it was played
    rows = replace(log.rows, probabilities=p / p.sum(axis=1, keepdims=True))
    log = ArrayLog(replace(log.schema, floor=None, is_floor_declared=False), rows)
    found = evaluate(log, "UniformRandom", estimands=["recommendations"])
    assert "with probability 0" in found.answer
    assert found.policies[0].recommendations.weights.unsupported > 0.05


def test_small_samples_give_no_number(logs: WrittenLogs) -> None:
    log = logs.log(0)
    short = ArrayLog(replace(log.schema, rows=90), log.rows.select(slice(90)))
    found = evaluate(short, "UniformRandom", estimands=["recommendations"])
    assert "effective sample size" in found.answer
    rare = write_logs(lanes=1, rows=1000, epsilon=1.0, logger="fixed", level=-4.5, seed=21)
    found = evaluate(rare.log(0), "UniformRandom", estimands=["recommendations"])
    assert "rewards of 1, fewer than 50" in found.answer
    estimate = found.policies[0].recommendations.value
    assert estimate.value is estimate.low is estimate.high is None


def test_a_log_without_rewards_cannot_be_answered(logs: WrittenLogs) -> None:
    log = logs.log(0)
    rows = replace(log.rows, reward=np.full(1200, np.nan), reward_time=np.full(1200, np.inf))
    found = evaluate(ArrayLog(log.schema, rows), "OFUL")
    assert found.answer == "Cannot be answered, because no row has a reward."
    assert found.log.without_reward == 1200
    json.loads(found.to_json())


def test_missing_rewards_and_probabilities_are_counted(logs: WrittenLogs) -> None:
    log = logs.log(0, has_all=False)
    reward, chance = log.rows.reward.copy(), log.rows.propensity.copy()
    reward[:100], chance[50:160] = np.nan, np.nan
    arrived = np.where(np.isnan(reward), np.inf, log.rows.reward_time)
    rows = replace(log.rows, reward=reward, reward_time=arrived, propensity=chance)
    found = evaluate(ArrayLog(log.schema, rows), "UniformRandom", estimands=["recommendations"])
    assert (found.log.without_reward, found.log.without_propensity, found.log.evaluated) == (100, 60, 1040)
    caveat = found.policies[0].recommendations.value.caveat
    assert "without a reward are left out" in caveat
    assert "without a propensity are left out" in caveat


def test_a_range_that_was_only_seen_is_a_caveat(logs: WrittenLogs) -> None:
    log = logs.log(0)
    seen = ArrayLog(replace(log.schema, reward_range=(-3.0, 7.0), is_range_declared=False), log.rows)
    for one, is_noted in ((log, False), (seen, True)):
        found = evaluate(one, "UniformRandom", estimands=["recommendations", "thinning"])
        values = (found.log.value, found.policies[0].recommendations.value, found.policies[0].thinning.runs[0].value)
        assert [("declare `reward_range`" in value.caveat) for value in values] == [is_noted] * 3


def test_an_empty_interval_is_refused(logs: WrittenLogs) -> None:
    """The stated probabilities are half of the true ones, so that both bounds of the value cannot hold."""
    p = np.full(1200, 0.125)  # of each of four arms that were played uniformly
    uniform = write_logs(lanes=1, rows=1200, epsilon=1.0, logger="fixed", level=0.3, seed=20)
    found = evaluate(uniform.log(0, has_all=False, propensity=p, floor=0.125), ["UniformRandom", "OFUL"])
    assert "the propensities are wrong" in found.answer
    assert found["UniformRandom"].recommendations.checkpoints[-1].value is None
    assert all(comparison.difference.value is None for comparison in found.comparisons)
    for estimate in list_estimates(found):
        assert estimate.low is None or estimate.low <= estimate.value <= estimate.high
