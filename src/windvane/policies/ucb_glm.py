"""UCB-GLM: random play until the arms span the space, then maximum likelihood with a bonus on the linear predictor.

Li, Lu and Zhou, "Provably optimal algorithms for generalized linear contextual bandits" (ICML 2017), Algorithm 1.

    phase 1:  play arms uniformly at random until lambda_min(V_t) >= 1,  V_t = sum x_s x_s'
    phase 2:  theta_hat_t = the root of sum (r_s - mu(<x_s, theta>)) x_s = 0
              x_t         = argmax over the arms of <x, theta_hat_t> + alpha ||x||_{V_t^-1}
              alpha       = (sigma / kappa) sqrt((d/2) log(1 + 2 T / d) + log(1/delta))
              kappa       = infimum of mu'(<x, theta>) over ||x|| <= 1, ||theta - theta*|| <= 1

Guarantee (Theorem 2): with probability 1 - 2 delta, regret of at most tau + (2 k_mu sigma d / kappa) log(T / (d delta))
sqrt(T) for a constant theta*, tau rounds of random play, rewards in [0, 1] and contexts that are independent and
identically distributed in phase 1. **As printed this is not proven**, for two reasons:

* alpha is half of what the proof gives: Lemma 8 of the supplement bounds a square by 4 sigma^2 (...), and Lemma 3 uses
  it without the 4. ``bonus_scale=2`` has the alpha that is proven.
* lambda_min(V) >= 1 is not enough for ||theta_hat_t - theta*|| <= 1 at all later rounds, because the arms of phase 2
  depend on the rewards (Kveton et al. 2020, section 4.2). Their condition is lambda_min(V) >= max(1, (sigma/kappa)^2 (d
  log(T/d) + 2 log T)); ``least_eigenvalue`` sets it.

There is no guarantee under drift.

What is uncertain: nothing in the rule. Its constants cannot all be used: kappa depends on theta*, and the number of
rounds of phase 1 has a constant without a value. We use ||theta*|| <= S for kappa, that is, the infimum over |z| <= S L
+ 1, and for phase 1 the condition on V that its number of rounds is meant to ensure.

Choices that are ours:

* The likelihood of the paper has no maximum where a hyperplane separates the rewards, which can happen after phase 1. A
  tiny ``lam``, so that V starts as lam I and the ridge is lam c_mu, keeps theta_hat finite. Where the maximum exists,
  theta_hat moves by at most lam c_mu ||theta_hat|| / lambda_min(H), with H the Hessian without the ridge, and ||x|| in
  V^-1 becomes smaller by a factor of at least (1 + lam)^(-1/2).
* Phase 1 ends after ``longest_phase`` rounds even if the arms do not span the space, by default after ceil(d sqrt(T)),
  which costs no more than the order of the bound. The bonus of a direction that was never played is then alpha /
  sqrt(lam), so such directions are tried first.
* Phase 1 counts the rewards that have arrived. Each lane has its own phase, and a restart starts it again.
* For arms of norm up to L, the rule is applied to x / L with the norm bound S L: phase 1 lasts until lambda_min(V) >=
  L^2.

Cost per round and lane: one or two passes over the history, O(t d^2), or less with the expansion of old observations
(:mod:`windvane.estimation.mle`); O(K d^2) for the arms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from windvane.arguments import Array, Mask, check_positive, check_whole
from windvane.arms import ArmSet, Ball
from windvane.kernels.drawing import BALL, SPHERE
from windvane.kernels.sampling import draw_points
from windvane.policies.base import Card
from windvane.policies.glm import FIXED, GLMPolicy
from windvane.policies.info import PolicyInfo
from windvane.policies.optimism import LinearIndexPolicy


@dataclass(frozen=True)
class UCBGLMInfo(PolicyInfo):
    """The diagnostics of UCB-GLM."""

    is_exploring: Mask | None = None  #: whether the lane is in phase 1


class UCBGLM(LinearIndexPolicy, GLMPolicy):
    """UCB-GLM (Li et al. 2017). It needs the horizon T.

    Parameters
    ----------
    lam
        Regularisation, which keeps theta_hat finite: V starts as lam I. The paper has none. Default: 1e-6 L^2.
    least_eigenvalue
        Phase 1 ends when lambda_min(V) reaches this value, in units of L^2.
    longest_phase
        Largest number of rounds of phase 1. Default: ceil(d sqrt(T)).
    """

    horizon: int
    lam: float | None = None
    least_eigenvalue: float = 1.0
    longest_phase: int | None = None
    example = "dim=2, horizon=1000"
    name = "UCB-GLM"
    card = Card("generalized linear", "none", "T", f"{FIXED}, not as printed", "li2017", "O((K + t) d^2)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("least_eigenvalue", self.least_eigenvalue)
        longest = math.ceil(self.dim * math.sqrt(self.horizon)) if self.longest_phase is None else self.longest_phase
        self.phase_end = check_whole("longest_phase", longest, 0)

    def recommend_lam(self) -> float:
        return 1e-6 * self.L**2

    def build_radius(self) -> Array:
        """Return alpha of every lane."""
        T, d = check_whole("horizon", self.horizon, 1), self.dim
        kappa = self.reward_link.constants(self.S + 1.0 / self.L, self.L).c_mu
        return self.sigma / kappa * np.sqrt(0.5 * d * math.log1p(2.0 * T / d) - np.log(self.levels))

    def choose_factor(self) -> float:
        return 1.0

    def compute_beta(self, theta_hat: Array) -> Array:
        return np.array(self.radius)

    @property
    def is_exploring(self) -> Mask:
        """Whether each lane is in phase 1."""
        is_spanned = self.estimator.is_spanned(self.estimator.lam + self.least_eigenvalue * self.L**2)
        return np.asarray(~is_spanned & (self.rounds_since_restart <= self.phase_end))

    def bound_predictor(self, arms: Array, theta: Array, multiplier: Array) -> Array:
        upper = super().bound_predictor(arms, theta, multiplier)
        upper[self.is_exploring] = 0.0  # phase 1: all arms tie, so each is played with the same probability
        return upper

    def play_best(self, arm_set: ArmSet, theta: Array, multiplier: Array) -> Array:
        law, random = BALL if isinstance(arm_set, Ball) else SPHERE, np.empty((self.lane_count, self.dim))
        draw_points(law, arm_set.radius, self.key, self.lane_ids, self.decisions, random)
        is_exploring = self.is_exploring
        return np.where(is_exploring[:, None], random, super().play_best(arm_set, theta, multiplier))

    def info(self, *, estimates: bool = True) -> UCBGLMInfo:
        known: dict[str, Any] = vars(super().info(estimates=estimates))
        return UCBGLMInfo(**known, is_exploring=self.is_exploring)
