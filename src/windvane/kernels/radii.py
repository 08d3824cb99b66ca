"""The confidence radius of all lanes, in one call."""

from __future__ import annotations

import math

import numpy as np

from windvane.kernels.jit import compiled

BIAS, LOG_SQUARE, STRAIGHT, CURVED, WINDOW, SCALE, NOISE, ANYTIME = range(8)  # columns of ``constants``


@compiled
def radius_lanes(t: float, born: np.ndarray, constants: np.ndarray, out: np.ndarray) -> None:
    """Set out[lane] to the radius at round t of a lane that started in round born[lane].

    The radius is bias + sqrt(scale log1p(growth) + noise). After n rounds, growth = curved expm1(n log_square) +
    straight n, where n is limited to the window. The term noise grows with n if the radius holds at all rounds at once.
    """
    for lane in range(out.shape[0]):
        c = constants[lane]
        rounds = t - born[lane] + 1.0
        noise = c[NOISE]
        if c[ANYTIME] > 0.0:
            growing = 1.0 + math.log(rounds)
            noise += c[ANYTIME] * math.log(2.0 * rounds * growing * growing)
        rounds = min(rounds, c[WINDOW])
        growth = c[STRAIGHT] * rounds
        if c[CURVED] != 0.0:
            growth += c[CURVED] * math.expm1(rounds * c[LOG_SQUARE])
        out[lane] = c[BIAS] + math.sqrt(c[SCALE] * math.log1p(growth) + noise)
