"""Reward laws: the reward of playing an arm of mean mu(<x, theta*>). Each is made from one uniform in [0, 1).

=========  =====================================================  ======================================================
kind       reward                                                 sigma (rewards in [0, 2 sigma], or scale of the noise)
=========  =====================================================  ======================================================
bernoulli  1 with probability mu, else 0                          1/2
gaussian   mu + ``sd`` times a standard normal number             ``sd``; if rewards are bounded, the given ``sigma``
binomial   the share of successes in ``trials`` trials            1/2
poisson    min(N, ``bound``), N Poisson of mean mu                ``bound``/2
=========  =====================================================  ======================================================

A law can be used with every link whose means over ``|z| <= S L`` it allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from windvane.arguments import Array, check_positive, check_whole
from windvane.environments.fields import set_fields
from windvane.errors import ArgumentError
from windvane.links import Link

LARGEST_SHIFT = 1e-6  # how far the truncation of counts may move a mean
LARGEST_COUNT = 1e6  # mean of a count: the number of steps to draw it grows like the square root
_LARGEST_MEAN = 1e100  # if any reward is allowed
_LEAST_UNIFORM = 2.0**-54  # replaces u = 0, where the inverse normal distribution is infinite; half the least other u


@dataclass(frozen=True)
class BoundRewards:
    """A reward law bound to a link.

    Parameters
    ----------
    sigma : the sigma that a policy needs: rewards lie in [0, 2 sigma], or the noise has this sub-Gaussian scale
    draw : ``draw(u, mean)`` makes rewards from uniforms
    low, high : the means that ``draw`` accepts

    Examples
    --------
    >>> from windvane.links import Logistic
    >>> BernoulliRewards().bind(Logistic(), 1.0).draw(np.array([0.3, 0.7]), np.array([0.5, 0.5]))
    array([1., 0.])
    """

    sigma: float
    draw: Callable[[Array, Array], Array]
    low: float
    high: float


class RewardLaw:
    """Base class of reward laws: frozen dataclasses with a ``kind``.

    Examples
    --------
    >>> sorted(REWARD_LAWS)
    ['bernoulli', 'binomial', 'gaussian', 'poisson']
    """

    kind: ClassVar[str]

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``.

        Parameters
        ----------
        link : the link whose means are the means of rewards
        largest_z : bound on ``|z|``, usually S L
        """
        raise NotImplementedError


def _mean_range(link: Link, largest_z: float) -> tuple[float, float]:
    """Return the smallest and the largest mean: a link is increasing."""
    low, high = link.mean(np.array([-largest_z, largest_z])).tolist()
    return low, high


def _check_means(law: RewardLaw, link: Link, largest_z: float, low: float, high: float) -> float:
    """Return the largest mean after a check that all lie in [low, high]."""
    least, most = _mean_range(link, largest_z)
    if not low <= least <= most <= high:  # written as `not x <= y` so that NaN is rejected
        means = f"the {link.name} link has means in [{least:.6g}, {most:.6g}] for |z| <= {largest_z:g}"
        raise ArgumentError(
            "rewards", law, f"a law whose means, in [{low:g}, {high:g}], include the link's", hint=means
        )
    return most


@dataclass(frozen=True)
class BernoulliRewards(RewardLaw):
    """1 with probability mu, else 0: 1 if u < mu.

    Examples
    --------
    >>> BernoulliRewards()
    BernoulliRewards()
    """

    kind: ClassVar[str] = "bernoulli"

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``; see :meth:`RewardLaw.bind`."""
        _check_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, _bernoulli, 0.0, 1.0)


def _bernoulli(u: Array, mean: Array) -> Array:
    return (u < mean).astype(float)


@dataclass(frozen=True)
class GaussianRewards(RewardLaw):
    """mu + ``sd`` z, z standard normal.

    Parameters
    ----------
    sd : standard deviation of the noise before truncation
    sigma : required if the link bounds rewards to [0, 2 sigma], and not allowed otherwise

    Notes
    -----
    Bounded noise is truncated symmetrically at the distance of mu from the nearer bound, so that the mean is exactly
    mu.

    Examples
    --------
    >>> from windvane.links import Identity
    >>> GaussianRewards(sd=0.1).bind(Identity(), 1.0).draw(np.array([0.5]), np.array([0.7]))
    array([0.7])
    """

    kind: ClassVar[str] = "gaussian"
    sd: float = 0.5
    sigma: float | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        sigma = None if self.sigma is None else check_positive("sigma", self.sigma)
        set_fields(self, sd=check_positive("sd", self.sd), sigma=sigma)

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``; see :meth:`RewardLaw.bind`."""
        if takes_any_reward(link):
            if self.sigma is not None:
                raise ArgumentError("sigma", self.sigma, f"omitted with the {link.name} link, where sigma is sd")
            return BoundRewards(self.sd, _Normal(self.sd, math.inf), -_LARGEST_MEAN, _LARGEST_MEAN)
        if self.sigma is None:
            raise ArgumentError("sigma", None, f"given with the {link.name} link, whose rewards lie in [0, 2 sigma]")
        _check_means(self, link, largest_z, 0.0, 2.0 * self.sigma)
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
        side = 2.0 * np.maximum(u, _LEAST_UNIFORM) - 1.0
        if math.isinf(self.most):
            return np.asarray(mean + scale * erfinv(side))
        reach = np.minimum(mean, self.most - mean)
        return np.asarray(np.clip(mean + scale * erfinv(side * erf(reach / scale)), 0.0, self.most))


