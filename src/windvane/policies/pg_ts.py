"""PG-TS: Thompson sampling from the exact posterior of a logistic bandit, by Polya-Gamma augmentation.

Dumitrascu, Feng and Engelhardt, "PG-TS: improved Thompson sampling for logistic contextual bandits" (NeurIPS 2018). The
model is r_s ~ Bernoulli(mu(<x_s, theta>)) with the prior theta ~ N(0, I / lam). Before every decision, M sweeps of a
Gibbs sampler start at the theta of the last decision. A sweep is

    omega_s | theta ~ PG(1, <x_s, theta>),   s < t         (Polya-Gamma, :mod:`windvane.kernels.polya_gamma`)
    theta | omega   ~ N(m, P^-1),   P = sum omega_s x_s x_s' + lam I,   m = P^-1 sum (r_s - 1/2) x_s
    x_t             = argmax over the arms of <x, theta>

======  ==========  ============================================================
symbol  here        meaning
======  ==========  ============================================================
M       ``sweeps``  sweeps per decision; M = 1 is what the paper calls a stream
B       ``lam``     precision of the prior; the paper's B is I / lam, its b is 0
======  ==========  ============================================================

Guarantee: none that we could confirm. The chain converges to the posterior under a theta* that does not move. At the
first decisions, and after each reward, M sweeps are few.

What is uncertain: we could read only the abstract and two independent implementations, which agree on the sweep and on
continuing the chain. The numbers of sweeps and the prior of the paper's experiments could not be confirmed, so the
defaults M = 10 and lam = 1 are ours. A reward between 0 and 1, or with a weight other than 1, enters the posterior with
the likelihood e^{w r z} / (1 + e^z)^w; the chain stays exact (:mod:`windvane.estimation.polya_gamma`). A late reward
enters when it arrives.

There is no setting S: the prior determines how large theta* may be.

Cost per round and lane: M sweeps over **all** rewards so far, O(M t (d^2 + a draw)) with about 0.1 microseconds per
draw, and O(K d). Memory and time grow with t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask, check_positive, check_whole
from windvane.arms import ArmSet
from windvane.estimation.polya_gamma import PolyaGammaChain
from windvane.kernels.scoring import predict_lanes
from windvane.links import Identity, Link, Logistic
from windvane.policies.base import Card, Policy
from windvane.policies.info import PolicyInfo
from windvane.policies.inputs import Feedback
from windvane.policies.sampling import count_best
from windvane.state import Stateful


class PGTS(Policy):
    """PG-TS (Dumitrascu et al. 2018): Thompson sampling from the posterior of logistic regression.

    Parameters
    ----------
    link
        "logistic": Polya-Gamma augmentation is for this link only.
    sweeps
        Sweeps M of the Gibbs sampler per decision.
    lam
        Precision of the prior: theta ~ N(0, I / lam).
    """

    link: str | Link = field(default="logistic", kw_only=False)
    lam: float = 1.0
    sweeps: int = 10
    sigma: float = field(default=0.5, init=False)  # rewards are in [0, 1]
    chain: PolyaGammaChain = field(init=False)
    links: ClassVar[tuple[type[Link], ...]] = (Logistic,)
    is_randomised: ClassVar[bool] = True
    is_one_pass: ClassVar[bool] = True  # the chain goes on from where it is, so it matters when a reward arrives
    name = "PG-TS"
    card = Card("generalized linear", "none", "nothing", "none", "dumitrascu2018", "O(K d + M t d^2), memory O(t d)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("sweeps", self.sweeps, 1)
        self.chain = PolyaGammaChain(self.dim, lam=check_positive("lam", self.lam), lanes=self.lane_count)

    def estimate(self) -> tuple[Array, Array, Array]:
        """Return the sample of the next decision, [lanes, dim], and m and P of its last sweep."""
        return self.chain.sample(self.key, self.lane_ids, decision=self.decisions, sweeps=self.sweeps)

    def draw(self) -> Array:
        """Return the sample of the next decision, and continue from it."""
        decision = self.begin_decision()
        decision.theta_tilde, decision.theta_hat, _ = self.estimate()
        self.chain.keep(decision.theta_tilde)
        return decision.theta_tilde

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        arms, valid = self.check_arms(arms, valid)
        theta, products = self.draw(), np.empty(arms.shape[:2])
        predict_lanes(Identity.code, arms, theta, products)
        return self.play_highest(products, valid)  # the scores are random, not predictions

    def select_from(self, arm_set: ArmSet) -> Array:
        arm_set = self.check_arm_set(arm_set)
        theta, none = self.draw(), np.zeros((self.lane_count, self.dim, self.dim))
        return self.play_from(arm_set, theta, none, np.zeros(self.lane_count), np.asarray)

    def probabilities(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None, *, draws: int = 200) -> Array:
        """Estimate the probability that ``select`` chooses each arm, [lanes, K]. Nothing changes.

        The estimate is the share of independent chains, from the sample of the last decision, for which an arm is best.
        It takes as long as ``draws`` decisions.
        """
        arms, valid = self.check_arms(arms, valid)
        draws = check_whole("draws", draws, 1, 10**6)
        place = {"decision": self.decisions, "sweeps": self.sweeps}
        theta = self.chain.forecast(self.key, self.lane_ids, draws=draws, **place)
        return count_best(arms @ theta.transpose(0, 2, 1), valid)

    def learn(self, feedback: Feedback) -> None:
        mask = self.mask_restarted(feedback)
        self.chain.absorb(feedback.x, feedback.reward, feedback.age, feedback.weight, mask)

    def pass_time(self, rounds: float) -> None:
        self.chain.age(rounds)

    def forget(self, mask: Mask) -> None:
        self.chain.reset(mask)

    def parts(self) -> Mapping[str, Stateful]:
        return {"chain": self.chain}

    def info(self, *, estimates: bool = True) -> PolicyInfo:
        known: dict[str, Any] = {"t": self.t, "decisions": self.decisions, "decision": self.decision}
        if estimates:
            known["theta_tilde"], known["theta_hat"], known["metric"] = self.estimate()
            known["remembered"] = self.chain.remembered
        return PolicyInfo(**known)
