"""Inverse link functions: the mean mu of a reward as a function of z = <x, theta>.

===========  ============================  =====================================================
symbol       here                          meaning
===========  ============================  =====================================================
mu(z)        ``link.mean(z)``              expected reward
mu'(z)       ``link.slope(z)``             its derivative, positive
b(z)         ``link.primitive(z)``         a primitive of mu: the log-partition function
k_mu         ``constants(S, L).k_mu``      sup of mu' over ``|z| <= S L``
c_mu         ``constants(S, L).c_mu``      inf of mu' over ``|z| <= S L``
R_mu         ``constants(S, L).R_mu``      k_mu / c_mu
===========  ============================  =====================================================

Built-in links are evaluated by compiled kernels inside policies; the methods here are their NumPy form, equal to
rounding. A custom link is any pair of vectorised callables (:class:`CustomLink`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, check_positive

_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
LARGEST_R_MU = 1e12  # beyond it mu' is so flat somewhere that double precision cannot tell parameters apart
_LARGEST = 708.0  # exp(708) is the largest power that stays a normal double; beyond it the mean is held there


@dataclass(frozen=True)
class LinkConstants:
    """k_mu, c_mu and R_mu = k_mu / c_mu of a link over ``|z| <= S L``."""

    k_mu: float
    c_mu: float

    @property
    def R_mu(self) -> float:
        return self.k_mu / self.c_mu if self.c_mu > 0 else math.inf


class Link:
    """A strictly increasing, continuously differentiable inverse link function."""

    name: str
    code: int = -1  # which compiled link; -1: none, evaluated in NumPy

    def mean(self, z: npt.ArrayLike) -> Array:
        """mu(z)."""
        raise NotImplementedError

    def slope(self, z: npt.ArrayLike) -> Array:
        """mu'(z)."""
        raise NotImplementedError

    def primitive(self, z: npt.ArrayLike) -> Array:
        """b(z) with b' = mu."""
        raise NotImplementedError

    def constants(self, S: float, L: float) -> LinkConstants:
        """k_mu, c_mu, R_mu over ``|z| <= S L``."""
        product = check_positive("S", S) * check_positive("L", L)
        constants = self._constants(product)
        if not constants.R_mu <= LARGEST_R_MU:  # written as `not x <= y` so that NaN is rejected
            raise ValueError(
                f"S={S!r} and L={L!r}: S * L must be at most {self.largest_product:.3g} with the {self.name} "
                f"link, got {product:.6g}; give a smaller S or L"
            )
        return constants

    @cached_property
    def largest_product(self) -> float:
        """The largest S * L that :meth:`constants` accepts, rounded down to three digits; infinity for identity."""
        accepted, refused = 0.0, 1.0
        while self._accepts(refused):
            accepted, refused = refused, 2.0 * refused
            if refused > 1e100:
                return math.inf
        for _ in range(50):  # halves the bracket each time: to the last bit
            middle = 0.5 * (accepted + refused)
            accepted, refused = (middle, refused) if self._accepts(middle) else (accepted, middle)
        if accepted == 0.0:
            return 0.0
        step = 10.0 ** (math.floor(math.log10(accepted)) - 2)
        return math.floor(accepted / step) * step

    def _accepts(self, product: float) -> bool:
        try:
            return self._constants(product).R_mu <= LARGEST_R_MU
        except Exception:  # of a custom link, which need not be finite, or defined, so far out
            return False

    def _constants(self, largest: float) -> LinkConstants:
        raise NotImplementedError

    def mean_bound(self, largest: float) -> float:
        """sup of |mu| over ``|z| <= largest``; for a link bounded on the whole line, its global bound."""
        ends = np.abs(self.mean(np.array([-largest, largest])))
        return float(ends.max()) if np.isfinite(ends).all() else math.inf

    def reward_range(self, sigma: float) -> tuple[float, float]:
        """The rewards this link accepts: [0, 2 sigma], as the paper's Assumption 2 has it."""
        return 0.0, 2.0 * sigma

    def fingerprint(self, largest: float) -> list[str | float]:
        """What tells this link from another in a saved state: name, range of rewards, means over ``|z| <= largest``."""
        return [self.name, *self.reward_range(1.0), *self.mean(np.linspace(-largest, largest, 17)).tolist()]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Identity(Link):
    """mu(z) = z: linear rewards. Any finite reward; sigma is then the sub-Gaussian scale of the noise."""

    name = "identity"
    code = 0

    def mean(self, z: npt.ArrayLike) -> Array:
        return np.array(z, dtype=float)

    def slope(self, z: npt.ArrayLike) -> Array:
        return np.ones_like(np.asarray(z, dtype=float))

    def primitive(self, z: npt.ArrayLike) -> Array:
        return np.asarray(0.5 * np.square(np.asarray(z, dtype=float)))

    def _constants(self, largest: float) -> LinkConstants:
        return LinkConstants(1.0, 1.0)

    def reward_range(self, sigma: float) -> tuple[float, float]:
        return -math.inf, math.inf


