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

from windvane.kernels.jit import compiled_inner

_intrinsic: Any = intrinsic  # its type stubs do not say that it is callable

LOGISTIC, POISSON, PROBIT = 1, 2, 3  # any other code is the identity

_LOG2E = 1.0 / math.log(2.0)
# ln 2 in two parts: the high one has 15 bits, so that its product with an exponent of up to 11 bits is exact, and the
# low one is the rest of ln 2, beyond double precision.
_LN2_HIGH = 6.93145751953125e-1
_LN2_LOW = 1.42860682030941723212e-6
_ROUNDER = 1.5 * 2.0**52  # adding it to a number leaves the nearest integer in the low bits
_EXPONENT_BIAS, _EXPONENT_SHIFT = np.int64(1023), np.int64(52)  # of a double
_LARGEST = 708.0  # exp stays a normal number on [-708, 708]
_INV_SQRT2 = math.sqrt(0.5)
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = [1.0 / math.factorial(n) for n in range(3, 14)]
_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11, _T12, _T13, _T14, _T15 = [
    1 / (2 * k + 1) for k in range(1, 16)
]


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


@compiled_inner
def exponential(z: float) -> float:
    """Return exp(z) on [-708, 708] (clamped outside), within 2 units in the last place; inlined, it vectorises.

    z = k ln 2 + r with |r| <= ln(2)/2. e^r is its Taylor polynomial of degree 13 in Estrin form, whose remainder,
    0.35^14 / 14! = 5e-18, is below rounding; 2^k is built from exponent bits.
    """
    z = min(max(z, -_LARGEST), _LARGEST)
    shifted = z * _LOG2E + _ROUNDER
    k = shifted - _ROUNDER
    r = (z - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    low = (1.0 + r) + r2 * (0.5 + r * _C3)
    mid = (_C4 + r * _C5) + r2 * (_C6 + r * _C7)
    high = (_C8 + r * _C9) + r2 * (_C10 + r * _C11)
    top = _C12 + r * _C13
    polynomial = (low + r4 * mid) + r8 * (high + r4 * top)
    exponent = (_float_bits(shifted) + _EXPONENT_BIAS) << _EXPONENT_SHIFT
    return polynomial * _bits_float(exponent)


@compiled_inner
def mean_slope(link: int, z: float) -> tuple[float, float]:
    """Return (mu(z), mu'(z)) of a built-in link at one point."""
    if link == LOGISTIC:
        e = exponential(-abs(z))
        inverse = 1.0 / (1.0 + e)
        slope = e * inverse * inverse
        return (inverse if z >= 0.0 else e * inverse), slope
    if link == POISSON:
        e = exponential(z)
        return e, e
    if link == PROBIT:
        return 0.5 * math.erfc(-z * _INV_SQRT2), _INV_SQRT_2PI * exponential(-0.5 * min(z * z, 2.0 * _LARGEST))
    return z, 1.0


@compiled_inner
def mean_slope_array(link: int, z: np.ndarray, mean: np.ndarray, slope: np.ndarray, n: int) -> None:
    """Write mu and mu' of z[:n] into mean[:n] and slope[:n]."""
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


@compiled_inner
def bend_array(link: int, z: np.ndarray, mean: np.ndarray, slope: np.ndarray, bend: np.ndarray, n: int) -> None:
    """Write mu''(z[:n]) into bend[:n], given mu and mu' of z[:n]."""
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


@compiled_inner
def _minus_log(y: float) -> float:
    """Return -log(y) for y in [1/2, 1], within a few units of 1e-16; inlined, it vectorises.

    It is 2 atanh(q) with q = (1 - y) / (1 + y) <= 1/3: a series in q^2 of 16 terms, whose remainder is below 1e-17.
    """
    q = (1.0 - y) / (1.0 + y)
    r = q * q
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    low = (1.0 + r * _T1) + r2 * (_T2 + r * _T3) + r4 * ((_T4 + r * _T5) + r2 * (_T6 + r * _T7))
    high = (_T8 + r * _T9) + r2 * (_T10 + r * _T11) + r4 * ((_T12 + r * _T13) + r2 * (_T14 + r * _T15))
    return 2.0 * q * (low + r8 * high)


@compiled_inner
def primitive_array(link: int, z: np.ndarray, mean: np.ndarray, out: np.ndarray, n: int) -> None:
    """Write the primitive of mu at z[:n] into out[:n], given mu(z[:n]): log(1 + e^z), e^z, or z^2/2 (identity)."""
    if link == LOGISTIC:
        for i in range(n):
            out[i] = (z[i] if z[i] >= 0.0 else 0.0) + _minus_log(mean[i] if z[i] >= 0.0 else 1.0 - mean[i])
    elif link == POISSON:
        for i in range(n):
            out[i] = mean[i]
    else:
        for i in range(n):
            out[i] = 0.5 * z[i] * z[i]


@compiled_inner
def remainder_growth(link: int, largest_z: float) -> float:
    """Return the factor of a link's remainder (``Link.remainder``) over |z| <= largest_z: 1, but for Poisson."""
    return exponential(largest_z) if link == POISSON else 1.0


@compiled_inner
def bend_ratio(link: int, largest_z: float) -> float:
    """Return a bound on |mu''| / mu' over |z| <= largest_z: how fast the Hessian can change along a step."""
    if link in (LOGISTIC, POISSON):
        return 1.0
    if link == PROBIT:
        return largest_z
    return 0.0


@compiled_inner
def taylor_array(link: int, order: int, z: np.ndarray, n: int, vectors: np.ndarray, first: int) -> None:
    """Write mu^(k)(z) / k! for k = 0, ..., ``order`` into the rows ``first + k`` of ``vectors``.

    The recurrences follow from the differential equations mu' = mu (1 - mu) of the logistic link, mu' = mu of the
    Poisson link and phi' = -z phi of the normal density phi = mu' of the probit link: with c_k = mu^(k)(z) / k! and
    phi^(k)(z) / k! = (k + 1) c_{k+1}, the last gives k (k - 1) c_k = -z (k - 1) c_{k-1} - (k - 2) c_{k-2}.
    """
    mean, slope = vectors[first], vectors[first + 1]
    mean_slope_array(link, z, mean, slope, n)
    for k in range(2, order + 1):
        last, out = vectors[first + k - 1], vectors[first + k]
        if link == LOGISTIC:
            for i in range(n):
                out[i] = last[i]
            for j in range(k):
                a, b = vectors[first + j], vectors[first + k - 1 - j]
                for i in range(n):
                    out[i] -= a[i] * b[i]
            for i in range(n):
                out[i] /= k
        elif link == POISSON:
            for i in range(n):
                out[i] = last[i] / k
        elif link == PROBIT:
            before = vectors[first + k - 2]
            for i in range(n):
                out[i] = -(z[i] * (k - 1) * last[i] + ((k - 2) * before[i] if k > 2 else 0.0)) / (k * (k - 1))
        else:
            for i in range(n):
                out[i] = 0.0
