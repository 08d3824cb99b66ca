"""The full-rank coding of vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windvane.agent.features import Features
from windvane.logs.drift.coding import choose_columns, find_row_space, group_rows


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5))
def test_the_columns_are_independent_and_span_all(seed: int, d: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, min(rank, d))) @ rng.normal(size=(min(rank, d), d))
    x[:, rng.random(d) < 0.2] = 0.0
    columns = choose_columns(x)
    assert len(columns) == np.linalg.matrix_rank(x) == np.linalg.matrix_rank(x[:, columns])
    basis = find_row_space(x)
    assert basis.shape[1] == len(columns)
    np.testing.assert_allclose(x @ basis @ basis.T, x, atol=1e-9)
    np.testing.assert_allclose(basis.T @ basis, np.eye(len(columns)), atol=1e-9)


def test_levels_of_cells_are_kept_and_the_constants_that_are_their_sums_are_not() -> None:
    features = Features(by_arm={"device": ["phone", "desktop"], "hour": (0.0, 23.0)}, arms=["a", "b"])
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [features.vectors({"device": rng.choice(["phone", "desktop"]), "hour": float(rng.integers(24))}, ["a"])
         if i % 2 else features.vectors({"device": rng.choice(["phone", "desktop"]), "hour": 3.0 + i % 7}, ["b"])
         for i in range(200)]
    )  # fmt: skip
    assert [features.names[j] for j in choose_columns(x)] == [
        "a: device = phone", "a: device = desktop", "a: hour", "b: device = phone", "b: device = desktop", "b: hour",
    ]  # fmt: skip
    assert features.dim == 9


def test_equal_rows_are_one_group() -> None:
    group, first = group_rows(np.array([[True, False], [False, True], [True, False]]))
    assert group[0] == group[2] != group[1]
    assert sorted(first.tolist()) == [0, 1]
