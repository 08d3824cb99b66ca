"""Maximum likelihood for logistic regression with rewards in [0, 1], and a certified bound on its supremum.

The log-likelihood of a reward r at z = <x, theta> is r z - log(1 + e^z). For a fractional reward it is the mean of the
log-likelihoods of 1 and 0 with the weights r and 1 - r.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from windvane.arguments import Array

CHUNK = 65_536  # rows at a time: the workspace, a weighted copy of them, stays small and in the cache
MOST_STEPS = 60  # Newton's method needs about ten; each step far out moves logits by 1, and 60 reach any double
CLOSE = 1e-12  # squared Newton decrement at which an estimate is final: within 1e-6 of its standard error
RANK = 1e-10  # eigenvalues below this part of the largest are rounding errors of sums of 1e6 terms, and count as 0
GAP = 1e-3  # nats by which the bound on the supremum may exceed the likelihood: nothing against log(1 / alpha)
FLAT = 1e-3  # rows with a component above this part of L in a flat direction may be separated by it
# Information, times L^2, below which a direction is flat. Where rows are separated, a Newton step moves logits by 1 and
# gains about the information that is left, so a bound that gains less than GAP has far less than this left.
FLAT_INFORMATION = 0.03
NEGLIGIBLE = 1e-4  # information and score, times L^2 and L, of directions in which steps are not worth their time
LARGEST_STEP = 5.0  # in logits: from far out, where the information is almost 0, a full step would be far too long
SHORTEST_STEP = 1e-6  # of a line search


class Fit(NamedTuple):
    """An estimate with its log-likelihood (unpenalised), information sum mu' x x' and score at the estimate."""

    theta: Array
    log_likelihood: float
    information: Array
    score: Array


def log_likelihoods(z: Array, reward: Array) -> Array:
    """Return r z - log(1 + e^z) of each row."""
    return np.asarray(reward * z - np.maximum(z, 0.0) - np.log1p(np.exp(-np.abs(z))))


def saturate_likelihoods(reward: Array) -> Array:
    """Return the largest log-likelihood of each reward on its own, r log r + (1 - r) log(1 - r)."""
    r = np.clip(reward, 0.0, 1.0)
    inside = np.where((r > 0.0) & (r < 1.0), r, 0.5)
    entropy = inside * np.log(inside) + (1.0 - inside) * np.log1p(-inside)
    return np.where((r > 0.0) & (r < 1.0), entropy, 0.0)


def means(z: Array) -> Array:
    """Return mu(z) = 1 / (1 + e^-z)."""
    e = np.exp(-np.abs(z))
    return np.where(z >= 0.0, 1.0, e) / (1.0 + e)


def weighted_gram(x: Array, weight: Array) -> Array:
    """Return sum of weight x x'. Weights are not negative."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        scaled = x[part] * np.sqrt(weight[part])[:, None]
        total += scaled.T @ scaled
    return total


class _Evaluation(NamedTuple):
    value: float
    mu: Array
    score: Array


def _evaluate(x: Array, reward: Array, z: Array, weight: Array | None) -> _Evaluation:
    mu, terms = means(z), log_likelihoods(z, reward)
    residual = reward - mu
    if weight is not None:
        terms, residual = terms * weight, residual * weight
    return _Evaluation(float(terms.sum()), mu, residual @ x)


def measure_information(x: Array, mu: Array, weight: Array | None = None) -> Array:
    """Return sum of weight mu (1 - mu) x x'."""
    slope = mu * (1.0 - mu)
    return weighted_gram(x, slope if weight is None else slope * weight)


