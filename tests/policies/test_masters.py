"""What masters over policies have in common, the adapter that runs one policy per lane, and MASTER.

Of MASTER: its schedule, its base policies, and when its tests fail.
"""

import math

import numpy as np
import pytest

import naive
import windvane as wv
from support.cases import OnePolicyPerLane
from support.policies import known, master_lane
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state
from windvane import MasterGLMUCB, MasterLogisticUCB1, MasterOFUL, Policy, Sphere


@pytest.mark.parametrize("cls", [wv.BOB, MasterOFUL])
def test_a_master_has_the_norm_bound_of_the_policies_within(cls) -> None:
    assert cls(2, horizon=50, S=2.0).S == 2.0


@pytest.mark.parametrize("cls", [wv.BVDGLMUCB, wv.DLinUCB])
def test_per_lane_is_the_batched_policy_bit_for_bit(cls) -> None:
    ids, gammas = [3, 0, 8], [0.9, 0.95, 1.0]
    world = LaneWorld(ids, 3)
    one = OnePolicyPerLane(3, base=cls.name, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    other = cls(3, sigma=0.6, lanes=ids, seed=4, gamma=gammas, delta=0.1)
    assert np.array_equal(play(one, world, range(40)), play(other, world, range(40)))
    late = {"round": [3, 4, 5], "weight": [1, 2, 0.5], "mask": [True, True, False]}
    for policy in (one, other):
        policy.advance(1.5)
        policy.update(world.arms(0)[:, 0], [1.0, 0.0, 0.5], **late)
    assert np.array_equal(play(one, world, range(40, 60)), play(other, world, range(40, 60)))
    assert np.array_equal(one.select_from(Sphere(1.0)), other.select_from(Sphere(1.0)))
    alone, together = one.info(), other.info()
    for mine, theirs in ((alone, together), (alone.decision, together.decision)):
        assert known(mine).keys() == known(theirs).keys()
        for name in known(mine).keys() - {"decision", "projection"}:
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    if cls is wv.BVDGLMUCB:
        assert np.array_equal(alone.decision.projection.report, together.decision.projection.report)


class Doubting(wv.BVDGLMUCB):
    """It learns half of every reward."""

    def update(self, x, reward, round=None, weight=1.0, mask=None) -> None:
        super().update(x, 0.5 * np.asarray(reward), round, weight, mask)


class DoubtingLanes(wv.PerLane):
    def build_lane(self, place: int) -> wv.Policy:
        return self.derive(Doubting, gamma=0.9, lanes=[int(self.lane_ids[place])])


class DoubtingWorkers(wv.BOBBVDGLMUCB):
    def build_worker(self, values) -> Doubting:
        return super().build_worker(values).derive(Doubting)


@pytest.mark.parametrize("doubting", [DoubtingLanes(2, lanes=2), DoubtingWorkers(2, horizon=40, lanes=2)])
def test_policies_inside_that_override_update_learn_there(doubting: wv.Policy) -> None:
    inner = (doubting.worker,) if isinstance(doubting, wv.BanditOverBandits) else doubting.policies
    expected = [wv.BVDGLMUCB(**policy.get_params()) for policy in inner]
    arms = LaneWorld([0, 1], 2).arms(0)
    for policy in (doubting, *expected):
        policy.select(arms[: policy.lane_count])
    doubting.update(arms[:, 0], 1.0)
    for place, (policy, twin) in enumerate(zip(inner, expected, strict=True)):
        twin.update(arms[place:, 0][: twin.lane_count], 0.5)
        assert np.array_equal(policy.info().b, twin.info().b)
        assert policy.info().b.any()


def test_a_bad_lane_leaves_the_others_alone() -> None:
    policy, world = OnePolicyPerLane(3, lanes=2, gamma=0.95), LaneWorld([0, 1], 3)
    play(policy, world, range(5))
    before = policy.state()
    with refuses("reward", where="lane 1"):
        policy.update(np.zeros((2, 3)), [1.0, 5.0])
    arms = world.arms(9)
    arms[1, 2] = 7.0
    with refuses("arms", where="lane 1, arm 2"):
        policy.select(arms)
    with refuses("state"):
        policy.load_state(before | {"lane1.estimator.dense": before["lane1.estimator.dense"] + 1.0})
    assert same_state(policy.state(), before)
    with refuses("gamma"):
        OnePolicyPerLane(2, lanes=2, gamma=[0.9, 0.9, 0.9])


# --- MASTER -----------------------------------------------------------------------------------------------------------

every_form = pytest.mark.parametrize("cls", [MasterOFUL, MasterGLMUCB, MasterLogisticUCB1])


@every_form
def test_master_with_an_extreme_level(cls) -> None:
    cls(2, horizon=100, delta=1e-320).select(np.full((1, 2, 2), 0.3))


@pytest.mark.parametrize("first_order", [0, 4])
@every_form
def test_master_schedule(cls, first_order: int) -> None:
    ids = [0, 6]
    policy, world = cls(2, horizon=500, first_order=first_order, lanes=ids, seed=9), LaneWorld(ids, 2)
    schedules = [naive.master_schedule(9, lane, first_order, 150) for lane in ids]
    for t in range(150):
        play(policy, world, range(t, t + 1))
        info = policy.info(estimates=False)
        for place, rows in enumerate(schedules):
            order, acting, alive = rows[t]
            assert (info.block_order[place], info.acting_order[place]) == (order, acting)
            assert sorted(master_lane(policy, place).copies) == alive
    assert not info.restarts.any()


def test_copies_of_order_m_start_with_their_probability() -> None:
    """In a block of order 6, at every multiple of 2^m, with probability sqrt(2^m / 2^6)."""
    lanes, n = 200, 6
    policy = MasterOFUL(1, horizon=1000, first_order=n, lanes=lanes)
    started = np.zeros(n + 1)
    for t in range(2**n):
        policy.select(np.full((lanes, 1, 1), 0.5))
        started += sum(1.0 * (master_lane(policy, lane).starts[: n + 1] == t) for lane in range(lanes))
    for m in range(n + 1):
        trials, p = lanes * 2 ** (n - m), math.sqrt(2.0 ** (m - n))
        assert abs(started[m] - trials * p) <= 4.5 * math.sqrt(trials * p * (1 - p))
    assert started[n] == lanes


def test_a_copy_learns_only_what_it_decided() -> None:
    """Each copy of a block holds as many observations as decisions it made, the others having paused it."""
    policy, world = MasterGLMUCB(2, horizon=500, first_order=6, seed=3), LaneWorld([0], 2)
    decided: dict[tuple[int, int], int] = {}
    for t in range(64):
        play(policy, world, range(t, t + 1))
        lane = master_lane(policy)
        order = min(lane.copies)
        key = (order, int(lane.starts[order]))
        decided[key] = decided.get(key, 0) + 1
        for m, copy in lane.copies.items():
            assert copy.estimator.remembered.tolist() == [decided.get((m, int(lane.starts[m])), 0)]
    assert len(decided) > 5


def sensible_master(cls, bonus: float, margin: float, first_order: int = 10, **settings) -> Policy:
    """MASTER with bonus ||x||_{V^-1} and 3 rho_hat(t) = margin / sqrt(t), in place of 46 and 3e5."""
    settings |= {"dim": 3, "horizon": 3000, "first_order": first_order, "seed": 1}
    probe = master_lane(cls(lanes=1, **settings))
    scales = {"test_scale": margin / (3 * probe.rho_hat(1)), "bonus_scale": bonus / probe.base_bonus}
    return cls(lanes=8, **scales, **settings)


def restarts(policy: Policy, mean, rounds: int) -> np.ndarray:
    """Clicks with probability mean(t, cos), ten fixed arms (1, cos, sin) / sqrt(2); restarts of each lane after t."""
    rng, lanes = np.random.default_rng(0), policy.lane_count
    angles = 2 * np.pi * np.arange(10) / 10
    arms = np.stack([np.ones(10), np.cos(angles), np.sin(angles)], axis=1) / math.sqrt(2)
    counts = []
    for t in range(rounds):
        index = policy.select(np.repeat(arms[None], lanes, axis=0))
        policy.update(arms[index], (rng.random(lanes) < mean(t, np.cos(angles[index]))).astype(float))
        counts.append(policy.info(estimates=False).restarts)
    return np.array(counts)


JUMPS = {
    "MASTER-OFUL": (MasterOFUL, {}, lambda level, cos: 0.5 + 0.45 * level + 0.02 * cos),
    "MASTER-GLM-UCB": (MasterGLMUCB, {"S": 3.0}, lambda level, cos: 1 / (1 + np.exp(-2 * level - 0.1 * cos))),
    "MASTER-Logistic-UCB-1": (
        MasterLogisticUCB1,
        {"S": 3.0, "lam": 0.045},
        lambda level, cos: 1 / (1 + np.exp(-2 * level - 0.1 * cos)),
    ),
}


@pytest.mark.parametrize(("cls", "settings", "mean"), JUMPS.values(), ids=JUMPS)
def test_master_restarts_after_a_huge_jump_and_not_without(cls, settings, mean) -> None:
    """Test 2: a world whose rewards break away fails it in every lane, a stationary one in none.

    With a bonus of ||x|| copies are optimistic from the start, as MASTER asks of them. Rewards near 0.9 leave f - r at
    most 0.1, that is 3.2 / sqrt(t) after 1000 rounds; rewards near 0.1 leave several times as much. The margin is 6.
    """
    for jump in (math.inf, 300):
        policy = sensible_master(cls, 1.0, 6.0, **settings)
        found = restarts(policy, lambda t, cos: mean(0.9 if t < jump else -0.9, cos), 1000)
        assert not found[: int(min(jump, 999)) + 1].any()
        assert (found[-1] >= (jump == 300)).all()


def test_master_restarts_when_the_world_gets_better() -> None:
    """Test 1: U_t remembers a poor world, and a copy that lived in a rich one did better than it allows.

    9 rho_hat(2^m) = 21 / 2^(m/2) is below 1 for m >= 9, and the copy of the block itself ends after 2^12 rounds.
    """
    policy = sensible_master(MasterOFUL, 0.3, 7.0, first_order=12)
    better = restarts(policy, lambda t, cos: (0.1 if t < 300 else 0.95) + 0.0 * cos, 2**12 + 1)
    assert not better[: 300 + 2**8].any()
    assert (better[-1] >= 1).all()


@pytest.mark.parametrize(("sigma", "L"), [(0.5, 1.0), (0.9, 1.0), (0.5, 0.1), (0.5, 30.0)])
@pytest.mark.parametrize(("cls", "mean_at_0"), [(MasterOFUL, 0.0), (MasterGLMUCB, 0.5)])
def test_the_bases_have_the_stated_bonus(cls, mean_at_0: float, sigma: float, L: float) -> None:
    """Before any reward the index of an arm L x is mu(0) + 2 beta ||x|| / sqrt(lam), times 2 sigma."""
    T, delta, lam, d = 500, 0.1, 2.0, 3
    settings = {"horizon": T, "delta": delta, "lam": lam * L**2, "sigma": sigma, "L": L, "S": 1 / L}
    policy = cls(d, **settings)
    arms = L * np.array([[[0.5, 0.0, 0.0], [0.1, 0.1, 0.0]]])
    assert policy.select(arms)[0] == 0
    c, R = naive.constants(naive.LINKS["logistic"], 1.0, 1.0)[1:]
    beta = 4 * math.sqrt(d * math.log(T / delta))
    if cls is MasterGLMUCB:
        beta = 4 * R * (math.sqrt(d * math.log(c * T / (lam * delta))) + c * math.sqrt(lam))
    lane = master_lane(policy)
    bonus = 2 * sigma * 2 * beta * 0.5 / math.sqrt(lam)
    assert lane.index == pytest.approx(mean_at_0 + bonus, rel=1e-6)
    assert lane.rho(7) == pytest.approx(beta * math.sqrt(d * math.log(T / delta) / 7), rel=1e-6)
    assert lane.rho_hat(7) == pytest.approx(6 * (math.log2(T) + 1) * math.log(T / delta) * lane.rho(7))
    infinite = cls(d, **settings)
    infinite.select_from(Sphere(0.5 * L))
    assert master_lane(infinite).multiplier == pytest.approx(lane.multiplier, rel=1e-6)


@pytest.mark.parametrize(("sigma", "L", "S"), [(0.5, 1.0, 1.0), (0.9, 1.0, 2.0), (0.5, 2.0, 0.7)])
def test_the_base_of_faury_et_al(sigma: float, L: float, S: float) -> None:
    """Index 0.25 sqrt(4 + 8S) sqrt(kappa) gamma_T(delta/T) |x| in V^-1; t rho(t) is the bound of their Theorem 2.

    For arms x / L with S L, and rewards in [0, m] instead of [0, 1]; the tests see rewards divided by m.
    """
    T, delta, d, m = 500, 0.1, 3, 2 * sigma
    policy = MasterLogisticUCB1(d, horizon=T, delta=delta, sigma=sigma, L=L, S=S)
    policy.select(L * np.array([[[0.5, 0.0, 0.0], [0.1, 0.1, 0.0]]]))
    kappa, lam, SL = 1 / naive.constants(naive.LINKS["logistic"], S, L)[1], d * math.log(T), S * L
    log_term = math.log(2**d / (delta / T) * (1 + T / (4 * d * lam)) ** (d / 2)) - d / 2 * math.log(
        1 + T / (4 * d * lam)
    )
    gamma = math.sqrt(lam) * (SL + 1 / (2 * m)) + 2 * m / math.sqrt(lam) * log_term
    gamma += m * d / math.sqrt(lam) * math.log(1 + T / (4 * d * lam))
    lane = master_lane(policy)
    bonus = 0.25 * math.sqrt(4 + 8 * SL) * math.sqrt(kappa) * gamma * 0.5 / math.sqrt(kappa * lam)
    assert lane.index == pytest.approx(0.5 + bonus, rel=1e-6)
    C = math.sqrt(32 * d * (1 + 2 * SL) * max(1, 1 / (kappa * lam)) * math.log(1 + T / (kappa * lam * d)))
    assert lane.rho(7) == pytest.approx(C * 0.25 * math.sqrt(kappa) * gamma / math.sqrt(7) / m, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_masters_tests_see_rewards_between_0_and_1(sigma: float) -> None:
    """Sums of w (f - r) and of w r in units of the range: 2 sigma, and with MASTER-OFUL, told the noise alone, 1."""
    for cls, width in ((MasterOFUL, max(1.0, 2 * sigma)), (MasterGLMUCB, 2 * sigma)):
        policy = cls(1, horizon=100, sigma=sigma, first_order=4)
        policy.select(np.full((1, 1, 1), 0.5))
        policy.update(np.full((1, 1), 0.5), 0.16, weight=2.0)
        lane = master_lane(policy)
        assert lane.sums == pytest.approx([2 * (lane.value - 0.16 / width), 2.0])
        assert lane.acting_rewards == pytest.approx(2 * 0.16 / width)
        assert lane.value == pytest.approx(min(1.0, lane.index / width))


def test_a_stationary_linear_world_with_little_noise_does_not_restart() -> None:
    rng, policy = np.random.default_rng(0), sensible_master(MasterOFUL, 1.0, 6.0, sigma=0.1)
    arms = np.tile([1.0, 0.0, 0.0], (policy.lane_count, 1, 1))
    for _ in range(600):
        policy.select(arms)
        policy.update(arms[:, 0], 0.8 + 0.1 * rng.standard_normal(len(arms)))
    assert not policy.info().restarts.any()


def test_a_reward_between_two_decisions_of_master() -> None:
    """It belongs to the decision before it, and is learnt as of then."""
    arms, policies = np.full((1, 1, 2), 0.4), [MasterGLMUCB(2, horizon=100, first_order=3) for _ in range(2)]
    for policy, decided in zip(policies, (2.2, 1.0), strict=True):
        policy.select(arms)
        policy.advance(1.5)
        policy.select(arms)
        policy.update(arms[:, 0], 1.0, round=decided)
    assert same_state(policies[0].state(), policies[1].state())


def test_every_lane_of_master_has_a_state() -> None:
    lane = MasterOFUL(2, horizon=100).policies[0]
    lane.select(np.eye(2)[None])
    lane.load_state(lane.state())


def test_master_with_the_printed_constants_cannot_restart() -> None:
    lane = master_lane(MasterOFUL(2, horizon=3000))
    assert 3 * lane.rho_hat(4e10) > 1
    assert lane.base_radius == pytest.approx(2 * 4 * math.sqrt(2 * math.log(60_000)))
