"""Numbers and matrices that several tests compare with."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest

from windvane.links import LINKS, Link

EPS = 2.0**-52
by_built_in_link = pytest.mark.parametrize("link", [kind() for kind in LINKS.values()], ids=list(LINKS))


def bend(link: Link, z: np.ndarray) -> np.ndarray:
    """mu'' in closed form, without the cancellation of 1 - 2 mu near 0."""
    factor = {"logistic": -np.tanh(z / 2), "poisson": np.ones_like(z), "probit": -z, "identity": np.zeros_like(z)}
    return factor[link.name] * link.slope(z)


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
