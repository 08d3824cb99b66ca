"""The public conformance suite: what every policy must do, yours included.

A check is a function of a factory. It raises ``AssertionError`` with the problem. :func:`check_policy` runs all checks
that concern a policy: its class attributes ``is_randomised``, ``uses_rewards`` and ``is_one_pass`` say which do not.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.checks.world import ROUNDS, Factory, World, is_same, is_tied, read_estimates, run_rounds, start
from windvane.errors import ArgumentError
from windvane.policies.base import Policy

CROWD = 100  # lanes over which choices are counted; a policy with one object per lane must still be fast enough
SIGMAS = 6.0  # standard deviations by which a count may miss its expectation: by chance once in 1e9
FEW = 3  # further choices that may miss it, because a probability that is estimated as 0 has variance 0
SEEDS, SEEDED_ROUNDS = 8, 17  # a draw that matters once in ten decisions is missed with probability 0.9^136 < 1e-6
AGREEMENT = 0.3  # of two estimates of a probability: over 4 standard deviations even if each is of 100 draws


def check_lanes_are_independent(factory: Factory) -> None:
    """Check that k lanes together make the same decisions as k policies alone, bit for bit."""
    ids = [3, 0, 11, 7]
    together = factory(dim=3, lanes=ids, seed=5)
    choices, estimates = run_rounds(together, World(factory, ids)), read_estimates(together)
    for place, lane in enumerate(ids):
        alone = factory(dim=3, lanes=[lane], seed=5)
        is_equal = np.array_equal(run_rounds(alone, World(factory, [lane]))[:, 0], choices[:, place])
        assert is_equal, f"lane {lane} decides differently alone and together with others"
        for name, value in read_estimates(alone).items():
            assert np.array_equal(value[0], estimates[name][place]), f"{name} of lane {lane} differs when it runs alone"


def check_inputs_are_left_alone(factory: Factory) -> None:
    """Check that inputs are never written to, and that later changes to them by the caller have no effect."""
    world, (careful, careless) = start(factory, 2)
    expected = run_rounds(careful, world)
    for t, arms in world.rounds():
        index = _call_with_copies(careless.select, {"arms": arms, "valid": np.ones((2, 5), dtype=bool)})
        x = arms[np.arange(2), index]
        reward, weight = world.rewards(x, t), np.ones(2)
        _call_with_copies(careless.update, {"x": x, "reward": reward}, weight=weight, mask=np.ones(2, dtype=bool))
        arms[:], x[:], reward[:], weight[:] = np.nan, np.nan, np.nan, np.nan
        assert np.array_equal(index, expected[t]), "the policy kept a reference to the caller's arrays"


def _call_with_copies(method: Callable[..., Any], positional: dict[str, Any], **keywords: Any) -> Any:
    """Call a method and check that its arguments are unchanged."""
    before = copy.deepcopy(positional | keywords)
    result = method(*positional.values(), **keywords)
    for name, value in (positional | keywords).items():
        assert np.array_equal(value, before[name]), f"{method.__name__} wrote to {name}"
    return result


def check_settings_round_trip(factory: Factory) -> None:
    """Check that ``type(policy)(**policy.get_params())`` is an equal policy, and that ``repr`` shows the settings."""
    policy, world = factory(dim=3, lanes=[3, 0], seed=5), World(factory, [3, 0])
    text = repr(policy)
    assert text.startswith(f"{type(policy).__name__}("), f"repr must begin with the name of the class: {text}"
    for setting in ("dim=3", "seed=5"):
        assert setting in text, f"repr must show arguments that differ from their defaults, such as {setting}: {text}"
    again = type(policy)(**policy.get_params())
    assert repr(again) == text, "repr differs after a round trip through get_params()"
    assert is_same(again.state(), policy.state()), "the state differs after a round trip through get_params()"
    is_equal = np.array_equal(run_rounds(again, world), run_rounds(policy, world))
    assert is_equal, "a policy built from get_params() decides differently"
    assert is_same(again.state(), policy.state()), "a policy built from get_params() ends in a different state"
    assert repr(policy) == text, "playing changed the settings"


def check_info_changes_nothing(factory: Factory) -> None:
    """Check that ``info()`` is a dataclass with the right clock, and that reading or overwriting it has no effect."""
    world, (read, silent) = start(factory, 2)
    run_rounds(silent, world)
    for t, arms in world.rounds():
        _overwrite(_check_info(read, t))
        index = read.select(arms)
        _overwrite(_check_info(read, t + 1))
        world.teach(read, t, arms, index)
    assert is_same(read.state(), silent.state()), "info() changed the run"


def _check_info(policy: Policy, decisions: int) -> Any:
    """Return ``info()`` after checking its type, its clock and that the state is unchanged."""
    before = policy.state()
    info = policy.info()
    assert dataclasses.is_dataclass(type(info)), "info() must return a dataclass"
    assert (info.decisions, info.t) == (decisions, decisions + 1.0), "info() has the wrong t or decisions"
    assert (info.decision is None) == (decisions == 0), "info().decision must be set after a decision, and only then"
    assert is_same(policy.state(), before), "info() changed the state"
    for array in before.values():
        array[...] = np.zeros((), dtype=array.dtype)  # a state must be a copy too
    return info


def _overwrite(record: Any) -> None:
    """Set all arrays of a dataclass, and of those within, to zero."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value[...] = np.zeros((), dtype=value.dtype)
        elif dataclasses.is_dataclass(value):
            _overwrite(value)


