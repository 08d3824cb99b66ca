"""The public conformance suite: what every policy must do, yours included.

    from windvane import check_policy
    check_policy(lambda **kw: MyPolicy(gamma=0.99, **kw))

The factory is called with ``dim``, ``lanes`` (a count or ids) and ``seed``. A failed check raises ``AssertionError``
with the name of the check and what went wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array
from windvane.errors import ArgumentError

ROUNDS = 40
TIES_EVERY = 5  # in every fifth round all arms are equal, so that each check meets ties
ESTIMATES = ("theta_hat", "theta_tilde", "metric", "squared_metric", "b")  # fields of info() that are compared
CROWD = 100  # lanes over which choices are counted; a policy with one object per lane must still be fast enough
SIGMAS = 6.0  # standard deviations by which a count may miss its expectation: by chance once in 1e9
FEW = 3  # choices that may miss it besides: where a probability is estimated as 0, its variance is 0 too

State = dict[str, npt.NDArray[Any]]


class LanesPolicy(Protocol):
    """The part of the contract that the checks use; see :mod:`windvane.policies.base`."""

    L: float

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]: ...

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Array: ...

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None: ...

    def advance(self, n: float = 1.0) -> None: ...

    def info(self) -> Any: ...

    def get_params(self) -> dict[str, Any]: ...

    def state(self) -> State: ...

    def load_state(self, state: State) -> None: ...


Factory = Callable[..., LanesPolicy]


class _World:
    """Arms and rewards that depend on (lane id, round) only, so that lanes can be compared alone and together."""

    def __init__(self, ids: list[int], dim: int, K: int, L: float, repeated: bool = False) -> None:
        self.ids, self.dim, self.K, self.L, self.repeated = ids, dim, K, L, repeated

    def arms(self, t: int) -> Array:
        return np.stack([self._draw_arms(lane, t) for lane in self.ids])

    def _draw_arms(self, lane: int, t: int) -> Array:
        rng = np.random.default_rng([1, lane, t])
        arms = rng.normal(size=(self.K, self.dim))
        arms *= self.L * rng.uniform(0.2, 1.0, (self.K, 1)) / np.linalg.norm(arms, axis=1, keepdims=True)
        is_tied = self.repeated or t % TIES_EVERY == TIES_EVERY - 1
        return np.asarray(np.repeat(arms[:1], self.K, axis=0) if is_tied else arms)

    def rewards(self, x: Array, t: int) -> Array:
        draws = np.array([np.random.default_rng([2, lane, t]).random() for lane in self.ids])
        return (draws < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0] / self.L))).astype(float)


def _build_world(factory: Factory, ids: list[int], dim: int = 3, K: int = 5, **kw: Any) -> _World:
    return _World(ids, dim, K, factory(dim=dim, lanes=1, seed=0).L, **kw)


def _run(policy: LanesPolicy, world: _World, rounds: range) -> npt.NDArray[np.int64]:
    """Play some rounds; return the choices, [rounds, lanes]."""
    choices = []
    for t in rounds:
        arms = world.arms(t)
        index = policy.select(arms)
        x = arms[np.arange(len(index)), index]
        policy.update(x, world.rewards(x, t))
        choices.append(index)
    return np.array(choices)


def _read(policy: LanesPolicy) -> dict[str, Array]:
    """Return the estimates that ``info()`` tells."""
    info = policy.info()
    values = {name: getattr(info, name, None) for name in ESTIMATES}
    return {name: np.asarray(value) for name, value in values.items() if value is not None}


def _is_same(state: State, other: State) -> bool:
    return set(state) == set(other) and all(
        np.array_equal(state[name], other[name], equal_nan=state[name].dtype.kind == "f") for name in state
    )


def check_lanes_are_independent(factory: Factory) -> None:
    """Check that k lanes together make the decisions of k policies alone, bit for bit."""
    ids = [3, 0, 11, 7]
    together = factory(dim=3, lanes=ids, seed=5)
    choices = _run(together, _build_world(factory, ids), range(ROUNDS))
    estimates = _read(together)
    for place, lane in enumerate(ids):
        alone = factory(dim=3, lanes=[lane], seed=5)
        assert np.array_equal(_run(alone, _build_world(factory, [lane]), range(ROUNDS))[:, 0], choices[:, place]), (
            f"lane {lane} decides differently alone and together with others"
        )
        for name, value in _read(alone).items():
            assert np.array_equal(value[0], estimates[name][place]), f"{name} of lane {lane} differs when it runs alone"


def check_inputs_are_left_alone(factory: Factory) -> None:
    """Check that inputs are never written to, and that what the caller does to them later has no effect."""
    world = _build_world(factory, [0, 1])
    careful, careless = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    expected = _run(careful, world, range(ROUNDS))
    for t in range(ROUNDS):
        arms, valid = world.arms(t), np.ones((2, 5), dtype=bool)
        before = arms.copy()
        index = careless.select(arms, valid)
        x = arms[np.arange(2), index]
        reward, weight, mask = world.rewards(x, t), np.ones(2), np.ones(2, dtype=bool)
        x_before, reward_before = x.copy(), reward.copy()
        careless.update(x, reward, weight=weight, mask=mask)
        assert np.array_equal(arms, before), "select wrote to arms"
        assert valid.all(), "select wrote to valid"
        assert np.array_equal(x, x_before), "update wrote to x"
        assert np.array_equal(reward, reward_before), "update wrote to reward"
        assert (weight == 1).all(), "update wrote to weight"
        assert mask.all(), "update wrote to mask"
        arms[:], x[:], reward[:], weight[:] = np.nan, np.nan, np.nan, np.nan
        assert np.array_equal(index, expected[t]), "the policy kept a reference to the caller's arrays"


def check_settings_round_trip(factory: Factory) -> None:
    """Check that ``type(policy)(**policy.get_params())`` is an equal policy, and that ``repr`` shows the settings."""
    ids = [3, 0]
    policy = factory(dim=3, lanes=ids, seed=5)
    text = repr(policy)
    assert text.startswith(f"{type(policy).__name__}("), f"repr must begin with the name of the class: {text}"
    for setting in ("dim=3", "seed=5"):
        assert setting in text, f"repr must show arguments other than their defaults, such as {setting}: {text}"
    again = type(policy)(**policy.get_params())
    assert repr(again) == text, "repr differs after a round trip through get_params()"
    assert _is_same(again.state(), policy.state()), "the state differs after a round trip through get_params()"
    world = _build_world(factory, ids)
    same = np.array_equal(_run(again, world, range(ROUNDS)), _run(policy, world, range(ROUNDS)))
    assert same, "a policy built from get_params() decides differently"
    assert _is_same(again.state(), policy.state()), "a policy built from get_params() ends in a different state"
    assert repr(policy) == text, "playing changed the settings"


def check_info_changes_nothing(factory: Factory) -> None:
    """Check that ``info()`` is a dataclass with the right clock, and that reading or overwriting it has no effect."""
    world = _build_world(factory, [0, 1])
    read, silent = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    for t in range(ROUNDS):
        for policy in (read, silent):
            arms = world.arms(t)
            if policy is read:
                _overwrite(_check_info(policy, t))
            index = policy.select(arms)
            if policy is read:
                _overwrite(_check_info(policy, t + 1))
            x = arms[np.arange(2), index]
            policy.update(x, world.rewards(x, t))
    assert _is_same(read.state(), silent.state()), "info() changed the run"


def _check_info(policy: LanesPolicy, decisions: int) -> Any:
    """Return ``info()`` after checking its type, its clock and that the state is as before."""
    before = policy.state()
    info = policy.info()
    assert dataclasses.is_dataclass(type(info)), "info() must return a dataclass"
    assert (info.decisions, info.t) == (decisions, decisions + 1.0), "info() tells the wrong t or decisions"
    assert (info.decision is None) == (decisions == 0), "info().decision must be set after a decision, and only then"
    assert _is_same(policy.state(), before), "info() changed the state"
    for array in before.values():
        array[...] = np.zeros((), dtype=array.dtype)  # a state is a copy, too
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
    world, policy = _build_world(factory, [0, 1]), factory(dim=3, lanes=2, seed=0)
    for t in range(12):
        arms, valid = world.arms(t), np.random.default_rng([4, t]).random((2, 5)) < 0.6
        valid[:, t % 5] = True
        arms[~valid] = np.nan
        before = policy.state()
        p = np.asarray(policy.probabilities(arms, valid))
        assert p.shape == (2, 5), f"probabilities have shape {p.shape}, not [lanes, K]"
        assert (p >= 0.0).all(), "a probability is negative or NaN"
        assert not p[~valid].any(), "an absent arm has a positive probability"
        assert np.allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-9), "probabilities do not add up to 1"
        if t % TIES_EVERY == TIES_EVERY - 1:
            expected = valid / valid.sum(axis=1, keepdims=True)
            assert np.allclose(p, expected, rtol=0, atol=1e-9), "equal arms have different probabilities"
        assert np.array_equal(policy.probabilities(arms, valid), p), "probabilities differ when asked for again"
        assert _is_same(policy.state(), before), "probabilities() changed the state"
        index = policy.select(arms, valid)
        x = arms[np.arange(2), index]
        policy.update(x, world.rewards(x, t))


def check_choices_follow_probabilities(factory: Factory) -> None:
    """Check that each arm is chosen as often as its probability says, over many lanes with the same history."""
    policy = factory(dim=2, lanes=CROWD, seed=3)
    world, lanes = _build_world(factory, [0], dim=2), np.arange(CROWD)
    for t in range(17):
        arms = np.repeat(world.arms(t), CROWD, axis=0)
        p = policy.probabilities(arms) if t % 4 == 0 else None
        index = policy.select(arms)
        if p is not None:
            count, spread = np.bincount(index, minlength=5), np.sqrt((p * (1.0 - p)).sum(axis=0))
            gap = np.abs(count - p.sum(axis=0))
            assert (gap <= SIGMAS * spread + FEW).all(), (
                f"arms are chosen {count.tolist()} times where {p.sum(axis=0).round(1).tolist()} are expected"
            )
        x = arms[lanes, t % 5]  # the same in all lanes, whatever they chose
        policy.update(x, world.rewards(x[:1], t)[0])


def check_choice_is_probable(factory: Factory) -> None:
    """Check that the arm chosen has a positive probability, and the others none where it is the only best one."""
    world, policy = _build_world(factory, [0, 1]), factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        arms = world.arms(t)
        p = policy.probabilities(arms)
        index = policy.select(arms)
        assert (p[np.arange(2), index] > 0.0).all(), "an arm of probability 0 was chosen"
        x = arms[np.arange(2), index]
        policy.update(x, world.rewards(x, t))


def check_state_round_trips(factory: Factory) -> None:
    """Check that a run saved and loaded half-way goes on as one that was not, and that the saved state is a copy."""
    world = _build_world(factory, [0, 1, 2])
    original = factory(dim=3, lanes=3, seed=1)
    _run(original, world, range(ROUNDS))
    original.select(world.arms(0))  # saved between a decision and its reward
    state = original.state()
    assert all(isinstance(a, np.ndarray) and a.dtype != object for a in state.values()), "state must hold plain arrays"
    outstanding = world.arms(0)[:, 0], np.ones(3)
    original.update(*outstanding)
    expected = _run(original, world, range(ROUNDS, 2 * ROUNDS))
    resumed = factory(dim=3, lanes=3, seed=1)
    resumed.load_state(state)
    assert _is_same(resumed.state(), state), "state() of a loaded policy differs from what was loaded"
    resumed.update(*outstanding)
    choices = _run(resumed, world, range(ROUNDS, 2 * ROUNDS))
    assert np.array_equal(choices, expected), "a resumed run decides differently"
    assert _is_same(resumed.state(), original.state()), "a resumed run ends in a different state"


def check_bad_state_is_refused(factory: Factory) -> None:
    """Check that a state with a missing, misshapen or non-finite entry is refused and changes nothing."""
    policy = factory(dim=3, lanes=2, seed=0)
    _run(policy, _build_world(factory, [0, 1]), range(ROUNDS))
    good = policy.state()
    fresh = factory(dim=3, lanes=2, seed=0)
    untouched = fresh.state()
    for name, array in good.items():
        bad_values: list[npt.NDArray[Any] | None] = [None, np.zeros((7, 7, 7))]
        if array.dtype.kind == "f" and array.size and np.isfinite(array).all():
            bad_values.append(np.full_like(array, np.nan))
        for bad in bad_values:
            state = {k: v for k, v in good.items() if k != name} | ({} if bad is None else {name: bad})
            _expect_refusal(partial(fresh.load_state, state), f"a state with a bad {name!r}")
    assert _is_same(fresh.state(), untouched), "a refused state changed the policy"


def check_seeds_reproduce(factory: Factory) -> None:
    """Check that the same seed gives the same choices among equal arms, and another seed does not."""
    world = _build_world(factory, [0, 1], repeated=True)
    first, again, other = (_run(factory(dim=3, lanes=2, seed=s), world, range(ROUNDS)) for s in (4, 4, 9))
    assert np.array_equal(first, again), "the same seed gave different choices"
    assert not np.array_equal(first, other), "ties do not depend on the seed"


def check_permuting_arms_permutes_the_choice(factory: Factory) -> None:
    """Check that, where the best arm is unique, only the arms count and not their order."""
    world = _build_world(factory, [0, 1])
    plain, shuffled = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    for t in range(ROUNDS):
        arms = world.arms(t)
        order = np.random.default_rng([3, t]).permutation(5)
        index, moved = plain.select(arms), shuffled.select(arms[:, order])
        if t > 0 and t % TIES_EVERY != TIES_EVERY - 1:  # before any reward, and among equal arms, scores are equal
            assert np.array_equal(order[moved], index), "the order of the arms changed the choice"
        x = arms[np.arange(2), index]
        for policy in (plain, shuffled):
            policy.update(x, world.rewards(x, t))


def check_rewards_matter(factory: Factory) -> None:
    """Check that opposite rewards change the choice between an arm and its mirror image, equally uncertain."""
    world = _build_world(factory, [0, 1], K=1)
    choices = []
    for sign in (1.0, -1.0):
        policy, chosen = factory(dim=3, lanes=2, seed=0), []
        for t in range(ROUNDS):
            arms = world.arms(t)
            arms = np.concatenate([arms, -arms], axis=1)
            chosen.append(policy.select(arms))
            x = arms[np.arange(2), chosen[-1]]
            policy.update(x, (sign * x[:, 0] > 0).astype(float))
        choices.append(np.array(chosen))
    assert not np.array_equal(choices[0], choices[1]), "the choices do not depend on the rewards"


def check_late_rewards(factory: Factory) -> None:
    """Check that late rewards, in any order, have the effect that they would have had on time."""
    world = _build_world(factory, [0, 1])
    punctual, late = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    waiting: list[tuple[float, Array, Array]] = []
    rng = np.random.default_rng(0)
    for t in range(ROUNDS):
        arms = world.arms(t)
        punctual.select(arms)
        late.select(arms)
        x = arms[:, t % 5]
        punctual.update(x, world.rewards(x, t))
        waiting.append((t + 1.0, x, world.rewards(x, t)))
        if t % 7 == 6:
            for i in rng.permutation(len(waiting)):
                decided, x, reward = waiting[i]
                late.update(x, reward, round=decided)
            waiting.clear()
    for decided, x, reward in waiting:
        late.update(x, reward, round=decided)
    _expect_close(_read(late), _read(punctual), "differs after late rewards")
    later = range(ROUNDS, 2 * ROUNDS)
    same = np.array_equal(_run(late, world, later), _run(punctual, world, later))
    assert same, "late rewards lead to different choices"


def check_weights_and_masks(factory: Factory) -> None:
    """Check that weight 2 is the same observation twice, and that weight 0 and a masked lane are no observation."""
    world = _build_world(factory, [0, 1])
    weighted, repeated = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    for t in range(ROUNDS):
        arms = world.arms(t)
        weighted.select(arms)
        repeated.select(arms)
        x, reward = arms[:, 0], world.rewards(arms[:, 0], t)
        weighted.update(x, reward, weight=[2.0, 0.0])
        for _ in range(2):
            repeated.update(x, reward, mask=[True, False])
    _expect_close(_read(repeated), _read(weighted), "of weight 2 is not that of the same observation twice")
    untouched = factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        untouched.select(world.arms(t))
    found, expected = ({n: a[1] for n, a in _read(policy).items()} for policy in (repeated, untouched))
    _expect_close(found, expected, "of a masked lane changed", 1e-9)
    later = range(ROUNDS, 2 * ROUNDS)
    same = np.array_equal(_run(weighted, world, later)[:, 0], _run(repeated, world, later)[:, 0])
    assert same, "weight 2 and the same observation twice lead to different choices"


def _expect_close(found: dict[str, Array], expected: dict[str, Array], what: str, tolerance: float = 1e-7) -> None:
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=tolerance, atol=tolerance), f"{name} {what}"


def check_edge_cases(factory: Factory) -> None:
    """Check one arm, one dimension, zero vectors, absent arms, masked lanes, and rewards that never come."""
    single = factory(dim=3, lanes=2, seed=0)
    choices = _run(single, _build_world(factory, [0, 1], K=1), range(5))
    assert (choices == 0).all(), "with one arm, index 0 must be chosen"
    _run(factory(dim=1, lanes=2, seed=0), _build_world(factory, [0, 1], dim=1), range(ROUNDS))

    policy, world = factory(dim=3, lanes=2, seed=0), _build_world(factory, [0, 1])
    for t in range(5):
        index = policy.select(np.zeros((2, 4, 3)))
        assert ((index >= 0) & (index < 4)).all(), "a choice among zero vectors is out of range"
        policy.update(np.zeros((2, 3)), np.full(2, float(t % 2)))
    for t in range(5):
        policy.select(world.arms(t))  # rounds whose rewards never come

    ragged = factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        arms, valid = world.arms(t), np.random.default_rng([4, t]).random((2, 5)) < 0.5
        valid[:, t % 5] = True
        arms[~valid] = np.nan
        index = ragged.select(arms, valid)
        assert valid[np.arange(2), index].all(), "an absent arm was chosen"
        x = arms[np.arange(2), index]
        ragged.update(x, world.rewards(x, t))

    masked, complete = factory(dim=3, lanes=2, seed=0), factory(dim=3, lanes=2, seed=0)
    is_first = np.array([True, False])
    for t in range(ROUNDS):
        arms = world.arms(t)
        index = masked.select(arms)
        assert np.array_equal(index[:1], complete.select(arms)[:1]), "a mask on one lane changed another"
        x = arms[np.arange(2), index]
        reward = world.rewards(x, t)
        complete.update(x, reward)
        masked.update(np.where(is_first[:, None], x, np.nan), np.where(is_first, reward, np.nan), mask=is_first)


def check_bad_input_is_refused(factory: Factory) -> None:
    """Check that every bad input raises ``ArgumentError`` and leaves the state as it was."""
    policy = factory(dim=3, lanes=2, seed=0)
    world = _build_world(factory, [0, 1])
    _run(policy, world, range(5))
    before = policy.state()
    for what, call in (_bad_arms(policy, world.arms(9)) | _bad_feedback(policy, world.arms(9)[:, 0])).items():
        _expect_refusal(call, what)
        assert _is_same(policy.state(), before), f"{what}: refused, but it changed the state"


def _bad_arms(policy: LanesPolicy, arms: Array) -> dict[str, Callable[[], Any]]:
    """Return calls of ``select`` that must be refused."""
    return {
        "NaN in arms": lambda: policy.select(_replace(arms, np.nan)),
        "infinity in arms": lambda: policy.select(_replace(arms, np.inf)),
        "an arm longer than L": lambda: policy.select(_replace(arms, 2.0 * policy.L)),
        "arms of another dimension": lambda: policy.select(arms[:, :, :2]),
        "arms for another number of lanes": lambda: policy.select(arms[:1]),
        "arms without a lanes axis": lambda: policy.select(arms[0]),
        "no arms": lambda: policy.select(arms[:, :0]),
        "arms that are not numbers": lambda: policy.select([["a"]]),
        "valid of the wrong shape": lambda: policy.select(arms, np.ones((2, 4), dtype=bool)),
        "valid that is not boolean": lambda: policy.select(arms, np.ones((2, 5))),
        "a lane without a valid arm": lambda: policy.select(arms, np.array([[True] * 5, [False] * 5])),
        "probabilities of NaN in arms": lambda: policy.probabilities(_replace(arms, np.nan)),
    }


def _bad_feedback(policy: LanesPolicy, x: Array) -> dict[str, Callable[[], Any]]:
    """Return calls of ``update`` and ``advance`` that must be refused."""
    reward = np.ones(2)
    return {
        "NaN in x": lambda: policy.update(_replace(x, np.nan), reward),
        "x longer than L": lambda: policy.update(_replace(x, 2.0 * policy.L), reward),
        "x of the wrong shape": lambda: policy.update(x[:, :2], reward),
        "NaN as a reward": lambda: policy.update(x, _replace(reward, np.nan)),
        "an infinite reward": lambda: policy.update(x, _replace(reward, np.inf)),
        "rewards of the wrong shape": lambda: policy.update(x, np.ones(3)),
        "a round in the future": lambda: policy.update(x, reward, round=6.0),
        "a round that is NaN": lambda: policy.update(x, reward, round=np.nan),
        "a negative weight": lambda: policy.update(x, reward, weight=-1.0),
        "a mask of the wrong shape": lambda: policy.update(x, reward, mask=[True]),
        "a negative time step": lambda: policy.advance(-1.0),
        "a time step that is NaN": lambda: policy.advance(np.nan),
    }


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
    check_lanes_are_independent,
    check_inputs_are_left_alone,
    check_settings_round_trip,
    check_info_changes_nothing,
    check_state_round_trips,
    check_bad_state_is_refused,
    check_seeds_reproduce,
    check_permuting_arms_permutes_the_choice,
    check_rewards_matter,
    check_late_rewards,
    check_weights_and_masks,
    check_probabilities,
    check_choices_follow_probabilities,
    check_choice_is_probable,
    check_edge_cases,
    check_bad_input_is_refused,
)


def check_policy(factory: Factory, *, deterministic: bool = True, learns: bool = True, one_pass: bool = False) -> None:
    """Run every check on the policies that a factory builds.

    Parameters
    ----------
    factory
        ``factory(dim=, lanes=, seed=)`` returns a fresh policy.
    deterministic
        False for a policy that draws random numbers beyond ties. The order of the arms may then matter, and an arm
        may be chosen whose estimated probability is 0.
    learns
        False for a policy that ignores rewards by design, such as uniform play or an oracle.
    one_pass
        True for a policy that looks at an observation once and keeps an approximation of it. Late rewards and weights
        are then not compared with punctual and repeated rewards, because the order of rewards matters.

    Raises
    ------
    AssertionError
        With the name of the first check that failed, and what went wrong.

    Examples
    --------
    >>> from windvane import DLinUCB
    >>> check_policy(lambda **kw: DLinUCB(gamma=0.99, **kw))
    """
    left_out: set[Callable[[Factory], None]] = set()
    if not deterministic:
        left_out |= {check_permuting_arms_permutes_the_choice, check_choice_is_probable}
    if not learns:
        left_out |= {check_rewards_matter}
    if one_pass:
        left_out |= {check_late_rewards, check_weights_and_masks}
    for check in CHECKS:
        if check in left_out:
            continue
        try:
            check(factory)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{check.__name__}: raised {type(error).__name__}: {error}") from error
