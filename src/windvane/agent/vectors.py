"""Convert the arms of a decision, in any accepted form, to their names and the vectors that the policy sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from windvane.agent.features import CONSTANT, Features
from windvane.agent.names import check_flag, check_names
from windvane.arguments import NORM_SLACK, Array, check_array, check_positive, check_real_array, check_whole
from windvane.errors import ArgumentError
from windvane.frames import frame_arms, frame_columns, is_frame, order_columns
from windvane.kernels.scoring import NO_PROBLEM, check_points
from windvane.records import Name

PLAIN_VECTORS = frozenset((list, tuple, np.ndarray))  # types of vectors that are neither labelled nor masked
FIT_MARGIN = 1.25  # how much longer a vector may be than the longest of the history
REMEDY = 'give a larger L, scaling="fit" with history, or clip=True'


class Offer(NamedTuple):
    """The arms of a decision by name, their vectors as the policy sees them, and the columns of the frame, if any,
    that the vectors were read from."""

    names: list[Name]
    vectors: Array
    columns: list[Name] | None = None


class Scaling:
    """(x - center) / spread, then length at most ``L``, then, if ``intercept``, a last coordinate of 1.

    ``remedy``: advice for a vector that is too long.
    """

    def __init__(self, dim: int, L: float, *, scaling: Any, intercept: bool, clip: bool, remedy: str = REMEDY) -> None:
        self.raw_dim, self.L, self.remedy = dim, L, remedy
        self.intercept, self.clip = check_flag("intercept", intercept), check_flag("clip", clip)
        self.dim, self.longest = dim + self.intercept, math.hypot(L, 1.0) if self.intercept else L  # of what comes out
        if scaling is None:
            scaling = np.zeros(dim), np.ones(dim)
        elif isinstance(scaling, Mapping) and set(scaling) == {"center", "spread"}:
            scaling = scaling["center"], scaling["spread"]
        elif not isinstance(scaling, list | tuple | np.ndarray) or len(scaling) != 2:
            raise ArgumentError("scaling", scaling, 'None, "fit", or a pair (center, spread)')
        self.center, self.spread = (
            check_array(("scaling", name), value, (dim,)).copy()
            for name, value in zip(("center", "spread"), scaling, strict=True)
        )
        if not (np.isfinite(self.center).all() and np.isfinite(self.spread).all() and (self.spread > 0.0).all()):
            expected = "a finite center and a finite, positive spread"
            raise ArgumentError("scaling", (self.center.tolist(), self.spread.tolist()), expected)
        self.is_identity = not self.center.any() and bool((self.spread == 1.0).all())

    def fit(self, rows: Array) -> Scaling:
        """Return the same, with the center and spread under which ``rows`` have mean 0, equal variances (where they
        vary), and lengths below L by a margin."""
        if not np.isfinite(rows).all():
            row = int(np.argmax(~np.isfinite(rows).all(axis=1)))
            raise ArgumentError(("vectors", row), rows[row].tolist(), "finite")
        if len(rows) < 2:
            raise ArgumentError("vectors", rows, 'two or more rows for scaling="fit"', got=str(len(rows)))
        with np.errstate(over="ignore", invalid="ignore"):
            center, deviation = rows.mean(axis=0), rows.std(axis=0)
            varies = deviation > CONSTANT * np.abs(rows).max(axis=0)  # less is the rounding of the mean
            if not varies.any():
                raise ArgumentError("vectors", rows, 'rows that vary, for scaling="fit"', got="equal rows")
            deviation = np.where(varies, deviation, 1.0)
            longest = float(np.sqrt(np.square((rows - center) / deviation).sum(axis=1)).max())
            pair = center, deviation * (longest * FIT_MARGIN / self.L)
        if not np.isfinite(pair).all():
            got = f"values up to {np.abs(rows).max():g}"
            raise ArgumentError("vectors", rows, 'numbers whose squares are finite, for scaling="fit"', got=got)
        return Scaling(self.raw_dim, self.L, scaling=pair, intercept=self.intercept, clip=self.clip, remedy=self.remedy)

    def apply(
        self, rows: Array, argument: str, names: Sequence[Name] | None = None, *, longest: float = math.inf
    ) -> Array:
        """Return scaled ``rows``, which may be the same array. ``argument`` and ``names`` are for
        errors; ``longest`` is a bound on the norms of ``rows``, where one is known."""
        scaled = rows
        if not self.is_identity:
            longest = math.inf
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = (rows - self.center) / self.spread
        if longest > self.L and not are_shorter(scaled, self.L * NORM_SLACK):
            scaled = self._clip(scaled, argument, names)
        return np.column_stack((scaled, np.ones(len(scaled)))) if self.intercept else scaled

    def _clip(self, scaled: Array, argument: str, names: Sequence[Name] | None) -> Array:
        """Return vectors of length at most L, some of which are longer now."""
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.square(scaled).sum(axis=1))
        if (norms <= self.L * NORM_SLACK).all():  # equal to it up to rounding
            return scaled
        self._refuse_unless_clipped(scaled, norms, argument, names)
        return np.asarray(scaled * np.minimum(1.0, self.L / np.maximum(norms, 1e-300))[:, None])

    def _refuse_unless_clipped(self, scaled: Array, norms: Array, argument: str, names: Sequence[Name] | None) -> None:
        is_bad = ~np.isfinite(norms) if not np.isfinite(norms).all() else norms > self.L * NORM_SLACK
        row = int(np.argmax(is_bad))
        where, vector = (argument, row if names is None else names[row]), scaled[row].tolist()
        if not np.isfinite(norms[row]):
            raise ArgumentError(where, vector, "a vector whose features and norm are finite")
        if not self.clip:
            expected, got = f"a vector of norm at most L = {self.L:g}", f"a norm of {norms[row]:.6g}"
            raise ArgumentError(where, vector, expected, got=got, hint=self.remedy)


def are_shorter(rows: Array, longest: float) -> bool:
    """Return whether all rows are finite and have norms of at most ``longest``."""
    is_present = np.empty((1, len(rows)), dtype=bool)
    is_present.fill(True)
    return check_points(rows[None], is_present, longest)[0] == NO_PROBLEM


class ArmEncoder:
    """Declared features or raw vectors, and the scaling that is applied to them.

    ``columns`` are those of the first frame of raw vectors: they set the order of the coordinates. ``to_fit``: the
    scaling, or the ranges of declared numbers, are to be fitted on the first history. ``needs_one_hot``: the policy
    knows arms by their index, so that vectors must be unit vectors.
    """

    def __init__(
        self, dim: int | None, features: Any, scaling: Any, *, L: float, intercept: bool, clip: bool,
        needs_one_hot: bool = False,
    ) -> None:  # fmt: skip
        self.features, self.needs_one_hot = parse_features(features, needs_one_hot=needs_one_hot), needs_one_hot
        self.columns: list[Name] | None = None
        self.is_lenient = False  # while a log is learned again: see :mod:`windvane.agent.refit`
        self.to_fit = isinstance(scaling, str) and scaling == "fit"
        if (dim is None) == (self.features is None):
            expected = "given unless `features` is" if dim is None else "omitted when `features` is given"
            raise ArgumentError("dim", dim, expected)
        remedy, scaling = REMEDY, None if self.to_fit else scaling
        if self.features is None:
            dim = check_whole("dim", dim, 1)
        else:
            for name, value in (("intercept", intercept), ("clip", clip)):
                if value:
                    raise ArgumentError(name, value, "omitted when `features` is given", hint="declare it there")
            dim = self.features.dim
            remedy = 'declare ranges of all numbers, use scaling="fit" with history, or give a larger L'
            self.to_fit = self.to_fit and bool(self.features.open_fields)
        self.scaling = Scaling(
            dim, check_positive("L", L), scaling=scaling, intercept=intercept, clip=clip, remedy=remedy
        )

    def declaration(self) -> dict[str, Any]:
        """Return the arguments ``features`` and ``scaling`` as plain data, including fitted values."""
        center, spread = self.scaling.center.tolist(), self.scaling.spread.tolist()
        given = None if self.scaling.is_identity else {"center": center, "spread": spread}
        return {
            "features": None if self.features is None else self.features.declaration(),
            "scaling": "fit" if self.to_fit else given,
        }

    @property
    def feature_names(self) -> list[str]:
        """The names of a vector's coordinates."""
        names = self.features.names if self.features is not None else self.columns
        raw = names or [f"x{i}" for i in range(self.scaling.raw_dim)]
        return [*map(str, raw), *["1"] * self.scaling.intercept]

    @property
    def has_intercept(self) -> bool:
        """Whether a coordinate is a constant 1, of all arms or of each."""
        if self.features is None:
            return self.scaling.intercept
        return self.features.intercept or bool(self.features.arms)

    def encode(self, arms: Any, context: Any) -> Offer:
        """Check the arms of a decision and encode them."""
        if arms is None and (self.features is None or not self.features.arms or self.features.per_arm):
            raise ArgumentError("arms", None, "given")
        if self.to_fit:
            raise ArgumentError("scaling", "fit", "fitted first", hint="give history first")
        if self.features is None:
            if context is not None:
                hint = "or give `features` when you create the agent"
                expected = "omitted, because the agent has no declared features"
                raise ArgumentError("context", context, expected, hint=hint)
            names, rows, columns = _read_vectors(arms, self.scaling.raw_dim, self.columns)
            longest = math.inf
        else:
            names, rows = _encode_fields(self.features, arms, context, lenient=self.is_lenient)
            columns, longest = None, self.features.longest
        if not names:
            raise ArgumentError("arms", arms, "at least one arm")
        return Offer(names, self.scale(rows, "arms", names, longest=longest), columns)

    def scale(
        self, rows: Array, argument: str, names: Sequence[Name] | None = None, *, longest: float = math.inf
    ) -> Array:
        """Return the vectors that the policy sees for encoded ``rows``; see :meth:`Scaling.apply`."""
        vectors = self.scaling.apply(rows, argument, names, longest=longest)
        if self.needs_one_hot:
            is_unit = ((vectors == 0.0) | (vectors == 1.0)).all(axis=1) & (vectors.sum(axis=1) == 1.0)
            if not is_unit.all():
                row = int(np.argmin(is_unit))
                expected = "one of the declared arms" if self.features is not None else "a unit vector"
                hint = "the policy knows arms by their index, not by features"
                where = (argument, row if names is None else names[row])
                raise ArgumentError(where, vectors[row].tolist(), expected, hint=hint)
        return vectors


