"""The squared radii of GLOC and ada-OFU-ECOLog against their formulas, and where they are extreme."""

import math
from typing import Any

import numpy as np
import pytest

from naive import NaiveAdaOFUECOLog, NaiveGLOC
from support.refusals import refuses
from windvane import theory

WORLD: dict[str, Any] = {"S": 1.5, "lam": 0.7, "sigma": 0.4, "c_mu": 0.15}


@pytest.mark.parametrize("delta", [0.05, 1.0, 1e-6])
def test_the_radius_of_gloc_is_the_printed_one(delta: float) -> None:
    radius = theory.OnlineToConfidenceRadius(delta=delta, **WORLD)
    slow = NaiveGLOC(2, lam=0.7, sigma=0.4, S=1.5, delta=delta)
    slow.kappa = 0.15
    for regret in (0.0, 0.3, 40.0, 1e6):
        slow.G = regret
        assert float(radius(regret, 0.0)) == pytest.approx(slow.beta, rel=1e-13)
        assert float(radius(regret, 2.0)) == pytest.approx(slow.beta - 2.0, rel=1e-12)
    assert float(radius(0.0, 1e9)) == 0.0


def test_flat_links_do_not_overflow() -> None:
    radius = theory.OnlineToConfidenceRadius(S=1.0, lam=1.0, sigma=0.5, delta=0.05, c_mu=1e-12)
    assert np.isfinite(radius(np.array([0.0, 1e30]), np.zeros(2))).all()


@pytest.mark.parametrize("form", ["printed", "proved"])
@pytest.mark.parametrize(("dim", "S", "L"), [(1, 1.0, 1.0), (4, 3.0, 0.5), (2, 2.0, 2.0)])
def test_the_functions_of_ada_ofu_ecolog(form: str, dim: int, S: float, L: float) -> None:
    radius = theory.ECOLogRadius(dim=dim, S=S, L=L, delta=0.1, form=form)
    slow = NaiveAdaOFUECOLog(dim, S * L, 0.1, form == "proved")
    t = np.array([1.0, 2.0, 10.0, 3000.0, 1e9])
    for name, literal in (("eta", slow.eta_t), ("ridge", slow.lambda_t), ("level", slow.beta_t)):
        np.testing.assert_allclose(getattr(radius, name)(t), [literal(each) for each in t], rtol=1e-13)


def test_what_the_docstrings_say() -> None:
    """The size of the proved radius, and the warm-up of OFU-ECOLog, which is why it is not here."""
    printed, proved = (
        theory.ECOLogRadius(dim=2, S=1.0, L=1.0, delta=0.05, form=form) for form in ("printed", "proved")
    )
    assert float(proved.eta(3000.0)) < float(printed.eta(3000.0))
    c_mu = math.exp(-1) / (1 + math.exp(-1)) ** 2
    warm_up = 16 * 2 * float(printed.level(3000.0)) * math.log(3001) / c_mu
    assert warm_up == pytest.approx(1.5e7, rel=0.02)
    long = theory.ECOLogRadius(dim=2, S=3.0, L=1.0, delta=0.05, form="printed")
    assert float(long.level(3000.0)) / (0.0452 * 9) == pytest.approx(6e5, rel=0.1)  # c_mu = 0.0452 at S = 3


def test_arguments_are_checked() -> None:
    for name, value in (("S", 0.0), ("lam", -1.0), ("sigma", 0.0), ("c_mu", 0.0), ("delta", 1.5)):
        with refuses(name):
            theory.OnlineToConfidenceRadius(**WORLD | {"delta": 0.05} | {name: value})
    with refuses("delta"):
        theory.ECOLogRadius(dim=2, S=1.0, L=1.0, delta=0.0, form="proved")
