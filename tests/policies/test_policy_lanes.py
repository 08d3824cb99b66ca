"""Lanes and ties."""

import numpy as np

from support.cases import PLAIN, every_policy
from support.policies import ESTIMATES
from support.worlds import ball, draw_reward
from windvane import OFUL, Policy

NAN, INF = float("nan"), float("inf")


@every_policy
def test_lanes_with_one_id_and_one_setting_are_one_bandit(cls, settings) -> None:
    """Repeated ids draw the same ties: shown the same, such lanes never part."""
    policy = cls(2, **settings, lanes=[5, 1, 5], seed=3)
    rng = np.random.default_rng(0)
    parted = False
    for _ in range(60):
        arms = np.repeat(ball(rng, (1, 1), 2), 4, axis=1)  # all arms equal: every choice is a tie
        index = policy.select(np.repeat(arms, 3, axis=0))
        assert index[0] == index[2]
        parted |= bool(index[0] != index[1])
        policy.update(np.repeat(arms[:, 0], 3, axis=0), draw_reward(rng, "logistic", np.zeros(1)).repeat(3))
    assert parted  # 60 ties among 4: another id agrees throughout with probability 4^-60
    info = policy.info()
    for name in ESTIMATES:
        value = getattr(info, name)
        assert (value[0] == value[2]).all()


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


@every_policy
def test_ties_are_broken_uniformly_and_independently(cls, settings) -> None:
    """Among K equal arms each is chosen equally often, whatever was chosen in the lane's last decision.

    A chi-square statistic with k degrees of freedom exceeds k + 8 sqrt(k) + 16 with probability below 1e-6.
    """
    lanes, K = 4000, 5
    policy = cls(2, **settings, lanes=lanes)
    arms = np.full((lanes, K, 2), 0.5)
    first, second = policy.select(arms), policy.select(arms)
    for index in (first, second):
        assert chi_square(np.bincount(index, minlength=K)) < 4 + 8 * 2 + 16
    assert chi_square(np.bincount(K * first + second, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16
    neighbours = K * first[:-1:2] + first[1::2]
    assert chi_square(np.bincount(neighbours, minlength=K * K)) < 24 + 8 * np.sqrt(24) + 16


def test_ties_among_valid_arms_only() -> None:
    """Arms that are not there take no share; what they hold is irrelevant."""
    lanes = 3000
    policy = OFUL(2, lanes=lanes)
    arms = np.full((lanes, 5, 2), 0.5)
    valid = np.array([False, True, True, False, True]) & np.ones((lanes, 1), dtype=bool)
    arms[:, 0], arms[:, 3] = 9.0, NAN
    counts = np.bincount(policy.select(arms, valid), minlength=5)
    assert counts[0] == counts[3] == 0
    assert chi_square(counts[[1, 2, 4]]) < 2 + 8 * np.sqrt(2) + 16


def test_ties_depend_on_seed_lane_id_and_decision_only() -> None:
    """Not on the policy, the place of the lane, its companions, the clock, nor on the rewards."""
    ids = [9, 2, 2**32 - 1, 40, 0]
    arms = np.full((5, 7, 2), 0.5)

    def ties(policy: Policy, between=None, shown: np.ndarray = arms) -> np.ndarray:
        choices = []
        for _ in range(30):
            choices.append(policy.select(shown))
            if between is not None:
                between(policy)
        return np.array(choices)

    expected = ties(OFUL(2, lanes=ids, seed=6))
    for cls, settings in PLAIN.values():
        assert (ties(cls(2, **settings, lanes=ids, seed=6)) == expected).all()
    assert (ties(OFUL(2, lanes=ids[::-1], seed=6))[:, ::-1] == expected).all()
    assert (ties(OFUL(2, lanes=[40], seed=6), shown=arms[:1])[:, 0] == expected[:, 3]).all()
    assert (ties(OFUL(2, lanes=ids, seed=6), lambda p: p.advance(2.5)) == expected).all()
    assert (
        ties(OFUL(2, lanes=ids, seed=6), lambda p: p.update(arms[:, 0], [0.0, 1.0, 1.0, 0.0, 1.0])) == expected
    ).all()
    assert (ties(OFUL(2, lanes=ids, seed=6), lambda p: p.info()) == expected).all()
    assert (ties(OFUL(2, lanes=ids, seed=7)) != expected).any()
    assert (ties(OFUL(2, lanes=ids, seed=6 + 2**32)) != expected).any()


def test_what_counts_as_a_tie() -> None:
    """Scores within 1e-12 max(1, |best|) of the best are equal; a relative 1e-9 is a difference."""
    lanes = 400
    close, apart = (np.full((lanes, 2, 1), 1.0) for _ in range(2))
    close[:, 1] -= 1e-14
    apart[:, 1] -= 1e-9
    index = OFUL(1, lanes=lanes).select(close)
    assert 0 < index.sum() < lanes
    assert (OFUL(1, lanes=lanes).select(apart) == 0).all()
    assert (OFUL(1, lanes=lanes).select(apart[:, ::-1]) == 1).all()