def check_probabilities(factory: Factory) -> None:
    """Check that probabilities add up to 1, are 0 for absent arms, equal for equal arms, and change nothing."""
    world, (policy,) = start(factory, 1)
    for t in range(12):
        arms, valid = world.hide_arms(t, 0.6)
        before, p = policy.state(), np.asarray(policy.probabilities(arms, valid))
        assert p.shape == (2, 5), f"probabilities have shape {p.shape}, not [lanes, K]"
        assert (p >= 0.0).all(), "a probability is negative or NaN"
        assert not p[~valid].any(), "an absent arm has a positive probability"
        assert np.allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-9), "probabilities do not add up to 1"
        expected = valid / valid.sum(axis=1, keepdims=True) if is_tied(t) else p
        assert np.allclose(p, expected, rtol=0, atol=1e-9), "equal arms have different probabilities"
        assert np.array_equal(policy.probabilities(arms, valid), p), "probabilities differ in a second call"
        assert is_same(policy.state(), before), "probabilities() changed the state"
        world.teach(policy, t, arms, policy.select(arms, valid))


def check_choices_follow_probabilities(factory: Factory) -> None:
    """Check that choices over many lanes with the same history occur as often as the probabilities say."""
    policy, world = factory(dim=2, lanes=CROWD, seed=3), World(factory, [0], dim=2)
    for t in range(17):
        arms = np.repeat(world.arms(t), CROWD, axis=0)
        p = policy.probabilities(arms) if t % 4 == 0 else None
        index = policy.select(arms)
        if p is not None:
            count, mean, spread = np.bincount(index, minlength=5), p.sum(axis=0), np.sqrt((p * (1.0 - p)).sum(axis=0))
            message = f"arms are chosen {count.tolist()} times where {mean.round(1).tolist()} are expected"
            assert (np.abs(count - mean) <= SIGMAS * spread + FEW).all(), message
        x = arms[:, t % 5]  # the same in all lanes, whatever they chose
        policy.update(x, world.rewards(x[:1], t)[0])


def check_probabilities_know_no_draw(factory: Factory) -> None:
    """Check that ``probabilities`` does not use the random numbers that the decision will use.

    Policies with equal states that differ in the seed must agree on the probabilities of the next decision.
    """
    policies = [factory(dim=2, lanes=1, seed=seed) for seed in range(SEEDS)]
    world = World(factory, [0], dim=2)
    for t in range(SEEDED_ROUNDS):
        arms, states = world.arms(t), [_read_history(policy) for policy in policies]
        p = [np.asarray(policy.probabilities(arms)) for policy in policies]
        for state, other in zip(states[1:], p[1:], strict=True):
            is_close = not is_same(state, states[0]) or (np.abs(other - p[0]) <= AGREEMENT).all()
            assert is_close, "probabilities() depends on the random numbers of the decision: other seeds have others"
        for policy in policies:
            policy.select(arms)
            x = arms[:, t % 5]  # the same for all, whatever they chose
            policy.update(x, world.rewards(x, t))


def _read_history(policy: Policy) -> dict[str, npt.NDArray[Any]]:
    """Return the state without what is different in a policy with another seed."""
    return {name: array for name, array in policy.state().items() if name not in ("config", "checksum")}


def check_choice_is_probable(factory: Factory) -> None:
    """Check that the chosen arm has a positive probability."""
    world, (policy,) = start(factory, 1)
    for t, arms in world.rounds():
        p, index = policy.probabilities(arms), policy.select(arms)
        assert (p[np.arange(2), index] > 0.0).all(), "an arm of probability 0 was chosen"
        world.teach(policy, t, arms, index)


