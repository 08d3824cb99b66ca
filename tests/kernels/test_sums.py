"""Sums over the history: what they stand for, wherever they lie, compiled and interpreted."""

import numpy as np
import pytest
from numpy.linalg import norm

from support import access
from support.numerics import EPS, bend, by_built_in_link, third
from support.worlds import ball
from windvane import CustomLink
from windvane.kernels import sums
from windvane.kernels.lanes import BUFFERS, RECORD
from windvane.links import Link

DIMS = [1, 2, 3, 4, 5, 7, 8, 9, 20]
LENGTHS = sorted({0, 1, sums.BLOCK - 1, sums.BLOCK, sums.BLOCK + 1, 511, 512, 513, 1500})
SCALE, RIDGE = 0.37, 0.21


def compute_sums(
    link: Link, x: np.ndarray, w: np.ndarray, theta: np.ndarray, u: np.ndarray, start: int
) -> list[np.ndarray]:
    """g, H, H u, and the matrices of mu'' and mu''', of a history inside a longer one; all around it is poison."""
    (n, d), kernel, record = x.shape, access.kernels_for(link), np.zeros(1, RECORD)
    for name, value in {"link": link.code, "scale": SCALE, "ridge": RIDGE, "start": start, "end": start + n}.items():
        record[name] = value
    rows, lane = np.full((d + 3, start + n + 5), np.nan), record[0]
    rows[:d, start : start + n], rows[d, start : start + n] = x.T, w
    g, Hu, H, bend_matrix, third_matrix = (np.full(shape, np.nan) for shape in (d, d, (d, d), (d, d), (d, d)))
    buffers = np.full((BUFFERS, max(1, n)), np.nan)
    kernel.mean_sums(lane, rows, theta, buffers, g)
    kernel.gram(sums.SLOPE_GRAM, lane, rows, u, buffers, H)
    kernel.slope_apply(lane, rows, u, buffers, Hu)
    kernel.gram(sums.BEND_GRAM, lane, rows, u, buffers, bend_matrix)
    kernel.gram(sums.THIRD_GRAM, lane, rows, u, buffers, third_matrix)
    return [g, H, Hu, bend_matrix, third_matrix]


def data(d: int, n: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([d, n])
    return ball(rng, (n,), d), rng.exponential(size=n), 2 * rng.normal(size=d), rng.normal(size=d)


@by_built_in_link
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("n", LENGTHS)
def test_the_sums_are_what_they_stand_for(link: Link, d: int, n: int) -> None:
    """Errors: some eps a term for the link and its argument, n eps / 8 for the sum, of the sum of absolute values."""
    x, w, theta, u = data(d, n)
    got = compute_sums(link, x, w, theta, u, 0)
    z, w = x @ theta, SCALE * w
    H = x.T @ ((w * link.slope(z))[:, None] * x) + RIDGE * np.eye(d)
    bend_matrix = x.T @ ((w * bend(link, z) * (x @ u))[:, None] * x)
    expected = [x.T @ (w * link.mean(z)) + RIDGE * theta, H, H @ u, bend_matrix]
    size, along = np.abs(x), np.abs(x) @ np.abs(u)
    slope = link.slope(z) * (1 + size @ np.abs(theta)) ** 2  # how the rounding of z shows in mu and mu'
    size_H = size.T @ ((w * slope)[:, None] * size) + RIDGE * np.eye(d)
    bounds = [
        size.T @ (w * (np.abs(link.mean(z)) + slope)) + RIDGE * np.abs(theta),
        size_H,
        size_H @ np.abs(u),
        size.T @ ((w * slope * along)[:, None] * size),
    ]
    rounding = (20 + d + n / 8) * EPS
    for value, exact, bound in zip(got[:4], expected, bounds, strict=True):
        assert (np.abs(value - exact) <= rounding * bound).all()
    third_matrix = x.T @ ((w * third(link, z) * (x @ u) ** 2)[:, None] * x)
    terms = w * (link.slope(z) + np.abs(third(link, z))) * along**2  # differences over 1e-4 lose 8 digits of mu'
    assert (np.abs(got[4] - third_matrix) <= 1e-7 * (size.T @ (terms[:, None] * size))).all()


@by_built_in_link
@pytest.mark.parametrize("d", DIMS)
def test_sums_do_not_depend_on_where_the_history_lies(link: Link, d: int) -> None:
    """Bit for bit, for starts of every alignment and beyond a block."""
    for n in LENGTHS:
        x, w, theta, u = data(d, n)
        first = compute_sums(link, x, w, theta, u, 0)
        for start in (1, 2, 3, 5, 8, 513):
            for one, other in zip(first, compute_sums(link, x, w, theta, u, start), strict=True):
                np.testing.assert_array_equal(one, other)


@by_built_in_link
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 1, 600])
def test_the_interpreted_kernels_of_a_custom_link_give_the_same_sums(link: Link, d: int, n: int) -> None:
    """The bend there is a central difference, h = 1e-5: off by eps mu' / h and h^2, about 1e-10 a term."""
    copy = CustomLink("copy", link.mean, link.slope)
    x, w, theta, u = data(d, n)
    own, compiled = (compute_sums(which, x, w, theta, u, 3) for which in (copy, link))
    for one, other in zip(own[:3], compiled[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    total = np.sum(w * np.linalg.norm(x, axis=1) ** 2 * np.abs(x @ u) * (1 + link.slope(x @ theta)))
    np.testing.assert_allclose(own[3], compiled[3], rtol=0, atol=1e-9 * total)
    np.testing.assert_allclose(own[4], compiled[4], rtol=0, atol=1e-7 * total * (1 + norm(u)))
