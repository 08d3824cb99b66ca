"""The Hessian that is carried from round to round: what certifies a step with it is true, and it saves passes."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import naive
from support import access
from support.estimators import TOLERANCE, Twin, by_link
from support.worlds import turning_theta
from windvane.kernels import elementary
from windvane.kernels.jit import callable_kernel
from windvane.kernels.lanes import VECTORS

FORGETTING: dict[str, dict[str, Any]] = {
    "discount": {"gamma": [0.9, 0.995]},
    "never": {},
    "window": {"window": [12.0, 90.0]},
}


def live(twin: Twin, rounds: int) -> Any:
    """Drift, late and weighted rewards, masks, gaps, silence and resets; yields after each solve."""
    dim, rng = twin.fast.dim, np.random.default_rng(9)
    for t in range(rounds):
        twin.star = turning_theta(t, rounds, dim, 1.0, turns=1.5)
        twin.advance([1.0, 1.0, 1.0, 0.0, 2.5][t % 5] if t % 71 else 40.0)
        for _ in range([1, 1, 0, 3][t % 4]):
            late, weight = rng.integers(0, 6, 2) * (rng.random(2) < 0.3), rng.choice([0.5, 1.0, 3.0], 2)
            twin.observe(late, weight, rng.random(2) < 0.9)
        if t % 97 == 50:
            lane = t // 97 % 2
            twin.fast.reset(np.arange(2) == lane)
            slow = twin.slow[lane]
            twin.slow[lane] = naive.NaiveHistory(dim, twin.link, slow.gamma, slow.lam, slow.ridge, slow.window)
        if t % 13 != 7:  # several rounds may pass between two solves
            twin.fast.solve()
            yield t


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("forgetting", FORGETTING.values(), ids=FORGETTING)
def test_theta_hat_is_certified_over_hundreds_of_rounds(link: str, dim: int, forgetting: dict[str, Any]) -> None:
    """|theta_hat - root of what is remembered, by SciPy| <= root_error <= root_tolerance, whichever Hessian served."""
    twin, checked = Twin(dim, link, 2, 1, **forgetting), 0
    for t in live(twin, 300):
        assert (twin.fast.root_error <= 0.01 * TOLERANCE).all()
        if t % 4 and t % 71 > 5:  # every fourth round, and those around a long silence
            continue
        for lane in range(2):
            features, weights, b = access.lane_history(twin.fast, lane)
            root = naive.solve_theta_hat(features, weights, b, twin.ridge, twin.link)
            assert np.linalg.norm(twin.fast.theta_hat[lane] - root) <= twin.fast.root_error[lane] + 1e-12
            checked += 1
    assert checked > 150
    twin.check_root()  # ... and over the whole history


@by_link
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("forgetting", FORGETTING.values(), ids=FORGETTING)
def test_strayed_bounds_where_the_terms_of_the_carried_hessian_were_evaluated(
    link: str, dim: int, forgetting: dict[str, Any]
) -> None:
    """e^-r H(theta_hat) <= carried H <= e^r H(theta_hat), r = sup |mu''/mu'| L strayed: the certificate rests on it."""
    twin, carried = Twin(dim, link, 2, 2, **forgetting), 0
    for t in live(twin, 200):
        strayed, code = access.save(twin.fast)["strayed"], twin.fast.link.code
        for lane in np.flatnonzero(np.isfinite(strayed) & (t % 3 == 0)):
            theta = twin.fast.theta_hat[lane]
            exact = twin.slow[lane].H(theta, twin.now + 1)
            H = twin.fast.dense[lane, VECTORS + 2 * dim :]
            ratio = callable_kernel(elementary.bend_ratio)(code, np.linalg.norm(theta) + strayed[lane]) * strayed[lane]
            ends = scipy.linalg.eigvalsh(H, exact)
            assert np.exp(-ratio) * (1 - 1e-5) <= ends[0]
            assert ends[-1] <= np.exp(ratio) * (1 + 1e-5)
            carried += ratio > 0 or link == "identity"
    assert carried > 20


@by_link
def test_the_carried_hessian_saves_work(link: str) -> None:
    """A drift that turns half way round in 400 rounds, one observation in each: H is formed anew in about half of them.

    A solve that forms it sets ``strayed`` to 0 first.
    """
    twin, passes, kept = Twin(2, link, 2, 3, gamma=[0.99, 1.0]), [], []
    for t in range(400):
        twin.star = turning_theta(t, 400, 2, 1.0)
        twin.advance()
        twin.observe()
        before = access.save(twin.fast)["strayed"]
        twin.fast.solve()
        passes.append(twin.fast.root_passes)
        kept.append(access.save(twin.fast)["strayed"] > before)
    assert np.mean(kept[100:]) > 0.4
    assert np.mean(passes[100:]) < 2.0
    assert np.max(passes) <= 4
