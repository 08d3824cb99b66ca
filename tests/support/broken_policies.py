"""Policies broken on purpose, each in one way, and the check that must catch it. They override public methods only."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from support.policies import Skeleton, forget_observations, scores
from windvane import BVDGLMUCB, checks
from windvane.errors import ArgumentError
from windvane.policies.forgetting import DiscountedPolicy
from windvane.policies.glm import LikelihoodPolicy

BROKEN: dict[str, tuple[type, Any, str]] = {}  # class, check, what the message must contain


class EpsilonGreedy(LikelihoodPolicy, DiscountedPolicy):
    """Draws an arm now and then; its probabilities are those before the draw."""

    epsilon: float = 0.2
    name = "epsilon-greedy"
    is_randomised = True

    def select(self, arms: Any, valid: Any = None) -> np.ndarray:
        arms, valid = self.check_arms(arms, valid)
        means = self.predict(arms, self.estimate()[0])
        explores = self.draw_uniforms() < self.epsilon
        return self.play(np.where(explores[:, None], 0.0, means), valid, means)

    def probabilities(self, arms: Any, valid: Any = None) -> np.ndarray:
        arms, valid = self.check_arms(arms, valid)
        best = self.share_best(self.predict(arms, self.estimator.theta_hat), valid)
        return (1 - self.epsilon) * best + self.epsilon * valid / valid.sum(axis=1, keepdims=True)


def build(name: str, base: Any = Skeleton, **wrong: Callable[..., Any]) -> type:
    """A subclass of ``base`` whose methods are ``wrong[method](self, sound, ...)``, with ``sound`` that of ``base``."""

    def override(method: str) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            return wrong[method](self, partial(getattr(base, method), self), *arguments, **options)

        return call

    return type(name, (base,), {method: override(method) for method in wrong})


def broken(name: str, check: Any, message: str, base: Any = Skeleton, **wrong: Callable[..., Any]) -> None:
    BROKEN[name] = build(name, base, **wrong), check, message


def learns_wrongly(name: str, check: Any, message: str, before: Any = None, after: Any = None) -> None:
    """Register a BVD-GLM-UCB: ``before(self, arguments)`` replaces arguments of ``update``, ``after`` sees them."""

    def update(self: Any, sound: Any, x: Any, reward: Any, **options: Any) -> None:
        arguments = {"x": x, "reward": reward, "round": None, "weight": 1.0, "mask": None} | options
        sound(**arguments | (before(self, arguments) if before else {}))
        if after:
            after(arguments)

    broken(name, check, message, BVDGLMUCB, update=update)


def selects_wrongly(name: str, check: Any, message: str, *, before: Any = None, after: Any = None) -> None:
    def select(self: Any, sound: Any, arms: Any, valid: Any = None) -> np.ndarray:
        index = sound(before(self, arms) if before else arms, valid)
        return after(self, arms, valid, index) if after else index

    broken(name, check, message, select=select)


def around(before: Callable[[Any], Any] | None = None, after: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
    """The sound method, with ``before(self)`` or ``after(self)``."""

    def method(self: Any, sound: Any, *arguments: Any, **options: Any) -> Any:
        if before:
            before(self)
        result = sound(*arguments, **options)
        if after:
            after(self)
        return result

    return method


def best(scores: np.ndarray, valid: Any) -> np.ndarray:
    return np.argmax(scores if valid is None else np.where(valid, scores, -np.inf), axis=1)


def let_time_pass(self: Any) -> None:
    self.advance(1.0)


NOT_TWICE = checks.check_weights_and_masks, "of the same observation twice"
ALONE = checks.check_lanes_are_independent, "alone"
NOT_THERE = checks.check_edge_cases, "absent arm was chosen"
LATE = checks.check_late_rewards, "differs after late rewards"
ORDER = checks.check_permuting_arms_permutes_the_choice, "order of the arms"
SHARES = checks.check_choices_follow_probabilities, "are expected"
BAD_INPUT, BAD_STATE = checks.check_bad_input_is_refused, checks.check_bad_state_is_refused
INPUTS, SEEDS = checks.check_inputs_are_left_alone, checks.check_seeds_reproduce
ROUND_TRIP, SETTINGS = checks.check_state_round_trips, checks.check_settings_round_trip
INFO, PROBABILITIES = checks.check_info_changes_nothing, checks.check_probabilities

# --- update -----------------------------------------------------------------------------------------------------------


def hide_rewards(_: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {"reward": np.where(np.isfinite(given["reward"]), 0.5, given["reward"])}


def pull_into_the_past(self: Any, given: dict[str, Any]) -> dict[str, Any]:
    return {"round": None if given["round"] is None else np.minimum(given["round"], self.t - 1)}


def overwrite(argument: str, factor: float, arguments: dict[str, Any]) -> None:
    if isinstance(arguments[argument], np.ndarray):
        np.multiply(arguments[argument], factor, out=arguments[argument], casting="unsafe")


def learn_lane_by_lane(self: Any, sound: Any, x: Any, reward: Any, mask: Any = None, **options: Any) -> None:
    """It has learnt from the first lanes by the time it refuses a later one."""
    for only in np.eye(self.lane_count, dtype=bool):
        sound(x, reward, mask=only if mask is None else only & np.asarray(mask), **options)


learns_wrongly("NeverLearns", checks.check_rewards_matter, "do not depend on the rewards", hide_rewards)
learns_wrongly("CouplesRewards", *ALONE, lambda _, given: {"reward": 0.0 * given["reward"] + np.mean(given["reward"])})
learns_wrongly("IgnoresMask", *NOT_TWICE, lambda _self, _given: {"mask": None})
learns_wrongly("IgnoresWeight", *NOT_TWICE, lambda _self, _given: {"weight": 1.0})
learns_wrongly("IgnoresRound", *LATE, lambda _self, _given: {"round": None})
NAN_REWARD, NEGATIVE_WEIGHT = "NaN as a reward was accepted", "a negative weight was accepted"
learns_wrongly("AcceptsNaNRewards", BAD_INPUT, NAN_REWARD, lambda _, given: {"reward": np.nan_to_num(given["reward"])})
learns_wrongly("AcceptsTheFuture", BAD_INPUT, "a round in the future was accepted", pull_into_the_past)
learns_wrongly("AcceptsNegativeWeights", BAD_INPUT, NEGATIVE_WEIGHT, lambda _, given: {"weight": abs(given["weight"])})
for argument, factor in {"x": 0.9, "reward": -0.5, "weight": 2, "mask": 0}.items():
    learns_wrongly(f"Writes {argument}", INPUTS, f"wrote to {argument}", after=partial(overwrite, argument, factor))
broken("LearnsLaneByLane", BAD_INPUT, "changed the state", BVDGLMUCB, update=learn_lane_by_lane)

# --- select -----------------------------------------------------------------------------------------------------------


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
        np.asarray(valid)[np.arange(len(index)), index] = False
    return index


def count_among_valid_arms(_: Any, _arms: Any, valid: Any, index: np.ndarray) -> np.ndarray:
    return index if valid is None else (np.cumsum(valid, axis=1) - 1)[np.arange(len(index)), index]


def prefer_absent_arms(_: Any, _arms: Any, valid: Any, index: np.ndarray) -> np.ndarray:
    return index if valid is None else np.where(valid.all(axis=1), index, np.argmin(valid, axis=1))


def tie_by_place(self: Any, sound: Any, arms: Any, valid: Any = None) -> np.ndarray:
    """Random numbers belong to the lane's place in the batch, not to its id."""
    ids, self.lane_ids = self.lane_ids, np.arange(self.lane_count)
    index, self.lane_ids = sound(arms, valid), ids
    return index


