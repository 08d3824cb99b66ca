"""OFULog-r: optimism over a level set of the regularised log-loss.

Abeille, Faury and Calauzenes, "Instance-wise minimax-optimal algorithms for logistic bandits" (AISTATS 2021), section 6
and Algorithm 2. The rewards of all past rounds have weight 1, and mu is logistic. At round t,

    loss_t(theta) = -sum (r_s log mu(<x_s, theta>) + (1 - r_s) log(1 - mu(<x_s, theta>))) + (lam_t/2) ||theta||^2
    theta_hat_t   = argmin of loss_t over all theta
    gamma_t       = sqrt(lam_t) (S + 1/2) + (d / sqrt(lam_t)) log((4/delta) (1 + t / (16 d lam_t)))
    beta_t        = gamma_t + gamma_t^2 / sqrt(lam_t)
    E_t           = {||theta|| <= S: loss_t(theta) - loss_t(theta_hat_t) <= beta_t^2}
    x_t           = argmax over the arms of max over E_t of <x, theta>
    lam_t         = d log(1 + t)

The paper prints lam_t = d log(t), which is 0 at t = 1, where gamma_t is undefined. d log(1 + t) is what the authors'
code uses: d log(2 + n) after n rewards, with t = n + 1.

**The set does not bind at practical T.** At d = 2, T = 3000, delta = 0.05, beta_T^2 is 906 for S = 1 and 8231 for S = 3
(:class:`windvane.theory.LogLossRadius`), while the loss varies over the whole ball by less than that. The set is then
the ball, and the policy plays the longest arm, whatever the rewards are. This is the rule, not a defect of its
implementation: with 10 fresh arms, uniform in the unit disc, each of 120,000 decisions was the longest arm, for S = 1
and for S = 3 (``python benchmarks/stationary.py --play``). A ``bonus_scale`` below 1 shrinks beta_t and gives up the
theorem. OFUGLB (:mod:`windvane.policies.ofuglb`) has sets of the same form with a beta_T^2 of 22 instead of 906.

Guarantee (Theorem 1, with probability 1 - delta, for a fixed arm set and a constant theta*): regret of order d sqrt(T
mu'(<x*, theta*>)) + min(kappa d^2, d^2 + the number of plays of detrimental arms), up to logarithms and powers of S.
**As printed this is not proven**, by our reading, for two reasons, and ``is_proved=True`` avoids both:

* gamma_t is slightly too small (:class:`windvane.theory.LogLossRadius`), by 7 % in the setting above.
* The concentration inequality is for a fixed lam. With a lam_t that grows, the set covers theta* at any fixed round,
  but not at all rounds at once. ``is_proved=True`` uses lam = d log T in all rounds.

There is no guarantee under drift, nor, in the statement, for arm sets that change.

What is uncertain: nothing in the rule, which we read in the paper. (The main text prints lam ||theta||^2 without the
1/2 of the appendix.) The authors' public code differs: its beta_t^2 comes from log det H and from gamma_t^2 / lam_t, so
it is smaller; it updates theta_hat only now and then; it bounds ||theta|| by S^2; and its search for each arm ends
after 20 steps.

Choices that are ours: for arms of norm up to L the rule is applied to x / L with the norm bound S L, so lam_t is L^2 d
log(1 + t). If ||theta_hat_t|| > S, E_t can be empty; then the minimiser of the loss over the ball takes its place.
Rewards can be any numbers in [0, 1] with mean mu(<x, theta*>), not only 0 and 1. ``bonus_scale`` multiplies beta_t.

Cost per round and lane: O(K d^2) for the arms, and O(t d^2) for a few passes over the history: about four for theta_hat
and the minimum over the ball, and one for every arm that is examined (three or four if the set is not the ball around
that arm's best point), of which there are usually one or two.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array
from windvane.estimation import MaximumLikelihoodEstimator
from windvane.estimation.level_set import LikelihoodSets
from windvane.links import Link, Logistic
from windvane.policies.base import Card
from windvane.policies.likelihood_sets import MaximisingPolicy
from windvane.policies.weight_ucb import logarithmic_ridge
from windvane.theory import LogLossRadius


class OFULogR(MaximisingPolicy):
    """OFULog-r (Abeille et al. 2021). ``lam=None`` is L^2 d log(1 + t), or L^2 d log T if ``is_proved``.

    Parameters
    ----------
    lam
        Regularisation lam_t, the coefficient of ||theta||^2 / 2, the same in all rounds. Default: as above.
    is_proved
        Whether to use the regularisation and the radius for which coverage of all rounds is proven. It needs
        ``horizon`` or ``lam``.
    """

    lam: float | None = None
    horizon: int | None = None
    is_proved: bool = False
    radius: LogLossRadius = field(init=False)
    name = "OFULog-r"
    card = Card(
        "generalized linear", "none", "nothing", "d (T mu'*)^(1/2), theta* fixed, if is_proved", "abeille2021",
        "O((K + t) d^2)",
    )  # fmt: skip
    links: ClassVar[tuple[type[Link], ...]] = (Logistic,)

    def recommend_lam(self) -> float:
        """Return L^2 d log T, or lam_1 = L^2 d log 2."""
        return self.L**2 * logarithmic_ridge(self.dim, self.horizon) if self.is_proved else self.growing_lam(1.0)

    def choose_lam(self) -> float:
        return self.given_lam() / self.constants.c_mu  # so that the ridge of the estimator is lam

    def carry_settings(self, scale: float, S: float | None) -> dict[str, Any]:
        return {} if self.lam is None and not self.is_proved else {"lam": scale**2 * self.given_lam()}

    def growing_lam(self, t: Any) -> Any:
        """Return L^2 d log(1 + t)."""
        return self.L**2 * self.dim * np.log1p(t)

    @property
    def form(self) -> str:
        """The form of gamma_t, as :class:`windvane.theory.LogLossRadius` takes it."""
        return "proved" if self.is_proved else "printed"

    def build_radius(self) -> LogLossRadius:
        return LogLossRadius(dim=self.dim, S=self.S, L=self.L, delta=self.levels, form=self.form)

    def build_sets(self, estimator: MaximumLikelihoodEstimator) -> tuple[LikelihoodSets, Array]:
        t, is_fixed = self.rounds_since_restart, self.is_proved or self.lam is not None
        lam = np.full(self.lane_count, self.given_lam()) if is_fixed else self.growing_lam(t)
        beta = self.radius(t, lam)
        level = (self.bonus_scales * beta) ** 2
        return LikelihoodSets(estimator, level=level, ridge=lam, is_hat_in_ball=False), beta
