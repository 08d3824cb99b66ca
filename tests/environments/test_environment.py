"""Environments made of drifts, arms and rewards, and what they refuse."""

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import ARMS, DRIFTS, REWARDS, path_of
from support.refusals import refuses
from windvane import BVDGLMUCB, CustomLink
from windvane import environments as E
from windvane.links import Identity, Logistic, Poisson


def make_world(**changes: Any) -> E.Environment:
    return E.Environment(**{"drift": E.Static(), "arms": E.BallArms(), "horizon": 3} | changes)


def test_every_kind_is_tested_here() -> None:
    for ours, registry in ((DRIFTS, E.DRIFTS), (ARMS, E.ARM_LAWS), (REWARDS, E.REWARD_LAWS)):
        assert set(ours) == set(registry)
    for registry in (E.DRIFTS, E.ARM_LAWS, E.REWARD_LAWS, E.DELAYS):
        assert all(kind == law.kind and law.__name__ in E.__all__ for kind, law in registry.items())


@pytest.mark.parametrize(("drift", "arms", "rewards"), list(itertools.product(DRIFTS, ARMS, REWARDS)))
def test_every_combination_runs_under_a_policy(drift: str, arms: str, rewards: str) -> None:
    law, link = REWARDS[rewards]
    world = E.Environment(DRIFTS[drift], ARMS[arms], law, link=link, horizon=24, lanes=[2, 0], seed=5)
    assumed = {"S": world.S, "L": world.L, "sigma": world.sigma, "lanes": world.lane_ids}
    policy = BVDGLMUCB(world.dim, world.link, gamma=0.95, seed=5, **assumed)
    everyone = np.arange(world.lanes)
    for t in range(1, 25):
        offer = world.round(t)
        choice = policy.select(offer.arms, offer.valid)
        means = offer.means[everyone, choice]
        assert (offer.best - means >= 0).all()
        assert offer.valid is None or offer.valid[everyone, choice].all()
        policy.update(offer.arms[everyone, choice], world.reward(t, means))


lane_ids = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4)
orders = st.lists(st.integers(1, 24), min_size=1, max_size=5)
laws = [st.sampled_from(sorted(kinds)) for kinds in (DRIFTS, ARMS, REWARDS)]


@given(*laws, lane_ids, st.integers(0, 2**64 - 1), orders, st.sampled_from([None, -0.3]))
@settings(max_examples=40)
def test_lanes_and_rounds_are_independent(drift, arms, rewards, ids, seed, order, intercept) -> None:
    law, link = REWARDS[rewards]
    common = {"link": link, "intercept": intercept, "delay": E.GeometricDelay(3.0), "horizon": 24, "seed": seed}

    def build(lanes: list[int]) -> E.Environment:
        return E.Environment(DRIFTS[drift], ARMS[arms], law, lanes=lanes, **common)

    together, forward = build(ids), build(ids)
    rounds = {t: forward.round(t) for t in sorted(order)}
    for t in order:
        seen = together.round(t)
        u = together.reward(t, seen.means[:, 0])
        delays = together.delays(t)
        assert delays is not None
        for name in ("arms", "theta", "means", "best"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(rounds[t], name))
        for place, identity in enumerate(ids):
            world = build([identity])
            own = world.round(t)
            for name in ("arms", "valid", "theta", "means", "best"):
                ours, theirs = getattr(own, name), getattr(seen, name)
                assert (ours is None and theirs is None) or np.array_equal(ours[0], theirs[place])
            assert world.reward(t, own.means[:, 0])[0] == u[place]
            assert world.delays(t)[0] == delays[place]  # type: ignore[index]


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[float]:
        laws = E.RandomWalk(0.1), E.BallArms(), E.GaussianRewards()
        world = E.Environment(*laws, link="identity", horizon=50, seed=seed)
        offer = world.round(50)
        return [offer.theta[0, 0], offer.arms[0, 0, 0], world.reward(50, [0.0])[0]]

    assert first(4) == first(4)
    assert all(a != b for a, b in zip(first(4), first(5), strict=True))


def test_a_round_is_what_it_says() -> None:
    world = E.Environment(E.Rotation(), E.ComeAndGo(presence=0.3), horizon=300, lanes=20)
    for t in (1, 150, 300):
        offer = world.round(t)
        z = np.einsum("lkd,ld->lk", offer.arms, offer.theta)
        np.testing.assert_allclose(offer.means, scipy.special.expit(z), rtol=1e-14)
        assert offer.valid is not None
        np.testing.assert_array_equal(offer.best, np.where(offer.valid, offer.means, -1).max(axis=1))
        np.testing.assert_array_equal(offer.theta, world.path.at(t))
        assert offer.t == t
    assert world.variation.tolist() == world.path.variation.tolist()
    assert world.switches.tolist() == [100] * 20