def parse_features(features: Any, *, needs_one_hot: bool) -> Features | None:
    """Return features from their declaration. If the policy needs unit vectors, the arms get no common intercept."""
    parsed = Features.parse(features)
    if parsed is None or not needs_one_hot:
        return parsed
    if parsed.shared or parsed.per_arm or parsed.by_arm or not parsed.arms:
        expected = "a declaration of `arms` alone, because the policy knows arms by their names, not by features"
        raise ArgumentError("features", parsed.declaration(), expected)
    return Features(arms=parsed.arms, intercept=False)


def _encode_fields(features: Features, arms: Any, context: Any, *, lenient: bool) -> tuple[list[Name], Array]:
    """Return names and vectors of declared features; ``arms`` None: of all declared arms."""
    if arms is None:
        return list(features.arms), features.vectors(context, features.arms, lenient=lenient)
    if is_frame(arms) or isinstance(arms, Mapping):
        pairs = frame_arms("arms", arms) if is_frame(arms) else list(arms.items())
        names = check_names("arms", [name for name, _ in pairs])
        own_fields = {name: own for name, (_, own) in zip(names, pairs, strict=True)}
        return names, features.vectors(context, own_fields, lenient=lenient)
    names = check_names("arms", arms)
    try:
        return names, features.vectors(context, names, lenient=lenient)
    except ArgumentError as error:
        if error.path[0] != "arms":
            raise
        raise error.rename(("arms", names.index(error.path[1]))) from None


