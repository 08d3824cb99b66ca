"""Confidence radii: how far an estimate may be from the parameter it tracks.

A radius is a class whose constructor checks the arguments and precomputes whatever does not depend on the round, so
that a policy can evaluate it every round; the functional forms check the round too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_choice, check_not_negative, check_positive, check_whole
from windvane.errors import ArgumentError
from windvane.theory.array_arguments import (
    Lanes,
    check_at_least,
    check_broadcast,
    check_entries,
    check_proportion,
    to_lanes,
)

CONFIDENCES: tuple[str, ...] = ("pointwise", "horizon", "anytime")


def discounted_count(gamma: ArrayLike, t: ArrayLike) -> Lanes:
    """Return (1 - gamma^t) / (1 - gamma), the sum of gamma^i for i = 0..t-1; t itself at gamma = 1.

    Parameters
    ----------
    gamma, t : discount in (0, 1], and a real number that is at least 0; numbers or arrays

    Notes
    -----
    The radius counts with gamma^2; it works from log gamma, because near 1 the square of ``gamma`` loses digits.

    Examples
    --------
    >>> discounted_count(0.5, 3)
    1.75
    """
    discounts, rounds = check_proportion("gamma", gamma), check_at_least("t", t, 0)
    check_broadcast(gamma=discounts, t=rounds)
    log_gamma = np.log(discounts)
    is_flat = log_gamma == 0.0
    safe = np.where(is_flat, -1.0, log_gamma)
    return to_lanes(np.where(is_flat, rounds, np.expm1(rounds * safe) / np.expm1(safe)))


class ConfidenceLevel:
    """The confidence parameter that enters a radius at round t, with everything but t fixed.

    Parameters
    ----------
    delta : confidence parameter in (0, 1], a number or one per lane
    confidence
        "pointwise": delta, as printed in Lemma 1; it covers one fixed round. "horizon": delta / T, a union bound over
        rounds 1..T; rounds after T are not covered. "anytime": delta / (2 t (1 + log t)^2), which sums to at most delta
        over all t >= 1.
    horizon : the number of rounds T; required for "horizon" and ignored otherwise

    Examples
    --------
    >>> float(ConfidenceLevel(0.05, "horizon", horizon=100).log_inverse(1.0)) == math.log(100 / 0.05)
    True
    """

    def __init__(self, delta: ArrayLike, confidence: str = "pointwise", horizon: int | None = None) -> None:
        rounds = 1
        self.is_anytime = check_choice("confidence", confidence, CONFIDENCES) == "anytime"
        if confidence == "horizon":
            if horizon is None:
                raise ArgumentError("horizon", horizon, "a whole number, at least 1, if confidence is 'horizon'")
            rounds = check_whole("horizon", horizon, 1)
        levels = check_proportion("delta", delta)
        self.level = levels / rounds  # without the part that depends on t
        self._log_inverse = np.asarray(math.log(rounds) - np.log(levels))

    def log_inverse(self, t: float | Array) -> Array:
        """Return log(1 / delta_t), without a check of ``t``; it depends on ``t`` with "anytime" only."""
        if not self.is_anytime:
            return self._log_inverse
        growing = 1.0 + np.log(t)
        return np.asarray(self._log_inverse + np.log(2.0 * t * growing * growing))

    def check_rounds(self, t: ArrayLike) -> Array:
        """Return ``t`` as an array of rounds: at least 0, and at least 1 with "anytime"."""
        return check_at_least("t", t, 1 if self.is_anytime else 0)


def confidence_level(
    delta: ArrayLike, t: ArrayLike, *, confidence: str = "pointwise", horizon: int | None = None
) -> Lanes:
    """Return the confidence parameter that enters the radius at round t; see :class:`ConfidenceLevel`.

    Parameters
    ----------
    delta, confidence, horizon : as for :class:`ConfidenceLevel`
    t : round, or an array of rounds: at least 0, and at least 1 with "anytime"

    Examples
    --------
    >>> confidence_level(0.05, 1, confidence="anytime")
    0.025
    """
    fixed = ConfidenceLevel(delta, confidence, horizon)
    rounds = fixed.check_rounds(t)
    check_broadcast(delta=fixed.level, t=rounds)
    if fixed.is_anytime:
        return to_lanes(fixed.level / (2.0 * rounds * (1.0 + np.log(rounds)) ** 2))
    return to_lanes(np.broadcast_arrays(fixed.level, rounds)[0].copy())


class Growth:
    """The argument of the logarithm in a radius, less 1: ratio (1 - gamma^(2t)) / (1 - gamma^2).

    Parameters
    ----------
    ratio : factor, at least 0, such as L^2 / (lam d)
    gamma : discount in (0, 1], a number or one per lane; the limit at gamma = 1 is ratio t
    window : if given, t is replaced by min(t, window)

    Examples
    --------
    >>> float(Growth(0.5, gamma=1.0)(6.0))
    3.0
    """

    def __init__(self, ratio: float, gamma: ArrayLike, window: ArrayLike | None = None) -> None:
        ratio, discounts = check_not_negative("ratio", ratio), check_proportion("gamma", gamma)
        self.window = None if window is None else check_entries("window", window, "above 0", lambda w: w > 0).copy()
        if self.window is not None:
            check_broadcast(gamma=discounts, window=self.window)
        # The growth is curved * expm1(t log gamma^2) if gamma < 1, and straight * t if gamma is 1. The logarithm is
        # 2 log gamma, so that gamma^2 is never rounded near 1.
        self.log_square = 2.0 * np.log(discounts)
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


class Radius:
    """beta_t(delta) of BVD-GLM-UCB (Faury et al. 2021, Lemma 1 and Algorithm 1), with everything but t fixed.

    Parameters
    ----------
    dim, gamma, S, L, lam, sigma, delta, c_mu : see :mod:`windvane.theory`; gamma and delta may have one entry per lane
    confidence, horizon : as for :class:`ConfidenceLevel`
    window : length w of a sliding window, a number or one per lane, for ``gamma=1``

    Notes
    -----
    sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta_t) + d log(1 + L^2 (1 - gamma^(2t)) / (lam d (1 - gamma^2)))), with
    delta_t of :func:`confidence_level`. The exponent is 2t as printed, although the sum at round t has t - 1 terms.
    With "pointwise" it does not cover all rounds at once. It never covers the tracking error of a drift.

    ``c_mu=1`` gives the radius of D-LinUCB (Russac et al. 2019), used with the norm of V^-1 Vtilde V^-1. In a window
    the count is min(t, w) and Vtilde = V; the paper only says that this form follows easily, and its linear
    counterpart is not the radius printed for SW-LinUCB by Cheung et al. 2019.

    A call takes t, a float or an array of real numbers that are at least 0 (at least 1 with "anytime"), checks nothing,
    and returns an array of the shape that t, ``gamma`` and ``delta`` broadcast to. An entry depends on its own t, gamma
    and delta only, bit for bit, whatever the number of lanes.

    Examples
    --------
    >>> beta = Radius(dim=2, gamma=[0.9, 0.99], S=1.0, L=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=0.2)
    >>> beta(100.0).round(3)
    array([1.664, 1.949])
    """

    def __init__(
        self, *, dim: int, gamma: ArrayLike, S: float, L: float, lam: float, sigma: float, delta: ArrayLike,
        c_mu: float, confidence: str = "pointwise", horizon: int | None = None, window: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        dim, lam, sigma = check_whole("dim", dim, 1), check_positive("lam", lam), check_positive("sigma", sigma)
        self._bias = np.asarray(math.sqrt(lam) * check_positive("c_mu", c_mu) * check_positive("S", S))
        self._growth = Growth(check_positive("L", L) ** 2 / (lam * dim), gamma, window)
        self.confidence = ConfidenceLevel(delta, confidence, horizon)
        windows = {} if window is None else {"window": np.asarray(window)}
        check_broadcast(gamma=np.asarray(gamma), **windows, delta=self.confidence.level)
        # sigma is moved under the root. Constants are 0-d arrays: NumPy multiplies by those faster than by floats.
        self._scale, self._noise = np.asarray(dim * sigma**2), np.asarray(2.0 * sigma**2)
        self._fixed_noise = None if self.confidence.is_anytime else self._noise * self.confidence.log_inverse(1.0)
        self._constants: Array | None = None  # of ``since``

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
        """Leave out the compiled form, which the copy makes again."""
        return {**vars(self), "_constants": None, "_kernel": None}

    def _pack(self, lanes: int) -> Array:
        """Return the constants of every lane, for the compiled form of the radius."""
        from windvane.kernels import radii  # on first use: formulas alone do not need compiled code

        self._kernel = radii.radius_lanes
        growth, noise = self._growth, self._noise if self._fixed_noise is None else 0.0
        fixed = self._noise * self.confidence.log_inverse(1.0) - noise * math.log(2.0)
        columns = {
            radii.BIAS: self._bias,
            radii.LOG_SQUARE: growth.log_square,
            radii.STRAIGHT: growth.straight,
            radii.CURVED: growth.curved,
            radii.WINDOW: math.inf if growth.window is None else growth.window,
            radii.SCALE: self._scale,
            radii.NOISE: fixed,
            radii.ANYTIME: noise,
        }
        constants = np.empty((lanes, len(columns)))
        for column, value in columns.items():
            constants[:, column] = value
        return constants

    def __call__(self, t: float | Array) -> Array:
        """Return beta_t, without a check of ``t``."""
        noise = self._noise * self.confidence.log_inverse(t) if self._fixed_noise is None else self._fixed_noise
        return np.asarray(self._bias + np.sqrt(self._scale * np.log1p(self._growth(t)) + noise))


def radius(
    t: ArrayLike, *, dim: int, gamma: ArrayLike, S: float, L: float, lam: float, sigma: float, delta: ArrayLike,
    c_mu: float, confidence: str = "pointwise", horizon: int | None = None,
) -> Lanes:  # fmt: skip
    """Return beta_t(delta) of BVD-GLM-UCB; see :class:`Radius`.

    Parameters
    ----------
    t : round, or an array of rounds: at least 0, and at least 1 with "anytime"
    dim, gamma, S, L, lam, sigma, delta, c_mu, confidence, horizon : as for :class:`Radius`

    Examples
    --------
    >>> round(radius(100, dim=2, gamma=0.99, S=1.0, L=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=0.2), 3)
    1.949
    """
    fixed = Radius(
        dim=dim, gamma=gamma, S=S, L=L, lam=lam, sigma=sigma, delta=delta, c_mu=c_mu, confidence=confidence,
        horizon=horizon,
    )  # fmt: skip
    rounds = fixed.confidence.check_rounds(t)
    check_broadcast(gamma=np.asarray(gamma), delta=fixed.confidence.level, t=rounds)
    return to_lanes(fixed(rounds))


class OFULRadius:
    """The radius of OFUL (Abbasi-Yadkori et al. 2011) as a function of log det(V / lam), of the undiscounted V.

    Parameters
    ----------
    S, lam, sigma, delta : see :mod:`windvane.theory`; delta may have one entry per lane

    Notes
    -----
    sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V / lam)). It covers all rounds at once with the plain delta, so
    there is no ``confidence`` to choose. It is not valid for a discounted or a windowed V. A call checks nothing; a
    logarithm that is negative by rounding counts as 0.

    Examples
    --------
    >>> float(OFULRadius(S=1.0, lam=4.0, sigma=1.0, delta=1.0)(9.0))
    5.0
    """

    def __init__(self, *, S: float, lam: float, sigma: float, delta: ArrayLike) -> None:
        self._bias = np.asarray(math.sqrt(check_positive("lam", lam)) * check_positive("S", S))
        self._sigma = np.asarray(check_positive("sigma", sigma))
        self.level = check_proportion("delta", delta).copy()
        self._noise = 2.0 * np.log(self.level)

    def __call__(self, log_det_ratio: float | Array) -> Array:
        """Return the radius, without a check of ``log_det_ratio``."""
        return np.asarray(self._bias + self._sigma * np.sqrt(np.maximum(log_det_ratio, 0.0) - self._noise))
