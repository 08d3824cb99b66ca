"""Fields of drifts and laws, and their checks.

Fields are stored as tuples of floats, not arrays, so that two laws are equal if their fields are, and can be written to
a file.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from windvane.arguments import NORM_SLACK, Array, Index, check_lanes, check_positive, check_real_array, check_whole
from windvane.documentation import documented
from windvane.errors import ArgumentError

Vector = tuple[float, ...]
Law = TypeVar("Law", bound="type[Record]")
LATEST = 2**40  # rounds: multiplied by a count of up to a million they still fit in 64 bits


class Record:
    """Base class of drifts and laws: a frozen dataclass with a ``kind``, created by :func:`record`."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        documented(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, (check, *limits) = getattr(self, field.name), field.metadata.get("check", [None])
            if check is not None and (value is not None or field.default is not None):
                self.set_field(field.name, check(field.name, value, *limits))

    def set_field(self, name: str, value: Any) -> None:
        """Store a checked value, although the record is frozen."""
        object.__setattr__(self, name, value)


def setting(meaning: str, check: Callable[..., Any] | None = None, *limits: Any, **default: Any) -> Any:
    """Return a field of a record: its meaning, its check ``check(name, value, *limits)``, and its default.

    The check returns the value in canonical form. The default None is not checked.
    """
    return dataclasses.field(metadata={"meaning": meaning, "check": (check, *limits)}, **default)


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def record(kind: str) -> Callable[[Law], Law]:
    """Return the decorator of a drift or law: a frozen dataclass whose docstring describes its fields.

    A docstring without an example gets the law with its defaults as an example.
    """

    def decorate(law: Law) -> Law:
        law.kind = kind
        fields = dataclasses.fields(dataclasses.dataclass(frozen=True)(law))  # type: ignore[arg-type]
        has_defaults = all(field.default is not dataclasses.MISSING for field in fields)
        if has_defaults and law.__doc__ and ">>>" not in law.__doc__:
            law.__doc__ = f"{inspect.cleandoc(law.__doc__)}\n\n>>> {law.__name__}()\n{law()!r}"
        return documented(law, meanings={field.name: field.metadata["meaning"] for field in fields})

    return decorate


class Frame(NamedTuple):
    """What a drift or an arm law is bound to. All points have norms of at most ``radius``, which is S or L."""

    dim: int
    radius: float
    lane_ids: Index
    seed: int
    horizon: int

    @classmethod
    def check(
        cls, name: str, radius: float, dim: int, lane_ids: int | Sequence[int] | Index, seed: int, horizon: int = LATEST
    ) -> Frame:
        """Check the arguments and return a frame; ``name`` is that of the radius."""
        horizon, dim = check_whole("horizon", horizon, 1, LATEST), check_whole("dim", dim, 1)
        radius, ids = check_positive(name, radius), check_lanes(lane_ids)  # type: ignore[arg-type]
        return cls(dim, radius, ids, check_whole("seed", seed, 0, 2**64 - 1), horizon)

    def check_points(self, name: str, points: Any, bound: str = "S") -> Array:
        """Return one vector or several as an array, after checking the length and the norm; S e_1 for None."""
        if points is None:
            return np.asarray(self.radius * np.eye(self.dim)[0])
        array = np.array(points, dtype=float)
        if array.shape[-1] != self.dim:
            raise ArgumentError(name, points, f"of length dim={self.dim}", got=f"length {array.shape[-1]}")
        longest = float(np.sqrt(np.square(array).sum(axis=-1)).max())
        if not longest <= self.radius * NORM_SLACK:  # written as `not x <= y` so that NaN is rejected
            raise ArgumentError(name, points, f"of norm at most {bound}={self.radius:g}", got=f"norm {longest:.9g}")
        return array


def check_vectors(name: str, value: Any, ndim: int = 2) -> tuple[Any, ...]:
    """Return ``value`` as a tuple of finite vectors of one length, at least one, or as one vector if ``ndim`` is 1."""
    expected = "a vector of finite numbers" if ndim == 1 else "a list of vectors of finite numbers, all of one length"
    array = check_real_array(name, value, expected)
    if array.ndim != ndim or array.size == 0 or not np.isfinite(array).all():
        raise ArgumentError(name, value, expected)
    return tuple(array.tolist() if ndim == 1 else map(tuple, array.tolist()))


def check_rounds(name: str, value: Any, least: int) -> tuple[int, ...]:
    """Return ``value`` as a tuple of whole, strictly increasing rounds from ``least`` on."""
    try:
        rounds = tuple(check_whole(f"{name}[{i}]", entry, least) for i, entry in enumerate(value))
    except TypeError:
        raise ArgumentError(name, value, "a list of rounds") from None
    if any(late <= early for early, late in pairwise(rounds)):
        raise ArgumentError(name, value, "strictly increasing")
    return rounds