def raise_instead(change: Callable[[ValueError], Exception]) -> Callable[..., np.ndarray]:
    def select(_: Any, sound: Any, *arguments: Any) -> np.ndarray:
        try:
            return sound(*arguments)
        except ValueError as error:
            raise change(error) from None

    return select


selects_wrongly("CouplesScales", *ALONE, before=centre_arms)
selects_wrongly(  # every lane decides with the average of all lanes' estimates
    "CouplesEstimates", *ALONE,
    after=lambda self, arms, valid, _: best(np.asarray(arms) @ self.info().theta_hat.mean(axis=0), valid),
)  # fmt: skip
selects_wrongly("WritesArms", INPUTS, "wrote to arms", after=scale_in_place)
selects_wrongly("WritesValid", INPUTS, "wrote to valid", after=strike_off)
selects_wrongly(  # ties are broken by the first index, whatever the seed
    "FirstOfEquals", SEEDS, "do not depend on the seed", after=lambda self, _arms, valid, _: best(scores(self), valid)
)
selects_wrongly(  # ties are broken by a generator that is seeded from the system
    "UnseededTies", SEEDS, "the same seed gave different choices",
    after=lambda self, arms, valid, _: best(
        scores(self) + 1e-9 * np.random.default_rng().random(np.shape(arms)[:2]), valid),
)  # fmt: skip
selects_wrongly("CountsAmongValidArms", *NOT_THERE, after=count_among_valid_arms)
selects_wrongly("LikesAbsentArms", *NOT_THERE, after=prefer_absent_arms)
selects_wrongly("AcceptsNaNArms", BAD_INPUT, "NaN in arms was accepted", before=lambda _, arms: np.nan_to_num(arms))
selects_wrongly("AcceptsLongArms", BAD_INPUT, "longer than L was accepted", before=shorten_arms)
broken("AgesOnRefusedArms", BAD_INPUT, "changed the state", BVDGLMUCB, select=around(before=let_time_pass))
broken("TiesByPlace", *ALONE, select=tie_by_place)
broken(  # prefers arms that are like the first of the list
    "TakesTheFirstForAModel", *ORDER,
    predict=lambda _, sound, arms, theta: sound(arms, theta) + np.einsum("lkd,ld->lk", arms, arms[:, 0]),
)  # fmt: skip
raise_essay = raise_instead(lambda _: ArgumentError("arms", 0, "better\nnext time"))
broken("RaisesEssays", BAD_INPUT, "one line", BVDGLMUCB, select=raise_essay)
raise_value_error = raise_instead(lambda error: ValueError(str(error)))
broken("RaisesValueError", BAD_INPUT, "be an ArgumentError", BVDGLMUCB, select=raise_value_error)

