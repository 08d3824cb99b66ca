"""Policies broken on purpose, each in one way."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.access import Skeleton
from windvane import BVDGLMUCB, checks


class CouplesEstimates(Skeleton):
    """Every lane decides with the average of all lanes' estimates."""

    def _estimate(self):
        theta_hat = super()._estimate()
        return np.ascontiguousarray(np.broadcast_to(theta_hat.mean(axis=0), theta_hat.shape))


class CouplesRewards(BVDGLMUCB):
    """Learns the average reward in every lane."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, np.full(self.lanes, np.mean(reward)), round, weight, mask)


class CouplesScales(Skeleton):
    """Centres the arms of all lanes together."""

    def select(self, arms, valid=None):
        arms = np.asarray(arms, dtype=float)
        return super().select(0.5 * (arms - arms.mean(axis=(0, 1))), valid)


class TiesByPlace(Skeleton):
    """Random numbers belong to the lane's place in the batch, not to its id."""

    def _play(self, scores, valid):
        ids, self.lane_ids = self.lane_ids, np.arange(self.lanes)
        index = super()._play(scores, valid)
        self.lane_ids = ids
        return index


class WritesArms(Skeleton):
    """Scales the caller's arms in place."""

    def select(self, arms, valid=None):
        index = super().select(arms, valid)
        np.asarray(arms)[...] *= 0.5
        return index


class WritesValid(Skeleton):
    """Strikes the chosen arm off the caller's list."""

    def select(self, arms, valid=None):
        index = super().select(arms, valid)
        if valid is not None:
            np.asarray(valid)[np.arange(self.lanes), index] = False
        return index


