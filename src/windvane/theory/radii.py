"""Confidence radii: how far an estimate may lie from the parameter it tracks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from windvane.arguments import Array, check_choice, check_positive, check_whole
from windvane.theory._checks import Lanes, at_least, log_det, plain, proportion

CONFIDENCES: tuple[str, ...] = ("pointwise", "horizon", "anytime")


def discounted_count(gamma: ArrayLike, t: ArrayLike) -> Lanes:
    """(1 - gamma^t) / (1 - gamma), the sum of gamma^i for i = 0..t-1; t itself at gamma = 1.

    `t` may be any real >= 0. The count in the radius, (1 - gamma^(2t)) / (1 - gamma^2), is that of gamma^2;
    prefer `radius`, which works from log gamma, to squaring `gamma` here: near 1 the square loses digits.
    """
    log_gamma = np.log(proportion("gamma", gamma))
    rounds, flat = at_least("t", t, 0), log_gamma == 0.0
    safe = np.where(flat, -1.0, log_gamma)
    return plain(np.where(flat, rounds, np.expm1(rounds * safe) / np.expm1(safe)))


def _union(confidence: str, horizon: int | None) -> int:
    """The number of rounds by which `confidence` divides delta, 1 when it does not divide by a constant."""
    if check_choice("confidence", confidence, CONFIDENCES) != "horizon":
        return 1
    if horizon is None:
        raise ValueError("horizon=None: must be a whole number, at least 1, when confidence is 'horizon'")
    return check_whole("horizon", horizon, 1)


def _rounds(t: ArrayLike, confidence: str) -> Array:
    return at_least("t", t, 1 if confidence == "anytime" else 0)


def confidence_level(
    delta: ArrayLike, t: ArrayLike, *, confidence: str = "pointwise", horizon: int | None = None
) -> Lanes:
    """The delta that enters the radius at round t.

    "pointwise": delta, as printed in Lemma 1 (it covers one fixed round, see the module's docstring).
    "horizon":   delta / T, a union bound over rounds 1..T; rounds after T are not covered. Needs `horizon`.
    "anytime":   delta / (2 t (1 + log t)^2), t >= 1, which sums to at most delta over all t >= 1.
    """
    level, rounds = proportion("delta", delta) / _union(confidence, horizon), _rounds(t, confidence)
    if confidence == "anytime":
        return plain(level / (2.0 * rounds * (1.0 + np.log(rounds)) ** 2))
    return plain(np.broadcast_arrays(level, rounds)[0].copy())


class Growth:
    """ratio (1 - gamma^(2t)) / (1 - gamma^2), or ratio min(t, window): 1 more is what a radius takes the log of.

    The limit at gamma = 1 is ratio t. log gamma^2 is taken as 2 log gamma, so that gamma^2 is never rounded near 1.
    """

    def __init__(self, ratio: float, gamma: Array, window: Array | None = None) -> None:
        # curved * expm1(t log gamma^2) where gamma < 1, and straight * t where gamma is 1
        self._log_square = 2.0 * np.log(gamma)
        flat = self._log_square == 0.0
        self._straight = np.where(flat, ratio, 0.0)
        self._curved = np.where(flat, 0.0, ratio / np.expm1(np.where(flat, -1.0, self._log_square)))
        self._any_flat, self._all_flat = bool(flat.any()), bool(flat.all())
        self._window = window

    def __call__(self, t: float | Array) -> Array:
        if self._window is not None:
            t = np.minimum(t, self._window)
        if self._all_flat:
            return np.asarray(t * self._straight)
        growth: Array = self._curved * np.expm1(t * self._log_square)
        return growth + t * self._straight if self._any_flat else growth


class Radius:
    """beta_t(delta) of `radius` with everything but t fixed: arguments are checked once, calls check nothing.

    A call takes t, a float or an array of reals >= 0 (>= 1 when `confidence` is "anytime"), and returns an
    array of the shape that t, `gamma` and `delta` broadcast to. An entry depends on its own t, gamma and
    delta alone, bit for bit, whatever the number of lanes. c_mu = 1 gives the radius of D-LinUCB, and
    `window` (with gamma = 1) that of `window_radius`.
    """

    def __init__(
        self,
        *,
        dim: int,
        gamma: ArrayLike,
        S: float,
        L: float,
        lam: float,
        sigma: float,
        delta: ArrayLike,
        c_mu: float,
        confidence: str = "pointwise",
        horizon: int | None = None,
        window: Array | None = None,
    ) -> None:
        d, reg = check_whole("dim", dim, 1), check_positive("lam", lam)
        discounts, level = proportion("gamma", gamma), proportion("delta", delta)
        try:
            np.broadcast_shapes(discounts.shape, level.shape)
        except ValueError:
            shapes = f"gamma has shape {discounts.shape} and delta {level.shape}"
            raise ValueError(f"{shapes}: must broadcast together") from None
        rounds = _union(confidence, horizon)
        self._anytime = confidence == "anytime"
        # Scalars are kept as 0-d arrays: NumPy multiplies by those faster than by Python floats.
        self._dim = np.asarray(float(d))
        self._sigma = np.asarray(check_positive("sigma", sigma))
        self._bias = np.asarray(math.sqrt(reg) * check_positive("c_mu", c_mu) * check_positive("S", S))
        # -2 log of the part of delta_t that is the same in every round.
        self._log_level = 2.0 * (math.log(rounds) - np.log(level))
        self._growth = Growth(check_positive("L", L) ** 2 / (reg * d), discounts, window)

    def __call__(self, t: float | Array) -> Array:
        growth = self._growth(t)
        log_level = self._log_level
        if self._anytime:
            slowly = 1.0 + np.log(t)
            log_level = log_level + 2.0 * np.log(2.0 * t * slowly * slowly)
        return np.asarray(self._bias + self._sigma * np.sqrt(self._dim * np.log1p(growth) + log_level))


def radius(
    t: ArrayLike,
    *,
    dim: int,
    gamma: ArrayLike,
    S: float,
    L: float,
    lam: float,
    sigma: float,
    delta: ArrayLike,
    c_mu: float,
    confidence: str = "pointwise",
    horizon: int | None = None,
) -> Lanes:
    """beta_t(delta) of BVD-GLM-UCB (Faury et al. 2021, Lemma 1 and Algorithm 1).

    sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta_t) + d log(1 + L^2 (1 - gamma^(2t)) / (lam d (1 - gamma^2)))),
    with delta_t = `confidence_level(delta, t)`. The exponent is 2t as printed, although the sum at round t
    has t - 1 terms. Does not cover all rounds at once with "pointwise", nor the tracking error of a drift.
    """
    fixed = Radius(
        dim=dim,
        gamma=gamma,
        S=S,
        L=L,
        lam=lam,
        sigma=sigma,
        delta=delta,
        c_mu=c_mu,
        confidence=confidence,
        horizon=horizon,
    )
    return plain(fixed(_rounds(t, confidence)))


def linear_radius(
    t: ArrayLike,
    *,
    dim: int,
    gamma: ArrayLike,
    S: float,
    L: float,
    lam: float,
    sigma: float,
    delta: ArrayLike,
    confidence: str = "pointwise",
    horizon: int | None = None,
) -> Lanes:
    """Radius of D-LinUCB (Russac et al. 2019): `radius` with bias sqrt(lam) S, that is c_mu = 1.

    It goes with the norm of V^-1 Vtilde V^-1. Its "pointwise" form covers one fixed round, as for `radius`.
    """
    return radius(
        t,
        dim=dim,
        gamma=gamma,
        S=S,
        L=L,
        lam=lam,
        sigma=sigma,
        delta=delta,
        c_mu=1.0,
        confidence=confidence,
        horizon=horizon,
    )


def window_radius(
    t: ArrayLike,
    *,
    dim: int,
    window: ArrayLike,
    S: float,
    L: float,
    lam: float,
    sigma: float,
    delta: ArrayLike,
    c_mu: float,
    confidence: str = "pointwise",
    horizon: int | None = None,
) -> Lanes:
    """Sliding-window form of beta_t: weight 1 on the last w rounds, hence Vtilde = V.

    sqrt(lam) c_mu S + sigma sqrt(2 log(1/delta_t) + d log(1 + L^2 min(t, w) / (lam d))). The paper only says
    that this form follows easily; c_mu = 1 gives its linear counterpart, which is not the radius printed for
    SW-LinUCB by Cheung et al. 2019.
    """
    fixed = Radius(
        dim=dim,
        gamma=1.0,
        S=S,
        L=L,
        lam=lam,
        sigma=sigma,
        delta=delta,
        c_mu=c_mu,
        confidence=confidence,
        horizon=horizon,
        window=at_least("window", window, 1),
    )
    return plain(fixed(_rounds(t, confidence)))


def oful_radius(log_det_ratio: ArrayLike, *, S: float, lam: float, sigma: float, delta: ArrayLike) -> Lanes:
    """Radius of OFUL (Abbasi-Yadkori et al. 2011): sqrt(lam) S + sigma sqrt(2 log(1/delta) + log det(V/lam)).

    `log_det_ratio` is log det(V / lam) of the undiscounted V. It covers all rounds at once with the plain
    delta, so there is no `confidence` to choose. Not valid for a discounted or a windowed V.
    """
    level = proportion("delta", delta)
    noise = np.sqrt(log_det("log_det_ratio", log_det_ratio) - 2.0 * np.log(level))
    return plain(
        np.asarray(
            math.sqrt(check_positive("lam", lam)) * check_positive("S", S) + check_positive("sigma", sigma) * noise
        )
    )
