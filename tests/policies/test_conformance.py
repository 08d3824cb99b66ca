"""Every registered policy keeps the contract: one loop over the registry, with the cases of tests/support/cases.py."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from support.cases import CASES, Case
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


# The functions of a custom link made of lambdas cannot be pickled.
TRAVELLING = {name: case for name, case in CASES.items() if "custom" not in name}


@pytest.mark.parametrize("case", TRAVELLING.values(), ids=TRAVELLING)
def test_a_pickled_or_copied_policy_goes_on_alike(case: Case) -> None:
    policy = build(case, lanes=[4, 1], seed=2)
    world = LaneWorld([4, 1], 3, L=policy.L)
    play(policy, world, range(27))
    pickled, copied = pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)
    choices = play(policy, world, range(27, 70))
    for again in (pickled, copied):
        assert np.array_equal(choices, play(again, world, range(27, 70)))
        assert same_state(policy.state(), again.state())
