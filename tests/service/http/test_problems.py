"""Problem details: the one place where their texts are tested."""

from __future__ import annotations

import pickle

import pytest
from pydantic import BaseModel, ValidationError

from windvane.errors import ArgumentError
from windvane.service.problems import KINDS, REQUEST_CAUSES, Problem, invalid
from windvane.service.readiness import CAUSES
from windvane.service.requests import DecisionItem
from windvane.service.stream_settings import NewStream


def test_a_problem_as_the_client_gets_it() -> None:
    problem = Problem("invalid", "`gamma` must be in (0, 1], got 2", pointer="#/gamma")
    assert problem.document == {
        "type": "urn:windvane:problem:invalid",
        "title": "The request is invalid",
        "status": 422,
        "detail": "`gamma` must be in (0, 1], got 2",
        "errors": [{"pointer": "#/gamma", "detail": "`gamma` must be in (0, 1], got 2"}],
    }
    assert problem.to_json().startswith(b'{"type":"urn:windvane:problem:invalid","title":')
    problem.move_pointers("#/decisions/3")
    assert problem.errors[0]["pointer"] == "#/decisions/3/gamma"
    assert pickle.loads(pickle.dumps(problem)).document == problem.document
    assert [Problem(code, "x").retry_after for code in ("no-answer", "internal")] == [1, None]
    with pytest.raises(KeyError):
        Problem("unheard-of", "x")


def test_what_is_unavailable_has_a_cause() -> None:
    problem = Problem("unavailable", "x", cause="moving")
    assert (problem.retry_after, problem.document["cause"]) == (0, "moving")  # the node has waited already
    assert Problem("unavailable", "x", cause="busy").retry_after == 1
    with pytest.raises(TypeError):
        Problem("unavailable", "x")
    assert not REQUEST_CAUSES.keys() & CAUSES.keys()


def test_every_code_has_a_status_and_a_title() -> None:
    assert {kind.status // 100 for kind in KINDS.values()} == {4, 5}
    assert all(kind.title[0].isupper() and not kind.title.endswith(".") for kind in KINDS.values())
    assert all(code.replace("-", "").isalpha() and code.islower() for code in KINDS)


class Inner(BaseModel):
    numbers: list[float]


class Outer(BaseModel):
    inner: dict[str, Inner]
    whole: int


def test_errors_have_pointers() -> None:
    problem = invalid(ArgumentError(("arms", "a/b", 1), "x", "a number"))
    assert problem.detail == "`arms['a/b'][1]` must be a number, got 'x'"
    assert problem.errors == [{"pointer": "#/arms/a~1b/1", "detail": problem.detail}]
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": {"a b": {"numbers": [1, "x", "y", "z"]}}, "whole": 1.5})
    problem = invalid(caught.value)
    assert [error["pointer"] for error in problem.errors] == [f"#/inner/a%20b/numbers/{i}" for i in (1, 2, 3)]
    text = "Input should be a valid number, unable to parse string as a number"
    assert problem.detail == f"#/inner/a%20b/numbers/1: {text}"
    assert invalid(ValueError("two\nlines")).errors == [{"pointer": "#", "detail": "two lines"}]
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate_json('{"inner')
    (error,) = invalid(caught.value).errors
    assert error["pointer"] == "#"
    assert error["detail"].startswith("must be JSON (EOF ")


def test_a_pattern_is_told_in_words() -> None:
    with pytest.raises(ValidationError) as caught:
        NewStream.model_validate({"name": "a b"})
    text = "must have 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit"
    assert invalid(caught.value).detail == f"#/name: {text}"
    with pytest.raises(ValidationError) as caught:
        DecisionItem.model_validate({"key": " a"})
    text = "must have 1 to 200 printable ASCII characters without a space at either end"
    assert invalid(caught.value).detail == f"#/key: {text}"


def test_long_texts_are_shortened() -> None:
    problem = Problem("invalid", "x" * 10_000, pointer="#/" + "y" * 10_000)
    assert len(problem.to_json()) < 2000
    assert problem.detail.endswith("...")