def fit_logistic(
    x: Array, reward: Array, *, weight: Array | None = None, ridge: float = 0.0, start: Array | None = None,
    close: float = CLOSE,
) -> Fit:  # fmt: skip
    """Maximise sum of weight log p(r | x, theta) - ridge ||theta||^2 / 2 by Newton's method with a line search.

    Parameters
    ----------
    x, reward, weight
        Rows [n, d], rewards in [0, 1], and weights (default: 1).
    ridge
        The penalty. With 0 and separated rows the estimate stops where steps no longer gain anything.
    start
        Where to start. Default: 0.
    close
        Stop at this squared Newton decrement, in nats.

    Returns
    -------
    Fit
        The estimate.

    Examples
    --------
    >>> fit = fit_logistic(np.ones((4, 1)), np.array([1.0, 0.0, 0.0, 0.0]))
    >>> round(float(fit.theta[0]), 6)  # log(1/3)
    -1.098612
    """
    theta = np.zeros(x.shape[1]) if start is None else start.copy()
    z = x @ theta
    now = _evaluate(x, reward, z, weight)
    information = measure_information(x, now.mu, weight)
    for _ in range(MOST_STEPS):
        score = now.score - ridge * theta
        step = solve_positive(information + ridge * np.eye(len(theta)), score)
        decrement = float(score @ step)
        if decrement <= close:
            break
        moved, size, dz = now, 1.0, x @ step
        target = now.value - 0.5 * ridge * float(theta @ theta)
        while size > SHORTEST_STEP:
            moved = _evaluate(x, reward, z + size * dz, weight)
            longer = theta + size * step
            if moved.value - 0.5 * ridge * float(longer @ longer) >= target:
                break
            size *= 0.5
        if size <= SHORTEST_STEP:  # nothing is gained beyond rounding
            break
        theta, z, now = theta + size * step, z + size * dz, moved
        information = measure_information(x, now.mu, weight)
    return Fit(theta, now.value, information, now.score)


def solve_positive(matrix: Array, vector: Array) -> Array:
    """Return the least-norm solution of ``matrix`` u = ``vector`` for a positive semi-definite matrix."""
    return np.asarray(pseudo_inverse(matrix) @ vector)


