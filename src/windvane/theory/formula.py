"""The decorator of formulas. In this package each argument name has one meaning and one range."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from windvane import arguments
from windvane.arguments import Array
from windvane.documentation import documented
from windvane.errors import ArgumentError

Lanes: TypeAlias = float | Array
Formula = TypeVar("Formula", bound=Callable[..., Any])

ARM_GEOMETRIES: tuple[str, ...] = ("orthogonal", "general")
CONFIDENCES: tuple[str, ...] = ("pointwise", "horizon", "anytime")
FORMS: tuple[str, ...] = ("printed", "proved")

# log det(V / lam) >= 0 in exact arithmetic. A factorisation of V = lam I in d = 1000 dimensions returns no less
# than -d * 1e-13 or so; anything below this slack is an error of the caller.
_LOG_DET_SLACK = 1e-8


def check_entries(name: str, value: ArrayLike, expected: str, accept: Callable[[Array], Any]) -> Array:
    """Return ``value`` as a C-contiguous float array of any shape with finite entries that ``accept`` accepts.

    NumPy's logarithm of a strided array may differ in the last bit, so that a lane would depend on other lanes.
    """
    wanted = f"a number {expected}"
    array = arguments.check_real_array(name, value, f"{wanted}, or an array of such numbers")
    if np.asarray(value).dtype.kind == "b":
        raise ArgumentError(name, value, wanted)
    bad = ~(np.isfinite(array) & np.asarray(accept(array), dtype=bool))
    if bad.any():
        raise ArgumentError(name, value if array.ndim == 0 else float(array[bad][0]), wanted)
    return np.asarray(array, order="C")  # ascontiguousarray would turn a number into a vector


def check_at_least(name: str, value: ArrayLike, least: int) -> Array:
    """Return ``value`` as an array of numbers that are at least ``least``."""
    return check_entries(name, value, f"at least {least}", lambda v: v >= least)


def check_broadcast(**arrays: ArrayLike) -> None:
    """Raise ``ArgumentError`` for the first array that does not broadcast with those before it."""
    shape: tuple[int, ...] = ()
    for name, array in arrays.items():
        try:
            shape = np.broadcast_shapes(shape, np.shape(array))
        except ValueError:
            got = f"shape {np.shape(array)}"
            raise ArgumentError(name, array, f"of a shape that broadcasts with {shape}", got=got) from None


_PROPORTION: dict[str, Any] = {"expected": "in (0, 1]", "accept": lambda v: (v > 0) & (v <= 1)}
_NUMBERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("dim", "horizon", "rounds", "arms"), partial(arguments.check_whole, least=1)),
    **dict.fromkeys(("S", "L", "lam", "sigma", "c_mu", "k_mu", "curvature", "bound"), arguments.check_positive),
    **dict.fromkeys(("drift", "ratio", "switches"), arguments.check_not_negative),
    **dict.fromkeys(("gamma", "delta"), partial(arguments.check_number, **_PROPORTION, booleans=False)),
    "arm_geometry": partial(arguments.check_choice, choices=ARM_GEOMETRIES),
    "confidence": partial(arguments.check_choice, choices=CONFIDENCES),
    "form": partial(arguments.check_choice, choices=FORMS),
}
_ARRAYS: dict[str, Callable[[str, Any], Array]] = {
    **dict.fromkeys(("gamma", "delta"), partial(check_entries, **_PROPORTION)),
    "depth": partial(check_at_least, least=1),
    **dict.fromkeys(("recent_drift", "t"), partial(check_at_least, least=0)),
    "window": partial(check_entries, expected="above 0", accept=lambda v: v > 0),
    "log_det_ratio": partial(check_entries, expected="at least 0", accept=lambda v: v >= -_LOG_DET_SLACK),
}
_MEANINGS = {
    "arm_geometry": '"orthogonal" if every arm is a multiple of a vector of one orthonormal basis, else "general".',
    "bound": "The largest reward B; the smallest is 0.",
    "curvature": "1 for LB-WeightUCB, k_mu c_mu for GLB-WeightUCB and k_mu for SCB-WeightUCB.",
    "confidence": 'Which rounds are covered: "pointwise", "horizon" or "anytime" (see :class:`ConfidenceLevel`).',
    "depth": "Number of rounds D that count as recent, at least 1.",
    "drift": "Total drift B_T, at least 0.",
    "form": 'The form of a constant: as "printed" in the paper, or as "proved" there.',
    "log_det_ratio": "log(det V_{T+1} / lam^d), at least 0; values that are negative by rounding count as 0.",
    "problem": "The constants of the problem.",
    "ratio": "Factor, at least 0, such as L^2 / (lam d).",
    "recent_drift": "The sum of ||theta*_s - theta*_{s+1}|| over the last D rounds.",
    "rounds": "Number of rounds, at least 1.",
    "switches": "Number of changes Gamma_T, at least 0.",
    "t": "Round, or an array of rounds: real numbers that are at least 0.",
    "window": "Length of a sliding window: one number, or one per lane. Default: none.",
}


def formula(target: Formula) -> Formula:
    """Complete the docstring of a function or a class, and check its arguments by their names.

    An argument that is annotated as ``ArrayLike`` is checked entry by entry and becomes an array, and arrays must
    broadcast. Any other argument is one number or word. None is allowed if the annotation allows it. A function returns
    a Python float instead of a 0-d array.
    """
    if isinstance(target, type):
        target.__init__ = _add_checks(target.__init__)  # type: ignore[misc]
        return documented(target, meanings=_MEANINGS)
    return documented(_add_checks(target), meanings=_MEANINGS)


def _add_checks(function: Formula) -> Formula:
    """Return ``function`` with checks of its arguments."""
    parameters = inspect.signature(function).parameters
    positional = [name for name, parameter in parameters.items() if parameter.kind is not parameter.KEYWORD_ONLY]
    annotations = {name: str(parameter.annotation) for name, parameter in parameters.items()}
    arrays = [name for name in _ARRAYS if "ArrayLike" in annotations.get(name, "")]
    checks = {**{name: _NUMBERS[name] for name in annotations if name in _NUMBERS}, **{a: _ARRAYS[a] for a in arrays}}

    @wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        values = {**dict(zip(positional, args, strict=False)), **settings}
        if len(values) < len(args) + len(settings):
            return function(*args, **settings)  # raises TypeError: too many arguments, or a repeated one
        for name, value in values.items():
            if name in checks and (value is not None or "None" not in annotations[name]):
                values[name] = checks[name](name, value)
        check_broadcast(**{name: values[name] for name in arrays if values.get(name) is not None})
        result = function(**values)
        return float(result) if isinstance(result, np.ndarray | np.generic) and result.ndim == 0 else result

    return call  # type: ignore[return-value]
