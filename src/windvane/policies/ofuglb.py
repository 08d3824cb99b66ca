"""OFUGLB and OFUGLB-e: optimism over a confidence sequence by likelihood ratios.

Lee, Yun and Jun, "A unified confidence sequence for generalized linear models, with applications to bandits" (NeurIPS
2024). The rewards of all past rounds have weight 1. With the negative log-likelihood

    loss_t(theta) = (1/g) sum (B(<x_s, theta>) - r_s <x_s, theta>),   B' = mu      (g = 1, and sigma^2 if mu(z) = z)
    theta_hat_t   = argmin of loss_t over ||theta|| <= S
    beta_t^2      = log(1/delta) + d log(max(e, 2 e S Lip_t / d))
    Lip_t         = (1 + S/2) (t - 1) for the logistic link: loss_t is Lip_t-Lipschitz on the ball
    C_t           = {||theta|| <= S: loss_t(theta) - loss_t(theta_hat_t) <= beta_t^2}

    OFUGLB:    x_t = argmax over the arms of max over C_t of <x, theta>
    OFUGLB-e:  x_t = argmax over the arms of <x, theta_hat_t> + sqrt(2 (1 + S) (1 + beta_t^2)) ||x||_{H_t^-1}
               H_t = the Hessian of loss_t at theta_hat_t + lam I,   lam = 1 / (8 S^2 (1 + S))

C_t covers theta* at all rounds at once with probability 1 - delta, without a horizon and for arm sets that change in
every round, so there is no ``confidence`` argument (proof: :class:`windvane.theory.LikelihoodRatioRadius`). The
ellipsoid of OFUGLB-e contains C_t. At d = 2, t = 3000, delta = 0.05, beta_t^2 is 21.8 for S = 1, where OFULog-r
(:mod:`windvane.policies.ofulog_r`) has 906.

Guarantee of OFUGLB: regret of order d sqrt(T mu'(<x*, theta*>)) + kappa d^2 for the logistic link, up to logarithms,
without powers of S. The abstract claims it for OFUGLB only; the bonus of OFUGLB-e has a factor sqrt(1 + S), and so has
the regret bound that its ellipsoid gives. None under drift. The likelihood must be right: Bernoulli rewards (or rewards
in [0, 1] with mean mu(<x, theta*>), whose likelihood ratios are super-martingales), Poisson counts, or
sigma-sub-Gaussian noise around <x, theta*>.

What is uncertain: we could read only the abstract of the paper. The set, its radius and the constants of OFUGLB-e are
those of the authors' public code, which calls them Theorems 3.1 and 3.2. The coverage of both sets is proven here
independently. We did not see the regret bound. (The code counts one term less in Lip_t.)

Choices that are ours:

* ``lipschitz="data"``: Lip_t = (1/g) sum ||x_s|| max(|mu(S ||x_s||) - r_s|, |mu(-S ||x_s||) - r_s|), a Lipschitz
  constant for any of these links, smaller than the printed one. It is the default for Poisson and identity.
* t - 1 is the number of rewards that have arrived, where a reward of weight w counts as w.
* For arms of norm up to L, the rule is applied to x / L with the norm bound S L. For the identity link, whose loss is a
  quadratic, OFUGLB-e has 2 (1 + beta_t^2) in place of 2 (1 + S) (1 + beta_t^2).
* C_t has a ridge of 1e-9 beta_t^2 / S^2, so that theta_hat_t is unique. It changes the loss by less than 1e-9 beta_t^2.
* ``bonus_scale`` multiplies beta_t, and in OFUGLB-e the bonus.

Cost per round and lane: O(t d^2) for two to five passes over the history, then three or four for every arm that is
examined, of which there are usually two to four; OFUGLB-e examines none and takes O(K d^2) for the arms.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array, Mask, check_choice
from windvane.errors import ArgumentError
from windvane.estimation import MaximumLikelihoodEstimator
from windvane.estimation.level_set import LikelihoodSets
from windvane.links import Identity, Logistic
from windvane.policies.base import Card, Policy
from windvane.policies.inputs import Feedback
from windvane.policies.likelihood_sets import LikelihoodSetPolicy, MaximisingPolicy
from windvane.policies.optimism import LinearIndexPolicy
from windvane.state import State, refuse
from windvane.theory import LikelihoodRatioRadius

NEGLIGIBLE = 1e-9  # relative to beta^2: twice the largest change of the loss by the ridge that makes theta_hat unique
FIXED = "theta* fixed"
ORDER = f"d (T mu'*)^(1/2) + c_mu^(-1) d^2, {FIXED}"


class LikelihoodRatioPolicy(LikelihoodSetPolicy):
    """The base class of OFUGLB and OFUGLB-e, which differ in what they maximise over.

    Parameters
    ----------
    lipschitz
        Lip_t: "printed" (logistic link only) or "data". Default: "printed" for the logistic link, otherwise "data".
    """

    lipschitz: str | None = None
    radius: LikelihoodRatioRadius = field(init=False)
    stored: ClassVar[tuple[str, ...]] = (*Policy.stored, "growth")
    invariant: ClassVar[tuple[str, ...]] = stored

    def __post_init__(self) -> None:
        super().__post_init__()
        is_logistic = isinstance(self.link, Logistic)
        kind = check_choice("lipschitz", self.lipschitz or ("printed" if is_logistic else "data"), ("printed", "data"))
        if kind == "printed" and not is_logistic:
            raise ArgumentError("lipschitz", self.lipschitz, '"data" unless the link is logistic')
        self.is_printed = kind == "printed"
        self.growth = np.zeros(self.lane_count)  # the number of rewards, or S Lip_t from the data

    @property
    def dispersion(self) -> float:
        """g, by which the likelihood is divided."""
        return self.sigma**2 if isinstance(self.reward_link, Identity) else 1.0

    def build_radius(self) -> LikelihoodRatioRadius:
        return LikelihoodRatioRadius(dim=self.dim, delta=self.levels)

    def measure_growth(self, x: Array, reward: Array) -> Array:
        """Return what one reward adds: 1, or S times a Lipschitz constant of its loss on the ball."""
        if self.is_printed:
            return np.ones(len(x))
        reach = self.S * np.linalg.norm(x, axis=1)
        errors = [np.abs(self.link.mean(end) - reward) for end in (reach, -reach)]  # type: ignore[union-attr]
        return np.asarray(reach * np.maximum(*errors) / self.dispersion)

    def learn(self, feedback: Feedback) -> None:
        mask = self.mask_restarted(feedback)
        x, reward = np.where(mask[:, None], feedback.x, 0.0), np.where(mask, feedback.reward, 0.0)
        self.growth += np.where(mask, feedback.weight, 0.0) * self.measure_growth(x, reward)
        super().learn(feedback)

    def forget(self, mask: Mask) -> None:
        super().forget(mask)
        self.growth[mask] = 0.0

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        if (fields["growth"] < 0.0).any():
            raise refuse(path, "growth", fields["growth"], "at least 0")

    def build_sets(self, estimator: MaximumLikelihoodEstimator) -> tuple[LikelihoodSets, Array]:
        reach = self.S * self.L
        beta = self.radius(self.growth * (reach * (1.0 + 0.5 * reach) if self.is_printed else 1.0))
        level = self.dispersion * (self.bonus_scales * beta) ** 2  # of the loss without 1/g
        ridge = NEGLIGIBLE * self.dispersion * beta**2 / self.S**2
        return LikelihoodSets(estimator, level=level, ridge=ridge, is_hat_in_ball=True), beta


class OFUGLB(MaximisingPolicy, LikelihoodRatioPolicy):
    """OFUGLB (Lee et al. 2024): the most favourable parameter of a likelihood-ratio set. It needs no horizon."""

    lam: float = field(default=1.0, init=False)  # of the estimator, from whose root the search for theta_hat starts
    name = "OFUGLB"
    card = Card("generalized linear", "none", "nothing", ORDER, "lee2024", "O((K + t) d^2)")

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        return {}


class OFUGLBe(LinearIndexPolicy, LikelihoodRatioPolicy):
    """OFUGLB-e (Lee et al. 2024): an ellipsoid around the likelihood-ratio set. It needs no horizon.

    Parameters
    ----------
    lam
        Regularisation: H starts as lam g I. Default: 1 / (8 S^2 (1 + S L)).
    """

    lam: float | None = None
    name = "OFUGLB-e"
    card = OFUGLB.card._replace(guarantee=f"S^(1/2) times that of OFUGLB, {FIXED}, not checked")

    def recommend_lam(self) -> float:
        return 1.0 / (8.0 * self.S**2 * (1.0 + self.S * self.L))

    def choose_lam(self) -> float:
        return self.given_lam() * self.dispersion / self.constants.c_mu  # so that the ridge of the estimator is lam g

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        return {} if self.lam is None else {"lam": scale**2 * self.lam}

    def estimate(self) -> tuple[Array, Array]:
        theta_hat, decision = self.find_sets().center.copy(), self.decision
        assert decision is not None and decision.beta is not None  # noqa: PT018 (find_sets has recorded them)
        bend = 0.0 if isinstance(self.link, Identity) else self.S * self.L
        square = 2.0 * (1.0 + bend) * (1.0 + decision.beta**2) * self.dispersion
        decision.multiplier = self.bonus_scales * np.sqrt(square)
        return theta_hat, decision.multiplier

    def measure_metric(self) -> Array:
        """Return H_t at theta_hat_t."""
        assert self.decision is not None  # a decision is being made
        return self.estimator.moments(self.decision.theta_hat)[1]  # type: ignore[arg-type]

    def bonus(self, arms: Array, multiplier: Array) -> Array:
        return self.estimator.measure_norm(arms, multiplier, self.measure_metric())

    def describe_estimates(self) -> dict[str, Any]:
        known = super().describe_estimates()
        return known | {"metric": self.estimator.moments(known["theta_hat"])[1]}
