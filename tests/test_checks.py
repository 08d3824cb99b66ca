"""check_policy really fails: policies broken on purpose, each caught by the check that is meant for it."""

from typing import Any

import pytest

from support.broken_policies import BROKEN, CRASHING, factory_of
from support.policies import Skeleton
from windvane import BVDGLMUCB, check_policy, checks


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_policy_is_caught(broken: type, check: Any, message: str) -> None:
    """By the named check, with a message that says what is wrong, and by check_policy under the name of a check."""
    with pytest.raises((AssertionError, ValueError), match=message):  # a state whose checksum fails is a ValueError
        check(factory_of(broken))
    with pytest.raises(AssertionError, match=r"^check_\w+: ") as caught:
        check_policy(factory_of(broken))
    named = str(caught.value).split(":")[0]
    order = [each.__name__ for each in checks.CHECKS]
    assert order.index(named) <= order.index(check.__name__)  # what breaks one law may break an earlier one too


@pytest.mark.parametrize(("broken", "check"), CRASHING.values(), ids=CRASHING)
def test_a_crash_is_a_failed_check_too(broken: type, check: Any) -> None:
    """A policy that raises, or makes the check trip, is reported as any other: the name of the check first."""
    with pytest.raises(AssertionError, match=rf"^{check.__name__}: "):
        check_policy(factory_of(broken))


def test_every_check_has_a_policy_that_fails_it() -> None:
    assert {check for _, check, _ in BROKEN.values()} == set(checks.CHECKS)


def test_the_sound_policies_pass() -> None:
    """The classes that are broken above are sound themselves, so it is the break that is caught."""
    for sound in (Skeleton, BVDGLMUCB):
        check_policy(factory_of(sound))


def test_order_may_matter_to_a_randomised_policy() -> None:
    """``deterministic=False`` leaves out that one check and no other."""
    check_policy(factory_of(BROKEN["TakesTheFirstForAModel"][0]), deterministic=False)
    with pytest.raises(AssertionError, match=r"^check_seeds_reproduce: "):
        check_policy(factory_of(BROKEN["FirstOfEquals"][0]), deterministic=False)
