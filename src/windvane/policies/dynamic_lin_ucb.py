"""dLinUCB: linear UCB models that are created when all others fail, and discarded when they fail too often.

Wu, Iyer and Wang, "Learning contextual bandits in a non-stationary environment" (SIGIR 2018; arXiv:1805.09365). Not to
be confused with D-LinUCB, which discounts (:mod:`windvane.policies.linear`). Model m has, over the rewards that it has
learned, n_m in number,

    V_m = sum x x' + lam I,   b_m = sum r x,   theta_m = V_m^-1 b_m
    beta_m = sigma sqrt(d log((1 + n_m L^2 / lam) / delta)) + sqrt(lam) S

It is tested with every reward r before learning it, and fails if the error of its prediction is larger than its width
and the noise explain. e_m is the mean of its last min(tests, tau) test results (1 for a failure, else 0), and d_m is
the margin of e_m:

    failure  |<x, theta_m> - r| > beta_m ||x||_{V_m^-1} + sqrt(2) sigma erfinv(1 - delta_1)
    d_m      sqrt(log(1 / delta_2) / (2 min(tests, tau))); of a new model, e_m = 0 and d_m = 1/2

1. The model with the smallest e_m - sqrt(log tau) d_m acts, the oldest of equals. It plays the argmax of <x, theta_m> +
   ``bonus_scale`` beta_m ||x||_{V_m^-1}.
2. Every model is tested with the reward. It learns the reward unless it fails.
3. A model with e_m < delta_1_tilde + d_m is good. Of the others, those with e_m >= delta_1 + d_m are discarded.
4. If no model was good, or none is left, a new one is created. It has learned nothing.

P(|N(0, sigma^2)| > sqrt(2) sigma erfinv(1 - delta_1)) = delta_1, so a correct model fails at most a share delta_1 of
its tests while its radius holds.

Guarantee: regret of order Gamma_T R(S_max) + Gamma_T for Gamma_T changes with at most S_max rounds in between, where
R(S) is of order d sqrt(S) log S, if the changes are large: at a change, the mean reward of a part of the arms must move
by more than a threshold, and segments must be long compared with tau. Not covered: drift, and changes that are small
compared with the noise. Discarding needs e_m - d_m >= delta_1, and d_m does not fall below sqrt(log(1/delta_2) / (2
tau)), 0.107 for tau = 100 and delta_2 = 0.1: a change is seen only if it moves predictions by several sigma. In the
experiment of Russac et al. (2019), three changes with sigma = 1 were detected in 95 %, 0 % and 6 % of the runs.

What is uncertain: we did not have the paper. The rules are those of the authors' public code (NonstationaryBanditLib)
and of independent code (WeightedLinearBandits). Where these differ: the radius is the authors'; the independent code
counts all rounds, even for a young model. e_m is the mean, as in the independent code (the authors divide by one more).
Comparisons with the thresholds are < and >=, as in the independent code (the authors have <= and >). The authors' code
has sigma^2 for sigma in the test, which is right for sigma = 1 only, and plays with a constant in place of beta_m; we
use the radius. The conditions of the theorem are from memory.

Choices that are ours:

* A late reward is tested and learned with the estimate that a model has when it arrives, not with the one at the time
  of its decision. A model learns no reward of a decision from before its creation.
* A reward of weight w is one test, and is learned with weight w.
* There are at most ``max_models`` models. If one more is created, the one with the largest e_m is discarded, the oldest
  of equals. With the defaults this does not happen in practice: a model that is neither good nor discarded has an e_m
  in an interval of length delta_1 - delta_1_tilde = 0.008.
* For norm bounds L other than 1, the rule is applied to the arms x / L with the norm bound S L.

Cost per round and lane: O(K d^2 + M d^3) for M models, usually one to three. Lanes are not batched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_number, check_whole
from windvane.estimation import RidgeEstimator
from windvane.policies.base import Card
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.optimism import OptimisticPolicy
from windvane.policies.per_lane import PerLane
from windvane.state import State, Stateful, refuse

NONE = -1
EARLIEST = -(2.0**52)  # the first model learns rewards of all rounds
MOST_MODELS = 1000


@dataclass(frozen=True)
class ModelsInfo(PolicyInfo):
    """The diagnostics of dLinUCB. The fields of :class:`PolicyInfo` are those of the model that acts next."""

    models: Index | None = None  # number of models
    acting: Index | None = None  # number of the model that acts next, counted from 0 in the order of creation
    created: Index | None = None  # number of models that were created after the first one
    failure_rate: Array | None = None  # e_m of the model that acts next


class LinearModel(Stateful):
    """A ridge regression and the record of its tests, for one lane."""

    stored: ClassVar[tuple[str, ...]] = ("born", "learned", "tests", "failures")

    def __init__(self, born: float, memory: int, estimator: RidgeEstimator) -> None:
        self.born, self.estimator = born, estimator  # rewards of earlier rounds are not learned
        self.learned = 0.0  # n_m
        self.tests = 0
        self.failures = np.zeros(memory, dtype=np.int8)  # of the last ``memory`` tests

    def add_test(self, is_failure: bool) -> None:
        """Record the result of a test."""
        self.failures[self.tests % len(self.failures)] = is_failure
        self.tests += 1

    @property
    def failure_rate(self) -> float:
        """e_m: the mean of the last failures."""
        return float(self.failures.sum()) / max(1, min(self.tests, len(self.failures)))

    def compute_margin(self, delta_2: float) -> float:
        """Return d_m."""
        if self.tests == 0:
            return 0.5
        return math.sqrt(math.log(1.0 / delta_2) / (2.0 * min(self.tests, len(self.failures))))

    def parts(self) -> Mapping[str, Stateful]:
        return {"estimator": self.estimator}

    def check_fields(self, fields: State, path: str) -> None:
        for name, is_possible, expected in (
            ("learned", fields["learned"] >= 0.0, "at least 0"),
            ("tests", fields["tests"] >= 0, "at least 0"),
            ("failures", np.isin(fields["failures"], (0, 1)), "0 or 1"),
        ):
            if not is_possible.all():
                raise refuse(path, name, fields[name], expected)


class DynamicLinUCBLane(OptimisticPolicy):
    """dLinUCB for one lane. ``estimator`` is that of the model that acts next."""

    delta_1: float = 0.01
    delta_1_tilde: float = 0.002
    delta_2: float = 0.1
    tau: int = 100
    max_models: int = 32
    name = "dLinUCB, one lane"
    stored: ClassVar[tuple[str, ...]] = (*OptimisticPolicy.stored, "numbers", "created")

    def __post_init__(self) -> None:
        super().__post_init__()
        from scipy.special import erfinv

        self.slack = math.sqrt(2.0) * self.sigma * float(erfinv(1.0 - self.delta_1))
        self.numbers = np.full(self.max_models, NONE)  # of the living models, in the order of their creation
        self.created = 0
        self.models: dict[int, LinearModel] = {}  # by number
        self.start_first()

    def build_radius(self) -> None:
        """Return None: the radius depends on what a model has learned (:meth:`compute_radius`)."""

    def build_model(self, born: float) -> LinearModel:
        """Return a model that has learned nothing."""
        estimator = self.build_estimator()
        assert isinstance(estimator, RidgeEstimator)
        return LinearModel(born, self.tau, estimator)

    def start_first(self) -> None:
        """Begin with a single model."""
        self.models = {self.created: self.build_model(EARLIEST)}
        self.choose_acting()

    def choose_acting(self) -> None:
        """Let the model with the smallest lower bound of its failure rate act next, the oldest of equals."""

        def bound(model: LinearModel) -> float:
            return model.failure_rate - math.sqrt(math.log(self.tau)) * model.compute_margin(self.delta_2)

        self.numbers = np.array([*self.models, *[NONE] * (self.max_models - len(self.models))])
        self.acting = min(self.models, key=lambda number: bound(self.models[number]))
        self.estimator = self.models[self.acting].estimator

    def compute_radius(self, model: LinearModel) -> Array:
        """Return beta_m, [1]."""
        growth = math.log1p(model.learned * self.L**2 / model.estimator.lam) - np.log(self.levels)
        return np.asarray(self.sigma * np.sqrt(self.dim * growth) + math.sqrt(model.estimator.lam) * self.S)

    def compute_beta(self, theta_hat: Array) -> Array:
        return self.compute_radius(self.models[self.acting])

    def learn(self, feedback: Feedback) -> None:
        """Test all models with a checked reward, teach those that do not fail, and discard and create models."""
        if not self.mask_restarted(feedback)[0] or feedback.weight[0] == 0.0:
            return
        for model in self.models.values():
            if feedback.round[0] >= model.born:
                self.test_model(model, feedback)
        rates = {number: (m.failure_rate, m.compute_margin(self.delta_2)) for number, m in self.models.items()}
        is_good = {number: e < self.delta_1_tilde + d for number, (e, d) in rates.items()}
        for number, (e, d) in rates.items():
            if not is_good[number] and e >= self.delta_1 + d:
                del self.models[number]
        if not any(is_good.values()):
            self.create_model()
        self.choose_acting()

    def test_model(self, model: LinearModel, feedback: Feedback) -> None:
        """Test a model with a reward, which it learns unless it fails."""
        estimator, arm = model.estimator, feedback.x[:, None]
        mean = estimator.predict(arm, estimator.solve()).item()
        width = estimator.measure_width(arm, self.compute_radius(model), is_sandwich=False).item()
        is_failure = abs(mean - feedback.reward[0]) > width + self.slack
        model.add_test(is_failure)
        if not is_failure:
            estimator.absorb(feedback.x, feedback.reward, np.zeros(1), feedback.weight, feedback.mask)
            model.learned += float(feedback.weight[0])

    def create_model(self) -> None:
        """Create a model, in place of the one that fails most often if there are too many."""
        if len(self.models) == self.max_models:
            del self.models[max(self.models, key=lambda number: self.models[number].failure_rate)]
        self.created += 1
        self.models[self.created] = self.build_model(self.t)

    def pass_time(self, rounds: float) -> None:
        """Do nothing: models do not forget."""

    def forget(self, mask: Mask) -> None:
        self.start_first()

    def info(self, *, estimates: bool = True) -> ModelsInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        return ModelsInfo(
            **known, models=np.array([len(self.models)]), acting=np.array([self.acting]),
            created=np.array([self.created]), failure_rate=np.array([self.models[self.acting].failure_rate]),
        )  # fmt: skip

    def parts(self) -> Mapping[str, Stateful]:
        return {f"model{number}": model for number, model in self.models.items()}

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        return {f"model{number}": self.build_model(EARLIEST) for number in fields["numbers"] if number != NONE}

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        numbers = fields["numbers"][fields["numbers"] != NONE]
        is_sorted = len(numbers) > 0 and bool((np.diff(numbers) > 0).all()) and numbers[0] >= 0
        if not is_sorted or numbers[-1] > fields["created"].item():
            raise refuse(path, "numbers", fields["numbers"], "increasing numbers of models, at most `created`")

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        self.models = {int(name.removeprefix("model")): part for name, part in parts.items()}  # type: ignore[misc]
        self.choose_acting()


class DynamicLinUCB(PerLane):
    """dLinUCB (Wu et al. 2018). It needs neither the horizon nor the changes.

    Parameters
    ----------
    delta
        Probability that the confidence set of a model misses the parameter: one number, or one per lane.
    delta_1
        Probability with which the noise alone exceeds the slack of the test, in (0, 1).
    delta_1_tilde
        Failure rate, beside the margin, below which a model is good, in [0, delta_1].
    delta_2
        Level of the margin of a failure rate, in (0, 1).
    tau
        Number of last tests that count.
    max_models
        Largest number of models.
    """

    S: float = 1.0
    lam: float = 1.0
    sigma: float = 0.5
    delta: npt.ArrayLike = 0.01
    bonus_scale: npt.ArrayLike = 1.0
    delta_1: float = 0.01
    delta_1_tilde: float = 0.002
    delta_2: float = 0.1
    tau: int = 100
    max_models: int = 32
    name = "dLinUCB"
    card = Card(
        "linear", "detection", "nothing", "Gamma d S^(1/2), S the longest segment, large changes", "wu2018",
        "O(K d^2 + M d^3), M models, per lane",
    )  # fmt: skip

    def build_lane(self, place: int) -> DynamicLinUCBLane:
        for name in ("delta_1", "delta_2"):
            check_number(name, getattr(self, name), "in (0, 1)", lambda p: 0.0 < p < 1.0)
        expected = f"in [0, delta_1], that is [0, {self.delta_1:g}]"
        check_number("delta_1_tilde", self.delta_1_tilde, expected, lambda p: 0.0 <= p <= self.delta_1)
        check_whole("tau", self.tau, 1, 10**6)
        check_whole("max_models", self.max_models, 1, MOST_MODELS)
        own = {name: self.pick(name, place) for name in ("delta", "bonus_scale")}
        return self.derive(DynamicLinUCBLane, lanes=[int(self.lane_ids[place])], **own)
