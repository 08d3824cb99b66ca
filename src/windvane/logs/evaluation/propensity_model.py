"""A prequential estimate of the propensities, for logs without them. Estimates that use it are biased."""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array, Index, Mask

CLIP = 0.05  # of the uniform probability 1 / K: an estimated weight is then at most 20 K
STEP = 0.5  # of AdaGrad, relative to the norm bound L of the vectors
CHUNK = 64  # rows between two steps; estimates use only rows of earlier chunks


class PropensityModel:
    """A conditional logit model: p(a) is proportional to exp(<x_a, b> + c_a), fitted online with AdaGrad.

    c_a is a constant for the place of the arm in the offer, so arms that always have the same place are distinguished
    even if their vectors are equal.

    Parameters
    ----------
    dim, arms, L
        The dimension of the vectors, the largest number of arms, and a bound on the norms of vectors.

    Examples
    --------
    >>> model = PropensityModel(2, 2, 1.0)
    >>> arms, valid = np.eye(2)[None].repeat(640, axis=0), np.ones((640, 2), dtype=bool)
    >>> p = model.estimate(arms, valid, np.zeros(640, dtype=int))
    >>> float(p[0, 0]), bool(p[-1, 0] > 0.9)
    (0.5, True)
    """

    def __init__(self, dim: int, arms: int, L: float) -> None:
        self._slope, self._slope_squares, self._L = np.zeros(dim), np.zeros(dim), L
        self._constant, self._constant_squares = np.zeros(arms), np.zeros(arms)

    def estimate(self, arms: Array, valid: Mask, played: Index) -> Array:
        """Return the probabilities of all arms of the next rows, clipped, [n, K], and learn which were played."""
        chunks = [slice(start, start + CHUNK) for start in range(0, len(arms), CHUNK)]
        p = np.concatenate([self._step(arms[rows], valid[rows], played[rows]) for rows in chunks])
        least = CLIP * valid / valid.sum(axis=1, keepdims=True)
        return np.asarray(np.maximum(p, least))

    def _step(self, arms: Array, valid: Mask, played: Index) -> Array:
        n, K = valid.shape
        z = np.where(valid, arms @ self._slope + self._constant[:K], -np.inf)
        odds = np.exp(z - z.max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        error = -p
        error[np.arange(n), played] += 1.0
        slope, constant = np.einsum("nk,nkd->d", error, arms) / n, error.sum(axis=0) / n
        self._slope_squares += slope**2
        self._constant_squares[:K] += constant**2
        self._slope += STEP / self._L * _divide(slope, self._slope_squares)
        self._constant[:K] += STEP * _divide(constant, self._constant_squares[:K])
        return np.asarray(p)


def _divide(gradient: Array, squares: Array) -> Array:
    return np.divide(gradient, np.sqrt(squares), out=np.zeros_like(gradient), where=squares > 0.0)
