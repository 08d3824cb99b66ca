"""EXP3 and EXP3.S as parts of policies: the papers' recursions, draws, what is on offer, and regret bounds."""

import math
from decimal import localcontext

import numpy as np
import pytest

import naive
from support.draws import master_uniform
from support.refusals import refuses
from windvane import EXP3, theory
from windvane.policies.exponential_weights import SharingEXP3


def exp3(arms: int, rate: float, lanes: int = 1, seed: int = 0) -> EXP3:
    return EXP3(arms, rate, lane_ids=np.arange(lanes), seed=seed)


def learn_together(fast: EXP3, literal: naive.NaiveEXP3, j: int, gain: float) -> float:
    """Teach both the gain of arm j; the largest difference of a probability."""
    fast.learn(np.array([j]), np.array([gain]))
    literal.learn(j, gain)
    return float(np.abs(fast.probabilities()[0] - np.array([float(p) for p in literal.p()])).max())


@pytest.mark.parametrize("arms", [1, 2, 3, 14, 30])
@pytest.mark.parametrize("rate", [0.0, 0.05, 0.4, 1.0])
def test_the_law_is_the_papers(arms: int, rate: float) -> None:
    rng = np.random.default_rng([arms, int(100 * rate)])
    fast, literal = exp3(arms, rate), naive.NaiveEXP3(arms, rate)
    with localcontext(prec=60):
        for _ in range(60):
            assert learn_together(fast, literal, int(rng.integers(arms)), float(rng.random())) <= 1e-12
    assert fast.probabilities().sum() == pytest.approx(1.0, abs=1e-12)


def test_weights_that_no_float_could_hold() -> None:
    """Thousands of gains for an arm that is rarely drawn: its weight is beyond 1e308, the law is still right."""
    fast, literal = exp3(4, 0.01), naive.NaiveEXP3(4, 0.01)
    with localcontext(prec=60):
        for turn in range(3000):  # first one arm, then, at probability alpha / N, another
            assert learn_together(fast, literal, 0 if turn < 1500 else 1, 1.0) <= 1e-12
    fast.log_weights += 5000.0  # a common factor changes nothing
    with pytest.raises(OverflowError):
        math.exp(fast.log_weights.max())
    assert np.isfinite(fast.probabilities()).all()


def test_only_the_drawn_weight_moves_and_lanes_do_not_meet() -> None:
    together = exp3(5, 0.3, lanes=3)
    together.learn(np.array([1, 4, 0]), np.array([0.2, 1.0, 0.0]))
    assert (together.log_weights != 0).sum() == 2  # a gain of 0 moves nothing
    for lane, (j, gain) in enumerate([(1, 0.2), (4, 1.0), (0, 0.0)]):
        alone = EXP3(5, 0.3, lane_ids=np.array([lane]))
        alone.learn(np.array([j]), np.array([gain]))
        assert np.array_equal(alone.probabilities()[0], together.probabilities()[lane])
        for turn in range(20):
            assert alone.draw(turn)[0] == together.draw(turn)[lane]


def test_draws_follow_the_law() -> None:
    """The draw is the one uniform of (seed, lane, turn) put through the law; over many lanes it has its frequencies."""
    master = exp3(6, 0.2, lanes=20_000, seed=3)
    master.log_weights[:] = [0.0, 1.0, 2.0, -800.0, 3.0, 0.5]
    p = master.probabilities()[0]
    drawn = master.draw(7)
    for lane in range(50):
        u = master_uniform(3, lane, 7)
        assert drawn[lane] == next(j for j in range(6) if u < p[: j + 1].sum())
    counts = np.bincount(drawn, minlength=6)
    assert ((counts - 20_000 * p) ** 2 / (20_000 * p)).sum() < 25.7  # chi-square, 5 degrees of freedom, 1e-4
    assert not np.array_equal(drawn, master.draw(8))
    assert np.array_equal(drawn, master.draw(7))


