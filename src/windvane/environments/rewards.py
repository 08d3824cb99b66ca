"""Reward laws: what is seen when an arm of mean mu(<x, theta*>) is played. One uniform in [0, 1) makes one reward.

=========  =====================================================  ======================================================
kind       reward                                                 sigma (rewards in [0, 2 sigma], or scale of the noise)
=========  =====================================================  ======================================================
bernoulli  1 with probability mu, else 0                          1/2
gaussian   mu + ``sd`` times a standard normal number             ``sd``; where rewards are bounded, the given ``sigma``
binomial   the share of successes in ``trials`` trials            1/2
poisson    min(N, ``bound``), N Poisson of mean mu                ``bound``/2
=========  =====================================================  ======================================================

Any link will do whose means over ``|z| <= S L`` the law allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from windvane.arguments import Array, check_positive, check_whole
from windvane.environments._fields import keep
from windvane.links import Link

LARGEST_SHIFT = 1e-6  # how far the truncation of counts may move the mean
LARGEST_COUNT = 1e6  # as a mean: drawing a count takes a number of steps like the root of it
_LARGEST_MEAN = 1e100  # where any reward goes
_LEAST = 2.0**-54  # stands for u = 0 where the inverse distribution is infinite there


@dataclass(frozen=True)
class BoundRewards:
    """A reward law for one link: ``draw(u, mean)`` turns uniforms into rewards, for means within [low, high].

    ``sigma`` is what a policy is told.
    """

    sigma: float
    draw: Callable[[Array, Array], Array]
    low: float
    high: float


class RewardLaw:
    """How rewards scatter about their mean. Subclasses are frozen dataclasses with a ``kind``."""

    kind: ClassVar[str]

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """The rewards of ``link`` over ``|z| <= largest_z``; refused where a mean is not possible under this law."""
        raise NotImplementedError


def _mean_range(link: Link, largest_z: float) -> tuple[float, float]:
    """The smallest and the largest mean: a link is increasing."""
    low, high = link.mean(np.array([-largest_z, largest_z])).tolist()
    return low, high


def _allow_means(law: RewardLaw, link: Link, largest_z: float, low: float, high: float) -> float:
    """The largest mean, after a check that all lie in [low, high]."""
    least, most = _mean_range(link, largest_z)
    if not low <= least <= most <= high:  # not a number, too
        raise ValueError(
            f"rewards={law!r}: means lie in [{least:.6g}, {most:.6g}] under link={link.name!r} for "
            f"|z| <= {largest_z:g}, must be within [{low:g}, {high:g}]"
        )
    return most


@dataclass(frozen=True)
class BernoulliRewards(RewardLaw):
    """1 with probability mu, else 0: 1 where u < mu."""

    kind: ClassVar[str] = "bernoulli"

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        _allow_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, _bernoulli, 0.0, 1.0)


def _bernoulli(u: Array, mean: Array) -> Array:
    return (u < mean).astype(float)


@dataclass(frozen=True)
class GaussianRewards(RewardLaw):
    """mu + ``sd`` z, z standard normal.

    Where the link bounds rewards to [0, 2 sigma], ``sigma`` must be given, and the noise is cut off symmetrically at
    the distance of mu from the nearer bound, so that the mean is still exactly mu.
    """

    kind: ClassVar[str] = "gaussian"
    sd: float = 0.5
    sigma: float | None = None

    def __post_init__(self) -> None:
        sigma = None if self.sigma is None else check_positive("sigma", self.sigma)
        keep(self, sd=check_positive("sd", self.sd), sigma=sigma)

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        if takes_any_reward(link):
            if self.sigma is not None:
                raise ValueError(
                    f"sigma={self.sigma:g}: link={link.name!r} takes any reward, sigma is sd; leave it out"
                )
            return BoundRewards(self.sd, _Normal(self.sd, math.inf), -_LARGEST_MEAN, _LARGEST_MEAN)
        if self.sigma is None:
            raise ValueError(f"sigma=None: link={link.name!r} takes rewards in [0, 2 sigma], say which sigma")
        _allow_means(self, link, largest_z, 0.0, 2.0 * self.sigma)
        return BoundRewards(self.sigma, _Normal(self.sd, 2.0 * self.sigma), 0.0, 2.0 * self.sigma)


@dataclass(frozen=True)
class _Normal:
    """mean + sd z, z standard normal given |sd z| <= h, with h the distance to the nearer end of [0, most].

    z = sqrt(2) erfinv((2u - 1) erf(h/(sd sqrt(2)))); without an upper end, h is infinite.
    """

    sd: float
    most: float

    def __call__(self, u: Array, mean: Array) -> Array:
        from scipy.special import erf, erfinv

        scale = self.sd * math.sqrt(2.0)
        side = 2.0 * np.maximum(u, _LEAST) - 1.0
        if math.isinf(self.most):
            return np.asarray(mean + scale * erfinv(side))
        reach = np.minimum(mean, self.most - mean)
        return np.asarray(np.clip(mean + scale * erfinv(side * erf(reach / scale)), 0.0, self.most))


def takes_any_reward(link: Link) -> bool:
    return math.isinf(link.reward_range(1.0)[1])


@dataclass(frozen=True)
class BinomialRewards(RewardLaw):
    """The share of successes in ``trials`` independent trials that succeed with probability mu."""

    kind: ClassVar[str] = "binomial"
    trials: int = 10

    def __post_init__(self) -> None:
        keep(self, trials=check_whole("trials", self.trials, 1, int(LARGEST_COUNT)))

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        _allow_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, self._draw, 0.0, 1.0)

    def _draw(self, u: Array, mean: Array) -> Array:
        from windvane.kernels import drawing

        rewards = np.empty(len(u))
        drawing.draw_binomial(u, mean, self.trials, rewards)
        return rewards


@dataclass(frozen=True)
class PoissonRewards(RewardLaw):
    """min(N, ``bound``), N Poisson of mean mu.

    ``bound`` must be so high that it moves no mean by 1e-6 or more; by default it is the smallest such one.
    """

    kind: ClassVar[str] = "poisson"
    bound: int | None = None

    def __post_init__(self) -> None:
        keep(self, bound=None if self.bound is None else check_whole("bound", self.bound, 1))

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        most = _allow_means(self, link, largest_z, 0.0, LARGEST_COUNT)
        least_bound = _least_bound(most)
        if self.bound is not None and self.bound < least_bound:
            raise ValueError(
                f"bound={self.bound}: moves the largest mean, {most:.6g}, by {LARGEST_SHIFT:g} or more; "
                f"must be at least {least_bound}"
            )
        bound = least_bound if self.bound is None else self.bound
        return BoundRewards(0.5 * bound, _Counts(bound), 0.0, LARGEST_COUNT)


@dataclass(frozen=True)
class _Counts:
    """min(N, bound), N Poisson, by its inverse distribution function."""

    bound: int

    def __call__(self, u: Array, mean: Array) -> Array:
        from windvane.kernels import drawing

        rewards = np.empty(len(u))
        drawing.draw_poisson(u, mean, self.bound, rewards)
        return rewards


def _least_bound(mean: float) -> int:
    """The least b >= 1 with mean - E min(N, b) = sum over k >= b of P(N > k) below the allowed shift.

    It lies above the mean; 12 standard deviations and 60 counts further on, what is left of the sum is below 1e-30.
    """
    from scipy.special import pdtrc

    first = max(1, math.floor(mean))
    counts = np.arange(first, first + 60 + math.ceil(12.0 * math.sqrt(mean)))
    shift = np.cumsum(pdtrc(counts, mean)[::-1])[::-1]
    return int(counts[np.argmax(shift < LARGEST_SHIFT)])


REWARD_LAWS: dict[str, type[RewardLaw]] = {
    law.kind: law for law in (BernoulliRewards, GaussianRewards, BinomialRewards, PoissonRewards)
}


def natural_rewards(link: Link, largest_z: float) -> RewardLaw:
    """The law that goes without saying: Gaussian where any reward goes, Bernoulli where means are chances; counts."""
    if takes_any_reward(link):
        return GaussianRewards()
    low, high = _mean_range(link, largest_z)
    if 0.0 <= low <= high <= 1.0:
        return BernoulliRewards()
    if link.name == PoissonRewards.kind:
        return PoissonRewards()
    raise ValueError(f"rewards=None: link={link.name!r} has no natural law of rewards, say which")
