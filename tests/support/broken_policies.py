"""Policies broken on purpose, each in one way, and the check that must catch it. They override public methods only."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from support.policies import Skeleton, forget_observations, scores
from windvane import BVDGLMUCB, checks
from windvane.errors import ArgumentError

BROKEN: dict[str, tuple[type, Any, str]] = {}  # class, check, what the message must contain


def caught_by(check: Any, message: str) -> Callable[[type], type]:
    def register(cls: type) -> type:
        BROKEN[cls.__name__] = cls, check, message
        return cls

    return register


def learns_wrongly(name: str, change: Callable[[Any, dict[str, Any]], Any], check: Any, message: str) -> None:
    """Register a BVD-GLM-UCB that changes the arguments of ``update`` (x, reward, round, weight, mask) first."""

    def update(self: Any, x: Any, reward: Any, round: Any = None, weight: Any = 1.0, mask: Any = None) -> None:
        arguments = {"x": x, "reward": reward, "round": round, "weight": weight, "mask": mask}
        BVDGLMUCB.update(self, **arguments | change(self, arguments))

    caught_by(check, message)(type(name, (BVDGLMUCB,), {"update": update}))


def selects_wrongly(
    name: str, check: Any, message: str, *, before: Any = None, after: Any = None, base: Any = Skeleton
) -> None:
    """Register a policy that changes its arms with ``before``, or its choice with ``after``."""

    def select(self: Any, arms: Any, valid: Any = None) -> np.ndarray:
        shown = arms if before is None else before(self, arms)
        index = base.select(self, shown, valid)
        return index if after is None else after(self, arms, valid, index)

    caught_by(check, message)(type(name, (base,), {"select": select}))


def writes_to(name: str, argument: str, change: Callable[[np.ndarray], Any]) -> None:
    """Register a BVD-GLM-UCB that overwrites an argument of ``update`` after it has learnt."""

    def update(self: Any, x: Any, reward: Any, round: Any = None, weight: Any = 1.0, mask: Any = None) -> None:
        arguments = {"x": x, "reward": reward, "round": round, "weight": weight, "mask": mask}
        BVDGLMUCB.update(self, **arguments)
        if isinstance(arguments[argument], np.ndarray):
            change(arguments[argument])

    caught_by(checks.check_inputs_are_left_alone, f"wrote to {argument}")(type(name, (BVDGLMUCB,), {"update": update}))


def best(scores: np.ndarray, valid: Any) -> np.ndarray:
    return np.argmax(scores if valid is None else np.where(valid, scores, -np.inf), axis=1)


NOT_TWICE = checks.check_weights_and_masks, "of the same observation twice"
ALONE = checks.check_lanes_are_independent, "alone"
BAD_INPUT = checks.check_bad_input_is_refused
ROUND_TRIP = checks.check_state_round_trips

learns_wrongly(
    "NeverLearns",
    lambda _, given: {"reward": np.where(np.isfinite(given["reward"]), 0.5, given["reward"])},
    checks.check_rewards_matter,
    "do not depend on the rewards",
)
learns_wrongly(
    "CouplesRewards", lambda _, given: {"reward": np.full(len(given["x"]), np.mean(given["reward"]))}, *ALONE
)
learns_wrongly("IgnoresMask", lambda _self, _given: {"mask": None}, *NOT_TWICE)
learns_wrongly("IgnoresWeight", lambda _self, _given: {"weight": 1.0}, *NOT_TWICE)
learns_wrongly(
    "IgnoresRound", lambda _self, _given: {"round": None}, checks.check_late_rewards, "differs after late rewards"
)
learns_wrongly(
    "AcceptsNaNRewards",
    lambda _, given: {"reward": np.nan_to_num(np.asarray(given["reward"]))},
    BAD_INPUT,
    "NaN as a reward was accepted",
)
learns_wrongly(
    "AcceptsTheFuture",
    lambda self, given: {"round": None if given["round"] is None else np.minimum(given["round"], self.t - 1)},
    BAD_INPUT,
    "a round in the future was accepted",
)
learns_wrongly(
    "AcceptsNegativeWeights",
    lambda _, given: {"weight": np.abs(given["weight"])},
    BAD_INPUT,
    "a negative weight was accepted",
)
writes_to("WritesX", "x", lambda x: np.multiply(x, 0.9, out=x))
writes_to("WritesReward", "reward", lambda reward: np.subtract(reward, 0.5, out=reward))
writes_to("WritesWeight", "weight", lambda weight: np.multiply(weight, 2, out=weight))
writes_to("WritesMask", "mask", lambda mask: mask.fill(False))


def index_pair(index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(index)), index


def centre_arms(_: Any, arms: Any) -> np.ndarray:
    arms = np.asarray(arms, dtype=float)
    return 0.5 * (arms - arms.mean(axis=(0, 1)))


def shorten_arms(self: Any, arms: Any) -> Any:
    if not isinstance(arms, np.ndarray) or not arms.size or not np.isfinite(arms).all():
        return arms
    return arms * np.minimum(1.0, self.L / np.maximum(np.linalg.norm(arms, axis=-1, keepdims=True), 1e-300))


def scale_in_place(_: Any, arms: Any, _valid: Any, index: np.ndarray) -> np.ndarray:
    np.asarray(arms)[...] *= 0.5
    return index


def strike_off(_: Any, _arms: Any, valid: Any, index: np.ndarray) -> np.ndarray:
    if valid is not None:
        np.asarray(valid)[index_pair(index)] = False
    return index


def let_time_pass(self: Any, arms: Any) -> Any:
    self.advance(1.0)
    return arms


def add_noise(scores: np.ndarray) -> np.ndarray:
    return scores + 1e-9 * np.random.default_rng().random(scores.shape)


NOT_THERE = checks.check_edge_cases, "absent arm was chosen"
selects_wrongly("CouplesScales", *ALONE, before=centre_arms)
selects_wrongly(  # every lane decides with the average of all lanes' estimates
    "CouplesEstimates",
    *ALONE,
    after=lambda self, arms, valid, _: best(np.asarray(arms) @ self.info().theta_hat.mean(axis=0), valid),
)
selects_wrongly("WritesArms", checks.check_inputs_are_left_alone, "wrote to arms", after=scale_in_place)
selects_wrongly("WritesValid", checks.check_inputs_are_left_alone, "wrote to valid", after=strike_off)
selects_wrongly(  # ties are broken by the first index, whatever the seed
    "FirstOfEquals",
    checks.check_seeds_reproduce,
    "do not depend on the seed",
    after=lambda self, _arms, valid, _: best(scores(self), valid),
)
selects_wrongly(  # ties are broken by a generator that is seeded from the system
    "UnseededTies",
    checks.check_seeds_reproduce,
    "the same seed gave different choices",
    after=lambda self, _arms, valid, _: best(add_noise(scores(self)), valid),
)
selects_wrongly(  # the place among the arms that are there, not among all
    "CountsAmongValidArms",
    *NOT_THERE,
    after=lambda _self, _arms, valid, index: (
        index if valid is None else (np.cumsum(valid, axis=1) - 1)[index_pair(index)]
    ),
)
selects_wrongly(
    "LikesAbsentArms",
    *NOT_THERE,
    after=lambda _self, _arms, valid, index: (
        index if valid is None else np.where(valid.all(axis=1), index, np.argmin(valid, axis=1))
    ),
)
selects_wrongly(
    "AcceptsNaNArms", BAD_INPUT, "NaN in arms was accepted", before=lambda _, arms: np.nan_to_num(np.asarray(arms))
)
selects_wrongly("AcceptsLongArms", BAD_INPUT, "longer than L was accepted", before=shorten_arms)
selects_wrongly("AgesOnRefusedArms", BAD_INPUT, "changed the state", before=let_time_pass, base=BVDGLMUCB)


@caught_by(*ALONE)
class TiesByPlace(Skeleton):
    """Random numbers belong to the lane's place in the batch, not to its id."""

    def select(self, arms, valid=None):
        ids, self.lane_ids = self.lane_ids, np.arange(self.lane_count)
        index = super().select(arms, valid)
        self.lane_ids = ids
        return index


