"""Checks of the names of arms and of other plain arguments of an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from windvane.errors import ArgumentError, Path
from windvane.records import Name

LARGEST_NAME = 2**63  # bound on integer names: they fit into 64 bits


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a Python bool."""
    if not isinstance(value, bool | np.bool_):
        raise ArgumentError(name, value, "True or False")
    return bool(value)


def check_sequence(argument: str | Path, values: Any) -> list[Any]:
    """Return the entries of an ordered collection as a list."""
    if type(values) is not list:  # the usual case needs no closer check
        is_unordered = isinstance(values, str | bytes | Mapping | set | frozenset)
        if is_unordered or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
            raise ArgumentError(argument, values, "a list")
    return list(values)


def check_names(argument: str, names: Any) -> list[Name]:
    """Return the names of arms: texts or whole numbers, all different."""
    listed = check_sequence(argument, names)
    checked = [name if type(name) is str and name else check_name(argument, name) for name in listed]
    if repeated := find_repeated(checked):
        raise ArgumentError(argument, names, "distinct names", got=f"{repeated[0]!r} twice")
    return checked


def find_repeated(values: Sequence[Any]) -> list[Any]:
    """Return the values that occur more than once."""
    return [value for value, times in Counter(values).items() if times > 1] if len(set(values)) < len(values) else []


def check_name(argument: str | Path, name: Any) -> Name:
    """Return a name as a plain string or integer, whatever library or enumeration it comes from."""
    if isinstance(name, str) and name:
        return str.__str__(name)
    if isinstance(name, int | np.integer) and not isinstance(name, bool) and -LARGEST_NAME <= name < LARGEST_NAME:
        return int(name)
    raise ArgumentError(argument, name, "the name of an arm: a string that is not empty, or an integer below 2**63")


def list_values(values: Iterable[Any], most: int = 12) -> str:
    """Return the first few values, for an error message."""
    texts = [repr(value) for value in values]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