def hostile_gains(kind: str, n: int, N: int) -> np.ndarray:
    """gains[turn, arm], chosen to mislead."""
    gains = np.zeros((n, N))
    if kind == "one good arm":
        gains[:, 0] = 1.0
    elif kind == "the good arm changes":
        gains[: n // 3, 0], gains[n // 3 :, 1] = 0.6, 1.0
    elif kind == "a lure first":
        gains[: n // 4, 2], gains[n // 4 :, :-1], gains[n // 4 :, -1] = 1.0, 0.4, 1.0
    elif kind == "in turns":
        gains[np.arange(n), np.arange(n) % N] = 1.0
    else:
        gains += 0.5 + 0.05 * np.arange(N) / N
    return gains


KINDS = ["one good arm", "the good arm changes", "a lure first", "in turns", "small differences"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("N", "turns"), [(3, 200), (8, 600)])
def test_regret_is_within_its_bound(kind: str, N: int, turns: int) -> None:
    """Mean regret over 1000 lanes, against 2 sqrt(e - 1) sqrt(g N log N) with g the number of turns."""
    master = exp3(N, theory.exp3_rate(N, turns), lanes=1000, seed=1)
    earned, gains = np.zeros(1000), hostile_gains(kind, turns, N)
    for turn, row in enumerate(gains):
        j = master.draw(turn)
        master.learn(j, row[j])
        earned += row[j]
    lost = gains.sum(axis=0).max() - earned
    bound = 2 * math.sqrt(math.e - 1) * math.sqrt(turns * N * math.log(N))
    assert lost.mean() + 4 * lost.std() / math.sqrt(1000) <= bound


def test_it_learns() -> None:
    """Where one arm is always better it is drawn most of the time, which the bound alone would not show."""
    master = exp3(3, theory.exp3_rate(3, 3000), lanes=50)
    for turn in range(3000):
        j = master.draw(turn)
        master.learn(j, np.where(j == 1, 0.9, 0.1))
    assert (master.probabilities()[:, 1] > 0.9).all()


@pytest.mark.parametrize("gain", [-1e-9, 1.0 + 1e-9, np.nan])
def test_gains_outside_the_unit_interval_are_refused(gain: float) -> None:
    master = exp3(3, 0.5)
    with refuses("gain"):
        master.learn(np.array([0]), np.array([gain]))
    assert not master.log_weights.any()


@pytest.mark.parametrize(
    ("name", "settings"), [("arms", (0, 0.1)), ("rate", (3, 1.1)), ("rate", (3, np.nan)), ("seed", (3, 0.1, 1, -1))]
)
def test_bad_arguments_are_named(name: str, settings: tuple) -> None:
    with refuses(name):
        exp3(*settings)


def test_every_lane_has_its_own_rate() -> None:
    rates = [0.0, 0.3, 1.0]
    together = EXP3(4, rates, lane_ids=np.arange(3))
    alone = [exp3(4, rate) for rate in rates]
    for turn in range(30):
        j, gain = np.array([turn % 4, 1, (turn * 7) % 4]), np.array([0.1, 0.9, 0.5])
        together.learn(j, gain)
        for lane, one in enumerate(alone):
            one.learn(j[lane, None], gain[lane, None])
            assert np.array_equal(one.probabilities()[0], together.probabilities()[lane])


def test_only_what_is_on_offer_is_drawn() -> None:
    """The weights of the others do not matter, however large they are."""
    master, few = exp3(5, 0.2, lanes=4000, seed=3), exp3(3, 0.2, lanes=4000, seed=3)
    master.log_weights[:] = [0.5, 900.0, -1.0, 2.0, 900.0]
    few.log_weights[:] = [0.5, -1.0, 2.0]
    present = np.tile([True, False, True, True, False], (4000, 1))
    p = master.probabilities(present)
    assert np.allclose(p[:, [0, 2, 3]], few.probabilities(), rtol=1e-15, atol=0)
    assert not p[:, [1, 4]].any()
    assert np.array_equal(np.array([0, 2, 3])[few.draw(5)], master.draw(5, p))


@pytest.mark.parametrize("arms", [1, 2, 3, 12])
@pytest.mark.parametrize(("rate", "share"), [(0.05, 1e-4), (0.4, 0.03), (1.0, 1.0)])
def test_sharing_is_the_papers_recursion(arms: int, rate: float, share: float) -> None:
    """Against 60 digits; arms of probability gamma / K get gains in long runs, so that weights differ by e^100."""
    rng = np.random.default_rng([arms, int(100 * rate)])
    fast = SharingEXP3(arms, rate, share=share, lane_ids=np.array([0]))
    literal = naive.NaiveEXP3S(arms, rate, share)
    with localcontext(prec=60):
        for turn in range(400):
            fast.begin_turn()
            expected = np.array([float(p) for p in literal.p()])
            np.testing.assert_allclose(fast.probabilities()[0], expected, rtol=1e-12)
            j, gain = int(rng.integers(arms)) if turn % 3 == 0 else (turn // 100) % arms, float(rng.random())
            fast.learn(np.array([j]), np.array([gain]))
            literal.learn(j, gain)


def test_shares_do_not_depend_on_other_lanes() -> None:
    together = SharingEXP3(4, 0.2, share=0.01, lane_ids=np.arange(3))
    alone = [SharingEXP3(4, 0.2, share=0.01, lane_ids=np.array([lane])) for lane in range(3)]
    for turn in range(50):
        for master in (together, *alone):
            master.begin_turn()
            drawn = master.draw(turn)
            master.learn(drawn, (drawn + master.lane_ids) % 4 / 4)
    for lane, one in enumerate(alone):
        assert np.array_equal(one.log_weights[0], together.log_weights[lane])


@pytest.mark.parametrize("kind", KINDS)
def test_shared_weights_have_the_regret_of_their_corollary(kind: str) -> None:
    """Mean regret against the best sequence with two changes: 2 sqrt(e - 1) sqrt(K T (S log(K T) + e))."""
    K, T, S = 3, 600, 3
    master = SharingEXP3(
        K, theory.sharing_rate(arms=K, horizon=T, switches=S - 1), share=1 / T, lane_ids=np.arange(500)
    )
    earned, gains = np.zeros(500), hostile_gains(kind, T, K)
    for turn, row in enumerate(gains):
        master.begin_turn()
        j = master.draw(turn)
        master.learn(j, row[j])
        earned += row[j]
    sums = np.concatenate([np.zeros((1, K)), gains.cumsum(axis=0)])
    cuts = range(0, T + 1, 20)
    best = max(
        sum((sums[end] - sums[start]).max() for start, end in ((0, i), (i, j), (j, T)))
        for i in cuts
        for j in cuts
        if i <= j
    )
    lost = best - earned
    bound = 2 * math.sqrt(math.e - 1) * math.sqrt(K * T * (S * math.log(K * T) + math.e))
    assert lost.mean() + 4 * lost.std() / math.sqrt(500) <= bound


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, np.nan])
def test_a_share_is_positive_and_at_most_one(share: float) -> None:
    with refuses("share"):
        SharingEXP3(2, 0.1, share=share, lane_ids=np.array([0]))