@caught_by(ROUND_TRIP, "resumed run")
class Leans(Skeleton):
    """Prefers arms like those it was rewarded for: a part of the future that its state does not hold."""

    liked = 0.0  # not annotated: that would make it an argument

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        self.liked = self.remember(x)

    def remember(self, x):
        return self.liked + x

    def select(self, arms, valid=None):
        super().select(arms, valid)
        liked = np.nan_to_num(np.broadcast_to(self.liked, np.asarray(arms)[:, 0].shape))
        return best(scores(self) + np.einsum("lkd,ld->lk", arms, liked), valid)


@caught_by(checks.check_inputs_are_left_alone, "kept a reference")
class KeepsAReference(Leans):
    """Leans by the caller's own array, which the caller is free to overwrite."""

    def remember(self, x):
        return np.asarray(x)


@caught_by(ROUND_TRIP, "differs|resumed run")
class ForgetsHistory(BVDGLMUCB):
    """Resumes with V and b but without the observations behind them."""

    def load_state(self, state):
        super().load_state(state)
        forget_observations(self)


@caught_by(ROUND_TRIP, "last_round")
class ForgetsDecisions(Skeleton):
    """Resumes with the random numbers of the first rounds: the number of decisions is not saved."""

    def state(self):
        return super().state() | {"decisions": np.array(0)}

    def load_state(self, state):
        super().load_state(state | {"decisions": np.array(0)})