def _read_vectors(arms: Any, dim: int, columns: list[Name] | None) -> tuple[list[Name], Array, list[Name] | None]:
    """Return names, vectors, and the columns that set the order of the coordinates, if there are any."""
    if is_frame(arms):
        names = check_names("arms", [name for name, _ in frame_arms("arms", arms)])
        return names, *read_frame("arms", arms, dim, columns)
    if not isinstance(arms, Mapping):
        rows = check_matrix("arms", arms, dim)
        return list(range(len(rows))), rows, columns
    names, vectors = check_names("arms", list(arms)), list(arms.values())
    is_plain = PLAIN_VECTORS.issuperset(map(type, vectors))
    vectors = vectors if is_plain else _align(vectors)
    try:
        if not is_plain and any(isinstance(vector, np.ma.MaskedArray) for vector in vectors):
            raise ArgumentError("arms", vectors, "vectors without masked entries")
        return names, check_matrix("arms", vectors, dim), columns
    except ValueError:
        for name, vector in zip(names, vectors, strict=True):  # find the vector that is wrong
            row = check_real_array(("arms", name), vector, f"{dim} numbers")
            if row.shape != (dim,):
                got = f"an array of shape {row.shape}"
                raise ArgumentError(("arms", name), vector, f"{dim} numbers", got=got) from None
        if names:
            raise
        return [], np.zeros((0, dim)), columns


def _align(vectors: list[Any]) -> list[Any]:
    """Return labelled vectors (of pandas) in the label order of the first one; others unchanged."""
    labels = [list(vector.index) if hasattr(vector, "loc") else None for vector in vectors]
    if not any(label != labels[0] for label in labels):
        return vectors
    if any(label is None or sorted(label, key=str) != sorted(labels[0] or (), key=str) for label in labels):
        raise ArgumentError("arms", vectors, "vectors that all have the same labels", got="different labels")
    return [vector.loc[labels[0]] for vector in vectors]


def check_matrix(argument: str, rows: Any, dim: int) -> Array:
    """Return ``rows`` as a new array [n, dim]."""
    expected = f"an array with rows of {dim} numbers"
    matrix = np.array(check_real_array(argument, rows, expected), order="C")
    if matrix.ndim != 2 or matrix.shape[1] != dim:
        raise ArgumentError(argument, rows, expected, got=f"an array of shape {matrix.shape}")
    return matrix


def read_frame(argument: str, frame: Any, dim: int, columns: list[Name] | None) -> tuple[Array, list[Name]]:
    """Return the numbers of a frame, without the column of the arms' names, and the order of the other columns: that of
    ``columns``, the first frame's, or its own."""
    order = order_columns(argument, check_names(argument, frame_columns(argument, frame)), columns)
    return check_matrix(argument, frame[order].to_numpy(), dim), order