# --- state ------------------------------------------------------------------------------------------------------------


def prefer_liked(self: Any, sound: Any, arms: Any, valid: Any = None) -> np.ndarray:
    sound(arms, valid)
    liked = np.nan_to_num(np.broadcast_to(vars(self).get("liked", 0.0), np.asarray(arms)[:, 0].shape))
    return best(scores(self) + np.einsum("lkd,ld->lk", arms, liked), valid)


def like(self: Any, sound: Any, x: Any, *arguments: Any, **options: Any) -> None:
    """Prefer arms like those that were rewarded: a part of the future that the state does not hold."""
    sound(x, *arguments, **options)
    self.liked = vars(self).get("liked", 0.0) + x


def like_by_reference(self: Any, sound: Any, x: Any, *arguments: Any, **options: Any) -> None:
    """Keep the caller's own array, which the caller is free to overwrite."""
    sound(x, *arguments, **options)
    self.liked = np.asarray(x)


def share_state(self: Any, sound: Any) -> Any:
    self.shared = sound()
    return self.shared


def write_to_shared_state(self: Any) -> None:
    """Go on writing to the arrays that were handed out as the state."""
    shared = vars(self).get("shared")
    for name, array in Skeleton.state(self).items() if shared else ():
        if name != "checksum" and array.shape == shared[name].shape:
            shared[name][...] = array


NO_DECISIONS = {"decisions": np.array(0)}  # the random numbers of the first rounds again
NOTES = {"notes": np.array({"any": "thing"}, dtype=object)}
broken("Leans", ROUND_TRIP, "resumed run", select=prefer_liked, update=like)
broken("KeepsAReference", INPUTS, "kept a reference", select=prefer_liked, update=like_by_reference)
broken("ForgetsHistory", ROUND_TRIP, "differs|resumed run", BVDGLMUCB, load_state=around(after=forget_observations))
broken("ForgetsTime", ROUND_TRIP, "differs", BVDGLMUCB, load_state=around(after=lambda self: setattr(self, "t", 1.0)))
broken("SharesItsState", ROUND_TRIP, "state|checksum", state=share_state, update=around(after=write_to_shared_state))
broken(
    "ForgetsDecisions", ROUND_TRIP, "last_round",
    state=lambda _, sound: sound() | NO_DECISIONS, load_state=lambda _, sound, state: sound(state | NO_DECISIONS),
)  # fmt: skip
broken(
    "PicklesItsState", ROUND_TRIP, "plain arrays", state=lambda _, sound: sound() | NOTES,
    load_state=lambda _, sound, state: sound({name: state[name] for name in state.keys() - NOTES.keys()}),
)  # fmt: skip
broken(
    "FillsInMissingState", BAD_STATE, "was accepted", load_state=lambda self, sound, state: sound(self.state() | state)
)
broken("LoadsBeforeChecking", BAD_STATE, "changed the policy", load_state=around(before=let_time_pass))

# --- settings, info, probabilities, time ------------------------------------------------------------------------------


