"""Kernels, and the inner functions that become part of them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from windvane.kernels.jit import callable_kernel, compiled, compiled_inner, compiled_sums, compiled_view


@compiled_sums
def total(values: np.ndarray) -> float:
    result = 0.0
    for i in range(values.shape[0]):
        result += values[i]
    return result


@compiled_inner
def mean(values: np.ndarray) -> float:
    return total(values) / values.shape[0]


@compiled_view
def upper_half(values: np.ndarray) -> np.ndarray:
    return values[values.shape[0] // 2 :]


@compiled
def describe(values: np.ndarray, out: np.ndarray) -> None:
    out[0], out[1] = total(values), mean(upper_half(values))


@compiled
def centre(values: np.ndarray) -> None:
    middle = mean(values)
    for i in range(values.shape[0]):
        values[i] -= middle


VALUES = np.array([1.0, 2.0, 4.0, 9.0])


def test_kernels_share_inner_functions_two_levels_deep() -> None:
    out, centred = np.empty(2), VALUES.copy()
    describe(VALUES.copy(), out)
    centre(centred)
    assert_array_equal(out, [16.0, 6.5])
    assert_array_equal(centred, VALUES - 4.0)


def test_python_can_call_an_inner_function_only_through_a_version_of_its_own() -> None:
    centre(VALUES.copy())  # compiles ``mean``, but not for Python
    with pytest.raises(TypeError):
        mean(VALUES.copy())
    assert callable_kernel(mean)(VALUES.copy()) == 4.0
    assert callable_kernel(centre) is centre


def test_an_inner_function_is_compiled_for_each_type() -> None:
    out = np.empty(2)
    describe(VALUES.copy(), out)
    describe(np.arange(8, dtype=np.int64), out)
    assert_array_equal(out, [28.0, 5.5])