@caught_by(ROUND_TRIP, "differs")
class ForgetsTime(BVDGLMUCB):
    """Resumes at round 1: the radius starts small again."""

    def load_state(self, state):
        super().load_state(state)
        self.t = 1.0


@caught_by(ROUND_TRIP, "state|checksum")
class SharesItsState(Skeleton):
    """Goes on writing to the arrays that it handed out as its state."""

    shared = None

    def state(self):
        self.shared = super().state()
        return self.shared

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        for name, array in super().state().items() if self.shared is not None else ():
            if name != "checksum" and array.shape == self.shared[name].shape:
                self.shared[name][...] = array


@caught_by(ROUND_TRIP, "plain arrays")
class PicklesItsState(Skeleton):
    """Keeps a Python object in the state."""

    def state(self):
        return super().state() | {"notes": np.array({"any": "thing"}, dtype=object)}

    def load_state(self, state):
        super().load_state({name: array for name, array in state.items() if name != "notes"})


@caught_by(checks.check_bad_state_is_refused, "was accepted")
class FillsInMissingState(Skeleton):
    """Takes what it has for what the state lacks."""

    def load_state(self, state):
        super().load_state(self.state() | state)


@caught_by(checks.check_bad_state_is_refused, "changed the policy")
class LoadsBeforeChecking(Skeleton):
    """Lets time pass first and looks at the state later."""

    def load_state(self, state):
        self.advance(1.0)
        super().load_state(state)


@caught_by(checks.check_permuting_arms_permutes_the_choice, "order of the arms")
class TakesTheFirstForAModel(Skeleton):
    """Prefers arms that are like the first of the list."""

    def predict(self, arms, theta):
        return super().predict(arms, theta) + np.einsum("lkd,ld->lk", arms, arms[:, 0])


@caught_by(checks.check_settings_round_trip, "repr differs")
class ChangesItsSettings(Skeleton):
    """Keeps something else than what it was given."""

    def __post_init__(self):
        super().__post_init__()
        self.bonus_scale = 0.5 * self.bonus_scale


@caught_by(checks.check_settings_round_trip, "decides differently")
class HasHiddenSettings(Skeleton):
    """Depends on something that no argument tells: the second one built explores less."""

    built = 0

    def __post_init__(self):
        super().__post_init__()
        self.bonus_scales /= 1.0 + 9.0 * (HasHiddenSettings.built % 3)
        HasHiddenSettings.built += 1


@caught_by(checks.check_settings_round_trip, "repr must show")
class HidesItsArguments(Skeleton):
    def __repr__(self):
        return "HidesItsArguments()"


