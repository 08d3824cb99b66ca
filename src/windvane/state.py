"""Saving, checking and loading state: the one mechanism of every component that has any.

A component names the attributes that decide its future in ``stored`` and the components it is made of in ``parts()``.
Its state is a flat dict of arrays; the entries of a part carry the part's name as a prefix, such as ``estimator.now``.
Loading checks everything first, down to the last part, and only then changes anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.errors import ArgumentError

State = dict[str, npt.NDArray[Any]]


class Loaded(NamedTuple):
    """A checked state: the component it is for, the values of its fields and the same of its parts."""

    component: Stateful
    fields: State
    parts: dict[str, Loaded]


class Stateful:
    """A component whose future depends only on its ``stored`` attributes, its parts and its settings.

    A stored attribute is an array or a number. The hooks ``check_fields``, ``build_parts``, ``write_fields`` and
    ``adopt_parts`` are for what a declaration cannot express.
    """

    stored: ClassVar[tuple[str, ...]] = ()
    flexible: ClassVar[tuple[str, ...]] = ()  # fields whose last axis may have any length
    unbounded: ClassVar[tuple[str, ...]] = ()  # fields that may be infinite

    def parts(self) -> Mapping[str, Stateful]:
        """Return the components that this one is made of, by name."""
        return {}

    def read_fields(self) -> State:
        """Return copies of the stored attributes."""
        return {name: np.array(getattr(self, name)) for name in self.stored}

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` if values of the right shape and type still make no sense."""

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        """Return the parts that a state with these fields is loaded into; by default the present ones."""
        return self.parts()

    def write_fields(self, fields: State) -> None:
        """Set the stored attributes to checked values."""
        for name, value in fields.items():
            is_number = isinstance(getattr(self, name), int | float)
            setattr(self, name, value.item() if is_number else value)

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        """Take over the parts that ``build_parts`` made, if it made new ones."""


def save(component: Stateful) -> State:
    """Return everything that decides the future of ``component``, as copies."""
    state = component.read_fields()
    for name, part in component.parts().items():
        state |= {f"{name}.{key}": value for key, value in save(part).items()}
    return state


def check(component: Stateful, state: Mapping[str, Any], path: str = "") -> Loaded:
    """Return ``state`` checked for ``component``; nothing changes.

    Raises
    ------
    ArgumentError
        If an entry is missing, unknown, of another shape or type, not finite, or makes no sense.
    """
    expected = component.read_fields()
    fields = {}
    for name, own in expected.items():
        if name not in state:
            raise ArgumentError(_entry(path + name), None, "in the state", got="nothing")
        fields[name] = _check_like(component, name, state[name], own, path)
    component.check_fields(fields, path)
    parts = component.build_parts(fields)
    loaded, known = {}, set(expected)
    for name, part in parts.items():
        prefix = f"{name}."
        own_entries = {str(key)[len(prefix) :]: value for key, value in state.items() if str(key).startswith(prefix)}
        loaded[name] = check(part, own_entries, path + prefix)
        known |= {key for key in state if str(key).startswith(prefix)}
    for key in state:
        if key not in known:
            raise ArgumentError(_entry(path + str(key)), state[key], "left out: it is not part of this state", got="it")
    return Loaded(component, fields, loaded)


def swap(loaded: Loaded) -> None:
    """Put a checked state in place."""
    for part in loaded.parts.values():
        swap(part)
    loaded.component.write_fields(loaded.fields)
    loaded.component.adopt_parts({name: part.component for name, part in loaded.parts.items()})


def digest(state: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 over names, types, shapes and bytes of all entries."""
    total = hashlib.sha256()
    for name in sorted(state):
        array = np.asarray(state[name], order="C")
        total.update(f"{name} {array.dtype.str} {array.shape};".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def refuse(path: str, name: str, value: Any, expected: str) -> ArgumentError:
    """Return the error for an entry of a state, for ``check_fields`` to raise."""
    return ArgumentError(_entry(path + name), value, expected)


def _entry(name: str) -> str:
    return f"state[{name!r}]"


def _check_like(component: Stateful, name: str, value: Any, own: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
    """Return a copy of ``value`` if it has the shape and type of ``own`` and is finite."""
    array = np.array(value, order="C")
    shape = own.shape
    if name in component.flexible and array.ndim == own.ndim:
        shape = (*own.shape[:-1], array.shape[-1])
    if array.dtype != own.dtype or array.shape != shape:
        got = f"shape {array.shape} and type {array.dtype}"
        raise ArgumentError(_entry(path + name), value, f"of shape {shape} and type {own.dtype}", got=got)
    if array.dtype == float:
        is_bad = np.isnan(array) if name in component.unbounded else ~np.isfinite(array)
        if is_bad.any():
            raise ArgumentError(_entry(path + name), value, "finite", got=repr(float(array[is_bad][0])))
    return array
