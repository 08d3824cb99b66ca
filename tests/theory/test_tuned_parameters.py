"""Recommended discounts, windows, blocks and grids."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.numerics import many_examples
from windvane import theory


def test_discount_formulas_and_clips() -> None:
    T = 3000  # the paper's experiment
    drift = 2 * T / 3 * math.sin(3 * math.pi / (4 * T))
    assert drift == pytest.approx(1.5708, abs=5e-5)
    assert theory.discount(horizon=T, drift=drift, dim=2) == pytest.approx(0.995908, abs=5e-7)
    # 1 - (1/1000)^(2/3) and 1 - (1/1024)^(2/5).
    assert theory.discount(horizon=500, drift=1.0, dim=2) == pytest.approx(0.99, rel=1e-14)
    assert theory.discount(horizon=512, drift=1.0, dim=4, arm_geometry="general") == pytest.approx(0.9375, rel=1e-14)
    for arm_geometry in ("orthogonal", "general"):
        assert theory.discount(horizon=100, drift=0.0, dim=3, arm_geometry=arm_geometry) == 1.0
        assert theory.discount(horizon=100, drift=1e9, dim=3, arm_geometry=arm_geometry) == 0.5


@pytest.mark.parametrize(("arm_geometry", "power"), [("orthogonal", 3), ("general", 5)])
@many_examples
@given(st.integers(1, 10**4), st.integers(1, 100), st.integers(1, 10**4))
def test_window_length_is_the_exact_floor(arm_geometry: str, power: int, horizon: int, dim: int, drift: int) -> None:
    # floor((dT/B)^(2/3)) is the largest n with n^3 B^2 <= (dT)^2, floor((sqrt(d) T / B)^(2/5)) that with
    # n^5 B^2 <= d T^2: integers decide it without round-off.
    square = dim * horizon**2 if arm_geometry == "general" else (dim * horizon) ** 2
    n = theory.window_length(horizon=horizon, drift=drift, dim=dim, arm_geometry=arm_geometry)
    assert 1 <= n <= horizon
    assert n == 1 or n**power * drift**2 <= square
    assert n == horizon or (n + 1) ** power * drift**2 > square


def test_window_length_corner_cases() -> None:
    for root in range(2, 300):
        assert theory.window_length(horizon=root**3, drift=None, dim=1) == root**2
    for drift, length in ((0.0, 1000), (1e-320, 1000), (1e9, 1)):
        assert theory.window_length(horizon=1000, drift=drift, dim=2) == length


@many_examples
@given(st.integers(1, 10**12), st.integers(1, 10**4))
def test_block_length_is_the_exact_floor(horizon: int, dim: int) -> None:
    length = theory.block_length(horizon, dim)
    assert 1 <= length <= horizon
    assert length**2 <= dim**2 * horizon
    assert length == horizon or (length + 1) ** 2 > dim**2 * horizon


def test_discount_grid() -> None:
    T, d, S = 3000, 2, 1.0
    grid = theory.discount_grid(T, d, S)
    N = math.ceil(2 / 3 * math.log2(2 * S * T**1.5)) + 1
    raw = [1 - 0.5 * 2 ** (j - 1) / (d ** (2 / 3) * T * (2 * S) ** (2 / 3)) for j in range(1, N + 1)]
    assert grid.shape == (N,) == (14,)
    assert grid == pytest.approx(np.maximum(raw, 0.5), rel=1e-14)
    assert raw[-1] < 0.5 == grid[-1]
    assert theory.discount_grid(10, 1, 1e-6).tolist() == [0.5]  # never empty
    assert theory.discount_grid(10**17, 10, 1.0)[0] < 1.0


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 10**6), st.integers(1, 50), st.floats(0.01, 100.0), st.floats(0.0, 1.0))
def test_grid_covers_the_discount_of_every_drift(horizon: int, dim: int, S: float, position: float) -> None:
    low, high = horizon**-0.5, 2 * S * horizon
    assume(low <= high)
    drift = low * (high / low) ** position
    forget = 0.5 * (drift / (dim * horizon * 2 * S)) ** (2 / 3)
    grid = theory.discount_grid(horizon, dim, S)
    assert np.all((grid >= 0.5) & (grid < 1.0))
    assert np.all(np.diff(grid) < 0)
    # Lemma "gamma_k": some gamma_k has gamma_{k+1} <= gamma* <= gamma_k, that is mu_k <= mu* <= 2 mu_k.
    steps = 1.0 - grid
    slack = 1e-6  # 1 - grid has lost digits when the grid is within 1e-9 of 1
    assert np.any((steps <= forget * (1 + slack)) & (forget <= 2 * steps * (1 + slack)))
    assert grid[-1] <= 1.0 - forget * (1 - slack)
    assert 1.0 - forget * (1 + slack) <= grid[0]


def test_exp3_rate() -> None:
    assert theory.exp3_rate(14, 28) == pytest.approx(math.sqrt(14 * math.log(14) / ((math.e - 1) * 28)), rel=1e-15)
    assert theory.exp3_rate(14, 1) == 1.0
    assert theory.exp3_rate(1, 5) == 0.0


def test_window_grid() -> None:
    assert theory.window_grid(300, 2)[0] == math.floor(2 ** (2 / 3) * math.sqrt(300))
    H, windows = theory.window_grid(64, 1)
    assert H == 8
    assert windows.tolist() == [1, 2, 4, 8]  # log 8 = 2.08: three steps
    assert theory.window_grid(2, 1)[1].tolist() == [1]
    assert theory.window_grid(9, 1)[1].tolist() == [1, 1, 3]
    assert theory.window_grid(3, 50)[0] == 3


def test_tuning_of_arms_without_features() -> None:
    """The printed formulas at round numbers, and what happens at their ends."""
    assert theory.switching_discount(horizon=10_000, switches=4.0, bound=2.0) == pytest.approx(1 - 0.02 / 8, rel=1e-15)
    assert theory.switching_discount(horizon=10, switches=0.0, bound=1.0) == 1.0
    assert theory.switching_discount(horizon=10, switches=10.0, bound=0.1) == 0.5
    window = theory.switching_window(horizon=10_000, switches=9.0, bound=0.5)
    assert window == pytest.approx(100 / 3 * math.sqrt(math.log(10_000)), rel=1e-14)
    assert theory.switching_window(horizon=50, switches=0.0, bound=1.0) == 50.0
    assert theory.switching_window(horizon=50, switches=1e-320, bound=1.0) == 50.0
    assert theory.switching_window(horizon=1, switches=3.0, bound=1.0) == 1.0
    assert theory.sharing_rate(arms=5, horizon=5000) == pytest.approx(math.sqrt(5 * math.log(25_000) / 5000), rel=1e-15)
    known = math.sqrt(5 * (3 * math.log(25_000) + math.e) / ((math.e - 1) * 5000))
    assert theory.sharing_rate(arms=5, horizon=5000, switches=2) == pytest.approx(known, rel=1e-15)
    assert theory.sharing_rate(arms=50, horizon=2, switches=9) == 1.0


@many_examples
@given(st.integers(2, 100), st.integers(1, 10**6), st.floats(1e-3, 1e6))
def test_the_batch_is_the_ceiling_of_its_formula(arms: int, horizon: int, drift: float) -> None:
    batch = theory.exp3_batch(arms=arms, horizon=horizon, drift=drift)
    length = (arms * math.log(arms) * (horizon / drift) ** 2) ** (1 / 3)
    assert 1 <= batch <= horizon
    assert batch == horizon or batch >= length * (1 - 1e-12)
    assert batch == 1 or batch - 1 < length


def test_batches_at_the_ends() -> None:
    assert theory.exp3_batch(arms=3, horizon=40, drift=0.0) == 40
    assert theory.exp3_batch(arms=1, horizon=40, drift=1.0) == 1
    assert theory.exp3_batch(arms=3, horizon=40, drift=1e-320) == 40
