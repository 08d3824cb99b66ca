"""check_policy really fails: policies broken on purpose, each caught by the check that is meant for it."""

import contextlib
import copy
from typing import Any

import numpy as np
import pytest

from support.broken_policies import BROKEN, CRASHING, EpsilonGreedy, factory_of
from support.policies import Skeleton, scores
from windvane import BVDGLMUCB, check_policy, checks
from windvane.checks import check_choices_follow_probabilities


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
    for sound in (Skeleton, BVDGLMUCB, EpsilonGreedy):
        check_policy(factory_of(sound))


def declare(policy: type, **attributes: Any) -> type:
    """A subclass with these class attributes; one that is randomised must say how probable each arm is."""

    def probabilities(self: Any, arms: Any, valid: Any = None) -> np.ndarray:
        twin = copy.deepcopy(self)
        twin.select(arms, valid)
        return self.share_best(scores(twin), self.check_arms(arms, valid)[1])

    return type(policy.__name__, (policy,), {"probabilities": probabilities, **attributes})


def test_order_may_matter_to_a_randomised_policy() -> None:
    """``is_randomised`` leaves out that check, and no other that catches these."""
    check_policy(factory_of(declare(BROKEN["TakesTheFirstForAModel"][0], is_randomised=True)))
    with pytest.raises(AssertionError, match=r"^check_seeds_reproduce: "):
        check_policy(factory_of(declare(BROKEN["FirstOfEquals"][0], is_randomised=True)))


@pytest.mark.parametrize(
    ("broken", "attribute", "value"),
    [("NeverLearns", "uses_rewards", False), ("IgnoresRound", "is_one_pass", True)],
)
def test_what_is_meant_to_be_is_declared_in_the_class(broken: str, attribute: str, value: bool) -> None:
    """The error names the attribute, and with it, it is not raised again."""
    policy, hint = BROKEN[broken][0], f"write {attribute} = {value} in the class"
    with pytest.raises(AssertionError, match=hint):
        check_policy(factory_of(policy))
    passes = contextlib.nullcontext()
    if broken == "IgnoresRound":  # also of a round in the future
        passes = pytest.raises(AssertionError, match=r"^check_bad_input_is_refused: ")
    with passes:
        check_policy(factory_of(declare(policy, **{attribute: value})))


def test_a_randomised_policy_must_say_how_probable_its_arms_are() -> None:
    class Silent(Skeleton):
        is_randomised = True

    with pytest.raises(NotImplementedError, match="override probabilities"):
        Silent(dim=2, gamma=0.9).probabilities([[[1.0, 0.0]]])


def test_probabilities_after_the_draw_are_right_on_average_over_lanes() -> None:
    """So the counts over lanes do not show them, and another check must."""
    check_choices_follow_probabilities(factory_of(BROKEN["KnowsItsCoin"][0]))


def test_a_randomised_policy_with_exact_probabilities_need_not_be_declared() -> None:
    check_policy(factory_of(type("Undeclared", (EpsilonGreedy,), {"is_randomised": False})))
