"""Save, check and load the state of a component.

This is the only state mechanism of the package. A component lists the attributes that determine its future in
``stored`` and the components that it contains in ``parts()``. Its state is a flat dict of arrays. The entries of a part
have the name of the part as a prefix, for example ``estimator.now``. Loading first checks the whole state, including
all parts, and allocates what it needs. Nothing changes until every check has passed.

A component also says how its fields change when vectors get other coordinates (:class:`CoordinateChange`), so that a
successor with other dimensions can continue from its state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.errors import ArgumentError

State = dict[str, npt.NDArray[Any]]


class CoordinateChange(NamedTuple):
    """A change of the coordinates of vectors.

    Attributes
    ----------
    places
        For each new coordinate, the place of the same one among the old coordinates; -1 if there was none.
    scale
        What vectors are multiplied by. Parameters are divided by it, so that products of both stay the same.
    """

    places: npt.NDArray[np.int64]
    scale: float

    def move(self, rows: npt.NDArray[np.float64], factor: float) -> npt.NDArray[np.float64]:
        """Return ``factor`` times the entries of the last axis in their new places, and 0 for new coordinates."""
        return np.where(self.places >= 0, factor * rows[..., self.places], 0.0)

    def move_matrix(self, matrices: npt.NDArray[np.float64], factor: float) -> npt.NDArray[np.float64]:
        """Return matrices, whose last two axes are coordinates, in the same way."""
        return np.swapaxes(self.move(np.swapaxes(self.move(matrices, factor), -1, -2), 1.0), -1, -2)


class CheckedState(NamedTuple):
    """A checked state: its component, the new values of attributes, and the checked states of the parts."""

    component: Stateful
    values: dict[str, Any]
    parts: dict[str, CheckedState]


class Stateful:
    """A component whose future depends only on its ``stored`` attributes, its parts and its settings.

    A stored attribute is an array or a number. A subclass overrides ``check_fields``, ``build_parts``,
    ``prepare_fields`` or ``adopt_parts`` where listing attributes is not enough.

    Examples
    --------
    >>> class Counter(Stateful):
    ...     stored = ("count",)
    ...     def __init__(self):
    ...         self.count = 0
    >>> counter, other = Counter(), Counter()
    >>> counter.count = 3
    >>> swap(check(other, save(counter)))
    >>> other.count
    3
    """

    stored: ClassVar[tuple[str, ...]] = ()
    flexible: ClassVar[tuple[str, ...]] = ()  # fields whose last axis can have any length
    unbounded: ClassVar[tuple[str, ...]] = ()  # fields that can hold infinite values
    invariant: ClassVar[tuple[str, ...]] = ()  # fields that do not depend on the coordinates of vectors

    def parts(self) -> Mapping[str, Stateful]:
        """Return the components that this component contains, by name."""
        return {}

    def read_fields(self) -> State:
        """Return copies of the stored attributes."""
        return {name: np.array(getattr(self, name)) for name in self.stored}

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` if the values are inconsistent. Their shapes and types have already been checked."""

    def build_parts(self, fields: State) -> Mapping[str, Stateful]:
        """Return the parts into which a state with these fields is loaded. By default, the existing parts."""
        return self.parts()

    def prepare_fields(self, fields: State) -> dict[str, Any]:
        """Return the new values of attributes for checked fields. All memory is allocated here."""
        numbers = {name for name in fields if isinstance(getattr(self, name), int | float)}
        return {name: value.item() if name in numbers else value for name, value in fields.items()}

    def write_fields(self, values: Mapping[str, Any]) -> None:
        """Set the attributes to the values from ``prepare_fields``."""
        for name, value in values.items():
            setattr(self, name, value)

    def map_fields(self, successor: Any, change: CoordinateChange) -> State | None:
        """Return the fields for ``successor``, a component of the same type in other coordinates.

        None: the component does not say how one of its fields depends on coordinates.
        """
        return self.read_fields() if set(self.stored) <= set(self.invariant) else None

    def adopt_parts(self, parts: Mapping[str, Stateful]) -> None:
        """Replace the parts with those from ``build_parts``. Needed only if ``build_parts`` creates new ones."""