def pseudo_inverse(matrix: Array) -> Array:
    """Return the pseudo-inverse of a positive semi-definite matrix; eigenvalues below ``RANK`` count as 0."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > RANK * max(float(values[-1]), 1e-300)
    return np.asarray((vectors[:, kept] / values[kept]) @ vectors[:, kept].T)


def sandwich(x: Array, reward: Array, mu: Array, inverse: Array, weight: Array | None = None) -> Array:
    """Return H^-1 (sum of weight^2 (r - mu)^2 x x') H^-1 for the inverse of the information H."""
    residual = reward - mu if weight is None else weight * (reward - mu)
    return np.asarray(inverse @ weighted_gram(x, residual**2) @ inverse)


# --- the supremum -----------------------------------------------------------------------------------------------------


class Supremum(NamedTuple):
    """A bound on sup over all theta of the log-likelihood, and a point at which the likelihood is close to it."""

    upper: float
    theta: Array


class _Spectrum(NamedTuple):
    values: Array
    vectors: Array


def _decompose(information: Array) -> _Spectrum:
    values, vectors = np.linalg.eigh(information)
    kept = values > RANK * max(float(values[-1]), 1e-300)
    return _Spectrum(values[kept], vectors[:, kept])


def bound_gap(decrement: float, reach: float) -> float:
    """Return a bound on sup l - l(theta), given the Newton decrement and reach >= max ||x_i|| in the metric H^-1.

    Notes
    -----
    |mu''| <= mu' makes minus the log-likelihood f generalised self-concordant: along v, with r = ||v||_H and R the
    reach, f(theta + v) >= f(theta) + <g, v> + (e^(-R r) + R r - 1) / R^2 (Sun and Tran-Dinh 2019, with nu = 2). As
    <g, v> >= -lambda r for the Newton decrement lambda, the minimum over r is at e^(-R r) = 1 - u, u = R lambda, and
    the gap is at most (u + (1 - u) log(1 - u)) / R^2 if u < 1, which is about lambda^2 / 2 for a small u. For u >= 1
    there is no bound.

    Examples
    --------
    >>> round(bound_gap(0.01, 0.1) / (0.01**2 / 2), 3)
    1.0
    """
    u = reach * decrement
    if not u < 1.0:
        return np.inf
    if u < 1e-4:  # the series, as the difference loses its digits: u^2 / 2 + u^3 / 6 + ... <= 0.5001 u^2
        return 0.5001 * decrement**2
    return float((u + (1.0 - u) * np.log1p(-u)) / reach**2)


def bound_supremum(x: Array, reward: Array, start: Array, L: float) -> Supremum:
    """Bound the supremum over all theta of the log-likelihood, from above and within about 1e-3 if it is attained.

    Parameters
    ----------
    x, reward
        Rows [n, d] and rewards in [0, 1].
    start
        A theta near the maximum, such as that of the rows before.
    L
        A bound on the norms of ``x``.

    Notes
    -----
    Newton's method runs until :func:`bound_gap` certifies the likelihood. If rows are (quasi-)separated, the supremum
    is not attained and the information in some directions tends to 0. Rows with a component in such a direction then
    count with the largest likelihood of their reward, 0 for a reward of 0 or 1, and the others are certified without
    that direction. If this fails too, all rows count so. The result is an upper bound in every case.

    Examples
    --------
    >>> bound_supremum(np.ones((2, 1)), np.ones(2), np.zeros(1), 1.0).upper  # separated
    0.0
    """
    z, theta = x @ start, start
    now = _evaluate(x, reward, z, None)
    spectrum = _decompose(measure_information(x, now.mu))
    gap = np.inf
    for _ in range(MOST_STEPS):
        step = _choose_step(now.score, spectrum, L)
        dz = x @ step
        size = min(1.0, LARGEST_STEP / max(float(np.abs(dz).max(initial=0.0)), LARGEST_STEP))
        moved = _evaluate(x, reward, z + size * dz, None)
        while moved.value < now.value - GAP and size > SHORTEST_STEP:
            size *= 0.5
            moved = _evaluate(x, reward, z + size * dz, None)
        theta, z, gained = theta + size * step, z + size * dz, moved.value - now.value
        # The information at the new point is at least e^-shift times that at the old one.
        shift = size * float(np.abs(dz).max(initial=0.0))
        now = moved
        gap = _certify(now.score, spectrum, shift, L)
        if gap <= GAP:
            return Supremum(now.value + gap, theta)
        spectrum = _decompose(measure_information(x, now.mu))
        if gained <= GAP:
            gap = _certify(now.score, spectrum, 0.0, L)
            break
    if gap <= GAP:
        return Supremum(now.value + gap, theta)
    return Supremum(min(now.value + gap, _bound_separated(x, reward, z, spectrum, L)), theta)


def _choose_step(score: Array, spectrum: _Spectrum, L: float) -> Array:
    """Return Newton's step, without directions in which next to nothing can be gained."""
    along = spectrum.vectors.T @ score
    worth = (spectrum.values > NEGLIGIBLE * L**2) | (np.abs(along) > NEGLIGIBLE * L)
    return np.asarray((spectrum.vectors[:, worth] / spectrum.values[worth]) @ along[worth])


def _certify(score: Array, spectrum: _Spectrum, shift: float, L: float) -> float:
    """Return the bound on the gap if the information is at least e^-shift times that of ``spectrum``."""
    along = spectrum.vectors.T @ score
    outside = score - spectrum.vectors @ along
    if not len(along) or float(np.abs(outside).max()) > RANK * max(1.0, float(spectrum.values[-1])) * L:
        return 0.0 if not np.abs(score).any() else np.inf
    grow = np.exp(min(shift, 50.0))
    decrement = np.sqrt(grow * float((along**2 / spectrum.values).sum()))
    return bound_gap(float(decrement), float(L * np.sqrt(grow / spectrum.values[0])))


def _bound_separated(x: Array, reward: Array, z: Array, spectrum: _Spectrum, L: float) -> float:
    """Return a bound that counts rows with a component in a flat direction with their saturated likelihood."""
    total = float(saturate_likelihoods(reward).sum())
    steep = spectrum.values > FLAT_INFORMATION * L**2
    outside = np.sqrt(np.maximum(np.square(x).sum(axis=1) - np.square(x @ spectrum.vectors[:, steep]).sum(axis=1), 0.0))
    rest = outside <= FLAT * L
    if not steep.any() or not rest.any() or rest.all():
        return total
    inner = _evaluate(x[rest], reward[rest], z[rest], None)
    kept = _decompose(measure_information(x[rest], inner.mu))
    gap = _certify(inner.score, kept, 0.0, L)
    return min(total, inner.value + gap + float(saturate_likelihoods(reward[~rest]).sum()))