def test_an_intercept_is_one_more_feature() -> None:
    plain = E.Environment(E.Rotation(), E.OrthogonalArms(), S=0.5, L=2.0, horizon=30, lanes=3)
    world = E.Environment(E.Rotation(), E.OrthogonalArms(), S=0.5, L=2.0, intercept=-1.2, horizon=30, lanes=3)
    assert (world.dim, world.S, world.L) == (3, math.hypot(0.5, 1.2), math.sqrt(5))
    assert (plain.orthogonal, world.orthogonal) == (True, False)
    assert E.Environment(E.Rotation(), E.BallArms(), horizon=30).orthogonal is False
    line = E.Environment(E.RandomWalk(step=0.01), E.BallArms(), dim=1, horizon=30)
    assert line.orthogonal  # one axis
    offer, bare = world.round(15), plain.round(15)
    np.testing.assert_array_equal(offer.arms[..., :2], bare.arms)
    np.testing.assert_array_equal(offer.theta[:, :2], bare.theta)
    assert (offer.arms[..., 2] == 1).all()
    assert (offer.theta[:, 2] == -1.2).all()
    z = np.einsum("lkd,ld->lk", bare.arms, bare.theta) - 1.2
    np.testing.assert_allclose(offer.means, scipy.special.expit(z), rtol=1e-14)
    np.testing.assert_array_equal(world.variation, plain.variation)
    world = E.Environment(E.Rotation(), E.BallArms(count=6), intercept=-0.3, horizon=30, lanes=3)
    for t in (1, 17.0, np.float64(30)):  # the truth at any round
        np.testing.assert_array_equal(world.means(t, world.round(int(t)).arms), world.round(int(t)).means)
    for wrong in (1.5, 0, 31, "1", math.nan):
        with refuses("t"):
            world.means(wrong, offer.arms)


def test_the_natural_rewards_of_each_link() -> None:
    expit = scipy.special.expit
    cloglog = CustomLink("cloglog", lambda z: -np.expm1(-np.exp(z)), lambda z: np.exp(z - np.exp(z)))
    free = CustomLink("shifted", lambda z: z + 5, np.ones_like, any_reward=True)
    large = CustomLink("tripled", lambda z: 3 * expit(z), lambda z: 3 * expit(z) * expit(-z))
    for links, law in (
        (("logistic", "probit", cloglog), E.BernoulliRewards()),
        (("poisson",), E.PoissonRewards()),
        (("identity", free), E.GaussianRewards()),
    ):
        assert all(make_world(link=link).rewards == law for link in links)
    offer = E.Environment(E.Rotation(), E.BallArms(), link=cloglog, horizon=30, lanes=2).round(3)
    np.testing.assert_allclose(offer.means, cloglog.mean(np.einsum("lkd,ld->lk", offer.arms, offer.theta)), rtol=1e-12)
    with refuses("rewards"):
        make_world(link=large)
    assert make_world(rewards=E.PoissonRewards(), link=large).sigma > 1.5


def test_environments_travel() -> None:
    world = E.Environment(E.RandomWalk(0.1), E.ComeAndGo(), delay=E.FixedDelay(3), horizon=50, lanes=[4, 2])
    world.round(20)
    arrived = pickle.loads(pickle.dumps(world))
    np.testing.assert_array_equal(arrived.round(21).means, world.round(21).means)
    np.testing.assert_array_equal(arrived.reward(21, [0.5, 0.5]), world.reward(21, [0.5, 0.5]))
    assert repr(arrived) == repr(world)
    for kind, drift in DRIFTS.items():
        assert kind == "function" or pickle.loads(pickle.dumps(path_of(drift))).at(3).shape == (3, 2)


def test_records_are_equal_when_their_fields_are() -> None:
    assert E.Switches([5], [[1, 0], [0, 1]]) == E.Switches((5,), np.eye(2))
    assert hash(E.FixedArms([[1, 0]])) == hash(E.FixedArms(np.array([[1.0, 0.0]])))
    assert E.FunctionDrift("math:sqrt") == E.FunctionDrift("math:sqrt")
    assert E.BallArms(4) != E.SphereArms(4)
    named = E.FunctionDrift("support.laws:spiral")  # a function may be named
    np.testing.assert_array_equal(path_of(named).at(30), path_of(DRIFTS["function"]).at(30))