def check_state_round_trips(factory: Factory) -> None:
    """Check that a run that is saved and loaded half-way continues unchanged, and that the saved state is a copy."""
    world, (original, resumed) = start(factory, 2)
    run_rounds(original, world)
    original.select(world.arms(0))  # so that the state is saved between a decision and its reward
    state = original.state()
    assert all(isinstance(a, np.ndarray) and a.dtype != object for a in state.values()), "state must hold plain arrays"
    outstanding, later = (world.arms(0)[:, 0], np.full(2, world.largest)), range(ROUNDS, 2 * ROUNDS)
    original.update(*outstanding)
    expected = run_rounds(original, world, later)
    resumed.load_state(state)
    assert is_same(resumed.state(), state), "state() of a loaded policy differs from what was loaded"
    resumed.update(*outstanding)
    assert np.array_equal(run_rounds(resumed, world, later), expected), "a resumed run decides differently"
    assert is_same(resumed.state(), original.state()), "a resumed run ends in a different state"


def check_bad_state_is_refused(factory: Factory) -> None:
    """Check that a state with a missing, misshapen or non-finite entry is refused and changes nothing."""
    world, (policy, fresh) = start(factory, 2)
    run_rounds(policy, world)
    good, untouched = policy.state(), fresh.state()
    for name, array in good.items():
        bad_values: list[npt.NDArray[Any] | None] = [None, np.zeros((7, 7, 7))]
        if array.dtype.kind == "f" and array.size and np.isfinite(array).all():
            bad_values.append(np.full_like(array, np.nan))
        for bad in bad_values:
            state = {k: v for k, v in good.items() if k != name} | ({} if bad is None else {name: bad})
            _expect_refusal(partial(fresh.load_state, state), f"a state with a bad {name!r}")
    assert is_same(fresh.state(), untouched), "a refused state changed the policy"


def check_seeds_reproduce(factory: Factory) -> None:
    """Check that the same seed gives the same choices among equal arms, and another seed does not."""
    world = World(factory, [0, 1], repeated=True)
    first, again, other = (run_rounds(factory(dim=3, lanes=2, seed=s), world) for s in (4, 4, 9))
    assert np.array_equal(first, again), "the same seed gave different choices"
    assert not np.array_equal(first, other), "ties do not depend on the seed"


def check_permuting_arms_permutes_the_choice(factory: Factory) -> None:
    """Check that the order of the arms does not matter where the best arm is unique."""
    world, (plain, shuffled) = start(factory, 2)
    for t, arms in world.rounds():
        order, lanes = np.random.default_rng([3, t]).permutation(5), np.arange(2)
        p = np.asarray(plain.probabilities(arms))
        index, moved = plain.select(arms), shuffled.select(arms[:, order])
        played = arms[lanes, index]
        is_unique = (p * (arms == played[:, None]).all(axis=2)).sum(axis=1) > 1.0 - 1e-9  # equal arms count as one
        is_same_arm = (arms[lanes, order[moved]] == played).all(axis=1)
        assert is_same_arm[is_unique].all(), f"the order of the arms changed the choice{_say('is_randomised', True)}"
        for policy in (plain, shuffled):
            world.teach(policy, t, arms, index)


def check_rewards_matter(factory: Factory) -> None:
    """Check that opposite rewards change the choice between an arm and its equally uncertain mirror image."""
    world, (policy, opposite) = start(factory, 2)
    differs = False
    for t in range(ROUNDS):
        arms = world.pairs(t)
        choices = policy.select(arms), opposite.select(arms)
        differs |= not np.array_equal(*choices)
        for learner, index, sign in zip((policy, opposite), choices, (1.0, -1.0), strict=True):
            x = arms[np.arange(2), index]
            learner.update(x, world.largest * (sign * x[:, 0] > 0))
    assert differs, f"the choices do not depend on the rewards{_say('uses_rewards', False)}"


def check_late_rewards(factory: Factory) -> None:
    """Check that late rewards, in any order, have the same effect as rewards on time."""
    world, (punctual, late) = start(factory, 2)
    waiting: list[tuple[Array, Array, float]] = []
    rng = np.random.default_rng(0)
    for t, arms in world.rounds():
        punctual.select(arms)
        late.select(arms)
        x, reward = arms[:, t % 5], world.rewards(arms[:, t % 5], t)
        punctual.update(x, reward)
        waiting.append((x, reward, t + 1.0))
        if t % 7 == 6 or t == ROUNDS - 1:
            for i in rng.permutation(len(waiting)):
                late.update(*waiting[i][:2], round=waiting[i][2])
            waiting.clear()
    hint = _say("is_one_pass", True)
    _expect_close(late, punctual, f"differs after late rewards{hint}")
    _expect_same_future(late, punctual, world, f"late rewards lead to different choices{hint}")


