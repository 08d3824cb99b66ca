"""The text of errors, here and nowhere else; every other test reads their attributes."""

import pickle

import numpy as np
import pytest

from windvane import BVDGLMUCB
from windvane.errors import LONGEST_VALUE, ArgumentError, WindvaneError, format_value

GAMMA = ArgumentError("gamma", 1.2, "in (0, 1]")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (GAMMA, "`gamma` must be in (0, 1], got 1.2"),
        (ArgumentError("link", "logit", "one of a, b"), "`link` must be one of a, b, got 'logit'"),
        (ArgumentError("reward", 7.0, "at most 1", where="lane 3"), "`reward` must be at most 1, got 7.0 in lane 3"),
        (
            ArgumentError("arms", [], "of shape (1, any, 2)", got="shape (0,)", hint="add a lanes axis"),
            "`arms` must be of shape (1, any, 2), got shape (0,); add a lanes axis",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.argument,
)
def test_messages_say_what_is_expected_and_what_was_given(error: ArgumentError, text: str) -> None:
    assert str(error) == text


def test_a_refused_setting_is_reported_in_full() -> None:
    with pytest.raises(ArgumentError) as caught:
        BVDGLMUCB(2, gamma=1.2)
    error = caught.value
    assert (error.argument, error.value, error.expected) == ("gamma", 1.2, "a number in (0, 1]")
    assert str(error) == "`gamma` must be a number in (0, 1], got 1.2"


def test_argument_errors_are_value_errors_and_errors_of_windvane() -> None:
    assert isinstance(GAMMA, ValueError)
    assert isinstance(GAMMA, WindvaneError)


def test_errors_travel_between_processes() -> None:
    error = ArgumentError("x", 3.0, "at most 1", got="three", where="lane 2", hint="scale it")
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is ArgumentError
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "'x'"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        ("a" * 200, "'" + "a" * (LONGEST_VALUE - 4) + "..."),
        (Unprintable(), "<Unprintable>"),
        (10**5000, "<int>"),
    ],
    ids=["text", "two lines", "long", "broken repr", "too many digits"],
)
def test_values_are_shown_on_one_line(value: object, text: str) -> None:
    assert format_value(value) == text
    assert len(text) <= LONGEST_VALUE
