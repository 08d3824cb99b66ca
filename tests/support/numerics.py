"""Numbers, matrices and links that several tests compare with."""

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from scipy.special import expit

from windvane.links import LINKS, CustomLink, Identity, Link, Logistic, Poisson, Probit

EPS = 2.0**-52
K_LOGISTIC = 0.25  # the constants of the logistic link for S = L = 1
C_LOGISTIC = math.e / (1.0 + math.e) ** 2
PAPER: dict[str, Any] = {"dim": 2, "S": 1.0, "L": 1.0, "lam": 1.0, "sigma": 0.5}  # the paper's experiment
LINK: dict[str, Any] = {"k_mu": K_LOGISTIC, "c_mu": C_LOGISTIC}
sixty_examples = settings(deadline=None, max_examples=60)
many_examples = settings(deadline=None, max_examples=150)
by_built_in_link = pytest.mark.parametrize("link", [kind() for kind in LINKS.values()], ids=list(LINKS))


def bend(link: Link, z: np.ndarray) -> np.ndarray:
    """mu'' in closed form, without the cancellation of 1 - 2 mu near 0."""
    factor = {"logistic": -np.tanh(z / 2), "poisson": np.ones_like(z), "probit": -z, "identity": np.zeros_like(z)}
    return factor[link.name] * link.slope(z)


def third(link: Link, z: np.ndarray) -> np.ndarray:
    """The third derivative of mu, in closed form."""
    mean = link.mean(z)
    factor = {"logistic": 1 - 6 * mean * (1 - mean), "poisson": np.ones_like(z), "probit": z * z - 1}
    return factor.get(link.name, np.zeros_like(z)) * link.slope(z)


def positive_definite(rng: np.random.Generator, d: int) -> np.ndarray:
    """A symmetric matrix with eigenvalues over two decades."""
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = (Q * 10 ** rng.uniform(-1, 1, d)) @ Q.T
    return (A + A.T) / 2


def exact_count(gamma: float, t: float, power: int = 1) -> Decimal:
    """1 + g + ... + g^(t-1) for g = gamma^power, with 80 digits."""
    with localcontext() as ctx:
        ctx.prec = 80
        g = Decimal(gamma) ** power
        return Decimal(t) if g == 1 else (1 - g ** Decimal(t)) / (1 - g)


def only_lower(A: np.ndarray) -> np.ndarray:
    """NaN above the diagonal: kernels must read the lower triangle only."""
    return np.where(np.tri(len(A), dtype=bool), A, np.nan)


BUILT_IN = [Logistic(), Poisson(), Probit(), Identity()]
built_in = pytest.mark.parametrize("link", BUILT_IN, ids=lambda link: link.name)
# mu(z) = log(1 + e^z), slope expit(z). Its primitive is -Li2(-e^z), left out.
SOFTPLUS = CustomLink("softplus", lambda z: np.logaddexp(0.0, z), expit)


def custom_copy(link: Link, **changes: Any) -> CustomLink:
    parts = {"mean": link.mean, "slope": link.slope, "primitive": link.primitive} | changes
    return CustomLink(f"my {link.name}", **parts)
