"""The public conformance suite: what every policy on the lanes contract must do, ours and yours.

    from windvane import check_policy
    check_policy(lambda **kw: MyPolicy(gamma=0.99, **kw))

The factory is called with ``dim``, ``lanes`` (a count or ids) and ``seed``. A failed check raises ``AssertionError``
with the name of the check and what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array

ROUNDS = 40
TIES_EVERY = 5  # every so many rounds all arms are equal, so that ties are part of each check
READABLE = ("theta_hat", "theta_tilde", "V", "V_tilde", "b")


class LanesPolicy(Protocol):
    """The part of the contract that the checks use."""

    L: float

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]: ...

    def update(
        self,
        x: npt.ArrayLike,
        reward: npt.ArrayLike,
        round: npt.ArrayLike | None = None,
        weight: npt.ArrayLike = 1.0,
        mask: npt.ArrayLike | None = None,
    ) -> None: ...

    def advance(self, n: float = 1.0) -> None: ...

    def state(self) -> dict[str, npt.NDArray[Any]]: ...

    def load_state(self, state: dict[str, npt.NDArray[Any]]) -> None: ...


Factory = Callable[..., LanesPolicy]


class _World:
    """Arms and rewards that depend on (lane id, round) only, so that lanes can be compared alone and together."""

    def __init__(self, ids: list[int], dim: int, K: int, L: float, repeated: bool = False) -> None:
        self.ids, self.dim, self.K, self.L, self.repeated = ids, dim, K, L, repeated

    def arms(self, t: int) -> Array:
        return np.stack([self._arms(lane, t) for lane in self.ids])

    def _arms(self, lane: int, t: int) -> Array:
        rng = np.random.default_rng([1, lane, t])
        arms = rng.normal(size=(self.K, self.dim))
        arms *= self.L * rng.uniform(0.2, 1.0, (self.K, 1)) / np.linalg.norm(arms, axis=1, keepdims=True)
        tied = self.repeated or t % TIES_EVERY == TIES_EVERY - 1
        return np.asarray(np.repeat(arms[:1], self.K, axis=0) if tied else arms)

    def rewards(self, x: Array, t: int) -> Array:
        draws = np.array([np.random.default_rng([2, lane, t]).random() for lane in self.ids])
        return (draws < 1.0 / (1.0 + np.exp(-2.0 * x[:, 0] / self.L))).astype(float)


def _run(policy: LanesPolicy, world: _World, rounds: range) -> npt.NDArray[np.int64]:
    choices = []
    for t in rounds:
        arms = world.arms(t)
        index = policy.select(arms)
        x = arms[np.arange(len(index)), index]
        policy.update(x, world.rewards(x, t))
        choices.append(index)
    return np.array(choices)


def _readings(policy: LanesPolicy) -> dict[str, Array]:
    return {name: np.asarray(getattr(policy, name)) for name in READABLE if hasattr(policy, name)}


def _same(state: dict[str, npt.NDArray[Any]], other: dict[str, npt.NDArray[Any]]) -> bool:
    return set(state) == set(other) and all(
        np.array_equal(state[name], other[name], equal_nan=state[name].dtype.kind == "f") for name in state
    )


def _world_for(factory: Factory, ids: list[int], dim: int = 3, K: int = 5, **kw: Any) -> _World:
    return _World(ids, dim, K, factory(dim=dim, lanes=1, seed=0).L, **kw)


def check_lanes_are_independent(factory: Factory) -> None:
    """k lanes together make the decisions of k policies alone, bit for bit."""
    ids = [3, 0, 11, 7]
    together = factory(dim=3, lanes=ids, seed=5)
    choices = _run(together, _world_for(factory, ids), range(ROUNDS))
    readings = _readings(together)
    for place, lane in enumerate(ids):
        alone = factory(dim=3, lanes=[lane], seed=5)
        assert np.array_equal(_run(alone, _world_for(factory, [lane]), range(ROUNDS))[:, 0], choices[:, place]), (
            f"lane {lane} decides otherwise alone than among others"
        )
        for name, value in _readings(alone).items():
            assert np.array_equal(value[0], readings[name][place]), f"{name} of lane {lane} differs when it runs alone"


def check_inputs_are_left_alone(factory: Factory) -> None:
    """Inputs are never written to, and what the caller does to them later has no effect."""
    world = _world_for(factory, [0, 1])
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


def check_state_round_trips(factory: Factory) -> None:
    """A run saved and loaded mid-way goes on exactly as one that was not; the saved state is a copy."""
    world = _world_for(factory, [0, 1, 2])
    original = factory(dim=3, lanes=3, seed=1)
    _run(original, world, range(ROUNDS))
    original.select(world.arms(0))  # saved between a decision and its reward
    state = original.state()
    assert all(isinstance(a, np.ndarray) and a.dtype != object for a in state.values()), "state must hold plain arrays"
    late = world.arms(0)[:, 0], np.ones(3)
    original.update(*late)
    expected = _run(original, world, range(ROUNDS, 2 * ROUNDS))
    resumed = factory(dim=3, lanes=3, seed=1)
    resumed.load_state(state)
    assert _same(resumed.state(), state), "state() of a loaded policy differs from what was loaded"
    resumed.update(*late)
    assert np.array_equal(_run(resumed, world, range(ROUNDS, 2 * ROUNDS)), expected), "a resumed run decides otherwise"
    assert _same(resumed.state(), original.state()), "a resumed run ends in another state"


def check_bad_state_is_refused(factory: Factory) -> None:
    """A state with a missing, misshapen or non-finite entry is refused and changes nothing."""
    policy = factory(dim=3, lanes=2, seed=0)
    _run(policy, _world_for(factory, [0, 1]), range(ROUNDS))
    good = policy.state()
    fresh = factory(dim=3, lanes=2, seed=0)
    untouched = fresh.state()
    for name, array in good.items():
        spoilt: list[npt.NDArray[Any] | None] = [None, np.zeros((7, 7, 7))]
        if array.dtype.kind == "f" and array.size and np.isfinite(array).all():
            spoilt.append(np.full_like(array, np.nan))
        for bad in spoilt:
            state = {k: v for k, v in good.items() if k != name} | ({} if bad is None else {name: bad})
            _must_refuse(partial(fresh.load_state, state), f"a state with a spoilt {name!r}")
    assert _same(fresh.state(), untouched), "a refused state changed the policy"


def check_seeds_reproduce(factory: Factory) -> None:
    """The same seed gives the same choices among equal arms; another seed does not give them all."""
    world = _world_for(factory, [0, 1], repeated=True)
    first, again, other = (_run(factory(dim=3, lanes=2, seed=s), world, range(ROUNDS)) for s in (4, 4, 9))
    assert np.array_equal(first, again), "the same seed gave other choices"
    assert not np.array_equal(first, other), "ties do not depend on the seed"


def check_permuting_arms_permutes_the_choice(factory: Factory) -> None:
    """Where the best arm is unique, only the arms count, not their order."""
    world = _world_for(factory, [0, 1])
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
    """Opposite rewards lead to other choices between an arm and its mirror image, which are equally uncertain."""
    world = _world_for(factory, [0, 1], K=1)
    choices = []
    for sign in (1.0, -1.0):
        policy, taken = factory(dim=3, lanes=2, seed=0), []
        for t in range(ROUNDS):
            arms = world.arms(t)
            arms = np.concatenate([arms, -arms], axis=1)
            taken.append(policy.select(arms))
            x = arms[np.arange(2), taken[-1]]
            policy.update(x, (sign * x[:, 0] > 0).astype(float))
        choices.append(np.array(taken))
    assert not np.array_equal(choices[0], choices[1]), "the choices do not depend on the rewards"


def check_late_rewards(factory: Factory) -> None:
    """Rewards that come late, in any order, leave the policy where the same rewards on time would have."""
    world = _world_for(factory, [0, 1])
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
                moment, x, reward = waiting[i]
                late.update(x, reward, round=moment)
            waiting.clear()
    for moment, x, reward in waiting:
        late.update(x, reward, round=moment)
    for name, value in _readings(punctual).items():
        assert np.allclose(getattr(late, name), value, rtol=1e-7, atol=1e-7), f"{name} differs after late rewards"
    later = range(ROUNDS, 2 * ROUNDS)
    assert np.array_equal(_run(late, world, later), _run(punctual, world, later)), "late rewards lead to other choices"


def check_weights_and_masks(factory: Factory) -> None:
    """Weight two is the same observation twice; weight zero and a masked lane are no observation at all."""
    world = _world_for(factory, [0, 1])
    weighted, repeated = (factory(dim=3, lanes=2, seed=0) for _ in range(2))
    for t in range(ROUNDS):
        arms = world.arms(t)
        weighted.select(arms)
        repeated.select(arms)
        x, reward = arms[:, 0], world.rewards(arms[:, 0], t)
        weighted.update(x, reward, weight=[2.0, 0.0])
        for _ in range(2):
            repeated.update(x, reward, mask=[True, False])
    for name, value in _readings(weighted).items():
        assert np.allclose(getattr(repeated, name), value, rtol=1e-7, atol=1e-7), f"{name}: weight 2 is not twice"
    untouched = factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        untouched.select(world.arms(t))
    for name, value in _readings(untouched).items():
        assert np.allclose(getattr(repeated, name)[1], value[1], rtol=1e-9, atol=1e-9), f"{name}: a masked lane learnt"
    later = range(ROUNDS, 2 * ROUNDS)
    same = np.array_equal(_run(weighted, world, later)[:, 0], _run(repeated, world, later)[:, 0])
    assert same, "weight 2 and the same observation twice lead to other choices"


def check_edge_cases(factory: Factory) -> None:
    """One arm, one dimension, zero vectors, repeated arms, ragged sets, masked lanes, no reward at all."""
    single = factory(dim=3, lanes=2, seed=0)
    assert (_run(single, _world_for(factory, [0, 1], K=1), range(5)) == 0).all(), "with one arm, index 0 must be chosen"
    _run(factory(dim=1, lanes=2, seed=0), _world_for(factory, [0, 1], dim=1), range(ROUNDS))

    policy = factory(dim=3, lanes=2, seed=0)
    for t in range(5):
        index = policy.select(np.zeros((2, 4, 3)))
        assert ((index >= 0) & (index < 4)).all(), "a choice among zero vectors is out of range"
        policy.update(np.zeros((2, 3)), np.full(2, float(t % 2)))
    for t in range(5):
        policy.select(_world_for(factory, [0, 1]).arms(t))  # rounds whose rewards never come

    world, ragged = _world_for(factory, [0, 1]), factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        arms, valid = world.arms(t), np.random.default_rng([4, t]).random((2, 5)) < 0.5
        valid[:, t % 5] = True
        arms[~valid] = np.nan
        index = ragged.select(arms, valid)
        assert valid[np.arange(2), index].all(), "an arm that is not there was chosen"
        x = arms[np.arange(2), index]
        ragged.update(x, world.rewards(x, t))

    masked, alone = factory(dim=3, lanes=2, seed=0), factory(dim=3, lanes=2, seed=0)
    for t in range(ROUNDS):
        arms = world.arms(t)
        index = masked.select(arms)
        assert np.array_equal(index[:1], alone.select(arms)[:1]), "a mask on one lane changed another"
        x = arms[np.arange(2), index]
        reward = world.rewards(x, t)
        alone.update(x, reward)
        masked.update(
            np.where([[True], [False]], x, np.nan), np.where([True, False], reward, np.nan), mask=[True, False]
        )


def check_bad_input_is_refused(factory: Factory) -> None:
    """Every bad input raises ``ValueError`` and leaves the state as it was."""
    policy = factory(dim=3, lanes=2, seed=0)
    world = _world_for(factory, [0, 1])
    _run(policy, world, range(5))
    before, arms = policy.state(), world.arms(9)
    x, reward = arms[:, 0], np.ones(2)

    def spoilt(array: Array, value: float) -> Array:
        copy = array.copy()
        copy.flat[1] = value
        return copy

    bad: dict[str, Callable[[], Any]] = {
        "NaN in arms": lambda: policy.select(spoilt(arms, np.nan)),
        "infinity in arms": lambda: policy.select(spoilt(arms, np.inf)),
        "an arm longer than L": lambda: policy.select(spoilt(arms, 2.0 * policy.L)),
        "arms of another dimension": lambda: policy.select(arms[:, :, :2]),
        "arms for another number of lanes": lambda: policy.select(arms[:1]),
        "no arms": lambda: policy.select(arms[:, :0]),
        "arms that are not numbers": lambda: policy.select([["a"]]),
        "valid of the wrong shape": lambda: policy.select(arms, np.ones((2, 4), dtype=bool)),
        "valid that is not boolean": lambda: policy.select(arms, np.ones((2, 5))),
        "a lane without a valid arm": lambda: policy.select(arms, np.array([[True] * 5, [False] * 5])),
        "NaN in x": lambda: policy.update(spoilt(x, np.nan), reward),
        "x longer than L": lambda: policy.update(spoilt(x, 2.0 * policy.L), reward),
        "x of the wrong shape": lambda: policy.update(x[:, :2], reward),
        "NaN as a reward": lambda: policy.update(x, spoilt(reward, np.nan)),
        "an infinite reward": lambda: policy.update(x, spoilt(reward, np.inf)),
        "rewards of the wrong shape": lambda: policy.update(x, np.ones(3)),
        "a round from the future": lambda: policy.update(x, reward, round=6.0),
        "a round that is NaN": lambda: policy.update(x, reward, round=np.nan),
        "a negative weight": lambda: policy.update(x, reward, weight=-1.0),
        "a mask of the wrong shape": lambda: policy.update(x, reward, mask=[True]),
        "time running backwards": lambda: policy.advance(-1.0),
        "a time step that is NaN": lambda: policy.advance(np.nan),
    }
    for what, call in bad.items():
        _must_refuse(call, what)
        assert _same(policy.state(), before), f"{what} was refused but changed the state"


def _must_refuse(call: Callable[[], Any], what: str) -> None:
    try:
        call()
    except ValueError as error:
        if len(str(error).splitlines()) != 1:
            raise AssertionError(f"the error for {what} must be one line") from error
    else:
        raise AssertionError(f"{what} was accepted")


CHECKS: tuple[Callable[[Factory], None], ...] = (
    check_lanes_are_independent,
    check_inputs_are_left_alone,
    check_state_round_trips,
    check_bad_state_is_refused,
    check_seeds_reproduce,
    check_permuting_arms_permutes_the_choice,
    check_rewards_matter,
    check_late_rewards,
    check_weights_and_masks,
    check_edge_cases,
    check_bad_input_is_refused,
)


def check_policy(factory: Factory, *, deterministic: bool = True, learns: bool = True, one_pass: bool = False) -> None:
    """Run every check on the policies that ``factory(dim=, lanes=, seed=)`` makes.

    ``deterministic=False`` leaves out what only holds without randomisation: that the order of the arms is irrelevant.
    ``learns=False`` is for policies that ignore rewards by design (uniform play, an oracle). ``one_pass=True`` is for
    those that look at an observation once, from where they stand, and keep an approximation of it: what it leads to
    then depends on when it came in, and that late rewards and weights come to the same as punctual and repeated ones is
    left out.
    """
    for check in CHECKS:
        if one_pass and check in (check_late_rewards, check_weights_and_masks):
            continue
        if check is check_permuting_arms_permutes_the_choice and not deterministic:
            continue
        if check is check_rewards_matter and not learns:
            continue
        try:
            check(factory)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        except Exception as error:
            raise AssertionError(f"{check.__name__}: raised {type(error).__name__}: {error}") from error