class Logistic(Link):
    """mu(z) = 1 / (1 + e^-z): clicks and conversions."""

    name = "logistic"
    code = 1

    def mean(self, z: npt.ArrayLike) -> Array:
        z = np.asarray(z, dtype=float)
        e = np.exp(-np.abs(z))
        return np.asarray(np.where(z >= 0, 1.0, e) / (1.0 + e))

    def slope(self, z: npt.ArrayLike) -> Array:
        e = np.exp(-np.abs(np.asarray(z, dtype=float)))
        return np.asarray(e / (1.0 + e) ** 2)

    def primitive(self, z: npt.ArrayLike) -> Array:
        return np.asarray(np.logaddexp(0.0, np.asarray(z, dtype=float)))

    def _constants(self, largest: float) -> LinkConstants:
        return LinkConstants(0.25, float(self.slope(largest)))

    def mean_bound(self, largest: float) -> float:
        return 1.0


class Poisson(Link):
    """mu(z) = e^z: counts. Held at e^708 beyond z = 708."""

    name = "poisson"
    code = 2

    def mean(self, z: npt.ArrayLike) -> Array:
        return np.asarray(np.exp(np.clip(np.asarray(z, dtype=float), -_LARGEST, _LARGEST)))

    slope = mean
    primitive = mean

    def _constants(self, largest: float) -> LinkConstants:
        return LinkConstants(float(self.slope(largest)), float(self.slope(-largest)))


class Probit(Link):
    """mu(z) = Phi(z), the standard normal distribution function: a binary reward with a Gaussian latent score."""

    name = "probit"
    code = 3

    def mean(self, z: npt.ArrayLike) -> Array:
        from scipy.special import ndtr

        return np.asarray(ndtr(np.asarray(z, dtype=float)))

    def slope(self, z: npt.ArrayLike) -> Array:
        z = np.asarray(z, dtype=float)
        return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * np.minimum(z * z, 2 * _LARGEST)))

    def primitive(self, z: npt.ArrayLike) -> Array:
        z = np.asarray(z, dtype=float)
        return z * self.mean(z) + self.slope(z)

    def _constants(self, largest: float) -> LinkConstants:
        return LinkConstants(_INV_SQRT_2PI, float(self.slope(largest)))

    def mean_bound(self, largest: float) -> float:
        return 1.0


