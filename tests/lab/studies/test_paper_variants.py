"""Policies as experiments of papers ran them, decision by decision beside transcriptions of the public code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from naive.paper_code import PublicDLinUCB, PublicLinUCB, PublicSWLinUCB
from support.refusals import rejects
from windvane import DLinUCB, Sphere
from windvane.environments import AnyEnvironment
from windvane.lab.run.own_code import hash_own_modules
from windvane.lab.spec.experiment_spec import PolicySpec
from windvane.lab.studies.paper_variants import (
    KnownChangesLinUCB,
    PublicCodeDLinUCB,
    UnprojectedDGLUCB,
    UnprojectedGLMUCB,
)
from windvane.lab.studies.reproductions import read_reproduction
from windvane.policies.base import Policy

CLEAR = 1e-9  # a gap between the two best scores, relative to the best, that rounding does not close
CODE = {"lam": 0.1, "delta": 0.01, "sigma": 1.0, "S": 1.0}
SMOOTH, ABRUPT = 0.9974225165143254, 0.9941173985691094  # the discounts that the code prints


def build(name: str, label: str, runs: int) -> tuple[AnyEnvironment, Policy]:
    """The environment of a reproduction and one of its policies."""
    (spec,) = read_reproduction(name).build_specs(runs=runs)
    world = spec.environments[0].build(horizon=spec.horizon, lanes=runs, seed=3)
    (policy,) = [policy for policy in spec.policies if policy.name == label]
    return world, policy.build(world)


def assert_plays_like(world: AnyEnvironment, policy: Policy, transcribe: Callable[[], Any], rounds: int) -> None:
    """In every lane and round the policy plays the arm that the transcription scores best."""
    copies = [transcribe() for _ in range(world.lanes)]
    lanes = np.arange(world.lanes)
    for t in range(1, rounds + 1):
        offer = world.round(t)
        choice = policy.select(offer.arms)
        for lane, copy in enumerate(copies):
            scores = copy.scores(offer.arms[lane])
            best, second = np.sort(scores)[[-1, -2]]
            assert choice[lane] == scores.argmax() or best - second < CLEAR * abs(best), (t, lane)
        x, reward = offer.arms[lanes, choice], world.play(offer, choice).reward
        policy.update(x, reward)
        for lane, copy in enumerate(copies):
            copy.update(x[lane], reward[lane])


@pytest.mark.parametrize(("name", "gamma"), [("russac2019", SMOOTH), ("russac2019-abrupt", ABRUPT)])
def test_public_code_dlinucb_plays_like_the_public_code(name: str, gamma: float) -> None:
    world, policy = build(name, "D-LinUCB, public code", runs=2)
    assert_plays_like(world, policy, lambda: PublicDLinUCB(2, gamma, **CODE), rounds=600)


def test_d_linucb_does_not() -> None:
    """The error changes decisions: the test above would find it."""
    world, policy = build("russac2019", "D-LinUCB", runs=2)
    with pytest.raises(AssertionError):
        assert_plays_like(world, policy, lambda: PublicDLinUCB(2, SMOOTH, **CODE), rounds=600)


def test_linucb_plays_like_the_public_code() -> None:
    world, policy = build("russac2019", "LinUCB", runs=2)
    assert_plays_like(world, policy, lambda: PublicLinUCB(2, **CODE), rounds=600)


def test_sw_linucb_plays_like_the_public_code() -> None:
    """Its radius has the window of 170 rounds, which is 169.99 in the code."""
    world, policy = build("russac2019-abrupt", "SW-LinUCB", runs=1)
    transcribe = lambda: PublicSWLinUCB(2, (12000 / (4 + 2**0.5)) ** (2 / 3), **CODE)  # noqa: E731
    assert_plays_like(world, policy, transcribe, rounds=400)


def test_linucb_or_starts_again_when_theta_changes() -> None:
    world, policy = build("russac2019-abrupt", "LinUCB-OR", runs=1)
    assert_plays_like(world, policy, lambda: PublicLinUCB(2, **CODE, changes=(1001, 2001, 3001)), rounds=3100)


def test_the_bonus_of_the_public_code_is_about_a_root_of_two_larger() -> None:
    """As notes say of unit weights: V_tilde is about V in the code, and V / 2 in the paper."""
    rng = np.random.default_rng(0)
    settings: dict[str, Any] = {"dim": 2, "gamma": 0.99, "lam": 0.1, "sigma": 1.0}
    faulty, right = PublicCodeDLinUCB(**settings), DLinUCB(**settings)
    for _ in range(1000):
        arms = rng.normal(size=(1, 5, 2))
        arms /= np.linalg.norm(arms, axis=2, keepdims=True)
        for policy in (faulty, right):
            policy.select(arms)
            policy.update(arms[:, 0], [rng.normal()])
    arms = np.eye(2)[None]
    ratio = faulty.bonus(arms, np.ones(1)) / right.bonus(arms, np.ones(1))
    np.testing.assert_allclose(ratio, np.sqrt(2), rtol=0.05)


def test_the_variant_keeps_the_contract() -> None:
    """Lanes, restarts and saved states; infinite arm sets are refused."""
    settings: dict[str, Any] = {"dim": 2, "gamma": 0.95, "lam": 0.1}
    together, alone = PublicCodeDLinUCB(**settings, lanes=3), PublicCodeDLinUCB(**settings, lanes=[2])
    rng = np.random.default_rng(1)

    def play(rounds: int) -> None:
        for _ in range(rounds):
            arms, reward = rng.normal(size=(3, 4, 2)), rng.normal(size=3)
            arms /= np.linalg.norm(arms, axis=2, keepdims=True)
            choice = together.select(arms)
            assert alone.select(arms[2:]) == choice[2]
            x = arms[np.arange(3), choice]
            together.update(x, reward, mask=[True, True, True])
            alone.update(x[2:], reward[2:])

    play(20)
    copy = PublicCodeDLinUCB(**settings, lanes=[2])
    copy.load_state(alone.state())
    alone = copy
    play(20)
    together.restart([False, False, True])
    alone.restart()
    play(20)
    with rejects("arm_set"):
        alone.select_from(Sphere(1.0))


def test_known_changes_restart_all_lanes() -> None:
    policy = KnownChangesLinUCB(dim=2, restart_every=100, changes=[3], lanes=2)
    for _ in range(4):
        policy.select(np.tile(np.eye(2), (2, 1, 1)))
        policy.update(np.tile([1.0, 0.0], (2, 1)), [1.0, 1.0])
    np.testing.assert_array_equal(policy.born, [3.0, 3.0])
    assert policy.estimator.V[0, 0, 0] == pytest.approx(3.0)  # lam and the arms of rounds 3 and 4


@pytest.mark.parametrize(("variant", "settings"), [(UnprojectedGLMUCB, {}), (UnprojectedDGLUCB, {"gamma": 0.999})])
def test_without_projection_the_estimate_is_used_as_it_is(variant: type[Policy], settings: dict[str, Any]) -> None:
    policy = variant(dim=2, S=0.1, **settings)
    for _ in range(200):
        policy.select([[[1.0, 0.0], [0.0, 1.0]]])
        policy.update([[1.0, 0.0]], [1.0])
    policy.select([[[1.0, 0.0], [0.0, 1.0]]])
    decision = policy.info().decision
    assert decision is not None
    assert np.linalg.norm(decision.theta_hat) > 0.1  # outside the ball
    np.testing.assert_array_equal(decision.theta_tilde, decision.theta_hat)


def test_variants_can_be_named_in_a_spec() -> None:
    spec = PolicySpec("windvane.lab.studies.paper_variants:PublicCodeDLinUCB", settings={"gamma": 0.9})
    assert spec.name == "PublicCodeDLinUCB"


def test_results_depend_on_the_code_of_variants() -> None:
    """It is not part of the code that every result depends on, so the manifest has a hash of it."""
    modules = hash_own_modules([PolicySpec("windvane.lab.studies.paper_variants:PublicCodeDLinUCB")])
    assert list(modules) == ["windvane.lab.studies.paper_variants"]
    assert hash_own_modules([PolicySpec("D-LinUCB")]) == {}
