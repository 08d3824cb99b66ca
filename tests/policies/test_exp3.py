"""Rexp3 and EXP3.S against their papers, late rewards and what is not learned, arms on offer, settings."""

import math
from decimal import localcontext
from typing import Any

import numpy as np
import pytest
from scipy import stats

import naive
from support.draws import master_uniform
from support.policies import decision
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state
from windvane import EXP3S, Rexp3, theory

P_VALUE = 1e-6
K = 4
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Rexp3": (Rexp3, {"restart_every": 40}),
    "EXP3.S": (EXP3S, {"horizon": 200}),
}
by_kind = pytest.mark.parametrize("kind", KINDS)


def build(kind: str, **settings: Any) -> Any:
    cls, own = KINDS[kind]
    return cls(K, **own | settings)


def transcribe(policy: Any, lane: int) -> Any:
    rate = policy.exp3.rates[lane]
    if isinstance(policy, EXP3S):
        return naive.NaiveEXP3S(K, rate, policy.exp3.share)
    return naive.NaiveRexp3(K, rate, int(policy.periods[lane]))


def floats(p: Any) -> np.ndarray:
    return np.array([float(x) for x in p])


def means_of(t: int) -> np.ndarray:
    return np.array([[0.5, 0.3, 0.4, 0.2], [0.2, 0.1, 0.3, 0.9]])[int(t > 120)]


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@by_kind
def test_the_literal_transcription_draws_alike(kind: str, sigma: float) -> None:
    """With 60 digits; the arms come in any order."""
    ids = [4, 0, 9]
    own = {"switches": [0.0, 3.0, 90.0]} if kind == "EXP3.S" else {"restart_every": [7, 40, 1000]}
    fast = build(kind, lanes=ids, seed=5, sigma=sigma, **own)
    slow, rng = [transcribe(fast, lane) for lane in range(3)], np.random.default_rng(0)
    with localcontext(prec=60):
        for t in range(1, 251):
            order = rng.permutation(K)
            arms = np.tile(np.eye(K)[order], (3, 1, 1))
            p, choice = fast.probabilities(arms), fast.select(arms)
            reward = 2 * sigma * (rng.random(3) < means_of(t)[order[choice]]) * rng.random(3)
            for lane, literal in enumerate(slow):
                law = literal.p()
                np.testing.assert_allclose(p[lane], floats(law)[order], rtol=1e-11)
                assert order[choice[lane]] == naive.draw(law, master_uniform(5, ids[lane], t - 1))
                literal.learn(int(order[choice[lane]]), reward[lane] / (2 * sigma))
            fast.update(arms[np.arange(3), choice], reward)
        arms = np.tile(np.eye(K), (3, 1, 1))
        for lane, literal in enumerate(slow):
            np.testing.assert_allclose(fast.info().draw_probabilities[lane], floats(literal.p()), rtol=1e-11)
            np.testing.assert_allclose(fast.probabilities(arms)[lane], floats(literal.p()), rtol=1e-11)
    # The last reward of a batch comes after the restart.
    assert fast.info().unused.tolist() == ([0, 0, 0] if kind == "EXP3.S" else [250 // 7, 250 // 40, 0])


@by_kind
def test_a_late_reward_counts_with_the_probability_of_its_decision(kind: str) -> None:
    """Decide eight times, then learn in any order: every weight has the factor of its own p, not of today's."""
    policy, arms, rng = build(kind, rate=0.3), np.eye(K)[None], np.random.default_rng(0)
    draws = []
    for t in range(1, 9):
        p, k = policy.probabilities(arms)[0], int(policy.select(arms)[0])
        draws.append((t, k, p[k]))
        if t < 4:
            policy.update(arms[:, k], 0.9)  # so that the probabilities differ
    weights = policy.exp3.log_weights[0].copy()
    for i in rng.permutation(5):
        t, k, p = draws[3 + i]
        policy.update(arms[:, k], 0.25, round=float(t), weight=2.0)
        weights[k] += 0.3 * 0.5 / (K * p)
    np.testing.assert_allclose(policy.exp3.log_weights[0], weights, rtol=1e-13)
    assert len({p for *_, p in draws}) > 3


@by_kind
def test_what_changes_no_weight(kind: str) -> None:
    policy, arms = build(kind, log_length=5), np.eye(K)[None]
    chosen = []
    for _ in range(8):
        chosen.append(int(policy.select(arms)[0]))
    before = policy.exp3.log_weights.copy()
    policy.update(arms[:, chosen[2]], 1.0, round=3.0)  # the log has rounds 4 to 8
    policy.update(arms[:, (chosen[7] + 1) % K], 1.0)  # another arm was drawn
    policy.update(arms[:, chosen[7]], 1.0, round=7.5)  # no decision
    policy.update(arms[:, chosen[7]], 1.0, round=0.0)  # before the first one
    policy.update(arms[:, chosen[7]], 1.0, round=-3.0)
    assert np.array_equal(policy.exp3.log_weights, before)
    assert policy.info().unused.tolist() == [5]
    assert policy.info().N.sum() == 5.0  # but the means, which are for people, count all of them
    policy.update(arms[:, chosen[7]], np.nan, mask=[False])
    policy.update(arms[:, chosen[7]], 1.0, weight=0.0)
    assert np.array_equal(policy.exp3.log_weights, before)
    policy.update(arms[:, chosen[3]], 1.0, round=4.0)
    assert not np.array_equal(policy.exp3.log_weights, before)


def test_unused_rewards_are_those_with_a_weight() -> None:
    policy, arms = build("EXP3.S"), np.eye(K)[None]
    k = int(policy.select(arms)[0])
    policy.update(arms[:, (k + 1) % K], 1.0, weight=0.0)
    assert policy.info().unused.tolist() == [0]


@by_kind
def test_random_play_by_others_scales_all_estimates_alike(kind: str) -> None:
    """An agent plays a random arm in half of the rounds. The drawn arm is learned when it is played, so that the mean
    change of every log weight is (rate / K)(1/2 + 1/8) mean_k, whatever its probability."""
    lanes, rate = 40_000, 0.4
    policy, rng = build(kind, lanes=lanes, rate=rate), np.random.default_rng(0)
    weights = np.array([0.0, 0.5, 1.0, 2.0])
    policy.exp3.log_weights[:] = weights
    arms, means = np.tile(np.eye(K), (lanes, 1, 1)), np.array([0.9, 0.2, 0.5, 0.4])
    drawn = policy.select(arms)
    before = policy.exp3.log_weights.copy()
    played = np.where(rng.random(lanes) < 0.5, rng.integers(K, size=lanes), drawn)
    policy.update(arms[np.arange(lanes), played], (rng.random(lanes) < means[played]).astype(float))
    steps = policy.exp3.log_weights - before
    expected = rate / K * (0.5 + 0.5 / K) * means
    error = steps.std(axis=0) / math.sqrt(lanes)
    assert (np.abs(steps.mean(axis=0) - expected) < 5.5 * error).all()


@by_kind
def test_arms_that_are_not_on_offer_or_listed_twice(kind: str) -> None:
    lanes = 20_000
    policy = build(kind, lanes=lanes, seed=2, rate=0.2)
    weights = np.array([0.0, 0.5, 1.0, 2.0])
    policy.exp3.log_weights[:] = weights
    arms = np.tile(np.eye(K)[[2, 0, 2, 3, 1]], (lanes, 1, 1))
    valid = np.tile([True, True, True, True, False], (lanes, 1))
    w = np.exp(weights)
    p = 0.8 * w / w[[0, 2, 3]].sum() + 0.2 / 3
    expected = np.array([p[2] / 2, p[0], p[2] / 2, p[3], 0.0])
    np.testing.assert_allclose(policy.probabilities(arms, valid)[0], expected, rtol=1e-13)
    choice = policy.select(arms, valid)
    counts = np.bincount(choice, minlength=5)
    assert stats.chisquare(counts[:4], lanes * expected[:4]).pvalue > P_VALUE
    policy.update(arms[np.arange(lanes), choice], 1.0)
    arm = np.array([2, 0, 2, 3, 1])[choice]
    steps = policy.exp3.log_weights[np.arange(lanes), arm] - weights[arm] + policy_shift(policy)
    np.testing.assert_allclose(steps, 0.2 / (K * p[arm]), rtol=1e-12)  # 1/K, not 1/3: K counts all arms


def policy_shift(policy: Any) -> float:
    """EXP3.S stores weights relative to the largest one before the gain."""
    return 2.0 if isinstance(policy, EXP3S) else 0.0


@by_kind
def test_decisions_are_recorded_for_people(kind: str) -> None:
    policy, world = build(kind, lanes=2), LaneWorld([0, 1], K, one_hot=True)
    play(policy, world, range(30))
    arms = world.arms(31)
    choice = policy.select(arms)
    seen, arm = decision(policy), arms.argmax(axis=2)
    np.testing.assert_array_equal(seen.means, np.take_along_axis(policy.info().theta_hat, arm, axis=1))
    assert np.array_equal(seen.scores, seen.means)
    best = seen.order.argmax(axis=1)
    assert np.array_equal(np.take_along_axis(arm, best[:, None], axis=1)[:, 0], arm[[0, 1], choice])


def test_rexp3_restarts_after_every_batch() -> None:
    """After Delta_T decisions, whatever time passes, all weights are 1 again; a reward from before is not learned."""
    policy, arms = Rexp3(K, restart_every=[3, 5], rate=0.5, lanes=2), np.tile(np.eye(K), (2, 1, 1))
    for t in range(1, 16):
        policy.advance(0.25 * (t % 2))
        assert (policy.probabilities(arms)[0] == 0.25).all() == (t % 3 == 1)
        assert (policy.probabilities(arms)[1] == 0.25).all() == (t % 5 == 1)
        choice, decided = policy.select(arms), policy.t - 1.0
        policy.update(arms[[0, 1], choice], 1.0, round=decided)
    unused = policy.info().unused
    assert unused.tolist() == [5, 3]  # the last reward of each batch comes after the restart


def test_the_recommended_settings_are_the_printed_ones() -> None:
    tuned = Rexp3(K, horizon=5000, drift=[0.0, 3.0, 40.0], sigma=1.0, lanes=3)
    batches = [theory.exp3_batch(arms=K, horizon=5000, drift=V / 2.0) for V in (0.0, 3.0, 40.0)]
    assert tuned.periods.tolist() == batches
    assert tuned.exp3.rates.tolist() == [theory.exp3_rate(K, batch) for batch in batches]
    assert Rexp3(K, restart_every=50, rate=0.25).exp3.rates.tolist() == [0.25]
    sharing = EXP3S(K, horizon=5000, switches=[0.0, 3.0], lanes=2)
    assert sharing.exp3.rates.tolist() == [theory.sharing_rate(arms=K, horizon=5000, switches=G) for G in (0.0, 3.0)]
    assert sharing.exp3.share == 1 / 5000
    assert EXP3S(K, horizon=5000).exp3.rates[0] == theory.sharing_rate(arms=K, horizon=5000)
    assert EXP3S(K, rate=0.1, share=0.02).exp3.share == 0.02


@pytest.mark.parametrize(
    ("cls", "settings", "name"),
    [
        (Rexp3, {}, "restart_every"), (Rexp3, {"horizon": 10}, "restart_every"),
        (Rexp3, {"restart_every": 2.5}, "restart_every"), (Rexp3, {"restart_every": 9, "rate": 1.5}, "rate"),
        (Rexp3, {"restart_every": 9, "log_length": 0}, "log_length"), (Rexp3, {"horizon": 10, "drift": -1.0}, "drift"),
        (EXP3S, {}, "rate"), (EXP3S, {"rate": 0.1}, "share"), (EXP3S, {"horizon": 10, "share": 0.0}, "share"),
        (EXP3S, {"horizon": 0}, "horizon"), (EXP3S, {"horizon": 10, "switches": -1.0}, "switches"),
    ],
)  # fmt: skip
def test_bad_settings_are_named(cls: Any, settings: dict[str, Any], name: str) -> None:
    with refuses(name):
        cls(K, **settings)


@by_kind
def test_rewards_outside_their_range_are_refused(kind: str) -> None:
    policy = build(kind, sigma=1.0)
    x = np.eye(K)[policy.select(np.eye(K)[None])]
    before = policy.state()
    for reward in (-1e-9, 2.0 + 1e-9):
        with refuses("reward"):
            policy.update(x, reward)
    assert same_state(policy.state(), before)
    policy.update(x, 2.0)


@by_kind
def test_impossible_states_are_refused(kind: str) -> None:
    policy = build(kind)
    play(policy, LaneWorld([0], K, one_hot=True), range(20))
    for name, bad in {
        "log_rounds": 99.0,
        "log_arms": K,
        "log_probabilities": 1.5,
        "exp3.log_weights": math.inf,
    }.items():
        state = policy.state()
        state[name][..., 0] = bad
        with refuses(f"state['{name}']"):
            build(kind).load_state(state)


@pytest.mark.parametrize("change", [(0.9, 0.1), (0.1, 0.9)])
@by_kind
def test_they_follow_a_change(kind: str, change: tuple[float, float]) -> None:
    """Over 200 lanes, the second arm gets most of the draws of the last rounds exactly if it has become the best."""
    cls, lanes, T = KINDS[kind][0], 200, 3000
    policy = cls(2, horizon=T, lanes=lanes, **({"drift": 0.8} if cls is Rexp3 else {"switches": 1}))
    arms, rng = np.tile(np.eye(2), (lanes, 1, 1)), np.random.default_rng(1)
    late = 0.0
    for t in range(T):
        means = np.array([0.5, change[t >= T // 2]])
        choice = policy.select(arms)
        late += choice.mean() * (t >= T - 500) / 500
        policy.update(arms[np.arange(lanes), choice], (rng.random(lanes) < means[choice]).astype(float))
    assert (late > 0.6) == (change[1] == 0.9)
