"""Thinning: on-policy learning on a share of the traffic, without estimates of probabilities.

In every row the policy draws its arm with ``select``. If it is the logged arm, the row is accepted with probability
c / p, where p is the probability with which the log played it and c is at most the floor of all logging probabilities,
fixed beforehand. Given the past and the context, a row is accepted with probability

    sum_a pi(a) p(a) c / p(a) = c,

and the arm of an accepted row has the distribution pi, independent of the rewards of the arms. So rewards are missing
completely at random with probability 1 - c: the accepted rows are an exact on-policy run in the same drifting world,
of a policy that decides every row and observes the reward of a share c of its decisions (Li, Chu, Langford and Wang
2011; there, every accepted row was a round, which is wrong under drift).

The coins are the numbers of a counter-based generator with the key (seed, purpose), one per row, so they do not depend
on the policy. The same coin is used for all shares.

A row of weight W, which represents W decisions of which the others were dropped at random, is accepted with probability
c W / (p W_max): then the accepted rows are a share c / W_max of the original traffic.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from windvane.arguments import Array, Mask, check_number
from windvane.errors import ArgumentError
from windvane.logs.evaluation.survey import SLACK
from windvane.logs.log import LogBatch

PARTS = (1.0, 0.5, 0.25)  # of the share: they show how the value depends on it, so nothing is extrapolated
COINS = 0x7468696E  # the purpose of the coins in the key of their generator
ESTIMAND = "mean reward per decision of an on-policy run that observes a share c of its rewards"
CAVEAT = "rewards are missing at random with probability 1 - c; a policy that observes all its rewards learns faster"


def choose_shares(share: float | None, floor: float | None) -> tuple[float, ...]:
    """Return the shares of the traffic: c, c / 2 and c / 4.

    Parameters
    ----------
    share
        c. Default: the floor.
    floor
        The floor of all logging probabilities. Without one there is no share.

    Returns
    -------
    tuple of float
        The shares, from the largest.

    Examples
    --------
    >>> choose_shares(None, 0.2)
    (0.2, 0.1, 0.05)
    """
    if share is not None:
        share = check_number("share", share, "in (0, 1]", lambda value: 0.0 < value <= 1.0)
    if floor is None:
        if share is not None:
            hint = "pass `floor`, a lower bound on the probability of every arm"
            raise ArgumentError(
                "share", share, "omitted, because no floor of the logging probabilities is known", hint=hint
            )
        return ()
    c = floor if share is None else share
    if c > floor * (1.0 + SLACK):
        raise ArgumentError("share", c, f"at most {floor:g}, the floor of the logging probabilities")
    return tuple(c * part for part in PARTS)


class Coins:
    """The random draws that accept rows, in the order of the rows.

    Parameters
    ----------
    seed
        The seed. A coin depends on the seed and the number of the row only.
    shares
        The shares c of the lanes.
    largest_weight
        The largest weight of a row.

    Examples
    --------
    >>> from windvane.logs import from_arrays
    >>> log = from_arrays(np.eye(2)[None].repeat(4, axis=0), [0, 1, 0, 1], [1.0] * 4, propensity=[0.5] * 4)
    >>> [Coins(0, (0.5, 0.25), 1.0).toss(batch)[:, 0].all() for batch in log.batches()]
    [np.True_]
    """

    def __init__(self, seed: int, shares: tuple[float, ...], largest_weight: float) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=[seed, COINS]))
        self._shares = np.array(shares) / largest_weight

    def toss(self, batch: LogBatch) -> Mask:
        """Return which of the next rows pass the coin toss of each share, [n, shares]. Rows without p do not."""
        coins: Array = 1.0 - self._generator.random(len(batch))  # in (0, 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = batch.weight[:, None] * self._shares / batch.propensity[:, None]
        return np.asarray((coins[:, None] <= chance * (1.0 + SLACK)) & (batch.propensity > 0.0)[:, None])


def iterate_passes(batches: Iterator[LogBatch], coins: Coins, learns_all: int) -> Iterator[tuple[LogBatch, Mask]]:
    """Yield every batch with the coin tosses of its rows, [n, lanes]; the first lanes always pass."""
    for batch in batches:
        yield batch, np.concatenate([np.ones((len(batch), learns_all), dtype=bool), coins.toss(batch)], axis=1)
