"""Exponentials and the built-in links, written so that LLVM vectorises them.

The link is an integer code (see :mod:`windvane.links`); each function loops inside one branch per link.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from windvane.kernels.jit import compiled

_intrinsic: Any = intrinsic  # typed as an object that cannot be called

IDENTITY, LOGISTIC, POISSON, PROBIT = 0, 1, 2, 3

_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93145751953125e-1
_LN2_LOW = 1.42860682030941723212e-6
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it leaves the nearest integer in the low bits
_LARGEST = 708.0  # exp stays a normal number on [-708, 708]
_INV_SQRT2 = 0.7071067811865476
_INV_SQRT_2PI = 0.3989422804014327


@_intrinsic
def _float_bits(_typing, _value):  # type: ignore[no-untyped-def]
    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), build


@_intrinsic
def _bits_float(_typing, _value):  # type: ignore[no-untyped-def]
    def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), build


@compiled
def exponential(z: float) -> float:
    """exp(z) on [-708, 708] (clamped outside), within 2 units in the last place; inlined, it vectorises.

    z = k ln 2 + r with |r| <= ln(2)/2; e^r by its Taylor polynomial of degree 13 in Estrin form; 2^k by exponent bits.
    """
    z = min(max(z, -_LARGEST), _LARGEST)
    shifted = z * _LOG2E + _ROUNDER
    k = shifted - _ROUNDER
    r = (z - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    low = (1.0 + r) + r2 * (0.5 + r * 0.16666666666666666)
    mid = (0.041666666666666664 + r * 0.008333333333333333) + r2 * (0.001388888888888889 + r * 0.0001984126984126984)
    high = (2.48015873015873e-05 + r * 2.7557319223985893e-06) + r2 * (
        2.755731922398589e-07 + r * 2.505210838544172e-08
    )
    top = 2.08767569878681e-09 + r * 1.6059043836821613e-10
    polynomial = (low + r4 * mid) + r8 * (high + r4 * top)
    exponent = (_float_bits(shifted) + np.int64(1023)) << np.int64(52)
    return polynomial * _bits_float(exponent)


@compiled
def mean_slope(link: int, z: float) -> tuple[float, float]:
    """(mu(z), mu'(z)) of a built-in link at one point."""
    if link == LOGISTIC:
        e = exponential(-abs(z))
        inverse = 1.0 / (1.0 + e)
        slope = e * inverse * inverse
        return (inverse if z >= 0.0 else e * inverse), slope
    if link == POISSON:
        e = exponential(z)
        return e, e
    if link == PROBIT:
        return 0.5 * math.erfc(-z * _INV_SQRT2), _INV_SQRT_2PI * exponential(-0.5 * min(z * z, 1416.0))
    return z, 1.0


@compiled
def mean_slope_array(link: int, z: np.ndarray, mean: np.ndarray, slope: np.ndarray, n: int) -> None:
    """mu and mu' of z[:n] into mean[:n], slope[:n]."""
    if link == LOGISTIC:
        for i in range(n):
            e = exponential(-abs(z[i]))
            inverse = 1.0 / (1.0 + e)
            tail = e * inverse
            slope[i] = tail * inverse
            mean[i] = inverse if z[i] >= 0.0 else tail
    elif link == POISSON:
        for i in range(n):
            e = exponential(z[i])
            mean[i] = e
            slope[i] = e
    elif link == PROBIT:
        for i in range(n):
            mean[i], slope[i] = mean_slope(link, z[i])
    else:
        for i in range(n):
            mean[i] = z[i]
            slope[i] = 1.0


@compiled
def bend_array(link: int, z: np.ndarray, mean: np.ndarray, slope: np.ndarray, bend: np.ndarray, n: int) -> None:
    """mu''(z) into bend[:n], from mu and mu' already at hand."""
    if link == LOGISTIC:
        for i in range(n):
            bend[i] = slope[i] * (1.0 - 2.0 * mean[i])
    elif link == POISSON:
        for i in range(n):
            bend[i] = slope[i]
    elif link == PROBIT:
        for i in range(n):
            bend[i] = -z[i] * slope[i]
    else:
        for i in range(n):
            bend[i] = 0.0


@compiled
def bend_ratio(link: int, largest_z: float) -> float:
    """A bound on |mu''| / mu' over |z| <= largest_z: how fast the Hessian can change along a step."""
    if link in (LOGISTIC, POISSON):
        return 1.0
    if link == PROBIT:
        return largest_z
    return 0.0
