"""The verdict: at most alpha false alarms, in worlds of several kinds, and power that grows with the drift."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats

from support.drifting_logs import SURE, examine, is_plausible, simulate
from windvane import AdaptiveGLMUCB, Logistic
from windvane.arguments import Array
from windvane.environments import Arc, Static
from windvane.estimation.filters import FilterBank
from windvane.kernels.prequential import BOTH, LEARN, SCORE
from windvane.logs import from_arrays
from windvane.logs.drift.evidence import DRIFT, NO_DRIFT, UNKNOWN, find_refusal
from windvane.logs.drift.logistic_fit import log_likelihoods
from windvane.logs.drift.replay import choose_memories, log_mean, order_events, replay_log
from windvane.logs.drift.rows import read_rows

ALPHA = 0.05


def count_alarms(name: str, lanes: int, seed: int) -> int:
    """The number of lanes without drift whose verdict is "drift"."""
    rounds = 6000 if name == "rare" else 1500
    dim = 5 if name == "d = 5" else 2
    policy = AdaptiveGLMUCB(dim=2, lanes=lanes, L=1.0) if name == "adaptive" else None
    rare = {"S": 0.8, "intercept": -4.0} if name == "rare" else {}
    past = simulate(Static(), rounds=rounds, lanes=lanes, dim=dim, seed=seed, policy=policy, **rare)
    alarms = 0
    for lane in range(lanes):
        late = {}
        if name == "late":  # clicks arrive at once, the absence of clicks is known 150 rounds later
            decided = np.arange(1.0, rounds + 1.0)
            late = {"time": decided, "reward_time": decided + np.where(past.reward[lane] > 0.0, 0.0, 150.0)}
        evidence = examine(past.log(lane, **late), ALPHA).evidence
        assert evidence.verdict in (DRIFT, NO_DRIFT)
        alarms += evidence.verdict == DRIFT
    return alarms


def is_at_most(alarms: int, lanes: int, alpha: float) -> bool:
    return bool(stats.binomtest(alarms, lanes, alpha, alternative="greater").pvalue > SURE)


WORLDS = ["d = 2", "d = 5", "rare", "adaptive", "late"]


@pytest.mark.parametrize("world", WORLDS)
def test_false_alarms(world: str) -> None:
    lanes = 25
    assert is_at_most(count_alarms(world, lanes, seed=1), lanes, ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_false_alarms_in_many_logs(world: str) -> None:
    lanes = 400
    assert is_at_most(count_alarms(world, lanes, seed=2), lanes, ALPHA)


def measure_power(angle: float, lanes: int, rounds: int = 2000, seed: int = 3) -> int:
    past = simulate(Arc(angle=angle), rounds=rounds, lanes=lanes, seed=seed)
    return sum(examine(past.log(lane)).evidence.verdict == DRIFT for lane in range(lanes))


def test_power_grows_with_the_drift() -> None:
    lanes = 12
    seen = [measure_power(angle, lanes) for angle in (0.2, 1.0, 3.0)]
    assert seen == sorted(seen)
    assert seen[0] < lanes / 2
    assert seen[-1] == lanes


@pytest.mark.slow
def test_power_curve() -> None:
    lanes = 60
    seen = [measure_power(angle, lanes) for angle in (0.0, 0.4, 0.7, 1.0, 1.4, 2.0, 3.0)]
    assert all(b >= a - 3 for a, b in pairwise(seen))  # 60 lanes: noise of up to 3
    assert seen[0] <= 6
    assert seen[-1] == lanes


def mixture_likelihoods(values: list[float], n: int, late: bool) -> tuple[Array, Array, Array]:
    """All sequences of rewards, the mixture's likelihood of each, and the logits of the true theta."""
    x = np.random.default_rng(5).uniform(-1.0, 1.0, size=(n, 1, 1))
    sequences, decided = np.array(list(product(values, repeat=n))), np.arange(1.0, n + 1.0)
    likelihoods = []
    for reward in sequences:
        arrived = decided + (np.where(reward > 0.4, 0.0, 3.5) if late else 0.0)  # a small reward is a late one
        log = from_arrays(x, np.zeros(n, dtype=int), reward, time=decided, reward_time=arrived)
        likelihoods.append(np.exp(log_mean(-replay_log(read_rows(log), 0.1).losses.sum(axis=0))))
    return sequences, np.array(likelihoods), 1.5 * x[:, 0, 0]


@pytest.mark.parametrize("late", [False, True])
def test_the_mixture_is_a_probability_of_all_sequences_of_rewards(late: bool) -> None:
    """So its likelihood ratio to any theta is a martingale, even if delays depend on the rewards."""
    _, likelihoods, _ = mixture_likelihoods([0.0, 1.0], 8, late)
    assert likelihoods.sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.8])
def test_the_expected_likelihood_ratio_of_fractional_rewards_is_at_most_one(late: bool, share: float) -> None:
    """Exactly: rewards are 1/2 with a probability, and otherwise 0 or 1, with mean mu."""
    sequences, likelihoods, z = mixture_likelihoods([0.0, 0.5, 1.0], 5, late)
    mu = 1.0 / (1.0 + np.exp(-z))
    half = 2.0 * share * np.minimum(mu, 1.0 - mu)
    chance = np.where(sequences == 0.5, half, np.where(sequences == 1.0, mu - half / 2, 1.0 - mu - half / 2))
    truth = np.exp(log_likelihoods(z, sequences).sum(axis=1))
    assert chance.prod(axis=1).sum() == pytest.approx(1.0)
    expected = float((chance.prod(axis=1) * likelihoods / truth).sum())
    assert 0.5 < expected < 1.0


