"""Every registered policy keeps the contract: one loop over the registry, with the cases of tests/support/cases.py."""

import copy
import io
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from support.cases import CASES, MASTERS, SHORT_BLOCKS, Case
from support.policies import same_estimates
from support.refusals import refuses
from support.worlds import LaneWorld, play, same_state
from windvane import BVDGLMUCB, GLMUCB, OFUL, POLICIES, DLinUCB, check_policy, checks, get_policy


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
    with refuses("name", value="LinUCB"):
        get_policy("LinUCB")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_conformance(case: Case) -> None:
    """Every check of the public suite that applies to the case."""
    if not case.without:
        check_policy(case.factory, **case.flags)
    for check in checks.CHECKS if case.without else ():
        if check not in case.without:
            check(case.factory)


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
    world = LaneWorld([4, 1], 3, L=policy.L)
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
