"""The base class of policies whose confidence set is a level set of the likelihood.

    C_t = {||theta|| <= S: loss_t(theta) - loss_t(theta_hat_t) <= beta_t^2}
    x_t = argmax over the arms of max over C_t of <x, theta>

loss_t is the negative log-likelihood of all rewards so far, with or without a ridge. C_t is convex, so each arm is a
convex program. :mod:`windvane.kernels.level_set` solves those of the arms that can be the best, with a certificate.

For a ball or a sphere of arms the program is max ||theta|| over C_t, which is not convex: it can have many local
maxima, and no tractable form is known to us. So these policies choose from finite sets only.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.arms import ArmSet
from windvane.errors import ArgumentError
from windvane.estimation import MaximumLikelihoodEstimator
from windvane.estimation.level_set import LikelihoodSets
from windvane.links import Identity, Link, Logistic, Poisson
from windvane.policies.glm import GLMPolicy

LARGEST_SIGMA = 0.5  # of rewards in [0, 1], for which the likelihood of a Bernoulli variable is right, or safe


class LikelihoodSetPolicy(GLMPolicy):
    """A policy with a confidence set that is a level set of the likelihood."""

    links: ClassVar[tuple[type[Link], ...]] = (Logistic, Poisson, Identity)
    takes_prior: ClassVar[bool] = False  # rewards that were not seen are not in the likelihood

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.link, Logistic) and self.sigma > LARGEST_SIGMA:
            hint = "the likelihood is that of rewards in [0, 1]"
            raise ArgumentError("sigma", self.sigma, f"at most {LARGEST_SIGMA} with the logistic link", hint=hint)

    def choose_factor(self) -> float:
        return 1.0

    def build_sets(self, estimator: MaximumLikelihoodEstimator) -> tuple[LikelihoodSets, Array]:
        """Return the confidence sets for the history of an estimator, which has been solved, and beta_t, [lanes]."""
        raise NotImplementedError

    def find_sets(self) -> LikelihoodSets:
        """Return the confidence sets of all lanes, and record how the decision is made, for ``info()``."""
        self.estimator.solve()  # the searches for theta_hat start from this root
        sets, beta = self.build_sets(self.estimator)
        decision = self.begin_decision()
        decision.theta_hat, decision.theta_tilde, decision.beta = sets.theta_hat.copy(), sets.center.copy(), beta
        return sets

    def read_theta(self) -> Array:
        with self.estimator.borrow() as e:
            e.solve()
            return self.build_sets(e)[0].theta_hat.copy()


class MaximisingPolicy(LikelihoodSetPolicy):
    """A policy that maximises <x, theta> over the arms and the set.

    Arms that cannot be the best are not solved. Their recorded scores are upper bounds on mu(<x, theta>) over the set.

    Parameters
    ----------
    bonus_scale
        Factor of beta_t; theory requires 1. One number, or one per lane.
    """

    def estimate(self) -> tuple[Array, Array]:
        """Return the point of the ball with the least loss, and zeros: the bonus is not a multiple of ||x||."""
        return self.find_sets().center.copy(), np.zeros(self.lane_count)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        sets = self.find_sets()
        maxima = sets.maximise(arms, valid)
        index = self.play_highest(maxima.upper, valid, self.predict(arms, sets.center.copy()))
        assert self.decision is not None  # find_sets has begun it
        self.decision.optimistic = maxima.theta[np.arange(self.lane_count), index]
        return index

    def select_from(self, arm_set: ArmSet) -> Array:
        self.check_arm_set(arm_set)
        hint = "the largest ||theta|| in the confidence set is not a convex program"
        raise ArgumentError("arm_set", arm_set, "a finite set of arms", hint=hint)
