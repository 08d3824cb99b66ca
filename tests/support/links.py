"""Links to test with: the built-in ones, copies of them as custom links, and one that the library does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from windvane.links import CustomLink, Identity, Link, Logistic, Poisson, Probit

BUILT_IN = [Logistic(), Poisson(), Probit(), Identity()]
built_in = pytest.mark.parametrize("link", BUILT_IN, ids=lambda link: link.name)
# mu(z) = log(1 + e^z), slope expit(z). Its primitive is -Li2(-e^z), left out.
SOFTPLUS = CustomLink("softplus", lambda z: np.logaddexp(0.0, z), expit)


def custom_copy(link: Link, **changes: Any) -> CustomLink:
    parts = {"mean": link.mean, "slope": link.slope, "primitive": link.primitive} | changes
    return CustomLink(f"my {link.name}", **parts)
