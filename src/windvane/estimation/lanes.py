"""The packed state of an estimator (see :mod:`windvane.kernels.lanes`), its workspaces, its growth and its checks."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index, Mask
from windvane.kernels.lanes import BUFFERS, FRESH, LOST, RECORD, VECTORS, WORK, dense_rows
from windvane.state import State, Stateful, refuse

FIRST_CAPACITY = 8  # entries of a new history; the capacity doubles when it is full
SYMMETRY = 1e-9  # relative difference between V and its transpose that rounding can cause
DEFINITENESS = 1e-6, 1e-12  # relative to lam and to the largest eigenvalue: how far rounding can push V below lam I


class LaneRows(Stateful):
    """The arrays ``record``, ``dense`` and ``history`` of an estimator, with a lock and workspaces for kernels.

    Parameters
    ----------
    dim, lanes
        Number of features; number of lanes.
    settings
        Values of the settings in the record (:data:`windvane.kernels.lanes.SETTINGS`): one number, or one per lane.
    linearised
        Whether the linearisation (pull, H) is updated between solves. Newton's method starts from it.
    remembers
        Whether observations are stored.
    """

    stored: ClassVar[tuple[str, ...]] = (
        "gamma", "window", "now", "origin", "scale", "dropped", "count", "removals", "status", "passes", "error",
        "strayed", "dense", "history",
    )  # fmt: skip
    flexible: ClassVar[tuple[str, ...]] = ("history",)
    unbounded: ClassVar[tuple[str, ...]] = ("window", "error", "strayed")

    def __init__(self, dim: int, lanes: int, settings: Mapping[str, Any], *, linearised: bool, remembers: bool) -> None:
        self.dim, self.lanes, self.linearised, self.remembers = dim, lanes, linearised, remembers
        self.record = np.zeros(lanes, RECORD)
        for name, value in settings.items():
            self.record[name] = value
        self.dense = np.zeros((lanes, dense_rows(dim, linearised=linearised), dim))
        self.history = np.zeros((lanes, dim + 3, FIRST_CAPACITY if remembers else 0))
        self.filled = 0  # upper bound on ``end`` of all lanes
        self.lock = threading.RLock()  # kernels release the interpreter lock, so two threads could write to one history
        self._allocate_workspace()
        self.clear(np.ones(lanes, dtype=bool))

    def __getstate__(self) -> dict[str, Any]:
        scratch = ("lock", "work", "buffers", "_workspaces")
        return {name: value for name, value in vars(self).items() if name not in scratch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()
        self._allocate_workspace()

    def _allocate_workspace(self) -> None:
        """Allocate ``work`` and ``buffers``, the scratch arrays of kernels, for the capacity of the histories."""
        self.work = np.zeros((WORK, self.dim, self.dim))
        self.buffers = np.zeros((BUFFERS, max(1, self.history.shape[2])))
        self._workspaces = [(self.work, self.buffers)]

    def workspace(self, number: int) -> tuple[Array, Array]:
        """Return the ``number``-th pair (work, buffers). Each thread needs its own."""
        while len(self._workspaces) <= number:
            self._workspaces.append((np.zeros_like(self.work), np.zeros_like(self.buffers)))
        return self._workspaces[number]

    def clear(self, mask: Mask) -> None:
        """Forget everything in the lanes of ``mask``."""
        eye, d = np.eye(self.dim), self.dim
        for name in ("now", "origin", "dropped", "start", "end", "removals", "status", "passes", "error", "strayed"):
            self.record[name][mask] = 0
        self.record["scale"][mask] = 1.0
        self.record["memory"][mask] = _memories(self.record[mask])
        self.dense[mask, :VECTORS] = 0.0
        lam, ridge = self.record["floor"][mask], self.record["ridge"][mask]
        self.dense[mask, VECTORS : VECTORS + d] = self.dense[mask, VECTORS + d : VECTORS + 2 * d] = (
            lam[:, None, None] * eye
        )
        if self.linearised:
            self.dense[mask, VECTORS + 2 * d :] = ridge[:, None, None] * eye

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def V(self) -> Array:
        """V of every lane, [lanes, dim, dim], as a view."""
        return self.dense[:, VECTORS : VECTORS + self.dim]

    @property
    def V_tilde(self) -> Array:
        """V_tilde of every lane, [lanes, dim, dim], as a view."""
        return self.dense[:, VECTORS + self.dim : VECTORS + 2 * self.dim]

    @property
    def count(self) -> Index:
        """The number of observations in the history of each lane."""
        return np.asarray(self.record["end"] - self.record["start"])

    # --- growth ----------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Make room for one more observation in every lane.

        If the rows are full, every history moves to the front of its row. The capacity doubles if the longest history
        fills more than half of it.
        """
        if not self.remembers:
            return
        if self.filled == self.history.shape[2]:
            longest = int(self.count.max())
            capacity = self.history.shape[2]
            record = self.record.copy()
            record["end"], record["start"] = self.count, 0
            moved = self._moved_to_front(capacity if 2 * longest <= capacity else 2 * capacity)
            buffers = np.zeros((BUFFERS, moved.shape[2]))
            workspaces = [(self.work, buffers)]
            # One statement, so that an interrupt leaves either the old arrays or the new ones.
            self.history, self.record, self.filled, self.buffers, self._workspaces = (
                moved, record, longest, buffers, workspaces,
            )  # fmt: skip
        self.filled += 1

    def _moved_to_front(self, capacity: int) -> Array:
        """Return a copy of the histories, each moved to the front of a row of this capacity."""
        moved = np.zeros((*self.history.shape[:2], capacity))
        for lane, (start, end) in enumerate(zip(self.record["start"], self.record["end"], strict=True)):
            moved[lane, :, : end - start] = self.history[lane, :, start:end]
        return moved

    # --- state -----------------------------------------------------------------------------------------------------

    def read_fields(self) -> State:
        """Return copies of the record's fields, of ``dense`` and of the used part of the histories."""
        with self.lock:
            count = self.count
            packed = self._moved_to_front(int(count.max()) if self.remembers else 0)
            own = {"count": count, "dense": self.dense.copy(), "history": packed}
            return {name: own[name] if name in own else self.record[name].copy() for name in self.stored}

    def write_fields(self, fields: State) -> None:
        """Continue from fields that have been checked."""
        longest, capacity = fields["history"].shape[2], self.history.shape[2]
        while capacity < longest:
            capacity *= 2
        record, history = self.record.copy(), np.zeros((*self.history.shape[:2], capacity))
        for name in self.stored:
            if name not in ("count", "dense", "history"):
                record[name] = fields[name]
        record["start"], record["end"] = 0, fields["count"]
        record["memory"] = _memories(record)
        history[:, :, :longest] = fields["history"]
        buffers = np.zeros((BUFFERS, max(1, capacity)))
        with self.lock:
            self.record, self.dense, self.history, self.filled = record, fields["dense"], history, longest
            self.buffers, self._workspaces = buffers, [(self.work, buffers)]

    def check_fields(self, fields: State, path: str) -> None:
        """Raise ``ArgumentError`` for a state that an estimator with these settings cannot reach."""
        d, history, longest = self.dim, fields["history"], fields["history"].shape[2]
        if longest and not self.remembers:
            raise refuse(path, "history", history.shape, "empty: this estimator keeps no observations")
        gamma, window, own = fields["gamma"], fields["window"], self.record
        if not ((gamma > 0) & (gamma <= 1)).all() or (np.isfinite(own["window"]) & (gamma != 1.0)).any():
            raise refuse(path, "gamma", gamma, "in (0, 1], and 1 with a window")
        if not ((window > 0) & (np.isinf(window) == np.isinf(own["window"]))).all():
            raise refuse(path, "window", window, "above 0, and finite only for an estimator with a window")
        if (fields["origin"] > fields["now"]).any():
            raise refuse(path, "origin", fields["origin"], "at most the time now")
        if not ((fields["scale"] > 0) & (fields["scale"] <= 1)).all():
            raise refuse(path, "scale", fields["scale"], "in (0, 1]")
        for name in ("dropped", "strayed", "removals"):
            if (fields[name] < 0).any():
                raise refuse(path, name, fields[name], "at least 0")
        if not np.isin(fields["status"], range(FRESH, LOST + 1)).all():
            raise refuse(path, "status", fields["status"], "0, 1 or 2")
        count = fields["count"]
        if (count < 0).any() or (count > longest).any():
            raise refuse(path, "count", count, "between 0 and the length of the history")
        for lane, n in enumerate(count):
            weights, times = history[lane, d, :n], history[lane, d + 2, :n]
            if (np.diff(times) < 0).any() or (times > fields["now"][lane]).any() or (weights < 0).any():
                raise refuse(path, "history", times, "sorted by time and not in the future, with weights at least 0")
        self._check_matrices(fields["dense"], path)

    def _check_matrices(self, dense: Array, path: str) -> None:
        """Check that V and V_tilde are symmetric and at least lam I."""
        d, lam = self.dim, self.record["floor"]
        for name, first in (("V", VECTORS), ("V_tilde", VECTORS + d)):
            matrix = dense[:, first : first + d]
            is_symmetric = np.allclose(matrix, matrix.transpose(0, 2, 1), rtol=SYMMETRY, atol=0.0)
            eigenvalues = np.linalg.eigvalsh(matrix)
            least = lam * (1 - DEFINITENESS[0]) - DEFINITENESS[1] * eigenvalues[:, -1]
            if not is_symmetric or (eigenvalues[:, 0] < least).any():
                raise refuse(path, "dense", eigenvalues.min(), f"symmetric and at least lam I in the rows of {name}")


def _memories(record: npt.NDArray[Any]) -> Array:
    """Return the age at which gamma^age / (1 - gamma) equals the budget for dropped weight, for each lane."""
    gamma = np.minimum(record["gamma"], 1.0)
    forgets = gamma < 1.0
    safe = np.where(forgets, gamma, 0.5)
    ages = np.ceil(np.log(record["drop_budget"] * (1.0 - safe)) / np.log(safe))
    return np.where(forgets, np.maximum(0.0, ages), math.inf)
