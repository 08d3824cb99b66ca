"""D-UCB and SW-UCB: upper confidence bounds for arms without features, with a discount or a sliding window.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems" (ALT 2011; arXiv:0805.3415).
Rewards are in [0, B]. At round t, the reward of round s < t has weight w_s, and arm i of K has

    N_t(i)    = sum over the rounds s < t with i_s = i of w_s
    Xbar_t(i) = (1 / N_t(i)) sum over the same rounds of w_s X_s
    i_t       = argmax over the arms of Xbar_t(i) + c_t(i), each arm first having been played once

========  =============================  ==========================================  =======================
policy    weight w_s                     c_t(i)                                      recommended
========  =============================  ==========================================  =======================
D-UCB     gamma^(t-1-s)                  2 B sqrt(xi log(n_t) / N_t(i)), n_t the     gamma = 1 - sqrt(G/T) /
                                         sum of N_t over all arms                    (4 B)
SW-UCB    1 in the last tau rounds       B sqrt(xi log(min(t - 1, tau)) / N_t(i))    tau = 2 B sqrt(T log T
                                                                                     / G)
========  =============================  ==========================================  =======================

B is 2 ``sigma``, and G = Gamma_T is the number of changes (``switches``). The factor is 2 B in D-UCB and B in SW-UCB.
On unit vectors, Xbar_t is ridge regression with lam -> 0, and 1 / sqrt(N_t(i)) is the width ||x|| of an arm in V^-1.

Guarantee (Gamma_T known, piecewise constant means, rewards in [0, B]): regret of order sqrt(Gamma_T T) log T for D-UCB
and sqrt(Gamma_T T log T) for SW-UCB, with constants that depend on the gaps between the means. No policy can do better
than sqrt(T). Not covered: means that drift, an unknown Gamma_T, unbounded rewards, late rewards.

What is uncertain: ``xi``. The theorem needs it to be large enough; we could not check the condition (above 1/2 from
memory). The default 1/2 is that of the paper's experiments according to one independent report, and 2/3 is quoted as
the authors' suggestion by another. In those experiments, without knowledge of Gamma_T, gamma = 1 - 1/(4 sqrt(T)) and
tau = 4 sqrt(T log T). The first arXiv version misprints the sums of SW-UCB.

Choices that are ours:

* The recommended gamma is at least 1/2, and tau is within [1, T]. Gamma_T = 0 gives gamma = 1 and tau = T. As printed,
  they depend on the unit of rewards.
* An arm with N_t(i) = 0 has the index ``UNKNOWN``, which represents infinity. This can also happen later, when its
  rewards have left the window. Ties are broken at random.
* N_t counts rewards that have arrived, not plays. Until an arm has its first reward it may be played several times.
  n_t counts as at least 1, which matters only if rewards are missing.
* Rewards outside of [0, B] are accepted. B is then a scale of the bonus, as in experiments with Gaussian noise.

Cost per round and lane: O(K) besides reading the arms; SW-UCB stores the rewards of its window.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, check_positive
from windvane.policies.base import Card
from windvane.policies.forgetting import DiscountRule, ForgettingSettings, WindowRule
from windvane.policies.indexed import IndexedPolicy, gather
from windvane.theory import switching_discount, switching_window

UNKNOWN = 1e300  # the index of an arm without rewards: above all others, and unlike infinity allowed in JSON


class MultiArmedPolicy(IndexedPolicy, ForgettingSettings):
    """The base class of D-UCB and SW-UCB, which differ in how they forget and in the bonus.

    Parameters
    ----------
    xi
        Factor in the bonus.
    """

    switches: npt.ArrayLike | None = None
    xi: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("xi", self.xi)

    def recommend(self, horizon: int, amount: float) -> float:
        return self.formula(horizon=horizon, switches=amount, bound=2.0 * self.noise_scale)

    def select(self, arms: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> Index:
        indices, valid = self.read_arms(arms, valid)
        means, N = gather(self.arm_means.means, indices), gather(self.arm_means.N, indices)
        is_known = N > 0.0
        bonus = self.scale_bonus()[:, None] / np.sqrt(np.where(is_known, N, 1.0))
        return self.play(np.where(is_known, means + bonus, UNKNOWN), valid, means)

    def scale_bonus(self) -> Array:
        """Return c_t(i) sqrt(N_t(i)), [lanes]."""
        raise NotImplementedError


class DUCB(MultiArmedPolicy, DiscountRule):
    """D-UCB (Garivier and Moulines 2011). Pass ``gamma``, or ``horizon`` and ``switches`` for the recommended one."""

    name = "D-UCB"
    card = Card(
        "a mean per arm", "discount", "T, Gamma_T", "(Gamma T)^(1/2) log T, jumps, xi > 1/2", "garivier2011", "O(K)"
    )
    formula = staticmethod(switching_discount)

    def scale_bonus(self) -> Array:
        n = np.maximum(self.arm_means.total, 1.0)  # n_t(gamma)
        return 2.0 * self.largest_reward * np.sqrt(self.xi * np.log(n))


class SWUCB(MultiArmedPolicy, WindowRule):
    """SW-UCB (Garivier and Moulines 2011). Pass ``window``, or ``horizon`` and ``switches`` for the recommended one."""

    name = "SW-UCB"
    card = DUCB.card._replace(forgetting="window", guarantee="(Gamma T log T)^(1/2), jumps, xi > 1/2")
    formula = staticmethod(switching_window)

    def scale_bonus(self) -> Array:
        tau = self.arm_means.window
        assert tau is not None  # the rule is always a window
        n = np.maximum(np.minimum(self.rounds_since_restart - 1.0, tau), 1.0)  # min(t - 1, tau)
        return self.largest_reward * np.sqrt(self.xi * np.log(n))
