"""Policies of one's own that return something else than arms on offer: an error in every estimand, not a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from windvane.errors import ArgumentError
from windvane.logs import evaluate, from_arrays
from windvane.logs.evaluation.request import ESTIMANDS

N = 300
CHOICES = {
    "negative": lambda lanes: np.full(lanes, -1),
    "too large": lambda lanes: np.full(lanes, 7),
    "not on offer": lambda lanes: np.full(lanes, 2),
    "halves": lambda lanes: np.full(lanes, 0.5),
    "nothing": lambda _: None,
    "one for all": lambda _: 0,
    "a table": lambda lanes: np.zeros((lanes, 2), dtype=int),
}


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_choice_that_is_no_arm_on_offer_is_refused(estimand: str, choice: str) -> None:
    class Faulty:
        def __init__(self, dim: int, lanes: Any, seed: int = 0) -> None:
            pass

        def select(self, arms: Any, valid: Any = None) -> Any:
            return CHOICES[choice](len(arms))

        def update(self, x: Any, reward: Any, **others: Any) -> None:
            pass

    rng = np.random.default_rng(0)
    valid = np.ones((N, 3), dtype=bool)
    valid[:, 2] = np.arange(N) % 2 == 0
    log = from_arrays(
        np.broadcast_to(np.eye(3), (N, 3, 3)) * valid[:, :, None], rng.integers(2, size=N), rng.integers(2, size=N),
        propensity=np.full(N, 0.3), floor=0.3, valid=valid,
    )  # fmt: skip
    with pytest.raises(ArgumentError, match="select"):
        evaluate(log, [("Faulty", Faulty, {})], estimands=[estimand], jobs=1)
