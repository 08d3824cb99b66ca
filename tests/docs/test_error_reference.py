"""The page about errors has every public exception, and every code that a client can get."""

from __future__ import annotations

import importlib
import re

import error_reference
import pytest

from windvane.errors import WindvaneError
from windvane.service.problems import KINDS, REQUEST_CAUSES
from windvane.service.readiness import CAUSES


@pytest.mark.parametrize("part", ["", ".agent", ".client", ".lab", ".testing"])
def test_every_public_exception_is_listed(part: str) -> None:
    listed = set(re.findall(r"^\| \{any\}`(\w+)`", error_reference.write_exceptions(), re.M))
    module = importlib.import_module(f"windvane{part}")
    public = [getattr(module, name) for name in module.__all__]
    assert {item.__name__ for item in public if isinstance(item, type) and issubclass(item, WindvaneError)} <= listed


def test_a_base_class_is_named_where_code_may_catch_it() -> None:
    table = error_reference.write_exceptions()
    assert "| {any}`ArgumentError` | any part | `ValueError` |" in table
    assert "| {any}`BatchError` | `Client`, `AsyncClient` | `ClientError` |" in table


def test_every_problem_is_listed_with_its_status() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", error_reference.write_problems(), re.M)
    assert {code: int(status) for status, code in rows} == {code: kind.status for code, kind in KINDS.items()}
    assert [int(status) for status, _ in rows] == sorted(int(status) for status, _ in rows)


def test_every_cause_is_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", error_reference.write_causes(), re.M)
    assert listed == [*CAUSES, *REQUEST_CAUSES]
