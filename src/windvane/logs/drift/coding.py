"""A full-rank coding of the vectors of a log: coordinates without those that are sums of others.

The encoding of an agent has more coordinates than a log can determine. A category with two values has a coordinate for
each, an arm has a constant of its own, and there is an intercept, so some coordinates are sums of others. The rewards
determine as many coefficients as the vectors have rank. Tests and penalties that count coefficients use the rank, and
tests of single coordinates use :func:`choose_columns`, in which each coefficient has a meaning of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from windvane.arguments import Array, Index
from windvane.logs.drift.logistic_fit import weighted_gram

# A column counts as a sum of others if they explain all but this part of its square. The rounding of sums of 1e6 terms
# is 1e-10 of them.
EXPLAINED = 1e-8


def choose_columns(x: Array) -> Index:
    """Return independent columns of ``x`` that span all of its columns, increasing.

    Parameters
    ----------
    x
        Vectors, [n, d].

    Returns
    -------
    array
        The indices of the columns. Of columns that depend on each other, those with fewer entries other than 0 are
        preferred: they are about the fewest rows, such as one arm on one device. Its coefficient then is the level of
        these rows, and the constants of the arm and of the log are left out, because they are sums of such columns.

    Examples
    --------
    >>> choose_columns(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 1.0]])).tolist()
    [1, 2]
    """
    gram = weighted_gram(x, np.ones(len(x)))
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    scaled = gram / np.where(size > 0.0, size, 1.0) / np.where(size > 0.0, size, 1.0)[:, None]
    order = [int(j) for j in np.argsort((x != 0.0).sum(axis=0), kind="stable") if size[j] > 0.0]
    chosen: list[int] = []
    basis = np.zeros((0, len(size)))  # rows of the Cholesky factor of the chosen columns
    for j in order:
        rest = 1.0 - float(np.square(basis[:, j]).sum())
        if rest > EXPLAINED:
            chosen.append(j)
            basis = np.vstack([basis, (scaled[j] - basis[:, j] @ basis) / np.sqrt(rest)])
    return np.array(sorted(chosen), dtype=np.int64)


def find_row_space(x: Array) -> Array:
    """Return an orthonormal basis of the space that the rows of ``x`` span, [d, rank].

    Examples
    --------
    >>> abs(find_row_space(np.array([[3.0, 4.0], [6.0, 8.0]]))).round(6).tolist()
    [[0.6], [0.8]]
    """
    values, vectors = np.linalg.eigh(weighted_gram(x, np.ones(len(x))))
    return np.asarray(vectors[:, values > EXPLAINED * max(float(values[-1]), 1e-300)])


def group_rows(labels: npt.NDArray[Any]) -> tuple[Index, Index]:
    """Return the group of each row of ``labels`` and the first row of each group; equal rows are one group.

    Examples
    --------
    >>> group_rows(np.array([[0, 1], [1, 0], [0, 1]]))
    (array([0, 1, 0]), array([0, 1]))
    """
    packed = np.packbits(labels, axis=1) if labels.dtype == bool else labels
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return np.asarray(group).ravel(), np.asarray(first)