def takes_any_reward(link: Link) -> bool:
    """Return whether ``link`` accepts rewards of any size.

    Parameters
    ----------
    link : a link

    Examples
    --------
    >>> from windvane.links import Identity, Logistic
    >>> takes_any_reward(Identity()), takes_any_reward(Logistic())
    (True, False)
    """
    return math.isinf(link.reward_range(1.0)[1])


@dataclass(frozen=True)
class BinomialRewards(RewardLaw):
    """The share of successes in independent trials that succeed with probability mu.

    Parameters
    ----------
    trials : number of trials

    Examples
    --------
    >>> from windvane.links import Logistic
    >>> BinomialRewards(trials=4).bind(Logistic(), 1.0).draw(np.array([0.5]), np.array([0.5]))
    array([0.5])
    """

    kind: ClassVar[str] = "binomial"
    trials: int = 10

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(self, trials=check_whole("trials", self.trials, 1, int(LARGEST_COUNT)))

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``; see :meth:`RewardLaw.bind`."""
        _check_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, self._draw, 0.0, 1.0)

    def _draw(self, u: Array, mean: Array) -> Array:
        from windvane.kernels.drawing import draw_binomial

        rewards = np.empty(len(u))
        draw_binomial(u, mean, self.trials, rewards)
        return rewards


@dataclass(frozen=True)
class PoissonRewards(RewardLaw):
    """min(N, ``bound``), N Poisson of mean mu.

    Parameters
    ----------
    bound
        The largest count. It must be so high that it moves no mean by 1e-6 or more; by default it is the smallest such
        one.

    Examples
    --------
    >>> from windvane.links import Poisson
    >>> PoissonRewards().bind(Poisson(), 1.0).sigma
    7.0
    """

    kind: ClassVar[str] = "poisson"
    bound: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        set_fields(self, bound=None if self.bound is None else check_whole("bound", self.bound, 1))

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``; see :meth:`RewardLaw.bind`."""
        most = _check_means(self, link, largest_z, 0.0, LARGEST_COUNT)
        least_bound = _find_least_bound(most)
        if self.bound is not None and self.bound < least_bound:
            why = f"a smaller bound moves the largest mean, {most:.6g}, by {LARGEST_SHIFT:g} or more"
            raise ArgumentError("bound", self.bound, f"at least {least_bound}", hint=why)
        bound = least_bound if self.bound is None else self.bound
        return BoundRewards(0.5 * bound, _Counts(bound), 0.0, LARGEST_COUNT)


@dataclass(frozen=True)
class _Counts:
    """min(N, bound), N Poisson, by its inverse distribution function."""

    bound: int

    def __call__(self, u: Array, mean: Array) -> Array:
        from windvane.kernels.drawing import draw_poisson

        rewards = np.empty(len(u))
        draw_poisson(u, mean, self.bound, rewards)
        return rewards


def _find_least_bound(mean: float) -> int:
    """Return the least b >= 1 with mean - E min(N, b) = sum over k >= b of P(N > k) below the allowed shift.

    It lies above the mean; 12 standard deviations and 60 counts beyond the mean, the rest of the sum is below 1e-30.
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
    """Return the usual law of a link: Gaussian if any reward is allowed, Bernoulli if means are chances, Poisson.

    Parameters
    ----------
    link : a link
    largest_z : bound on ``|z|``, usually S L

    Examples
    --------
    >>> from windvane.links import Logistic
    >>> natural_rewards(Logistic(), 1.0)
    BernoulliRewards()
    """
    if takes_any_reward(link):
        return GaussianRewards()
    low, high = _mean_range(link, largest_z)
    if 0.0 <= low <= high <= 1.0:
        return BernoulliRewards()
    if link.name == PoissonRewards.kind:
        return PoissonRewards()
    raise ArgumentError("rewards", None, f"given: the link {link.name!r} has no usual law of rewards")