def check_weights_and_masks(factory: Factory) -> None:
    """Check that weight 2 equals the same observation twice, and that weight 0 and masked lanes have no effect."""
    world, (weighted, repeated, untouched) = start(factory, 3)
    for t, arms in world.rounds():
        for policy in (weighted, repeated, untouched):
            policy.select(arms)
        x, reward = arms[:, 0], world.rewards(arms[:, 0], t)
        weighted.update(x, reward, weight=[2.0, 0.0])
        for _ in range(2):
            repeated.update(x, reward, mask=[True, False])
    hint = _say("is_one_pass", True)
    _expect_close(repeated, weighted, f"of weight 2 is not that of the same observation twice{hint}")
    _expect_close(repeated, untouched, "of a masked lane changed", 1e-9, lanes=slice(1, 2))
    message = f"weight 2 and the same observation twice lead to different choices{hint}"
    _expect_same_future(weighted, repeated, world, message, lanes=1)


def _say(attribute: str, value: bool) -> str:
    """Return the hint for a policy that fails a check by design."""
    return f" (if they are meant to, write {attribute} = {value} in the class)"


def _expect_close(policy: Policy, other: Policy, what: str, tolerance: float = 1e-7, lanes: slice = slice(2)) -> None:
    estimates = read_estimates(policy)
    for name, value in read_estimates(other).items():
        is_close = np.allclose(estimates[name][lanes], value[lanes], rtol=tolerance, atol=tolerance)
        assert is_close, f"{name} {what}"


def _expect_same_future(policy: Policy, other: Policy, world: World, message: str, lanes: int = 2) -> None:
    """Play the rounds that follow, and compare the choices in the first lanes."""
    later = range(ROUNDS, 2 * ROUNDS)
    choices, expected = run_rounds(policy, world, later), run_rounds(other, world, later)
    assert np.array_equal(choices[:, :lanes], expected[:, :lanes]), message


def check_edge_cases(factory: Factory) -> None:
    """Check one arm, one dimension, zero vectors, absent arms, masked lanes, and rewards that never arrive."""
    world, (single, policy, ragged, masked, complete) = start(factory, 5)
    choices = run_rounds(single, World(factory, [0, 1], K=1), range(5))
    assert (choices == 0).all(), "with one arm, index 0 must be chosen"
    run_rounds(factory(dim=1, lanes=2, seed=0), World(factory, [0, 1], dim=1))
    for t in range(5):
        arms = world.equal_arms()
        index = policy.select(arms)
        assert ((index >= 0) & (index < 4)).all(), "a choice among zero vectors is out of range"
        policy.update(arms[:, 0], np.full(2, world.largest * (t % 2)))
    for t in range(5):
        policy.select(world.arms(t))  # rounds whose rewards never arrive
    for t in range(ROUNDS):
        arms, valid = world.hide_arms(t, 0.5)
        index = ragged.select(arms, valid)
        assert valid[np.arange(2), index].all(), "an absent arm was chosen"
        world.teach(ragged, t, arms, index)
    is_first = np.array([True, False])
    for t, arms in world.rounds():
        index = masked.select(arms)
        assert np.array_equal(index[:1], complete.select(arms)[:1]), "a mask on one lane changed another"
        x = arms[np.arange(2), index]
        world.teach(complete, t, arms, index)
        reward = np.where(is_first, world.rewards(x, t), np.nan)
        masked.update(np.where(is_first[:, None], x, np.nan), reward, mask=is_first)


