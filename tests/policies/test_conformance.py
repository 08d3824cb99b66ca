"""Every registered policy keeps the contract: one loop over the registry, with the cases of tests/support/cases.py."""

import copy
import io
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from support.cases import CASES, CONTRACT, MASTERS, SHORT_BLOCKS, Case
from support.policies import ESTIMATES, same_estimates
from support.refusals import rejects
from support.worlds import LaneWorld, play, same_state
from windvane import BVDGLMUCB, GLMUCB, OFUL, POLICIES, Ball, DLinUCB, Sphere, check_policy, checks, get_policy


def build(case: Case, **settings: Any) -> Any:
    return case.factory(**{"dim": 3, "lanes": 1, "seed": 0} | settings)


def test_every_registered_policy_has_a_case() -> None:
    without = set(POLICIES) - {build(case).name for case in CASES.values()}
    assert not without, f"add a case to tests/support/cases.py for {', '.join(sorted(without))}"


def test_the_registry_knows_policies_by_their_papers_names() -> None:
    paper = {"OFUL": OFUL, "D-LinUCB": DLinUCB, "GLM-UCB": GLMUCB, "BVD-GLM-UCB": BVDGLMUCB}
    assert paper.items() <= POLICIES.items()
    for name, policy in POLICIES.items():
        assert get_policy(name) is policy
        assert policy.name == name
        assert all(policy.card)
    hints = {"oful": "did you mean 'OFUL'?", "D-LinUBC": "did you mean 'D-LinUCB'?"}
    hints |= {"nobody": "`windvane policies` lists them"}
    for wrong, hint in hints.items():
        with rejects("name", value=wrong, hint=hint):
            get_policy(wrong)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_conformance(case: Case) -> None:
    if not case.without:
        check_policy(case.factory)
    for check in checks.CHECKS if case.without else case.besides:
        if check not in case.without:
            check(case.factory)


@pytest.mark.parametrize("name", [*CONTRACT, *MASTERS, *SHORT_BLOCKS])
def test_lanes_do_not_meet_over_infinite_sets(name: str) -> None:
    """A lane plays the same arm alone as among others, bit for bit; of a master, in several blocks."""
    policies = [CASES[name].factory(dim=4, lanes=lanes, seed=2) for lanes in ([4, 0, 9], [4], [0], [9])]
    L = policies[0].L
    for t in range(8 if name in CONTRACT else 25):
        together, *alone = (policy.select_from(Ball(L) if t % 2 else Sphere(0.5 * L)) for policy in policies)
        assert np.array_equal(together, np.concatenate(alone))
        assert t % 2 or np.linalg.norm(together, axis=1) == pytest.approx(0.5 * L)
        reward = np.random.default_rng(t).integers(0, 2, 3).astype(float)
        policies[0].update(together, reward)
        for policy, x, r in zip(policies[1:], alone, reward, strict=True):
            policy.update(x, r)


LEARNING = {name: case for name, case in CASES.items() if build(case).uses_rewards}


@pytest.mark.parametrize("case", LEARNING.values(), ids=LEARNING)
def test_a_restart_forgets_a_lane_and_only_it(case: Case) -> None:
    policy, same, fresh = (build(case, lanes=2) for _ in range(3))
    world = LaneWorld.of(policy, [0, 1])
    for each in (policy, same):
        play(each, world, range(20))
    policy.restart([True, False])
    policy.update(world.arms(9)[:, 0], 1.0, round=10.0, mask=[True, False])  # from before: dropped
    info, other, new = policy.info(), same.info(), fresh.info()
    for name in (name for name in (*ESTIMATES, "weights") if getattr(new, name, None) is not None):
        assert np.array_equal(getattr(info, name)[1], getattr(other, name)[1]), name
        assert name == "theta_tilde" or np.array_equal(getattr(info, name)[0], getattr(new, name)[0]), name  # a draw
    assert not info.theta_hat[0].any()
    policy.restart()
    assert not policy.info().theta_hat.any()
    play(policy, world, range(20, 40))


def through_a_file(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a store without pickle gives back."""
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


RESUMED = [(name, 27) for name in CASES] + [(name, n) for name in (*MASTERS, *SHORT_BLOCKS) for n in (0, 8, 9, 26)]


@pytest.mark.parametrize(("name", "saved_after"), RESUMED)
def test_a_loaded_copied_or_pickled_policy_goes_on_alike(name: str, saved_after: int) -> None:
    """Bit for bit: before a reward is in, after a pause, at the end of a block; with late rewards and ties to come."""
    build = partial(CASES[name].factory, dim=3, lanes=[4, 1], seed=2)
    policy = build()
    world = LaneWorld.of(policy, [4, 1])
    play(policy, world, range(saved_after))
    policy.advance(0.375)
    pending = world.arms(70)
    policy.select(pending)
    twins = [copy.deepcopy(policy), build()]
    twins[1].load_state(through_a_file(policy.state()))
    if "custom" not in name:  # functions of a custom link that are lambdas cannot be pickled
        twins.append(pickle.loads(pickle.dumps(policy)))
    assert all(same_state(policy.state(), twin.state()) for twin in twins)
    runs = []
    for each in (policy, *twins):
        each.update(pending[:, 0], [1.0, 0.0])  # by default of the last round
        each.update(pending[:, 1], [0.0, 1.0], round=min(17.0, each.t - 1.0))
        ties = each.select(np.repeat(pending[:, :1], 4, axis=1))
        runs.append(np.vstack([ties, play(each, world, range(saved_after, 70))]))
        assert np.array_equal(runs[0], runs[-1])
        assert same_state(policy.state(), each.state())
        assert same_estimates(policy, each)
