"""The packed state of an estimator (see :mod:`windvane.kernels.lanes`), its workspaces, its growth and its checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, check_mask
from windvane.estimation.expansion import Expansion
from windvane.estimation.scratch import KernelState
from windvane.kernels.history import NOT_BUILDING
from windvane.kernels.lanes import (
    BUFFERS,
    CHUNK,
    EXPANDED_FROM,
    FRESH,
    LEVELS,
    LOST,
    RECORD,
    THETA_HAT,
    VECTORS,
    WORK,
    B,
    dense_rows,
)
from windvane.linalg import is_symmetric
from windvane.links import Link
from windvane.state import CoordinateChange, State, refuse

START_AT_ZERO = (
    "now", "origin", "dropped", "regret", "misfit", "start", "end", "removals", "status", "passes", "error", "strayed",
    "bent", "anchored", "edge", "base", "reach", "pause", "rest",
)  # fmt: skip
FIRST_CAPACITY = 8  # entries of a new history, which doubles its capacity when it is full
DEFINITENESS = 1e-6, 1e-12  # relative to lam and to the largest eigenvalue: how far rounding can push V below lam I


class LaneRows(KernelState):
    """The arrays ``record``, ``dense``, ``history`` and ``expansions`` of an estimator, with a lock and workspaces.

    ``settings`` are the settings in the record: one number, or one per lane. ``expansions`` has rows of length 0 until
    a history is long enough to be expanded.
    """

    scratch: ClassVar[tuple[str, ...]] = ("work", "workspaces")
    is_linearised: ClassVar[bool] = False  # whether (pull, H) is updated between solves: Newton's method starts from it
    stored: ClassVar[tuple[str, ...]] = (
        "gamma", "window", "now", "origin", "scale", "dropped", "count", "removals", "status", "passes", "error",
        "strayed", "bent", "anchored", "edge", "base", "reach", "built", "pause", "rest", "owed", "least", "dense",
        "history", "expansions",
    )  # fmt: skip
    flexible: ClassVar[tuple[str, ...]] = ("history", "expansions")
    unbounded: ClassVar[tuple[str, ...]] = ("window", "error", "strayed")

    def __init__(
        self, dim: int, lanes: int, link: Link, settings: Mapping[str, Any], *, remembers: bool, expansion: Expansion
    ) -> None:
        self.dim, self.lanes, self.link, self.expansion = dim, lanes, link, expansion
        self.remembers = remembers  # whether observations are stored
        self.record = np.zeros(lanes, RECORD)
        for name, value in {**settings, **expansion.record_settings(dim, link)}.items():
            self.record[name] = value
        self.record["memory"] = _compute_memory(self.record)
        self.dense = np.zeros((lanes, dense_rows(dim, linearised=self.is_linearised), dim))
        self.history = np.zeros((lanes, dim + 3, FIRST_CAPACITY if remembers else 0))
        self.expansions = np.zeros((lanes, LEVELS, 0))
        self.filled = 0  # upper bound on ``end`` of all lanes
        self.prepare_scratch()
        self.reset()

    def allocate(self) -> None:
        """Allocate the workspaces of kernels."""
        self.work = np.zeros((WORK, self.dim, self.dim))
        self.table, self.multiplicity = self.expansion.tables(self.dim)
        self.workspaces = self._allocate_workspaces(self.history.shape[2])

    @contextmanager
    def borrow(self) -> Iterator[Self]:
        """Yield a copy that shares the history and the lock. Solving it does not change where a later solve starts."""
        with self.lock:
            twin = object.__new__(type(self))
            copies = {name: getattr(self, name).copy() for name in ("record", "dense", "expansions")}
            vars(twin).update({**vars(self), **copies})
            yield twin

    def _allocate_workspaces(self, capacity: int) -> list[tuple[Array, Array, Array]]:
        """Return a list with the first scratch arrays for histories of this capacity."""
        vectors = np.zeros((self.expansion.count_vectors(self.dim), CHUNK))
        return [(self.work, np.zeros((BUFFERS, max(1, capacity))), vectors)]

    def workspace(self, number: int) -> tuple[Array, Array, Array]:
        """Return the ``number``-th scratch arrays, ``work``, ``buffers`` and ``vectors``. Each thread needs its own."""
        while len(self.workspaces) <= number:
            work, buffers, vectors = self.workspaces[0]
            self.workspaces.append((np.zeros_like(work), np.zeros_like(buffers), np.zeros_like(vectors)))
        return self.workspaces[number]

    def reset(self, mask: npt.ArrayLike | None = None) -> None:
        """Forget everything in some lanes, ``mask[lanes]``. Default: in all lanes."""
        is_reset, d = check_mask(mask, self.lanes), self.dim
        with self.lock:
            for name in START_AT_ZERO:
                self.record[name][is_reset] = 0
            for name in ("scale", "owed"):
                self.record[name][is_reset] = 1.0
            self.record["built"][is_reset] = NOT_BUILDING
            self.record["least"][is_reset] = self.record["floor"][is_reset]
            self.expansions[is_reset] = 0.0
            self.dense[is_reset, :VECTORS] = 0.0
            for first in range(VECTORS, self.dense.shape[1], d):  # V, V_tilde and, if linearised, H
                scalar = self.record["floor" if first < VECTORS + 2 * d else "ridge"][is_reset]
                self.dense[is_reset, first : first + d] = scalar[:, None, None] * np.eye(d)

    @property
    def V(self) -> Array:
        """V of every lane, [lanes, dim, dim], as a view."""
        return self.dense[:, VECTORS : VECTORS + self.dim]

    @property
    def V_tilde(self) -> Array:
        """V_tilde of every lane, [lanes, dim, dim], as a view."""
        return self.dense[:, VECTORS + self.dim : VECTORS + 2 * self.dim]

    @property
    def remembered(self) -> Index:
        """The number of observations in the history of each lane."""
        return np.asarray(self.record["end"] - self.record["start"])

    def make_room(self) -> None:
        """Make room for one more observation in every lane.

        If the rows are full, every history moves to the front of its row. The capacity doubles if the longest history
        fills more than half of it.
        """
        if not self.remembers:
            return
        capacity = self.history.shape[2]
        if self.filled == capacity:
            record, longest = self.record.copy(), int(self.remembered.max())
            record["end"], record["start"] = self.remembered, 0
            for name, limit in self._relative_limits().items():
                record[name] = limit
            capacity = capacity if 2 * longest <= capacity else 2 * capacity
            moved, workspaces = self._move_to_front(capacity), self._allocate_workspaces(capacity)
            # One statement, so that an interrupt leaves either the old arrays or the new ones.
            self.record, self.history, self.filled, self.workspaces = record, moved, longest, workspaces
        self.filled += 1
        if self.expansions.shape[2] == 0 and self._can_expand(self.filled):
            self.expansions = self._allocate_expansions()

    def _can_expand(self, entries: int) -> bool:
        return self.expansion.order > 0 and entries >= EXPANDED_FROM * self.expansion.recent

    def _allocate_expansions(self) -> Array:
        return np.zeros((self.lanes, LEVELS, self.expansion.width(self.dim)))

    def _relative_limits(self) -> State:
        """Return the limits of the expansions, counted from the first observation of each lane."""
        start, built = self.record["start"], self.record["built"]
        return {
            "edge": np.maximum(self.record["edge"] - start[:, None], 0),
            "base": np.maximum(self.record["base"] - start, 0),
            "built": np.where(built == NOT_BUILDING, NOT_BUILDING, built - start[:, None]),
        }

    def _read_expansions(self) -> Array:
        """Return a copy of the tensors, with zeros where they are not in use; rows of length 0 if none are."""
        is_used = np.stack([self.record["anchored"] == 1, self.record["built"] != NOT_BUILDING], axis=2)
        width = self.expansion.stored_width(self.dim) if is_used.any() else 0
        return np.where(np.repeat(is_used, width // 2, axis=2), self.expansions[..., :width], 0.0)

    def _move_to_front(self, capacity: int) -> Array:
        """Return a copy of the histories, each moved to the front of a row of this capacity."""
        moved = np.zeros((*self.history.shape[:2], capacity))
        for lane, (start, end) in enumerate(zip(self.record["start"], self.record["end"], strict=True)):
            moved[lane, :, : end - start] = self.history[lane, :, start:end]
        return moved

    def read_fields(self) -> State:
        """Return copies of the record's fields, of ``dense`` and of the used part of the histories."""
        with self.lock:
            count = self.remembered
            own = {"count": count, "dense": self.dense.copy(), "history": self._move_to_front(int(count.max()))}
            own |= {**self._relative_limits(), "expansions": self._read_expansions()}
            return {name: own[name] if name in own else self.record[name].copy() for name in self.stored}

    def prepare_fields(self, fields: State) -> dict[str, Any]:
        """Return the arrays for checked fields."""
        record, longest = self.record.copy(), fields["history"].shape[2]
        for name in set(self.stored) - {"count", "dense", "history", "expansions"}:
            record[name] = fields[name]
        record["start"], record["end"], record["memory"] = 0, fields["count"], _compute_memory(record)
        capacity = max(longest, self.history.shape[2])
        rows = {"record": record, "dense": fields["dense"], "history": np.zeros((*self.history.shape[:2], capacity))}
        rows["history"][:, :, :longest] = fields["history"]
        stored, rows["expansions"] = fields["expansions"], np.zeros((self.lanes, LEVELS, 0))
        if stored.shape[2] or self._can_expand(longest):
            rows["expansions"] = self._allocate_expansions()
            rows["expansions"][:, :, : stored.shape[2]] = stored
            self.expansion.lay_out(rows["expansions"], self.dim)
        return {**rows, "filled": longest, "workspaces": self._allocate_workspaces(capacity)}

    def map_fields(self, successor: LaneRows, change: CoordinateChange) -> State:
        """Return the state of an estimator that has seen the same observations in other coordinates."""
        fields, d, factor = self.read_fields(), self.dim, change.scale
        dense, history = fields["dense"], fields["history"]
        rows = [change.move(dense[:, [THETA_HAT]], 1.0 / factor), change.move(dense[:, B:VECTORS], factor)]
        for first in range(VECTORS, dense.shape[1], d):  # sums of w x x', started as a multiple of I
            setting = "floor" if first < VECTORS + 2 * d else "ridge"
            start, sums = self.record[setting][:, None, None] * np.eye(d), dense[:, first : first + d]
            new_start = successor.record[setting][:, None, None] * np.eye(successor.dim)
            rows.append(change.move_matrix(sums - start, factor**2) + new_start)
        points = np.swapaxes(change.move(np.swapaxes(history[:, :d], 1, 2), factor), 1, 2)
        fields["dense"], fields["history"] = np.concatenate(rows, axis=1), np.concatenate([points, history[:, d:]], 1)
        fields["status"] = np.full_like(fields["status"], LOST)
        for name in ("anchored", "edge", "base", "reach", "pause", "rest", "bent"):  # expansions are built anew
            fields[name] = np.zeros_like(fields[name])
        fields["built"], fields["owed"] = np.full_like(fields["built"], NOT_BUILDING), np.ones_like(fields["owed"])
        fields["least"] = successor.record["floor"].copy()
        fields["expansions"] = np.zeros((self.lanes, LEVELS, 0))
        return fields

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` for a state that an estimator with these settings cannot reach."""
        d, history, count, longest = self.dim, fields["history"], fields["count"], fields["history"].shape[2]
        gamma, window, now = fields["gamma"], fields["window"], fields["now"]
        has_window, is_used = np.isfinite(self.record["window"]), np.arange(longest) < count[:, None]
        times = np.where(is_used, history[:, d + 2], now[:, None])
        # Only a window relies on the order. Elsewhere, late rewards wait behind the observations that are expanded.
        is_ordered = ~has_window[:, None] | (np.diff(times, axis=1, append=now[:, None]) >= 0)
        is_sorted = is_ordered.all() and (times <= now[:, None]).all() and (history[:, d] >= 0)[is_used].all()
        for name, is_possible, expected in (
            ("history", longest == 0 or self.remembers, "empty: this estimator stores no observations"),
            ("gamma", (gamma > 0) & np.where(has_window, gamma == 1.0, gamma <= 1.0), "in (0, 1], and 1 with a window"),
            ("window", (window > 0) & (np.isfinite(window) == has_window), "above 0, and finite only with a window"),
            ("origin", fields["origin"] <= now, "at most `now`"),
            ("scale", (fields["scale"] > 0) & (fields["scale"] <= 1), "in (0, 1]"),
            *((name, fields[name] >= 0, "at least 0") for name in ("dropped", "strayed", "removals")),
            ("status", np.isin(fields["status"], range(FRESH, LOST + 1)), "0, 1 or 2"),
            ("count", (count >= 0) & (count <= longest), "between 0 and the length of the history"),
            (
                "history",
                is_sorted,
                "not in the future, in order with a window, with weights at least 0",
            ),
            *self._check_expansions(fields),
        ):
            if not np.all(is_possible):
                raise refuse(path, name, fields[name], expected)
        for name, first in (("V", VECTORS), ("V_tilde", VECTORS + d)):
            matrix = fields["dense"][:, first : first + d]
            eigenvalues = np.linalg.eigvalsh(matrix)
            least = self.record["floor"] * (1 - DEFINITENESS[0]) - DEFINITENESS[1] * eigenvalues[:, -1]
            if not is_symmetric(matrix) or (eigenvalues[:, 0] < least).any():
                raise refuse(path, "dense", eigenvalues.min(), f"symmetric and at least lam I in the rows of {name}")

    def _check_expansions(self, fields: State) -> list[tuple[str, Any, str]]:
        """Return the conditions that the fields of the expansions must meet: name, whether it is met, expectation."""
        edge, built, anchored, count = fields["edge"], fields["built"], fields["anchored"], fields["count"][:, None]
        width, is_active = fields["expansions"].shape[2], (anchored == 1) | (built != NOT_BUILDING)
        widths = (self.expansion.stored_width(self.dim),) if is_active.any() else (0,)
        is_nested = (edge[:, 0] >= edge[:, 1]) & (edge[:, 0] <= fields["count"])
        return [
            ("anchored", (anchored == 0) | (anchored == 1) & (self.expansion.order > 0), "1 with an expansion, else 0"),
            ("edge", is_nested & (edge[:, 1] >= 0), "descending, between 0 and `count`"),
            ("built", (built >= NOT_BUILDING) & (built <= count), "between -1 and `count`"),
            ("base", (fields["base"] >= 0) & (fields["base"] <= fields["count"]), "between 0 and `count`"),
            *((name, fields[name] >= 0, "at least 0") for name in ("reach", "pause", "rest", "least", "bent")),
            ("owed", (fields["owed"] > 0) & (fields["owed"] <= 1), "in (0, 1]"),
            ("expansions", width in widths, f"with rows of length {widths[0]}"),
        ]


def _compute_memory(record: npt.NDArray[Any]) -> Array:
    """Return the age at which gamma^age / (1 - gamma) equals the budget for dropped weight, for each lane."""
    is_forgetting = record["gamma"] < 1.0
    gamma = np.where(is_forgetting, record["gamma"], 0.5)
    ages = np.ceil(np.log(record["drop_budget"] * (1.0 - gamma)) / np.log(gamma))
    return np.where(is_forgetting, np.maximum(0.0, ages), np.inf)
