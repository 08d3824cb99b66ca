"""What a spec may hold besides numbers and texts: None, frozen tables, and Python objects by name, "module:name".

TOML has no None. In settings the text "none" stands for it, in Python as well as in a file.

Naming an object imports its module, which runs the code in it: read specs of strangers before running them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from windvane._importing import imported
from windvane.environments import Drift, FunctionDrift
from windvane.errors import ArgumentError, format_value
from windvane.lab.spec.spec_errors import SpecError
from windvane.links import LINKS, CustomLink, Link

NONE = "none"  # how None is written
LARGEST_INTEGER = 2**64  # integers in a spec are smaller: other readers of TOML could not represent them


class Table(Mapping[str, Any]):
    """A mapping that cannot change: equal to any mapping with the same items, hashable, safe to share and to pickle."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def freeze(value: Any) -> Any:
    """Return a copy of ``value`` that cannot change: lists and arrays as tuples, mappings as :class:`Table`.

    The text "none" becomes None. Everything else that is a text, a number or a flag can be stored as TOML.
    """
    if isinstance(value, str) and value == NONE:
        return None
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not _is_storable(name):
                raise SpecError((), f"the key {format_value(name)} must be a text")
        return Table({name: freeze(item) for name, item in value.items()})
    if isinstance(value, np.ndarray | np.generic):
        return freeze(value.tolist())
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    is_known = value is None or isinstance(value, bool | int | float | str | Link) or hasattr(value, "__qualname__")
    if (
        not is_known
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, int) and abs(value) >= LARGEST_INTEGER)
        or (isinstance(value, str) and not _is_storable(value))
    ):
        allowed = "a number of 64 bits, a text, true or false, a list or table of these, a link, or a function or class"
        raise SpecError.of((), value, allowed)
    return value


def _is_storable(text: str) -> bool:
    """Return whether a text can be written to a file: half of a surrogate pair cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def find_name(value: Any) -> str | None:
    """Return "module:name" of a function, a class or a link if it can be imported elsewhere by that name."""
    for module, name in _list_names(value):
        if module != "__main__":  # another process has another one
            try:
                if imported(f"{module}:{name}") is value:
                    return f"{module}:{name}"
            except ValueError:
                continue
    return None


def _list_names(value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, CustomLink):
        return [(str(getattr(value, "__module__", "")), str(getattr(value, "__qualname__", "")))]
    # A custom link does not know the name it is bound to: look in the module of its function.
    module = str(getattr(value.mean_function, "__module__", ""))
    try:
        names = vars(importlib.import_module(module))
    except (ImportError, ValueError):
        return []
    return [(module, name) for name, other in names.items() if other is value]


def qualify(value: Callable[..., Any] | type) -> str:
    """Return "module:name" of a function or class, whether it can be imported or not."""
    return f"{value.__module__}:{value.__qualname__}"


def name_link(argument: str, link: Any) -> str | Link:
    """Return ``link`` as a spec stores it: by name if it has one, else the object."""
    if isinstance(link, str) and (link in LINKS or ":" in link):
        return link
    if isinstance(link, Link):
        return link.name if type(link) in LINKS.values() else find_name(link) or link
    raise ArgumentError(argument, link, f'one of {", ".join(sorted(LINKS))}, "module:name", or a Link')


def name_drift(drift: Drift) -> Drift:
    """Return a drift as a spec stores it: a function that can be imported is stored by its name."""
    if not isinstance(drift, FunctionDrift) or isinstance(drift.function, str):
        return drift
    name = find_name(drift.function)
    return FunctionDrift(name) if name and "." not in name.partition(":")[2] else drift