class CustomLink(Link):
    """A link from vectorised callables, evaluated in NumPy: correct, but far slower than a built-in one.

    ``mean`` must be strictly increasing with derivative ``slope``; ``primitive`` is optional. What can be checked is
    checked numerically over ``|z| <= S L`` when the constants are asked for. Rewards lie in ``[0, 2 sigma]`` unless
    ``any_reward`` is true (sigma is then a sub-Gaussian scale).
    """

    code = -1

    def __init__(
        self,
        name: str,
        mean: Callable[[Array], npt.ArrayLike],
        slope: Callable[[Array], npt.ArrayLike],
        primitive: Callable[[Array], npt.ArrayLike] | None = None,
        *,
        any_reward: bool = False,
    ) -> None:
        for what, function in (("mean", mean), ("slope", slope), ("primitive", primitive)):
            if not callable(function) and not (what == "primitive" and function is None):
                raise ValueError(f"{what}={function!r}: must be callable")
        if not isinstance(name, str):
            raise ValueError(f"name={name!r}: must be a text")
        self.name = name
        self._mean, self._slope, self._primitive = mean, slope, primitive
        self._any_reward = any_reward

    def __repr__(self) -> str:
        return f"CustomLink({self.name!r})"

    def mean(self, z: npt.ArrayLike) -> Array:
        return np.asarray(self._mean(np.array(z, dtype=float)), dtype=float)

    def slope(self, z: npt.ArrayLike) -> Array:
        return np.asarray(self._slope(np.array(z, dtype=float)), dtype=float)

    def primitive(self, z: npt.ArrayLike) -> Array:
        if self._primitive is None:
            raise ValueError(f"link={self.name!r} was given no primitive")
        return np.asarray(self._primitive(np.asarray(z, dtype=float)), dtype=float)

    def reward_range(self, sigma: float) -> tuple[float, float]:
        return (-math.inf, math.inf) if self._any_reward else super().reward_range(sigma)

    def _constants(self, largest: float) -> LinkConstants:
        z = np.linspace(-largest, largest, 4001)
        slope = self.slope(z)
        self._check(z, slope)
        # a bracket around each extreme grid point, then a finer grid inside it: no smoothness beyond continuity needed
        step = z[1] - z[0]
        refined = []
        for pick in (int(np.argmax(slope)), int(np.argmin(slope))):
            around = np.clip(np.linspace(z[pick] - step, z[pick] + step, 2001), -largest, largest)
            refined.append(self.slope(around))
        return LinkConstants(float(refined[0].max()), float(refined[1].min()))

    def _check(self, z: Array, slope: Array) -> None:
        mean = self.mean(z)
        if mean.shape != z.shape or slope.shape != z.shape:
            raise ValueError(f"link={self.name!r}: mean and slope must map an array to an array of the same shape")
        if not (np.isfinite(mean).all() and np.isfinite(slope).all()):
            raise ValueError(f"link={self.name!r}: mean and slope must be finite for |z| <= {z[-1]:g}")
        if slope.min() <= 0.0:
            at = z[int(np.argmin(slope))]
            raise ValueError(f"link={self.name!r}: slope must be positive, but is {slope.min():g} at z={at:g}")
        h = 1e-5 * max(1.0, z[-1])
        for what, function, derivative in (("slope", self.mean, slope), ("mean", self._primitive, mean)):
            if function is None:
                continue
            with np.errstate(invalid="ignore"):
                numeric = (np.asarray(function(z + h)) - np.asarray(function(z - h))) / (2 * h)
            size = np.abs(derivative)
            worst = float(np.max(np.abs(numeric - derivative) / np.maximum(size, 1e-3 * size.max())))
            if not worst < 1e-4:
                of = "mean" if what == "slope" else "primitive"
                raise ValueError(f"link={self.name!r}: {what} is not the derivative of {of} (off by {worst:.2g})")


LINKS: dict[str, type[Link]] = {link.name: link for link in (Identity, Logistic, Poisson, Probit)}


def get_link(link: str | Link) -> Link:
    """A link by name (``"logistic"``, ``"poisson"``, ``"probit"``, ``"identity"``) or as it is."""
    if isinstance(link, Link):
        if link.code >= 0 and type(link) not in LINKS.values():
            raise ValueError(f"link={link!r}: a subclass of a built-in link needs code = -1, or be a CustomLink")
        return link
    if isinstance(link, str) and link in LINKS:
        return LINKS[link]()
    raise ValueError(f"link={link!r}: must be one of {', '.join(sorted(LINKS))}, or a Link")