class WritesX(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        np.asarray(x)[...] *= 0.9


class WritesReward(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        np.asarray(reward)[...] -= 0.5


class WritesWeight(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        if isinstance(weight, np.ndarray):
            weight *= 2


class WritesMask(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        if isinstance(mask, np.ndarray):
            mask[:] = False


class Leans(Skeleton):
    """Prefers arms like those it was rewarded for: a part of the future that its state does not hold."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self._liked = np.zeros((self.lanes, self.dim))

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, mask)
        self._liked = self._remember(x)

    def _remember(self, x):
        return self._liked + x

    def _means(self, arms, theta):
        return super()._means(arms, theta) + np.einsum("lkd,ld->lk", arms, np.nan_to_num(self._liked))


class KeepsAReference(Leans):
    """Leans by the caller's own array, which the caller is free to overwrite."""

    def _remember(self, x):
        return np.asarray(x)


class ForgetsHistory(BVDGLMUCB):
    """Resumes with V and b but without the observations behind them."""

    def load_state(self, state):
        super().load_state(state)
        self.estimator._span[:] = 0


class ForgetsDecisions(Skeleton):
    """Resumes with the random numbers of the first rounds: the number of decisions is not saved."""

    def state(self):
        return super().state() | {"decisions": np.array(0)}

    def load_state(self, state):
        super().load_state(state | {"decisions": np.array(0)})


class ForgetsTime(BVDGLMUCB):
    """Resumes at round 1: the radius starts small again."""

    def load_state(self, state):
        super().load_state(state)
        self.t = 1.0


class SharesItsState(Skeleton):
    """Hands out the estimator's own arrays instead of copies."""

    def state(self):
        return super().state() | {"estimator.b": self.estimator._b, "estimator.V": self.estimator._V}


class PicklesItsState(Skeleton):
    """Keeps a Python object in the state."""

    def state(self):
        return super().state() | {"notes": np.array({"any": "thing"}, dtype=object)}

    def load_state(self, state):
        super().load_state({name: array for name, array in state.items() if name != "notes"})


class FillsInMissingState(Skeleton):
    """Takes what it has for what the state lacks."""

    def load_state(self, state):
        super().load_state(self.state() | state)


class LoadsBeforeChecking(Skeleton):
    """Sets its time first and looks at the rest later."""

    def load_state(self, state):
        self.t = float(np.asarray(state.get("t", 5.0)).flat[0])
        super().load_state(state)


class FirstOfEquals(Skeleton):
    """Breaks ties by the first index, whatever the seed."""

    def _play(self, scores, valid):
        super()._play(scores, valid)
        return np.argmax(np.where(valid, scores, -np.inf), axis=1)


class UnseededTies(Skeleton):
    """Breaks ties by a generator of its own, seeded from the system."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self._rng = np.random.default_rng()

    def _play(self, scores, valid):
        super()._play(scores, valid)
        noise = 1e-9 * self._rng.random(scores.shape)
        return np.argmax(np.where(valid, scores + noise, -np.inf), axis=1)


class TakesTheFirstForAModel(Skeleton):
    """Prefers arms that are like the first of the list."""

    def _means(self, arms, theta):
        return super()._means(arms, theta) + np.einsum("lkd,ld->lk", arms, arms[:, 0])


class IgnoresRound(BVDGLMUCB):
    """Takes every reward for one of the last round."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, None, weight, mask)


class CountsAmongValidArms(BVDGLMUCB):
    """Returns the place among the arms that are there, not among all."""

    def select(self, arms, valid=None):
        index = super().select(arms, valid)
        if valid is None:
            return index
        before = np.arange(valid.shape[1]) < index[:, None]
        return np.sum(before & valid, axis=1)


class LikesAbsentArms(BVDGLMUCB):
    """Scores the arms that are not there as well, and highest."""

    def _play(self, scores, valid):
        return super()._play(np.where(valid, scores, 1e3), np.ones_like(valid))


class OffByOneWithOneArm(BVDGLMUCB):
    """Counts from one where there is nothing to choose."""

    def select(self, arms, valid=None):
        return super().select(arms, valid) + (np.shape(arms)[1] == 1)


class AcceptsNaNArms(BVDGLMUCB):
    def select(self, arms, valid=None):
        return super().select(np.nan_to_num(np.asarray(arms)), valid)


class AcceptsNaNRewards(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, np.nan_to_num(np.asarray(reward)), round, weight, mask)


class AcceptsLongArms(BVDGLMUCB):
    def select(self, arms, valid=None):
        L, self.L = self.L, 10 * self.L
        try:
            return super().select(arms, valid)
        finally:
            self.L = L


class AcceptsTheFuture(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, None if round is None else np.minimum(round, self.t - 1), weight, mask)


class AcceptsNegativeWeights(BVDGLMUCB):
    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, np.abs(weight), mask)


class AcceptsTimeRunningBackwards(BVDGLMUCB):
    def advance(self, n=1.0):
        super().advance(max(n, 0.0))


class AgesOnRefusedArms(BVDGLMUCB):
    """Lets time pass before it looks at the arms."""

    def select(self, arms, valid=None):
        self.estimator.advance(1.0)
        return super().select(arms, valid)


class LearnsLaneByLane(BVDGLMUCB):
    """Has learnt from the first lanes by the time it refuses a later one."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        for only in np.eye(self.lanes, dtype=bool):
            super().update(x, reward, round, weight, only if mask is None else only & np.asarray(mask))


class RaisesTypeError(BVDGLMUCB):
    """Refuses with another exception than the contract's."""

    def select(self, arms, valid=None):
        try:
            return super().select(arms, valid)
        except ValueError as error:
            raise TypeError(str(error)) from None


class RaisesEssays(BVDGLMUCB):
    """Refuses in two lines."""

    def select(self, arms, valid=None):
        try:
            return super().select(arms, valid)
        except ValueError as error:
            raise ValueError(f"{error}\nPlease do better next time.") from None


class IgnoresMask(BVDGLMUCB):
    """Learns from masked lanes too."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, weight, None)


class IgnoresWeight(BVDGLMUCB):
    """Counts every observation once."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, reward, round, 1.0, mask)


class NeverLearns(BVDGLMUCB):
    """Takes rewards in and throws them away."""

    def update(self, x, reward, round=None, weight=1.0, mask=None):
        super().update(x, np.where(np.isfinite(reward), 0.5, reward), round, weight, mask)


BROKEN: dict[type, tuple[Any, str]] = {
    NeverLearns: (checks.check_rewards_matter, "do not depend on the rewards"),
    CouplesEstimates: (checks.check_lanes_are_independent, "alone"),
    CouplesRewards: (checks.check_lanes_are_independent, "alone"),
    CouplesScales: (checks.check_lanes_are_independent, "alone"),
    TiesByPlace: (checks.check_lanes_are_independent, "alone"),
    WritesArms: (checks.check_inputs_are_left_alone, "wrote to arms"),
    WritesValid: (checks.check_inputs_are_left_alone, "wrote to valid"),
    WritesX: (checks.check_inputs_are_left_alone, "wrote to x"),
    WritesReward: (checks.check_inputs_are_left_alone, "wrote to reward"),
    WritesWeight: (checks.check_inputs_are_left_alone, "wrote to weight"),
    WritesMask: (checks.check_inputs_are_left_alone, "wrote to mask"),
    KeepsAReference: (checks.check_inputs_are_left_alone, "kept a reference"),
    Leans: (checks.check_state_round_trips, "resumed run"),
    ForgetsHistory: (checks.check_state_round_trips, "differs|resumed run"),
    ForgetsDecisions: (checks.check_state_round_trips, "checksum"),
    ForgetsTime: (checks.check_state_round_trips, "differs"),
    SharesItsState: (checks.check_state_round_trips, "checksum"),
    PicklesItsState: (checks.check_state_round_trips, "plain arrays"),
    FillsInMissingState: (checks.check_bad_state_is_refused, "was accepted"),
    LoadsBeforeChecking: (checks.check_bad_state_is_refused, "changed the policy"),
    IgnoresMask: (checks.check_weights_and_masks, "not twice"),
    IgnoresWeight: (checks.check_weights_and_masks, "not twice"),
    FirstOfEquals: (checks.check_seeds_reproduce, "do not depend on the seed"),
    UnseededTies: (checks.check_seeds_reproduce, "the same seed gave other choices"),
    TakesTheFirstForAModel: (checks.check_permuting_arms_permutes_the_choice, "order of the arms"),
    IgnoresRound: (checks.check_late_rewards, "differs after late rewards"),
    CountsAmongValidArms: (checks.check_edge_cases, "not there was chosen"),
    LikesAbsentArms: (checks.check_edge_cases, "not there was chosen"),
    AcceptsNaNArms: (checks.check_bad_input_is_refused, "NaN in arms was accepted"),
    AcceptsNaNRewards: (checks.check_bad_input_is_refused, "NaN as a reward was accepted"),
    AcceptsLongArms: (checks.check_bad_input_is_refused, "longer than L was accepted"),
    AcceptsTheFuture: (checks.check_bad_input_is_refused, "a round from the future was accepted"),
    AcceptsNegativeWeights: (checks.check_bad_input_is_refused, "a negative weight was accepted"),
    AcceptsTimeRunningBackwards: (checks.check_bad_input_is_refused, "backwards was accepted"),
    AgesOnRefusedArms: (checks.check_bad_input_is_refused, "changed the state"),
    LearnsLaneByLane: (checks.check_bad_input_is_refused, "changed the state"),
    RaisesEssays: (checks.check_bad_input_is_refused, "one line"),
}
# What these do wrong makes them, or the check, raise something else than an AssertionError.
CRASHING: dict[type, Any] = {
    OffByOneWithOneArm: checks.check_edge_cases,
    RaisesTypeError: checks.check_bad_input_is_refused,
}


def factory_of(policy: type):
    return lambda **kw: policy(gamma=0.9, **kw)