def save(component: Stateful) -> State:
    """Return copies of the fields of ``component`` and of its parts: everything that determines its future."""
    state = component.read_fields()
    for name, part in component.parts().items():
        state |= {f"{name}.{key}": value for key, value in save(part).items()}
    return state


def map_state(component: Stateful, successor: Stateful, change: CoordinateChange) -> State | None:
    """Return the state with which ``successor``, of the same type in other coordinates, continues ``component``.

    None: some part of it cannot change coordinates.
    """
    state, successors = component.map_fields(successor, change), successor.parts()
    for name, part in component.parts().items():
        entries = map_state(part, successors[name], change) if name in successors else None
        if state is None or entries is None:
            return None
        state |= {f"{name}.{key}": value for key, value in entries.items()}
    return state


def check(component: Stateful, state: Mapping[str, Any], path: str = "", *, is_own: bool = False) -> CheckedState:
    """Check ``state`` for ``component`` without changing anything, and return it for :func:`swap`.

    Parameters
    ----------
    component, state
        The component to load into, and the entries, as :func:`save` returns them.
    path
        Prefix of the entries in error messages.
    is_own
        Whether the state comes from a component, not from a file. Then only shapes and types are checked: eigenvalues
        of large matrices take seconds.

    Raises
    ------
    ArgumentError
        If an entry is missing, unknown, inconsistent, not finite, or of the wrong shape or type.
    """
    fields = {}
    for name, own in component.read_fields().items():
        if name not in state:
            raise refuse(path, name, None, "in the state", got="nothing")
        fields[name] = _check_like(component, name, state[name], own, path)
    if not is_own:
        component.check_fields(fields, path)
    parts, known = {}, set(fields)
    for name, part in component.build_parts(fields).items():
        prefix = f"{name}."
        entries = {str(key): value for key, value in state.items() if str(key).startswith(prefix)}
        part_state = {key.removeprefix(prefix): value for key, value in entries.items()}
        parts[name] = check(part, part_state, path + prefix, is_own=is_own)
        known |= set(entries)
    for key in state:
        if key not in known:
            raise refuse(path, str(key), state[key], "absent, because it is not part of this state", got="an entry")
    return CheckedState(component, component.prepare_fields(fields), parts)


def swap(loaded: CheckedState) -> None:
    """Load a checked state, the result of :func:`check`."""
    for part in loaded.parts.values():
        swap(part)
    loaded.component.write_fields(loaded.values)
    loaded.component.adopt_parts({name: part.component for name, part in loaded.parts.items()})


def digest(state: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 hash, in hexadecimal, of the names, types, shapes and bytes of all entries."""
    total = hashlib.sha256()
    for name in sorted(state):
        array = np.asarray(state[name], order="C")
        total.update(f"{name} {array.dtype.str} {array.shape};".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def refuse(path: str, name: str, value: Any, expected: str, got: str | None = None) -> ArgumentError:
    """Return the error that ``check_fields`` raises for the entry ``path + name``, which must be ``expected``."""
    return ArgumentError(f"state[{path + name!r}]", value, expected, got=got)


def _check_like(component: Stateful, name: str, value: Any, own: npt.NDArray[Any], path: str) -> npt.NDArray[Any]:
    """Return a copy of ``value`` if it is finite and has the shape and type of ``own``."""
    try:
        array = np.array(value, order="C")
    except (ValueError, TypeError):  # ragged
        raise refuse(path, name, value, f"of shape {own.shape} and type {own.dtype}") from None
    is_flexible = name in component.flexible and array.ndim == own.ndim
    shape = (*own.shape[:-1], array.shape[-1]) if is_flexible else own.shape
    if array.dtype != own.dtype or array.shape != shape:
        got = f"shape {array.shape} and type {array.dtype}"
        raise refuse(path, name, value, f"of shape {shape} and type {own.dtype}", got)
    if array.dtype == float:
        is_bad = np.isnan(array) if name in component.unbounded else ~np.isfinite(array)
        if is_bad.any():
            raise refuse(path, name, value, "finite", repr(float(array[is_bad][0])))
    return array
