"""Confidence radii: how far an estimate may be from the parameter it tracks.

A radius is a class whose constructor precomputes whatever does not depend on the round, so that a policy can evaluate
it every round. Calling it checks nothing; the functions also check the round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array
from windvane.errors import ArgumentError
from windvane.theory.formula import Lanes, check_at_least, formula


@formula
def discounted_count(gamma: ArrayLike, t: ArrayLike) -> Lanes:
    """Return (1 - gamma^t) / (1 - gamma), the sum of gamma^i for i = 0..t-1; t itself at gamma = 1.

    >>> discounted_count(0.5, 3)
    1.75
    """
    log_gamma = np.log(gamma)
    is_flat = log_gamma == 0.0
    safe = np.where(is_flat, -1.0, log_gamma)
    return np.where(is_flat, t, np.expm1(np.asarray(t) * safe) / np.expm1(safe))


@formula
class ConfidenceLevel:
    """The confidence parameter that enters a radius at round t, with everything but t fixed.

    Parameters
    ----------
    confidence
        "pointwise": delta, as printed in Lemma 1; it covers one fixed round. "horizon": delta / T, a union bound over
        rounds 1..T; rounds after T are not covered. "anytime": delta / (2 t (1 + log t)^2), which sums to at most delta
        over all t >= 1.
    horizon
        Number of rounds T; required for "horizon" and not used otherwise.

    >>> float(ConfidenceLevel(0.05, "horizon", horizon=100).log_inverse(1.0)) == math.log(100 / 0.05)
    True
    """

    def __init__(self, delta: ArrayLike, confidence: str = "pointwise", horizon: int | None = None) -> None:
        if confidence == "horizon" and horizon is None:
            raise ArgumentError("horizon", horizon, "a whole number, at least 1, if confidence is 'horizon'")
        rounds = horizon if horizon is not None and confidence == "horizon" else 1
        self.is_anytime = confidence == "anytime"
        self.level: Array = np.asarray(delta) / rounds  # without the part that depends on t
        self._log_inverse = np.asarray(math.log(rounds) - np.log(delta))

    def log_inverse(self, t: float | Array) -> Array:
        """Return log(1 / delta_t), without checking ``t``; it depends on ``t`` only with "anytime"."""
        if not self.is_anytime:
            return self._log_inverse
        growing = 1.0 + np.log(t)
        return np.asarray(self._log_inverse + np.log(2.0 * t * growing * growing))


@formula
def confidence_level(
    delta: ArrayLike, t: ArrayLike, *, confidence: str = "pointwise", horizon: int | None = None
) -> Lanes:
    """Return the confidence parameter that enters the radius at round t; see :class:`ConfidenceLevel`.

    >>> confidence_level(0.05, 1, confidence="anytime")
    0.025
    """
    fixed = ConfidenceLevel(delta, confidence, horizon)
    if not fixed.is_anytime:
        return np.broadcast_arrays(fixed.level, t)[0].copy()
    rounds = check_at_least("t", t, 1)
    return fixed.level / (2.0 * rounds * (1.0 + np.log(rounds)) ** 2)


@formula
class Growth:
    """The argument of the logarithm in a radius, minus 1: ratio (1 - gamma^(2t)) / (1 - gamma^2).

    Its limit at gamma = 1 is ratio t. With a window, t is replaced by min(t, window).

    >>> float(Growth(0.5, gamma=1.0)(6.0))
    3.0
    """

    def __init__(self, ratio: float, gamma: ArrayLike, window: ArrayLike | None = None) -> None:
        self.window = None if window is None else np.array(window)
        # The growth is curved * expm1(t log gamma^2) if gamma < 1, and straight * t if gamma is 1. The logarithm is
        # 2 log gamma, so that gamma^2 is never rounded near 1.
        self.log_square = 2.0 * np.log(gamma)
        is_flat = self.log_square == 0.0
        self.straight = np.where(is_flat, ratio, 0.0)
        self.curved = np.where(is_flat, 0.0, ratio / np.expm1(np.where(is_flat, -1.0, self.log_square)))
        self._any_flat, self._all_flat = bool(is_flat.any()), bool(is_flat.all())

    def __call__(self, t: float | Array) -> Array:
        """Return the growth at round ``t``, which is not checked."""
        if self.window is not None:
            t = np.minimum(t, self.window)
        if self._all_flat:
            return np.asarray(t * self.straight)
        growth: Array = self.curved * np.expm1(t * self.log_square)
        return growth + t * self.straight if self._any_flat else growth


@formula
class Radius:
    """beta_t(delta) of BVD-GLM-UCB (Faury et al. 2021, Lemma 1 and Algorithm 1), with everything but t fixed.

    sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta_t) + d log(1 + L^2 (1 - gamma^(2t)) / (lam d (1 - gamma^2)))), with
    delta_t of :func:`confidence_level`. The exponent is 2t as printed, although the sum at round t has t - 1 terms.
    With "pointwise" it does not cover all rounds at once. It never covers the tracking error of a drift.

    ``c_mu=1`` gives the radius of D-LinUCB (Russac et al. 2019), used with the norm of V^-1 Vtilde V^-1. With a window
    (and ``gamma=1``) the count is min(t, w) and Vtilde = V; the paper only says that this form follows easily, and its
    linear counterpart is not the radius printed for SW-LinUCB by Cheung et al. 2019.

    A call takes t, a float or an array of real numbers that are at least 0 (at least 1 with "anytime"), and returns an
    array of the shape that t, ``gamma`` and ``delta`` broadcast to. An entry depends on its own t, gamma and delta
    only, bit for bit, whatever the number of lanes.

    >>> beta = Radius(dim=2, gamma=[0.9, 0.99], S=1.0, L=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=0.2)
    >>> beta(100.0).round(3)
    array([1.664, 1.949])
    """

    def __init__(
        self, *, dim: int, gamma: ArrayLike, S: float, L: float, lam: float, sigma: float, delta: ArrayLike,
        c_mu: float, confidence: str = "pointwise", horizon: int | None = None, window: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        self._growth = Growth(L**2 / (lam * dim), gamma, window)
        self.confidence = ConfidenceLevel(delta, confidence, horizon)
        # sigma is moved under the root. Constants are 0-d arrays: NumPy multiplies by those faster than by floats.
        self._bias, self._scale = np.asarray(math.sqrt(lam) * c_mu * S), np.asarray(dim * sigma**2)
        self._noise = np.asarray(2.0 * sigma**2)
        self._fixed_noise = None if confidence == "anytime" else self._noise * self.confidence.log_inverse(1.0)
        self._constants: Array | None = None  # for ``since``

    def since(self, born: Array, t: float) -> Array:
        """Return beta at round ``t`` of lanes that started in the rounds ``born``, [lanes]: the form that policies use.

        It equals ``self(t - born + 1.0)`` up to rounding and takes a fraction of the time.
        """
        if self._constants is None or len(self._constants) != len(born):
            self._constants = self._pack(len(born))
        out = np.empty(len(born))
        self._kernel(t, born, self._constants, out)
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the compiled form, which the copy rebuilds."""
        return {**vars(self), "_constants": None, "_kernel": None}

    def _pack(self, lanes: int) -> Array:
        """Return the constants of every lane, for the compiled form of the radius."""
        from windvane.kernels import radii  # on first use: formulas alone do not need compiled code

        self._kernel = radii.radius_lanes
        growth, anytime = self._growth, self._noise if self.confidence.is_anytime else 0.0
        columns = {
            radii.BIAS: self._bias, radii.LOG_SQUARE: growth.log_square, radii.STRAIGHT: growth.straight,
            radii.CURVED: growth.curved, radii.WINDOW: math.inf if growth.window is None else growth.window,
            radii.SCALE: self._scale, radii.ANYTIME: anytime,
            radii.NOISE: self._noise * self.confidence.log_inverse(1.0) - anytime * math.log(2.0),
        }  # fmt: skip
        constants = np.empty((lanes, len(columns)))
        for column, value in columns.items():
            constants[:, column] = value
        return constants

    def __call__(self, t: float | Array) -> Array:
        """Return beta_t, without checking ``t``."""
        noise = self._noise * self.confidence.log_inverse(t) if self._fixed_noise is None else self._fixed_noise
        return np.asarray(self._bias + np.sqrt(self._scale * np.log1p(self._growth(t)) + noise))


