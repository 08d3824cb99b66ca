"""The proximal point behind the one-pass estimator."""

from __future__ import annotations

import numpy as np
import pytest

import naive
from windvane import get_link
from windvane.kernels import one_pass


@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("link", ["logistic", "poisson", "probit", "identity"])
def test_the_proximal_point(link: str, weight: float) -> None:
    made, nlink = get_link(link), naive.LINKS[link]
    for z in (-30.0, -3.0, 0.0, 0.4, 8.0):
        for reward in (0.0, 1.0, 10.0):
            y = one_pass.proximal_point(made.code, z, weight, reward)
            gap = y - z + weight * (float(nlink.mean(np.float64(y))) - reward)
            slope = 1.0 + weight * float(nlink.slope(np.float64(y)))
            rounding = 1e-15 * (abs(y) + abs(z) + weight * (abs(float(nlink.mean(np.float64(y)))) + reward))
            assert abs(gap) <= 4 * rounding + 1e-13 * (1 + abs(y)) * slope
