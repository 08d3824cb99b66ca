"""Doubly robust scores, with the reward model truncated so that they are bounded below.

For a signed policy delta, such as pi itself, -pi, or the difference of two policies, and a predictable reward model q,

    D_t = sum_a delta(a) q(a) + delta(a_t) / p_t(a_t) (r_t - q(a_t))

has the conditional mean sum_a delta(a) E[r_t(a)], whatever q is. If rewards are in [0, 1] and

    q(a) <= k b(a) / delta(a) where delta(a) > 0       and       1 - q(a) <= k b(a) / |delta(a)| where delta(a) < 0,

where b(a) <= p_t(a) is known before the arm is drawn, then the last term is at least -k, and so is D_t, up to the sum
of the negative entries of delta. Where the log has the probabilities of all arms, b = p. Where it has only that of the
arm that was played, b is the declared floor: p_t of the played arm alone is not known for the others, and a q that
depends on which arm was played would bias the score.
"""

from __future__ import annotations

import numpy as np

from windvane.arguments import Array, Index

LIMITS = (0.0, 1.0, 4.0, 16.0)  # the truncations k; 0 is inverse propensity weighting
UNLIMITED = 64.0  # added to them where no floor is declared; fixed, because k must not depend on the log
_HUGE = 1e300  # in place of b / 0, so that 0 times it is 0


def choose_limits(floor: float | None, *, has_all: bool) -> Array:
    """Return the truncations for a log.

    Parameters
    ----------
    floor
        The declared floor. At k = 1 / floor nothing is truncated, so there is no larger one.
    has_all
        Whether the log has the probabilities of all arms.

    Returns
    -------
    array
        The truncations, increasing from 0. Without a floor or all probabilities only 0 is possible.

    Examples
    --------
    >>> choose_limits(0.1, has_all=False)
    array([ 0.,  1.,  4., 10.])
    >>> choose_limits(None, has_all=True)
    array([ 0.,  1.,  4., 16., 64.])
    >>> choose_limits(None, has_all=False)
    array([0.])
    """
    if floor is not None:
        return np.array([*(k for k in LIMITS if k < 1.0 / floor), 1.0 / floor])
    return np.array([*LIMITS, UNLIMITED] if has_all else LIMITS[:1])


class RowScores:
    """The scores of some rows.

    Parameters
    ----------
    q
        The predicted mean rewards in [0, 1], [n, K].
    least
        Lower bounds b of the logging probabilities of all arms, known before the arm was drawn, [n, K] or one number.
    played, propensity, reward
        The index, the probability and the reward of the arm that was played, [n].

    Examples
    --------
    >>> rows = RowScores(np.array([[0.5, 0.9]]), 0.5, np.array([1]), np.array([0.5]), np.array([1.0]))
    >>> rows.score(np.array([[0.0, 1.0]]))
    array([1.1])
    >>> rows.truncate(np.array([[0.0, 1.0]]), np.array([0.0, 1.0]))
    array([[2. ],
           [1.5]])
    """

    def __init__(self, q: Array, least: Array | float, played: Index, propensity: Array, reward: Array) -> None:
        self.q, self.least, self.played, self.propensity, self.reward = q, least, played, propensity, reward
        self.every = np.arange(len(played))

    def weigh(self, delta: Array) -> Array:
        """Return delta(a_t) / p_t(a_t), [n]."""
        return np.asarray(delta[self.every, self.played] / self.propensity)

    def score(self, delta: Array) -> Array:
        """Return the scores with the reward model as it is, [n]."""
        return self._score(delta, self.q)

    def truncate(self, delta: Array, limits: Array) -> Array:
        """Return the scores for each truncation k of the reward model, [limits, n]."""
        size = np.abs(delta)
        reach = np.divide(self.least, size, out=np.full(delta.shape, _HUGE), where=size > 0.0)
        reach = np.minimum(reach, _HUGE) * limits[:, None, None]
        q = np.where(delta >= 0.0, np.minimum(self.q, reach), np.maximum(self.q, 1.0 - reach))
        return self._score(delta, q)

    def _score(self, delta: Array, q: Array) -> Array:
        direct = np.einsum("nk,...nk->...n", delta, q)
        return np.asarray(direct + self.weigh(delta) * (self.reward - q[..., self.every, self.played]))
