"""Inverse link functions: the mean mu of a reward as a function of z = <x, theta>.

b, a primitive of mu, is the log-partition function. k_mu and c_mu are the supremum and the infimum of mu' over
``|z| <= S L``, and R_mu = k_mu / c_mu.

Policies evaluate built-in links in compiled kernels; the methods here are the NumPy form, equal up to rounding. A
custom link is any pair of vectorised callables (:class:`CustomLink`). Arguments outside their range raise
:class:`windvane.errors.ArgumentError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from windvane.arguments import LARGEST, Array, check_positive
from windvane.documentation import documented
from windvane.errors import ArgumentError

_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# The condition number of the Hessian grows like R_mu. Beyond this value fewer than 4 of a double's 16 digits are left.
LARGEST_R_MU = 1e12
_LOGISTIC_DERIVATIVES = {3: 1 / 8, 5: 1 / 4, 7: 17 / 16, 9: 31 / 4, 11: 691 / 8}  # |mu^(n)(0)|
_LARGEST_EXPONENT = 708.0  # the last whole z with exp(z) and exp(-z) normal doubles; the exponential is constant beyond

# The numerical checks of a custom link.
_GRID = 4001  # points over |z| <= S L; an extreme of mu' between them is then located on a finer grid
_FINE_GRID = 2001
_FINGERPRINT_POINTS = 17
_DIFFERENCE_STEP = 1e-5  # central differences: truncation of order 1e-10, rounding of order 1e-11
_LARGEST_DIFFERENCE = 1e-4  # between a derivative and the difference quotient, relative to the derivative
_LEAST_SHARE = 1e-3  # of the largest derivative: smaller derivatives are compared relative to this share

Function = Callable[[Array], npt.ArrayLike]


@documented
@dataclass(frozen=True)
class LinkConstants:
    """k_mu, c_mu and R_mu = k_mu / c_mu of a link over ``|z| <= S L``.

    >>> LinkConstants(k_mu=0.25, c_mu=0.2).R_mu
    1.25
    """

    k_mu: float
    c_mu: float

    @property
    def R_mu(self) -> float:
        """k_mu / c_mu; infinity if c_mu is 0."""
        return self.k_mu / self.c_mu if self.c_mu > 0 else math.inf


@documented
class Link:
    """Base class of links: strictly increasing, continuously differentiable inverse link functions.

    ``code`` is the number of the compiled link, or -1 if the link is evaluated in NumPy; ``largest_mean`` bounds
    ``|mu|`` on the whole line. If ``any_reward`` is true, any finite reward is accepted and sigma is the sub-Gaussian
    scale of the noise; otherwise rewards are in [0, 2 sigma].

    >>> float(Logistic().mean(0.0))
    0.5
    """

    name: str
    code: int = -1
    largest_mean: float = math.inf
    any_reward: bool = False
    _mean: Function
    _slope: Function
    _primitive: Function | None

    def __init_subclass__(cls) -> None:
        documented(cls)

    def mean(self, z: npt.ArrayLike) -> Array:
        """Return mu(z)."""
        return np.asarray(self._mean(np.array(z, dtype=float)), dtype=float)

    def slope(self, z: npt.ArrayLike) -> Array:
        """Return mu'(z)."""
        return np.asarray(self._slope(np.array(z, dtype=float)), dtype=float)

    def primitive(self, z: npt.ArrayLike) -> Array:
        """Return b(z) with b' = mu; raise if the link has no primitive."""
        if self._primitive is None:
            raise ArgumentError("link", self, "a link with a primitive", got=repr(self))
        return np.asarray(self._primitive(np.array(z, dtype=float)), dtype=float)

    def constants(self, S: float, L: float) -> LinkConstants:
        """Return k_mu, c_mu and R_mu over ``|z| <= S L``; raise if mu' is too flat there for double precision."""
        product = check_positive("S", S) * check_positive("L", L)
        constants = self._constants(product)
        if not constants.R_mu <= LARGEST_R_MU:  # written as `not x <= y` so that NaN is rejected
            expected = f"at most {self.largest_product:.3g} with the {self.name} link"
            raise ArgumentError("S * L", product, expected, got=f"{product:.6g}", hint="use a smaller S or L")
        return constants

    @cached_property
    def largest_product(self) -> float:
        """The largest S * L that :meth:`constants` accepts, rounded down to three digits; infinity for identity."""
        accepted, rejected = 0.0, 1.0
        while self._accepts(rejected):
            accepted, rejected = rejected, 2.0 * rejected
            if rejected > LARGEST:
                return math.inf
        for _ in range(50):  # each step halves the bracket, 53 bits wide at most; three digits are kept
            middle = 0.5 * (accepted + rejected)
            accepted, rejected = (middle, rejected) if self._accepts(middle) else (accepted, middle)
        step = 10.0 ** (math.floor(math.log10(accepted)) - 2) if accepted else 1.0
        return math.floor(accepted / step) * step

    def _accepts(self, product: float) -> bool:
        try:
            return self._constants(product).R_mu <= LARGEST_R_MU
        except Exception:  # a custom link may be infinite or undefined that far out, and may raise anything
            return False

    def _constants(self, largest: float) -> LinkConstants:
        raise NotImplementedError

    def mean_bound(self, largest: float) -> float:
        """Return sup of ``|mu|`` over ``|z| <= largest``; for a link bounded on the whole line, its global bound."""
        if self.largest_mean < math.inf:
            return self.largest_mean
        ends = np.abs(self.mean([-largest, largest]))
        return float(ends.max()) if np.isfinite(ends).all() else math.inf

    def remainder(self, order: int) -> float:
        """Return sup ``|mu^(order + 1)|`` / (order + 1)! for an even order, with which Taylor's remainder is bounded.

        For Poisson it is the value at z = 0, to be multiplied by mu. Infinity: unknown.
        """
        return math.inf

    def reward_range(self, sigma: float) -> tuple[float, float]:
        """Return the range of rewards that this link accepts: [0, 2 sigma] (Assumption 2 of the paper), or any."""
        return (-math.inf, math.inf) if self.any_reward else (0.0, 2.0 * sigma)

    def fingerprint(self, largest: float) -> list[str | float]:
        """Return the identity of this link in a saved state: name, range of rewards, means over ``|z| <= largest``."""
        z = np.linspace(-largest, largest, _FINGERPRINT_POINTS)
        return [self.name, *self.reward_range(1.0), *self.mean(z).tolist()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _BuiltInLink(Link):
    def _constants(self, largest: float) -> LinkConstants:
        slopes = self.slope([-largest, 0.0, largest])  # the extremes of every built-in slope are at 0 or at an end
        return LinkConstants(float(slopes.max()), float(slopes.min()))


class Identity(_BuiltInLink):
    """mu(z) = z: linear rewards. Any finite reward is accepted.

    >>> float(Identity().mean(0.3))
    0.3
    """

    name, code, any_reward = "identity", 0, True

    def _mean(self, z: Array) -> Array:
        return z

    def _slope(self, z: Array) -> Array:
        return np.ones_like(z)

    def _primitive(self, z: Array) -> Array:
        return 0.5 * np.square(z)

    def remainder(self, order: int) -> float:
        """Return 0."""
        return 0.0


class Logistic(_BuiltInLink):
    """mu(z) = 1 / (1 + e^-z): clicks and conversions.

    >>> Logistic().constants(S=1.0, L=1.0).k_mu
    0.25
    """

    name, code, largest_mean = "logistic", 1, 1.0

    def _mean(self, z: Array) -> Array:
        e = np.exp(-np.abs(z))
        return np.where(z >= 0, 1.0, e) / (1.0 + e)

    def _slope(self, z: Array) -> Array:
        e = np.exp(-np.abs(z))
        return e / (1.0 + e) ** 2

    def _primitive(self, z: Array) -> Array:
        return np.logaddexp(0.0, z)

    def remainder(self, order: int) -> float:
        """Return the bound. Odd derivatives are largest at z = 0."""
        return _LOGISTIC_DERIVATIVES.get(order + 1, math.inf) / math.factorial(order + 1)


class Poisson(_BuiltInLink):
    """mu(z) = e^z: counts. The mean is e^708 beyond z = 708.

    >>> float(Poisson().mean(0.0))
    1.0
    """

    name, code = "poisson", 2

    def _mean(self, z: Array) -> Array:
        return np.exp(np.clip(z, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))

    _slope = _primitive = _mean

    def remainder(self, order: int) -> float:
        """Return the bound at z = 0."""
        return 1.0 / math.factorial(order + 1)


class Probit(_BuiltInLink):
    """mu(z) = Phi(z), the standard normal distribution function: a binary reward with a Gaussian latent score.

    >>> float(Probit().mean(0.0))
    0.5
    """

    name, code, largest_mean = "probit", 3, 1.0

    def _mean(self, z: Array) -> Array:
        from scipy.special import ndtr

        return np.asarray(ndtr(z))

    def _slope(self, z: Array) -> Array:
        return _INV_SQRT_2PI * np.exp(-0.5 * np.minimum(z * z, 2 * _LARGEST_EXPONENT))

    def _primitive(self, z: Array) -> Array:
        return z * self.mean(z) + self._slope(z)

    def remainder(self, order: int) -> float:
        """Return the bound. Odd derivatives are Hermite functions of even degree, largest at z = 0."""
        return math.prod(range(1, order, 2)) * _INV_SQRT_2PI / math.factorial(order + 1)


class CustomLink(Link):
    """A link made from vectorised callables and evaluated in NumPy: correct, but far slower than a built-in one.

    :meth:`~Link.constants` checks numerically over ``|z| <= S L`` that the callables are finite and keep the shape of
    their argument, that the slope is positive, and that it is the derivative of the mean, and the mean that of the
    primitive.

    Parameters
    ----------
    name
        Name of the link.
    mean, slope
        mu, strictly increasing, and its derivative mu'.
    primitive
        b with b' = mu; optional.
    any_reward
        If true, any finite reward is accepted and sigma is a sub-Gaussian scale; otherwise rewards are in [0, 2 sigma].

    >>> link = CustomLink("softplus", lambda z: np.logaddexp(0, z), lambda z: 1 / (1 + np.exp(-z)))
    >>> round(link.constants(S=1.0, L=1.0).k_mu, 6)
    0.731059
    """

    def __init__(
        self, name: str, mean: Function, slope: Function, primitive: Function | None = None, *, any_reward: bool = False
    ) -> None:
        for argument, function in (("mean", mean), ("slope", slope), ("primitive", primitive)):
            if not callable(function) and not (argument == "primitive" and function is None):
                raise ArgumentError(argument, function, "callable")
        if not isinstance(name, str):
            raise ArgumentError("name", name, "text")
        self.name, self.any_reward, self.mean_function = name, any_reward, mean
        self._mean, self._slope, self._primitive = mean, slope, primitive

    def __repr__(self) -> str:
        return f"CustomLink({self.name!r})"

    def _error(self, expected: str, got: str | None = None) -> ArgumentError:
        return ArgumentError("link", self, expected, got=f"{self!r}" + (f", where {got}" if got else ""))

    def _constants(self, largest: float) -> LinkConstants:
        z = np.linspace(-largest, largest, _GRID)
        slope = self.slope(z)
        self._check(z, slope)
        # A finer grid around each extreme grid point: this needs no smoothness beyond continuity.
        step = z[1] - z[0]
        around = [np.linspace(z[i] - step, z[i] + step, _FINE_GRID) for i in (np.argmax(slope), np.argmin(slope))]
        highest, lowest = (self.slope(np.clip(points, -largest, largest)) for points in around)
        return LinkConstants(float(highest.max()), float(lowest.min()))

    def _check(self, z: Array, slope: Array) -> None:
        mean = self.mean(z)
        if mean.shape != z.shape or slope.shape != z.shape:
            raise self._error("a link whose mean and slope return an array of the same shape as their argument")
        if not (np.isfinite(mean).all() and np.isfinite(slope).all()):
            raise self._error(f"a link whose mean and slope are finite for |z| <= {z[-1]:g}")
        if slope.min() <= 0.0:
            where = z[int(np.argmin(slope))]
            raise self._error("a link whose slope is positive", f"slope({where:g}) = {slope.min():g}")
        h = _DIFFERENCE_STEP * max(1.0, z[-1])
        pairs = [("slope", "mean", self.mean, slope), ("mean", "primitive", self.primitive, mean)]
        for name, of, function, derivative in pairs[: 1 if self._primitive is None else 2]:
            with np.errstate(invalid="ignore"):
                numeric = (function(z + h) - function(z - h)) / (2 * h)
            size = np.abs(derivative)
            worst = float(np.max(np.abs(numeric - derivative) / np.maximum(size, _LEAST_SHARE * size.max())))
            if not worst < _LARGEST_DIFFERENCE:  # written as `not x < y` so that NaN is rejected
                difference = f"{name} is not the derivative of {of} (relative difference {worst:.2g})"
                raise self._error(f"a link whose {name} is the derivative of {of}", difference)


LINKS: dict[str, type[Link]] = {link.name: link for link in _BuiltInLink.__subclasses__()}


@documented
def get_link(link: str | Link) -> Link:
    """Return the link of this name. A ``Link`` is returned unchanged.

    >>> get_link("logistic")
    Logistic()
    """
    if isinstance(link, Link):
        if link.code >= 0 and type(link) not in LINKS.values():
            raise ArgumentError("link", link, "a link with code = -1 if it subclasses a built-in link")
        return link
    if isinstance(link, str) and link in LINKS:
        return LINKS[link]()
    raise ArgumentError("link", link, f"one of {', '.join(sorted(LINKS))}, or a Link")
