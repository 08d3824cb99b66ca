"""Laws of rewards and of their delays. Each reward and each delay is computed from one uniform in [0, 1).

The reward of an arm has mean mu(<x, theta*>). Rewards lie in [0, 2 sigma], or sigma is the scale of the noise. A law
can be used with every link whose means over ``|z| <= S L`` it allows. A delay of 0 means that the reward arrives before
the next decision, as without a delay law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from windvane.arguments import Array, Index, check_between, check_positive, check_whole
from windvane.documentation import documented
from windvane.environments.fields import LATEST, Record, record, setting
from windvane.errors import ArgumentError
from windvane.links import Link

LARGEST_SHIFT = 1e-6  # how far the truncation of counts may move a mean
LARGEST_COUNT = 1e6  # mean of a count: the number of steps to draw it grows like the square root
_LARGEST_MEAN = 1e100  # if any reward is allowed
_LEAST_UNIFORM = 2.0**-54  # replaces u = 0, where the inverse normal distribution is infinite; half the next u
_LARGEST_UNIFORM = 1.0 - 2.0**-53


@documented
class BoundRewards(NamedTuple):
    """A reward law bound to a link.

    Parameters
    ----------
    sigma
        The sigma that a policy needs: rewards lie in [0, 2 sigma], or the noise has this sub-Gaussian scale.
    draw
        ``draw(u, mean)`` computes rewards from uniforms.
    low, high
        The means that ``draw`` accepts.

    >>> from windvane.links import Logistic
    >>> BernoulliRewards().bind(Logistic(), 1.0).draw(np.array([0.3, 0.7]), np.array([0.5, 0.5]))
    array([1., 0.])
    """

    sigma: float
    draw: Callable[[Array, Array], Array]
    low: float
    high: float


class RewardLaw(Record):
    """Base class of reward laws. A subclass implements ``_bind``.

    >>> sorted(REWARD_LAWS)
    ['bernoulli', 'binomial', 'gaussian', 'poisson']
    """

    def bind(self, link: Link, largest_z: float) -> BoundRewards:
        """Return the rewards of ``link`` over ``|z| <= largest_z``, usually S L; raise if a mean is impossible."""
        return self._bind(link, largest_z)

    def _bind(self, link: Link, largest_z: float) -> BoundRewards:
        raise NotImplementedError


def _check_means(law: RewardLaw, link: Link, largest_z: float, low: float, high: float) -> float:
    """Return the largest mean after checking that all lie in [low, high]."""
    least, most = link.mean([-largest_z, largest_z]).tolist()  # a link is increasing
    if not low <= least <= most <= high:  # written as `not x <= y` so that NaN is rejected
        expected = f"a law whose means, in [{low:g}, {high:g}], include the link's"
        means = f"the {link.name} link has means in [{least:.6g}, {most:.6g}] for |z| <= {largest_z:g}"
        raise ArgumentError("rewards", law, expected, hint=means)
    return float(most)


@record("bernoulli")
class BernoulliRewards(RewardLaw):
    """1 with probability mu, else 0: 1 if u < mu; sigma is 1/2."""

    def _bind(self, link: Link, largest_z: float) -> BoundRewards:
        _check_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, _draw_bernoulli, 0.0, 1.0)


def _draw_bernoulli(u: Array, mean: Array) -> Array:
    return (u < mean).astype(float)


@record("gaussian")
class GaussianRewards(RewardLaw):
    """mu + ``sd`` z, z standard normal; sigma is ``sd``, or a setting if the link bounds rewards to [0, 2 sigma].

    Bounded noise is truncated symmetrically at the distance of mu from the nearer bound: the mean is exactly mu.

    >>> from windvane.links import Identity
    >>> GaussianRewards(sd=0.1).bind(Identity(), 1.0).draw(np.array([0.5]), np.array([0.7]))
    array([0.7])
    """

    sd: float = setting("Standard deviation of the noise before truncation.", check_positive, default=0.5)
    sigma: float | None = setting("Required if (and only if) the link bounds rewards.", check_positive, default=None)

    def _bind(self, link: Link, largest_z: float) -> BoundRewards:
        if link.any_reward:
            if self.sigma is not None:
                raise ArgumentError("sigma", self.sigma, f"omitted with the {link.name} link, where sigma is sd")
            return BoundRewards(self.sd, partial(_draw_normal, self.sd, math.inf), -_LARGEST_MEAN, _LARGEST_MEAN)
        if self.sigma is None:
            raise ArgumentError("sigma", None, f"given with the {link.name} link, whose rewards lie in [0, 2 sigma]")
        most = 2.0 * self.sigma
        _check_means(self, link, largest_z, 0.0, most)
        return BoundRewards(self.sigma, partial(_draw_normal, self.sd, most), 0.0, most)


def _draw_normal(sd: float, most: float, u: Array, mean: Array) -> Array:
    """Return mean + sd z, z standard normal given |sd z| <= h, with h the distance to the nearer end of [0, most].

    z = sqrt(2) erfinv((2u - 1) erf(h/(sd sqrt(2)))); without an upper end, h is infinite.
    """
    from scipy.special import erf, erfinv

    scale, side = sd * math.sqrt(2.0), 2.0 * np.maximum(u, _LEAST_UNIFORM) - 1.0
    if math.isinf(most):
        return np.asarray(mean + scale * erfinv(side))
    reach = np.minimum(mean, most - mean)
    return np.asarray(np.clip(mean + scale * erfinv(side * erf(reach / scale)), 0.0, most))


@record("binomial")
class BinomialRewards(RewardLaw):
    """The share of successes in independent trials that succeed with probability mu; sigma is 1/2.

    >>> from windvane.links import Logistic
    >>> BinomialRewards(trials=4).bind(Logistic(), 1.0).draw(np.array([0.5]), np.array([0.5]))
    array([0.5])
    """

    trials: int = setting("Number of trials.", check_whole, 1, int(LARGEST_COUNT), default=10)

    def _bind(self, link: Link, largest_z: float) -> BoundRewards:
        _check_means(self, link, largest_z, 0.0, 1.0)
        return BoundRewards(0.5, partial(_draw_counts, self.kind, self.trials), 0.0, 1.0)


def _draw_counts(kind: str, most: int, u: Array, mean: Array) -> Array:
    """Return the share of successes in ``most`` trials, or min(N, ``most``) with N Poisson."""
    from windvane.kernels import drawing

    rewards = np.empty(len(u))
    getattr(drawing, f"draw_{kind}")(u, mean, most, rewards)
    return rewards


@record("poisson")
class PoissonRewards(RewardLaw):
    """min(N, ``bound``), N Poisson of mean mu; sigma is ``bound``/2. The bound must move every mean by less than 1e-6.

    >>> from windvane.links import Poisson
    >>> PoissonRewards().bind(Poisson(), 1.0).sigma
    7.0
    """

    bound: int | None = setting("The largest count. Default: the smallest allowed one.", check_whole, 1, default=None)

    def _bind(self, link: Link, largest_z: float) -> BoundRewards:
        most = _check_means(self, link, largest_z, 0.0, LARGEST_COUNT)
        least_bound = _find_least_bound(most)
        bound = least_bound if self.bound is None else self.bound
        if bound < least_bound:
            why = f"a smaller bound moves the largest mean, {most:.6g}, by {LARGEST_SHIFT:g} or more"
            raise ArgumentError("bound", bound, f"at least {least_bound}", hint=why)
        return BoundRewards(0.5 * bound, partial(_draw_counts, self.kind, bound), 0.0, LARGEST_COUNT)


def _find_least_bound(mean: float) -> int:
    """Return the least b >= 1 with mean - E min(N, b) = sum over k >= b of P(N > k) below the allowed shift.

    It lies above the mean; 12 standard deviations and 60 counts beyond the mean, the rest of the sum is below 1e-30.
    """
    from scipy.special import pdtrc

    first = max(1, math.floor(mean))
    counts = np.arange(first, first + 60 + math.ceil(12.0 * math.sqrt(mean)))
    shift = np.cumsum(pdtrc(counts, mean)[::-1])[::-1]
    return int(counts[np.argmax(shift < LARGEST_SHIFT)])


REWARD_LAWS: dict[str, type[RewardLaw]] = {law.kind: law for law in RewardLaw.__subclasses__()}


def natural_rewards(link: Link, largest_z: float) -> RewardLaw:
    """Return the usual law of a link: Gaussian if any reward is allowed, Bernoulli if means are in [0, 1], Poisson."""
    if link.any_reward:
        return GaussianRewards()
    low, high = link.mean([-largest_z, largest_z]).tolist()
    if 0.0 <= low <= high <= 1.0:
        return BernoulliRewards()
    if link.name == PoissonRewards.kind:
        return PoissonRewards()
    raise ArgumentError("rewards", None, f"given: the link {link.name!r} has no usual law of rewards")


class DelayLaw(Record):
    """Base class of delay laws; every delay in [``least``, ``most``] is equally likely unless ``draw`` is overridden.

    >>> sorted(DELAYS)
    ['fixed', 'geometric', 'none', 'uniform']
    """

    least: int = 0
    most: int = 0

    def draw(self, u: Array) -> Index:
        """Return delays in rounds: the inverse distribution function at uniforms ``u`` in [0, 1)."""
        return self.least + np.floor(u * (self.most - self.least + 1)).astype(np.int64)


@record("none")
class NoDelay(DelayLaw):
    """Every reward arrives at once, with delay 0."""


@record("fixed")
class FixedDelay(DelayLaw):
    """Every reward arrives the same number of rounds late.

    >>> FixedDelay(4).draw(np.array([0.3, 0.9])).tolist()
    [4, 4]
    """

    rounds: int = setting("The delay.", check_whole, 0, LATEST)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_field("least", self.rounds)
        self.set_field("most", self.rounds)


@record("geometric")
class GeometricDelay(DelayLaw):
    """P(delay = k) = p (1 - p)^k for k = 0, 1, ..., with p = 1/(1 + mean), cut off at ``most``.

    >>> GeometricDelay(1.0).draw(np.array([0.3, 0.6, 0.8])).tolist()
    [0, 1, 2]
    """

    mean: float = setting("Mean delay before the cut-off.", check_between, 0, 1e9)
    most: int = setting("Largest delay. Default: that of the largest uniform.", check_whole, 0, LATEST, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most is None:
            self.set_field("most", int(self._invert(np.array(_LARGEST_UNIFORM))))

    def _invert(self, u: Array) -> Array:
        """Return the least k with 1 - (1 - p)^{k+1} > u."""
        if self.mean == 0.0:
            return np.zeros_like(u)
        return np.asarray(np.floor(np.log1p(-u) / -math.log1p(1.0 / self.mean)))  # log(1 - p) = -log(1 + 1/mean)

    def draw(self, u: Array) -> Index:
        """Return the inverse distribution function at ``u``."""
        return np.minimum(self._invert(u), self.most).astype(np.int64)


@record("uniform")
class UniformDelay(DelayLaw):
    """Every whole number of rounds in [``least``, ``most``] is equally likely.

    >>> UniformDelay(2, 5).draw(np.array([0.0, 0.5, 0.99])).tolist()
    [2, 4, 5]
    """

    least: int = setting("The smallest delay.", check_whole, 0, LATEST)
    most: int = setting("The largest delay.")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.set_field("most", check_whole("most", self.most, self.least, LATEST))


DELAYS: dict[str, type[DelayLaw]] = {law.kind: law for law in DelayLaw.__subclasses__()}
