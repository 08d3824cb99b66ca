"""D-UCB and SW-UCB against sums over all plays, what arms they accept, and that they follow changes."""

import math
from typing import Any

import numpy as np
import pytest

import naive
from support.policies import decision, scores
from support.refusals import refuses
from support.worlds import LaneWorld, play
from windvane import DUCB, SWUCB, Ball, Policy, Sphere, theory
from windvane.policies.multi_armed import UNKNOWN

K = 4
KINDS: dict[str, tuple[Any, str]] = {"D-UCB": (DUCB, "gamma"), "SW-UCB": (SWUCB, "window")}
by_kind = pytest.mark.parametrize("kind", KINDS)


def means_of(t: int) -> np.ndarray:
    """Means of the arms that change twice."""
    return np.array([[0.5, 0.3, 0.4, 0.2], [0.3, 0.7, 0.2, 0.4], [0.2, 0.1, 0.3, 0.9]])[min(t // 100, 2)]


@pytest.mark.parametrize(("sigma", "xi"), [(0.5, 0.5), (1.5, 2.0)])
@by_kind
def test_the_literal_transcription_decides_alike(kind: str, sigma: float, xi: float) -> None:
    """Arms in any order, some of them not on offer; rewards that are late or never come."""
    cls, name = KINDS[kind]
    tunings, ids = {"gamma": [0.9, 0.99, 1.0], "window": [12.0, 60.0, 500.0]}[name], [4, 0, 9]
    fast: Policy = cls(K, lanes=ids, seed=3, sigma=sigma, xi=xi, **{name: tunings})
    slow = [naive.NaiveIndexUCB(K, 2 * sigma, xi, **{{"window": "tau"}.get(name, name): w}) for w in tunings]
    rng, due = np.random.default_rng(0), []
    for t in range(1, 301):
        order, valid = rng.permutation(K), rng.random((3, K)) < 0.8
        valid[:, t % K] = True
        arms = np.tile(np.eye(K)[order], (3, 1, 1))
        choice = fast.select(arms, valid)
        for lane, literal in enumerate(slow):
            expected = np.array([literal.index(i, t) for i in order])
            is_known = np.isfinite(expected)
            np.testing.assert_allclose(
                scores(fast)[lane][is_known & valid[lane]], expected[is_known & valid[lane]], rtol=1e-11
            )
            assert (scores(fast)[lane][~is_known & valid[lane]] == UNKNOWN).all()
            best = np.where(valid[lane], expected, -1.0)
            assert math.isclose(best[choice[lane]], best.max(), rel_tol=1e-11)
            assert np.isfinite(decision(fast).means).all()
        played = order[choice]
        reward = 2 * sigma * (rng.random(3) < means_of(t)[played])
        due += [(t + int(rng.choice([0, 0, 0, 3, 10**9])), t, lane, played[lane], reward[lane]) for lane in range(3)]
        for _, s, lane, arm, x in [entry for entry in due if entry[0] == t]:
            fast.update(np.eye(K)[[arm] * 3], x, round=float(s), mask=np.arange(3) == lane)
            slow[lane].plays.append((s, int(arm), float(x)))
    info = fast.info()
    for lane, literal in enumerate(slow):
        np.testing.assert_allclose(info.N[lane], [literal.N(i, 301) for i in range(K)], rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(info.theta_hat[lane], [literal.mean(i, 301) for i in range(K)], rtol=1e-11)


@by_kind
def test_every_arm_is_played_once_before_any_is_played_again(kind: str) -> None:
    cls, name = KINDS[kind]
    policy = cls(K, lanes=200, seed=1, **{name: {"gamma": 0.9, "window": 50.0}[name]})
    arms, chosen = np.tile(np.eye(K), (200, 1, 1)), []
    for _ in range(K):
        chosen.append(policy.select(arms))
        policy.update(arms[np.arange(200), chosen[-1]], 0.5)
    assert (np.sort(np.array(chosen), axis=0) == np.arange(K)[:, None]).all()
    first = np.bincount(chosen[0], minlength=K)
    assert first.min() > 20  # drawn at random: 200 / 4 with a standard deviation of 6


@by_kind
def test_only_unit_vectors_are_arms(kind: str) -> None:
    cls, name = KINDS[kind]
    policy = cls(3, lanes=2, **{name: {"gamma": 0.9, "window": 50.0}[name]})
    arms = np.tile(np.eye(3), (2, 1, 1))
    policy.select(arms)
    policy.update(arms[:, 0], 1.0)
    before = policy.state()
    for bad in ([0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [-1.0, 0.0, 0.0], [1.0, 1e-300, 0.0], [0.6, 0.8, 0.0]):
        wrong = arms.copy()
        wrong[1, 2] = bad
        with refuses("arms", where="lane 1, arm 2"):
            policy.select(wrong)
        with refuses("arms"):
            policy.probabilities(wrong)
        with refuses("x", where="lane 1"):
            policy.update(wrong[:, 2], 1.0)
    for arm_set in (Ball(1.0), Sphere(1.0)):
        with refuses("arm_set"):
            policy.select_from(arm_set)
    with refuses("arms"):
        policy.select(np.ones((2, 2, 3)))  # longer than any unit vector
    after = policy.state()
    assert all(np.array_equal(after[entry], before[entry]) for entry in before)
    wrong[1, 2] = np.nan  # features of an arm that is not on offer do not matter
    assert (policy.select(wrong, np.array([[True] * 3, [True, True, False]])) < 3).all()
    policy.update(wrong[:, 2], 1.0, mask=[True, False])
    with pytest.raises(TypeError, match="'L'"):
        cls(3, L=2.0)


@by_kind
def test_the_recommended_settings_are_the_printed_ones(kind: str) -> None:
    cls, name = KINDS[kind]
    tuned = cls(K, horizon=5000, switches=[0.0, 2.0, 50.0], sigma=1.5, lanes=3)
    formula = {"gamma": theory.switching_discount, "window": theory.switching_window}[name]
    expected = [formula(horizon=5000, switches=G, bound=3.0) for G in (0.0, 2.0, 50.0)]
    assert np.array_equal(getattr(tuned.arm_means, name), expected)
    assert tuned.info().gamma[0] == 1.0
    with refuses("switches"):
        cls(K, switches=2.0, horizon=100, **{name: 0.9})
    with refuses(name):
        cls(K, horizon=100)
    with refuses("xi"):
        cls(K, horizon=100, switches=1.0, xi=0.0)


@by_kind
def test_without_rewards_nothing_is_known(kind: str) -> None:
    """Before the first reward, and long after the last one, all arms are alike; log n_t is never negative."""
    cls, name = KINDS[kind]
    policy = cls(3, **{name: {"gamma": 0.5, "window": 5.0}[name]})
    arms = np.eye(3)[None]
    policy.select(arms)
    assert (scores(policy) == UNKNOWN).all()
    policy.update(arms[:, 0], 0.25)
    policy.advance(10.0)
    policy.select(arms)
    known = {"gamma": 0.25, "window": UNKNOWN}[name]  # n_t = 0.5^10 counts as 1, so there is no bonus
    assert scores(policy).tolist() == [[known, UNKNOWN, UNKNOWN]]
    policy.advance(5000.0)
    policy.select(arms)
    assert (scores(policy) == UNKNOWN).all()


@by_kind
def test_the_same_rewards_in_other_units_give_the_same_choices(kind: str) -> None:
    cls, name = KINDS[kind]
    settings = {name: {"gamma": 0.95, "window": 40.0}[name], "lanes": [0, 1], "seed": 2}
    one, other = cls(3, **settings), cls(3, sigma=4.0, **settings)
    world = LaneWorld([0, 1], 3, one_hot=True)
    for t in range(100):
        arms = world.arms(t)
        choice = one.select(arms)
        assert np.array_equal(choice, other.select(arms))
        x = arms[np.arange(2), choice]
        reward = world.rewards(x, t)
        one.update(x, reward)
        other.update(x, 8.0 * reward)


@by_kind
def test_after_a_change_the_best_arm_is_found_again(kind: str) -> None:
    """In the last 50 rounds before each change, the best of arms that differ by 0.6 is played most of the time."""
    cls, _ = KINDS[kind]
    lanes, T = 100, 900
    policy = cls(3, horizon=T, switches=2, lanes=lanes)
    arms, rng, best = np.tile(np.eye(3), (lanes, 1, 1)), np.random.default_rng(0), [0, 2, 1]
    hits = np.zeros(3)
    for t in range(T):
        choice = policy.select(arms)
        segment = t // 300
        hits[segment] += (choice == best[segment]).mean() * (t % 300 >= 250)
        policy.update(
            arms[np.arange(lanes), choice], (rng.random(lanes) < np.where(choice == best[segment], 0.9, 0.3)) * 1.0
        )
    assert (hits / 50 > 0.6).all()


def test_a_restart_counts_the_rounds_of_sw_ucb_anew() -> None:
    policy, fresh = SWUCB(3, window=100.0, lanes=2), SWUCB(3, window=100.0, lanes=2)
    world = LaneWorld([0, 1], 3, one_hot=True)
    play(policy, world, range(50))
    policy.restart([True, False])
    assert policy.rounds_since_restart.tolist() == [1.0, 51.0]
    for t in range(30):
        arms = world.arms(t)
        for each in (policy, fresh):
            each.select(arms)
            each.update(arms[:, 0], [0.0, 1.0])
        assert np.array_equal(scores(policy)[0], scores(fresh)[0])
        assert t < 3 or (scores(policy)[1] < scores(fresh)[1] + 1e-12).any()
