"""Compiled linear algebra against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.numerics import only_lower, positive_definite
from windvane.kernels import linalg

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("d", range(1, 11))
@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_cholesky_and_what_is_solved_with_it(d: int, seed: int) -> None:
    """Condition number up to 100: errors up to d cond eps ~ 2e-13 relative."""
    rng = np.random.default_rng(seed)
    A, rhs, shift = positive_definite(rng, d), rng.normal(size=d), float(rng.uniform(0, 3))
    lower, out = np.full((d, d), np.nan), np.full(d, np.nan)
    assert linalg.cholesky(only_lower(A), shift, lower)
    exact = np.linalg.cholesky(A + shift * np.eye(d))
    np.testing.assert_allclose(lower, exact, rtol=0, atol=1e-12 * np.abs(exact).max())
    for solve, matrix in (
        (linalg.solve_lower, exact),
        (linalg.solve_lower_transposed, exact.T),
        (linalg.solve_cholesky, A + shift * np.eye(d)),
    ):
        expected = np.linalg.solve(matrix, rhs)
        solve(lower, rhs, out)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
        in_place = rhs.copy()
        solve(lower, in_place, in_place)
        np.testing.assert_array_equal(in_place, out)
    inverse = np.linalg.inv(A + shift * np.eye(d))
    assert linalg.trace_of_inverse(lower, np.empty(d)) == pytest.approx(np.trace(inverse), rel=1e-12)


@pytest.mark.parametrize("d", range(1, 11))
def test_cholesky_says_when_a_matrix_is_not_positive_definite(d: int) -> None:
    rng = np.random.default_rng(d)
    A = positive_definite(rng, d)
    least = np.linalg.eigvalsh(A)[0]
    lower = np.empty((d, d))
    assert linalg.cholesky(A, -least * (1 - 1e-6), lower)
    assert not linalg.cholesky(A, -least * (1 + 1e-6), lower)
    assert not linalg.cholesky(np.zeros((d, d)), 0.0, lower)
    assert not linalg.cholesky(np.full((d, d), np.nan), 0.0, lower)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_products_norms_and_determinants(d: int) -> None:
    rng = np.random.default_rng(d)
    A, x, y = positive_definite(rng, d), rng.normal(size=d), rng.normal(size=d)
    mirrored, log_det = only_lower(A), np.empty(3)
    linalg.mirror(mirrored)
    np.testing.assert_array_equal(mirrored, A)
    assert linalg.dot(x, y) == pytest.approx(x @ y, abs=1e-14)
    assert linalg.norm(x) == pytest.approx(np.linalg.norm(x), rel=1e-15 * d)
    V = np.array([A, 2 * A, np.eye(d)])
    linalg.log_det_lanes(0, 3, V, 0.3, log_det)
    np.testing.assert_allclose(log_det, [np.linalg.slogdet(M / 0.3)[1] for M in V], rtol=0, atol=1e-12)