def halve_a_setting(self: Any) -> None:
    self.bonus_scale = 0.5 * self.bonus_scale


BUILT: list[Any] = []


def explore_less_each_time(self: Any) -> None:
    """Depend on something that no argument tells: the second one built explores less."""
    self.bonus_scales /= 1.0 + 9.0 * (len(BUILT) % 3)
    BUILT.append(self)


def hand_out_parts(self: Any, sound: Any, **options: Any) -> Any:
    return dataclasses.replace(sound(**options), metric=self.estimator.V)


def claim_to_be_uniform(self: Any, _: Any, arms: Any, valid: Any = None) -> np.ndarray:
    present = self.check_arms(arms, valid)[1]
    return present / present.sum(axis=1, keepdims=True)


def claim_to_be_greedy(self: Any, _: Any, arms: Any, valid: Any = None) -> np.ndarray:
    arms, present = self.check_arms(arms, valid)
    means = np.where(present, arms @ self.estimator.theta_hat[:, :, None] @ np.ones(1), -np.inf)
    is_best = means >= means.max(axis=1, keepdims=True) - 1e-12
    return is_best / is_best.sum(axis=1, keepdims=True)


broken("ChangesItsSettings", SETTINGS, "repr differs", __post_init__=around(after=halve_a_setting))
broken("HasHiddenSettings", SETTINGS, "decides differently", __post_init__=around(after=explore_less_each_time))
broken("HidesItsArguments", SETTINGS, "repr must show", __repr__=lambda self, _: f"{type(self).__name__}()")
broken(
    "TellsADict", INFO, "a dataclass",
    info=lambda _, sound, estimates=True: sound().to_dict() if estimates else sound(estimates=False),
)  # fmt: skip
broken("AgesWhenRead", INFO, "changed the state", info=around(before=lambda self: self.estimator.age(1.0)))
broken("HandsOutItsParts", INFO, "changed the run", info=hand_out_parts)
broken(
    "GivesAbsentArmsAChance", PROBABILITIES, "absent arm has",
    probabilities=lambda _self, _sound, arms, _valid=None: np.full(np.shape(arms)[:2], 1.0 / np.shape(arms)[1]),
)  # fmt: skip
broken("LosesProbability", PROBABILITIES, "add up to 1", probabilities=lambda _, sound, *given: 0.9 * sound(*given))
broken("DecidesWhenAsked", PROBABILITIES, "changed the state", probabilities=around(after=let_time_pass))
broken("CallsItselfUniform", *SHARES, probabilities=claim_to_be_uniform)
NOT_PROBABLE = checks.check_choice_is_probable, "probability 0 was chosen"
broken("CallsItselfGreedy", *NOT_PROBABLE, probabilities=claim_to_be_greedy)


def tell_what_was_drawn(self: Any, _: Any, arms: Any, valid: Any = None) -> np.ndarray:
    """The probabilities after the draw: on average over lanes and seeds they are right."""
    arms, valid = self.check_arms(arms, valid)
    means = self.predict(arms, self.estimator.theta_hat)
    return self.share_best(np.where((self.draw_uniforms() < self.epsilon)[:, None], 0.0, means), valid)


KNOWS_DRAW = checks.check_probabilities_know_no_draw, "random numbers of the decision"
broken("KnowsItsCoin", *KNOWS_DRAW, EpsilonGreedy, probabilities=tell_what_was_drawn)
BACKWARDS = "a negative time step was accepted"
broken("TimeRunsBackwards", BAD_INPUT, BACKWARDS, BVDGLMUCB, advance=lambda _, sound, n=1.0: sound(max(n, 0.0)))


def count_from_one(_: Any, sound: Any, arms: Any, *valid: Any) -> np.ndarray:
    """Where there is nothing to choose."""
    return sound(arms, *valid) + (np.shape(arms)[1] == 1)


# What these do wrong makes them, or the check, raise something else than an AssertionError.
raise_type_error = raise_instead(lambda error: TypeError(str(error)))
CRASHING: dict[str, tuple[type, Any]] = {
    "OffByOneWithOneArm": (build("OffByOneWithOneArm", BVDGLMUCB, select=count_from_one), checks.check_edge_cases),
    "RaisesTypeError": (build("RaisesTypeError", BVDGLMUCB, select=raise_type_error), BAD_INPUT),
}


def factory_of(policy: type) -> Callable[..., Any]:
    return lambda **kw: policy(gamma=0.9, **kw)
