"""Thinning: accepted rows are a share c of all, at random, and the run is an on-policy run of the same world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from support.logged_worlds import LATEST, WrittenLogs, write_logs
from windvane.errors import ArgumentError
from windvane.logs import ArrayLog, evaluate, from_arrays
from windvane.logs.evaluation.contenders import build_contender, list_contenders
from windvane.logs.evaluation.survey import survey_log
from windvane.logs.evaluation.thinning import Coins, choose_shares
from windvane.logs.evaluation.tracks import ReplayPlan, Tracks, replay_policy

LEVEL = 1e-4  # of the tests of chance


def replay(logs: WrittenLogs, name: str, folder: Path, seed: int = 0, **changes) -> tuple[ReplayPlan, Tracks]:
    log = logs.log(0, **changes)
    plan = ReplayPlan(survey=survey_log(log), learns_all=1, shares=choose_shares(None, logs.floor), seed=seed)
    replay_policy(log, list_contenders(name)[0].spec, plan, folder, "policy")
    return plan, Tracks(folder, "policy")


def accepted(tracks: Tracks, lane: int) -> np.ndarray:
    return tracks.read_counted(lane, slice(None))


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinTS(gamma=0.98)", "UniformRandom"])
def test_a_share_is_accepted_whatever_the_arms_and_rewards_are(name: str, tmp_path: Path) -> None:
    logs = write_logs(lanes=1, rows=6000, epsilon=0.6, seed=12)
    plan, tracks = replay(logs, name, tmp_path)
    for lane, share in enumerate(plan.shares, start=1):
        is_accepted = accepted(tracks, lane)
        assert stats.binomtest(int(is_accepted.sum()), len(is_accepted), share).pvalue > LEVEL
        chosen = tracks.read_probabilities(lane, slice(None), 4, 0.0, None).argmax(axis=1)
        columns = [logs.rewards[:, 0, arm].astype(int) for arm in range(4)] + [chosen, np.arange(6000) // 1500]
        for column in columns:  # the rewards of all arms, the arm that the policy wants, and the time
            table = np.array([[((column == v) & (is_accepted == a)).sum() for v in np.unique(column)] for a in (0, 1)])
            assert stats.chi2_contingency(table).pvalue > LEVEL


@pytest.mark.parametrize("name", ["AdaptiveGLMUCB", "D-LinTS(gamma=0.98)", "OFUL", "UniformRandom", "BOB"])
@pytest.mark.parametrize("late", [False, True])
def test_the_run_is_an_on_policy_run_bit_for_bit(name: str, late: bool, tmp_path: Path) -> None:
    """An on-policy run plays its own arms, whose rewards are known here, and learns those of the accepted rows."""
    rows = 700
    logs = write_logs(lanes=1, rows=rows, epsilon=0.8, late=late, seed=13)
    plan, tracks = replay(logs, name, tmp_path)
    log, spec = logs.log(0), list_contenders(name)[0].spec
    for lane in range(1, plan.lanes):
        policy = build_contender(spec, log.schema, rows, lanes=[lane], seed=0)
        is_accepted, due = accepted(tracks, lane), [[] for _ in range(rows + LATEST + 1)]
        for t in range(rows):
            for x, reward, number in due[t]:
                policy.update(x, reward, round=number)
            arm = int(policy.select(logs.arms[t])[0])
            preferred = tracks.read_probabilities(lane, slice(t, t + 1), 4, 0.0, None)[0]
            assert preferred[arm] > 0.0
            if is_accepted[t]:
                assert arm == logs.played[t, 0]
                reward = float(logs.rewards[t, 0, arm])
                if logs.delay[t, 0] == 0:
                    policy.update(logs.arms[t, :, arm], reward)
                else:
                    due[t + logs.delay[t, 0]].append((logs.arms[t, :, arm], reward, t + 1.0))
        assert is_accepted.sum() > 0.5 * plan.shares[lane - 1] * rows


def test_coins_depend_on_the_seed_and_the_row_only() -> None:
    log = write_logs(lanes=1, rows=800, epsilon=0.5, logger="fixed", seed=14).log(0)

    def toss(seed: int, size: int) -> np.ndarray:
        coins = Coins(seed, (0.1, 0.05), 1.0)
        return np.concatenate([coins.toss(batch) for batch in log.batches(size)])

    assert (toss(0, 800) == toss(0, 7)).all()
    assert (toss(0, 800) != toss(1, 800)).any()
    assert (toss(0, 800)[:, 0] >= toss(0, 800)[:, 1]).all()  # the shares are nested


def test_the_values_cover_the_truth_and_are_about_the_same_run(tmp_path: Path) -> None:
    """The truth of the on-policy run is the mean of sum_a pi(a) mu(a) over all rows, and over the accepted ones."""
    lanes, alpha, missed = 25, 0.2, np.zeros(2, dtype=int)
    logs = write_logs(lanes=lanes, rows=900, epsilon=0.9, seed=15, level=0.3)
    for lane in range(lanes):
        log, folder = logs.log(lane), tmp_path / str(lane)
        folder.mkdir()
        plan = ReplayPlan(survey=survey_log(log), learns_all=0, shares=choose_shares(None, logs.floor), seed=lane)
        replay_policy(log, list_contenders("OFUL")[0].spec, plan, folder, "policy")
        tracks = Tracks(folder, "policy")
        found = evaluate(log, "OFUL", estimands=["thinning"], alpha=alpha, seed=lane).policies[0].thinning.runs[0]
        values = (tracks.read_probabilities(0, slice(None), 4, 0.0, None) * logs.means[:, lane]).sum(axis=1)
        truths = values[accepted(tracks, 0)].mean(), values.mean()
        assert found.accepted == accepted(tracks, 0).sum()
        for i, (estimate, truth) in enumerate(zip((found.value, found.all_rows), truths, strict=True)):
            assert estimate.is_answered, estimate.reason
            missed[i] += not estimate.low <= truth <= estimate.high
    assert (stats.binom.sf(missed - 1, lanes, alpha) >= 0.001).all()


def test_dropped_rows_are_accounted_for(tmp_path: Path) -> None:
    """Rows with reward 0 were dropped with probability 3/4, the others kept: accepted rows are as the traffic was."""
    logs, rng = write_logs(lanes=1, rows=20000, epsilon=1.0, logger="fixed", seed=16), np.random.default_rng(17)
    weight = np.where(logs.reward[:, 0] == 1.0, 1.0, 4.0)
    is_kept = rng.random(20000) < 1.0 / weight
    log = logs.log(0)
    kept = ArrayLog(replace(log.schema, rows=int(is_kept.sum())), replace(log.rows, weight=weight).select(is_kept))
    run = evaluate(kept, "UniformRandom", estimands=["thinning"]).policies[0].thinning.runs[0]
    truth = logs.means.mean()
    assert run.share == pytest.approx(0.25 / 4.0)
    assert stats.binomtest(run.accepted, 20000, run.share).pvalue > LEVEL
    assert stats.binomtest(round(run.value.value * run.rewarded), run.rewarded, truth).pvalue > LEVEL


def test_a_share_above_the_floor_is_refused() -> None:
    logs = write_logs(lanes=1, rows=300, epsilon=0.4, seed=18)
    with pytest.raises(ArgumentError) as caught:
        evaluate(logs.log(0), "OFUL", estimands=["thinning"], share=0.11)
    assert (caught.value.argument, caught.value.value) == ("share", 0.11)
    with pytest.raises(ArgumentError) as caught:
        evaluate(logs.log(0), "OFUL", estimands=["thinning"], share=0.0)
    assert caught.value.argument == "share"
    with pytest.raises(ArgumentError) as caught:  # a floor that the log does not keep
        evaluate(logs.log(0), "OFUL", floor=0.2)
    assert (caught.value.argument, caught.value.value) == ("floor", 0.2)
    runs = evaluate(logs.log(0), "OFUL", estimands=["thinning"], share=0.08).policies[0].thinning.runs
    assert [run.share for run in runs] == [0.08, 0.04, 0.02]


def test_without_a_floor_there_is_no_share() -> None:
    logs = write_logs(lanes=1, rows=300, epsilon=0.4, seed=18)
    log = logs.log(0, has_all=False, floor=None)
    result = evaluate(log, "OFUL", estimands=["thinning"])
    assert result.policies[0].thinning.runs == ()
    assert "floor" in result.policies[0].thinning.reason
    assert result.answer.startswith("Cannot be answered, because")
    with pytest.raises(ArgumentError) as caught:
        choose_shares(0.1, None)
    assert caught.value.argument == "share"


def test_few_accepted_rows_give_no_number() -> None:
    arms = np.eye(2)[None].repeat(150, axis=0)
    log = from_arrays(arms, [0, 1] * 75, [1.0, 0.0] * 75, propensity=[0.5] * 150, floor=0.5)
    run = evaluate(log, "UniformRandom", estimands=["thinning"]).policies[0].thinning.runs[0]
    assert run.value.value is None
    assert run.value.low is None
    assert "fewer than 100" in run.value.reason