def check_bad_input_is_refused(factory: Factory) -> None:
    """Check that every bad input raises ``ArgumentError`` and leaves the state unchanged."""
    world, (policy,) = start(factory, 1)
    run_rounds(policy, world, range(5))
    before, arms, reward = policy.state(), world.arms(9), np.full(2, world.largest)
    x, select, update, long = arms[:, 0], policy.select, policy.update, 2.0 * policy.L
    calls: dict[str, Callable[[], Any]] = {
        "NaN in arms": lambda: select(_replace(arms, np.nan)),
        "infinity in arms": lambda: select(_replace(arms, np.inf)),
        "an arm longer than L": lambda: select(_replace(arms, long)),
        "arms of another dimension": lambda: select(arms[:, :, :2]),
        "arms for another number of lanes": lambda: select(arms[:1]),
        "arms without a lanes axis": lambda: select(arms[0]),
        "no arms": lambda: select(arms[:, :0]),
        "arms that are not numbers": lambda: select([["a"]]),
        "valid of the wrong shape": lambda: select(arms, np.ones((2, 4), dtype=bool)),
        "valid that is not boolean": lambda: select(arms, np.ones((2, 5))),
        "a lane without a valid arm": lambda: select(arms, np.array([[True] * 5, [False] * 5])),
        "probabilities of NaN in arms": lambda: policy.probabilities(_replace(arms, np.nan)),
        "NaN in x": lambda: update(_replace(x, np.nan), reward),
        "x longer than L": lambda: update(_replace(x, long), reward),
        "x of the wrong shape": lambda: update(x[:, :2], reward),
        "NaN as a reward": lambda: update(x, _replace(reward, np.nan)),
        "an infinite reward": lambda: update(x, _replace(reward, np.inf)),
        "rewards of the wrong shape": lambda: update(x, np.ones(3)),
        "a round in the future": lambda: update(x, reward, round=6.0),
        "a round that is NaN": lambda: update(x, reward, round=np.nan),
        "a negative weight": lambda: update(x, reward, weight=-1.0),
        "a mask of the wrong shape": lambda: update(x, reward, mask=[True]),
        "a negative time step": lambda: policy.advance(-1.0),
        "a time step that is NaN": lambda: policy.advance(np.nan),
    }
    if world.needs_one_hot:
        calls["an arm that is no unit vector"] = lambda: select(0.5 * arms)
        calls["an arm with two entries"] = lambda: select(np.full_like(arms, 0.5))
        calls["x that is no unit vector"] = lambda: update(0.0 * x, reward)
    for what, call in calls.items():
        _expect_refusal(call, what)
        assert is_same(policy.state(), before), f"{what}: refused, but it changed the state"


def _replace(array: Array, value: float) -> Array:
    """Return a copy with ``value`` as its second entry."""
    changed = array.copy()
    changed.flat[1] = value
    return changed


def _expect_refusal(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except ArgumentError as error:
        if len(str(error).splitlines()) != 1:
            raise AssertionError(f"the error for {what} must be one line") from error
    except ValueError as error:
        raise AssertionError(f"the error for {what} must be an ArgumentError, which names the argument") from error
    else:
        raise AssertionError(f"{what} was accepted")


CHECKS: tuple[Callable[[Factory], None], ...] = (
    check_lanes_are_independent, check_inputs_are_left_alone, check_settings_round_trip, check_info_changes_nothing,
    check_state_round_trips, check_bad_state_is_refused, check_seeds_reproduce,
    check_permuting_arms_permutes_the_choice, check_rewards_matter, check_late_rewards, check_weights_and_masks,
    check_probabilities, check_choices_follow_probabilities, check_probabilities_know_no_draw,
    check_choice_is_probable, check_edge_cases, check_bad_input_is_refused,
)  # fmt: skip


def check_policy(factory: Factory) -> None:
    """Run every check on the policies that a factory builds.

    Some checks do not concern every policy. Its class says so by attributes:

    - ``is_randomised = True``: every decision draws random numbers for more than ties. The order of the arms may then
      matter, and an arm may be chosen whose estimated probability is 0.
    - ``uses_rewards = False``: rewards are ignored by design, as in uniform play or by an oracle.
    - ``is_one_pass = True``: each reward is used once, when it arrives, and an approximation of it is stored. Late
      rewards and weights are then not compared with punctual and repeated rewards, because the order matters.

    Parameters
    ----------
    factory
        ``factory(dim=, lanes=, seed=)`` returns a fresh policy; ``lanes`` is a count or ids.

    Raises
    ------
    AssertionError
        With the name of the first check that failed, and what went wrong.

    Examples
    --------
    >>> from windvane import DLinUCB
    >>> check_policy(lambda **kw: DLinUCB(gamma=0.99, **kw))
    """
    for check in CHECKS:
        try:
            if not _is_exempt(factory, check):
                check(factory)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{check.__name__}: raised {type(error).__name__}: {error}") from error


def _is_exempt(factory: Factory, check: Callable[[Factory], None]) -> bool:
    """Return whether the class of the policy says that ``check`` does not concern it."""
    policy = factory(dim=3, lanes=1, seed=0)
    if check in (check_permuting_arms_permutes_the_choice, check_choice_is_probable):
        return getattr(policy, "is_randomised", False)
    if check is check_rewards_matter:
        return not getattr(policy, "uses_rewards", True)
    return check in (check_late_rewards, check_weights_and_masks) and getattr(policy, "is_one_pass", False)
