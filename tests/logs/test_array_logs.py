"""Logs of arrays: what they hold, and what is rejected."""

from __future__ import annotations

import numpy as np
import pytest

from windvane.errors import ArgumentError
from windvane.logs import from_arrays

ARMS = np.eye(2)[None].repeat(3, axis=0)
NAN = float("nan")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("arms", [[[NAN, 0.0], [0.0, 1.0]]] * 3),
        ("played", [0, 1, 2]),
        ("played", [0, 1, -1]),
        ("played", [0.5, 1.0, 0.0]),
        ("played", [0, 1]),
        ("reward", [0.0, 2.0, 1.0]),
        ("reward", [0.0, 1.0]),
        ("propensity", [0.5, 0.0, 0.5]),
        ("propensity", [0.5, 1.5, 0.5]),
        ("probabilities", [[0.5, 0.5]] * 2),
        ("probabilities", [[0.5, -0.5]] * 3),
        ("probabilities", [[0.5, NAN]] * 3),
        ("valid", [[True, False]] * 2),
        ("time", [0.0, 2.0, 1.0]),
        ("time", [0.0, NAN, 1.0]),
        ("reward_time", [0.0, 1.0, 2.0]),
        ("reward_time", [1.0, NAN, 3.0]),
        ("reward_time", 3.0),
        ("context", [1.0, 2.0, 3.0]),
        ("floor", 1.5),
        ("names", ["one"]),
    ],
)
def test_values_that_are_not_allowed_are_rejected(argument: str, value: object) -> None:
    arguments = {"arms": ARMS, "played": [0, 1, 0], "reward": [1.0, 0.0, 1.0], argument: value}
    with pytest.raises(ArgumentError) as error:
        from_arrays(**arguments)
    assert error.value.argument == argument


def test_an_arm_that_is_not_on_offer_cannot_have_been_played() -> None:
    with pytest.raises(ArgumentError) as error:
        from_arrays(ARMS, [0, 1, 0], [1.0, 0.0, 1.0], valid=[[True, False]] * 3)
    assert error.value.argument == "played"


def test_a_reward_that_is_unknown_never_arrives() -> None:
    log = from_arrays(ARMS, [0, 1, 0], [1.0, NAN, 1.0], time=[0.0, 1.0, 1.0], reward_time=[0.0, 5.0, 6.0])
    assert log.rows.reward_time.tolist() == [0.0, np.inf, 6.0]
