"""Policies that know arms by their index: where the lab runs them, what they see and are told, what is left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windvane.environments import (
    ArmsDrawnOnce,
    BallArms,
    ComeAndGo,
    Environment,
    FixedArms,
    FixedDelay,
    OrthogonalArms,
    Rotation,
    Static,
    Switches,
)
from windvane.lab import simulate
from windvane.lab.run.build import build_policy
from windvane.lab.spec.experiment_spec import EnvironmentSpec, LabelledStreamSpec, PolicySpec, Spec, SpecError
from windvane.lab.studies.benchmarks import list_left_out, list_policies, own_benchmark
from windvane.links import Logistic
from windvane.policies.registry import POLICIES

INDEXED = [name for name, cls in POLICIES.items() if cls.needs_one_hot]
BASELINES = {"OFUL", "GLM-UCB", "UniformRandom", "Oracle"}
NEVER_FORGET = {name for name, cls in POLICIES.items() if cls.card.forgetting == "none"} - BASELINES
ARMS = FixedArms([[0.9, 0.0], [0.0, 1.0], [-0.7, 0.1]])
JUMPS = Switches(times=(60,), thetas=[[1.0, 0.0], [0.0, 1.0]])
WORLD = EnvironmentSpec("fixed", JUMPS, ARMS)
GAUSSIAN = EnvironmentSpec("normal", Static(), FixedArms([[1, 0], [0, 1]]), link="identity")
COUNTS = EnvironmentSpec("counts", Static(), FixedArms([[1, 0], [0, 1]]), link="poisson")


def play_by_hand(policy: Any, world: Environment, delay: int = 0) -> np.ndarray:
    """Final regret [lanes]; rewards come ``delay`` rounds late."""
    K, lanes = world.round(1).means.shape[1], np.arange(world.lanes)
    arms, regret, waiting = np.tile(np.eye(K), (world.lanes, 1, 1)), np.zeros(world.lanes), []
    for t in range(1, world.horizon + 1):
        offer = world.round(t)
        choice = policy.select(arms)
        outcome = world.play(offer, choice)
        regret += offer.best - outcome.mean
        waiting.append((t, arms[lanes, choice], outcome.reward))
        if t > delay:
            decided, x, reward = waiting.pop(0)
            policy.update(x, reward, round=float(decided))
    return regret


@pytest.mark.parametrize("delay", [0, 4])
@pytest.mark.parametrize("name", INDEXED)
def test_the_position_of_an_arm_is_its_index(name: str, delay: int, tmp_path: Path) -> None:
    """A run of the lab is the policy on unit vectors, driven by hand, whatever the lanes of a cell."""
    spec = replace(WORLD, delay=FixedDelay(delay) if delay else None)
    results = simulate(
        Spec([spec], [PolicySpec(name)], runs=5, horizon=120, lanes_per_cell=2), tmp_path / "out", jobs=1
    )
    world = spec.build(horizon=120, lanes=5, seed=0)
    policy = PolicySpec(name).build(world)
    assert policy.dim == 3
    np.testing.assert_allclose(results.entries[0].final, play_by_hand(policy, world, delay), rtol=1e-13)


@pytest.mark.parametrize(
    ("arms", "fixed"),
    [(ARMS, True), (BallArms(), False), (OrthogonalArms(), False), (ComeAndGo(), False)],
)
def test_only_fixed_arms_are_the_same_in_every_round(arms: Any, fixed: bool) -> None:
    world = Environment(Static(), arms, horizon=20)
    assert world.has_fixed_arms == fixed
    first = world.round(1).arms
    assert all(np.array_equal(world.round(t).arms, first) for t in range(2, 21)) == fixed


@pytest.mark.parametrize("name", INDEXED)
def test_other_worlds_are_refused_where_the_spec_asks_for_them(name: str, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,label\n" + "1,yes\n0,no\n" * 60)
    for other in (
        EnvironmentSpec("new", Rotation(), BallArms()),
        LabelledStreamSpec("data", str(tmp_path / "data.csv")),
    ):
        spec = Spec([WORLD, other], [PolicySpec("OFUL"), PolicySpec(name)], runs=1, horizon=100)
        with pytest.raises(SpecError, match=r"in environments\[1\]: .*same in every round") as caught:
            spec.check()
        assert caught.value.path == ("policies", 1)
        with pytest.raises(SpecError):
            simulate(spec, tmp_path / "out", jobs=1)


def test_rewards_must_suit_the_policy() -> None:
    Spec([GAUSSIAN], [PolicySpec("D-UCB"), PolicySpec("SW-UCB")], horizon=20).check()
    Spec([COUNTS, replace(COUNTS, name="clicks", link="probit")], list(map(PolicySpec, INDEXED)), horizon=20).check()
    for name, settings in (("Rexp3", {}), ("EXP3.S", {}), ("BVD-GLM-UCB", {"link": "logistic"})):
        with pytest.raises(SpecError, match="rewards of this environment"):
            Spec([GAUSSIAN], [PolicySpec(name, settings=settings)], horizon=20).check()
    with pytest.raises(SpecError, match="rewards of this environment"):
        Spec([COUNTS], [PolicySpec("EXP3.S", settings={"sigma": 0.4})], horizon=20).check()
    ranges = [spec.build(horizon=90, lanes=1, seed=0).reward_range for spec in (WORLD, COUNTS, GAUSSIAN)]
    assert ranges == [(0.0, 1.0), (0.0, 14.0), (-np.inf, np.inf)]


@pytest.mark.parametrize("link", ["logistic", "poisson", "identity"])
def test_the_drift_that_rexp3_is_told_bounds_how_far_means_move(link: str) -> None:
    spec = EnvironmentSpec("turning", Rotation(), ARMS, link=link, S=1.5)
    world = spec.build(horizon=200, lanes=2, seed=0)
    means = np.array([world.round(t).means for t in range(1, 201)])
    moved = np.abs(np.diff(means, axis=0)).max(axis=2).sum(axis=0)
    told = PolicySpec("Rexp3", settings={"sigma": 1e6}).resolve()  # any sigma: here only the drift matters
    if link == "identity":
        world.reward_range = (0.0, 1.0)  # so that the policy can be built
    policy: Any = build_policy(told, world)
    assert (policy.drift >= moved).all()
    assert (policy.drift <= 20 * moved).all()
    fixed: Any = build_policy(PolicySpec("D-UCB").resolve(), WORLD.build(horizon=100, lanes=3, seed=0))
    assert fixed.switches.tolist() == [1, 1, 1]


def test_a_benchmark_leaves_out_what_cannot_run() -> None:
    for_clicks = {name for name, cls in POLICIES.items() if cls.links == (Logistic,)}
    assert {"PG-TS", "ECOLogUCB", "MASTER-Logistic-UCB-1"} <= for_clicks
    assert set(POLICIES) - set(list_policies([WORLD, COUNTS], horizon=100)) == for_clicks
    assert set(POLICIES) - set(list_policies([WORLD, GAUSSIAN], horizon=100)) == {"Rexp3", "EXP3.S", *for_clicks}
    ball = EnvironmentSpec("new", Static(), BallArms())
    assert set(POLICIES) - set(list_policies([WORLD, ball], horizon=100)) == set(INDEXED)
    stream = LabelledStreamSpec("data", "data.csv")
    assert set(POLICIES) - set(list_policies([stream], horizon=100)) == {*INDEXED, "Oracle"}
    spec = own_benchmark(Spec([replace(WORLD, drift=Static()), ball], [PolicySpec("OFUL")], horizon=100))
    left_out = list_left_out(spec)
    assert set(left_out) == set(INDEXED)
    assert all("needs arms that are the same in every round" in needs for needs in left_out.values())
    assert "bounded" in left_out["EXP3.S"]


def test_arms_that_are_drawn_once_are_fixed_in_each_run(tmp_path: Path) -> None:
    world = replace(WORLD, arms=ArmsDrawnOnce("ball", count=4))
    assert "D-UCB" in list_policies([world], horizon=100)
    built = world.build(horizon=120, lanes=4, seed=0)
    assert built.has_fixed_arms
    regret = play_by_hand(build_policy(PolicySpec("D-UCB").resolve(), built), built)
    results = simulate(Spec([world], [PolicySpec("D-UCB")], runs=4, horizon=120), tmp_path / "out", jobs=1)
    np.testing.assert_array_equal(results.entries[0].final, regret)


def test_where_something_moves_policies_that_never_forget_are_left_out() -> None:
    turning = EnvironmentSpec("turning", Rotation(), ARMS)
    spec = own_benchmark(Spec([WORLD, turning], [PolicySpec("OFUL")], horizon=100))
    left_out = {name for name, why in list_left_out(spec).items() if why == "never forgets"}
    assert left_out == NEVER_FORGET
    named = own_benchmark(replace(spec, policies=[PolicySpec("OFUL")]), ["OFUGLB", "OFUL"])
    assert [policy.name for policy in named.policies] == ["OFUGLB", "OFUL"]
