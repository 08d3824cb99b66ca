"""Samples from the posterior of Bayesian logistic regression, by Polya-Gamma augmentation.

The prior is theta ~ N(0, I / lam). A sweep of the Gibbs sampler (Polson et al. 2013) from theta is

    omega_s ~ PG(w_s, <x_s, theta>) for every stored reward,    P = sum omega_s x_s x_s' + lam I
    theta   ~ N(m, P^-1),    m = P^-1 sum w_s (r_s - 1/2) x_s

The posterior is proportional to the prior times the product of e^{w r z} / (1 + e^z)^w. So a reward between 0 and 1 is
allowed, and a reward of weight w counts as w equal ones, also if w is not a whole number. The chain is exact in either
case (:mod:`windvane.kernels.polya_gamma`).
"""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array, Index, Mask
from windvane.documentation import documented
from windvane.estimation.expansion import Expansion
from windvane.estimation.lanes import LaneRows
from windvane.kernels.history import observe_lanes
from windvane.kernels.lanes import THETA_HAT
from windvane.kernels.polya_gamma import FIRST, FORECAST, MEAN, PRECISION, THETA, gibbs_lanes
from windvane.links import Logistic


@documented
class PolyaGammaChain(LaneRows):
    """A chain of samples of theta per lane, and all rewards (notation: see the module docstring).

    Parameters
    ----------
    lam
        Precision of the prior.

    >>> chain = PolyaGammaChain(2)
    >>> chain.absorb(np.array([[1.0, 0.0]]), np.ones(1), np.zeros(1), np.ones(1), np.array([True]))
    >>> theta, mean, precision = chain.sample(np.uint64(0), np.array([0]), decision=0, sweeps=10)
    >>> theta.shape, bool(mean[0, 0] > 0.0), precision.shape
    ((1, 2), True, (1, 2, 2))
    """

    def __init__(self, dim: int, *, lam: float = 1.0, lanes: int = 1) -> None:
        self.lam, link = lam, Logistic()
        settings = {"link": link.code, "floor": lam, "ridge": lam, "gamma": 1.0, "window": np.inf, "drop_budget": 1.0}
        super().__init__(dim, lanes, link, settings, remembers=True, expansion=Expansion())

    @property
    def theta(self) -> Array:
        """The sample from which the next sweep starts, [lanes, dim], as a view."""
        return self.dense[:, THETA_HAT]

    def absorb(self, x: Array, reward: Array, age: Array, weight: Array, mask: Mask) -> None:
        """Learn one observation per lane. The arguments are not checked."""
        with self.lock:
            self.make_room()
            observe_lanes(x, reward - 0.5, age, weight, mask, self.record, self.dense, self.history)

    def age(self, rounds: float) -> None:
        """Let ``rounds`` pass."""
        with self.lock:
            self.record["now"] += rounds

    def sample(self, key: np.uint64, lane_ids: Index, *, decision: int, sweeps: int) -> tuple[Array, Array, Array]:
        """Return theta after some sweeps, [lanes, dim], and m and P of the last one. Nothing changes."""
        ends = self.run_chains(key, lane_ids, decision, sweeps, 1, first_block=0)[:, 0]
        return ends[:, THETA], ends[:, MEAN], ends[:, PRECISION:]

    def forecast(self, key: np.uint64, lane_ids: Index, *, decision: int, sweeps: int, draws: int) -> Array:
        """Return theta of independent chains with other random numbers, [lanes, draws, dim]. Nothing changes."""
        return self.run_chains(key, lane_ids, decision, sweeps, draws, first_block=FORECAST)[:, :, THETA]

    def run_chains(
        self, key: np.uint64, lane_ids: Index, decision: int, sweeps: int, count: int, *, first_block: int
    ) -> Array:
        """Return theta, m and P of some chains, all from the current sample, [lanes, count, 2 + dim, dim]."""
        out, source = np.empty((self.lanes, count, PRECISION + self.dim, self.dim)), np.zeros(4)
        source[FIRST] = first_block
        with self.lock:
            rows = (self.record, self.dense, self.history, self.workspaces[0][:2])
            gibbs_lanes(key, lane_ids, decision, sweeps, source, *rows, out)
        return out

    def keep(self, theta: Array) -> None:
        """Start the next sweep from ``theta``, [lanes, dim]."""
        with self.lock:
            self.dense[:, THETA_HAT] = theta
