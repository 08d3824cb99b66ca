"""Sums of a window."""

from __future__ import annotations

import numpy as np

from windvane import state
from windvane.estimation import RidgeEstimator, Window


def test_removals_keep_sums_symmetric_so_that_the_state_loads() -> None:
    """Entries that cancel up to rounding must have the same rounding error on both sides of the diagonal."""
    rng = np.random.default_rng(0)
    estimator, other = (RidgeEstimator(3, forgetting=Window(3)) for _ in range(2))
    for _ in range(60):
        estimator.advance(1.0)
        estimator.observe(rng.uniform(-0.5, 0.5, (1, 3)), 1.0, weight=50.0 * rng.random())
        np.testing.assert_array_equal(estimator.V, estimator.V.transpose(0, 2, 1))
        state.swap(state.check(other, state.save(estimator)))
    estimator.advance(3.0)
    np.testing.assert_allclose(estimator.V[0], np.eye(3), atol=1e-12)
    state.swap(state.check(other, state.save(estimator)))