@caught_by(checks.check_info_changes_nothing, "a dataclass")
class TellsADict(Skeleton):
    def info(self, *, estimates=True):
        info = super().info(estimates=estimates)
        return info.to_dict() if estimates else info


@caught_by(checks.check_info_changes_nothing, "changed the state")
class AgesWhenRead(Skeleton):
    def info(self, *, estimates=True):
        self.estimator.age(1.0)
        return super().info(estimates=estimates)


@caught_by(checks.check_info_changes_nothing, "changed the run")
class HandsOutItsParts(Skeleton):
    def info(self, *, estimates=True):
        return dataclasses.replace(super().info(estimates=estimates), metric=self.estimator.V)


@caught_by(checks.check_probabilities, "absent arm has")
class GivesAbsentArmsAChance(Skeleton):
    def probabilities(self, arms, valid=None):
        return np.full(np.shape(arms)[:2], 1.0 / np.shape(arms)[1])


@caught_by(checks.check_probabilities, "add up to 1")
class LosesProbability(Skeleton):
    def probabilities(self, arms, valid=None):
        return 0.9 * super().probabilities(arms, valid)


@caught_by(checks.check_probabilities, "changed the state")
class DecidesWhenAsked(Skeleton):
    def probabilities(self, arms, valid=None):
        found = super().probabilities(arms, valid)
        self.advance(1.0)
        return found


@caught_by(checks.check_choices_follow_probabilities, "are expected")
class CallsItselfUniform(Skeleton):
    def probabilities(self, arms, valid=None):
        present = self.check_arms(arms, valid)[1]
        return present / present.sum(axis=1, keepdims=True)


@caught_by(checks.check_choice_is_probable, "probability 0 was chosen")
class CallsItselfGreedy(Skeleton):
    def probabilities(self, arms, valid=None):
        arms, present = self.check_arms(arms, valid)
        means = np.where(present, arms @ self.estimator.theta_hat[:, :, None] @ np.ones(1), -np.inf)
        is_best = means >= means.max(axis=1, keepdims=True) - 1e-12
        return is_best / is_best.sum(axis=1, keepdims=True)


@caught_by(BAD_INPUT, "a negative time step was accepted")
class AcceptsTimeRunningBackwards(BVDGLMUCB):
    def advance(self, n=1.0):
        super().advance(max(n, 0.0))


@caught_by(BAD_INPUT, "changed the state")
class LearnsLaneByLane(BVDGLMUCB):
    """Has learnt from the first lanes by the time it refuses a later one."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        for only in np.eye(self.lane_count, dtype=bool):
            super().update(x, reward, round, weight, only if mask is None else only & np.asarray(mask))


def raises_instead(change: Callable[[ValueError], Exception]) -> type:
    """A BVD-GLM-UCB that refuses arms with another exception."""

    class RaisesInstead(BVDGLMUCB):
        def select(self, arms, valid=None):
            try:
                return super().select(arms, valid)
            except ValueError as error:
                raise change(error) from None

    return RaisesInstead


class OffByOneWithOneArm(BVDGLMUCB):
    """Counts from one where there is nothing to choose."""

    def select(self, arms, valid=None):
        return super().select(arms, valid) + (np.shape(arms)[1] == 1)


BROKEN["RaisesEssays"] = raises_instead(lambda _: ArgumentError("arms", 0, "better\nnext time")), BAD_INPUT, "one line"
BROKEN["RaisesValueError"] = raises_instead(lambda error: ValueError(str(error))), BAD_INPUT, "be an ArgumentError"

# What these do wrong makes them, or the check, raise something else than an AssertionError.
CRASHING: dict[str, tuple[type, Any]] = {
    "OffByOneWithOneArm": (OffByOneWithOneArm, checks.check_edge_cases),
    "RaisesTypeError": (raises_instead(lambda error: TypeError(str(error))), BAD_INPUT),
}


def factory_of(policy: type) -> Callable[..., Any]:
    return lambda **kw: policy(gamma=0.9, **kw)
