"""An expansion of a whole history around a point, as the kernels build it, and the sums it stands for in 40 digits."""

import math
from decimal import Decimal, getcontext
from typing import Any, NamedTuple

import numpy as np

from support import access
from windvane.estimation.expansion import Expansion
from windvane.kernels import anchors, expansion, lanes, sums
from windvane.links import get_link

SMALL = Expansion(order=4, recent=8, young=24, rate=64)  # expands what a test can afford to check
kernel, maintenance = access.callable_module(expansion), access.callable_module(anchors)
getcontext().prec = 40


class Expanded(NamedTuple):
    """A lane whose entries are all in the young level, around ``center``."""

    lane: Any
    rows: np.ndarray
    levels: np.ndarray
    buffers: np.ndarray
    link: str

    def bound(self, theta: np.ndarray) -> tuple[float, float]:
        """Bounds on the errors of g and H."""
        return kernel.bound_remainder(self.lane, self.levels[0], theta)

    def evaluate(self, theta: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
        """g, H, H u and the two derivatives of H along u, all by the expansion."""
        d = len(theta)
        g, Hu, scratch = np.zeros(d), np.zeros(d), np.zeros((d, d))
        kernel.mean_at(self.lane, self.rows, self.levels, theta, self.buffers, g, scratch)
        assert self.lane["expanded"] == lanes.LEVELS
        matrices = [np.zeros((d, d)) for _ in range(3)]
        for order, out in zip((sums.SLOPE_GRAM, sums.BEND_GRAM, sums.THIRD_GRAM), matrices, strict=True):
            kernel.gram_at(order, self.lane, self.rows, self.levels, u, self.buffers, out)
        kernel.apply_at(self.lane, self.rows, self.levels, u, self.buffers, Hu, scratch)
        return g, matrices[0], Hu, matrices[1:]


def expand(
    x: np.ndarray, weights: np.ndarray, center: np.ndarray, link: str, order: int, ridge: float = 0.0, L: float = 1.0
) -> Expanded:
    """Build the expansion in pieces of at most CHUNK entries, and accept any error."""
    (n, d), chosen, record = x.shape, Expansion(order, 1, 1, 1), np.zeros(1, lanes.RECORD)
    settings = {**chosen.record_settings(d, get_link(link)), "link": get_link(link).code, "L": L, "ridge": ridge}
    state = {"scale": 1.0, "owed": 1.0, "end": n, "budget": math.inf, "least": 1e300}
    for name, value in {**settings, **state}.items():
        record[name] = value
    rows, levels = np.zeros((d + 3, max(n, 1))), np.zeros((lanes.LEVELS, chosen.width(d)))
    rows[:d, :n], rows[d, :n], levels[0, :d] = x.T, weights, center
    buffers = np.full((lanes.BUFFERS, max(n, 1)), np.nan)
    vectors = np.full((chosen.count_vectors(d), lanes.CHUNK), np.nan)
    lane = record[0]
    maintenance._add(lane, levels[0], 0, rows, 0, n, d, vectors)
    kernel.refresh(lane, levels[0], d, *chosen.tables(d))
    lane["anchored"][0], lane["edge"][0] = 1, n
    return Expanded(lane, rows, levels, buffers, link)


def exact_sums(x: np.ndarray, weights: np.ndarray, theta: np.ndarray, link: str) -> tuple[np.ndarray, np.ndarray]:
    """sum w mu x and sum w mu' x x' in 40 digits, for the logistic and the Poisson link."""
    d = len(theta)
    g, H = [Decimal(0)] * d, [[Decimal(0)] * d for _ in range(d)]
    for row, weight in zip(x.tolist(), weights.tolist(), strict=True):
        point = [Decimal(value) for value in row]
        e = sum((a * Decimal(b) for a, b in zip(point, theta.tolist(), strict=True)), Decimal(0)).exp()
        mean = e / (1 + e) if link == "logistic" else e
        slope = mean / (1 + e) if link == "logistic" else e
        for i in range(d):
            g[i] += Decimal(weight) * mean * point[i]
            for j in range(d):
                H[i][j] += Decimal(weight) * slope * point[i] * point[j]
    return np.array(g), np.array(H)