@formula
def radius(
    t: ArrayLike, *, dim: int, gamma: ArrayLike, S: float, L: float, lam: float, sigma: float, delta: ArrayLike,
    c_mu: float, confidence: str = "pointwise", horizon: int | None = None,
) -> Lanes:  # fmt: skip
    """Return beta_t(delta) of BVD-GLM-UCB; see :class:`Radius`.

    >>> round(radius(100, dim=2, gamma=0.99, S=1.0, L=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=0.2), 3)
    1.949
    """
    fixed = Radius(
        dim=dim, gamma=gamma, S=S, L=L, lam=lam, sigma=sigma, delta=delta, c_mu=c_mu, confidence=confidence,
        horizon=horizon,
    )  # fmt: skip
    return fixed(check_at_least("t", t, 1 if confidence == "anytime" else 0))


@formula
class OFULRadius:
    """The radius of OFUL (Abbasi-Yadkori et al. 2011) as a function of log det(V / lam), of the undiscounted V.

    sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V / lam)). It covers all rounds at once with the plain delta, so
    there is no ``confidence`` to choose. It is not valid for a discounted or a windowed V. A logarithm that is negative
    by rounding counts as 0.

    >>> float(OFULRadius(S=1.0, lam=4.0, sigma=1.0, delta=1.0)(9.0))
    5.0
    """

    def __init__(self, *, S: float, lam: float, sigma: float, delta: ArrayLike) -> None:
        self._bias, self._sigma = np.asarray(math.sqrt(lam) * S), np.asarray(sigma)
        self._noise = 2.0 * np.log(np.asarray(delta))

    def __call__(self, log_det_ratio: float | Array) -> Array:
        """Return the radius, without checking ``log_det_ratio``."""
        return np.asarray(self._bias + self._sigma * np.sqrt(np.maximum(log_det_ratio, 0.0) - self._noise))