@pytest.mark.parametrize("rewards", ["binary", "beta"])
def test_the_likelihood_ratio_rarely_becomes_large(rewards: str) -> None:
    """Ville's inequality, with the true theta instead of the maximum."""
    rng, lanes, n, alarms = np.random.default_rng(5), 500, 60, 0
    for _ in range(lanes):
        x = rng.uniform(-1.0, 1.0, size=(n, 1))
        z = 1.5 * x[:, 0]
        mu = 1.0 / (1.0 + np.exp(-z))
        reward = (rng.random(n) < mu).astype(float) if rewards == "binary" else rng.beta(mu, 1.0 - mu)
        replay = replay_log(read_rows(from_arrays(x[:, None], np.zeros(n, dtype=int), reward)), 0.1)
        ratio = log_mean(-np.cumsum(replay.losses, axis=0)) - np.cumsum(log_likelihoods(z, reward))
        alarms += ratio.max() >= np.log(1.0 / ALPHA)
    assert is_at_most(alarms, lanes, ALPHA)


def test_evidence_is_never_above_the_likelihood_ratio_of_the_truth() -> None:
    past = simulate(Static(), rounds=1000, lanes=3)
    for lane in range(3):
        rows, replay, evidence = examine(past.log(lane))
        truth = np.cumsum(log_likelihoods((rows.x * past.theta[lane]).sum(axis=1), rows.reward))[replay.ends - 1]
        assert (np.array(evidence.curve) <= log_mean(-np.cumsum(replay.losses, axis=0)) - truth + 1e-9).all()


def test_the_replay_predicts_at_the_decision_and_learns_at_the_arrival() -> None:
    """Against a loop over rounds with the bank's own methods."""
    rng, n, d = np.random.default_rng(0), 120, 3
    x, reward = rng.normal(size=(n, 1, d)) / 3.0, (rng.random(n) < 0.4).astype(float)
    reward[rng.random(n) < 0.1] = np.nan
    delay = rng.integers(0, 4, size=n) * 5.0
    decided = np.arange(1.0, n + 1.0)
    log = from_arrays(x, np.zeros(n, dtype=int), reward, time=decided, reward_time=decided + delay + 0.5)
    rows = read_rows(log)
    replay = replay_log(rows, 0.05)
    memories, scales = np.unique(replay.memories), np.unique(replay.scales)
    bank = FilterBank(d, Logistic(), memories=memories, scales=scales, dispersion=1.0, lanes=1, L=log.schema.L)
    losses, every = np.zeros(len(replay.memories)), range(len(replay.memories))
    for t in range(n):
        if t:
            bank.age(1.0)
        if not np.isnan(reward[t]):
            for g in every:
                z, v = x[t, 0] @ bank.theta[0, g], x[t, 0] @ bank.covariance(np.array([g]))[0] @ x[t, 0]
                losses[g] -= log_likelihoods(z / np.sqrt(1.0 + np.pi / 8.0 * v), reward[t])
        for s in (t, *range(t)):  # a reward that arrives before the next decision is learned with its decision
            if not np.isnan(reward[s]) and s + delay[s] == t:
                bank.absorb(x[s], reward[[s]], delay[[s]], np.ones(1), np.ones(1, dtype=bool))
    np.testing.assert_allclose(replay.losses.sum(axis=0), losses, rtol=1e-9)


def test_events_are_in_the_order_of_time() -> None:
    decided = np.array([10.0, 20.0, 20.0, 30.0])
    arrived = np.array([20.0, 20.0, 35.0, 31.0])
    rows = read_rows(from_arrays(np.ones((4, 1, 1)), [0] * 4, [1.0, 0.0, 1.0, 0.0], time=decided, reward_time=arrived))
    assert rows.clock.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert rows.arrival.tolist() == [3.0, 2.0, 4.0, 4.0]  # the second arrived at once, with the decision
    events, rounds = order_events(rows, np.array([4]))
    # The last reward arrived after the last decision, so it is as old as one that arrived at once.
    assert events[:, :2].tolist() == [[0, SCORE], [1, BOTH], [2, SCORE], [0, LEARN], [3, BOTH], [2, LEARN]]
    assert rounds.tolist() == [[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]]


def test_the_ladder_reaches_from_32_decisions_to_the_whole_log() -> None:
    memories = choose_memories(10_000.0, 0.05, 0.5)
    assert memories[0] == 32.0
    assert np.isinf(memories[-1])
    assert memories[-2] >= 2.0 * 0.05 * 0.5 * 1e8


def test_too_few_rewards_cannot_be_answered() -> None:
    rng = np.random.default_rng(0)

    def obstacle(n: int, dim: int, clicks: int, *, is_sorted: bool = False) -> str:
        reward = np.zeros(n)
        reward[:clicks] = 1.0
        reward = reward if is_sorted else rng.permutation(reward)
        return find_refusal(read_rows(from_arrays(rng.normal(size=(n, 1, dim)), np.zeros(n, dtype=int), reward)))

    assert "at least 200" in obstacle(100, 2, 50)
    assert "rarer kind" in obstacle(10_000, 2, 46)
    assert "rarer kind" in obstacle(1000, 2, 960)
    assert "per coefficient" in obstacle(1000, 20, 150)
    assert obstacle(1000, 2, 150) == ""
    assert "sorted by reward" in obstacle(1000, 2, 150, is_sorted=True)
    assert UNKNOWN == "cannot be answered"


def test_the_binomial_test_of_these_tests() -> None:
    assert is_plausible(95, 100, 0.95)
    assert not is_plausible(80, 100, 0.95)
