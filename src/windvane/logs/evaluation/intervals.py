"""Confidence sequences for the mean of scores that are bounded below: valid at all times at once, for any drift.

Let X_1, X_2, ... be at least 0 with conditional means m_i of at most 1, which may change in any way. With a predictable
guess Y_i in [0, 1] of X_i, s = sum X_i - sum m_i and v = sum (X_i - Y_i)^2,

    exp(lambda s - (-log(1 - lambda) - lambda) v)        is a nonnegative supermartingale for every lambda in [0, 1),

because exp(lambda y + (log(1 - lambda) + lambda) y^2) <= 1 + lambda y for all y >= -1 (Fan, Grama and Liu 2015; Howard,
Ramdas, McAuliffe and Sekhon 2021). Its mean over lambda, with the density of 1 - lambda proportional to
u^(rho - 1) exp(-rho u) on (0, 1), has a closed form:

    log M(s, v) = s + v + rho log rho - a log(s + a) + log gamma(a, s + a) - log gamma(rho, rho),   a = v + rho

with the lower incomplete gamma function, not regularised. M starts at 1, so by Ville's inequality it ever exceeds
2 / alpha with probability at most alpha / 2. M increases with s. So the sum of the means at which M is 2 / alpha is a
lower bound of the true sum, at all times at once (Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro 2022).

Scores of off-policy evaluation are bounded below by -k, where k says how far the reward model was truncated
(:mod:`windvane.logs.evaluation.scores`). No k is best for all logs. The mean of M over several k, all written in terms
of the same mean, is again such a process. It costs at most log(number of k) on the scale of log M.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaln

from windvane.arguments import Array

RHO = 1.0  # as in the paper; a larger value would make intervals narrower later and wider at first
STEPS = 48  # halvings of the bracket, which is at most 2 wide: the error is below 1e-14
# From here on Stirling's series is used. Its first omitted term is 1 / (1680 a^7), 2e-12 at 16.
STIRLING = 16.0
_LOG_GAMMA_RHO = float(gammaln(RHO) + math.log(gammainc(RHO, RHO)))


def log_mixture(s: npt.ArrayLike, v: npt.ArrayLike) -> Array:
    """Return log M(s, v), or -infinity where s is so small that M is below 1 anyway.

    Parameters
    ----------
    s
        Sum of the scores minus the sum of their means.
    v
        Sum of squared errors of the predictions, at least 0.

    Returns
    -------
    array
        log M. It increases with s.

    Notes
    -----
    Terms of order v log v cancel. They are combined before they are computed, with Stirling's series for log Gamma, so
    that the error stays below 1e-8 for v up to 1e7. For s + v + rho <= 0, M is at most exp(-1) / (1 - exp(-1)) = 0.58;
    0 is returned for it, which can only make a bound wider.

    Examples
    --------
    >>> log_mixture([400.0, 3e4], [1e4, 1e7]).round(3)
    array([ 3.564, 37.229])
    """
    s, a = np.asarray(s, dtype=float), np.asarray(v, dtype=float) + RHO
    s, a = np.broadcast_arrays(s, a)
    is_inside = s + a > 0.0
    s = np.where(is_inside, s, 0.0)
    large = np.maximum(a, STIRLING)
    series = 0.5 * np.log(2.0 * np.pi / large) + 1.0 / (12.0 * large) - 1.0 / (360.0 * large**3) + large**-5 / 1260.0
    rest = np.where(a >= STIRLING, series, gammaln(a) - a * np.log(a) + a)  # log Gamma(a) - a log a + a
    with np.errstate(divide="ignore"):
        log_share = np.log(gammainc(a, s + a))
    value = s - a * np.log1p(s / a) + rest - RHO + RHO * math.log(RHO) + log_share - _LOG_GAMMA_RHO
    return np.asarray(np.where(is_inside, value, -np.inf))


class LowerBound:
    """A lower confidence sequence for the running mean of scores.

    The scores of the truncation ``limits[j]`` are at least ``-(limits[j] + offset)``, and their conditional means,
    which are the same for all truncations, are in ``[-offset, span - offset]``.

    Parameters
    ----------
    limits
        The truncations k, fixed beforehand.
    offset, span
        The range of the means.

    Examples
    --------
    >>> bound = LowerBound(np.array([0.0]), offset=0.0, span=1.0)
    >>> bound.add(np.full((1, 1000), 0.5))
    >>> bound.record()
    >>> bound.solve(alpha=0.05).round(3)
    array([0.495])
    """

    def __init__(self, limits: Array, *, offset: float, span: float) -> None:
        self.limits, self.offset, self.span = limits, offset, span
        self.count, self.weight = 0, 0.0
        self.total, self.squares = np.zeros(len(limits)), np.zeros(len(limits))
        self.recorded: list[tuple[float, Array, Array]] = []

    def add(self, scores: Array, weight: Array | None = None) -> None:
        """Add scores, [truncations, n], with predictable weights in [0, 1], [n]; 1 unless they are given."""
        n = scores.shape[1]
        scale = np.ones(n) if weight is None else weight
        shift = (self.limits + self.offset)[:, None]
        x = np.maximum(scores + shift, 0.0) / (self.limits[:, None] + self.span) * scale  # rounding may give -1e-17
        sums = self.total[:, None] + np.cumsum(x, axis=1)
        guess = np.minimum((0.5 + sums - x) / np.arange(self.count + 1, self.count + n + 1), 1.0)
        self.squares = self.squares + np.square(x - guess).sum(axis=1)
        self.total, self.count, self.weight = (
            sums[:, -1] if n else self.total,
            self.count + n,
            self.weight + scale.sum(),
        )

    def record(self) -> None:
        """Record a checkpoint: the sums so far."""
        self.recorded.append((self.weight, self.total, self.squares))

    def solve(self, alpha: float) -> Array:
        """Return the lower bound of the (weighted) running mean at each checkpoint, at level ``alpha / 2``."""
        if not self.recorded:
            return np.empty(0)
        weights = np.array([weight for weight, _, _ in self.recorded])[:, None]
        totals, squares = (np.array([entry[i] for entry in self.recorded]) for i in (1, 2))
        threshold = math.log(2.0 / alpha) + math.log(len(self.limits))
        low, high = np.full(len(totals), -self.offset), np.full(len(totals), self.span - self.offset)

        def is_refuted(mean: Array) -> npt.NDArray[np.bool_]:
            x = (mean[:, None] + self.limits + self.offset) / (self.limits + self.span)
            return np.asarray(np.logaddexp.reduce(log_mixture(totals - weights * x, squares), axis=1) >= threshold)

        low = np.where(is_refuted(high), high, low)  # refuted altogether, which has probability alpha / 2 at most
        for _ in range(STEPS):
            middle = 0.5 * (low + high)
            is_above = is_refuted(middle)
            low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
        return low