REFUSED: dict[str, list[Callable[[], Any]]] = {
    "theta": [
        lambda: E.Static(["a"]), lambda: E.Static([math.nan, 0]), lambda: E.Static([]),
        lambda: path_of(E.Static([0.5])), lambda: path_of(E.Static([1.0, 0.1])),
    ],
    "end": [lambda: E.Rotation(begin=0.5, end=0.5)], "begin": [lambda: E.Rotation(begin=-0.1)],
    "angle": [lambda: E.Rotation(angle=math.inf)],
    "dim": [lambda: path_of(E.Rotation(), dim=1), lambda: path_of(E.Arc(), dim=1), lambda: make_world(dim=0)],
    "count": [
        lambda: E.Turns(count=0), lambda: E.RandomSwitches(-1), lambda: path_of(E.RandomSwitches(60)),
        lambda: E.BallArms(0), lambda: E.BallArms(10**5).bind(dim=1000, L=1.0, lane_ids=1),
    ],
    "share": [lambda: E.Turns(share=0)],
    "times": [
        lambda: E.Switches([1], [[1, 0], [0, 1]]), lambda: E.Switches([5, 5], [[1, 0]] * 3),
        lambda: E.Switches(5, [[1, 0]]), lambda: path_of(E.Switches([61], [[1, 0], [0, 1]])),
        lambda: path_of(E.PiecewiseLinear([1, 70], [[1, 0]] * 2)),
    ],
    "thetas": [
        lambda: E.Switches([5], [[1, 0]]), lambda: E.Switches([5], [[1, 0], [1]]),
        lambda: path_of(E.Switches([6], [[1, 0], [0, 2]])),
    ],
    "step": [lambda: E.RandomWalk(0.0)], "start": [lambda: path_of(E.RandomWalk(0.1, [2, 0]))],
    "period": [lambda: E.Sinusoid(period=-3)], "centre": [lambda: path_of(E.Sinusoid(3, centre=[0.1, 0]))],
    "points": [lambda: E.PiecewiseLinear([1, 2], [[1, 0]])],
    "function": [
        lambda: E.FunctionDrift(3), lambda: E.FunctionDrift("nowhere"),
        lambda: path_of(E.FunctionDrift("nowhere:at_all")), lambda: path_of(E.FunctionDrift("math:pi")),
        lambda: path_of(E.FunctionDrift(lambda t: [0.1 * t, 0.0])), lambda: path_of(E.FunctionDrift(lambda _: [1.0])),
        lambda: path_of(E.FunctionDrift(lambda _: [math.nan, 0])),
    ],
    "t": [
        lambda: path_of(E.Static()).at(0), lambda: path_of(E.Static()).at(61),
        lambda: E.CubeArms(2).bind(dim=2, L=1, lane_ids=1).at(0), lambda: make_world().round(4),
        lambda: make_world().reward(4, [0.5]),
    ],
    "horizon": [lambda: path_of(E.Static(), T=0)], "S": [lambda: path_of(E.Static(), S=-1)],
    "lanes": [lambda: path_of(E.Static(), lanes=[-1])], "L": [lambda: E.SphereArms(2).bind(dim=2, L=0, lane_ids=1)],
    "arms": [
        lambda: E.FixedArms([1, 0]), lambda: E.FixedArms([[1, 1]]).bind(dim=2, L=1, lane_ids=1),
        lambda: make_world(arms=E.Static()), lambda: make_world(arms=None),
    ],
    "law": [lambda: E.ComeAndGo("gaussian"), lambda: E.ArmsDrawnOnce("orthogonal")],
    "lifetime": [lambda: E.ComeAndGo(lifetime=0)], "presence": [lambda: E.ComeAndGo(presence=1.1)],
    "rewards": [
        lambda: E.BernoulliRewards().bind(Poisson(), 1.0), lambda: E.BernoulliRewards().bind(Identity(), 0.5),
        lambda: E.BinomialRewards().bind(Poisson(), 1.0), lambda: E.PoissonRewards().bind(Identity(), 1.0),
        lambda: E.PoissonRewards().bind(Poisson(), 20.0), lambda: E.GaussianRewards(sigma=0.3).bind(Logistic(), 1.0),
        lambda: make_world(rewards=3),
    ],
    "sigma": [
        lambda: E.GaussianRewards().bind(Logistic(), 1.0), lambda: E.GaussianRewards(sigma=0.5).bind(Identity(), 1.0),
        lambda: E.GaussianRewards(sigma=-1),
    ],
    "sd": [lambda: E.GaussianRewards(sd=0.0)], "trials": [lambda: E.BinomialRewards(0)],
    "bound": [lambda: E.PoissonRewards(0), lambda: E.PoissonRewards(2.5)], "rounds": [lambda: E.FixedDelay(-1)],
    "mean": [lambda: E.GeometricDelay(-0.5)],
    "most": [lambda: E.GeometricDelay(2.0, most=-1), lambda: E.UniformDelay(3, 2)],
    "drift": [lambda: make_world(drift="static"), lambda: make_world(drift=None)],
    "least": [lambda: E.UniformDelay(-1, 2)],
    "delay": [lambda: make_world(delay=3)], "link": [lambda: make_world(link="logit")],
    "seed": [lambda: make_world(seed=-1)], "intercept": [lambda: make_world(intercept="x")],
    "means": [
        lambda: make_world().reward(1, [0.5, 0.5]), lambda: make_world().reward(1, [math.nan]),
        lambda: make_world().reward(1, [1.5]),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "make"), [(name, make) for name, makes in REFUSED.items() for make in makes])
def test_refused_arguments_are_named(name: str, make: Callable[[], Any]) -> None:
    with refuses(name):
        make()
