"""ada-OFU-ECOLog: a logistic bandit with local curvature that rejects rewards. Use ECOLogUCB instead.

Faury, Abeille, Jun and Calauzenes, "Jointly efficient and optimal algorithms for logistic bandits" (AISTATS 2022),
Algorithm 2, as printed. The steps are those of :mod:`windvane.policies.ecolog`, with W_1 = I and over a set Theta_t,

    theta^u   = the minimiser over Theta_t of l(<x_t, theta>, u) + ||theta - theta_t||^2 / (2 k) in W_t,    u = 0, 1
    theta_bar = the minimiser with l(<x_t, theta>, 0) + l(<x_t, theta>, 1) for the loss,    k = 1 + S
    (C1)        mu'(<x_t, theta_bar>) <= 2 mu'(<x_t, theta^u>) for u = 0 and u = 1
    if C1:      theta_{t+1} = theta^r,   W_{t+1} = W_t + mu'(<x_t, theta_{t+1}>) x_t x_t',   squared radius: eta_t
    otherwise:  the reward is rejected: theta, W and the radius stay. With theta_H, the maximum-likelihood estimate on
                all rejected rewards with the penalty lambda_t ||theta||^2 / 2, and V_H = c_mu sum x x' + lambda_t I
                over them, Theta_{t+1} = {||theta - theta_H||^2 <= beta_t in the metric V_H, ||theta|| <= S}
    x_t       = argmax over the arms of <x, theta_t> + sqrt(eta) ||x|| in W_t^-1;   in the first round of S ||x||

eta_t, lambda_t and beta_t are those of :class:`windvane.theory.ECOLogRadius`.

**It locks up.** A rejected reward changes nothing that the next decision depends on, until Theta cuts the ball, which
takes about beta_t / (c_mu S^2) rejections (600,000 for S = 3). On fixed arms, the policy then plays the same arm and
rejects its reward again, for ever. Rejected rewards in 400 rounds (d = 2, 20 arms uniform in the disc,
||theta*|| = S - 1, means of 50 runs), and the regret beside that of ECOLogUCB:

===  ====================  ======  =========  ====================  ======  =========
S    fixed arms: rejected  regret  ECOLogUCB  fresh arms: rejected  regret  ECOLogUCB
===  ====================  ======  =========  ====================  ======  =========
2                       0    28.5       17.5                     0    21.0       13.7
3                     332    40.8       11.9                    26    22.1       11.7
4                     397    32.9        7.3                   316    20.6        8.2
5                     398    54.4        4.5                   384    28.8        6.3
===  ====================  ======  =========  ====================  ======  =========

The paper saw no rejection in its experiments, because the authors' code takes shorter steps (k = 1).

Guarantee (Theorem 2): with high probability, regret of order S d sqrt(sum mu'(<x*_t, theta*>)) log T +
S^6 d^2 log(T)^2 / c_mu for any sequence of sets of arms. Not covered: drift.

What is uncertain. The printed eta_t has two slips (:class:`windvane.theory.ECOLogRadius`); ``radius_form="proved"`` is
what the argument gives. That theta* is in all sets Theta_t is proven for a fixed lambda, and lambda_t moves; as long as
no set cuts the ball, this does not matter. Where the algorithm boxes of the paper differ from its lemmas, we use the
lemmas: the boxes print Theta without the ball, which contradicts the diameter 2 S from which k follows, and a penalty
gamma_t ||theta||^2.

Choices that are ours: theta_1 = 0; steps solved to rounding; for ||x|| <= L the rule is applied to x / L and S L, that
is W_1 = L^2 I; t in eta_t is the number of rounds when the reward arrives.

**Not here: OFU-ECOLog**, Algorithm 1 of the paper. Its warm-up takes 16 d beta_T log(1 + T) / c_mu rounds: 1.5 10^7 for
T = 3000, d = 2 and S = 1.

Cost per round and lane: O(K d^2) for the arms and O(d^3) for three steps, and passes over the rejected rewards. Memory
is O(d^2), and O(d) for each rejected reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from windvane.arguments import Array, Mask, check_choice
from windvane.estimation import RejectedRewards
from windvane.kernels.ecolog import CENTER, SHAPE
from windvane.policies.base import Card
from windvane.policies.ecolog import ORDER, ECOLogPolicy
from windvane.policies.inputs import Feedback
from windvane.state import CoordinateChange, State, Stateful, refuse
from windvane.theory import ECOLogRadius

FORMS = ("printed", "proved")


class AdaOFUECOLog(ECOLogPolicy):
    """ada-OFU-ECOLog (Faury et al. 2022), as printed. For S >= 3 it gets stuck on fixed arms; see the module.

    Parameters
    ----------
    radius_form
        "printed", the radius eta_t of the paper, or "proved", what its argument gives.
    """

    lam: float | None = field(default=None, init=False)
    radius_form: str = "printed"
    takes_prior: ClassVar[bool] = False  # what it would learn may be rejected
    rejected: RejectedRewards = field(init=False)
    name = "ada-OFU-ECOLog"
    card = Card("generalized linear", "none", "nothing", ORDER.format("S^6"), "faury2022", "O((K + d) d^2 + rejected)")
    stored: ClassVar[tuple[str, ...]] = (*ECOLogPolicy.stored, "squared_radius", "sets")
    unbounded: ClassVar[tuple[str, ...]] = ("sets",)

    def __post_init__(self) -> None:
        super().__post_init__()
        n, d = self.lane_count, self.dim
        self.rejected = RejectedRewards(d, "logistic", S=self.S, L=self.L, lanes=n)
        self.squared_radius, self.sets = np.empty(n), np.empty((n, d + 2, d))
        self.clear(np.ones(n, dtype=bool))

    def recommend_lam(self) -> float:
        return self.L**2

    def build_radius(self) -> ECOLogRadius:
        form = check_choice("radius_form", self.radius_form, FORMS)
        return ECOLogRadius(delta=self.levels, form=form, **self.pick_settings("dim", "S", "L"))

    def compute_beta(self, theta_hat: Array) -> Array:
        """Return the root of the eta_t of the last step, [lanes]."""
        return np.asarray(np.sqrt(self.squared_radius))

    def clear(self, mask: Mask) -> None:
        """Start with the ball as the confidence set and as the set of parameters."""
        self.squared_radius[mask] = (self.S * self.L) ** 2
        self.sets[mask] = 0.0
        self.sets[mask, -1] = math.inf

    def learn(self, feedback: Feedback) -> None:
        x, reward, _, age, weight, _ = feedback
        mask, t = self.mask_restarted(feedback), np.maximum(self.rounds_since_restart - 1.0, 1.0)
        accepted = self.estimator.absorb_or_reject(x, reward, age, weight, mask, self.sets)
        self.squared_radius = np.where(accepted, self.radius.eta(t), self.squared_radius)
        rejected = mask & (weight > 0.0) & ~accepted
        if rejected.any():
            self.rejected.absorb(x, reward, age, weight, rejected)
            self.shrink(rejected, t)

    def shrink(self, mask: Mask, t: Array) -> None:
        """Compute the ellipsoid of the lanes of ``mask`` anew, from their rejected rewards."""
        ridge, eye = self.radius.ridge(t) * self.L**2, np.eye(self.dim)
        self.rejected.change_ridge(ridge, mask)
        seen = self.rejected.V - self.rejected.lam * eye
        self.sets[mask, CENTER] = self.rejected.solve()[mask]
        self.sets[mask, SHAPE:-1] = (self.constants.c_mu * seen + ridge[:, None, None] * eye)[mask]
        self.sets[mask, -1] = self.radius.level(t)[mask, None]

    def pass_time(self, rounds: float) -> None:
        super().pass_time(rounds)
        self.rejected.age(rounds)

    def forget(self, mask: Mask) -> None:
        super().forget(mask)
        self.rejected.reset(mask)
        self.clear(mask)

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "rejected": self.rejected}

    def map_fields(self, successor: AdaOFUECOLog, change: CoordinateChange) -> State:
        """Return the fields in other coordinates. In new ones, the ellipsoids are as if nothing had been rejected."""
        fields, d, square = self.read_fields(), self.dim, change.scale**2
        ridge, is_new = self.rejected.record["ridge"][:, None, None], np.diag(1.0 * (change.places < 0))
        sets = np.empty_like(successor.sets)
        sets[:, CENTER] = change.move(self.sets[:, CENTER], 1.0 / change.scale)
        shapes = change.move_matrix(self.sets[:, SHAPE : SHAPE + d], square)
        sets[:, SHAPE:-1], sets[:, -1] = shapes + square * ridge * is_new, self.sets[:, -1, :1]
        return fields | {"sets": sets}

    def check_fields(self, fields: State, path: str) -> None:
        super().check_fields(fields, path)
        if not (fields["squared_radius"] > 0.0).all():
            raise refuse(path, "squared_radius", fields["squared_radius"], "above 0")

    def describe_estimates(self) -> dict[str, Any]:
        """Return the fields of ``info()``. ``remembered`` is the number of rejected rewards."""
        return super().describe_estimates() | {"remembered": self.rejected.remembered}
